/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * The raw file that option record=FILE writes: a header, then events. It is a shared mapping of all
 * processes that record into it, so all events that were written are in the file, however a process
 * ends.
 *
 * The number of an event is drawn from a counter in the header, common to all processes, and is
 * also its place in the file. So the file is in order already. An event of kind 0 was drawn but
 * never written: its thread was killed in between.
 */
#ifndef KMEM_RECORD_FORMAT_H
#define KMEM_RECORD_FORMAT_H

#include <stdint.h>

#define RECORD_MAGIC "KMEMRAW1"

enum {
        RECORD_HEADER_BYTES = 1 << 16,
        /* Space is taken for this many events at once: 20 pages of 64 KiB. */
        RECORD_CHUNK_SHIFT = 15,
        RECORD_CHUNK_EVENTS = 1 << RECORD_CHUNK_SHIFT,
        RECORD_PROCESSES_MAX = UINT16_MAX,
        RECORD_NAME_BYTES = 16, /* part of a name in an event */
        RECORD_EXCESS_UNKNOWN = UINT16_MAX,
};

enum record_kind {
        RECORD_ALLOC = 1,
        RECORD_FREE,
        RECORD_VOID,    /* a number that was drawn for an act that did not happen */
        RECORD_PROCESS, /* a heap began: bytes is the process id, site the number of the fork event
                           that it comes from plus 1, or 0 after exec */
        RECORD_FORK,    /* the process may be about to fork */
        RECORD_NAME,    /* a part of a name: address says which part, site and bytes have its text;
                           with cache 0 that of the process, else the cache's */
        RECORD_KIND_MASK = 15,
        RECORD_CACHE_SHIFT = 4,
};

struct record_header {
        char magic[8];
        uint32_t event_bytes;
        uint32_t page_bytes; /* page size of the allocator */
        uint32_t cpus;       /* possible CPUs */
        uint32_t processes;  /* drawn so far */
        uint64_t clock;      /* time of the start, as in struct record_event */
        uint64_t clock_ns;   /* CLOCK_MONOTONIC at that moment */
        uint64_t ended;      /* errno that ended the recording, 0: it goes on */
        uint64_t lost;       /* events drawn without space for them */
        uint64_t next __attribute__((aligned(128))); /* number of the next event */
};

/* The upper 16 bits of two words have something of their own: addresses and sizes have 48. */
struct record_event {
        uint64_t address; /* above: number of the process, from 1 on */
        uint64_t site;    /* return address of the call */
        uint64_t bytes;   /* bytes asked for; above: how many more were given */
        uint64_t clock;   /* time stamp counter, or the like */
        uint32_t thread;
        uint16_t cpu;
        uint16_t kind; /* enum record_kind, and from bit 4 on the cache, 0: memory by size */
};
_Static_assert(sizeof(struct record_event) == 40, "events lie at their number times this");

#define RECORD_LOW_MASK ((UINT64_C(1) << 48) - 1)

#endif
