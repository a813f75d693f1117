/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * The states of a slab and the ways between them: its state word, and its stage. The stage says
 * where the slab hangs; debug builds keep it in the descriptor, to catch every other way.
 *
 *   stage        frozen       node_    list          objects taken    objects given
 *                delayed/eager partial               out by           back by
 *   NEW          0            0        none          its creator      no thread
 *   CPU          1            0        none          the slot         any thread
 *   CPU PARTIAL  0 / 1        0        slot's chain  the slot         any thread
 *   NODE PARTIAL 0            1        node partial  its unlinker     any thread
 *   IN TRANSIT   0 / any      0        none          its holder       any thread
 *   FULL         0            0        none          no thread        any thread
 *   GONE         0            0        none          no thread        no thread
 *   DISABLED     1            0        none          no thread        no thread
 *
 * With freeze=delayed a slab is frozen while it is a CPU slab and never else. A free leaves the
 * lists of a CPU partial slab alone because node_partial is not set; it samples that under
 * list_lock (S1-11, S1-33). With freeze=eager the frozen bit tells it so. Therefore the bit is set
 * and cleared under list_lock whenever a slab leaves or joins a node list (S1-41, S1-52, S1-55).
 * Then an unfrozen slab with free objects is off the node lists only under list_lock, or when all
 * its objects are free and it is on its way out.
 *
 *   from         to           tags      swaps d/e, of these under list_lock; where
 *   NEW          CPU          T8        plain stores; take.c slot_install_new
 *   NEW          FULL         none      plain stores; take.c take_whole, slabs of exact pages
 *   CPU          CPU          T2        1/1, 0/0; take.c slab_take_list
 *   CPU          FULL         T3, T18   1/1, 0/0; slab_take_list, life.c slab_deactivate
 *   CPU          TRANSIT      T17, T18  1/1, 0/1 (0 if it is freed then); slab_deactivate
 *   CPU PARTIAL  CPU          T4        1/1, 0/0; slab_take_list
 *   CPU PARTIAL  TRANSIT      T5, T16, T19  0/1, 0/1; partial.c node_put_chain
 *   NODE PARTIAL TRANSIT      T6, T7    0/1, 0/1; partial.c slab_leave_node
 *                             T13, T20  a free's swap, or none; give.c, life.c
 *   FULL         TRANSIT      T14, T15  1/1, T15 under list_lock unless all of its objects come
 *                                       back at once and it goes; give.c slab_push_chain
 *   TRANSIT      CPU          T6        1/0, 0/0; slab_take_list, or nothing left to do
 *   TRANSIT      CPU PARTIAL  T7, T14   none; accounting.c partial_list_add
 *   TRANSIT      NODE PARTIAL T5, T15 - T17, T19  none; node_add_partial_locked
 *   TRANSIT      GONE         T13, T16, T18 - T20  none; life.c slabs_discard
 *
 * Caches without CPU slabs (refill.c) have these besides:
 *   NEW          FULL, TRANSIT        plain stores; refill_from_new
 *   NODE PARTIAL TRANSIT              none; unlink_slabs_locked, pop_object_locked
 *   TRANSIT      FULL                 a swap; slab_take_list, pop_object_locked under list_lock
 *   TRANSIT      NODE PARTIAL         none; put_back, pop_object_locked after a swap that failed
 *
 * Debug caches (T21) have slabs that are new, on a node's partial list, full (on the node's full
 * list), or DISABLED after an error (S10-21). Each change of the word is a plain store under
 * list_lock, and each way leads through TRANSIT (engines/debug/lists.c).
 *
 * The thread that makes a swap out of a stage owns the slab's place from then on. A swap into FULL
 * gives it up, so that stage is written before the swap and the others after it. A push changes
 * only the stage of a FULL slab.
 */
#ifndef KMEM_ENGINES_SLUB_STATE_H
#define KMEM_ENGINES_SLUB_STATE_H

