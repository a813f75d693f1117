/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Objects of caches: no header, the cache knows their size (S7-43, S7-44).
 *
 * SLAB_TYPESAFE_BY_RCU: readers may look at an object after it was freed, so its memory must go on
 * being an object of this cache. The kernel frees each object after a grace period. Here a freed
 * object stays with its cache, which hands it out again, until the cache is destroyed. It is still
 * constructed and readers may hold its lock, so the constructor does not run again.
 */
#include "engines/slob/marks.h"

/*
 * Behind each object of a SLAB_TYPESAFE_BY_RCU cache, where the kernel has its RCU head: readers
 * see nothing but the object.
 */
struct footer {
        void *next_idle;
        uintptr_t is_idle; /* 0 or 1 */
};

uint32_t slob_footer_bytes(void)
{
        return sizeof(struct footer);
}

static struct footer *object_footer(const struct kmem_cache *cache, void *object)
{
        return (struct footer *)((char *)object + cache->size - sizeof(struct footer));
}

static bool keeps_idle(const struct kmem_cache *cache)
{
        return cache->flags & SLAB_TYPESAFE_BY_RCU;
}

static bool is_big(const struct kmem_cache *cache)
{
        return cache->size >= PAGE_SIZE;
}

/* An object of a page or more has pages of its own (S7-43). */
static void *big_alloc(struct kmem_cache *cache)
{
        struct page *page = pages_alloc(cache->order, NODE_ANY, NULL);

        if (!page)
                return NULL;
        page->slot = cache_index(cache);
        /* Release: pairs with the acquire in slob_page_locked (SLOB-4). */
        store_release(&page->kind, (uint8_t)PAGE_SLAB);
        page_map_set(page, order_pages(cache->order), (uint16_t)slob_shared.pair_offset);

        lock_take(&slob_lock);
        slob_counts.big_objects++;
        slob_counts.big_pages += order_pages(cache->order);
        slob_count_taken(slob_cache(cache));
        slob_cache(cache)->bytes += order_bytes(cache->order);
        lock_drop(&slob_lock);
        return page_address(page);
}

/* From here on no thread finds the object; its pages go back once the lock is dropped. */
static void big_detach_locked(struct kmem_cache *cache, struct page *page)
{
        slob_counts.big_pages -= order_pages(cache->order);
        slob_count_given(slob_cache(cache));
        slob_cache(cache)->bytes -= order_bytes(cache->order);
        page_map_set(page, order_pages(cache->order), 0);
        store_relaxed(&page->kind, (uint8_t)PAGE_UNUSED);
}

static void *idle_take(struct kmem_cache *cache)
{
        struct slob_cache *own = slob_cache(cache);
        void *object;

        lock_take(&slob_lock);
        object = own->idle;
        if (object) {
                struct footer *footer = object_footer(cache, object);

                own->idle = footer->next_idle;
                footer->is_idle = 0;
                slob_count_taken(own);
        }
        lock_drop(&slob_lock);
        return object;
}

static void idle_put_locked(struct kmem_cache *cache, void *object)
{
        struct slob_cache *own = slob_cache(cache);
        struct footer *footer = object_footer(cache, object);

        footer->next_idle = own->idle;
        footer->is_idle = 1;
        own->idle = object;
        slob_count_given(own);
}

static void *object_alloc(struct kmem_cache *cache)
{
        struct slob_request request = {
                .bytes = cache->size,
                .align = cache->align,
                .owner = slob_cache(cache),
        };
        void *object = is_big(cache) ? big_alloc(cache) : slob_alloc(&request);

        if (object && keeps_idle(cache))
                object_footer(cache, object)->is_idle = 0;
        /* 2.6.24 constructs without a look at whether it got an object (S7-44). */
        if (cache->ctor && (object || options.slob_compat == SLOB_COMPAT_2_6_24))
                cache->ctor(object);
        return object;
}

unsigned int slob_take(struct kmem_cache *cache, struct engine_slot *slot, void **objects,
                       unsigned int count)
{
        unsigned int taken = 0;

        (void)slot;
        while (taken < count) {
                void *object = idle_take(cache);

                if (!object)
                        object = object_alloc(cache);
                if (!object)
                        break;
                objects[taken++] = object;
        }
        return taken;
}

/* The reason why no object of this cache can start at the address, or NULL. */
static const char *not_an_object(const struct kmem_cache *cache, const struct page *page,
                                 const void *address)
{
        switch (slob_start_locked(page, address)) {
        case SLOB_OBJECT:
                if (is_big(cache) == (page->table == NULL) &&
                    (page->table || page->slot == cache_index(cache)))
                        return NULL;
                return "is an object of another cache";
        case SLOB_KMALLOC:
                return "is memory of kmalloc, not an object of a cache";
        case SLOB_FREE:
                return "is free already (double free)";
        case SLOB_INSIDE:
                break;
        }
        return "is inside an object (invalid object pointer)";
}

static const char another_size[] = "has another size than the objects of this cache";

bool slob_is_own_locked(const struct kmem_cache *cache, const struct page *page,
                        const void *address)
{
        return !not_an_object(cache, page, address) &&
               (is_big(cache) || slob_has_size_locked(page, address, cache->size));
}

/* Takes the object back; *page becomes the page to give back once the lock is dropped. */
static const char *free_object_locked(struct kmem_cache *cache, void *object, bool keep,
                                      struct page **page)
{
        struct page *found = slob_page_locked(object);
        const char *wrong;

        *page = NULL;
        if (!found)
                return "is free already (double free), or never was an object";
        wrong = not_an_object(cache, found, object);
        if (wrong)
                return wrong;
        if (keep) {
                /* Else the footer would lie in another block. */
                if (!is_big(cache) && !slob_has_size_locked(found, object, cache->size))
                        return another_size;
                if (object_footer(cache, object)->is_idle)
                        return "is free already (double free)";
                idle_put_locked(cache, object);
        } else if (is_big(cache)) {
                big_detach_locked(cache, found);
                *page = found;
        } else if (!slob_free_locked(found, object, cache->size, slob_cache(cache), page)) {
                return another_size;
        }
        return NULL;
}

static const char *free_object(struct kmem_cache *cache, void *object, bool keep)
{
        const char *wrong;
        struct page *page;

        lock_take(&slob_lock);
        wrong = free_object_locked(cache, object, keep, &page);
        lock_drop(&slob_lock);
        if (page && is_big(cache))
                pages_free(page, order_pages(cache->order));
        else if (page)
                slob_page_free(page);
        return wrong;
}

const char *slob_free_object(struct kmem_cache *cache, void *object)
{
        return free_object(cache, object, keeps_idle(cache));
}

void slob_free_idle(struct kmem_cache *cache)
{
        void *object;

        while ((object = idle_take(cache)))
                check_or_die(!free_object(cache, object, false));
}
