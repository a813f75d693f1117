/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * The kmalloc family in both tables of size classes.
 */
#define _GNU_SOURCE
#include "engines.h"
#include "random.h"
#include "walker.h"

#include "introspect/totals.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool is_filled(const void *block, int value, size_t bytes)
{
        /* Compilers know the size asked for, and take room up to ksize for outside. */
        const unsigned char *at = hide_address((const unsigned char *)block);

        for (size_t i = 0; i < bytes; i++)
                if (at[i] != (unsigned char)value)
                        return false;
        return true;
}

/*
 * The class for a size, by the rules of the two tables (the kernel's: S8-23; the fine: classes.c);
 * 0: whole pages. Engine slob has no classes but exact sizes (S7-40, S7-42).
 */
static size_t model_class(size_t size)
{
        size_t base = 128;

        if (is_slob())
                return size < PAGE_SIZE - 8 ? round_up(size, 2) : 0;
        if (options.classes == CLASSES_KERNEL) {
                static const size_t small[] = {8, 16, 32, 64, 96, 128, 192, 256};

                for (size_t i = 0; i < array_size(small); i++)
                        if (size <= small[i])
                                return small[i];
                for (base = 512; base <= 8192; base *= 2)
                        if (size <= base)
                                return base;
                return 0;
        }
        if (size <= 128)
                return round_up(size, 16);
        if (size > CLASS_BYTES_MAX)
                return 0;
        while (size > base * 2)
                base *= 2;
        return round_up(size - base, base < 8192 ? base / 8 : base / 4) + base;
}

static size_t model_align(size_t size, size_t usable)
{
        if (!is_slob()) /* S8-25, S4-22: the largest power of two that divides the class */
                return max_of(min_of(usable & -usable, PAGE_SIZE), size >= 16 ? 16ul : 8ul);
        if (usable >= PAGE_SIZE)
                return PAGE_SIZE;
        return is_power_of_two(size) ? max_of(size, 8ul) : 8; /* S7-40 */
}

static void every_size(void **state)
{
        for (size_t size = 1; size < 70000; size += size < 3000 ? 1 : 97) {
                void *block = kmalloc(size, GFP_KERNEL);
                size_t expected = model_class(size);
                size_t usable = ksize(block);

                check(block != NULL);
                if (expected)
                        check_equal(usable, expected);
                else
                        check_equal(usable, round_up(size, PAGE_SIZE));
                check_equal(kmalloc_size_roundup(size), usable);
                check_equal((uintptr_t)block % model_align(size, usable), 0);
                memset(block, 0xa5, usable);
                kfree(block);
        }
}

/* S8-40 */
static void size_zero(void **state)
{
        check(kmalloc(0, GFP_KERNEL) == ZERO_SIZE_PTR);
        check(kzalloc(0, 0) == ZERO_SIZE_PTR);
        check(kcalloc(0, 10, 0) == ZERO_SIZE_PTR);
        check(kmalloc_array(10, 0, 0) == ZERO_SIZE_PTR);
        check_equal(ksize(ZERO_SIZE_PTR), 0);
        check_equal(ksize(NULL), 0);
        check_equal(kmalloc_size_roundup(0), 0);
        kfree(ZERO_SIZE_PTR);
        kfree(NULL);
        kfree_sensitive(NULL);
        kfree_sensitive(ZERO_SIZE_PTR);
}

static void zeroed(void **state)
{
        for (size_t size = 1; size < 100000; size = size * 5 / 4 + 1) {
                void *block = kmalloc(size, 0);

                memset(block, 0xff, size);
                kfree(block);
                block = kzalloc(size, 0);
                check(is_filled(block, 0, size));
                memset(block, 0xff, size);
                kfree(block);
                block = kcalloc(size, 3, 0);
                check(is_filled(block, 0, size * 3));
                kfree(block);
                block = kmalloc_node(size, __GFP_ZERO, 0);
                check(is_filled(block, 0, size));
                kfree(block);
                block = kzalloc_node(size, 0, NUMA_NO_NODE);
                check(is_filled(block, 0, size));
                kvfree(block);
                block = kvzalloc(size, 0);
                check(is_filled(block, 0, size));
                kvfree(block);
        }
}

