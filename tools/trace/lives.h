/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Turns events that name addresses into a trace, which names lives: an address is looked up in the
 * table of those that live now. What nobody recorded is made whole as far as it shows: an address
 * that is handed out again was freed before (TRACE_IMPLIED), one that is freed without living is an
 * orphan (TRACE_ORPHAN).
 */
#ifndef KMEM_TOOLS_TRACE_LIVES_H
#define KMEM_TOOLS_TRACE_LIVES_H

#include "tools/trace/trace.h"

struct lives;

/* What happened to an address. Times that fall are taken as the latest one before. */
struct lives_event {
        uint64_t address;
        uint64_t time; /* ns since the trace began */
        uint64_t site; /* address in the code, 0 for unknown */
        uint64_t requested;
        uint64_t given;
        int32_t thread;
        uint32_t flags;
        uint16_t cpu;
        uint16_t cache;    /* id; of frees: TRACE_CACHE_UNKNOWN, or what is known of an orphan */
        uint8_t operation; /* TRACE_ALLOC, TRACE_FREE, TRACE_PAGE_ALLOC, TRACE_PAGE_FREE, and bits */
};

struct lives_counts {
        uint64_t allocations;
        uint64_t frees; /* that were recorded, of what lived */
        uint64_t implied;
        uint64_t orphans;
        uint64_t living;       /* at the end */
        uint64_t living_bytes; /* asked for */
};

/*
 * Names a place in the code: writes at most @bytes characters and a zero byte. @context is what
 * lives_open was given.
 */
typedef void lives_name_site(void *context, uint64_t site, char *text, size_t bytes);

/* As trace_writer_open; NULL with *error set. */
struct lives *lives_open(const char *path, uint32_t cpus, uint32_t page_bytes, const char *source,
                         lives_name_site *name_site, void *context, struct trace_error *error);
/* The id of a cache by name, new or known. */
uint16_t lives_cache(struct lives *lives, const char *name);
void lives_add(struct lives *lives, const struct lives_event *event);
/* As trace_writer_close. */
bool lives_close(struct lives *lives, struct lives_counts *counts, struct trace_error *error);

#endif
