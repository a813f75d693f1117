/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Files that several processes write through mappings, where a signal comes between.
 */
#define _GNU_SOURCE
#include "child.h"
#include "filter.h"

#include "base/shared_file.h"
#include "unit.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

enum { OFFSET = 64 << 10, BYTES = 128 << 10 };

/* The first two calls end as if a signal had come, the third is made. */
static void *interrupt_calls(void *descriptor)
{
        for (unsigned int i = 0; i < 3; i++) {
                struct seccomp_notif call = {0};
                struct seccomp_notif_resp answer = {0};

                check_equal(ioctl(*(int *)descriptor, SECCOMP_IOCTL_NOTIF_RECV, &call), 0);
                answer.id = call.id;
                if (i < 2)
                        answer.error = -EINTR;
                else
                        answer.flags = SECCOMP_USER_NOTIF_FLAG_CONTINUE;
                check_equal(ioctl(*(int *)descriptor, SECCOMP_IOCTL_NOTIF_SEND, &answer), 0);
        }
        return NULL;
}

static void interrupted(void)
{
        char path[] = "/tmp/kmem-shared-XXXXXX";
        int file = mkstemp(path);
        pthread_t thread;
        int descriptor;
        int error = 0;
        char *mapped;

        check(file >= 0);
        descriptor = filter_calls(SYS_fallocate, ANY_ARGUMENT, SECCOMP_RET_USER_NOTIF);
        if (descriptor < 0) {
                unlink(path);
                puts("# skipped: no seccomp filter can report calls here");
                exit(CHILD_SKIP);
        }
        check_equal(pthread_create(&thread, NULL, interrupt_calls, &descriptor), 0);
        mapped = shared_file_map(path, OFFSET, BYTES, &error);
        unlink(path);
        check_equal(error, 0);
        check_equal(pthread_join(thread, NULL), 0);
        memset(mapped, 1, BYTES);
        check_equal(lseek(file, 0, SEEK_END), OFFSET + BYTES);
}

static void test_interrupted(void **state)
{
        child_passes("interrupted", NULL);
}

int main(int argc, char **argv)
{
        static const struct child_case children[] = {{"interrupted", interrupted}};
        const struct CMUnitTest tests[] = {cmocka_unit_test(test_interrupted)};

        child_main(argc, argv, children, sizeof(children) / sizeof(*children));
        return cmocka_run_group_tests(tests, NULL, NULL);
}
