/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * A process lowers the limit of its address space to 512 MiB, as Python's resource.setrlimit does, by
 * each of the calls there are: what is in the heap stays, and mappings, threads and blocks of every
 * size go on as where nothing had been reserved. A child of vfork that lowers its own leaves the
 * parent's memory alone.
 */
#define _GNU_SOURCE
#include "check.h"

#include <pthread.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>

enum { BLOCKS = 20000, LIMIT = 512 << 20, MAPPING = 100 << 20, SOME_PAGES = 1 << 14 };

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
        int status;

        if (child == 0)
                _exit(setrlimit(RLIMIT_AS, limit) != 0);
        check(child > 0 && waitpid(child, &status, 0) == child && status == 0);
        /* The library may have mapped or unmapped some of its own meanwhile. */
        check(mapped_pages() + SOME_PAGES > before);
}

static void lower_in_child(int way, const struct rlimit *limit)
{
        struct rlimit64 limit64 = {limit->rlim_cur, limit->rlim_max};
        int status;
        pid_t child = fork();

        check(child >= 0);
        if (child) {
                check(waitpid(child, &status, 0) == child && status == 0);
                return;
        }
        check((way == 0   ? setrlimit(RLIMIT_AS, limit)
               : way == 1 ? setrlimit64(RLIMIT_AS, &limit64)
               : way == 2 ? prlimit(0, RLIMIT_AS, limit, NULL)
                          : prlimit64(getpid(), RLIMIT_AS, &limit64, NULL)) == 0);
        go_on();
        _exit(0);
}

int main(void)
{
        const struct rlimit limit = {LIMIT, LIMIT};
        struct rlimit now;

        watchdog(120);
        make_blocks();
        lower_in_vfork(&limit);
        for (int way = 0; way < 4; way++)
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
