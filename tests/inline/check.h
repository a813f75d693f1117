/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* A condition that must hold: if it does not, the program prints it and ends. */
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
