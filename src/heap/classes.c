/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Size classes of kmalloc and malloc, and the tables that the fast paths read.
 *
 * A class's cache is made when its first object is asked for. Until a request has come through a
 * table, the class's entries there are pair offset 0, the pair that is always cold, so its requests
 * take the slow path.
 *
 * Each class in use costs a slab or more for every CPU, even if it is nearly empty; fewer classes
 * cost more in each object, which is rounded up further. In the small heap of a program with
 * several threads the slabs cost more. There malloc has two classes a doubling, and gets all
 * classes when the heap has grown. Objects keep the class that they came from, which the page map
 * knows.
 */
#define _GNU_SOURCE
#include "heap/heap.h"

#include "base/options.h"
#include "engines/hardened/hardened.h"
#include "lang/text.h"
#include "machine/message.h"

#include <string.h>

enum {
        CLASSES_MAX = 96,
        COARSE_HEAP_BYTES = 4 << 20, /* with more malloc has all classes */
        PAGED_MAX = 1024 << 10,
};

static uint32_t class_sizes[CLASSES_MAX]; /* ascending */
static unsigned int class_count; /* of those in the tables; behind them are the classes of pages */
static unsigned int paged_end;   /* class_count, or behind the classes of pages */
static struct kmem_cache *class_caches[CLASSES_MAX];     /* release; written under cache_mutex */
static struct kmem_cache *accounted_caches[CLASSES_MAX]; /* kmalloc-cg-N; release; written under
                                                            cache_mutex */
static bool refused_pages[CLASSES_MAX]; /* a large block is faster; relaxed, only ever set */

/*
 * Whether malloc has only the coarse classes, as with several threads; under cache_mutex, read
 * without it.
 */
static bool coarse;

#define CLASS_FLAGS (SLAB_KMALLOC | SLAB_NO_MERGE | CACHE_IS_CLASS)

static void add_class(uint32_t size)
{
        class_sizes[class_count++] = size;
}

/*
 * 16-byte steps to 128, then eight classes a doubling: at most 12.5% waste above 112 bytes. Above 8
 * KiB there are four classes a doubling. All but two of these are whole pages, and such an object
 * would be rounded to pages anyway, or nearly.
 */
static void init_fine(void)
{
        for (uint32_t size = 16; size <= 128; size += 16)
                add_class(size);
        for (uint32_t base = 128; base < CLASS_BYTES_MAX; base *= 2)
                for (uint32_t steps = base < 8192 ? 8 : 4, step = 1; step <= steps; step++)
                        add_class(base + base / steps * step);
}

/*
 * Classes of whole pages, for blocks above the tables that malloc gives out often: to 64 KiB every
 * page, then four a doubling. malloc's slow path looks for them, and frees look at the address there.
 */
static void init_paged(void)
{
        if (options.classes != CLASSES_KERNEL && CLASS_BYTES_MAX == 32768)
                for (uint32_t size = CLASS_BYTES_MAX, step = (uint32_t)PAGE_SIZE;
                     size < PAGED_MAX;) {
                        if (size >= 65536)
                                step = (1u << (fls(size) - 1)) / 4;
                        size += step;
                        check_or_die(paged_end < CLASSES_MAX);
                        class_sizes[paged_end++] = size;
                }
}

/* The kernel's classes (S8-23). */
static void init_kernel(void)
{
        static const uint32_t small[] = {8, 16, 32, 64, 96, 128, 192, 256};

        for (size_t i = 0; i < array_size(small); i++)
                add_class(small[i]);
        for (uint32_t size = 512; size <= 2 * PAGE_SIZE; size *= 2)
                add_class(size);
}

void classes_init(void)
{
        if (options.classes == CLASSES_KERNEL)
                init_kernel();
        else
                init_fine();
        paged_end = class_count;
        init_paged();
        coarse = options.classes == CLASSES_AUTO;
        /*
         * With locked slots the limit only saves the class search; the fast path finds no slot. Hardened blocks
         * never take the fast path. Release, behind all other words of the fast path: pairs with kmalloc's acquire.
         */
        fast.heap_bytes = options.check == CHECK_SHEAF ? 0 : heap.accessible_bytes;
        fast.heap_units = fast.heap_bytes >> UNIT_SHIFT;
        store_release(&fast.malloc_limit, hardened_is_on() ? 0 : class_bytes_max());
}

