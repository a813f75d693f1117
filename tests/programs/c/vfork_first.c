/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * A child of vfork and its own child of vfork are the first to allocate. The heap is in the memory
 * of the first process, and belongs to it when the children are gone: it follows that process's
 * limit of the address space, and is shown under its number.
 */
#define _GNU_SOURCE
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include "check.h"
#include "shown.h"

enum { BLOCKS = 500 };
static const size_t MAPPED_BYTES = (size_t)64 << 20;

static void *blocks[BLOCKS];

static void allocate(void)
{
        for (int i = 0; i < BLOCKS; i++) {
                blocks[i] = malloc(3000);
                check(blocks[i]);
        }
}

static void free_all(void)
{
        for (int i = 0; i < BLOCKS; i++)
                free(blocks[i]);
}

/*
 * Each calls vfork itself: if a function that called it returned in the child, the parent's stack
 * would be gone.
 */
static __attribute__((noinline)) void run_grandchild(void)
{
        pid_t child = vfork();

        if (child == 0) {
                allocate();
                _exit(0);
        }
        wait_for(child);
}

static __attribute__((noinline)) void run_child(void)
{
        pid_t child = vfork();

        if (child == 0) {
                run_grandchild();
                free_all();
                allocate();
                _exit(0);
        }
        wait_for(child);
}

static void lower_limit(void)
{
        struct rlimit limit;
        void *mapped;

        check(getrlimit(RLIMIT_AS, &limit) == 0);
        limit.rlim_cur = (rlim_t)4 << 30;
        check(setrlimit(RLIMIT_AS, &limit) == 0);
        mapped = mmap(NULL, MAPPED_BYTES, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        check(mapped != MAP_FAILED);
}

int main(int count, char **arguments)
{
        int shown = count > 1 && strcmp(arguments[1], "shown") == 0;

        watchdog(60);
        /*
         * The number of the program that this process came from by exec; in a child, since the look
         * allocates.
         */
        if (shown && is_forked_child()) {
                is_shown(getppid(), 1);
                _exit(0);
        }
        run_child();
        free_all();
        allocate();
        free_all();
        if (shown)
                check(is_shown(getpid(), 1));
        else
                lower_limit();
        puts("ok");
        return 0;
}
