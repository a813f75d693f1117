/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* The slow paths' common part: a slot's stock, and giving objects to the back end. */
#ifndef KMEM_PERCPU_STOCK_H
#define KMEM_PERCPU_STOCK_H

#include "percpu/barn.h"

/* A sheaf with objects from the slot's stock, or NULL. */
KMEM_HIDDEN struct sheaf *stock_take(struct kmem_cache *cache, struct slot *slot,
                                     struct slot_cache *record);
/* False if the stock is full, or the slot (option slot_cache_max). */
KMEM_HIDDEN bool stock_put(struct kmem_cache *cache, struct slot *slot, struct slot_cache *record,
                           struct sheaf *sheaf);
/* A sheaf without objects, from the slot, the barn or new; NULL without memory. */
KMEM_HIDDEN struct sheaf *stock_take_empty(struct kmem_cache *cache, struct slot_cache *record);
/* Keeps an empty sheaf for the slot or the barn, or frees it. */
KMEM_HIDDEN void stock_put_empty(struct kmem_cache *cache, struct slot_cache *record,
                                 struct sheaf *sheaf);
/* Frees the slot's empty sheaves. */
KMEM_HIDDEN void stock_free_empty(struct kmem_cache *cache, struct slot_cache *record);

/*
 * Reports that an object of @own is freed to cache @cache, and who allocated it, if that is known
 * (S8-42).
 */
KMEM_HIDDEN void report_stranger(const struct kmem_cache *cache, struct kmem_cache *own,
                                 void *object);
/*
 * Gives objects of other caches to their own caches, with a message each. The objects that remain
 * are objects[0 .. result). No lock may be held.
 */
KMEM_HIDDEN unsigned int objects_keep_own(struct kmem_cache *cache, void **objects,
                                          unsigned int count);
/* Gives objects to the back end; objects of another cache go to that cache, with a message. */
KMEM_HIDDEN void objects_give(struct kmem_cache *cache, struct slot_cache *record, void **objects,
                              unsigned int count);
/* Empties a sheaf that belongs to the caller into the back end. */
KMEM_HIDDEN void sheaf_give(struct kmem_cache *cache, struct slot_cache *record,
                            struct sheaf *sheaf);

/* percpu.c: what refill and drain share with the bulk calls */

/* A sheaf with objects from the stock or the barn, which belongs to the caller then; or NULL. */
KMEM_HIDDEN struct sheaf *percpu_take_full(struct kmem_cache *cache, struct slot *slot,
                                           struct slot_cache *record);
/* percpu_take_full, or a sheaf that the back end fills; NULL only without memory. */
KMEM_HIDDEN struct sheaf *percpu_refill(struct kmem_cache *cache, struct slot *slot,
                                        struct slot_cache *record);
/* Puts away a sheaf that belongs to the caller: stock, barn, or back end. */
KMEM_HIDDEN void percpu_put_away(struct kmem_cache *cache, struct slot *slot,
                                 struct slot_cache *record, struct sheaf *sheaf);
/* Swaps main and spare. False if the pair has changed, or the spare has marks (MARK-2). */
KMEM_HIDDEN bool percpu_take_turns(struct slot *slot, struct kmem_cache *cache,
                                   const struct pair *pair);

#endif