size_t class_bytes_max(void)
{
        return class_sizes[class_count - 1];
}

static uint16_t *table_entries(enum class_table table)
{
        return table == CLASS_MALLOC ? front()->malloc_class : front()->kmalloc_class;
}

static size_t table_least(enum class_table table)
{
        return table == CLASS_MALLOC ? MALLOC_ALIGN : 1;
}

/*
 * Whether requests of malloc may have this class now; requests of kmalloc may have every class. If
 * the threads are unknown, there may be several. A second thread may start between two looks: then
 * a class fills fewer entries of the table than it could, and the requests for the other entries
 * come here once more.
 */
static bool malloc_has(unsigned int number)
{
        return !load_relaxed(&coarse) || class_is_coarse(class_sizes[number]) ||
               system_threads() == THREADS_ONE;
}

/* The least class of @size bytes from @low on; @high if there is none below. */
static unsigned int class_between(unsigned int low, unsigned int high, size_t size)
{
        while (low < high) {
                unsigned int middle = (low + high) / 2;

                if (class_sizes[middle] < size)
                        low = middle + 1;
                else
                        high = middle;
        }
        return low;
}

/* The least class of @size bytes whose stride is a multiple of @align; class_count if none. */
static unsigned int class_number(enum class_table table, size_t size, size_t align)
{
        unsigned int low = class_between(0, class_count, size);

        while (low < class_count &&
               (class_sizes[low] & (align - 1) || (table == CLASS_MALLOC && !malloc_has(low))))
                low++;
        return low;
}

static unsigned int class_of(enum class_table table, size_t size)
{
        return class_number(table, max_of(size, table_least(table)), 1);
}

size_t class_bytes(enum class_table table, size_t size)
{
        unsigned int number = class_of(table, size);

        return number < class_count ? class_sizes[number] : 0;
}

/*
 * Points the table entries of all sizes that a class serves at its cache: from its own size down to
 * the next class below. malloc's least class also serves the sizes below its alignment.
 */
static void fill_table_locked(enum class_table table, unsigned int number)
{
        const uint32_t step = 1 << CLASS_STEP_SHIFT;
        uint16_t *entries = table_entries(table);

        for (uint32_t size = class_sizes[number]; size && class_of(table, size) == number;
             size -= step)
                /* Release, with class_cache: the cache is complete before the table has it. */
                store_release(&entries[(size - 1) >> CLASS_STEP_SHIFT],
                              (uint16_t)class_caches[number]->pair_offset);
}

/*
 * Gives malloc all classes once the heap has grown; its table begins anew. Against: threads that
 * read the table meanwhile. An old entry gives them a larger object, and 0 sends them to the slow
 * path.
 */
static KMEM_NOINLINE void refine(void)
{
        lock_take(&cache_mutex);
        if (coarse) {
                store_relaxed(&coarse, false);
                for (size_t i = 0; i < array_size(front()->malloc_class); i++)
                        store_relaxed(&front()->malloc_class[i], 0);
        }
        lock_drop(&cache_mutex);
}

static void refine_if_grown(void)
{
        if (load_relaxed(&coarse) && load_relaxed(&heap.accessible_bytes) > COARSE_HEAP_BYTES)
                refine();
}

/*
 * The class's name (S8-24): powers of two print as 512, 1k, 2k; other sizes in bytes unless they
 * are whole KiB.
 */
static void class_name(char name[CACHE_NAME_BYTES], const char *kind, uint32_t size)
{
        char *end = stpcpy(stpcpy(name, "kmalloc-"), kind);

        if (size % 1024 == 0)
                stpcpy(text_number(end, size / 1024, 0), "k");
        else
                text_number(end, size, 0);
}

/* The largest power of two that divides the size (S4-22), but no more than a page. */
static uint32_t class_align(uint32_t size)
{
        return (uint32_t)min_of((size_t)(size & -size), PAGE_SIZE);
}

