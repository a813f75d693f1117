/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * The SLOB back end: the kernel's rules (S7) by their tags, random use against a model with all
 * pages walked, and wrong use.
 *
 * cmocka and libc use libc's malloc, so every SLOB page here is ours, and each case leaves none.
 */
#define _GNU_SOURCE
#include "../exec.h"
#include "slob_walk.h"

#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "forked.h"

#include "heap/heap.h"
#include "base/metadata.h"
#include "introspect/totals.h"
#include "page/large.h"
#include "engines/slob/statistics.h"

/* ---- The machine's edge: page and metadata allocations that fail --------------------------- */

static long fail_after = -1; /* allocations that still work; -1: all */

static bool fails_now(void)
{
        if (fail_after < 0)
                return false;
        return fail_after == 0 || fail_after-- == 0;
}

struct page *__real_pages_alloc(unsigned int order, int node, bool *zero);
struct page *__wrap_pages_alloc(unsigned int order, int node, bool *zero);
struct page *__wrap_pages_alloc(unsigned int order, int node, bool *zero)
{
        return fails_now() ? NULL : __real_pages_alloc(order, node, zero);
}

void *__real_metadata_alloc(size_t bytes);
void *__wrap_metadata_alloc(size_t bytes);
void *__wrap_metadata_alloc(size_t bytes)
{
        return fails_now() ? NULL : __real_metadata_alloc(bytes);
}

/* ---- Helpers ------------------------------------------------------------------------------- */

static const struct size_list one_list = {.count = 0};
static const struct size_list mail_lists = {.count = 1, .sizes = {300}};
static const struct size_list merged_lists = {.count = 2, .sizes = {256, 1024}};
static const struct size_list many_lists = {.count = 8,
                                            .sizes = {16, 32, 64, 128, 256, 512, 1024, 2048}};

static void use_lists(const struct size_list *lists)
{
        assert_int_equal(slob_counts.pages, 0);
        options.slob_breaks = *lists;
        slob_lists_init();
}

static size_t used_pages(void)
{
        struct page_counts counts;

        pages_count(&counts);
        return counts.used_pages;
}

static size_t pages_before;

static int set_up(void **state)
{
        (void)state;
        pages_free(pages_alloc(0, NODE_ANY, NULL), 1); /* the first of all costs page 0 */
        pages_before = used_pages();
        options.slob_compat = SLOB_COMPAT_NONE;
        options.bad_free = BAD_FREE_ABORT;
        use_lists(&merged_lists);
        return 0;
}

static int tear_down(void **state)
{
        struct slob_walk walk;

        (void)state;
        fail_after = -1;
        slob_walk(&walk);
        return walk.pages || slob_counts.allocated || slob_counts.big_pages ||
               used_pages() != pages_before;
}

static struct kmem_cache *cache_new(const char *name, unsigned int size, unsigned int align,
                                    slab_flags_t flags, void (*ctor)(void *))
{
        struct kmem_cache *cache = (kmem_cache_create)(name, size, align, flags, ctor);

        assert_non_null(cache);
        assert_string_equal(cache->engine->name, "slob");
        assert_int_equal(cache->sheaf_capacity, 0);
        return cache;
}

static void *alloc(struct kmem_cache *cache)
{
        void *object = kmem_cache_alloc(cache, GFP_KERNEL);

        assert_non_null(object);
        return object;
}

static uint64_t inuse(struct kmem_cache *cache)
{
        struct cache_totals totals;

        cache_total(cache, &totals);
        assert_int_equal(totals.resting, 0);
        return totals.inuse;
}

/* Bytes around a block, which the compiler knows not to be the program's. */
static unsigned char *around(void *block)
{
        __asm__("" : "+r"(block));
        return block;
}

/* The emulator adds a line of its own when a signal ends the program. */
#define EMULATORS_LAST_WORDS "qemu: uncaught target signal"

/* The text that the call writes to standard error. */
static FILE *captured;
static int real_stderr;

static void capture_start(void)
{
        captured = tmpfile();
        real_stderr = dup(STDERR_FILENO);
        dup2(fileno(captured), STDERR_FILENO);
}

/* Exactly one line was written, and it holds the words; no line if they are NULL. */
static void capture_end(const char *words)
{
        char text[1024];
        size_t length;

        dup2(real_stderr, STDERR_FILENO);
        close(real_stderr);
        rewind(captured);
        length = fread(text, 1, sizeof(text) - 1, captured);
        text[length] = '\0';
        fclose(captured);
        if (emulated() && strstr(text, EMULATORS_LAST_WORDS)) {
                *strstr(text, EMULATORS_LAST_WORDS) = '\0';
                length = strlen(text);
        }
        if (!words) {
                assert_string_equal(text, "");
                return;
        }
        if (!strstr(text, words))
                fail_msg("expected \"%s\" in \"%s\"", words, text);
        assert_ptr_equal(strchr(text, '\n'), text + length - 1);
}

/* The call must report and do nothing else. */
#define assert_reported(call, words)                                                               \
        do {                                                                                       \
                struct slob_counts before_ = slob_counts;                                          \
                options.bad_free = BAD_FREE_IGNORE;                                                \
                capture_start();                                                                   \
                call;                                                                              \
                capture_end(words);                                                                \
                options.bad_free = BAD_FREE_ABORT;                                                 \
                assert_memory_equal(&before_, &slob_counts, sizeof(before_));                      \
        } while (0)

/* The pages of a list in order must be these. */
static void assert_order(unsigned int list, size_t count, struct page *const *pages)
{
        const struct page *page = page_list_first(&slob_lists[list]);

        assert_int_equal(slob_lists[list].length, count);
        for (size_t i = 0; i < count; i++, page = page_list_next(page)) {
                assert_ptr_equal(page, pages[i]);
                assert_int_equal(page->prev, i ? page_number(pages[i - 1]) : 0);
        }
        assert_null(page);
}

/* ---- Facts ---------------------------------------------------------------------------------- */

/* S7-01, S7-02: units of 2 bytes; a free block says its size and the next, or the next negated. */
static void units(void **state)
{
        struct kmem_cache *cache = cache_new("units", 14, 0, 0, NULL);
        char *first = alloc(cache);
        char *second = alloc(cache);
        int16_t *gap = (int16_t *)(first + 14);

        (void)state;
        assert_int_equal((uintptr_t)first % PAGE_SIZE, 0);
        assert_ptr_equal(second, first + 16);
        /* A single unit between them, with its next behind the second: 30 bytes, unit 15. */
        assert_int_equal(gap[0], -15);
        assert_int_equal(*(int16_t *)(first + 30), PAGE_UNITS - 15);
        assert_int_equal(*(int16_t *)(first + 32), PAGE_UNITS);
        assert_int_equal(page_state(page_of(first)).free_units, PAGE_UNITS - 14);
        assert_int_equal(slob_units(1), 1);
        assert_int_equal(slob_units(3), 2);
        kmem_cache_free(cache, first);
        kmem_cache_free(cache, second);
        kmem_cache_destroy(cache);
}

