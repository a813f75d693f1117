/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Threads of the program as libc counts them, and threads that libc makes for us (system.h). */
#include "machine/system.h"

#include "lang/atomic.h"
#include "machine/file.h"

#include <pthread.h>
#include <signal.h>

/* glibc since 2.32: 0 once the process has had a second thread. */
extern char __libc_single_threaded __attribute__((weak));

enum threads system_threads(void)
{
        if (!&__libc_single_threaded)
                return THREADS_UNKNOWN;
        return load_relaxed(&__libc_single_threaded) ? THREADS_ONE : THREADS_MANY;
}

enum threads system_threads_asked(void)
{
        enum threads threads = system_threads();
        struct stat status;

        if (threads != THREADS_UNKNOWN || system_sandbox_was_told() ||
            file_status(-1, "/proc/self/task", &status) != 0)
                return threads;
        /* A folder has a link for each folder in it, and two of its own. */
        return status.st_nlink == 3 ? THREADS_ONE : THREADS_MANY;
}

bool system_start_thread(void *(*run)(void *argument))
{
        pthread_attr_t attributes;
        pthread_t thread;
        sigset_t all;
        sigset_t old;
        bool started = false;

        sigfillset(&all);
        /* Of this thread alone, in all libcs for Linux. */
        sigprocmask(SIG_SETMASK, &all, &old);
        if (pthread_attr_init(&attributes) == 0) {
                pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
                started = pthread_create(&thread, &attributes, run, NULL) == 0;
                pthread_attr_destroy(&attributes);
        }
        sigprocmask(SIG_SETMASK, &old, NULL);
        return started;
}
