/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Messages to people: each is a line on standard error that begins with "kmem: ". They allocate
 * nothing and may be printed from any slow path, also with locks held.
 */
#ifndef KMEM_MACHINE_MESSAGE_H
#define KMEM_MACHINE_MESSAGE_H

#include "lang/compiler.h"

/* Prints a line; the newline is added. The conversions are text_print's (lang/text.h). */
KMEM_HIDDEN void message(const char *format, ...) KMEM_PRINTF(1, 2);

/* The meaning of an errno, for errors that files bring; "failed" for others. Never translated. */
KMEM_HIDDEN const char *message_error(int error);

/* Writes all of a text to any file. 0 or an errno. */
KMEM_HIDDEN int message_write(int file, const char *text, size_t bytes);

/*
 * Prints to any file, without prefix and newline; text beyond 255 characters is cut off. For tables
 * and reports. Conversions as in message. 0 or an errno.
 */
KMEM_HIDDEN int message_print(int file, const char *format, ...) KMEM_PRINTF(2, 3);

/* Prints a line and aborts. */
KMEM_HIDDEN void message_fatal(const char *format, ...) KMEM_PRINTF(1, 2)
        __attribute__((noreturn, cold));

/* Cheap checks that stay in release builds, on slow paths only. */
#define check_or_die(condition)                                                                    \
        do {                                                                                       \
                if (unlikely(!(condition)))                                                        \
                        message_fatal("internal check failed: %s (%s:%d)", #condition, __FILE__,   \
                                      __LINE__);                                                   \
        } while (0)

/* Expensive or frequent checks: only in builds with -Ddebug_checks=true. */
#ifdef KMEM_DEBUG_CHECKS
#define debug_check(condition) check_or_die(condition)
#else
#define debug_check(condition) ((void)sizeof(condition))
#endif

#endif
