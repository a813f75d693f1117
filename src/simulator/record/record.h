/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* In place of record/record.h: on a simulated machine nothing is recorded. */
#ifndef KMEM_RECORD_RECORD_H
#define KMEM_RECORD_RECORD_H

#include "lang/compiler.h"

struct record_event;

#define CALL_SITE NULL

static inline bool is_recording(void)
{
        return false;
}

static inline void record_start(void)
{
}

static inline void record_alloc(const void *block, size_t bytes, size_t given, uint32_t cache,
                                const void *site)
{
}

static inline void record_free(const void *block, const void *site)
{
}

static inline struct record_event *record_draw(void)
{
        return NULL;
}

static inline void record_free_at(struct record_event *event, const void *block, const void *site)
{
}

static inline void record_void_at(struct record_event *event)
{
}

static inline void record_cache(uint32_t cache, const char *name)
{
}

static inline void record_maps(void)
{
}

static inline bool record_lock_free(void)
{
        return true;
}

static inline void record_fork_each_lock(void (*change)(struct lock *lock))
{
}

static inline void record_fork(bool within)
{
}

static inline void record_fork_child(bool within)
{
}

#endif
