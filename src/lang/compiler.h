/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Compiler attributes and the few macros that every file uses.
 */
#ifndef KMEM_LANG_COMPILER_H
#define KMEM_LANG_COMPILER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define likely(condition) __builtin_expect(!!(condition), 1)
#define unlikely(condition) __builtin_expect(!!(condition), 0)

#define KMEM_HIDDEN __attribute__((visibility("hidden")))
#define KMEM_PUBLIC __attribute__((visibility("default")))
#define KMEM_NOINLINE __attribute__((noinline))
#define KMEM_COLD __attribute__((noinline, cold))
/*
 * For calls with a hit of a few tens of instructions: they begin on a line of the cache, so that a
 * hit is fetched in two lines and not in three. That saves a tenth of its time.
 */
#define KMEM_FAST_CALL KMEM_PUBLIC __attribute__((aligned(CACHE_LINE)))
#define KMEM_ALWAYS_INLINE inline __attribute__((always_inline))
/*
 * For large variables of which a process uses the first part, or nothing: they lie behind the small
 * variables, so that these share few pages (the linker sorts sections of uninitialized data by
 * name).
 */
#define KMEM_SPARSE __attribute__((section(".bss.sparse")))
#define KMEM_PRINTF(string, first) __attribute__((format(printf, string, first)))

#define CACHE_LINE 64

#define container_of(pointer, type, member) ((type *)((char *)(pointer)-offsetof(type, member)))

/*
 * A pointer of which the optimizer knows nothing. To a compiler two names are two objects, so it
 * may decide at build time how their addresses compare, and skip the comparison. Yet the linker's
 * names for the two ends of a section (__start_SECTION, __stop_SECTION) lie in a single object and
 * may be equal. Names that the dynamic linker binds need more: a compiler may assume that the
 * definition it sees is in use, so their addresses are read from tables that it does not see
 * (api/bound.c).
 */
#define hide_address(pointer)                                                                      \
        ({                                                                                         \
                __typeof__(&*(pointer)) hidden_ = (pointer);                                       \
                __asm__("" : "+r"(hidden_));                                                       \
                hidden_;                                                                           \
        })

#define array_size(array) (sizeof(array) / sizeof((array)[0]))

#define min_of(a, b)                                                                               \
        ({                                                                                         \
                __typeof__(a) min_a_ = (a);                                                        \
                __typeof__(a) min_b_ = (b);                                                        \
                min_a_ < min_b_ ? min_a_ : min_b_;                                                 \
        })

#define max_of(a, b)                                                                               \
        ({                                                                                         \
                __typeof__(a) max_a_ = (a);                                                        \
                __typeof__(a) max_b_ = (b);                                                        \
                max_a_ > max_b_ ? max_a_ : max_b_;                                                 \
        })

#endif
