/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * A child of fork gets a limit below its present address space, as by `ulimit -v` in a subshell:
 * the existing heap goes on, in the child and in its own child.
 */
#include "check.h"

#include <sys/resource.h>

enum { BLOCKS = 2000 };

static void use_heap(void)
{
        static void *blocks[BLOCKS];
        size_t bytes = 16;

        for (int i = 0; i < BLOCKS; i++) {
                bytes = bytes < 2000 ? bytes + 16 : 16;
                blocks[i] = malloc(bytes);
                check(blocks[i]);
                memset(blocks[i], 1, bytes);
        }
        for (int i = 0; i < BLOCKS; i++)
                free(blocks[i]);
}

static void run_child(int depth)
{
        pid_t child = fork();

        check(child >= 0);
        if (child) {
                wait_for(child);
                return;
        }
        if (depth == 0) {
                const struct rlimit limit = {16 << 20, 16 << 20};

                check(setrlimit(RLIMIT_AS, &limit) == 0);
        }
        use_heap();
        if (depth < 2)
                run_child(depth + 1);
        use_heap();
        _exit(0);
}

int main(void)
{
        use_heap();
        run_child(0);
        use_heap();
        puts("ok");
        return 0;
}
