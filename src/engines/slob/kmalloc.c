/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Memory by size: blocks with a header that holds the size (S7-40 to S7-42).
 *
 * The header is 8 bytes for every alignment, because the address behind it is aligned. So malloc's
 * 16 bytes need no longer header, and free and kfree take each other's blocks.
 */
#include "engines/slob/marks.h"

#include "page/large.h"

#include <string.h>

/* Lies in front of the memory that the caller gets. */
struct header {
        uint32_t size;  /* bytes asked for */
        uint16_t owner; /* number of the kmalloc cache that counts the block */
        uint16_t check; /* header_check: was the header written over? */
};
_Static_assert(sizeof(struct header) == KMALLOC_HEADER, "the header is what S7-40 calls a");
_Static_assert(KMALLOC_HEADER == SLOB_ALIGN, "kmalloc memory starts a granule behind its mark");

/*
 * A size class has two caches, and pages of 64 KiB room for blocks of 68 classes (heap/classes.c).
 */
enum { OWNERS_MAX = 256 };

/*
 * Caches of the size classes by the number in a header, given when they first serve; they are
 * never destroyed. 0 is never a number. Under slob_lock.
 */
static struct slob_cache *owners[OWNERS_MAX];
static uint16_t last_owner;

/* False when there are too many, which takes more size classes than there are. */
static bool number_owner(struct slob_cache *owner)
{
        bool numbered = load_relaxed(&owner->number) != 0;

        if (likely(numbered))
                return true;
        lock_take(&slob_lock);
        if (!owner->number && last_owner + 1 < OWNERS_MAX) {
                owners[++last_owner] = owner;
                store_relaxed(&owner->number, last_owner);
        }
        numbered = owner->number != 0;
        lock_drop(&slob_lock);
        return numbered;
}

static uint16_t header_check(const struct header *header)
{
        return (uint16_t)(0x510b ^ header->size ^ header->size >> 16 ^
                          (uint32_t)header->owner << 5);
}

/* The owner by the header, or NULL if the header is damaged. */
static struct slob_cache *header_owner(const struct header *header)
{
        return header->check == header_check(header) && header->owner < OWNERS_MAX
                       ? owners[header->owner]
                       : NULL;
}

static void *small_alloc(struct kmem_cache *cache, size_t size, size_t align)
{
        struct slob_request request = {
                .bytes = (uint32_t)size + KMALLOC_HEADER,
                .align = (uint32_t)align,
                .header = KMALLOC_HEADER,
                .owner = slob_cache(cache),
        };
        struct header *header = NULL;

        if (number_owner(request.owner))
                header = slob_alloc(&request);
        if (!header)
                return NULL;
        header->size = (uint32_t)size;
        header->owner = load_relaxed(&request.owner->number);
        header->check = header_check(header);
        return header + 1;
}

/* S7-40: small enough for a page, and for the first aligned address behind a header in it. */
static bool fits_page(size_t size, size_t align)
{
        return size < PAGE_SIZE - KMALLOC_HEADER &&
               round_up(KMALLOC_HEADER, align) + size <= PAGE_SIZE;
}

/* Memory of a power of two is aligned to it (S7-40). */
static size_t alignment_of(size_t size, size_t align)
{
        if (align == 0 && is_power_of_two(size))
                align = size;
        return max_of(align, (size_t)SLOB_ALIGN);
}

/* Bytes that a block of this size gives the program (S7-42). */
size_t slob_usable_bytes(size_t size, size_t align)
{
        return round_up(size, fits_page(size, alignment_of(size, align)) ? SLOB_UNIT : PAGE_SIZE);
}

void *slob_alloc_bytes(struct kmem_cache *cache, size_t size, size_t align, bool zero)
{
        bool is_kmalloc = align == 0;
        void *block;

        align = alignment_of(size, align);
        if (!fits_page(size, align))
                return large_alloc(size, max_of(align, PAGE_SIZE), zero);
        block = small_alloc(cache, size, align);
        if (!block) {
                /* 2.6.24 adds the header's size to the address it got, even to NULL (S7-44). */
                bool adds = is_kmalloc && options.slob_compat == SLOB_COMPAT_2_6_24;

                return adds ? (void *)KMALLOC_HEADER : NULL;
        }
        /* The whole unit, a byte more than S7-13: krealloc may hand it out as zero (S8-26). */
        return zero ? memset(block, 0, round_up(size, SLOB_UNIT)) : block;
}

/* The reason why no sound block of kmalloc starts at the address, or NULL and the block's owner. */
static const char *not_kmalloc(const struct page *page, const void *address,
                               struct slob_cache **owner)
{
        switch (slob_start_locked(page, address)) {
        case SLOB_KMALLOC:
                *owner = header_owner((const struct header *)address - 1);
                return *owner ? NULL : "has a damaged header: something wrote in front of it";
        case SLOB_OBJECT:
                return "is an object of a cache of engine slob, which only kmem_cache_free takes";
        case SLOB_FREE:
                return "is free already (double free)";
        case SLOB_INSIDE:
                break;
        }
        return "is inside a block, not at its start";
}

size_t slob_block_bytes(const void *address)
{
        struct slob_cache *owner;
        struct page *page;
        size_t bytes = 0;

        lock_take(&slob_lock);
        page = slob_page_locked(address);
        if (page && !not_kmalloc(page, address, &owner))
                bytes = round_up(((const struct header *)address - 1)->size, SLOB_UNIT);
        lock_drop(&slob_lock);
        return bytes;
}

static const char *kfree_locked(void *block, struct page **empty)
{
        struct header *header = (struct header *)block - 1;
        struct page *page = slob_page_locked(block);
        struct slob_cache *owner = NULL;
        const char *wrong;

        *empty = NULL;
        if (!page)
                return "is free already (double free), or never was a block";
        wrong = not_kmalloc(page, block, &owner);
        if (!wrong && !slob_free_locked(page, header, header->size + KMALLOC_HEADER, owner, empty))
                wrong = "has a damaged header: something wrote in front of it";
        return wrong;
}

const char *slob_kfree(void *block)
{
        struct page *empty;
        const char *wrong;

        lock_take(&slob_lock);
        wrong = kfree_locked(block, &empty);
        lock_drop(&slob_lock);
        if (empty)
                slob_page_free(empty);
        return wrong;
}
