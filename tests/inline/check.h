/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * What programs do with a condition that must hold: say which, and end.
 */
#ifndef TESTS_INLINE_CHECK_H
#define TESTS_INLINE_CHECK_H

#include <stdio.h>
#include <stdlib.h>

#define CHECK(condition)                                                                           \
        do {                                                                                       \
                if (!(condition)) {                                                                \
                        fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition);            \
                        exit(1);                                                                   \
                }                                                                                  \
        } while (0)

#endif
