/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Giving back the free pages inside slabs that also hold objects.
 *
 * Purging handles each slab of a node partial list by itself, under list_lock. The lock is enough:
 * without it no thread takes objects out of a slab on a node list (SLUB-2). So an object with an
 * entry other than in-use stays free while the lock is held. An object that is being freed stays
 * free too, because its thread has written the entry before the push (SLUB-3). The allocator never
 * writes free objects, and no other code may read them. So the slab's state does not change, no
 * swap is made, and frees go on meanwhile. The lock is held for a system call for each run of
 * pages.
 *
 * PURGE-1  Caches with a constructor and type-safe caches are left alone: the content of their free
 *          objects counts. It counts in debug caches too; their back end has no purge.
 * PURGE-2  A slab that was purged, or had nothing to purge, is marked with its tag of that moment.
 *          It is passed over until the tag has changed, or it has left the list and come back.
 *
 * Pages stay marked as touched, so that the page layer does not take them for known to be zero when
 * the slab ends and new objects have lain in them.
 */
#include "engines/slub/slab.h"

enum { PURGED = 1 << 16, PAGE_WORDS = CHUNK_PAGES / 64 };

struct page_bits {
        uint64_t word[PAGE_WORDS];
};

static bool any_is_clear(const struct page_bits *used, size_t first, size_t last)
{
        while (first < last && bit_get(used->word, first))
                first++;
        return !bit_get(used->word, first);
}

/*
 * Marks the pages, counted from @skip bytes into the slab, that contain a part of an object in use
 * among the first @objects. An object that @rests, if that is not NULL, is not in use; it may
 * read the program's memory, so it is called only where it decides something.
 */
static void find_used_pages(const struct kmem_cache *cache, const struct page *slab, size_t skip,
                            size_t page_bytes, uint32_t objects, bool (*rests)(const void *),
                            struct page_bits *used)
{
        bool narrow = is_narrow(slab_objects(slab));
        size_t offset = 0;

        for (uint32_t index = 0; index < objects; index++, offset += cache->size) {
                size_t last = offset + cache->size - 1;
                size_t page, end;

                if (last < skip || !table_in_use(slab->table, narrow, index))
                        continue;
                page = (max_of(offset, skip) - skip) / page_bytes;
                end = (last - skip) / page_bytes;
                if (rests && any_is_clear(used, page, end) &&
                    rests(slub_object(cache, slab, index)))
                        continue;
                for (; page <= end; page++)
                        bit_set(used->word, page);
        }
}

/* The whole parts of a slab, of @part_bytes each, which lie at multiples of it. */
struct parts {
        char *first;
        size_t count;
};

static struct parts parts_of(const struct kmem_cache *cache, const struct page *slab,
                             size_t part_bytes)
{
        uintptr_t start = (uintptr_t)page_address(slab);
        uintptr_t end_of_slab = start + (pages_of_slab(cache, slab->order) << PAGE_SHIFT);
        /* A slab of exact pages may begin inside a part. */
        uintptr_t whole = round_up(start, part_bytes);

        return (struct parts){
                .first = (char *)whole,
                .count = (end_of_slab - min_of(whole, end_of_slab)) / part_bytes,
        };
}

/* Bytes of the slab in front of its first whole part. */
static size_t skipped(const struct page *slab, struct parts whole)
{
        return (size_t)(whole.first - (char *)page_address(slab));
}

/* Whether the slab was purged and has not changed since; list_lock is held, the slab is on its list. */
static bool is_purged_locked(const struct page *slab, struct slab_state state)
{
        return slab->list_objects == (uint32_t)(PURGED | state.tag);
}

