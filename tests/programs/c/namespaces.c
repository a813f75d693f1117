/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * A process whose threads have ended enters namespaces that the kernel refuses to processes with more
 * than one thread (user), or whose threads share a root directory (mount), while the library's own
 * thread is there, which comes again with later frees.
 */
#define _GNU_SOURCE
#include "check.h"

#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>

static void *in_thread(void *argument)
{
        struct churn churn;

        churn_init(&churn, 1);
        churn_run(&churn, 20000);
        churn_end(&churn);
        return argument;
}

static void churn_in_thread(void)
{
        pthread_t thread;

        check(pthread_create(&thread, NULL, in_thread, NULL) == 0);
        check(pthread_join(thread, NULL) == 0);
}

static unsigned int count_threads(void)
{
        DIR *directory = opendir("/proc/self/task");
        unsigned int count = 0;

        check(directory);
        for (struct dirent *entry; (entry = readdir(directory));)
                count += entry->d_name[0] != '.';
        closedir(directory);
        return count;
}

/* Frees until the library has its thread. */
static void bring_thread(void)
{
        do
                churn_in_thread();
        while (count_threads() == 1);
}

static void skip_if_not_allowed(int result)
{
        if (result != 0 && (errno == EPERM || errno == ENOSPC)) {
                puts("namespaces need rights that this process has not");
                fflush(stdout);
                _exit(77);
        }
}

int main(void)
{
        int descriptor = open("/proc/self/ns/mnt", O_RDONLY | O_CLOEXEC);
        int result;

        watchdog(60);
        check(descriptor >= 0);
        bring_thread();
        result = setns(descriptor, CLONE_NEWNS);
        skip_if_not_allowed(result);
        check(result == 0);

        bring_thread();
        errno = 0;
        check(unshare(-1) == -1 && errno == EINVAL);

        bring_thread();
        result = unshare(CLONE_NEWUSER);
        skip_if_not_allowed(result);
        check(result == 0);

        bring_thread();
        errno = 0;
        check(setns(-1, 0) == -1 && errno == EBADF);
        puts("ok");
        return 0;
}