/* S7-10: first fit inside a page; alignment leaves the head of a block free. */
static void first_fit(void **state)
{
        struct kmem_cache *small = cache_new("small", 64, 0, 0, NULL);
        struct kmem_cache *aligned = cache_new("aligned", 64, 64, 0, NULL);
        struct kmem_cache *tiny = cache_new("tiny", 8, 0, 0, NULL);
        char *objects[6], *shifted, *head;

        (void)state;
        for (int i = 0; i < 6; i++)
                objects[i] = alloc(small);
        kmem_cache_free(small, objects[1]);
        kmem_cache_free(small, objects[3]);
        assert_ptr_equal(alloc(small), objects[1]);
        assert_ptr_equal(alloc(small), objects[3]);
        for (int i = 0; i < 6; i++)
                kmem_cache_free(small, objects[i]);
        assert_int_equal(slob_counts.pages, 0);

        head = alloc(tiny);
        shifted = alloc(aligned);
        assert_ptr_equal(shifted, head + 64);
        /* The 56 bytes before it are a block of their own. */
        assert_ptr_equal(alloc(tiny), head + 8);
        kmem_cache_free(tiny, head + 8);
        kmem_cache_free(tiny, head);
        kmem_cache_free(aligned, shifted);
        kmem_cache_destroy(small);
        kmem_cache_destroy(aligned);
        kmem_cache_destroy(tiny);
}

/* S7-11, S7-12: new pages at the head, the page that served first; passed pages are counted. */
static void rotation(void **state)
{
        struct kmem_cache *cache = cache_new("rotation", 2000, 0, 0, NULL);
        char *objects[6];
        struct page *pages[3];
        uint64_t page_scans;

        (void)state;
        for (int i = 0; i < 6; i++)
                objects[i] = alloc(cache);
        for (int i = 0; i < 3; i++)
                pages[i] = page_of(objects[2 * i]);
        assert_order(2, 3, (struct page *[]){pages[2], pages[1], pages[0]});
        kmem_cache_free(cache, objects[2]);
        kmem_cache_free(cache, objects[0]);
        page_scans = slob_counts.page_scans;
        assert_ptr_equal(alloc(cache), objects[2]);
        assert_int_equal(slob_counts.page_scans, page_scans + 1);
        assert_order(2, 3, (struct page *[]){pages[1], pages[0], pages[2]});
        assert_ptr_equal(alloc(cache), objects[0]);
        assert_order(2, 3, (struct page *[]){pages[0], pages[2], pages[1]});
        for (int i = 0; i < 6; i++)
                kmem_cache_free(cache, objects[i]);
        kmem_cache_destroy(cache);
}

/* S7-11: when the page that served is full, 2.6.24 goes on behind it, later kernels stay. */
static void rotation_when_full(void **state)
{
        struct kmem_cache *half = cache_new("half", 2048, 0, 0, NULL);
        struct kmem_cache *quarter = cache_new("quarter", 1024, 0, 0, NULL);

        (void)state;
        for (int compat = 0; compat < 2; compat++) {
                char *a[2] = {alloc(half), alloc(half)};
                char *b[2] = {alloc(half), alloc(half)};
                char *c[3] = {alloc(half), alloc(quarter), alloc(quarter)};
                struct page *pages[] = {page_of(a[0]), page_of(b[0]), page_of(c[0])};

                options.slob_compat = compat ? SLOB_COMPAT_2_6_24 : SLOB_COMPAT_NONE;
                /* S7-03, S7-21: full pages are on no list, and come back at the head. */
                assert_order(2, 0, NULL);
                kmem_cache_free(half, a[1]);
                kmem_cache_free(half, b[1]);
                kmem_cache_free(quarter, c[2]);
                assert_order(2, 3, (struct page *[]){pages[2], pages[1], pages[0]});
                assert_ptr_equal(alloc(half), b[1]);
                if (compat)
                        assert_order(2, 2, (struct page *[]){pages[0], pages[2]});
                else
                        assert_order(2, 2, (struct page *[]){pages[2], pages[0]});
                kmem_cache_free(half, a[0]);
                kmem_cache_free(half, b[0]);
                kmem_cache_free(half, b[1]);
                kmem_cache_free(half, c[0]);
                kmem_cache_free(quarter, c[1]);
        }
        kmem_cache_destroy(half);
        kmem_cache_destroy(quarter);
}

/* S7-13, but to the end of the unit, so that krealloc finds zeroes there (S8-26). */
static void zeroed(void **state)
{
        char *dirty = kmalloc(100, GFP_KERNEL);
        char *keep = kmalloc(8, GFP_KERNEL);
        char *again;

        (void)state;
        memset(dirty, 0xff, 100);
        kfree(dirty);
        again = kzalloc(99, GFP_KERNEL);
        assert_ptr_equal(again, dirty);
        for (int i = 0; i < 100; i++)
                assert_int_equal(around(again)[i], 0);
        assert_ptr_equal(krealloc(again, 100, GFP_KERNEL | __GFP_ZERO), again);
        kfree(again);
        kfree(keep);
}

/* S7-20: a page without blocks goes back at once. */
static void empty_page(void **state)
{
        char *block = kmalloc(10, GFP_KERNEL);
        uint32_t number = address_page(block);

        (void)state;
        assert_int_equal(heap.map[number], slob_shared.pair_offset);
        assert_int_equal(slob_counts.pages, 1);
        kfree(block);
        assert_int_equal(slob_counts.pages, 0);
        assert_int_equal(heap.map[number], 0);
}

/* S7-22: both neighbours merge; 2.6.24 left a block before the first free block as it was. */
static void merging(void **state)
{
        struct kmem_cache *cache = cache_new("merging", 1000, 0, 0, NULL);

        (void)state;
        for (int compat = 0; compat < 2; compat++) {
                char *objects[4];
                struct page *page;
                struct slob_walk walk;

                for (int i = 0; i < 4; i++)
                        objects[i] = alloc(cache);
                page = page_of(objects[0]);
                options.slob_compat = compat ? SLOB_COMPAT_2_6_24 : SLOB_COMPAT_NONE;
                /* The block behind: the rest of the page. */
                kmem_cache_free(cache, objects[1]);
                assert_int_equal(page_state(page).fragments, 2);
                /* Both sides; the block is not before the first free block. */
                kmem_cache_free(cache, objects[2]);
                assert_int_equal(page_state(page).fragments, 2);
                assert_int_equal(block_read(page, 500).units, 1000);
                /* Before the first free block, which it touches. */
                kmem_cache_free(cache, objects[0]);
                assert_int_equal(page_state(page).fragments, compat ? 3 : 2);
                slob_walk(&walk);
                assert_int_equal(walk.touching, compat);
                assert_int_equal(block_read(page, 0).units, compat ? 500 : 1500);
                kmem_cache_free(cache, objects[3]);
        }
        kmem_cache_destroy(cache);
}

/* S7.4: three generations of lists. */
static void list_choice(void **state)
{
        (void)state;
        use_lists(&one_list);
        assert_int_equal(slob_list_count, 1);
        assert_int_equal(slob_list_of(1), 0);
        assert_int_equal(slob_list_of(4096), 0);
        use_lists(&mail_lists);
        assert_int_equal(slob_list_count, 2);
        assert_int_equal(slob_list_of(300), 0);
        assert_int_equal(slob_list_of(301), 1);
        use_lists(&merged_lists);
        assert_int_equal(slob_list_count, 3);
        assert_int_equal(slob_list_of(255), 0);
        assert_int_equal(slob_list_of(256), 1);
        assert_int_equal(slob_list_of(1023), 1);
        assert_int_equal(slob_list_of(1024), 2);
        use_lists(&many_lists);
        assert_int_equal(slob_list_count, 9);
        assert_int_equal(slob_list_of(15), 0);
        assert_int_equal(slob_list_of(2048), 8);
}

