/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * glibc from 2.28 on, for the programs of the command; machine/older_libc.c says how that is done for
 * the libraries, and is in the programs too.
 *
 * From 2.34 on the start of a program leaves it to libc to run the program's constructors, which an
 * older libc would not do: here libc is told to call a function that runs them, as old programs do.
 */
#include "lang/compiler.h"

typedef int main_function(int count, char **words, char **environment);
typedef void constructor(int count, char **words, char **environment);

/* The linker's, which knows where the program's table of constructors lies. */
extern constructor *const __init_array_start[] KMEM_HIDDEN;
extern constructor *const __init_array_end[] KMEM_HIDDEN;

static void run_constructors(int count, char **words, char **environment)
{
        for (constructor *const *each = __init_array_start; each < __init_array_end; each++)
                (*each)(count, words, environment);
}

extern int __real___libc_start_main(main_function *program, int count, char **words,
                                    constructor *before, void (*after)(void), void (*end)(void),
                                    void *stack_end);
KMEM_HIDDEN int __wrap___libc_start_main(main_function *program, int count, char **words,
                                         constructor *before, void (*after)(void),
                                         void (*end)(void), void *stack_end);

int __wrap___libc_start_main(main_function *program, int count, char **words, constructor *before,
                             void (*after)(void), void (*end)(void), void *stack_end)
{
        return __real___libc_start_main(program, count, words, before ? before : run_constructors,
                                        after, end, stack_end);
}