/* S8-22 */
static void overflow(void **state)
{
        volatile size_t half = SIZE_MAX / 2 + 2;
        volatile size_t most = (size_t)PTRDIFF_MAX + 1;

        errno = 0;
        check(kmalloc_array(half, 2, __GFP_NOWARN) == NULL);
        check_equal(errno, ENOMEM);
        check(kcalloc(2, half, __GFP_NOWARN) == NULL);
        check(kmalloc_array_node(half, 2, __GFP_NOWARN, 0) == NULL);
        check(kcalloc_node(half, 2, __GFP_NOWARN, 0) == NULL);
        check(krealloc_array(NULL, half, 2, __GFP_NOWARN) == NULL);
        errno = 0;
        check(kmalloc(most, __GFP_NOWARN) == NULL);
        check_equal(errno, ENOMEM);
        check(kmalloc(SIZE_MAX - half / half, __GFP_NOWARN) == NULL);
        check_equal(kmalloc_size_roundup(most), most);
        check_equal(kmalloc_size_roundup(most - 1), most - 1);
        check_equal(kmalloc_size_roundup(most - PAGE_SIZE), most - PAGE_SIZE);
        check_equal(kmalloc_size_roundup(most - PAGE_SIZE + 1), most - PAGE_SIZE + 1);
        check_equal(kmalloc_size_roundup(most - PAGE_SIZE - 1), most - PAGE_SIZE);
}

/* S8-26 */
static void krealloc_rules(void **state)
{
        char *block = krealloc(NULL, 50, 0);
        char *moved;
        size_t usable;

        check(block && ksize(block) >= 50);
        usable = ksize(block);
        memset(block, 7, usable);
        check(krealloc(block, usable, 0) == block);
        check(krealloc(block, usable - 1, 0) == block);
        check(krealloc(block, usable - 5, __GFP_ZERO) == block);
        check(is_filled(block, 7, usable - 5));
        /* The rest behind the requested bytes is cleared, or is a red zone. */
        if (!options_given(OPTION_DEBUG))
                check(is_filled(block + usable - 5, 0, 5));
        check_equal(ksize(block), usable); /* to write to all of it, a program has to ask again */
        memset(block, 7, usable);
        moved = krealloc(block, usable + 1, 0);
        check(moved && ksize(moved) > usable);
        check(is_filled(moved, 7, usable));
        block = krealloc(moved, 100000, __GFP_ZERO);
        check(is_filled(block, 7, usable));
        check(is_filled(block + ksize(block) - 50000, 0, 50000));
        moved = krealloc(block, 300000, 0);
        check(is_filled(moved, 7, usable));
        block = krealloc(moved, 20, 0);
        check(is_filled(block, 7, 20));
        check(krealloc(block, 0, 0) == ZERO_SIZE_PTR);
        block = krealloc(ZERO_SIZE_PTR, 30, 0);
        check(block && block != ZERO_SIZE_PTR);
        /* On failure the old block stays valid. */
        memset(block, 9, 30);
        errno = 0;
        check(krealloc(block, (size_t)PTRDIFF_MAX, __GFP_NOWARN) == NULL);
        check_equal(errno, ENOMEM);
        check(is_filled(block, 9, 30));
        kfree(block);
        check(krealloc(ZERO_SIZE_PTR, 0, 0) == ZERO_SIZE_PTR);
}

/* A number of blocks that fast paths and slow paths share, from used memory. */
static void check_all_clear(gfp_t flags)
{
        enum { BLOCKS = 300, BYTES = 33 };
        static void *blocks[BLOCKS];

        for (unsigned int i = 0; i < BLOCKS; i++) {
                check(blocks[i] = kmalloc(BYTES, flags));
                memset(blocks[i], 0xff, ksize(blocks[i]));
        }
        kfree_bulk(BLOCKS, blocks);
        for (unsigned int i = 0; i < BLOCKS; i++) {
                check(blocks[i] = kmalloc(BYTES, flags | __GFP_ZERO));
                check(is_filled(blocks[i], 0, ksize(blocks[i])));
        }
        kfree_bulk(BLOCKS, blocks);
}