/* S7-30, S7.4: the header counts, and blocks of two lists share no page. */
static void lists_apart(void **state)
{
        char *small, *big, *edge;

        (void)state;
        use_lists(&mail_lists);
        edge = kmalloc(300 - KMALLOC_HEADER, GFP_KERNEL);
        small = kmalloc(40, GFP_KERNEL);
        big = kmalloc(301 - KMALLOC_HEADER, GFP_KERNEL);
        assert_ptr_equal(page_of(small), page_of(edge));
        assert_ptr_not_equal(page_of(small), page_of(big));
        assert_int_equal(slob_lists[0].length, 1);
        assert_int_equal(slob_lists[1].length, 1);
        kfree(small);
        kfree(big);
        kfree(edge);
        use_lists(&one_list);
        small = kmalloc(40, GFP_KERNEL);
        big = kmalloc(1000, GFP_KERNEL);
        assert_ptr_equal(page_of(small), page_of(big));
        kfree(small);
        kfree(big);
}

/* S7-40, S7-41: header, alignment, the border to whole pages, sizes that are nothing. */
static void kmalloc_blocks(void **state)
{
        struct large_counts before, after;
        char *odd = kmalloc(13, GFP_KERNEL);
        void *last, *first_large;

        (void)state;
        assert_int_equal((uintptr_t)odd % SLOB_ALIGN, 0);
        assert_int_equal(*(uint32_t *)(void *)(around(odd) - KMALLOC_HEADER), 13);
        for (size_t size = 8; size < PAGE_SIZE; size *= 2) {
                void *block = kmalloc(size, GFP_KERNEL);

                assert_int_equal((uintptr_t)block % size, 0);
                kfree(block);
        }
        /* Whole pages of the size classes, too; with such a page in front. */
        for (size_t size = PAGE_SIZE; size <= 8 * PAGE_SIZE; size *= 2) {
                void *front = kmalloc(PAGE_SIZE, GFP_KERNEL);
                void *block = kmalloc(size, GFP_KERNEL);

                assert_int_equal((uintptr_t)block % size, 0);
                kfree(front);
                kfree(block);
        }
        assert_ptr_equal(kmalloc(0, GFP_KERNEL), ZERO_SIZE_PTR);
        kfree(ZERO_SIZE_PTR);
        kfree(NULL);

        large_count(&before);
        last = kmalloc(PAGE_SIZE - KMALLOC_HEADER - 1, GFP_KERNEL);
        large_count(&after);
        assert_int_equal(after.blocks, before.blocks);
        assert_int_equal(page_state(page_of(last)).free_units, 0);
        first_large = kmalloc(PAGE_SIZE - KMALLOC_HEADER, GFP_KERNEL);
        large_count(&after);
        assert_int_equal(after.blocks, before.blocks + 1);
        assert_int_equal(after.handed_out, before.handed_out + 1);
        kfree(odd);
        kfree(last);
        kfree(first_large);
}

/* S7-42 */
static void ksizes(void **state)
{
        static const size_t sizes[][2] = {{1, 2},       {2, 2},       {5, 6},        {4087, 4088},
                                          {4088, 4096}, {5000, 8192}, {40000, 40960}};
        struct kmem_cache *cache = cache_new("ksizes", 64, 0, 0, NULL);
        void *object = alloc(cache);

        (void)state;
        for (size_t i = 0; i < array_size(sizes); i++) {
                void *block = kmalloc(sizes[i][0], GFP_KERNEL);

                assert_int_equal(ksize(block), sizes[i][1]);
                kfree(block);
        }
        assert_int_equal(ksize(NULL), 0);
        assert_int_equal(ksize(ZERO_SIZE_PTR), 0);
        assert_int_equal(ksize(object), 0);
        kmem_cache_free(cache, object);
        kmem_cache_destroy(cache);
}

/* The size that a request gets is known before; by its alignment it may need its own pages. */
static void usable_sizes(void **state)
{
        static const size_t requests[][3] = {
                {1, 0, 2},          {101, 16, 102},   {1000, 2048, 1000}, {2049, 2048, 4096},
                {100, 4096, 4096},  {4087, 8, 4088},  {4088, 8, 4096},    {2048, 0, 2048},
                {4097, 8192, 8192}, {4079, 16, 4080}, {4080, 16, 4080},   {4081, 16, 4096},
        };

        (void)state;
        for (size_t i = 0; i < array_size(requests); i++) {
                size_t size = requests[i][0];
                size_t align = requests[i][1];
                void *block = align ? block_alloc_aligned(size, align, 0, NULL)
                                    : kmalloc(size, GFP_KERNEL);

                assert_int_equal(slob_usable_bytes(size, align), requests[i][2]);
                assert_int_equal(ksize(block), requests[i][2]);
                kfree(block);
        }
}

/* malloc's requests: 16 bytes, with kmalloc's header, and any alignment up to a page. */
static void malloc_alignment(void **state)
{
        (void)state;
        for (size_t size = 1; size < 5000; size += 7) {
                void *block = block_alloc(CLASS_MALLOC, size, false, NULL);

                assert_int_equal((uintptr_t)block % 16, 0);
                assert_true(block_bytes(block) >= size);
                kfree(block);
        }
        for (size_t align = 32; align <= 4 * PAGE_SIZE; align *= 2)
                for (size_t size = 1; size <= 2 * PAGE_SIZE; size = size * 3 + 1) {
                        void *block = block_alloc_aligned(size, align, 0, NULL);

                        assert_int_equal((uintptr_t)block % align, 0);
                        memset(block, 0x5a, size);
                        kfree(block);
                }
}

/* S7-43: alignments and sizes; a page and more has pages of its own. */
static void cache_layout(void **state)
{
        struct kmem_cache *plain = cache_new("plain", 5, 0, 0, NULL);
        struct kmem_cache *line = cache_new("line", 5, 0, SLAB_HWCACHE_ALIGN, NULL);
        struct kmem_cache *wide = cache_new("wide", 5, 256, SLAB_HWCACHE_ALIGN, NULL);
        struct kmem_cache *rcu = cache_new("rcu", 5, 0, SLAB_TYPESAFE_BY_RCU, NULL);
        struct kmem_cache *big = cache_new("big", 3 * 4096, 0, 0, NULL);
        char *object;

        (void)state;
        assert_int_equal(plain->size, 6);
        assert_int_equal(plain->align, 8);
        assert_int_equal(line->align, 64);
        assert_int_equal(wide->align, 256);
        assert_int_equal(rcu->size, 8 + slob_footer_bytes());
        assert_int_equal(kmem_cache_size(plain), 5);
        object = alloc(big);
        assert_int_equal((uintptr_t)object % PAGE_SIZE, 0);
        assert_int_equal(slob_counts.big_pages, 4);
        memset(object, 1, 3 * 4096);
        assert_int_equal(inuse(big), 1);
        kmem_cache_free(big, object);
        assert_int_equal(slob_counts.big_pages, 0);
        assert_int_equal(inuse(big), 0);
        capture_start();
        assert_null((kmem_cache_create)("too big", (4u << 20) + 1, 0, 0, NULL));
        capture_end("too large");
        assert_int_equal(errno, EINVAL);
        kmem_cache_destroy(plain);
        kmem_cache_destroy(line);
        kmem_cache_destroy(wide);
        kmem_cache_destroy(rcu);
        kmem_cache_destroy(big);
}

