/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Cases that need other options, or that end badly, run in a new process of this program: "PROGRAM
 * --child NAME". Its output is kept for checks.
 */
#ifndef TESTS_UNIT_CHILD_H
#define TESTS_UNIT_CHILD_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <sys/types.h>
#include <cmocka.h>

enum { CHILD_OUTPUT_BYTES = 1 << 16, CHILD_SKIP = 77 };

struct child_case {
        const char *name;
        void (*run)(void);
};

struct child_result {
        int status;                      /* of waitpid */
        char output[CHILD_OUTPUT_BYTES]; /* both streams */
};

/* To be called first in main; does not return in a child. */
void child_main(int argc, char **argv, const struct child_case *cases, size_t count);

/*
 * KMEM_OPTIONS for a child: this process's engine and slots, then @options, which win. In a static
 * buffer.
 */
const char *child_settings(const char *options);
/*
 * Starts the program again with @options behind KMEM_OPTIONS, where they win, unless it ends with
 * them. For tests of the inside of a back end; to be called in main before anything else but
 * child_main.
 */
void child_restart_with(char **argv, const char *options);
/*
 * @options: for child_settings; NULL: all as in this process. Skips the case if the child ends
 * with CHILD_SKIP, after printing its reason.
 */
void child_run(const char *name, const char *options, struct child_result *result);
/* Runs a child that must end with 0; its output is printed otherwise. */
void child_passes(const char *name, const char *options);
/* As child_passes; its output must hold @text. */
void child_prints(const char *name, const char *options, const char *text);
/* Runs a child that must be ended by SIGABRT after printing @text. */
void child_aborts(const char *name, const char *options, const char *text);
/* Waits for a child made by fork alone, which must end with 0. */
void child_wait(pid_t child);
/* A seccomp filter for the next children: this system call fails with EPERM. -1: none. */
void child_refuse_system_call(long number);

/* As assert_true, for children and for loops: prints the failure, and ends the test. */
#define check(condition)                                                                           \
        do {                                                                                       \
                if (!(condition))                                                                  \
                        check_failed(#condition, __FILE__, __LINE__);                              \
        } while (0)
#define check_equal(a, b)                                                                          \
        check_numbers((uint64_t)(a), (uint64_t)(b), #a " == " #b, __FILE__, __LINE__)

void check_failed(const char *text, const char *file, int line) __attribute__((noreturn));
void check_numbers(uint64_t a, uint64_t b, const char *text, const char *file, int line);

static inline uint64_t random_step(uint64_t *state)
{
        *state ^= *state << 13;
        *state ^= *state >> 7;
        *state ^= *state << 17;
        return *state * 0x2545f4914f6cdd1dull >> 16;
}

#endif