static void child_all_clear(void)
{
        check_all_clear(GFP_KERNEL);
        kmem_group_set(kmem_group_create("group", NULL, 0));
        check_all_clear(GFP_KERNEL_ACCOUNT);
}

/* The rest of a zeroed block is zero too, on which krealloc with __GFP_ZERO relies (S8-26). */
static void all_clear(void **state)
{
        child_passes("all_clear", "debug=-");
        child_passes("all_clear", "debug=-,slots=locked");
}

/* Contents survive any sequence of sizes. */
static void krealloc_random(void **state)
{
        uint64_t random = 1234;
        size_t bytes = 1;
        unsigned char *block = kmalloc(1, 0);

        block[0] = 0;
        for (unsigned int round = 0; round < 3000; round++) {
                size_t next = 1 + random_step(&random) % (round % 10 ? 5000 : 300000);

                block = krealloc(block, next, 0);
                check(block != NULL);
                for (size_t i = 0; i < min_of(bytes, next); i++)
                        check_equal(block[i], i & 0xff);
                for (size_t i = bytes; i < next; i++)
                        block[i] = (unsigned char)i;
                bytes = next;
        }
        kfree(block);
}

static void sensitive(void **state)
{
        for (size_t size = 1; size <= 20000; size = size * 3 + 1) {
                unsigned char *block = kmalloc(size, 0);
                size_t usable = ksize(block);

                memset(block, 0x42, usable);
                kfree_sensitive(block);
                /*
                 * Still accessible: it rests in a sheaf or slab, unless that is poisoned. The first
                 * word is the mark of a free block.
                 */
                if (usable > 8 && usable <= class_bytes_max() && !options_given(OPTION_DEBUG))
                        check(is_filled(block + 8, 0, usable - 8));
        }
}

static void copies(void **state)
{
        volatile size_t most = SIZE_MAX; /* a constant would be a warning where calls are inlined */
        char *copy = kmemdup("bytes", 5, 0);

        check(memcmp(copy, "bytes", 5) == 0);
        kfree(copy);
        copy = kmemdup_nul("bytes", 3, 0);
        check(strcmp(copy, "byt") == 0);
        kfree(copy);
        errno = 0;
        check(!kmemdup_nul("bytes", most, 0));
        check_equal(errno, ENOMEM);
        copy = kstrdup("string", 0);
        check(strcmp(copy, "string") == 0);
        kfree(copy);
        copy = kstrndup("string", 3, 0);
        check(strcmp(copy, "str") == 0);
        kfree(copy);
        copy = kstrndup("string", 100, 0);
        check(strcmp(copy, "string") == 0);
        kfree(copy);
        check(kstrdup(NULL, 0) == NULL);
        check(kstrndup(NULL, 5, 0) == NULL);
}

static void *named_or_kmalloc(struct kmem_cache *cache)
{
        return is_slob() ? kmalloc(90, 0) : kmem_cache_alloc(cache, 0);
}

/* kfree takes objects of named caches (S5-32: but for engine slob), and kfree_bulk any mixture. */
static void free_anything(void **state)
{
        struct kmem_cache *cache = kmem_cache_create("named", 90, 0, 0, NULL);
        void *mixture[] = {kmalloc(10, 0),       named_or_kmalloc(cache), NULL,
                           kmalloc(100000, 0),   kmalloc(3000, 0),        named_or_kmalloc(cache),
                           kmalloc(64u << 20, 0)};

        kfree(named_or_kmalloc(cache));
        kfree_bulk(array_size(mixture), mixture);
        check_equal(kmem_cache_shrink(cache), 0);
        kmem_cache_destroy(cache);
}

