/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * The parts of an object's room in a debug cache, in their order (S4-09):
 *
 *   left red zone     red_left_pad bytes; flag Z only
 *   object            object_size bytes; pointers to it point here
 *   right red zone    up to inuse; without flag Z filler
 *   free pointer      a word, unless it lies in the object
 *   tracks            the caller that took and the caller that gave back the object; flag U only
 *   request           a word: the size asked for; kmalloc caches with flag U only
 *   padding           up to the next room
 */
#ifndef KMEM_ENGINES_DEBUG_OBJECT_H
#define KMEM_ENGINES_DEBUG_OBJECT_H

#include "engines/debug/debug.h"
#include "engines/debug/report.h"
#include "engines/slub/slab.h"

enum {
        POISON_FREE = 0x6b, /* the kernel's poison bytes (S4.2) */
        POISON_END = 0xa5,
        POISON_INUSE = 0x5a,
        RED_INACTIVE = 0xbb,
        RED_ACTIVE = 0xcc,
        DEBUG_WORD = 8,
};

/*
 * The last call that took or gave back an object (S4-10). A write far beyond the object may have
 * changed it: then depot_has() denies the stack.
 */
struct track {
        uintptr_t address;         /* return address of the caller, 0: not known */
        const struct stack *stack; /* the whole call stack, or NULL */
        int32_t cpu;
        int32_t pid; /* thread, as the kernel numbers them; 0: no call yet */
        uint64_t when_ms;
};
_Static_assert(sizeof(struct track) == 32, "the kernel's, so that strides are the kernel's");

enum track_item { TRACK_ALLOC, TRACK_FREE, TRACKS };

static inline bool has_flag(const struct kmem_cache *cache, uint32_t flag)
{
        return (cache->flags & flag) != 0;
}

/* SLAB_POISON reaches the objects themselves (S4-02). */
static inline bool poisons_objects(const struct kmem_cache *cache)
{
        return has_flag(cache, SLAB_POISON) && !has_flag(cache, SLAB_TYPESAFE_BY_RCU) &&
               !cache->ctor;
}

static inline void **free_pointer_place(const struct kmem_cache *cache, void *object)
{
        return (void **)(void *)((char *)object + cache->free_pointer);
}

static inline bool free_pointer_is_outside(const struct kmem_cache *cache)
{
        return cache->free_pointer >= cache->inuse;
}

/* Offset behind the free pointer. */
static inline uint32_t tracks_offset(const struct kmem_cache *cache)
{
        return cache->inuse + (free_pointer_is_outside(cache) ? DEBUG_WORD : 0);
}

static inline struct track *object_track(const struct kmem_cache *cache, const void *object,
                                         enum track_item item)
{
        return (struct track *)((uintptr_t)object + tracks_offset(cache)) + item;
}

static inline uint64_t *request_place(const struct kmem_cache *cache, const void *object)
{
        return (uint64_t *)object_track(cache, object, TRACKS);
}

/* Offset of the padding, and of its end. */
static inline uint32_t padding_offset(const struct kmem_cache *cache)
{
        return tracks_offset(cache) +
               (has_flag(cache, SLAB_STORE_USER) ? TRACKS * (uint32_t)sizeof(struct track) : 0) +
               (debug_has_request(cache) ? DEBUG_WORD : 0);
}

static inline uint32_t padding_end(const struct kmem_cache *cache)
{
        return cache->size - cache->red_left_pad;
}

/* Whether the object of an index is free, by the table (DEBUG-3). */
static inline bool is_marked_free(const struct page *slab, uint32_t objects, uint32_t index)
{
        return slab_next(slab, objects, index) != INDEX_IN_USE;
}

/*
 * The index of the free object that a pointer names, INDEX_END for NULL; false if it names neither,
 * and then nothing is to be read there.
 */
static inline bool free_index(const struct kmem_cache *cache, const struct page *slab,
                              const void *pointer, uint32_t *index)
{
        uint32_t objects = slab_objects(slab);

        *index = INDEX_END;
        if (!pointer)
                return true;
        *index = slub_index(cache, slab, objects, pointer);
        return *index != INDEX_END && is_marked_free(slab, objects, *index);
}

/* The state of a slab whose list_lock is held, or that no other thread knows. */
static inline struct slab_state state_read(const struct page *slab)
{
        return state_unpack(load_relaxed(&slab->state));
}

/*
 * Other threads read the word without the lock only for the number of objects, which never changes.
 */
static inline void state_write(struct page *slab, struct slab_state state)
{
        state.tag++;
        store_relaxed(&slab->state, state_pack(state));
}

/* The address of the first free object, as reports name it. */
static inline void *first_free(const struct kmem_cache *cache, const struct page *slab)
{
        uint32_t head = state_read(slab).head;

        return head == INDEX_END ? NULL : slub_object(cache, slab, head);
}

/* object.c */

/* Red zones and poison of an object that is taken or given back (S10-03). */
KMEM_HIDDEN void object_init(const struct kmem_cache *cache, void *object, bool active);
/* Flag U: notes the caller that takes the object or gives it back. */
KMEM_HIDDEN void track_set(const struct debug_report *report, void *object, enum track_item item);
/*
 * Checks all of an object as in use or as free (S10.2); reports and restores each wrong byte. False
 * if a byte was wrong.
 */
KMEM_HIDDEN bool object_check(struct debug_report *report, struct page *slab, void *object,
                              bool active);
/* The first byte that has another value, or NULL. */
KMEM_HIDDEN uint8_t *first_other(uint8_t *start, uint8_t value, size_t bytes);

/* slab.c */

/*
 * A new slab with its objects and free list, which no other thread knows and no count has; NULL
 * without memory.
 */
KMEM_HIDDEN struct page *slab_make_new(struct kmem_cache *cache, int node);
/*
 * Ends empty slabs, linked through next, that are not counted any more. With flag F their objects
 * are checked a last time (S1-59).
 */
KMEM_HIDDEN void slabs_check_and_end(struct kmem_cache *cache, uint32_t chain);
/* Whether a slab may be worked on: not DISABLED. Its tail is checked and restored. */
KMEM_HIDDEN bool slab_check(struct debug_report *report, struct page *slab);
/* Follows the free list and corrects list and count (S10-11). */
KMEM_HIDDEN void slab_check_list(struct debug_report *report, struct page *slab);

/* lists.c: all under list_lock */

/* Puts a slab that is on no list on the list that its state asks for, if any. */
KMEM_HIDDEN void slab_link_locked(struct kmem_cache *cache, struct page *slab, bool tail);
KMEM_HIDDEN void slab_unlink_locked(struct kmem_cache *cache, struct page *slab);

#endif
