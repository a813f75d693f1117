/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Errors at compile time. */
#ifndef KMEM_LINUX_BUILD_BUG_H
#define KMEM_LINUX_BUILD_BUG_H

#include <linux/compiler.h>

#include <assert.h>

/* A statement, not a declaration: it may stand behind a label and after an if. */
#define BUILD_BUG_ON_MSG(condition, text)                                                          \
        do {                                                                                       \
                _Static_assert(!(condition), text);                                                \
        } while (0)
#define BUILD_BUG_ON(condition) BUILD_BUG_ON_MSG(condition, "BUILD_BUG_ON: " #condition)
/* Also an expression: 0. */
#define BUILD_BUG_ON_ZERO(condition)                                                               \
        ((int)(sizeof(struct { int kmem_fails_here_ : ((condition) ? -1 : 1); }) * 0))

#endif
