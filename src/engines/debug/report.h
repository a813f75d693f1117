/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Reports in the kernel's format (10.3): gathered under list_lock, written after it by a single
 * write(2). A report serves a single call, however many errors the call finds.
 */
#ifndef KMEM_ENGINES_DEBUG_REPORT_H
#define KMEM_ENGINES_DEBUG_REPORT_H

#include "base/depot.h"
#include "engines/engine.h"
#include "lang/text.h"

/* The caller of an operation. */
struct debug_caller {
        uintptr_t address; /* 0: not known */
        const struct stack *stack;
};

enum { REPORT_SMALL_BYTES = 256, REPORT_LEAST_BYTES = 16 << 10, REPORT_MOST_BYTES = 4 << 20 };

struct debug_report {
        struct kmem_cache *cache;
        struct debug_caller caller;
        struct text text; /* in the metadata arena, or in small */
        bool failed;      /* the text reports errors */
        char small[REPORT_SMALL_BYTES];
};

/*
 * The caller with the stack that the call notes or prints; empty if the cache does neither. The
 * stack is walked once for all objects of the call, since that takes longer than all else. No lock
 * may be held.
 */
KMEM_HIDDEN struct debug_caller report_caller(const struct kmem_cache *cache);
/* The caller is not known; it is looked for when errors are written. */
KMEM_HIDDEN void report_begin(struct debug_report *report, struct kmem_cache *cache);
/* Writes the gathered text, and ends the process after errors if option debug_abort says so. */
KMEM_HIDDEN void report_send(struct debug_report *report);

/* Text as it is. */
KMEM_HIDDEN void report_add(struct debug_report *report, const char *format, ...) KMEM_PRINTF(2, 3);
/* A name that the program gave, without line ends, a terminal's controls and marks of functions. */
KMEM_HIDDEN void report_add_name(struct debug_report *report, const char *name);
/* A hex dump, 16 bytes a line. */
KMEM_HIDDEN void report_add_bytes(struct debug_report *report, const char *what,
                                  const uint8_t *start, size_t bytes);

/* Adds an error to the cache's count. */
KMEM_HIDDEN void report_count(struct debug_report *report);
/* An error of an object, or with NULL of its slab, with all that is known about it. */
KMEM_HIDDEN void report_error(struct debug_report *report, struct page *slab, void *object,
                              const char *format, ...) KMEM_PRINTF(4, 5);
/* As report_error, but not counted: an earlier line was. */
KMEM_HIDDEN void report_show(struct debug_report *report, struct page *slab, void *object,
                             const char *reason);
/* A repair; counts as an error of its own. */
KMEM_HIDDEN void report_fix(struct debug_report *report, const char *format, ...) KMEM_PRINTF(2, 3);
/* Flag T: the line of a call that has succeeded. */
KMEM_HIDDEN void report_trace(struct debug_report *report, struct page *slab, void *object,
                              bool alloc);
/* Flag U: the callers that took and gave back the object. */
KMEM_HIDDEN void report_add_tracks(struct debug_report *report, void *object);

/* Operations of the engine. */
KMEM_HIDDEN void debug_report_stranger(struct kmem_cache *cache, void *object);
KMEM_HIDDEN uint64_t debug_errors(const struct kmem_cache *cache);

#endif