static void child_classes(void)
{
        bool kernel = options.classes == CLASSES_KERNEL;

        for (size_t size = 1; size <= class_bytes_max(); size += 8) {
                kfree(kmalloc(size, 0));
                /* The fast path finds the next block of this size. */
                check_equal(front()->kmalloc_class[(size - 1) >> CLASS_STEP_SHIFT],
                            class_cache(CLASS_KMALLOC, size)->pair_offset);
        }
        check(cache_named_locked("kmalloc-64") != NULL); /* in both tables */
        check_equal(cache_named_locked("kmalloc-64")->size, 64);
        check((cache_named_locked("kmalloc-8") != NULL) == kernel);
        check((cache_named_locked("kmalloc-80") != NULL) == !kernel);
        check(cache_named_locked("kmalloc-96") != NULL);
        check(cache_named_locked("kmalloc-192") != NULL);
        check(cache_named_locked("kmalloc-1k") != NULL);
        check(cache_named_locked("kmalloc-8k") != NULL);
        check((cache_named_locked("kmalloc-16k") != NULL) == !kernel);
        check_equal(class_bytes_max(), kernel ? 8192 : CLASS_BYTES_MAX);
        every_size(NULL);
        krealloc_rules(NULL);
}

static void both_tables(void **state)
{
        child_passes("classes", "classes=kernel");
        child_passes("classes", "classes=fine");
        child_passes("classes", "classes=kernel,slots=locked");
}

static void child_bad_pointers(void)
{
        char *block = kmalloc(100, 0);
        char *large = kmalloc(100000, 0);
        int local = 0;

        kfree(&local);
        kfree((void *)0x1234567000);
        kfree(large + 4096);
        kfree(large + 8);
        check(krealloc(&local, 10, 0) == NULL);
        check_equal(errno, EINVAL);
        check(krealloc(block + 16, 10, 0) == NULL);
        check_equal(ksize(block + 16), 0);
        check_equal(ksize(&local), 0);
        kfree(block);
        kfree(large);
        kfree(large);
        fprintf(stderr, "pointers %p %p\n", (void *)&local, (void *)large);
}

static void bad_pointers(void **state)
{
        static struct child_result result;
        void *local, *large;
        char line[100], *at;

        child_run("bad_pointers", "bad_free=ignore", &result);
        if (result.status)
                fprintf(stderr, "%s", result.output);
        assert_int_equal(result.status, 0);
        at = strstr(result.output, "pointers 0x");
        assert_non_null(at);
        assert_int_equal(sscanf(at, "pointers %p %p", &local, &large), 2);
        snprintf(line, sizeof(line), "kmem: kfree(%p): not the start of a block of this heap",
                 local);
        assert_non_null(strstr(result.output, line));
        snprintf(line, sizeof(line), "kmem: kfree(%p): not the start of a block of this heap",
                 large);
        assert_non_null(strstr(result.output, line)); /* the second free of it */
        snprintf(line, sizeof(line), "kmem: krealloc(%p): not the start", local);
        assert_non_null(strstr(result.output, line));
        assert_non_null(strstr(result.output, "kfree(0x1234567000)"));
}

static void child_double_kfree(void)
{
        void *blocks[] = {kmalloc(100, 0), kmalloc(100, 0)};

        kfree(blocks[0]);
        kfree(blocks[0]);
        kfree(blocks[1]);
        if (is_slob())
                kfree_bulk(array_size(blocks), blocks);
}

/* The line names the call; engine slob, where nothing rests, knows it of each object of a bulk. */
static void double_kfree(void **state)
{
        child_prints("double_kfree", "bad_free=ignore", "kmem: kfree(0x");
        child_prints("double_kfree", "bad_free=ignore", "free already (double free); ignored");
        child_aborts("double_kfree", "bad_free=abort", "kmem: kfree(0x");
        if (is_slob())
                child_prints("double_kfree", "bad_free=ignore", "kmem: kfree_bulk(0x");
}

enum { MANY = 3000, MANY_BYTES = 200 };

static void *free_in_thread(void *block)
{
        kfree(block);
        return NULL;
}

/* The second free of a block that rests in main or spare, below many others, or in another slot. */
static void child_freed_below(void)
{
        void *blocks[6];

        for (size_t i = 0; i < array_size(blocks); i++)
                blocks[i] = kmalloc(MANY_BYTES, 0);
        for (size_t i = 0; i < array_size(blocks); i++)
                kfree(blocks[i]);
        kfree(blocks[1]);
}

