/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * mlockall in a process that may lock 64 MiB, or 8, and has no further rights. mlockall succeeds,
 * also for future mappings, with the limit set before or after the call. The heap grows up to the
 * limit and is refused more, and so are the program's own mappings. munlockall ends the limit's
 * effect. Needs root, to give it up.
 */
#define _GNU_SOURCE
#include "check.h"

#include <fcntl.h>
#include <grp.h>
#include <stdbool.h>
#include <sys/mman.h>
#include <sys/resource.h>

enum { LIMIT_MOST = 64 << 20, NOBODY = 65534, BLOCKS = 1 << 14 };

static void *blocks[BLOCKS];
static size_t limit_bytes; /* 64 MiB, or less where not even root may have so much */

static size_t locked_kib(void)
{
        static char text[8192];
        int file = open("/proc/self/status", O_RDONLY);
        ssize_t got = read(file, text, sizeof(text) - 1);
        const char *line;

        check(got > 0);
        close(file);
        text[got] = '\0';
        line = strstr(text, "VmLck:");
        check(line);
        return strtoul(line + strlen("VmLck:"), NULL, 10);
}

static void set_limit(void)
{
        const struct rlimit limit = {limit_bytes, limit_bytes};

        check(setrlimit(RLIMIT_MEMLOCK, &limit) == 0);
}

static void give_up_rights(void)
{
        check(setgroups(0, NULL) == 0 && setgid(NOBODY) == 0 && setuid(NOBODY) == 0);
}

/* Bytes until the heap says no, or @most; all of it is freed again. */
static size_t fill_heap(size_t block_bytes, size_t most)
{
        size_t bytes = 0;
        int count = 0;

        while (count < BLOCKS && bytes < most) {
                blocks[count] = malloc(block_bytes);
                if (!blocks[count])
                        break;
                fill(blocks[count], block_bytes, (unsigned char)count);
                count++;
                bytes += block_bytes;
        }
        while (count-- > 0) {
                check(intact(blocks[count], block_bytes, (unsigned char)count));
                free(blocks[count]);
        }
        return bytes;
}

static bool can_map(size_t bytes)
{
        void *mapping =
                mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

        if (mapping == MAP_FAILED)
                return false;
        check(munmap(mapping, bytes) == 0);
        return true;
}

enum order { LIMIT_FIRST, LOCK_FIRST, RIGHTS_FIRST, ORDERS };

static void begin(enum order order, int flags)
{
        /* The heap is there, and its figures are shown. */
        check(fill_heap(100, 1 << 18) >= 1 << 18);
        if (order == LIMIT_FIRST)
                set_limit();
        if (order == RIGHTS_FIRST) {
                set_limit();
                give_up_rights();
        }
        check(mlockall(flags) == 0);
        if (order == LOCK_FIRST)
                set_limit();
        if (order != RIGHTS_FIRST)
                give_up_rights();
}

static void run(enum order order, int flags)
{
        bool future = flags & MCL_FUTURE;
        size_t small, large;

        begin(order, flags);
        check(locked_kib() << 10 <= limit_bytes);
        check(can_map(limit_bytes / 32));
        small = fill_heap(limit_bytes / 8192, limit_bytes * 2);
        large = fill_heap(limit_bytes / 64, limit_bytes * 2);
        if (getenv("SHOW_LOCKED"))
                dprintf(STDERR_FILENO, "order %d, flags %d: %zu and %zu bytes\n", (int)order, flags,
                        small, large);
        if (future) {
                check(small >= limit_bytes / 16 && small < limit_bytes * 2);
                check(large >= limit_bytes / 16 && large < limit_bytes * 2);
                check(locked_kib() << 10 <= limit_bytes);
                check(!can_map(limit_bytes));
        } else {
                check(large >= limit_bytes * 2);
                check(can_map(limit_bytes * 2));
        }
        if (future && !(flags & MCL_ONFAULT) && flags & MCL_CURRENT)
                check(locked_kib() >= 1024);
        check(munlockall() == 0);
        check(locked_kib() == 0);
        check(can_map(limit_bytes * 2));
        check(fill_heap(limit_bytes / 64, limit_bytes * 2) >= limit_bytes * 2);
        check(locked_kib() == 0);
}

/* A child of fork has nothing locked. */
static void run_in_child(void)
{
        begin(RIGHTS_FIRST, MCL_CURRENT | MCL_FUTURE);
        if (is_forked_child()) {
                watchdog(60);
                check(fill_heap(limit_bytes / 64, limit_bytes * 2) >= limit_bytes * 2);
                check(locked_kib() == 0);
                _exit(0);
        }
}

int main(void)
{
        struct rlimit hard;

        static const int flags[] = {
                MCL_CURRENT,
                MCL_CURRENT | MCL_FUTURE,
                MCL_CURRENT | MCL_FUTURE | MCL_ONFAULT,
                MCL_FUTURE,
        };

        if (getuid() != 0) {
                puts("needs root, to give it up");
                return 77;
        }
        check(getrlimit(RLIMIT_MEMLOCK, &hard) == 0);
        limit_bytes = hard.rlim_max < LIMIT_MOST ? (size_t)hard.rlim_max : (size_t)LIMIT_MOST;
        for (int order = 0; order < ORDERS; order++)
                for (size_t i = 0; i < sizeof(flags) / sizeof(flags[0]); i++)
                        if (is_forked_child()) {
                                watchdog(60);
                                run((enum order)order, flags[i]);
                                _exit(0);
                        }
        if (is_forked_child()) {
                watchdog(60);
                run_in_child();
                _exit(0);
        }
        puts("ok");
        return 0;
}