static unsigned int constructed;
static bool constructed_null;

static void constructor(void *object)
{
        constructed++;
        constructed_null = !object;
        if (object)
                memset(object, 0x11, 24);
}

/* S7-44 */
static void constructors(void **state)
{
        struct kmem_cache *cache = cache_new("constructors", 24, 0, 0, constructor);
        char *object;

        (void)state;
        constructed = 0;
        for (unsigned int i = 1; i <= 3; i++) {
                object = alloc(cache);
                assert_int_equal(constructed, i);
                assert_int_equal(object[23], 0x11);
                memset(object, 0, 24);
                kmem_cache_free(cache, object);
        }
        fail_after = 0;
        assert_null(kmem_cache_alloc(cache, GFP_KERNEL | __GFP_NOWARN));
        assert_int_equal(constructed, 3);
        assert_null(kmalloc(100, GFP_KERNEL | __GFP_NOWARN));
        fail_after = -1;
        kmem_cache_destroy(cache);
}

/* S7-44: the two bugs of 2.6.24, only where they are asked for. */
static void old_bugs(void **state)
{
        struct kmem_cache *cache = cache_new("old bugs", 24, 0, 0, constructor);
        char *block;
        char *grown;

        (void)state;
        kmem_cache_free(cache, alloc(cache));
        options.slob_compat = SLOB_COMPAT_2_6_24;
        block = kmalloc(100, GFP_KERNEL);
        fail_after = 0;
        constructed = 0;
        /* Nothing is left in the page of the block that a request of 4000 bytes could get. */
        assert_ptr_equal(kmalloc(4000, GFP_KERNEL), (void *)KMALLOC_HEADER);
        grown = krealloc(block, 4000, GFP_KERNEL);
        assert_ptr_equal(grown, (void *)KMALLOC_HEADER);
        assert_null(block_alloc(CLASS_MALLOC, 4000, false, NULL));
        kfree(grown);
        kfree(block);
        assert_null(kmem_cache_alloc(cache, GFP_KERNEL | __GFP_NOWARN));
        assert_int_equal(constructed, 1);
        assert_true(constructed_null);
        fail_after = -1;
        kmem_cache_destroy(cache);
}

/* S7-45: no merging, leftovers go unnoticed, shrink has nothing to do. */
static void silence(void **state)
{
        struct kmem_cache *one, *other;
        struct slob_statistics now;
        void *left;

        (void)state;
        options.slab_merge = 1;
        one = cache_new("one", 48, 0, 0, NULL);
        other = cache_new("other", 48, 0, 0, NULL);
        options.slab_merge = 0;
        assert_ptr_not_equal(one, other);
        left = alloc(one);
        assert_int_equal(kmem_cache_shrink(one), 0);
        capture_start();
        kmem_cache_destroy(one);
        capture_end(NULL);
        slob_statistics(&now);
        assert_int_equal(now.counts.pages, 1);
        /* The block is as good as new to a cache of its size. */
        kmem_cache_free(other, left);
        kmem_cache_destroy(other);
}

/* SLAB_TYPESAFE_BY_RCU: a freed object stays an object until its cache is destroyed. */
static void typesafe(void **state)
{
        static const unsigned int sizes[] = {40, 5000};

        (void)state;
        for (size_t i = 0; i < array_size(sizes); i++) {
                struct kmem_cache *cache =
                        cache_new("typesafe", sizes[i], 0, SLAB_TYPESAFE_BY_RCU, constructor);
                char *object = alloc(cache), *other = alloc(cache), *stranger;

                memset(object, 0x22, sizes[i]);
                kmem_cache_free(cache, object);
                for (unsigned int byte = 0; byte < sizes[i]; byte++)
                        assert_int_equal(object[byte], 0x22);
                assert_int_equal(inuse(cache), 1);
                stranger = kmalloc(40, GFP_KERNEL);
                assert_false(stranger >= object && stranger < object + sizes[i]);
                assert_reported(kmem_cache_free(cache, object), "free already (double free)");
                constructed = 0;
                assert_ptr_equal(alloc(cache), object);
                assert_int_equal(constructed, 0);
                assert_int_equal(object[0], 0x22);
                kmem_cache_free(cache, object);
                kmem_cache_free(cache, other);
                kfree(stranger);
                assert_int_equal(inuse(cache), 0);
                kmem_cache_destroy(cache);
                assert_int_equal(slob_counts.pages, 0);
                assert_int_equal(slob_counts.big_pages, 0);
        }
}

/*
 * A block that by its size is no object of this cache has no footer: the bytes there are another
 * block's.
 */
static void typesafe_sizes(void **state)
{
        struct kmem_cache *cache = cache_new("typesafe", 40, 0, SLAB_TYPESAFE_BY_RCU, NULL);
        struct kmem_cache *small = cache_new("small", 32, 0, 0, NULL);
        struct kmem_cache *large = cache_new("large", 200, 0, 0, NULL);
        char *objects[] = {alloc(small), alloc(small), alloc(large)};

        (void)state;
        assert_ptr_equal(objects[1], objects[0] + 32);
        for (int fill = 0; fill < 2; fill++) {
                memset(objects[1], fill, 32);
                memset(objects[2], fill, 200);
                assert_reported(kmem_cache_free(cache, objects[0]), "another size");
                assert_reported(kmem_cache_free(cache, objects[2]), "another size");
                for (int i = 0; i < 32; i++)
                        assert_int_equal(objects[1][i], fill);
        }
        assert_int_equal(inuse(cache), 0);
        kmem_cache_free(small, objects[0]);
        kmem_cache_free(small, objects[1]);
        kmem_cache_free(large, objects[2]);
        kmem_cache_destroy(cache);
        kmem_cache_destroy(small);
        kmem_cache_destroy(large);
}

/* ---- Wrong use ------------------------------------------------------------------------------ */

/* S5-32: kfree knows no size of an object. */
static void kfree_of_objects(void **state)
{
        static const unsigned int sizes[] = {64, 4096, 10000};

        (void)state;
        for (size_t i = 0; i < array_size(sizes); i++) {
                struct kmem_cache *cache = cache_new("kfree", sizes[i], 0, 0, NULL);
                char *object = alloc(cache);

                assert_reported(kfree(object), "only kmem_cache_free takes");
                assert_reported(kfree(object + 8), "inside");
                assert_int_equal(inuse(cache), 1);
                kmem_cache_free(cache, object);
                kmem_cache_destroy(cache);
        }
}

