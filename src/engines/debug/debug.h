/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Debug caches: caches of engine slub with any of F, Z, P, U, T (S10-01), which have a back end of
 * their own. Its slabs and node lists are slub's; slub knows nothing of it.
 *
 * A CPU keeps nothing of a debug cache: no sheaf, no CPU slab, no CPU partial list. The cache's
 * pairs stay cold, so each call comes to the back end. There, under list_lock, an object is taken
 * from a slab of the node's partial list, or is given back to its slab (S1-22, S1-34).
 *
 * Invariants:
 *  DEBUG-1  The state word of a slab changes by plain stores under its node's list_lock, once it
 *           can be found there; frozen is set in DISABLED slabs only.
 *  DEBUG-2  A slab hangs on its node's partial list if it has a listed free object, else on the
 *           full list, or it is DISABLED and on neither. Its counts, too, change under list_lock.
 *  DEBUG-3  The free list runs through the objects' free pointers (S4-05), which programs can
 *           overwrite: a pointer is followed only if a free object of the slab starts there. The
 *           index table says which objects are free: INDEX_END for a free object, else in-use. An
 *           object that is marked free and is not on the list was lost to a corrupt pointer.
 *  DEBUG-4  Bytes that the program may not write are checked. Each error is reported, counted and
 *           put right. Reports are gathered under list_lock and written after it: they name
 *           functions, and the dynamic linker takes a lock for these that comes before ours.
 */
#ifndef KMEM_ENGINES_DEBUG_DEBUG_H
#define KMEM_ENGINES_DEBUG_DEBUG_H

#include "engines/engine.h"
#include "kmem.h"

/* A cache of slub with any of these flags is a debug cache. */
static const uint32_t debug_flags_all =
        SLAB_CONSISTENCY_CHECKS | SLAB_RED_ZONE | SLAB_POISON | SLAB_STORE_USER | SLAB_TRACE;

/* flags.c: @flags and the flags that option debug gives a cache of this name (S9-20 to S9-22). */
KMEM_HIDDEN uint32_t debug_flags(const char *name, uint32_t flags);
/* Whether option debug asks for the mark of fault injection. */
KMEM_HIDDEN bool debug_marks_failslab(const char *name, uint32_t flags);

/* slab.c: the free object behind an object on the list, INDEX_END at the end; for tests. */
KMEM_HIDDEN uint32_t debug_next(const struct kmem_cache *cache, const struct page *slab,
                                uint32_t index);

/*
 * layout.c: the room around an object (S4.1). A cache that letter O leaves without any of the flags
 * becomes a cache of slub_engine.
 */
KMEM_HIDDEN int debug_setup(struct kmem_cache *cache);

/* take.c, give.c: operations of the engine. Each object moves by itself. */
KMEM_HIDDEN unsigned int debug_take(struct kmem_cache *cache, struct engine_slot *slot,
                                    void **objects, unsigned int count);
KMEM_HIDDEN void *debug_take_on_node(struct kmem_cache *cache, struct engine_slot *slot, int node);
KMEM_HIDDEN unsigned int debug_give(struct kmem_cache *cache, struct engine_slot *slot,
                                    void **objects, unsigned int count);

/*
 * request.c: the size that was asked for, in a kmalloc cache with flag U; in other caches the
 * object's size. Bytes from there on to the end of the object belong to the right red zone (flag
 * Z).
 */
KMEM_HIDDEN bool debug_has_request(const struct kmem_cache *cache);
KMEM_HIDDEN uint32_t debug_request(const struct kmem_cache *cache, const void *object);
/* Called by the holder of the object; its first bytes stay. */
KMEM_HIDDEN void debug_set_request(struct kmem_cache *cache, void *object, size_t bytes);

/* validate.c: checks all slabs that are on lists (S10-30); returns their number. */
KMEM_HIDDEN uint64_t debug_validate(struct kmem_cache *cache);
/* Names the objects still in use in the slabs that are left (S8-08); returns their number. */
KMEM_HIDDEN uint64_t debug_report_leftovers(struct kmem_cache *cache);

#endif
