/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * exec of a test program, under the emulator too: a foreign program needs it in front, and meson
 * names it in MESON_EXE_WRAPPER.
 */
#ifndef KMEM_TESTS_EXEC_H
#define KMEM_TESTS_EXEC_H

#include <limits.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { EXEC_WORDS_MAX = 32 };

/* Whether this program runs under an emulator or valgrind, where the kernel differs in places. */
static inline bool emulated(void)
{
        const char *wrapper = getenv("MESON_EXE_WRAPPER");

        return wrapper && *wrapper;
}

/* As execv: returns only if it fails. arguments[0] is replaced by the path under the emulator. */
static inline void exec_program(const char *path, char *const arguments[])
{
        static char words[4096];
        static char resolved[PATH_MAX];
        const char *wrapper = getenv("MESON_EXE_WRAPPER");
        char *line[EXEC_WORDS_MAX + 1];
        size_t count = 0;

        if (!emulated() || strlen(wrapper) >= sizeof(words)) {
                execv(path, arguments);
                return;
        }
        strcpy(words, wrapper);
        for (char *word = strtok(words, " "); word && count < EXEC_WORDS_MAX;
             word = strtok(NULL, " "))
                line[count++] = word;
        if (!realpath(path, resolved) || count == EXEC_WORDS_MAX)
                return;
        line[count++] = resolved;
        for (size_t i = 1; arguments[i] && count < EXEC_WORDS_MAX; i++)
                line[count++] = arguments[i];
        line[count] = NULL;
        execvp(line[0], line);
}

#endif