static void child_freed_among_many(void)
{
        static void *blocks[MANY];

        for (unsigned int i = 0; i < MANY; i++)
                blocks[i] = kmalloc(MANY_BYTES, 0);
        /* One of eight keeps its slab in place. */
        for (unsigned int i = 0; i < MANY; i++)
                if (i % 8)
                        kfree(blocks[i]);
        /* Engine slab keeps the list of a slab in one of its free objects. */
        for (unsigned int i = MANY / 2; i < MANY / 2 + 8; i++)
                if (i % 8)
                        kfree(blocks[i]);
}

static void child_freed_elsewhere(void)
{
        void *block = kmalloc(MANY_BYTES, 0);
        cpu_set_t all, one;
        pthread_t thread;

        sched_getaffinity(0, sizeof(all), &all);
        for (size_t cpu = 0, found = 0; cpu < CPU_SETSIZE && found < 2; cpu++) {
                if (!CPU_ISSET(cpu, &all))
                        continue;
                CPU_ZERO(&one);
                CPU_SET(cpu, &one);
                sched_setaffinity(0, sizeof(one), &one);
                found++;
                if (found == 1) {
                        pthread_create(&thread, NULL, free_in_thread, block);
                        pthread_join(thread, NULL);
                }
        }
        kfree(block);
}

/* krealloc and ksize of blocks that were freed: as of addresses that are no blocks. */
static void child_resized_freed(void)
{
        void *blocks[6];

        for (size_t i = 0; i < array_size(blocks); i++)
                blocks[i] = kmalloc(MANY_BYTES, 0);
        for (size_t i = 0; i < array_size(blocks); i += 2)
                kfree(blocks[i]);
        for (size_t i = 0; i < array_size(blocks); i += 2) {
                errno = 0;
                check(krealloc(blocks[i], 4 * MANY_BYTES, 0) == NULL);
                check_equal(errno, EINVAL);
                check(krealloc(blocks[i], MANY_BYTES / 4, 0) == NULL);
                check_equal(ksize(blocks[i]), 0);
        }
        for (size_t i = 1; i < array_size(blocks); i += 2)
                kfree(krealloc(blocks[i], 4 * MANY_BYTES, 0));
        puts("went on");
}

static void resized_freed(void **state)
{
        child_prints("resized_freed", "bad_free=ignore", "kmem: krealloc(0x");
        child_prints("resized_freed", "bad_free=ignore", "went on");
        child_prints("resized_freed", "bad_free=ignore,debug=FZ", "kmem: krealloc(0x");
        child_prints("resized_freed", "bad_free=ignore,debug=FZ", "went on");
}

/* The program's own data may be the mark. */
static void child_own_mark(void)
{
        int64_t *block = kmalloc(MANY_BYTES, 0);

        for (int i = 0; i < 3; i++)
                kfree(kmalloc(MANY_BYTES, 0));
        *block = FREED_MARK;
        check(ksize(block) >= MANY_BYTES);
        kfree(block);
        block = kmalloc(MANY_BYTES, 0);
        check(*block != FREED_MARK || options_given(OPTION_DEBUG) || is_slob());
        kfree(block);
        puts("went on");
}

static void second_frees(void **state)
{
        static const char *const names[] = {"freed_below", "freed_among_many", "freed_elsewhere"};

        for (size_t i = 0; i < array_size(names); i++)
                child_aborts(names[i], "bad_free=abort",
                             is_slob() ? "kmem: kfree(0x" : "free already (double free)");
        child_prints("own_mark", "bad_free=abort", "went on");
}

static void fill_word(void *object)
{
        *(int64_t *)object = 42;
}

/* What a constructor made is still there after kfree; so are objects that readers may look at. */
static void kept_objects(void **state)
{
        struct kmem_cache *caches[] = {
                kmem_cache_create("constructed", 64, 0, SLAB_NO_MERGE, fill_word),
                kmem_cache_create("typesafe", 64, 0, SLAB_TYPESAFE_BY_RCU, NULL),
        };

        skip_on_slob("takes no objects of caches by kfree");
        for (size_t i = 0; i < array_size(caches); i++) {
                /* Keeps the slab: the pages of an empty slab may go back to the system. */
                void *other = kmem_cache_alloc(caches[i], 0);

                for (int round = 0; round < 100; round++) {
                        int64_t *object = kmem_cache_alloc(caches[i], 0);

                        *object = 42;
                        kfree(object);
                        check_equal(*(volatile int64_t *)object, 42);
                }
                kmem_cache_free(caches[i], other);
                kmem_cache_destroy(caches[i]);
        }
}

