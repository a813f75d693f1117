/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * A process lowers the limit of its address space to 512 MiB, as Python's resource.setrlimit does,
 * by each call that exists. Objects in the heap stay, and mappings, threads and blocks of every
 * size go on as if no address space had been reserved. A child of vfork that lowers its own limit
 * leaves the parent's memory alone, and a signal handler may lower the limit during any call.
 */
#define _GNU_SOURCE
#include "check.h"

#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <time.h>

enum { BLOCKS = 20000, LIMIT = 512 << 20, MAPPING = 100 << 20, SOME_PAGES = 1 << 14 };
enum { SMALL_MAPPING = 1 << 20, ROUNDS = 24 };
enum { LARGE_BLOCKS = 3000, LARGE_BYTES = 1 << 20 };
#define FAR_LIMIT ((rlim_t)256 << 30)

enum way {
        BY_SETRLIMIT,
        BY_SETRLIMIT64,
        BY_PRLIMIT,
        BY_PRLIMIT64,
        BY_EXCHANGE,
        BY_THREAD,
        WAYS,
};

static unsigned char *blocks[BLOCKS];

static size_t block_bytes(int i)
{
        return 16 + (size_t)i % 3000;
}

static void make_blocks(void)
{
        for (int i = 0; i < BLOCKS; i++) {
                blocks[i] = malloc(block_bytes(i));
                check(blocks[i]);
                fill(blocks[i], block_bytes(i), (unsigned int)i);
        }
}

static void end_blocks(void)
{
        for (int i = 0; i < BLOCKS; i++) {
                check(intact(blocks[i], block_bytes(i), (unsigned int)i));
                free(blocks[i]);
        }
}

/* Pages of address space. */
static size_t mapped_pages(void)
{
        char text[100] = "";
        FILE *file = fopen("/proc/self/statm", "r");

        check(file && fgets(text, sizeof(text), file));
        fclose(file);
        return strtoul(text, NULL, 10);
}

static void *in_thread(void *argument)
{
        end_blocks();
        make_blocks();
        return argument;
}

static void go_on(void)
{
        void *mapping = mmap(NULL, MAPPING, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        unsigned char *large;
        pthread_t thread;

        check(mapping != MAP_FAILED && munmap(mapping, MAPPING) == 0);
        large = malloc(MAPPING);
        check(large);
        memset(large, 1, MAPPING);
        large = realloc(large, MAPPING + (MAPPING >> 1));
        check(large && large[MAPPING - 1] == 1);
        free(large);
        check(pthread_create(&thread, NULL, in_thread, NULL) == 0);
        check(pthread_join(thread, NULL) == 0);
        end_blocks();
        make_blocks();
        check(malloc(LIMIT) == NULL);
}

static void lower_in_vfork(const struct rlimit *limit)
{
        size_t before = mapped_pages();
        pid_t child = vfork();

        if (child == 0)
                _exit(setrlimit(RLIMIT_AS, limit) != 0);
        check(child > 0);
        wait_for(child);
        /* The library may have mapped or unmapped some of its own meanwhile. */
        check(mapped_pages() + SOME_PAGES > before);
}

static void *lower_by_thread(void *limit)
{
        check(prlimit(gettid(), RLIMIT_AS, limit, NULL) == 0);
        return NULL;
}

static void lower(enum way way, const struct rlimit *limit)
{
        struct rlimit64 limit64 = {limit->rlim_cur, limit->rlim_max};
        struct rlimit both = *limit;
        pthread_t thread;

        switch (way) {
        case BY_SETRLIMIT:
                check(setrlimit(RLIMIT_AS, limit) == 0);
                break;
        case BY_SETRLIMIT64:
                check(setrlimit64(RLIMIT_AS, &limit64) == 0);
                break;
        case BY_PRLIMIT:
                check(prlimit(0, RLIMIT_AS, limit, NULL) == 0);
                break;
        case BY_PRLIMIT64:
                check(prlimit64(getpid(), RLIMIT_AS, &limit64, NULL) == 0);
                break;
        case BY_EXCHANGE: /* the old limit is stored over the new limit */
                check(prlimit(0, RLIMIT_AS, &both, &both) == 0);
                check(both.rlim_cur >= limit->rlim_cur);
                break;
        default:
                check(pthread_create(&thread, NULL, lower_by_thread, &both) == 0);
                check(pthread_join(thread, NULL) == 0);
        }
}

static timer_t timer;

static void start_timer(void)
{
        const struct itimerspec soon = {.it_value.tv_nsec = 1000000};

        check(timer_settime(timer, 0, &soon, NULL) == 0);
}

static void lower_in_handler(int number)
{
        const struct rlimit limit = {FAR_LIMIT, RLIM_INFINITY};

        check(number == SIGUSR1 && setrlimit(RLIMIT_AS, &limit) == 0);
        start_timer();
}

/* A child with a heap that grows with every few blocks. */
static void interrupt_growth(void)
{
        struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGUSR1};

        if (!is_forked_child())
                return;
        watchdog(60);
        check(signal(SIGUSR1, lower_in_handler) != SIG_ERR);
        check(timer_create(CLOCK_MONOTONIC, &event, &timer) == 0);
        start_timer();
        for (int i = 0; i < LARGE_BLOCKS; i++)
                check(opaque(malloc(LARGE_BYTES)));
        _exit(0);
}

