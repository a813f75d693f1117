/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * A slab of the SLUB back end: its state word, its free list, and who may touch what.
 *
 * States (S1, 1.2), as kept in the descriptor (struct page):
 *
 *   state        frozen node_partial list          who takes objects        who gives objects
 *   NEW          0      0            none          its creator              nobody
 *   CPU slab     1      0            none          the slot, under its lock anybody
 *   CPU partial  0 (*)  0            slot's chain  the slot, by freezing it anybody
 *   NODE partial 0      1            node partial  who unlinks it           anybody
 *   IN TRANSIT   0      0            none          who unlinked it          anybody
 *   FULL         0      0            none          nobody                   anybody
 *   (*) 1 if slabs are frozen eagerly, as before delay freezing
 *
 * Invariants:
 *  SLUB-1  The state word is one 64-bit word: head, inuse, objects, frozen and tag always change
 *          together, by compare-and-swap once others can see the slab. objects equals inuse plus
 *          the length of the list at head (S1-70).
 *  SLUB-2  Anybody may push objects onto the list (release). Objects leave it only as the whole
 *          list (acquire), taken by the owner of a frozen or unlinked slab. So between reading
 *          head and swapping it out nobody else can have popped: ABA is harmless.
 *  SLUB-3  table[i] belongs to whoever owns object i: the list for free objects (then it is the
 *          index of the next free object or INDEX_END), the one who holds it otherwise (then
 *          it is in-use). It is written before the push (release) and read after the take
 *          (acquire).
 *  SLUB-4  Uncarved room (index >= carved) exists only in a CPU slab and counts as in use. Its
 *          table entries are undefined until it is carved or linked.
 *  SLUB-5  node_partial is written only under the node's list_lock (S1-12).
 */
#ifndef KMEM_SLUB_SLAB_H
#define KMEM_SLUB_SLAB_H

#include "base/message.h"
#include "base/metadata.h"
#include "engine.h"
#include "kmem.h"

enum {
        SLAB_OBJECTS_MAX = 32767, /* 15 bits */
        NARROW_OBJECTS_MAX = 254, /* up to here a table entry is one byte */
        INDEX_END = 0xffff,       /* end of a free list; "none" as a head */
        INDEX_IN_USE = 0xfffe,
        NARROW_END = 0xff,
        NARROW_IN_USE = 0xfe,
};

_Static_assert((int)INDEX_END == (int)ENGINE_NO_OBJECT, "an empty CPU freelist ends at once");

struct slab_state {
        uint32_t head;    /* index of the first free object, or INDEX_END */
        uint32_t inuse;   /* objects not on the list */
        uint32_t objects;
        bool frozen;
        uint16_t tag;     /* counts transitions, for checks only */
};

static inline struct slab_state state_unpack(uint64_t word)
{
        return (struct slab_state){
                .head = (uint32_t)(word & 0xffff),
                .inuse = (uint32_t)(word >> 16 & 0xffff),
                .objects = (uint32_t)(word >> 32 & 0x7fff),
                .frozen = word >> 47 & 1,
                .tag = (uint16_t)(word >> 48),
        };
}

static inline uint64_t state_pack(struct slab_state state)
{
        return (uint64_t)state.head | (uint64_t)state.inuse << 16 | (uint64_t)state.objects << 32 |
               (uint64_t)state.frozen << 47 | (uint64_t)state.tag << 48;
}

/* Objects of a slab never change once it is made. */
static inline uint32_t slab_objects(const struct page *slab)
{
        return (uint32_t)(load_relaxed(&slab->state) >> 32 & 0x7fff);
}

/*
 * One transition of SLUB-1. On failure *old holds the word found, and the caller decides anew.
 * Release publishes the table entries and objects of a push; acquire sees those of others.
 */
static inline bool slab_transition(struct page *slab, uint64_t *old, struct slab_state new)
{
        struct slab_state before = state_unpack(*old);

        new.tag = (uint16_t)(before.tag + 1);
        debug_check(new.inuse <= new.objects && new.objects == before.objects);
        debug_check((new.head == INDEX_END) == (new.inuse == new.objects));
        return compare_swap(&slab->state, old, state_pack(new));
}

static inline size_t slab_table_bytes(uint32_t objects)
{
        return objects <= NARROW_OBJECTS_MAX ? objects : (size_t)objects * 2;
}

/*
 * Table accesses. Entries are relaxed atomics only because a double free may race; their
 * order comes from the state word (SLUB-3).
 */