static void wrong_pointers(void **state)
{
        struct kmem_cache *cache = cache_new("wrong", 64, 0, 0, NULL);
        struct kmem_cache *smaller = cache_new("smaller", 48, 0, 0, NULL);
        struct kmem_cache *larger = cache_new("larger", 80, 0, 0, NULL);
        struct kmem_cache *big = cache_new("big", 8192, 0, 0, NULL);
        struct kmem_cache *bigger = cache_new("bigger", 16384, 0, 0, NULL);
        char *objects[4] = {alloc(cache), alloc(cache), alloc(cache), alloc(big)};
        char *block = kmalloc(100, GFP_KERNEL);
        char *freed = kmalloc(60, GFP_KERNEL);

        (void)state;
        kfree(freed);
        kmem_cache_free(cache, objects[1]);
        assert_reported(kfree(freed), "free already (double free)");
        assert_reported(kmem_cache_free(cache, objects[1]), "free already (double free)");
        assert_reported(kfree(block + 16), "inside");
        assert_reported(kfree(block + 1), "inside");
        assert_reported(kfree(block - KMALLOC_HEADER), "inside");
        assert_reported(kmem_cache_free(cache, objects[0] + 8), "inside an object");
        assert_reported(kmem_cache_free(smaller, objects[0]), "another size");
        assert_reported(kmem_cache_free(larger, objects[2]), "another size");
        assert_reported(kmem_cache_free(cache, block), "memory of kmalloc");
        assert_reported(kmem_cache_free(cache, objects[3]), "another cache");
        assert_reported(kmem_cache_free(bigger, objects[3]), "another cache");
        assert_reported(kmem_cache_free(big, objects[0]), "another cache");
        assert_reported(kmem_cache_free(big, objects[3] + 4096), "free already");
        around(block)[-8] ^= 1;
        assert_reported(kfree(block), "damaged header");
        assert_int_equal(ksize(block), 0);
        around(block)[-8] ^= 1;
        assert_int_equal(inuse(cache), 2);
        assert_int_equal(inuse(smaller) + inuse(larger) + inuse(bigger), 0);

        kfree(block);
        kmem_cache_free(cache, objects[0]);
        kmem_cache_free(cache, objects[2]);
        assert_int_equal(slob_counts.pages, 0);
        /* The page itself is gone. */
        assert_reported(kfree(block), "not the start of a block");
        kmem_cache_free(big, objects[3]);
        kmem_cache_destroy(cache);
        kmem_cache_destroy(smaller);
        kmem_cache_destroy(larger);
        kmem_cache_destroy(big);
        kmem_cache_destroy(bigger);
}

/* A block is no other cache's because several in a row are as large as that one's. */
static void wrong_sizes(void **state)
{
        struct kmem_cache *cache = cache_new("quarter", 256, 0, 0, NULL);
        struct kmem_cache *larger = cache_new("three", 768, 0, 0, NULL);
        struct kmem_cache *small = cache_new("small", 32, 0, 0, NULL);
        struct kmem_cache *tiny = cache_new("tiny", 2, 0, 0, NULL);
        struct kmem_cache *both = cache_new("both", 34, 0, 0, NULL);
        char *objects[6];
        char *first, *second;

        (void)state;
        for (size_t i = 0; i < array_size(objects); i++)
                objects[i] = alloc(cache);
        assert_ptr_equal(objects[5], objects[0] + 5 * 256);
        for (size_t i = 0; i < 3; i++)
                assert_reported(kmem_cache_free(larger, objects[i]), "another size");
        for (size_t i = 0; i < array_size(objects); i++)
                kmem_cache_free(cache, objects[i]);
        first = alloc(small);
        second = alloc(tiny);
        assert_ptr_equal(second, first + 32);
        assert_reported(kmem_cache_free(both, first), "another size");
        kmem_cache_free(tiny, second);
        kmem_cache_free(small, first);
        kmem_cache_destroy(cache);
        kmem_cache_destroy(larger);
        kmem_cache_destroy(small);
        kmem_cache_destroy(tiny);
        kmem_cache_destroy(both);
}

/* Every part of a header is checked: its size, and the owner of its block. */
static void damaged_headers(void **state)
{
        char *block = kmalloc(100, GFP_KERNEL);

        (void)state;
        for (int byte = -KMALLOC_HEADER; byte < 0; byte++) {
                around(block)[byte] ^= 1;
                assert_reported(kfree(block), "damaged header");
                around(block)[byte] ^= 1;
        }
        kfree(block);
}

/* A pointer of another back end goes to its owner, with a line. */
static void other_engines(void **state)
{
        struct kmem_cache *cache = cache_new("here", 64, 0, 0, NULL);
        struct kmem_cache *there = (kmem_cache_create)("slub-cache", 64, 0, 0, NULL);
        void *object;

        (void)state;
        assert_string_equal(there->engine->name, "slub");
        object = alloc(there);
        capture_start();
        kmem_cache_free(cache, object);
        capture_end("wrong slab cache");
        assert_int_equal(inuse(cache), 0);
        kmem_cache_destroy(cache);
        kmem_cache_shrink(there);
        kmem_cache_destroy(there);
}

/* S5-32, S5-33: singly; all or nothing; strangers go home. */
static void bulk_calls(void **state)
{
        struct kmem_cache *cache = cache_new("bulk", 1000, 0, 0, NULL);
        struct kmem_cache *there = (kmem_cache_create)("slub-cache", 64, 0, 0, NULL);
        void *objects[50], *blocks[20], *mixed[4];

        (void)state;
        assert_int_equal(kmem_cache_alloc_bulk(cache, GFP_KERNEL | __GFP_ZERO, 50, objects), 50);
        assert_int_equal(inuse(cache), 50);
        kmem_cache_free_bulk(cache, 49, objects);
        assert_int_equal(inuse(cache), 1);
        fail_after = 4;
        assert_int_equal(kmem_cache_alloc_bulk(cache, GFP_NOWAIT, 49, objects), 0);
        fail_after = -1;
        assert_int_equal(inuse(cache), 1);

        for (size_t i = 0; i < array_size(blocks); i++)
                blocks[i] = i % 5 ? kmalloc(i * 300, GFP_KERNEL) : NULL;
        kfree_bulk(array_size(blocks), blocks);

        mixed[0] = objects[49];
        mixed[1] = alloc(there);
        mixed[2] = NULL;
        mixed[3] = alloc(cache);
        assert_reported(kfree_bulk(1, mixed), "only kmem_cache_free takes");
        capture_start();
        kmem_cache_free_bulk(cache, 4, mixed);
        capture_end("wrong slab cache");
        assert_int_equal(inuse(cache), 0);
        kmem_cache_shrink(there);
        kmem_cache_destroy(there);
        kmem_cache_destroy(cache);
}

/* The process must end with a line that holds the words. */
static void assert_aborts(void (*act)(void), const char *words)
{
        int status;
        pid_t pid;

        capture_start();
        pid = fork();
        if (pid == 0) {
                act();
                _exit(0);
        }
        assert_int_equal(waitpid(pid, &status, 0), pid);
        capture_end(words);
        assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
}

static void write_after_free(void)
{
        char *block = kmalloc(100, GFP_KERNEL);
        char *keep = kmalloc(100, GFP_KERNEL);

        (void)keep;
        kfree(block);
        memset(around(block) - KMALLOC_HEADER, 0x7f, 100);
        kmalloc(200, GFP_KERNEL);
}

/* The first units of a free block. */
static void write_units(slob_unit first, slob_unit second)
{
        char *block = kmalloc(100, GFP_KERNEL);
        char *keep = kmalloc(100, GFP_KERNEL);
        slob_unit *units = (slob_unit *)(around(block) - KMALLOC_HEADER);

        (void)keep;
        kfree(block);
        units[0] = first;
        units[1] = second;
        alarm(20);
        kmalloc(200, GFP_KERNEL);
}

static void write_no_size(void)
{
        write_units(0, PAGE_UNITS);
}

static void write_loop(void)
{
        write_units(1, 0);
        write_units(54, 20);
}

static void allocate(int signal)
{
        (void)signal;
        kfree(kmalloc(2000, GFP_KERNEL));
}

static void write_and_handle(void)
{
        alarm(20);
        signal(SIGABRT, allocate);
        write_after_free();
}

