/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Frees of many objects at once, all of the same cache or of any caches. */
#ifndef KMEM_HEAP_BLOCKS_H
#define KMEM_HEAP_BLOCKS_H

#include "heap/heap.h"

/*
 * The page map entry that the thread's last bulk free looked up. Initial-exec: access must never
 * allocate.
 */
extern KMEM_HIDDEN __thread uint32_t last_map_entry __attribute__((tls_model("initial-exec")));

/* The page map entry of an object that is looked up by address; 0 if that needs the slow path. */
static KMEM_ALWAYS_INLINE uint32_t map_entry(const void *object)
{
        uintptr_t offset = (uintptr_t)object - fast.heap_base;

        return likely(offset < load_folded(&fast.heap_bytes)) ? fast.map[offset >> PAGE_SHIFT] : 0;
}

/*
 * @entry, but taken from the thread's last call if that entry was equal. Then the processor goes on
 * to the sheaf while it still reads object and page map, instead of waiting for both. The empty
 * statement hides from the compiler that the two are equal, or it would use @entry, which it has to
 * wait for.
 */
static KMEM_ALWAYS_INLINE uint32_t foreseen_entry(uint32_t entry)
{
        uint32_t last = last_map_entry;
        uint32_t foreseen = last;

        __asm__("" : "+r"(foreseen));
        if (likely(entry == last))
                return foreseen;
        last_map_entry = entry;
        return entry;
}

/* How many objects, from the first on, have the page map entry @entry, which the first has. */
static KMEM_ALWAYS_INLINE unsigned int count_run(size_t count, void **objects, uint32_t entry)
{
        unsigned int most = (unsigned int)min_of(count, (size_t)BULK_PIECE);
        unsigned int run = 1;

        while (run < most && map_entry(objects[run]) == entry)
                run++;
        return run;
}

/*
 * Takes back objects of a cache that its pair had no room for; all of a closed cache's objects come
 * here. @site is the program's call.
 */
KMEM_HIDDEN void objects_free(struct kmem_cache *cache, unsigned int count, void **objects,
                              const void *site);
/*
 * Takes back objects of any cache, large blocks, and NULL. The first @run objects have the entry
 * @entry, and the first @pushed are on their sheaf already. @call names the caller's function in
 * reports.
 */
KMEM_HIDDEN void blocks_free(size_t count, void **objects, uint32_t entry, unsigned int run,
                             unsigned int pushed, const char *call, const void *site);
/* Reports an entry of a bulk free that is NULL or ZERO_SIZE_PTR, if option bulk_null refuses it. */
KMEM_HIDDEN void blocks_refuse_null(void *block, const char *call);

#endif
