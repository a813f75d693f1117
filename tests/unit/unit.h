/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* cmocka, with the headers that it needs included before it. */
#ifndef KMEM_TESTS_UNIT_H
#define KMEM_TESTS_UNIT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "skip.h"

#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

/*
 * Runs a case in a child of its own, where it may set limits; assertions end the child with
 * a message, as abort does. The child returns 0, or 77 for a reason to skip that it printed.
 */
static inline void run_in_child(int (*child)(void))
{
        int status;
        pid_t pid = fork();

        assert_true(pid >= 0);
        if (pid == 0)
                _exit(child());
        assert_int_equal(waitpid(pid, &status, 0), pid);
        if (WIFEXITED(status) && WEXITSTATUS(status) == 77)
                skip();
        assert_true(WIFEXITED(status));
        assert_int_equal(WEXITSTATUS(status), 0);
}

/* For children, where cmocka's assertions would run the parent's clean-up. */
#define child_check(condition)                                                                     \
        do {                                                                                       \
                if (!(condition)) {                                                                \
                        dprintf(STDERR_FILENO, "# child: %s (%s:%d)\n", #condition, __FILE__,      \
                                __LINE__);                                                         \
                        _exit(1);                                                                  \
                }                                                                                  \
        } while (0)

#endif
