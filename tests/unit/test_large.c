/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Large and huge blocks: content, sizes, resizing, reuse of freed mappings, refusals, and
 * addresses that are no large block's.
 */
#define _GNU_SOURCE
#include "unit.h"

#include <pthread.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "machine/message.h"
#include "base/metadata.h"
#include "base/options.h"
#include "machine/thread.h"
#include "page/guarded.h"
#include "page/huge.h"
#include "page/huge_kept.h"
#include "page/huge_table.h"
#include "page/large.h"
#include "page/purge.h"
#include "page/zone.h"
#include "random.h"
#include "system_wrap.h"

static const size_t MIB = (size_t)1 << 20;

enum { HEAP_BYTES = 128 << 20 };

static bool heap_renew(size_t reserve)
{
        struct page_counts counts;

        pages_count(&counts); /* nothing of the old heap is kept (KEPT-2) */
        if (heap.map)
                system_unmap(heap.map, heap.base + heap.reserved_bytes - (uintptr_t)heap.map);
        memset(&heap, 0, sizeof(heap));
        memset(zones, 0, sizeof(zones));
        memset(&frontier, 0, sizeof(frontier));
        options.reserve = reserve;
        return pages_init();
}

static int start(void **state)
{
        (void)state;
        system_wrap_allow_all();
        options.purge_delay = 100;
        options.huge_cache_max = 64 << 20;
        huge_kept_drop(UINT64_MAX);
        return heap_renew(HEAP_BYTES) ? 0 : -1;
}

static struct large_counts counts_now(void)
{
        struct large_counts counts;

        large_count(&counts);
        return counts;
}

/* Each page of a block carries a value of its own. */
static uint64_t mark_of(uint32_t owner, size_t page)
{
        return ((uint64_t)owner << 32 | page) + 1;
}

static void fill(void *block, size_t bytes, uint32_t owner)
{
        for (size_t offset = 0; offset + 8 <= bytes; offset += PAGE_SIZE)
                *(uint64_t *)((char *)block + offset) = mark_of(owner, offset >> PAGE_SHIFT);
}

static bool is_filled(const void *block, size_t bytes, uint32_t owner)
{
        for (size_t offset = 0; offset + 8 <= bytes; offset += PAGE_SIZE)
                if (*(const uint64_t *)((const char *)block + offset) !=
                    mark_of(owner, offset >> PAGE_SHIFT))
                        return false;
        return true;
}

static bool is_zero(const void *block, size_t bytes)
{
        const uint64_t *word = block;
        uint64_t any = 0;

        for (size_t i = 0; i < bytes / 8; i++)
                any |= word[i];
        return any == 0;
}

/* A block that is longer than the free pages side by side has as many of them given back, but for a thirty-second (PURGE-1). */
static void test_pages_in_return(void **state)
{
        const size_t bytes = 8 * MIB;
        char *first, *wall, *second;

        (void)state;
        skip_on_larger_pages();
        if (system_threads() != THREADS_ONE)
                skip_because("libc does not say that there is a single thread");
        system_wrap.now_ms += 10 * pages_delay_ms();
        first = large_alloc(bytes, 1, false);
        wall = large_alloc(2 * MIB, 1, false);
        large_free(first);
        second = large_alloc(bytes + PAGE_SIZE, 1, false);
        assert_non_null(second);
        assert_int_in_range(pages_free_touched() << PAGE_SHIFT, 0, (bytes + 3 * MIB) / 32);
        large_free(wall);
        large_free(second);
}

static void test_sizes(void **state)
{
        const size_t sizes[] = {0,       1,       4095,         4096,     4097,         100000,
                                4 * MIB, 5000000, 32 * MIB - 1, 32 * MIB, 32 * MIB + 1, 70 * MIB};
        size_t handed_out;

        (void)state;
        handed_out = counts_now().handed_out;
        for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
                char *block = large_alloc(sizes[i], 1, true);
                size_t rounded = round_up(max_of(sizes[i], (size_t)1), PAGE_SIZE);

                assert_non_null(block);
                assert_int_equal(heap_contains(block), rounded < HUGE_BYTES);
                if (heap_contains(block))
                        assert_int_equal(large_size(block), rounded);
                else
                        assert_int_equal(large_size(block), round_up(rounded, system_page_bytes()));
                assert_true(is_zero(block, rounded));
                memset(block, 1, rounded);
                assert_true(large_free(block));
                assert_false(large_free(block));
                assert_int_equal(large_size(block), 0);
        }
        assert_int_equal(counts_now().handed_out - handed_out, array_size(sizes));
        assert_int_equal(counts_now().blocks, 0);
        assert_int_equal(counts_now().bytes, 0);
        assert_int_equal(counts_now().huge_blocks, 0);
        assert_int_equal(counts_now().huge_bytes, 0);
}

static void test_impossible_sizes(void **state)
{
        void *block = large_alloc(10000, 1, false);
        void *huge = large_alloc(40 * MIB, 1, false);
        const size_t sizes[] = {SIZE_MAX,       SIZE_MAX - 4096,    (size_t)PTRDIFF_MAX + 1,
                                PTRDIFF_MAX,    PTRDIFF_MAX - 4096, SIZE_MAX / 4,
                                (size_t)1 << 50};

        (void)state;
        for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
                assert_null(large_alloc(sizes[i], 1, false));
                assert_null(large_alloc(sizes[i], (size_t)1 << 62, true));
                assert_null(large_resize(block, sizes[i]));
                assert_null(large_resize(huge, sizes[i]));
        }
        assert_null(large_alloc(1, (size_t)1 << 63, false));
        assert_null(large_alloc(1, (size_t)1 << 62, false));
        assert_int_equal(large_size(block), round_up(10000, PAGE_SIZE));
        assert_int_equal(large_size(huge), 40 * MIB);
        assert_true(large_free(block));
        assert_true(large_free(huge));
}

