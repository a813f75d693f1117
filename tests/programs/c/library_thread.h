/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* The library's own thread: it comes with frees, in a program that has or had threads. */
#ifndef LIBRARY_THREAD_H
#define LIBRARY_THREAD_H

#include <dirent.h>
#include <pthread.h>

#include "check.h"

static inline void *churn_thread(void *argument)
{
        struct churn churn;

        churn_init(&churn, 1);
        churn_run(&churn, 20000);
        churn_end(&churn);
        return argument;
}

static inline void churn_in_thread(void)
{
        pthread_t thread;

        check(pthread_create(&thread, NULL, churn_thread, NULL) == 0);
        check(pthread_join(thread, NULL) == 0);
}

static inline unsigned int count_threads(void)
{
        DIR *directory = opendir("/proc/self/task");
        unsigned int count = 0;

        check(directory);
        for (struct dirent *entry; (entry = readdir(directory));)
                count += entry->d_name[0] != '.';
        closedir(directory);
        return count;
}

#endif
