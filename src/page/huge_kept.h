/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Freed huge mappings kept for reuse, under huge_lock, bounded in number, bytes and time.
 */
#ifndef KMEM_PAGE_HUGE_KEPT_H
#define KMEM_PAGE_HUGE_KEPT_H

#include "lang/compiler.h"

enum { KEPT_MAX = 16 };

/* Mappings taken off the books under huge_lock, to be unmapped when it is dropped. */
struct huge_victims {
        unsigned int count;
        struct {
                void *start;
                size_t bytes;
        } mapping[KEPT_MAX + 1];
};

/* The best fit with at most a quarter more than @bytes, or NULL. *@bytes becomes its size. */
KMEM_HIDDEN void *huge_kept_take_locked(size_t *bytes, size_t align);
/* Keeps a mapping or makes it a victim; older ones become victims to stay within the bound. */
KMEM_HIDDEN void huge_kept_add_locked(void *start, size_t bytes, uint64_t now,
                                      struct huge_victims *victims);
/* Makes the oldest victims until at most @bytes are kept. */
KMEM_HIDDEN void huge_kept_limit_locked(size_t bytes, struct huge_victims *victims);
/* Makes victims of the mappings that are due; UINT64_MAX: of all. */
KMEM_HIDDEN void huge_kept_expire_locked(uint64_t now, struct huge_victims *victims);

/* A hint without the lock: bytes kept. huge.h has when the oldest is due. */
KMEM_HIDDEN size_t huge_kept_bytes(void);

#endif