static void free_twice(void)
{
        char *block = kmalloc(100, GFP_KERNEL);
        char *keep = kmalloc(100, GFP_KERNEL);

        (void)keep;
        kfree(block);
        kfree(block);
}

static void abortions(void **state)
{
        (void)state;
        assert_aborts(write_after_free, "was written to after it was freed");
        assert_aborts(write_no_size, "was written to after it was freed");
        assert_aborts(write_loop, "was written to after it was freed");
        assert_aborts(write_and_handle, "was written to after it was freed");
        assert_aborts(free_twice, "free already (double free)");
}

/* ---- Statistics ----------------------------------------------------------------------------- */

/* S7.6, S7-52: all in bytes. */
static void statistics_add_up(void **state)
{
        struct slob_statistics start, now;
        struct slob_walk walk;
        struct kmem_cache *big = cache_new("big", 2 * 4096, 0, 0, NULL);
        struct kmem_cache *full = cache_new("full", 2048, 0, 0, NULL);
        void *blocks[100], *object, *large, *halves[2];
        uint64_t unused = 0, listed = 0, fragments = 0, biggest = 0;

        (void)state;
        slob_statistics(&start);
        for (size_t i = 0; i < array_size(blocks); i++)
                blocks[i] = kmalloc(15 + i * 30, GFP_KERNEL);
        for (size_t i = 0; i < array_size(blocks); i += 2)
                kfree(blocks[i]);
        object = alloc(big);
        large = kmalloc(5 * PAGE_SIZE, GFP_KERNEL);
        for (int i = 0; i < 2; i++)
                halves[i] = alloc(full);
        slob_statistics(&now);
        slob_walk(&walk);

        assert_int_equal(now.counts.allocs - start.counts.allocs, 102);
        assert_int_equal(now.counts.frees - start.counts.frees, 50);
        assert_int_equal(now.counts.kmallocs - start.counts.kmallocs, 100);
        assert_int_equal(now.counts.kmalloc_frees - start.counts.kmalloc_frees, 50);
        assert_int_equal(now.counts.kmalloc_allocated - start.counts.kmalloc_allocated,
                         100 * 15 + 30 * 99 * 100 / 2);
        /* 8 of header, and 1 of rounding as all sizes are odd. */
        assert_int_equal(now.counts.kmalloc_overhead - start.counts.kmalloc_overhead, 100 * 9);
        assert_int_equal(now.big - start.big, 2);
        assert_int_equal(now.big_pages - start.big_pages, 2 + 5);
        assert_int_equal(now.total, now.counts.pages + now.big_pages);
        assert_int_equal(now.used, (now.counts.allocated + 4095) / 4096 + now.big_pages);
        for (unsigned int list = 0; list < now.lists; list++) {
                unused += now.list[list].unused;
                listed += now.list[list].pages;
                fragments += now.list[list].fragments;
                biggest = max_of(biggest, now.list[list].biggest);
        }
        assert_int_equal(now.full_pages, now.counts.pages - listed);
        assert_true(now.full_pages >= 1);
        assert_int_equal(unused, now.counts.pages * 4096 - now.counts.allocated);
        assert_int_equal(unused, walk.free_bytes);
        assert_int_equal(fragments, walk.fragments);
        assert_int_equal(biggest, walk.biggest);

        for (size_t i = 1; i < array_size(blocks); i += 2)
                kfree(blocks[i]);
        kmem_cache_free(big, object);
        kmem_cache_free(full, halves[0]);
        kmem_cache_free(full, halves[1]);
        kfree(large);
        kmem_cache_destroy(big);
        kmem_cache_destroy(full);
}

/* Of a page or more, and with the footer; the largest. */
static void big_objects(void **state)
{
        struct kmem_cache *page = cache_new("page", PAGE_SIZE, 0, 0, NULL);
        uint64_t counted = slob_counts.big_objects;
        struct cache_totals totals;
        void *object = alloc(page);

        (void)state;
        assert_int_equal(slob_counts.big_objects - counted, 1);
        cache_total(page, &totals);
        assert_int_equal(totals.report.bytes_inuse, PAGE_SIZE);
        assert_int_equal(totals.report.node[0].objects, 1);
        kmem_cache_free(page, object);
        cache_total(page, &totals);
        assert_int_equal(totals.report.bytes_inuse, 0);
        kmem_cache_destroy(page);
        assert_null((kmem_cache_create)("beyond", 4 << 20, 0, SLAB_TYPESAFE_BY_RCU, NULL));
}

/*
 * A free block that is known to be as large as an aligned object gets it, though a block of malloc
 * with that size would not fit there.
 */
static void exact_room(void **state)
{
        struct kmem_cache *cache = cache_new("exact", 64, 64, 0, NULL);
        void *objects[PAGE_SIZE / 64];
        void *block;

        (void)state;
        for (size_t i = 0; i < array_size(objects) - 1; i++)
                objects[i] = alloc(cache);
        kmem_cache_free(cache, objects[10]);
        block = kmalloc(100, GFP_KERNEL); /* looks in vain at both blocks of 64 bytes */
        assert_int_equal(slob_counts.pages, 2);
        kfree(block);
        assert_int_equal(slob_counts.pages, 1);
        objects[10] = alloc(cache);
        objects[array_size(objects) - 1] = alloc(cache);
        assert_int_equal(slob_counts.pages, 1);
        for (size_t i = 0; i < array_size(objects); i++)
                kmem_cache_free(cache, objects[i]);
        kmem_cache_destroy(cache);
}

/* Looks at pages and blocks are counted, and a page that a single block fills is on no list. */
static void scans(void **state)
{
        struct kmem_cache *cache = cache_new("scanned", 1024, 0, 0, NULL);
        struct slob_statistics start, now;
        void *objects[3];
        void *whole;

        (void)state;
        slob_statistics(&start);
        whole = kmalloc(PAGE_SIZE - KMALLOC_HEADER - 1, GFP_KERNEL);
        slob_statistics(&now);
        assert_int_equal(now.full_pages - start.full_pages, 1);
        assert_int_equal(now.counts.block_scans - start.counts.block_scans, 1);
        for (size_t i = 0; i < 3; i++)
                objects[i] = alloc(cache);
        kmem_cache_free(cache, objects[0]);
        slob_statistics(&start);
        kfree(kmalloc(1500, GFP_KERNEL)); /* a look at both blocks of a page, then a new page */
        slob_statistics(&now);
        assert_int_equal(now.counts.page_scans - start.counts.page_scans, 1);
        assert_int_equal(now.counts.block_scans - start.counts.block_scans, 3);
        kfree(kmalloc(1500, GFP_KERNEL)); /* as before, known to be in vain */
        slob_statistics(&now);
        assert_int_equal(now.counts.page_scans - start.counts.page_scans, 2);
        assert_int_equal(now.counts.block_scans - start.counts.block_scans, 6);
        kfree(whole);
        kmem_cache_free(cache, objects[1]);
        kmem_cache_free(cache, objects[2]);
        kmem_cache_destroy(cache);
}

/*
 * The engine's report: for a cache its objects and their bytes, for slob_shared the pages and their
 * free bytes, and both as other processes see them.
 */