/* Returns bytes given back; list_lock of the slab's node is held and the slab is on its list. */
static size_t slab_purge_locked(const struct kmem_cache *cache, struct page *slab)
{
        struct slab_state state = state_unpack(load_acquire(&slab->state));
        size_t page_bytes = system_page_bytes();
        struct parts whole = parts_of(cache, slab, page_bytes);
        struct page_bits used = {0};
        size_t purged = 0;

        debug_check(slab->node_partial);
        if (is_purged_locked(slab, state))
                return 0;
        slab->list_objects = (uint32_t)(PURGED | state.tag) & 0xffffff;
        /* Too few free objects to fill a page, or a system page that other slabs have a part of. */
        if ((size_t)(state.objects - state.inuse) * cache->size + cache->size < page_bytes ||
            whole.count == 0)
                return 0;
        find_used_pages(cache, slab, skipped(slab, whole), page_bytes, slab_objects(slab), NULL,
                        &used);
        for (size_t first = 0, end; first < whole.count; first = end + 1) {
                for (end = first; end < whole.count && !bit_get(used.word, end); end++)
                        ;
                /*
                 * The system refused (locked memory): it is not asked again before the slab
                 * changes.
                 */
                if (end > first &&
                    system_purge(whole.first + first * page_bytes, (end - first) * page_bytes))
                        purged += (end - first) * page_bytes;
        }
        return purged;
}

/* Whether the content of free objects counts (PURGE-1). */
static bool content_counts(const struct kmem_cache *cache)
{
        return cache->ctor || cache->flags & SLAB_TYPESAFE_BY_RCU;
}

bool slub_purge(struct kmem_cache *cache, unsigned int number, unsigned int slabs, size_t *bytes)
{
        struct engine_node *node = &cache->node[number];
        struct page *slab;
        size_t purged;

        if (content_counts(cache))
                return true;
        lock_take(&node->list_lock);
        slab = node->purge_next ? page_at(node->purge_next) : page_list_first(&node->partial);
        for (; slab && slabs; slabs--) {
                /*
                 * Taking that slab off the list moves purge_next on (node_remove_partial_locked).
                 */
                node->purge_next = slab->next;
                purged = slab_purge_locked(cache, slab);
                if (purged) {
                        *bytes += purged;
                        lock_drop(&node->list_lock);
                        lock_take(&node->list_lock);
                }
                slab = node->purge_next ? page_at(node->purge_next) : NULL;
        }
        lock_drop(&node->list_lock);
        return !slab;
}

/* Bytes of the parts of a slab that hold nothing of its first @objects that is in use. */
static size_t slab_free_parts(const struct kmem_cache *cache, const struct page *slab,
                              const struct parts_wanted *wanted, uint32_t objects)
{
        struct parts whole = parts_of(cache, slab, wanted->bytes);
        struct page_bits used = {0};
        size_t count = 0;

        find_used_pages(cache, slab, skipped(slab, whole), wanted->bytes, objects, wanted->rests,
                        &used);
        for (size_t part = 0; part < whole.count; part++)
                count += !bit_get(used.word, part);
        return count * wanted->bytes;
}

size_t slub_free_parts(struct kmem_cache *cache, unsigned int number,
                       const struct parts_wanted *wanted)
{
        struct engine_node *node = &cache->node[number];
        size_t bytes = 0;

        lock_take(&node->list_lock);
        for (struct page *slab = page_list_first(&node->partial); slab;
             slab = page_list_next(slab)) {
                struct slab_state state = state_unpack(load_acquire(&slab->state));

                if (state.inuse == 0)
                        bytes += pages_of_slab(cache, slab->order) << PAGE_SHIFT;
                else if (!(wanted->due_only &&
                           (content_counts(cache) || is_purged_locked(slab, state))))
                        bytes += slab_free_parts(cache, slab, wanted, slab_objects(slab));
        }
        lock_drop(&node->list_lock);
        return bytes;
}

/*
 * The CPU slab and the CPU partial list of a slot: they go to the node's list when the slot is
 * flushed. The slot cache lock keeps them there, and no thread takes from them meanwhile.
 */
size_t slub_free_parts_of_slot(struct kmem_cache *cache, struct engine_slot *slot,
                               const struct parts_wanted *wanted)
{
        size_t bytes = 0;
        uint32_t number;

        if (wanted->due_only && content_counts(cache))
                return 0;
        lock_take(&slot->lock);
        /* Entries of uncarved room are undefined (SLUB-4), and the room is free. */
        if (slot->slab)
                bytes += slab_free_parts(cache, slot->slab, wanted,
                                         min_of(slot->carved, slab_objects(slot->slab)));
        for (number = slot->partial; number; number = page_at(number)->next)
                bytes += slab_free_parts(cache, page_at(number), wanted,
                                         slab_objects(page_at(number)));
        lock_drop(&slot->lock);
        return bytes;
}
