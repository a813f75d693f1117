/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Figures of the heap, for the programs that replay a trace.
 */
#ifndef KMEM_TOOLS_REPLAY_HEAP_H
#define KMEM_TOOLS_REPLAY_HEAP_H

#include "page/zone.h"
#include "engines/slob/slob.h"
#include "tools/replay/steps.h"

/* Bytes that were asked for, of objects that live. */
struct asked {
        uint64_t bytes;       /* in slabs */
        uint64_t large_bytes; /* with pages of their own */
};

/*
 * Pages that the heap has handed out, read without its locks: there is a single thread, or nobody
 * allocates. Page 0 comes with the first growth of the heap and is never handed out. Huge blocks
 * are outside the heap.
 */
static inline size_t heap_pages(void)
{
        size_t pages = frontier.pages - (frontier.pages != 0);

        for (unsigned int node = 0; node < system_nodes(); node++)
                pages -= zones[node].free_pages + zones[node].limbo_pages;
        return pages;
}

/* Pages in use for objects. */
size_t used_pages(void);
/* Pages of large blocks, and of big objects of engine slob. */
size_t large_pages(void);

/* Objects that went from slabs to CPUs' sheaves or arrays, or back; engine slob has none. */
uint64_t moved_objects(void);

void print_text(const char *text);
/* Prints "name": number, and then @end. */
void print_number(const char *name, uint64_t number, const char *end);

/* Begins the document with the trace that was replayed. */
void print_trace(const struct replay *replay, const struct trace *trace);
/* Member "end" of the document. */
void print_heap_end(const struct asked *asked);
/* SLUB's own counters; nothing if no cache counts (option stats). */
void print_heap_statistics(void);
/* Members "caches", "slabs", "slob" and "waste_bytes". */
void print_heap(const struct asked *asked);

#endif