static void reports(void **state)
{
        struct registry_cache shown = {.taken = 99, .given = 99};
        struct registry_node shown_node = {.slabs = 99};
        size_t metadata = metadata_used_bytes();
        struct kmem_cache *cache = cache_new("report", 101, 0, 0, NULL);
        struct registry_cache *others = cache->figures;
        struct registry_node *other_nodes = slob_shared.node[0].figures;
        void *objects[3] = {alloc(cache), alloc(cache), alloc(cache)};
        struct engine_report of_cache = {0}, of_pages = {0};
        struct slob_walk walk;

        (void)state;
        kmem_cache_free(cache, objects[0]);
        cache->figures = &shown;
        slob_shared.node[0].figures = &shown_node;
        slob_engine.report(cache, &of_cache);
        slob_engine.report(&slob_shared, &of_pages);
        slob_walk(&walk);
        assert_true(of_cache.has_bytes && of_pages.has_bytes);
        assert_int_equal(of_cache.taken, 3);
        assert_int_equal(of_cache.given, 1);
        assert_int_equal(of_cache.node[0].objects, 2);
        assert_int_equal(of_cache.node[0].slabs, 0);
        assert_int_equal(of_cache.bytes_inuse, 2 * 102);
        assert_int_equal(of_pages.node[0].slabs, 1);
        assert_int_equal(of_pages.node[0].objects, 0);
        assert_int_equal(of_pages.bytes_free, PAGE_SIZE - 2 * 102);
        assert_int_equal(of_pages.bytes_free, walk.free_bytes);
        assert_int_equal(shown.taken, 3);
        assert_int_equal(shown.given, 1);
        assert_int_equal(shown_node.slabs, 1);
        kmem_cache_free(cache, objects[1]);
        kmem_cache_free(cache, objects[2]);
        assert_int_equal(shown_node.slabs, 0);
        kmem_cache_free(cache, alloc(cache));
        objects[0] = alloc(cache);
        assert_int_equal(shown_node.slabs, 1);
        kmem_cache_free(cache, objects[0]);
        cache->figures = others;
        slob_shared.node[0].figures = other_nodes;
        kmem_cache_destroy(cache);
        assert_int_equal(metadata_used_bytes(), metadata);
}

/*
 * An object and a kmalloc block start somewhere; a pointer that is free, inside a block or not
 * libkmem's does not.
 */
static void starts(void **state)
{
        struct kmem_cache *cache = cache_new("starts", 64, 0, 0, NULL);
        char *object = alloc(cache);
        char *block = kmalloc(50, GFP_KERNEL);
        char outside = 0;

        (void)state;
        assert_true(slob_engine.is_object(&slob_shared, object));
        assert_true(slob_engine.is_object(&slob_shared, block));
        assert_false(slob_engine.is_object(&slob_shared, object + 8));
        assert_false(slob_engine.is_object(&slob_shared, block - KMALLOC_HEADER));
        assert_false(slob_engine.is_object(&slob_shared, block + 2));
        assert_false(slob_engine.is_object(&slob_shared, &outside));
        kfree(block);
        assert_false(slob_engine.is_object(&slob_shared, block));
        kmem_cache_free(cache, object);
        assert_false(slob_engine.is_object(&slob_shared, object));
        kmem_cache_destroy(cache);
}

/*
 * Huge blocks are big blocks, too; and the figures of a cache are the figures that other processes
 * see.
 */
static void figures_shown(void **state)
{
        struct registry_cache shown = {.taken = 99, .given = 99};
        struct registry_cache *others;
        struct kmem_cache *cache = cache_new("shown", 100, 0, 0, NULL);
        struct slob_statistics start, now;
        void *huge, *objects[2];

        (void)state;
        slob_statistics(&start);
        huge = large_alloc(HUGE_BYTES, PAGE_SIZE, false);
        slob_statistics(&now);
        assert_int_equal(now.big_pages - start.big_pages, HUGE_BYTES / PAGE_SIZE);
        assert_true(large_free(huge));
        others = cache->figures;
        cache->figures = &shown;
        objects[0] = alloc(cache);
        objects[1] = alloc(cache);
        kmem_cache_free(cache, objects[0]);
        assert_int_equal(shown.taken, 2);
        assert_int_equal(shown.given, 1);
        kmem_cache_free(cache, objects[1]);
        cache->figures = others;
        kmem_cache_destroy(cache);
}

/* The additional memory of a page goes back where there is no page. */
static void without_page(void **state)
{
        struct kmem_cache *cache = cache_new("poor", 100, 0, 0, NULL);
        size_t used;

        (void)state;
        kmem_cache_free(cache, alloc(cache));
        used = metadata_used_bytes();
        for (fail_after = 0; fail_after < 2;) {
                long works = fail_after;

                assert_null(kmem_cache_alloc(cache, GFP_KERNEL));
                assert_int_equal(metadata_used_bytes(), used);
                fail_after = works + 1;
        }
        fail_after = -1;
        kmem_cache_destroy(cache);
}

static void report_lines(void **state)
{
        static const char *const words[] = {"# slob: small list pages 1 unused ",
                                            "# slob: big list pages 1 unused ",
                                            "# slob: slob pages 2 full 0 allocs ",
                                            "# slob: page scans ",
                                            " block scans ",
                                            "# slob: kmallocs ",
                                            " overhead ",
                                            "# slob: bigpages ",
                                            "# slob: total 2 used 1\n"};
        char text[2048];
        FILE *file = tmpfile();
        void *small, *big;
        size_t length;

        (void)state;
        use_lists(&mail_lists);
        small = kmalloc(10, GFP_KERNEL);
        big = kmalloc(400, GFP_KERNEL);
        slob_report(fileno(file));
        rewind(file);
        length = fread(text, 1, sizeof(text) - 1, file);
        text[length] = '\0';
        fclose(file);
        for (size_t i = 0; i < array_size(words); i++)
                if (!strstr(text, words[i]))
                        fail_msg("no \"%s\" in:\n%s", words[i], text);
        for (char *line = text; *line; line = strchr(line, '\n') + 1)
                assert_int_equal(line[0], '#');
        kfree(small);
        kfree(big);
}

/* ---- Random use against a model ------------------------------------------------------------- */

enum { LIVE = 600, OPERATIONS = 20000, WALK_EVERY = 500, CACHES = 7 };

static const struct {
        unsigned int size;
        unsigned int align;
        slab_flags_t flags;
} cache_kinds[CACHES] = {{1, 0, 0},
                         {12, 0, 0},
                         {56, 64, 0},
                         {250, 0, SLAB_HWCACHE_ALIGN},
                         {1030, 0, SLAB_TYPESAFE_BY_RCU},
                         {2000, 512, 0},
                         {4100, 0, 0}};

struct live {
        unsigned char *block; /* NULL: none */
        size_t size;
        int cache; /* -1: by size */
        unsigned char fill;
};

struct model {
        struct kmem_cache *caches[CACHES];
        uint64_t inuse[CACHES];
        struct live live[LIVE];
        uint64_t random;
};

static size_t below(struct model *model, size_t limit)
{
        model->random = model->random * 6364136223846793005u + 1442695040888963407u;
        return (size_t)(model->random >> 33) % limit;
}

static void check_fill(const struct live *live)
{
        for (size_t i = 0; i < live->size; i++)
                if (live->block[i] != live->fill)
                        fail_msg("byte %zu of %zu was written over", i, live->size);
}