static void test_alignment(void **state)
{
        (void)state;
        for (size_t align = 1; align <= 256 * MIB; align *= 2) {
                for (size_t bytes = 5000; bytes < 100 * MIB; bytes *= 20) {
                        char *block = large_alloc(bytes, align, false);

                        assert_non_null(block);
                        assert_int_equal((uintptr_t)block & (align - 1), 0);
                        fill(block, bytes, 1);
                        assert_true(is_filled(block, bytes, 1));
                        assert_true(large_free(block));
                }
        }
        /* Aligned blocks leave no mapping behind except kept mappings. */
        huge_kept_drop(UINT64_MAX);
        assert_int_equal(counts_now().huge_kept_bytes, 0);
}

static void test_addresses_of_nobody(void **state)
{
        char local;
        char *block = large_alloc(100000, 1, false);
        char *huge = large_alloc(40 * MIB, 1, false);
        struct page *slab = pages_alloc(3, NODE_ANY, NULL);
        const void *nobody[] = {NULL,
                                &local,
                                (void *)1,
                                (void *)UINTPTR_MAX,
                                block + 1,
                                block + PAGE_SIZE,
                                huge + 1,
                                huge + PAGE_SIZE,
                                page_address(slab),
                                (char *)page_address(slab) + PAGE_SIZE,
                                (void *)heap.base,
                                (void *)(heap.base - PAGE_SIZE),
                                (void *)(heap.base + heap.accessible_bytes - PAGE_SIZE),
                                (void *)(heap.base + heap.accessible_bytes),
                                (void *)(heap.base + heap.reserved_bytes)};

        (void)state;
        slab->kind = PAGE_SLAB;
        for (size_t i = 0; i < sizeof(nobody) / sizeof(nobody[0]); i++) {
                assert_int_equal(large_size(nobody[i]), 0);
                assert_false(large_free((void *)(uintptr_t)nobody[i]));
                assert_null(large_resize((void *)(uintptr_t)nobody[i], 5000));
        }
        assert_true(large_free(block));
        assert_true(large_free(huge));
        assert_false(large_free(huge));
        pages_free(slab, 8);
}

static void test_resize_in_the_heap(void **state)
{
        char *block = large_alloc(50000, 1, false);

        (void)state;
        fill(block, 50000, 3);
        assert_ptr_equal(large_resize(block, 20 * MIB), block);
        assert_int_equal(large_size(block), 20 * MIB);
        assert_true(is_filled(block, 50000, 3));
        fill(block, 20 * MIB, 3);
        assert_ptr_equal(large_resize(block, 0), block);
        assert_int_equal(large_size(block), PAGE_SIZE);
        assert_true(is_filled(block, PAGE_SIZE, 3));
        assert_int_equal(counts_now().bytes, PAGE_SIZE);
        /* Growing into a huge block needs a copy. */
        assert_null(large_resize(block, HUGE_BYTES));
        assert_true(large_free(block));
}

/* A mapping stays where it is, except that the emulator's mremap moves it at every change. */
static char *resize_in_place(char *block, size_t bytes)
{
        char *resized = large_resize(block, bytes);

        assert_non_null(resized);
        if (checks_natively("mremap leaves the mapping in place"))
                assert_ptr_equal(resized, block);
        return resized;
}