static inline uint32_t slab_next(const struct page *slab, uint32_t objects, uint32_t index)
{
        if (likely(objects <= NARROW_OBJECTS_MAX)) {
                uint32_t entry = load_relaxed(&((const uint8_t *)slab->table)[index]);

                return entry >= NARROW_IN_USE ? entry | 0xff00 : entry;
        }
        return load_relaxed(&((const uint16_t *)slab->table)[index]);
}

static inline void slab_set_next(struct page *slab, uint32_t objects, uint32_t index, uint32_t next)
{
        if (likely(objects <= NARROW_OBJECTS_MAX))
                store_relaxed(&((uint8_t *)slab->table)[index], (uint8_t)next);
        else
                store_relaxed(&((uint16_t *)slab->table)[index], (uint16_t)next);
}

static inline void *slab_object(const struct kmem_cache *cache, const struct page *slab,
                                uint32_t index)
{
        return (char *)page_address(slab) + (size_t)index * cache->size;
}

/*
 * The slab that holds an address of this cache's pages. Slabs are aligned to their size, and a
 * cache has slabs of at most two orders: a descriptor that says "slab of the preferred order" at
 * the aligned page covers the address, otherwise the slab has the fallback order.
 */
static inline struct page *slab_of(const struct kmem_cache *cache, const void *address)
{
        uint32_t number = address_page(address);
        struct page *slab = page_at(number & ~(uint32_t)(order_pages(cache->order) - 1));

        /* Acquire: the order is the one that was written before the kind (slab_new_order). */
        if (likely(load_acquire(&slab->kind) == PAGE_SLAB && slab->order == cache->order))
                return slab;
        return page_at(number & ~(uint32_t)(order_pages(cache->min_order) - 1));
}

/*
 * Index of the object at an address in the slab, or INDEX_END if no object starts there. The
 * product is exact for multiples of size: reciprocal exceeds 2^40 / size by less than 1, and
 * a slab is at most 4 MiB.
 */
static inline uint32_t slab_index(const struct kmem_cache *cache, const struct page *slab,
                                  uint32_t objects, const void *address)
{
        uint64_t offset = (uintptr_t)address - (uintptr_t)page_address(slab);
        uint64_t index = (offset * cache->reciprocal) >> 40;

        if (unlikely(index * cache->size != offset || index >= objects))
                return INDEX_END;
        return (uint32_t)index;
}

static inline struct engine_node *slab_node(struct kmem_cache *cache, const struct page *slab)
{
        return &cache->node[slab->node];
}

/* layout.c */
KMEM_HIDDEN int slub_setup(struct kmem_cache *cache);
KMEM_HIDDEN void slub_set_cpu_partial(struct kmem_cache *cache, uint32_t objects);

/* take.c, give.c: operations of the engine */
KMEM_HIDDEN unsigned int slub_take(struct kmem_cache *cache, struct engine_slot *slot,
                                   void **objects, unsigned int count);
KMEM_HIDDEN void slub_give(struct kmem_cache *cache, struct engine_slot *slot, void **objects,
                           unsigned int count);

/* partial.c: CPU partial and node partial lists */
KMEM_HIDDEN struct page *node_take_partial_locked_slot(struct kmem_cache *cache,
                                                       struct engine_slot *slot);
KMEM_HIDDEN struct page *slot_take_partial(struct engine_slot *slot);
KMEM_HIDDEN void slot_put_partial(struct kmem_cache *cache, struct engine_slot *slot,
                                  struct page *slab, bool drain);
KMEM_HIDDEN void node_put_chain(struct kmem_cache *cache, uint32_t chain);
KMEM_HIDDEN void node_add_partial_locked(struct engine_node *node, struct page *slab, bool tail);
KMEM_HIDDEN void node_remove_partial_locked(struct engine_node *node, struct page *slab);

/* life.c: slabs come and go */
KMEM_HIDDEN struct page *slab_new(struct kmem_cache *cache);
KMEM_HIDDEN void slab_discard(struct kmem_cache *cache, struct page *slab);
KMEM_HIDDEN void slab_deactivate(struct kmem_cache *cache, struct engine_slot *slot);
KMEM_HIDDEN void slub_flush_slot(struct kmem_cache *cache, struct engine_slot *slot);
KMEM_HIDDEN bool slub_shrink(struct kmem_cache *cache);
KMEM_HIDDEN bool slub_teardown(struct kmem_cache *cache);

/* report.c */
KMEM_HIDDEN void slub_report(struct kmem_cache *cache, struct engine_report *report);
KMEM_HIDDEN void slub_report_slot(struct kmem_cache *cache, struct engine_slot *slot,
                                  struct engine_report *report);
KMEM_HIDDEN bool slub_is_object(const struct kmem_cache *cache, const void *address);

#endif
