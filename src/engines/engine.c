/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Parts that the back ends share: alignment, and reports on wrong frees and on objects left at a
 * cache's end.
 */
#include "engines/engine.h"

#include "machine/fatal.h"
#include "machine/message.h"
#include "base/options.h"
#include "kmem.h"

/* The kernel's slab minimum alignment on 64-bit machines (S4-21). */
enum { WORD = 8, HWCACHE_LINE = 64 };

/* HWCACHE_ALIGN asks for the least fraction of a line that holds the object. */
uint32_t engine_align(const struct kmem_cache *cache)
{
        uint32_t align = max_of(cache->align, (uint32_t)WORD);

        if (cache->flags & SLAB_HWCACHE_ALIGN) {
                uint32_t line = HWCACHE_LINE;

                while (cache->object_size <= line / 2)
                        line /= 2;
                align = max_of(align, line);
        }
        return (uint32_t)round_up(align, WORD);
}

void engine_bad_free(const struct kmem_cache *cache, const void *object, const char *wrong)
{
        if (options.bad_free == BAD_FREE_ABORT)
                fatal_call("free of %p to cache \"%s\": it %s", object, cache->name, wrong);
        message("free of %p to cache \"%s\": it %s; ignored", object, cache->name, wrong);
}

void engine_report_leaked(const struct kmem_cache *cache, uint64_t inuse, uint64_t slabs)
{
        message("kmem_cache_destroy %s: Slab cache still has objects: %lu in %lu slabs, leaked",
                cache->name, (unsigned long)inuse, (unsigned long)slabs);
}
