/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Turns events that name addresses into a trace, which names lives: each address is looked up in
 * the table of living objects. Events that nobody recorded are added if they show: an address that
 * is handed out again was freed before (TRACE_IMPLIED), and the free of an address without a living
 * object is an orphan (TRACE_ORPHAN).
 */
#ifndef KMEM_TOOLS_TRACE_LIVES_H
#define KMEM_TOOLS_TRACE_LIVES_H

#include "tools/trace/trace.h"

struct lives;

/* An event at an address. A time below the latest time so far is replaced by it. */
struct lives_event {
        uint64_t address;
        uint64_t time; /* ns since the trace began */
        uint64_t site; /* address in the code, 0 for unknown */
        uint64_t requested;
        uint64_t given;
        int32_t thread;
        uint32_t flags;
        uint16_t cpu;
        uint16_t cache;    /* id; of a free: TRACE_CACHE_UNKNOWN, or the cache of an orphan, if
                              it is known */
        uint8_t operation; /* TRACE_ALLOC, TRACE_FREE, TRACE_PAGE_ALLOC or TRACE_PAGE_FREE; bits */
};

struct lives_counts {
        uint64_t allocations;
        uint64_t frees; /* recorded frees of living objects */
        uint64_t implied;
        uint64_t orphans;
        uint64_t living;       /* at the end */
        uint64_t living_bytes; /* asked for */
};

/*
 * Names a place in the code: writes at most @bytes characters and a zero byte. @context comes from
 * lives_open.
 */
typedef void lives_name_site(void *context, uint64_t site, char *text, size_t bytes);

/* As trace_writer_open; NULL with *error set. */
struct lives *lives_open(const char *path, uint32_t cpus, uint32_t page_bytes, const char *source,
                         lives_name_site *name_site, void *context, struct trace_error *error);
/* The id of a cache by name, new or known. */
uint16_t lives_cache(struct lives *lives, const char *name);
/* As trace_writer_cpus. */
void lives_cpus(struct lives *lives, uint32_t cpus);
void lives_add(struct lives *lives, const struct lives_event *event);
/* As trace_writer_close. */
bool lives_close(struct lives *lives, struct lives_counts *counts, struct trace_error *error);

#endif
