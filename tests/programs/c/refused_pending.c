/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Ends where no byte may be written to a file, and where nobody tells which signals are pending, as in some sandboxes.
 * The report that the library then tries to write must not end the process by SIGXFSZ: what the library was not told is
 * not what happens to lie on the stack, on which every signal is pending here.
 *
 * This program stands in front of libc: its sigpending refuses, and its __errno_location, which the library calls first
 * at the end, leaves the stack full. It is well if sigpending was asked.
 */
#define _GNU_SOURCE
#include "check.h"

#include <dlfcn.h>
#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

enum { STACK_OF_END = 16 << 10 };

static bool ends;
static int *(*libcs)(void);

/* The library's functions that are called next have their variables there. */
static __attribute__((noinline)) void fill_stack(void)
{
        char bytes[STACK_OF_END];

        memset(bytes, 0xff, sizeof(bytes));
        __asm__ volatile("" : : "r"(bytes) : "memory");
}

int *__errno_location(void)
{
        static __thread int before; /* while libc's function is looked for */
        static bool looks;

        if (!libcs && !looks) {
                looks = true;
                *(void **)&libcs = dlsym(RTLD_NEXT, "__errno_location");
        }
        if (ends)
                fill_stack();
        return libcs ? libcs() : &before;
}

int sigpending(sigset_t *set)
{
        check(!sigismember(set, SIGXFSZ) && !sigismember(set, SIGPIPE));
        check(write(STDOUT_FILENO, "ok\n", 3) == 3);
        errno = EPERM;
        return -1;
}

int main(void)
{
        struct rlimit none = {0, 0};

        free(malloc(1000));
        check(setrlimit(RLIMIT_FSIZE, &none) == 0);
        ends = true;
        exit(0);
}
