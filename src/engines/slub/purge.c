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

/*
 * Marks the pages, counted from @skip bytes into the slab, that contain a part of an object in use.
 */
static void find_used_pages(const struct kmem_cache *cache, const struct page *slab, size_t skip,
                            size_t page_bytes, struct page_bits *used)
{
        uint32_t objects = slab_objects(slab);
        size_t offset = 0;

        for (uint32_t index = 0; index < objects; index++, offset += cache->size) {
                size_t last = offset + cache->size - 1;

                if (last < skip || slab_next(slab, objects, index) != INDEX_IN_USE)
                        continue;
                for (size_t page = (max_of(offset, skip) - skip) / page_bytes;
                     page <= (last - skip) / page_bytes; page++)
                        bit_set(used->word, page);
        }
}

/* Returns bytes given back; list_lock of the slab's node is held and the slab is on its list. */
static size_t slab_purge_locked(const struct kmem_cache *cache, struct page *slab)
{
        struct slab_state state = state_unpack(load_acquire(&slab->state));
        size_t page_bytes = system_page_bytes();
        uintptr_t start = (uintptr_t)page_address(slab);
        uintptr_t end_of_slab = start + (pages_of_slab(cache, slab->order) << PAGE_SHIFT);
        /* A slab of exact pages may begin inside a larger page of the system. */
        char *whole = (char *)round_up(start, page_bytes);
        size_t pages = (end_of_slab - min_of((uintptr_t)whole, end_of_slab)) / page_bytes;
        struct page_bits used = {0};
        size_t purged = 0;

        debug_check(slab->node_partial);
        if (slab->list_objects == (uint32_t)(PURGED | state.tag))
                return 0;
        slab->list_objects = (uint32_t)(PURGED | state.tag) & 0xffffff;
        /* Too few free objects to fill a page, or a system page that other slabs have a part of. */
        if ((size_t)(state.objects - state.inuse) * cache->size + cache->size < page_bytes ||
            pages == 0)
                return 0;
        find_used_pages(cache, slab, (uintptr_t)whole - start, page_bytes, &used);
        for (size_t first = 0, end; first < pages; first = end + 1) {
                for (end = first; end < pages && !bit_get(used.word, end); end++)
                        ;
                /*
                 * The system refused (locked memory): it is not asked again before the slab
                 * changes.
                 */
                if (end > first &&
                    system_purge(whole + first * page_bytes, (end - first) * page_bytes))
                        purged += (end - first) * page_bytes;
        }
        return purged;
}

bool slub_purge(struct kmem_cache *cache, unsigned int number, unsigned int slabs, size_t *bytes)
{
        struct engine_node *node = &cache->node[number];
        struct page *slab;
        size_t purged;

        if (cache->ctor || cache->flags & SLAB_TYPESAFE_BY_RCU)
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