static void works(size_t size, gfp_t flags)
{
        void *blocks[20];
        void *grown;

        for (unsigned int i = 0; i < array_size(blocks); i++) {
                blocks[i] = kmalloc(size, flags);
                check(blocks[i] && ksize(blocks[i]) >= size);
                check_equal((uintptr_t)blocks[i] % (size < 16 || is_slob() ? 8 : 16), 0);
                if (is_power_of_two(size) && !is_slob())
                        check_equal((uintptr_t)blocks[i] % min_of(size, PAGE_SIZE), 0);
                memset(blocks[i], (int)i + 1, size);
        }
        grown = krealloc(blocks[0], 3 * size, flags);
        check(grown != NULL);
        blocks[0] = grown;
        for (unsigned int i = 0; i < array_size(blocks); i++) {
                for (size_t byte = 0; byte < size; byte++)
                        check_equal(((uint8_t *)blocks[i])[byte], i + 1);
                kfree(blocks[i]);
        }
        blocks[0] = kmalloc(size, flags | __GFP_ZERO);
        check(is_filled(blocks[0], 0, size));
        kfree(blocks[0]);
}

/*
 * Named caches have taken all indexes. A size without a class comes from a larger class that
 * exists, if its alignment suffices, or is a large block.
 */
static void child_no_index(void)
{
        struct kmem_cache *last = NULL;
        struct kmem_cache *made;
        void *block;

        kfree(kmalloc(64, 0));
        kfree(kmalloc(192, 0)); /* none for 128, which must be aligned to as much */
        while ((made = kmem_cache_create("many", 32, 0, SLAB_NO_MERGE, NULL)))
                last = made;
        check_equal(errno, ENOSPC);
        for (size_t size = 1; size < 50000; size = size * 5 / 4 + 1)
                works(size, GFP_KERNEL);
        for (size_t size = 1; size <= PAGE_SIZE; size *= 2)
                works(size, GFP_KERNEL);
        check(kmem_group_create("group", NULL, 0) != NULL);
        for (size_t size = 1; size < 50000; size = size * 3 + 1)
                works(size, GFP_KERNEL_ACCOUNT);
        if (!is_slob()) { /* with blocks of the requested size */
                block = kmalloc(40, 0);
                check_equal(ksize(block), 64);
                kfree(block);
                block = kmalloc(1024, 0);
                check_equal(ksize(block), 4096);
                kfree(block);
        }
        kmem_cache_destroy(last);
        /* An accounted cache needs two indexes. With a single free index it fails, and keeps none. */
        check(!kmem_cache_create("two", 32, 0, SLAB_ACCOUNT | SLAB_NO_MERGE, NULL));
        check_equal(errno, ENOSPC);
        block = kmalloc(40, 0);
        check_equal(ksize(block), kmalloc_size_roundup(40));
        kfree(block);
}

static void no_index(void **state)
{
        child_passes("no_index", "");
        child_passes("no_index", "classes=kernel");
}

static void child_bad_pointer_aborts(void)
{
        int local = 0;

        kfree(&local);
        puts("still there");
}

static void bad_pointer_aborts(void **state)
{
        child_aborts("bad_pointer_aborts", "bad_free=abort", "not the start of a block");
}

static void child_interior(void)
{
        char *block = kmalloc(100, 0);

        kfree(block + 16);
        fprintf(stderr, "called\n");
        kfree(block);
        percpu_flush(class_cache(CLASS_KMALLOC, 100), false);
}

/*
 * A pointer inside an object is caught where the free takes the slow path, or else when it leaves
 * the sheaf; with check=sheaf at the call.
 */
static void interior_pointer(void **state)
{
        static struct child_result result;
        const char *text = is_slob() ? "inside a block, not at its start" : "inside an object";

        child_aborts("interior", "bad_free=abort", text);
        child_run("interior", "bad_free=abort,check=sheaf", &result);
        assert_true(result.status != 0);
        assert_null(strstr(result.output, "called"));
        assert_non_null(strstr(result.output, is_slob() ? text : "inside an object"));
        child_prints("interior", "bad_free=ignore", text);
}

