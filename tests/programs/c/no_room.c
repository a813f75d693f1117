/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * A program with an address space too small for a heap: each request is refused, and no request
 * repeats the report on wrong options.
 */
#include <sys/resource.h>

#include "check.h"

/* The limit is there before the program begins, and the library with it. */
static void begin_again(char **arguments)
{
        const struct rlimit limit = {8 << 20, 8 << 20};

        check(setrlimit(RLIMIT_AS, &limit) == 0);
        setenv("BEGUN_AGAIN", "1", 1);
        execv(arguments[0], arguments);
        check(!"execv");
}

int main(int count, char **arguments)
{
        check(count == 1);
        watchdog(60);
        if (!getenv("BEGUN_AGAIN"))
                begin_again(arguments);
        dprintf(STDERR_FILENO, "begin\n");
        for (int i = 0; i < 10; i++) {
                if (opaque(malloc(100))) {
                        puts("the limit is not enforced here");
                        return 77;
                }
        }
        dprintf(STDERR_FILENO, "end\n");
        dprintf(STDOUT_FILENO, "ok\n");
        return 0;
}