static void test_resize_huge(void **state)
{
        char *block = large_alloc(40 * MIB, 1, false);
        size_t charge = 0;
        char *wall, owner;

        (void)state;
        fill(block, 40 * MIB, 4);
        assert_true(huge_owner_set(block, &owner, 123));
        for (size_t bytes = 48 * MIB; bytes < 300 * MIB; bytes += 50 * MIB) {
                size_t old_bytes = large_size(block);

                block = large_resize(block, bytes);
                assert_non_null(block);
                assert_int_equal(large_size(block), bytes);
                assert_true(is_filled(block, old_bytes, 4));
                fill(block, bytes, 4);
                /* In the way of growth at this address, so that the block must move. */
                wall = mmap(block + bytes, PAGE_SIZE, PROT_READ,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
                (void)wall;
        }
        assert_ptr_equal(huge_owner(block, &charge), &owner);
        assert_int_equal(charge, 123);
        block = resize_in_place(block, 33 * MIB);
        block = resize_in_place(block, 8 * MIB);
        assert_true(is_filled(block, 8 * MIB, 4));
        assert_int_equal(counts_now().huge_bytes, 8 * MIB);
        system_wrap.calls_left[CALL_REMAP] = 0;
        assert_null(large_resize(block, 80 * MIB));
        assert_int_equal(large_size(block), 8 * MIB);
        assert_true(is_filled(block, 8 * MIB, 4));
        system_wrap_allow_all();
        block = resize_in_place(block, 30 * MIB);
        block = resize_in_place(block, 40 * MIB);
        /* A small rest is better off in the heap. */
        assert_null(large_resize(block, 100000));
        assert_null(large_resize(block, 4 * MIB - system_page_bytes()));
        block = resize_in_place(block, HUGE_BYTES);
        assert_null(large_resize(block, 4 * MIB - system_page_bytes()));
        block = resize_in_place(block, 4 * MIB);
        assert_true(large_free(block));
}

static size_t maps_made(void)
{
        return system_wrap.calls_made[CALL_MAP];
}

static void test_freed_mappings_are_used_again(void **state)
{
        char *block = large_alloc(40 * MIB, 1, false);
        char *again;
        size_t made;

        (void)state;
        fill(block, 40 * MIB, 1);
        assert_true(large_free(block));
        assert_int_equal(counts_now().huge_kept_bytes, 40 * MIB);
        made = maps_made();
        again = large_alloc(33 * MIB, 1, false);
        assert_ptr_equal(again, block);
        assert_int_equal(maps_made(), made);
        assert_int_equal(large_size(again), 40 * MIB);
        assert_int_equal(counts_now().huge_kept_bytes, 0);
        assert_true(large_free(again));

        /* A much larger or a smaller mapping does not fit, and cleared memory is fresh. */
        again = large_alloc(40 * MIB, 1, true);
        assert_int_equal(maps_made(), made + 1);
        assert_true(is_zero(again, 40 * MIB));
        assert_true(large_free(again));
        assert_non_null(again = large_alloc(42 * MIB, 1, false));
        assert_int_equal(maps_made(), made + 2);
        assert_true(large_free(again));
}

/* A quarter more than requested fits, nothing above; of equal mappings the newest serves. */
static void test_kept_mapping_that_fits(void **state)
{
        char *first = large_alloc(50 * MIB, 1, false);
        char *second = large_alloc(50 * MIB, 1, false);
        char *third;

        (void)state;
        options.huge_cache_max = 100 << 20;
        assert_true(large_free(first));
        assert_true(large_free(second));
        assert_int_equal(counts_now().huge_kept_bytes, 100 * MIB);
        assert_ptr_equal(large_alloc(40 * MIB, 1, false), second);
        third = large_alloc(39 * MIB, 1, false);
        assert_ptr_not_equal(third, first);
        assert_true(large_free(second));
        assert_true(large_free(third));

        /* The mapping with the least to spare, though another was freed later. */
        huge_kept_drop(UINT64_MAX);
        assert_non_null(first = large_alloc(45 * MIB, 1, false));
        assert_non_null(second = large_alloc(50 * MIB, 1, false));
        assert_true(large_free(first));
        assert_true(large_free(second));
        assert_ptr_equal(large_alloc(42 * MIB, 1, false), first);
        assert_true(large_free(first));

        /* The largest that is kept. */
        assert_non_null(first = large_alloc(100 * MIB, 1, false));
        assert_true(large_free(first));
        assert_int_equal(counts_now().huge_kept_bytes, 100 * MIB);
}

static size_t address_space_bytes(void)
{
        FILE *file = fopen("/proc/self/statm", "r");
        size_t pages;

        assert_non_null(file);
        assert_int_equal(fscanf(file, "%zu", &pages), 1);
        fclose(file);
        return pages * (size_t)sysconf(_SC_PAGESIZE);
}

/*
 * Nothing stays mapped that is on no book: memory mapped to reach an alignment, and kept mappings
 * that go for any reason.
 */
static void test_all_is_unmapped(void **state)
{
        size_t before = address_space_bytes();
        char *blocks[8];

        (void)state;
        skip_if_sanitized();
        if (emulated())
                skip_because("the emulator and valgrind take address space of their own");
        for (int i = 0; i < 8; i++)
                assert_non_null(blocks[i] = large_alloc(33 * MIB, 1024 * MIB, false));
        assert_true(address_space_bytes() - before < (8 * 33 + 20) * MIB);
        for (int i = 0; i < 8; i++)
                assert_true(large_free(blocks[i])); /* all but one mapping go for the bound */
        assert_true(address_space_bytes() - before < (33 + 20) * MIB);

        options.huge_cache_max = (uint64_t)4 << 30;
        assert_non_null(blocks[0] = large_alloc(60 * MIB, 1, false));
        assert_non_null(blocks[1] = large_alloc(50 * MIB, 1, false));
        assert_true(large_free(blocks[1]));
        system_wrap.now_ms += 100;
        assert_true(large_free(blocks[0])); /* mappings that are due go */
        assert_int_equal(counts_now().huge_kept_bytes, 60 * MIB);
        assert_true(address_space_bytes() - before < (60 + 20) * MIB);

        /* As much as ever was in use: the next block makes kept mappings go. */
        blocks[0] = large_alloc(8192 * MIB, 1, true);
        if (!blocks[0])
                skip_because("the system refuses 8 GiB, as it has less memory");
        assert_int_equal(counts_now().huge_kept_bytes, 0);
        assert_true(address_space_bytes() - before < (8192 + 20) * MIB);
        assert_true(large_free(blocks[0]));
        assert_true(address_space_bytes() - before < 20 * MIB);

        /* Below it kept mappings stay. */
        assert_non_null(blocks[0] = large_alloc(60 * MIB, 1, false));
        assert_true(large_free(blocks[0]));
        assert_non_null(blocks[0] = large_alloc(200 * MIB, 1, false));
        assert_int_equal(counts_now().huge_kept_bytes, 60 * MIB);
        assert_true(large_free(blocks[0]));
        huge_kept_drop(UINT64_MAX);
        assert_true(address_space_bytes() - before < 20 * MIB);

        /* Growth beyond it makes kept mappings go, too. */
        assert_non_null(blocks[0] = large_alloc(40 * MIB, 1, false));
        assert_non_null(blocks[1] = large_alloc(60 * MIB, 1, false));
        assert_true(large_free(blocks[1]));
        assert_int_equal(counts_now().huge_kept_bytes, 60 * MIB);
        assert_non_null(blocks[0] = large_resize(blocks[0], 8200 * MIB));
        assert_int_equal(counts_now().huge_kept_bytes, 0);
        assert_true(large_free(blocks[0]));
        huge_kept_drop(UINT64_MAX);
        assert_true(address_space_bytes() - before < 20 * MIB);
}

static void test_kept_mappings_are_bounded(void **state)
{
        char *blocks[40];

        (void)state;
        for (int i = 0; i < 40; i++)
                assert_non_null(blocks[i] = large_alloc(40 * MIB, 1, false));
        for (int i = 0; i < 40; i++)
                assert_true(large_free(blocks[i]));
        assert_int_equal(counts_now().huge_kept_bytes, 40 * MIB);
        /* The newest was kept. */
        assert_non_null(blocks[0] = large_alloc(40 * MIB, 1, false));
        assert_ptr_equal(blocks[0], blocks[39]);
        assert_true(large_free(blocks[0]));

        options.huge_cache_max = 0;
        assert_non_null(blocks[0] = large_alloc(40 * MIB, 1, false));
        assert_true(large_free(blocks[0]));
        assert_int_equal(counts_now().huge_kept_bytes, 0);

        /* By number too. */
        options.huge_cache_max = (uint64_t)40 << 30;
        for (int i = 0; i < 40; i++)
                assert_non_null(blocks[i] = large_alloc(40 * MIB, 1, false));
        for (int i = 0; i < 40; i++)
                assert_true(large_free(blocks[i]));
        assert_int_equal(counts_now().huge_kept_bytes, KEPT_MAX * 40 * MIB);
        assert_int_equal(huge_kept_drop(UINT64_MAX), KEPT_MAX * 40 * MIB);
}

static void test_kept_mappings_expire(void **state)
{
        char *first = large_alloc(33 * MIB, 1, false);
        char *second = large_alloc(33 * MIB, 1, false);

        (void)state;
        options.huge_cache_max = 100 << 20;
        assert_true(large_free(first));
        system_wrap.now_ms += 60;
        assert_true(large_free(second));
        assert_int_equal(counts_now().huge_kept_bytes, 66 * MIB);
        system_wrap.now_ms += 40; /* just as long as the delay */
        pages_purge_due();
        assert_int_equal(counts_now().huge_kept_bytes, 33 * MIB);
        assert_int_equal(pages_purge_idle(), 0);
        system_wrap.now_ms += 60;
        assert_int_equal(pages_purge_idle(), 33 * MIB);
        assert_int_equal(counts_now().huge_kept_bytes, 0);
        assert_non_null(first = large_alloc(33 * MIB, 1, false));
        assert_true(large_free(first));
        assert_true(pages_purge_all(0) >= 33 * MIB);
        assert_int_equal(counts_now().huge_kept_bytes, 0);
}

/* HUGE-2: kept mappings go before blocks and kept mappings exceed the most ever in use. */
static void test_keeping_does_not_raise_the_peak(void **state)
{
        size_t most = 0;
        char *old = large_alloc(33 * MIB, 1, false);

        (void)state;
        options.huge_cache_max = (uint64_t)4 << 30;
        for (size_t bytes = 50 * MIB; bytes < 900 * MIB; bytes += bytes / 2) {
                struct large_counts counts;
                char *new = large_alloc(bytes, 1, false);

                assert_non_null(new);
                counts = counts_now();
                most = max_of(most, counts.huge_bytes);
                assert_true(counts.huge_bytes + counts.huge_kept_bytes <= max_of(most, 1600 * MIB));
                assert_true(large_free(old));
                old = new;
        }
        assert_true(large_free(old));
}

/* Without heap, and without mappings: separate mappings of any size, then NULL. */
static void test_heap_used_up(void **state)
{
        enum { COUNT = 300 };
        static char *blocks[COUNT];
        size_t in_heap = 0;
        size_t made;

        (void)state;
        assert_true(heap_renew(8 << 20));
        for (int i = 0; i < COUNT; i++) {
                blocks[i] = large_alloc(100000, 1, i % 2);
                assert_non_null(blocks[i]);
                if (i % 2)
                        assert_true(is_zero(blocks[i], 100000));
                fill(blocks[i], 100000, (uint32_t)i + 1);
                in_heap += heap_contains(blocks[i]);
        }
        assert_true(in_heap > 20 && in_heap < 90);
        assert_int_equal(counts_now().huge_blocks, COUNT - in_heap);
        for (int i = 0; i < COUNT; i++)
                assert_true(is_filled(blocks[i], 100000, (uint32_t)i + 1));

        system_wrap.calls_left[CALL_MAP] = 0;
        assert_null(large_alloc(100000, 1, false));
        assert_null(large_alloc(40 * MIB, 1, false));
        assert_null(large_alloc(40 * MIB, 64 * MIB, true));
        system_wrap_allow_all();

        /* These blocks change their size like all huge blocks, small as they are. */
        blocks[COUNT - 1] = large_resize(blocks[COUNT - 1], 2 * MIB);
        assert_non_null(blocks[COUNT - 1]);
        assert_true(is_filled(blocks[COUNT - 1], 100000, COUNT));
        blocks[COUNT - 2] = large_resize(blocks[COUNT - 2], 0);
        assert_int_equal(large_size(blocks[COUNT - 2]), system_page_bytes());
        /* And are used again when they were freed. */
        assert_true(large_free(blocks[COUNT - 1]));
        made = maps_made();
        assert_ptr_equal(large_alloc(2 * MIB, 1, false), blocks[COUNT - 1]);
        assert_int_equal(maps_made(), made);
        for (int i = 0; i < COUNT; i++)
                assert_true(large_free(blocks[i]));
        assert_int_equal(counts_now().huge_blocks, 0);
        assert_int_equal(counts_now().blocks, 0);
}

/* Kept mappings are given up before an allocation fails. */
static void test_kept_mappings_yield(void **state)
{
        char *block = large_alloc(40 * MIB, 1, false);

        (void)state;
        assert_true(large_free(block));
        assert_int_equal(counts_now().huge_kept_bytes, 40 * MIB);
        system_wrap.calls_left[CALL_COMMIT] = 0;
        system_wrap.calls_left[CALL_MAP] = 0;
        assert_null(large_alloc(100000, 1, false));
        assert_int_equal(counts_now().huge_kept_bytes, 0);
}

/* Limits data to the memory that is there; false where the system has no limit of this kind. */
static bool limit_to_what_there_is(void)
{
        struct rlimit limit = {.rlim_cur = 128 * MIB, .rlim_max = RLIM_INFINITY};
        void *more;

        for (;; limit.rlim_cur += MIB) {
                assert_int_equal(setrlimit(RLIMIT_DATA, &limit), 0);
                more = system_map(MIB);
                if (more)
                        break;
        }
        system_unmap(more, MIB);
        if (limit.rlim_cur == 128 * MIB)
                dprintf(STDERR_FILENO, "# RLIMIT_DATA is not enforced here\n");
        return limit.rlim_cur != 128 * MIB;
}

/* Real refusals: a block that grows within the limit but for the kept mappings. */
static int child_grow_beside_kept(size_t peak)
{
        char *block = large_alloc(100 * MIB, 1, false);
        void *freed = large_alloc(60 * MIB, 1, false);
        void *more = large_alloc(peak - 160 * MIB, 1, false);

        child_check(block && freed && more && large_free(more));
        huge_kept_drop(UINT64_MAX);
        fill(block, 100 * MIB, 6);
        child_check(large_free(freed));
        child_check(counts_now().huge_kept_bytes == 60 * MIB);
        if (!limit_to_what_there_is())
                return 77;
        block = large_resize(block, 120 * MIB);
        child_check(block && large_size(block) == 120 * MIB);
        child_check(counts_now().huge_kept_bytes == 0);
        block = large_resize(block, 160 * MIB);
        child_check(block && large_size(block) == 160 * MIB);
        child_check(is_filled(block, 100 * MIB, 6));
        child_check(!large_resize(block, 170 * MIB));
        child_check(large_size(block) == 160 * MIB);
        return 0;
}

/* A new mapping, for which nothing has to go by HUGE-2. */
static int child_map_below_the_peak(void)
{
        void *freed = large_alloc(150 * MIB, 1, false);
        void *more = large_alloc(300 * MIB, 1, false);

        options.huge_cache_max = 200 << 20;
        child_check(freed && more && large_free(more));
        huge_kept_drop(UINT64_MAX);
        child_check(large_free(freed));
        child_check(counts_now().huge_kept_bytes == 150 * MIB);
        if (!limit_to_what_there_is())
                return 77;
        child_check(large_alloc(150 * MIB, 1, true) != NULL);
        child_check(counts_now().huge_kept_bytes == 0);
        return 0;
}

/* Kept mappings have to go by HUGE-2. */
static int child_grow_to_the_peak(void)
{
        return child_grow_beside_kept(160 * MIB);
}

static int child_grow_below_the_peak(void)
{
        return child_grow_beside_kept(300 * MIB);
}

static void test_kept_mappings_yield_to_growth(void **state)
{
        (void)state;
        skip_if_sanitized();
        run_in_child(child_grow_to_the_peak);
        run_in_child(child_grow_below_the_peak);
        run_in_child(child_map_below_the_peak);
}

static void map_beside(void)
{
        system_wrap.while_mapping = NULL;
        child_check(large_alloc(60 * MIB, 1, true));
}

/*
 * Two blocks that are mapped at once; beside the kept mappings there is room for each block alone.
 */
static int child_map_two_at_once(void)
{
        void *most = large_alloc(80 * MIB, 1, false);
        void *freed = large_alloc(40 * MIB, 1, false);

        child_check(most && freed && large_free(most));
        huge_kept_drop(UINT64_MAX);
        child_check(large_free(freed));
        child_check(counts_now().huge_kept_bytes == 40 * MIB);
        system_wrap.while_mapping = map_beside;
        child_check(large_alloc(60 * MIB, 1, true));
        child_check(counts_now().huge_bytes == 120 * MIB);
        child_check(counts_now().huge_kept_bytes == 0);
        return 0;
}

static void test_kept_mappings_yield_to_two_at_once(void **state)
{
        (void)state;
        run_in_child(child_map_two_at_once);
}

/* Addresses side by side, and others far apart, all of them different. */
static void *table_address(size_t which)
{
        uintptr_t near = (uintptr_t)1 << 45 | which << PAGE_SHIFT;
        uintptr_t far = (uintptr_t)1 << 46 | which << 30;

        return (void *)(which % 2 ? near : far);
}

/* The table under blocks that come and go in a random order. */
static void test_table(void **state)
{
        enum { STARTS = 3000 };
        static bool present[STARTS];
        struct random random = {77};
        size_t length = huge_table_length();

        (void)state;
        lock_take(&huge_lock);
        for (int i = 0; i < 200000; i++) {
                size_t which = 1 + random_below(&random, STARTS - 1);
                void *address = table_address(which);
                struct huge_block *block = huge_table_find_locked(address);

                assert_int_equal(block != NULL, present[which]);
                if (block) {
                        assert_int_equal(block->bytes, which);
                        huge_table_remove_locked(block);
                        length--;
                } else {
                        assert_true(huge_table_reserve_locked());
                        huge_table_add_locked(address, which);
                        length++;
                }
                present[which] = !present[which];
                assert_int_equal(huge_table_length(), length);
        }
        for (size_t which = 1; which < STARTS; which++)
                if (present[which])
                        huge_table_remove_locked(huge_table_find_locked(table_address(which)));
        lock_drop(&huge_lock);
}

/* Fills the table to the last entry that it can have without more metadata; returns how many it has. */
static size_t table_fill_locked(void)
{
        system_wrap.calls_left[CALL_MAP] = 0;
        system_wrap.calls_left[CALL_COMMIT] = 0;
        while (huge_table_reserve_locked()) {
                size_t which = huge_table_length() + 1;

                check_or_die(which < 100000);
                huge_table_add_locked(table_address(which), which);
        }
        system_wrap_allow_all();
        return huge_table_length();
}

/*
 * Without metadata for a larger table, the blocks fill all entries except the last, at which
 * searches end. Then there are no more huge blocks until the table grows; the smaller table is
 * given back.
 */
static void test_table_without_metadata(void **state)
{
        char *kept = large_alloc(40 * MIB, 1, false);
        size_t length, used;

        (void)state;
        assert_int_equal(huge_table_length(), 1);
        assert_true(large_free(kept));
        lock_take(&huge_lock);
        length = table_fill_locked();
        assert_true(length > 2 && is_power_of_two(length + 1));
        for (size_t which = 1; which <= length; which++)
                assert_int_equal(huge_table_find_locked(table_address(which))->bytes, which);
        assert_null(huge_table_find_locked(table_address(length + 1)));
        lock_drop(&huge_lock);

        /*
         * Neither a kept mapping nor, for zeroes, a new mapping becomes a block, or stays; nor does
         * the page behind a guarded one.
         */
        for (size_t try = 0; try < 3; try++) {
                size_t granted = try != 0;

                large_guarded = try == 2;
                system_wrap.calls_left[CALL_COMMIT] = 0;
                system_wrap.calls_left[CALL_MAP] = granted;
                used = address_space_bytes();
                assert_null(large_alloc(40 * MIB, 1, granted != 0));
                assert_int_equal(system_wrap.calls_left[CALL_MAP], 0);
                if (!emulated())
                        assert_true(address_space_bytes() <= used);
                assert_int_equal(huge_table_length(), length);
        }
        large_guarded = false;
        system_wrap_allow_all();

        lock_take(&huge_lock);
        used = metadata_used_bytes();
        assert_true(huge_table_reserve_locked());
        assert_int_equal(metadata_used_bytes() - used,
                         metadata_round(2 * (length + 1) * sizeof(struct huge_block)) -
                                 metadata_round((length + 1) * sizeof(struct huge_block)));
        for (size_t which = 1; which <= length; which++)
                huge_table_remove_locked(huge_table_find_locked(table_address(which)));
        assert_int_equal(huge_table_length(), 0);
        lock_drop(&huge_lock);
}

/*
 * After the limit of the address space was lowered, blocks that fit in the reservation lie there.
 */
static int child_lowered_limit(void)
{
        char *block = large_alloc(20 * MIB, 1, false);
        struct rlimit limit = {.rlim_cur = 64 * MIB, .rlim_max = RLIM_INFINITY};
        void *more;

        child_check(block);
        memset(block, 1, 20 * MIB);
        child_check(large_free(block));
        child_check(getrlimit(RLIMIT_AS, &limit) == 0);
        limit.rlim_cur = 64 * MIB;
        child_check(setrlimit(RLIMIT_AS, &limit) == 0);
        more = system_map(40 * MIB);
        if (more) {
                dprintf(STDERR_FILENO, "# skipped: RLIMIT_AS is not enforced here\n");
                return 77;
        }
        block = large_alloc(36 * MIB, 1, true);
        child_check(block && heap_contains(block) && large_size(block) == 36 * MIB);
        child_check(is_zero(block, 36 * MIB));
        child_check(large_resize(block, 33 * MIB) == block && large_size(block) == 33 * MIB);
        child_check(!large_resize(block, 34 * MIB));
        /* The heap aligns to no more than its chunks. */
        child_check(!large_alloc(PAGE_SIZE, 8 * MIB, false));
        child_check(!large_alloc(100 * MIB, 1, false));
        child_check(large_free(block));
        return 0;
}

static void test_lowered_limit(void **state)
{
        (void)state;
        skip_if_sanitized();
        if (emulated())
                skip_because("the emulator and valgrind need address space of their own");
        run_in_child(child_lowered_limit);
}

enum { BLOCKS = 24, STEPS = 1500, SIZE_SHIFT_MAX = 26 };

struct held {
        char *block;
        size_t bytes;
        uint32_t owner;
};

/* A random operation; sizes from a page to 64 MiB, every block checked before it changes. */
static void random_step(struct random *random, struct held *one, uint32_t owner)
{
        size_t shift = 12 + random_below(random, SIZE_SHIFT_MAX - 12);
        size_t bytes = ((size_t)1 << shift) + random_below(random, (size_t)1 << shift);
        char *resized;

        if (!one->block) {
                size_t align = (size_t)1 << random_below(random, 14);
                bool zero = random_below(random, 2);

                one->block = large_alloc(bytes, align, zero);
                check_or_die(one->block && ((uintptr_t)one->block & (align - 1)) == 0);
                check_or_die(large_size(one->block) >= bytes);
                check_or_die(!zero || is_zero(one->block, bytes));
                one->bytes = bytes;
        } else if (random_below(random, 2)) {
                check_or_die(is_filled(one->block, one->bytes, one->owner));
                check_or_die(large_free(one->block));
                one->block = NULL;
                return;
        } else {
                check_or_die(is_filled(one->block, one->bytes, one->owner));
                resized = large_resize(one->block, bytes);
                if (!resized)
                        return;
                check_or_die(is_filled(resized, min_of(bytes, one->bytes), one->owner));
                check_or_die(large_size(resized) >= bytes);
                one->block = resized;
                one->bytes = bytes;
        }
        one->owner = owner;
        fill(one->block, one->bytes, owner);
}

static void *random_thread(void *argument)
{
        uint32_t thread = (uint32_t)(uintptr_t)argument;
        struct random random = {thread};
        struct held held[BLOCKS] = {{0}};

        for (uint32_t i = 0; i < STEPS; i++) {
                random_step(&random, &held[random_below(&random, BLOCKS)], thread << 16 | i);
                if (random_below(&random, 8) == 0)
                        add_relaxed(&system_wrap.now_ms, 5);
                if (random_below(&random, 200) == 0)
                        pages_purge_all(random_below(&random, 64 * MIB));
        }
        for (int i = 0; i < BLOCKS; i++)
                if (held[i].block)
                        check_or_die(large_free(held[i].block));
        return NULL;
}

static void test_random_threads(void **state)
{
        pthread_t threads[3];
        struct page_counts counts;

        (void)state;
        skip_on_larger_pages();
        for (uintptr_t i = 0; i < 3; i++)
                assert_int_equal(pthread_create(&threads[i], NULL, random_thread, (void *)(i + 1)),
                                 0);
        for (int i = 0; i < 3; i++)
                pthread_join(threads[i], NULL);
        system_wrap.now_ms += 1;
        pages_purge_all(0);
        assert_int_equal(counts_now().blocks, 0);
        assert_int_equal(counts_now().bytes, 0);
        assert_int_equal(counts_now().huge_blocks, 0);
        assert_int_equal(counts_now().huge_bytes, 0);
        assert_int_equal(counts_now().huge_kept_bytes, 0);
        pages_count(&counts);
        assert_int_equal(counts.used_pages, 1);
        assert_int_equal(counts.free_touched_pages, 0);
}

/* Blocks side by side; the blocks before and behind the middle block are free, and it is kept. */
static void free_three(void *const blocks[3])
{
        assert_true(large_free(blocks[0]));
        assert_true(large_free(blocks[2]));
        assert_true(large_free(blocks[1]));
}

/*
 * The mapping freed last serves the next request of its length, wherever it lies, and only that
 * request.
 */
static void test_freed_last(void **state)
{
        enum { BYTES = 10 * PAGE_SIZE };
        void *blocks[4];

        (void)state;
        for (int i = 0; i < 4; i++) {
                blocks[i] = large_alloc(BYTES, 1, false);
                assert_true(i == 0 || (char *)blocks[i] == (char *)blocks[i - 1] + BYTES);
                fill(blocks[i], BYTES, 7);
        }
        free_three(blocks);
        assert_false(large_free(blocks[1]));
        assert_ptr_equal(large_alloc(BYTES, 1, false), blocks[1]);
        assert_true(is_filled(blocks[1], BYTES, 7));
        assert_ptr_not_equal(large_alloc(BYTES, 1, false), blocks[1]);

        assert_true(large_free(blocks[1]));
        assert_ptr_equal(large_alloc(BYTES, 1, true), blocks[1]);
        assert_true(is_zero(blocks[1], BYTES));

        assert_true(large_free(blocks[1]));
        assert_ptr_not_equal(large_alloc(BYTES - PAGE_SIZE, 1, false), blocks[1]);
        assert_int_equal((uintptr_t)large_alloc(BYTES, 16 * PAGE_SIZE, false) % (16 * PAGE_SIZE),
                         0);
}

/* KEPT-2: for all but requests of its length it is as free as any. */
static void test_freed_last_grown_over(void **state)
{
        enum { BYTES = 10 * PAGE_SIZE };
        void *block = large_alloc(BYTES, 1, false);
        void *behind = large_alloc(BYTES, 1, false);

        (void)state;
        assert_true(large_free(behind));
        assert_ptr_equal(large_resize(block, 2 * BYTES), block);
        assert_int_equal(counts_now().blocks, 1);
        assert_int_equal(counts_now().bytes, 2 * BYTES);
}

static void test_freed_last_joins_others(void **state)
{
        enum { BYTES = 10 * PAGE_SIZE };
        struct page_counts counts;
        void *blocks[3];

        (void)state;
        skip_on_larger_pages();
        for (int i = 0; i < 3; i++)
                blocks[i] = large_alloc(BYTES, 1, false);
        for (pages_count(&counts); counts.free_pages; pages_count(&counts))
                assert_non_null(large_alloc(PAGE_SIZE, 1, false));
        free_three(blocks);
        assert_ptr_equal(large_alloc(3 * BYTES, 1, false), blocks[0]);
        assert_true(large_free(blocks[0]));
        assert_int_equal(pages_purge_all(0), 3 * BYTES);
}

/* All threads that share a cell of kept blocks. */
enum { KEEPERS = 64, KEEPS = 300000 };
static uint32_t keepers;
static unsigned int keepers_choice;
static pthread_barrier_t keepers_made;

static void *keep_thread(void *argument)
{
        uint64_t own = (uint64_t)(uintptr_t)argument;

        if (own == 1)
                keepers_choice = thread_choice(16);
        pthread_barrier_wait(&keepers_made);
        if (thread_choice(16) != keepers_choice)
                return NULL;
        add_relaxed(&keepers, 1);
        for (int i = 0; i < KEEPS; i++) {
                uint64_t *block = large_alloc(12 * PAGE_SIZE, 1, false);

                store_relaxed(block, own);
                cpu_relax();
                check_or_die(load_relaxed(block) == own);
                check_or_die(large_free(block));
                if (i % 8 == 0)
                        counts_now(); /* frees kept mappings */
        }
        return NULL;
}

static void test_threads_of_one_cell(void **state)
{
        pthread_t threads[KEEPERS];

        (void)state;
        pthread_barrier_init(&keepers_made, NULL, KEEPERS);
        for (uintptr_t i = 0; i < KEEPERS; i++)
                assert_int_equal(pthread_create(&threads[i], NULL, keep_thread, (void *)(i + 1)),
                                 0);
        for (int i = 0; i < KEEPERS; i++)
                pthread_join(threads[i], NULL);
        assert_true(keepers > 1);
        assert_int_equal(counts_now().blocks, 0);
        assert_int_equal(counts_now().bytes, 0);
}

/* Two threads free a block: exactly one of them is told that it was a block. */
enum { RACES = 20000 };
static void *race_block[RACES];
static uint32_t race_step, race_wins;

static void *race_thread(void *argument)
{
        (void)argument;
        for (int i = 0; i < RACES; i++) {
                add_relaxed(&race_step, 1);
                while (load_relaxed(&race_step) < 2u * ((unsigned int)i + 1))
                        sched_yield();
                if (large_free(race_block[i]))
                        add_relaxed(&race_wins, 1);
        }
        return NULL;
}

static void test_double_free_race(void **state)
{
        pthread_t threads[2];

        (void)state;
        for (int i = 0; i < RACES; i++)
                assert_non_null(race_block[i] = large_alloc(PAGE_SIZE, 1, false));
        for (int i = 0; i < 2; i++)
                assert_int_equal(pthread_create(&threads[i], NULL, race_thread, NULL), 0);
        for (int i = 0; i < 2; i++)
                pthread_join(threads[i], NULL);
        assert_int_equal(race_wins, RACES);
        assert_int_equal(counts_now().blocks, 0);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                /*
                 * First: its children rely on the memory in use there being the most there ever
                 * was.
                 */
                cmocka_unit_test_setup(test_kept_mappings_yield_to_growth, start),
                cmocka_unit_test_setup(test_kept_mappings_yield_to_two_at_once, start),
                cmocka_unit_test_setup(test_sizes, start),
                cmocka_unit_test_setup(test_pages_in_return, start),
                cmocka_unit_test_setup(test_freed_last, start),
                cmocka_unit_test_setup(test_freed_last_grown_over, start),
                cmocka_unit_test_setup(test_freed_last_joins_others, start),
                cmocka_unit_test_setup(test_threads_of_one_cell, start),
                cmocka_unit_test_setup(test_impossible_sizes, start),
                cmocka_unit_test_setup(test_alignment, start),
                cmocka_unit_test_setup(test_addresses_of_nobody, start),
                cmocka_unit_test_setup(test_resize_in_the_heap, start),
                cmocka_unit_test_setup(test_resize_huge, start),
                cmocka_unit_test_setup(test_freed_mappings_are_used_again, start),
                cmocka_unit_test_setup(test_kept_mapping_that_fits, start),
                cmocka_unit_test_setup(test_kept_mappings_are_bounded, start),
                cmocka_unit_test_setup(test_kept_mappings_expire, start),
                cmocka_unit_test_setup(test_keeping_does_not_raise_the_peak, start),
                cmocka_unit_test_setup(test_heap_used_up, start),
                cmocka_unit_test_setup(test_kept_mappings_yield, start),
                cmocka_unit_test_setup(test_table, start),
                cmocka_unit_test_setup(test_table_without_metadata, start),
                cmocka_unit_test_setup(test_lowered_limit, start),
                cmocka_unit_test_setup(test_random_threads, start),
                cmocka_unit_test_setup(test_double_free_race, start),
                /* Last: others count on the most that was ever in use. */
                cmocka_unit_test_setup(test_all_is_unmapped, start),
        };

        system_init();
        return cmocka_run_group_tests_name("large", tests, NULL, NULL);
}
