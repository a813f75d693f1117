/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Reports of calls that got an address at which no block of the program starts: the fault, the object at the
 * address, and the callers. By option bad_free the program then goes on, ends, or leaves the block to libc.
 */
#include "heap/heap.h"

#include "base/options.h"
#include "engines/hardened/hardened.h"
#include "machine/fatal.h"
#include "machine/message.h"
#include "profile/sample.h"

#include <stdlib.h>

/* libc's own free, for option bad_free=libc; glibc exports it under this name. */
extern void __libc_free(void *block) __attribute__((weak));

/* Nothing is mapped below it, so libc has no block there either. */
enum { LEAST_ADDRESS = 4096 };

bool belongs_to_libc(const void *block)
{
        return options.bad_free == BAD_FREE_LIBC && !heap_contains(block) &&
               (uintptr_t)block >= LEAST_ADDRESS;
}

/* The start of the object that an address of the cache's pages lies in; NULL if it is in none. */
static const char *object_around(const struct kmem_cache *cache, const void *address)
{
        const char *start = (const char *)round_down((uintptr_t)address, sizeof(void *));
        const char *least = (const char *)address - cache->size;

        for (; start > least && cache_of(start) == cache; start -= sizeof(void *))
                if (cache_is_object(cache, start))
                        return start;
        return NULL;
}

static void describe_object(const struct kmem_cache *cache, const void *address)
{
        const char *start = object_around(cache, address);

        if (!start)
                message("  there is no object at that address, but the cache %s has its page",
                        cache->name);
        else if (start == address)
                message("  at that address is an object of %u bytes of cache %s",
                        cache->object_size, cache->name);
        else
                message("  at that address is byte %zu of the object of %u bytes at %p of cache %s",
                        (size_t)((const char *)address - start), cache->object_size,
                        (const void *)start, cache->name);
}

/* Says in which object or block an address lies that a call should not have got. */
static void describe(const void *address)
{
        const struct kmem_cache *cache = cache_of(address);

        /* Engine slob knows nothing of a place that is not a block's. */
        if (cache && cache->engine->block_bytes)
                return;
        if (cache)
                describe_object(cache, address);
        else if (in_sample_region(address))
                message("  that address is where samples of the heap profile and guarded objects "
                        "lie");
        else if (heap_contains(address))
                message("  that address is in the heap, in free pages or in a block of whole "
                        "pages");
        else
                message("  that address is not in the heap");
}

void report_bad_free(const char *call, void *block, const char *wrong)
{
        if (belongs_to_libc(block) && __libc_free) {
                __libc_free(block);
                return;
        }
        if (hardened_contains(block))
                hardened_check(block, call);
        if (options.bad_free == BAD_FREE_IGNORE) {
                message("%s(%p): %s; ignored", call, block, wrong);
                return;
        }
        message("%s(%p): %s", call, block, wrong);
        describe(block);
        print_callers();
        abort();
}

void refuse_unknown(const void *block, const char *call)
{
        if (hardened_contains(block))
                hardened_check(block, call);
        else if (!heap_contains(block) && !belongs_to_libc(block))
                report_bad_free(call, (void *)block, "not the start of a block in use");
}