static void model_alloc(struct model *model, struct live *live)
{
        size_t align = SLOB_ALIGN;

        live->cache = (int)below(model, 2 * CACHES) - CACHES;
        live->fill = (unsigned char)below(model, 256);
        if (live->cache >= 0) {
                struct kmem_cache *cache = model->caches[live->cache];

                live->size = cache->object_size;
                live->block = alloc(cache);
                align = cache->align;
                model->inuse[live->cache]++;
        } else {
                size_t kind = below(model, 4);

                live->cache = -1;
                live->size = 1 + below(model, below(model, 4) ? 300 : 5000);
                if (kind == 0) {
                        align = 16u << below(model, 9);
                        live->block = block_alloc_aligned(live->size, align, 0, NULL);
                } else if (kind == 1) {
                        align = 16;
                        live->block = block_alloc(CLASS_MALLOC, live->size, false, NULL);
                } else {
                        live->block = kmalloc(live->size, GFP_KERNEL);
                }
                assert_true(ksize(live->block) >= live->size);
        }
        assert_non_null(live->block);
        assert_int_equal((uintptr_t)live->block % align, 0);
        memset(live->block, live->fill, live->size);
}

static void model_free(struct model *model, struct live *live)
{
        check_fill(live);
        if (live->cache >= 0) {
                kmem_cache_free(model->caches[live->cache], live->block);
                model->inuse[live->cache]--;
        } else {
                kfree(live->block);
        }
        live->block = NULL;
}

static void model_resize(struct model *model, struct live *live)
{
        size_t size = 1 + below(model, 2000);

        live->block = krealloc(live->block, size, GFP_KERNEL);
        assert_non_null(live->block);
        live->size = min_of(live->size, size);
        check_fill(live);
        live->size = size;
        memset(live->block, live->fill, size);
}

static void random_use(const struct size_list *lists, bool compat)
{
        struct model *model = calloc(1, sizeof(*model));
        struct slob_walk walk;

        use_lists(lists);
        options.slob_compat = compat ? SLOB_COMPAT_2_6_24 : SLOB_COMPAT_NONE;
        model->random = 1;
        for (int i = 0; i < CACHES; i++)
                model->caches[i] = cache_new("model", cache_kinds[i].size, cache_kinds[i].align,
                                             cache_kinds[i].flags, NULL);
        for (int i = 0; i < OPERATIONS; i++) {
                struct live *live = &model->live[below(model, LIVE)];

                if (!live->block)
                        model_alloc(model, live);
                else if (live->cache < 0 && below(model, 8) == 0)
                        model_resize(model, live);
                else
                        model_free(model, live);
                if (i % WALK_EVERY == 0) {
                        slob_walk(&walk);
                        for (int kind = 0; kind < CACHES; kind++)
                                assert_int_equal(inuse(model->caches[kind]), model->inuse[kind]);
                }
        }
        for (int i = 0; i < LIVE; i++)
                if (model->live[i].block)
                        model_free(model, &model->live[i]);
        slob_walk(&walk);
        for (int i = 0; i < CACHES; i++)
                kmem_cache_destroy(model->caches[i]);
        assert_int_equal(slob_counts.pages, 0);
        free(model);
}

static void random_default(void **state)
{
        (void)state;
        random_use(&merged_lists, false);
}

static void random_mail(void **state)
{
        (void)state;
        random_use(&mail_lists, false);
}

static void random_one_list(void **state)
{
        (void)state;
        random_use(&one_list, false);
}

static void random_many_lists(void **state)
{
        (void)state;
        random_use(&many_lists, false);
}

static void random_compat(void **state)
{
        (void)state;
        random_use(&one_list, true);
}

/* ---- Threads -------------------------------------------------------------------------------- */

enum { THREADS = 4, ROUNDS = 4000 };

static struct kmem_cache *thread_cache;

static void *thread_work(void *argument)
{
        uint64_t random = (uintptr_t)argument;
        void *blocks[32] = {0};
        void *objects[32] = {0};

        for (int round = 0; round < ROUNDS; round++) {
                size_t i = (random = random * 6364136223846793005u + 1442695040888963407u) >> 59;

                kfree(blocks[i]);
                blocks[i] = kmalloc(1 + (random >> 20) % 600, GFP_KERNEL);
                if (objects[i])
                        kmem_cache_free(thread_cache, objects[i]);
                objects[i] = kmem_cache_alloc(thread_cache, GFP_KERNEL);
        }
        for (size_t i = 0; i < array_size(blocks); i++) {
                kfree(blocks[i]);
                if (objects[i])
                        kmem_cache_free(thread_cache, objects[i]);
        }
        return NULL;
}

/* Counts at rest are exact, whichever thread freed an object; a child made meanwhile can go on. */
static void threads(void **state)
{
        pthread_t ids[THREADS];
        struct cache_totals totals;
        uint64_t kmallocs = slob_counts.kmallocs;
        int status;

        (void)state;
        thread_cache = cache_new("threads", 40, 0, 0, NULL);
        for (uintptr_t i = 0; i < THREADS; i++)
                assert_int_equal(pthread_create(&ids[i], NULL, thread_work, (void *)(i + 1)), 0);
        for (int i = 0; i < 20; i++) {
                pid_t pid = fork();

                if (pid == 0) {
                        forked_child_starts_no_thread_under_qemu();
                        thread_work((void *)7);
                        _exit(0);
                }
                assert_int_equal(waitpid(pid, &status, 0), pid);
                assert_int_equal(status, 0);
        }
        for (int i = 0; i < THREADS; i++)
                pthread_join(ids[i], NULL);
        cache_total(thread_cache, &totals);
        assert_int_equal(totals.inuse, 0);
        assert_int_equal(totals.report.taken, THREADS * ROUNDS);
        assert_int_equal(totals.report.given, THREADS * ROUNDS);
        assert_int_equal(slob_counts.kmallocs - kmallocs, THREADS * ROUNDS);
        kmem_cache_destroy(thread_cache);
}

#define CASE(function) cmocka_unit_test_setup_teardown(function, set_up, tear_down)

int main(int count, char **arguments)
{
        const struct CMUnitTest tests[] = {
                CASE(units),
                CASE(first_fit),
                CASE(rotation),
                CASE(rotation_when_full),
                CASE(zeroed),
                CASE(empty_page),
                CASE(merging),
                CASE(list_choice),
                CASE(lists_apart),
                CASE(kmalloc_blocks),
                CASE(ksizes),
                CASE(usable_sizes),
                CASE(malloc_alignment),
                CASE(cache_layout),
                CASE(constructors),
                CASE(old_bugs),
                CASE(silence),
                CASE(typesafe),
                CASE(typesafe_sizes),
                CASE(kfree_of_objects),
                CASE(wrong_pointers),
                CASE(wrong_sizes),
                CASE(damaged_headers),
                CASE(other_engines),
                CASE(bulk_calls),
                CASE(abortions),
                CASE(statistics_add_up),
                CASE(big_objects),
                CASE(exact_room),
                CASE(scans),
                CASE(reports),
                CASE(starts),
                CASE(figures_shown),
                CASE(without_page),
                CASE(report_lines),
                CASE(random_default),
                CASE(random_mail),
                CASE(random_one_list),
                CASE(random_many_lists),
                CASE(random_compat),
                CASE(threads),
        };

        (void)count;
        /* The heap reads its options before main. */
        if (!getenv("KMEM_OPTIONS")) {
                setenv("KMEM_OPTIONS", "engine=slob,slub-cache.engine=slub", 1);
                exec_program("/proc/self/exe", arguments);
        }
        return cmocka_run_group_tests(tests, NULL, NULL);
}