#include "machine/message.h"
#include "engines/engine.h"

enum slab_stage {
        STAGE_NEW, /* 0, as the page layer hands descriptors out */
        STAGE_CPU,
        STAGE_CPU_PARTIAL,
        STAGE_NODE_PARTIAL,
        STAGE_TRANSIT,
        STAGE_FULL,
        STAGE_GONE,
        STAGE_DISABLED,
        SLAB_STAGES,
        STAGE_ANY, /* of a push: the stage stays as it is */
};

enum {
        SLAB_OBJECTS_MAX = 32767, /* 15 bits */
        NARROW_OBJECTS_MAX = 254, /* up to here a table entry is a byte */
        INDEX_END = 0xffff,       /* end of a free list; "none" as a head */
        INDEX_IN_USE = 0xfffe,
        NARROW_END = 0xff,
        NARROW_IN_USE = 0xfe,
};

_Static_assert((int)INDEX_END == (int)ENGINE_NO_OBJECT, "an empty CPU freelist ends at once");

struct slab_state {
        uint32_t head;  /* index of the first free object, or INDEX_END */
        uint32_t inuse; /* objects not on the list */
        uint32_t objects;
        bool frozen;
        uint16_t tag; /* counts transitions, for checks only */
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

#ifdef KMEM_DEBUG_CHECKS
/* state.c: ends the process if the table above does not allow the way, or the word does not fit. */
KMEM_HIDDEN void slab_check_way(const struct kmem_cache *cache, const struct page *slab,
                                struct slab_state state, enum slab_stage from, enum slab_stage to);
#endif

/*
 * Moves a slab from a stage to the next without a swap; the caller owns its place. Only a check.
 */
static inline void slab_enter(const struct kmem_cache *cache, struct page *slab,
                              enum slab_stage from, enum slab_stage to)
{
#ifdef KMEM_DEBUG_CHECKS
        slab_check_way(cache, slab, state_unpack(load_relaxed(&slab->state)), from, to);
        check_or_die(slab->stage == from);
        slab->stage = to;
#endif
}

/* Tests put the acts of other threads here, between the read of a state and the swap. */
#ifdef KMEM_SWAP_HOOK
extern void slab_swap_hook(struct page *slab) __attribute__((weak));
#endif

/*
 * A transition of SLUB-1. On failure *old holds the word found, and the caller decides anew.
 * Release publishes the table entries and objects of a push; acquire sees other threads' pushes.
 */
static inline bool slab_transition(const struct kmem_cache *cache, struct page *slab, uint64_t *old,
                                   struct slab_state new, enum slab_stage from, enum slab_stage to)
{
        struct slab_state before = state_unpack(*old);
        bool swapped;

        new.tag = (uint16_t)(before.tag + 1);
        debug_check(new.inuse <= new.objects &&new.objects == before.objects);
        debug_check((new.head == INDEX_END) == (new.inuse == new.objects));
#ifdef KMEM_SWAP_HOOK
        if (slab_swap_hook)
                slab_swap_hook(slab);
#endif
#ifdef KMEM_DEBUG_CHECKS
        /* The first free into a FULL slab reads its stage only after the swap. */
        if (from != STAGE_ANY && from != STAGE_FULL)
                check_or_die(slab->stage == from);
        slab_check_way(cache, slab, new, from, to);
        if (to == STAGE_FULL)
                slab->stage = STAGE_FULL;
#endif
        swapped = compare_swap(&slab->state, old, state_pack(new));
#ifdef KMEM_DEBUG_CHECKS
        if (to == STAGE_FULL && !swapped)
                slab->stage = from;
        if (swapped && from == STAGE_FULL)
                check_or_die(slab->stage == STAGE_FULL);
        if (swapped && to != STAGE_FULL && to != STAGE_ANY)
                slab->stage = to;
#endif
        return swapped;
}

#endif
