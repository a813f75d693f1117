/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * After its threads have ended, a process enters namespaces. The kernel refuses a user namespace to
 * a process with more than one thread, and a mount namespace to a process with threads that share a
 * root directory. The library's own thread is there meanwhile, and comes again with later frees.
 */
#define _GNU_SOURCE
#include "library_thread.h"

#include <fcntl.h>
#include <sched.h>

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
        int root = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
        int result;

        watchdog(60);
        if (descriptor < 0 && errno == ENOENT) {
                puts("/proc is not mounted");
                fflush(stdout);
                _exit(77);
        }
        check(descriptor >= 0 && root >= 0);
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
        /* In a chroot setns led out of it, and the files written at exit belong inside. */
        check(fchdir(root) == 0 && chroot(".") == 0);
        puts("ok");
        return 0;
}
