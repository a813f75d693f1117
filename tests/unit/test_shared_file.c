/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Files that several processes write through mappings, where a signal comes between.
 */
#define _GNU_SOURCE
#include "child.h"
#include "filter.h"

#include "machine/shared_file.h"
#include "unit.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
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
        struct shared_file which;
        int descriptor;
        int error = 0;
        char *mapped;

        check(file >= 0);
        check(shared_file_map(path, 0, OFFSET, &which, &error));
        descriptor = filter_calls(SYS_fallocate, ANY_ARGUMENT, SECCOMP_RET_USER_NOTIF);
        if (descriptor < 0) {
                unlink(path);
                puts("# skipped: no seccomp filter can report calls here");
                exit(CHILD_SKIP);
        }
        check_equal(pthread_create(&thread, NULL, interrupt_calls, &descriptor), 0);
        mapped = shared_file_map(path, OFFSET, BYTES, &which, &error);
        unlink(path);
        check_equal(error, 0);
        check_equal(pthread_join(thread, NULL), 0);
        memset(mapped, 1, BYTES);
        check_equal(lseek(file, 0, SEEK_END), OFFSET + BYTES);
}

/* As behind chroot, where the folder of the name has no such file. */
static void test_later_part_makes_no_file(void **state)
{
        char folder[] = "/tmp/kmem-shared-XXXXXX";
        struct shared_file which = {0};
        char path[64];
        int error = 0;

        assert_non_null(mkdtemp(folder));
        snprintf(path, sizeof(path), "%s/file", folder);
        assert_null(shared_file_map(path, OFFSET, BYTES, &which, &error));
        assert_int_equal(error, ENOENT);
        assert_int_not_equal(access(path, F_OK), 0);
        assert_non_null(shared_file_map(path, 0, BYTES, &which, &error));
        assert_non_null(shared_file_map(path, OFFSET, BYTES, &which, &error));
        assert_int_equal(unlink(path), 0);
        assert_int_equal(rmdir(folder), 0);
}

/* As after a rename: nothing of the file that has the name now may change. */
static void test_later_part_goes_to_no_other_file(void **state)
{
        char folder[] = "/tmp/kmem-shared-XXXXXX";
        struct shared_file which;
        struct stat status;
        char path[64];
        char moved[64];
        int error = 0;
        FILE *other;

        assert_non_null(mkdtemp(folder));
        snprintf(path, sizeof(path), "%s/file", folder);
        snprintf(moved, sizeof(moved), "%s/moved", folder);
        assert_non_null(shared_file_map(path, 0, BYTES, &which, &error));
        assert_int_equal(rename(path, moved), 0);
        other = fopen(path, "w");
        assert_true(other && fputs("words", other) >= 0);
        assert_int_equal(fclose(other), 0);
        assert_null(shared_file_map(path, OFFSET, BYTES, &which, &error));
        assert_int_equal(error, ESTALE);
        assert_int_equal(stat(path, &status), 0);
        assert_int_equal(status.st_size, strlen("words"));
        assert_int_equal(rename(moved, path), 0);
        assert_non_null(shared_file_map(path, OFFSET, BYTES, &which, &error));
        assert_int_equal(unlink(path), 0);
        assert_int_equal(rmdir(folder), 0);
}

/* A file that cannot be written whole replaces nothing, and a limit of files is no signal. */
static int copy_of(const char *from, const char *to)
{
        int source = open(from, O_RDONLY | O_CLOEXEC);
        int error;

        check(source >= 0);
        error = shared_file_copy(source, to);
        close(source);
        return error;
}

static void copied(void)
{
        char folder[] = "/tmp/kmem-shared-XXXXXX";
        char from[64];
        char to[64];
        char beside[64];
        char text[8192] = "";
        const struct rlimit limit = {4096, 4096};
        FILE *file;

        check(mkdtemp(folder));
        snprintf(from, sizeof(from), "%s/from", folder);
        snprintf(to, sizeof(to), "%s/to", folder);
        snprintf(beside, sizeof(beside), "%s/to.new.%d", folder, (int)gettid());
        for (unsigned int round = 0; round < 2; round++) {
                file = fopen(from, "w");
                check(file);
                for (unsigned int i = 0; i < (round ? 1500 : 10); i++)
                        fputs("words ", file);
                check_equal(fclose(file), 0);
                if (round)
                        check_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
                check_equal(copy_of(from, to), round ? EFBIG : 0);
        }
        file = fopen(to, "r");
        check(file && fread(text, 1, sizeof(text), file) == 10 * strlen("words "));
        fclose(file);
        check(access(beside, F_OK) != 0);
        check_equal(copy_of("/", to), EISDIR);
        check_equal(copy_of(from, "/nonexistent/to"), ENOENT);
        check(unlink(from) == 0 && unlink(to) == 0 && rmdir(folder) == 0);
}

enum { COPIES = 200, WORDS = 10000 };

struct copying {
        char from[64];
        char to[64];
};

static void *copy_often(void *argument)
{
        const struct copying *copying = argument;

        for (unsigned int i = 0; i < COPIES; i++)
                check_equal(copy_of(copying->from, copying->to), 0);
        return NULL;
}

/* A copy is whole whenever somebody looks, also when threads copy to one place. */
static void test_copied_by_two_threads(void **state)
{
        char folder[] = "/tmp/kmem-shared-XXXXXX";
        struct copying copying;
        struct stat status;
        pthread_t threads[2];
        FILE *file;

        assert_non_null(mkdtemp(folder));
        snprintf(copying.from, sizeof(copying.from), "%s/from", folder);
        snprintf(copying.to, sizeof(copying.to), "%s/to", folder);
        file = fopen(copying.from, "w");
        assert_non_null(file);
        for (unsigned int i = 0; i < WORDS; i++)
                fputs("word", file);
        assert_int_equal(fclose(file), 0);
        assert_int_equal(copy_of(copying.from, copying.to), 0);
        for (unsigned int i = 0; i < 2; i++)
                assert_int_equal(pthread_create(&threads[i], NULL, copy_often, &copying), 0);
        for (unsigned int i = 0; i < COPIES; i++) {
                assert_int_equal(stat(copying.to, &status), 0);
                assert_int_equal(status.st_size, WORDS * strlen("word"));
        }
        for (unsigned int i = 0; i < 2; i++)
                assert_int_equal(pthread_join(threads[i], NULL), 0);
        assert_int_equal(unlink(copying.from), 0);
        assert_int_equal(unlink(copying.to), 0);
        assert_int_equal(rmdir(folder), 0);
}

static void test_copied(void **state)
{
        child_passes("copied", NULL);
}

static void test_interrupted(void **state)
{
        child_passes("interrupted", NULL);
}

int main(int argc, char **argv)
{
        static const struct child_case children[] = {{"interrupted", interrupted},
                                                     {"copied", copied}};
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_interrupted), cmocka_unit_test(test_later_part_makes_no_file),
                cmocka_unit_test(test_later_part_goes_to_no_other_file),
                cmocka_unit_test(test_copied), cmocka_unit_test(test_copied_by_two_threads)};

        child_main(argc, argv, children, sizeof(children) / sizeof(*children));
        return cmocka_run_group_tests(tests, NULL, NULL);
}