static bool lowered;          /* atomic */
static unsigned int mappings; /* as above */

static void *map_and_unmap(void *argument)
{
        while (!__atomic_load_n(&lowered, __ATOMIC_RELAXED)) {
                void *mapping =
                        mmap(NULL, SMALL_MAPPING, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

                check(mapping != MAP_FAILED && munmap(mapping, SMALL_MAPPING) == 0);
                __atomic_add_fetch(&mappings, 1, __ATOMIC_RELAXED);
        }
        return argument;
}

/* A child with a thread that makes mappings all the time. */
static void lower_while_mapping(const struct rlimit *limit)
{
        pthread_t thread;

        if (!is_forked_child())
                return;
        check(pthread_create(&thread, NULL, map_and_unmap, NULL) == 0);
        while (__atomic_load_n(&mappings, __ATOMIC_RELAXED) < 20)
                usleep(50);
        check(setrlimit(RLIMIT_AS, limit) == 0);
        usleep(200);
        __atomic_store_n(&lowered, true, __ATOMIC_RELAXED);
        check(pthread_join(thread, NULL) == 0);
        _exit(0);
}

static void check_refusals(const struct rlimit *limit)
{
        const struct rlimit wrong = {2, 1};
        size_t before = mapped_pages();

        errno = 0;
        check(setrlimit(RLIMIT_AS, opaque((void *)16)) == -1 && errno == EFAULT);
        errno = 0;
        check(setrlimit(RLIMIT_AS, &wrong) == -1 && errno == EINVAL);
        errno = 0;
        check(setrlimit(-1, limit) == -1 && errno == EINVAL);
        check(mapped_pages() + SOME_PAGES > before);
}

static void lower_in_child(enum way way, const struct rlimit *limit)
{
        if (!is_forked_child())
                return;
        lower(way, limit);
        go_on();
        _exit(0);
}

/* Of a child that has given up rights, as before a sandbox, and of that one's child. */
static void lower_in_vfork_of_restricted(const struct rlimit *limit)
{
        if (!is_forked_child())
                return;
        check(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
        lower_in_vfork(limit);
        if (is_forked_child()) {
                lower_in_vfork(limit);
                lower(BY_SETRLIMIT, limit);
                go_on();
                _exit(0);
        }
        lower(BY_PRLIMIT64, limit);
        go_on();
        _exit(0);
}

int main(void)
{
        const struct rlimit limit = {LIMIT, LIMIT};
        struct rlimit now;

        watchdog(120);
        make_blocks();
        check_refusals(&limit);
        lower_in_vfork(&limit);
        lower_in_vfork_of_restricted(&limit);
        for (int round = 0; round < ROUNDS; round++)
                lower_while_mapping(&limit);
        interrupt_growth();
        for (enum way way = 0; way < WAYS; way++)
                lower_in_child(way, &limit);
        check(setrlimit(RLIMIT_AS, &limit) == 0 && getrlimit(RLIMIT_AS, &now) == 0);
        if (now.rlim_cur != LIMIT) {
                puts("this kernel does not limit address space");
                return 77;
        }
        go_on();
        end_blocks();
        puts("ok");
        return 0;
}