static void child_exhausted(void)
{
        check(kmalloc((size_t)1 << 45, GFP_KERNEL) == NULL);
        check_equal(errno, ENOMEM);
        fprintf(stderr, "nofail\n");
        kmalloc((size_t)1 << 45, __GFP_NOFAIL);
}

static void exhausted(void **state)
{
        child_aborts("exhausted", NULL, "out of memory with __GFP_NOFAIL");
        child_aborts("exhausted", NULL, "kmalloc(35184372088832): out of memory, gfp=");
}

/*
 * Sizes with a single object in a slab, or a few: slabs come full, and go with their last object.
 */
static void child_few_to_a_slab(void)
{
        enum { COUNT = 200 };
        static void *objects[COUNT];
        static const size_t sizes[] = {4500, 5000, 7000, 8192, 10000, 16384, 30000, 32768};
        struct walk_counts counts;
        struct random random = {1};

        for (size_t i = 0; i < array_size(sizes); i++) {
                size_t bytes = sizes[i];

                for (size_t k = 0; k < COUNT; k++) {
                        objects[k] = kmalloc(bytes, GFP_KERNEL);
                        memset(objects[k], (int)k, bytes);
                }
                walk_heap(NULL, &counts);
                for (size_t left = COUNT; left; left--) {
                        size_t chosen = random_below(&random, left);
                        int value = *(unsigned char *)objects[chosen];

                        check(is_filled(objects[chosen], value, bytes));
                        kfree(objects[chosen]);
                        objects[chosen] = objects[left - 1];
                        if (left == COUNT / 2)
                                walk_heap(NULL, &counts);
                }
                walk_heap(NULL, &counts);
        }
}

static void few_to_a_slab(void **state)
{
        child_few_to_a_slab();
        child_passes("few", "");
        child_passes("few", "cpu_partial=30");
        child_passes("few", "cpu_partial=30,freeze=eager");
        child_passes("few", "sheaf_capacity=0");
}

/* The heap is intact after all of this. */
static void walk_at_end(void **state)
{
        struct walk_counts counts;
        struct heap_totals totals;

        walk_heap(NULL, &counts);
        heap_total(&totals);
        check_equal(totals.objects_inuse, 0);
        check_equal(totals.large.blocks, 0);
}

int main(int argc, char **argv)
{
        static const struct child_case children[] = {
                {"classes", child_classes},
                {"bad_pointers", child_bad_pointers},
                {"bad_pointer_aborts", child_bad_pointer_aborts},
                {"double_kfree", child_double_kfree},
                {"freed_below", child_freed_below},
                {"freed_among_many", child_freed_among_many},
                {"freed_elsewhere", child_freed_elsewhere},
                {"own_mark", child_own_mark},
                {"resized_freed", child_resized_freed},
                {"no_index", child_no_index},
                {"all_clear", child_all_clear},
                {"interior", child_interior},
                {"exhausted", child_exhausted},
                {"few", child_few_to_a_slab},
        };
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(every_size),       cmocka_unit_test(size_zero),
                cmocka_unit_test(zeroed),           cmocka_unit_test(overflow),
                cmocka_unit_test(krealloc_rules),   cmocka_unit_test(krealloc_random),
                cmocka_unit_test(sensitive),        cmocka_unit_test(copies),
                cmocka_unit_test(free_anything),    cmocka_unit_test(both_tables),
                cmocka_unit_test(bad_pointers),     cmocka_unit_test(bad_pointer_aborts),
                cmocka_unit_test(double_kfree),     cmocka_unit_test(no_index),
                cmocka_unit_test(second_frees),     cmocka_unit_test(kept_objects),
                cmocka_unit_test(interior_pointer), cmocka_unit_test(exhausted),
                cmocka_unit_test(few_to_a_slab),    cmocka_unit_test(all_clear),
                cmocka_unit_test(resized_freed),    cmocka_unit_test(walk_at_end),
        };

        child_main(argc, argv, children, array_size(children));
        return cmocka_run_group_tests_name("kmalloc", tests, NULL, NULL);
}