static struct kmem_cache *make_cache_locked(unsigned int number, const char *kind,
                                            slab_flags_t flags)
{
        uint32_t size = class_sizes[number];
        struct kmem_cache_args args = {.align = class_align(size), .usersize = size};
        struct kmem_cache *cache;
        char name[CACHE_NAME_BYTES];

        class_name(name, kind, size);
        flags |= CLASS_FLAGS;
        if (cache_make_locked(name, &args, size, flags, &cache))
                return NULL;
        cache->marks_freed = cache->engine->caching != CACHING_NONE;
        return cache;
}

static struct kmem_cache *make_class(unsigned int number)
{
        struct kmem_cache *cache;

        lock_take(&cache_mutex);
        cache = class_caches[number];
        if (!cache) {
                cache = make_cache_locked(number, "", 0);
                if (cache)
                        store_release(&class_caches[number], cache);
        }
        lock_drop(&cache_mutex);
        return cache;
}

struct kmem_cache *class_cache_accounted(size_t size)
{
        unsigned int number = class_of(CLASS_KMALLOC, size);
        struct kmem_cache *cache = load_acquire(&accounted_caches[number]);

        if (likely(cache))
                return cache;
        lock_take(&cache_mutex);
        cache = accounted_caches[number];
        if (!cache) {
                cache = make_cache_locked(number, "cg-", SLAB_ACCOUNT);
                store_release(&accounted_caches[number], cache);
        }
        lock_drop(&cache_mutex);
        return cache;
}

static struct kmem_cache *cache_of_class(unsigned int number)
{
        struct kmem_cache *cache = load_acquire(&class_caches[number]);

        return likely(cache) ? cache : make_class(number);
}

/*
 * The cache of a larger class that is aligned as well, for a class that has no index or no memory
 * for its own cache. Above a page a large block is as good.
 */
static KMEM_COLD struct kmem_cache *cache_above(unsigned int number)
{
        uint32_t align = class_align(class_sizes[number]);

        while (++number < class_count && class_sizes[number] <= PAGE_SIZE) {
                struct kmem_cache *cache = load_acquire(&class_caches[number]);

                if (cache && class_align(class_sizes[number]) >= align)
                        return cache;
        }
        return NULL;
}

struct kmem_cache *class_cache(enum class_table table, size_t size)
{
        const uint16_t *entries = table_entries(table);
        struct kmem_cache *cache;
        unsigned int number;
        uint16_t entry;

        refine_if_grown();
        /* Acquire: pairs with fill_table_locked, which stores after the cache was made. */
        entry = load_acquire(&entries[size ? (size - 1) >> CLASS_STEP_SHIFT : 0]);
        if (entry)
                return load_relaxed(&caches_by_index[entry >> PAIR_SHIFT]);
        number = class_of(table, size);
        cache = cache_of_class(number);
        if (unlikely(!cache))
                return cache_above(number);
        lock_take(&cache_mutex);
        fill_table_locked(table, number);
        lock_drop(&cache_mutex);
        return cache;
}

struct kmem_cache *class_cache_paged(size_t size)
{
        unsigned int number = class_between(class_count, paged_end, size);
        struct kmem_cache *cache;
        char name[CACHE_NAME_BYTES];

        if (number == paged_end)
                return NULL;
        cache = load_acquire(&class_caches[number]);
        if (likely(cache))
                return cache;
        if (load_relaxed(&refused_pages[number]))
                return NULL;
        class_name(name, "", class_sizes[number]);
        if (cache_would_have_sheaves(name, CLASS_FLAGS))
                return make_class(number);
        store_relaxed(&refused_pages[number], true);
        return NULL;
}

struct kmem_cache *class_cache_aligned(size_t size, size_t align)
{
        unsigned int number;

        refine_if_grown();
        number = class_number(CLASS_MALLOC, max_of(size, (size_t)MALLOC_ALIGN), align);
        /* Through the table of that size, so that malloc's fast path has it next time. */
        return number < class_count ? class_cache(CLASS_MALLOC, class_sizes[number]) : NULL;
}
