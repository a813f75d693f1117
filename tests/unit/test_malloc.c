/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * The drop-in malloc, linked statically: this program's whole memory comes from it.
 */
#define _GNU_SOURCE
#include "engines.h"
#include "resident.h"
#include "walker.h"

#include "heap/heap.h"
#include "heap/reclaim.h"
#include "base/options.h"
#include "introspect/totals.h"
#include "page/large.h"
#include "process/fork.h"

#include <dlfcn.h>
#include <errno.h>
#include <malloc.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* Misuse and mallinfo are meant here. */
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wfree-nonheap-object"
#pragma GCC diagnostic ignored "-Wuse-after-free"
#endif

void cfree(void *block);
void free_sized(void *block, size_t size);
void free_aligned_sized(void *block, size_t align, size_t size);

/* The compiler shall not know sizes and alignments, or it folds the calls away. */
static volatile size_t opaque;

static size_t hide(size_t value)
{
        opaque = value;
        return opaque;
}

static bool is_filled(const void *block, int value, size_t bytes)
{
        const unsigned char *at = block;

        for (size_t i = 0; i < bytes; i++)
                if (at[i] != (unsigned char)value)
                        return false;
        return true;
}

static void is_ours(void **state)
{
        void *block = malloc(hide(100));

        check(heap_contains(block));
        free(block);
        block = strdup("libc's too");
        check(heap_contains(block));
        free(block);
}

static void every_size(void **state)
{
        for (size_t size = 0; size < 70000; size += size < 3000 ? 1 : 89) {
                char *block = malloc(size);

                check(block != NULL);
                check_equal((uintptr_t)block % 16, 0);
                check(malloc_usable_size(block) >= size);
                memset(block, 0x3c, malloc_usable_size(block));
                free(block);
        }
        free(NULL);
        check_equal(malloc_usable_size(NULL), 0);
}

/* Size 0 gives distinct objects. */
static void size_zero(void **state)
{
        void *a = malloc(hide(0));
        void *b = malloc(hide(0));
        void *c = calloc(hide(0), 5);

        check(a && b && c && a != b && b != c && a != c);
        free(a);
        free(b);
        free(c);
}

static void errors(void **state)
{
        static int target;
        void *untouched = &target;
        int saved;

        errno = 0;
        check(malloc(hide((size_t)PTRDIFF_MAX + 1)) == NULL);
        check_equal(errno, ENOMEM);
        errno = 0;
        check(malloc(hide(SIZE_MAX)) == NULL);
        check_equal(errno, ENOMEM);
        errno = 0;
        check(malloc(hide((size_t)PTRDIFF_MAX)) == NULL);
        check_equal(errno, ENOMEM);
        errno = 0;
        check(calloc(hide(SIZE_MAX / 2 + 2), 2) == NULL);
        check_equal(errno, ENOMEM);
        errno = 0;
        check(reallocarray(NULL, hide(SIZE_MAX / 2 + 2), 2) == NULL);
        check_equal(errno, ENOMEM);
        errno = 0;
        check(realloc(NULL, hide(SIZE_MAX)) == NULL);
        check_equal(errno, ENOMEM);
        errno = 0;
        check(aligned_alloc(hide(24), 100) == NULL);
        check_equal(errno, EINVAL);
        errno = 0;
        check(memalign(hide(SIZE_MAX / 2 + 2), 100) == NULL);
        check_equal(errno, EINVAL);
        errno = 0;
        check(aligned_alloc(hide(0), 100) == NULL);
        check_equal(errno, EINVAL);
        check(aligned_alloc(64, hide(SIZE_MAX)) == NULL);
        check(memalign(hide((size_t)1 << 62), 100) == NULL);
        check(pvalloc(hide(SIZE_MAX)) == NULL);
        check(valloc(hide(SIZE_MAX)) == NULL);
        errno = 77;
        saved = posix_memalign(&untouched, hide(24), 100);
        check_equal(saved, EINVAL);
        saved = posix_memalign(&untouched, hide(4), 100);
        check_equal(saved, EINVAL);
        saved = posix_memalign(&untouched, hide(0), 100);
        check_equal(saved, EINVAL);
        check_equal(errno, 77);
        saved = posix_memalign(&untouched, 64, hide(SIZE_MAX));
        check_equal(saved, ENOMEM);
        check_equal(errno, ENOMEM);
        check(untouched == &target);
}

static void free_keeps_errno(void **state)
{
        void *blocks[] = {malloc(10), malloc(100000), malloc(64 << 20), NULL};

        for (size_t i = 0; i < array_size(blocks); i++) {
                errno = 1234;
                free(blocks[i]);
                check_equal(errno, 1234);
        }
}

static void zeroed(void **state)
{
        for (size_t size = 1; size < 200000; size = size * 4 / 3 + 1)
                for (unsigned int round = 0; round < 3; round++) {
                        char *block = calloc(1, size);

                        check(is_filled(block, 0, size));
                        memset(block, 0xff, size);
                        free(block);
                        block = calloc(size, 2);
                        check(is_filled(block, 0, size * 2));
                        memset(block, 0xff, size * 2);
                        free(block);
                }
}

static void aligned(void **state)
{
        for (size_t align = 8; align <= 1 << 22; align *= 2)
                for (size_t size = 0; size < 100000; size = size * 3 + 7) {
                        void *blocks[3] = {NULL};

                        check_equal(posix_memalign(&blocks[0], align, size), 0);
                        blocks[1] = aligned_alloc(align, size);
                        blocks[2] = memalign(align, size);
                        for (unsigned int i = 0; i < 3; i++) {
                                check(blocks[i] != NULL);
                                check_equal((uintptr_t)blocks[i] % align, 0);
                                check(malloc_usable_size(blocks[i]) >= size);
                                memset(blocks[i], 0x11, size);
                        }
                        free(blocks[0]);
                        free_aligned_sized(blocks[1], align, size);
                        blocks[2] = realloc(blocks[2], size + 1000);
                        check(is_filled(blocks[2], 0x11, size));
                        free(blocks[2]);
                }
        /* Odd alignments are glibc's next power of two. */
        for (unsigned int i = 0; i < 8; i++) /* a single block may lie so by chance */
                check_equal((uintptr_t)memalign(hide(24), 100) % 32, 0);
        check_equal((uintptr_t)memalign(hide(3), 100) % 16, 0);
        check(memalign(hide(0), 100) != NULL);
        check_equal((uintptr_t)valloc(10) % 4096, 0);
        check(malloc_usable_size(pvalloc(hide(1))) >= 4096);
        check(malloc_usable_size(pvalloc(hide(4097))) >= 8192);
}

static void realloc_rules(void **state)
{
        char *block = realloc(NULL, hide(100));
        char *moved;

        check(block != NULL);
        memset(block, 5, 100);
        block = realloc(block, 5000);
        check(is_filled(block, 5, 100));
        block = realloc(block, 200000);
        check(is_filled(block, 5, 100));
        block = realloc(block, 40 << 20);
        check(is_filled(block, 5, 100));
        block = realloc(block, 80 << 20);
        check(is_filled(block, 5, 100));
        block = realloc(block, 50);
        check(is_filled(block, 5, 50));
        /* On failure the block stays. */
        moved = realloc(block, hide((size_t)PTRDIFF_MAX));
        check(moved == NULL);
        check(is_filled(block, 5, 50));
        block = reallocarray(block, 30, 10);
        check(is_filled(block, 5, 50));
        check(realloc(block, hide(0)) == NULL); /* glibc's meaning: freed */
}

static unsigned int moves_of_appends(void)
{
        enum { FIRST = 4096, LAST = 32000, STEP = 40 };
        char *block = malloc(hide(FIRST));
        unsigned int moves = 0;

        memset(block, 7, FIRST);
        for (size_t size = FIRST; size <= LAST; size += STEP) {
                char *grown = realloc(block, size);

                check(is_filled(grown, 7, size - STEP));
                memset(grown, 7, size);
                moves += grown != block;
                block = grown;
        }
        free(block);
        return moves;
}

/* A block that grows to a power of two in small steps has no more than that in the end. */
static void check_growth_to(size_t last)
{
        char *block = malloc(hide(3000));

        for (size_t size = 3000; size < last; size += 40)
                block = realloc(block, size);
        block = realloc(block, last);
        check_equal(malloc_usable_size(block), last);
        free(block);
}

static void child_realloc_appends(void)
{
        check_growth_to(8192);
        check_growth_to(16384);
        /* By the slow path, as all classes are new, and then by the fast path; three moves double a block. */
        check(moves_of_appends() <= 9);
        for (size_t size = 4096; size <= 32768; size += 256)
                free(malloc(hide(size)));
        check(moves_of_appends() <= 9);
}

/* A block that grows in small steps is not copied in each class. */
static void realloc_appends(void **state)
{
        child_passes("realloc_appends", "classes=fine,engine=slub");
        child_passes("realloc_appends", "classes=fine,engine=slub,slots=locked");
        child_passes("realloc_appends", "classes=fine,engine=slub,sheaf_capacity=0");
        child_passes("realloc_appends", "classes=fine,engine=slab");
}

/* A block that shrinks stays unless half of it would lie idle in a class that it need not have. */
static void realloc_shrinks(void **state)
{
        char *block = malloc(hide(1024));
        size_t usable = malloc_usable_size(block);

        memset(block, 6, 1024);
        check(realloc(block, usable / 2) == block);
        block = realloc(block, 100);
        check(malloc_usable_size(block) < usable / 2);
        check(is_filled(block, 6, 100));
        free(block);
        if (is_slob()) /* with blocks of the requested size */
                return;
        block = malloc(hide(16));
        check(realloc(block, 1) == block);
        free(block);
}

/* It takes the place of a block that was freed just before, and leaves that block's neighbours alone. */
static void realloc_shrinks_into_its_class(void **state)
{
        enum { BLOCKS = 64 };
        char *small[BLOCKS];

        for (size_t bytes = 16; bytes <= 2048; bytes *= 2) {
                char *block = malloc(hide(4 * bytes));

                memset(block, 6, 4 * bytes);
                for (unsigned int i = 0; i < BLOCKS; i++) {
                        small[i] = malloc(hide(bytes));
                        memset(small[i], 7, bytes);
                }
                free(small[BLOCKS / 2]);
                block = realloc(block, bytes);
                check(malloc_usable_size(block) < 2 * bytes);
                check(is_filled(block, 6, bytes));
                for (unsigned int i = 0; i < BLOCKS; i++) {
                        if (i == BLOCKS / 2)
                                continue;
                        check(is_filled(small[i], 7, bytes));
                        free(small[i]);
                }
                free(block);
        }
}

/* As ksize has them: for blocks of each size, and for objects of two merged caches. */
static void child_usable_sizes(void)
{
        struct kmem_cache *small = kmem_cache_create("small", 100, 0, 0, NULL);
        char *object = kmem_cache_alloc(small, GFP_KERNEL);

        for (size_t size = 1; size < 300000; size += size / 7 + 1) {
                char *block = malloc(hide(size));
                size_t usable = malloc_usable_size(block);

                check(usable >= size);
                check_equal(usable, ksize(block));
                /* A debug cache no longer holds it to the requested size. */
                memset(block, 2, usable);
                free(block);
        }
        check_equal(malloc_usable_size(object), ksize(object));
        kmem_cache_create("larger", 104, 0, 0, NULL);
        check_equal(malloc_usable_size(object), ksize(object));
        kmem_cache_free(small, object);
        printf("no report\n");
}

static void usable_sizes(void **state)
{
        static struct child_result result;
        static const char *const settings[] = {"", "slab_merge=1", "debug=FZPU",
                                               "profile_interval=1024"};

        for (unsigned int i = 0; i < array_size(settings); i++) {
                child_run("usable_sizes", settings[i], &result);
                check_equal(result.status, 0);
                assert_non_null(strstr(result.output, "no report\n"));
                assert_null(strstr(result.output, "BUG"));
        }
}

/* Also if there is no memory for a smaller block. */
static void child_realloc_stays(void)
{
        char *block = malloc(hide(1 << 20));

        check(block != NULL);
        memset(block, 6, 1 << 20);
        for (size_t size = 4096; size >= 64; size /= 2)
                while (malloc(hide(size)))
                        ;
        check(realloc(block, hide(64)) == block);
        check(is_filled(block, 6, 1 << 20));
}

/* A block that has moved once gets room to grow when it moves again, but needs none. */
static void child_realloc_without_room(void)
{
        enum { BYTES = 1200 << 10, STEP = 100 << 10 };
        struct kmem_group_stats now, with_other;
        char *block = malloc(hide(BYTES));
        void *behind = malloc(hide(BYTES));
        size_t size;

        check(block != NULL && behind != NULL);
        block = realloc(block, BYTES + STEP);
        check(block != NULL && malloc(hide(BYTES + STEP)) != NULL);
        size = malloc_usable_size(block);
        memset(block, 6, size);
        kmem_group_stats(NULL, &now);
        behind = malloc(hide(size + STEP));
        kmem_group_stats(NULL, &with_other);
        free(behind);
        check_equal(kmem_group_set_limit(NULL, with_other.bytes), 0);
        block = realloc(block, size + STEP);
        check(block != NULL && is_filled(block, 6, size));
        kmem_group_stats(NULL, &with_other);
        check(with_other.bytes - now.bytes < 2 * STEP);
}

/*
 * A block that grows in small steps, with other blocks in its way, moves a few times only, and leaves its room where it
 * shrinks.
 */
static void child_realloc_grows(void)
{
        enum {
                FIRST = 1100 << 10,
                LAST = 12 << 20,
                STEP = 4 << 10,
                OTHERS = 3000,
                MOVES_MOST = 20
        };
        static void *others[OTHERS];
        size_t size = FIRST;
        char *block = malloc(hide(size));
        unsigned int moves = 0;
        unsigned int count = 0;
        size_t room;

        check(block != NULL);
        memset(block, 7, size);
        while (size < LAST) {
                char *grown = realloc(block, size + STEP);

                check(grown != NULL && grown[0] == 7 && grown[size - 1] == 7);
                memset(grown + size, 7, STEP);
                size += STEP;
                moves += grown != block;
                block = grown;
                check((others[count++] = malloc(hide(2000 << 10))) != NULL);
        }
        check(moves <= MOVES_MOST);
        room = malloc_usable_size(block) - size;
        check(room <= size / 4);
        /* Half of it goes back at once. */
        block = realloc(block, size / 2);
        check(block && malloc_usable_size(block) <= size / 2 + system_page_bytes());
        free(block);
        while (count)
                free(others[--count]);
}

static void realloc_grows_with_room(void **state)
{
        child_passes("realloc_grows", "engine=slub");
        child_passes("realloc_grows", "engine=slab");
}

static void realloc_stays(void **state)
{
        child_passes("realloc_stays", "memory_limit=8M");
        child_passes("realloc_without_room", "memory_limit=400M");
}

static void frees_are_interchangeable(void **state)
{
        struct heap_totals before, after;
        void *large;

        heap_total(&before);
        kfree(malloc(hide(100)));
        free(kmalloc(100, 0));
        cfree(malloc(hide(10)));
        free_sized(malloc(hide(10)), 10);
        free_aligned_sized(aligned_alloc(64, 128), 64, 128);
        large = kmalloc(300000, 0);
        free(large);
        heap_total(&after);
        check_equal(after.objects_inuse, before.objects_inuse);
        check_equal(after.large.blocks, before.large.blocks);
}

/*
 * A zeroed block of up to 256 KiB is an object of its class. A longer one is only if its pages would have
 * to be cleared anyway, or if the last such blocks were filled: a large block leaves pages that were never
 * touched as they are.
 */
static void zeroed_pages(size_t size, bool may_be_sparse)
{
        char *blocks[2]; /* a cell keeps one of them, the other one's pages are free */
        /* With larger pages the system cannot have back a free page beside one in use. */
        bool has_touched = system_page_bytes() > PAGE_SIZE;
        bool is_closed = cache_is_closed(class_cache_paged(size));

        heap_trim(0);
        for (int round = 0; round < 3; round++) {
                for (int i = 0; i < 2; i++) {
                        blocks[i] = calloc(1, hide(size));
                        check(blocks[i] && is_filled(blocks[i], 0, size));
                        if (!may_be_sparse)
                                check(cache_of(blocks[i]) || is_closed);
                        else
                                check(round || has_touched || !cache_of(blocks[i]));
                }
                memset(blocks[0], 7, size);
                memset(blocks[1], 7, size);
                check(!round || cache_of(blocks[0]) || options.purge_delay == 0 || is_closed);
                free(blocks[0]);
                free(blocks[1]);
        }
}

/* A new block of zeros that is to be written by calloc, or left alone but for its first pages. */
static char *zeroed_block(size_t size, bool written)
{
        char *block = calloc(1, hide(size));

        check(block != NULL);
        if (written)
                check_equal(resident_bytes(block, size), size);
        else
                check(resident_bytes(block, size) < size / 4);
        return block;
}

/* calloc writes a block above 256 KiB if half of the last four of its doubling were filled. */
static void child_zeroed_by_use(void)
{
        enum { SIZE = 3 << 20, BLOCKS = 8 };
        char *blocks[BLOCKS];
        char *other[4];

        blocks[0] = zeroed_block(SIZE, false); /* nothing is known */
        blocks[1] = zeroed_block(SIZE, false); /* the one before is empty */
        memset(blocks[0], 7, SIZE / 2);
        blocks[2] = zeroed_block(SIZE, false); /* nor was any filled to its end */
        memset(blocks[0], 7, SIZE);
        memset(blocks[1], 7, SIZE);
        blocks[3] = zeroed_block(SIZE, true);  /* 2 of 3 */
        blocks[4] = zeroed_block(SIZE, true);  /* 2 of 4 */
        blocks[5] = zeroed_block(SIZE, false); /* 1 of 4, as the first is no longer one of them */

        /* The first block of a doubling is treated as those of half its size. */
        other[0] = zeroed_block(2 * SIZE, false);
        for (int i = 2; i < 6; i++)
                memset(blocks[i], 7, SIZE);
        other[1] = zeroed_block(2 * SIZE, false);
        other[2] = zeroed_block(4 * SIZE, false);
        other[3] = zeroed_block(SIZE / 2, false);
        blocks[6] = zeroed_block(SIZE, true);

        /* Blocks that cannot be read say nothing. */
        for (int i = 3; i < 7; i++)
                check_equal(mprotect(blocks[i], SIZE, PROT_NONE), 0);
        blocks[7] = zeroed_block(SIZE, false);
        for (int i = 3; i < 7; i++)
                check_equal(mprotect(blocks[i], SIZE, PROT_READ | PROT_WRITE), 0);
        for (int i = 0; i < 4; i++)
                free(other[i]);
        for (int i = 0; i < BLOCKS; i++)
                free(blocks[i]);
        heap_trim(0);
        /* Freed blocks say how they were used, though their pages are gone: 2 of the last 4 were filled. */
        free(zeroed_block(SIZE, true));
}

static void *ends_at_once(void *argument)
{
        return argument;
}

static void have_had_threads(void)
{
        pthread_t thread;

        check_equal(pthread_create(&thread, NULL, ends_at_once, NULL), 0);
        pthread_join(thread, NULL);
}

/*
 * Blocks that a program of several threads has begun to fill say nothing while they live. The first of a doubling
 * are used as those of half the size.
 */
static void child_zeroed_begun(void)
{
        enum { SIZE = 2 << 20, FIRST = 8, FILLED = 12, NEXT_LOOK = 16 };
        char *smaller = zeroed_block(SIZE / 2, false);
        char *blocks[NEXT_LOOK + 1];

        have_had_threads();
        memset(smaller, 7, SIZE / 2);
        for (int i = 0; i < FIRST; i++) {
                blocks[i] = zeroed_block(SIZE, true);
                blocks[i][0] = 7;
        }
        for (int i = FIRST; i < NEXT_LOOK; i++) {
                blocks[i] = zeroed_block(SIZE, false);
                memset(blocks[i], 7, i == FILLED ? SIZE : 1);
        }
        blocks[NEXT_LOOK] = zeroed_block(SIZE, true); /* one of the last 4 says anything */
        for (int i = 0; i <= NEXT_LOOK; i++)
                free(blocks[i]);
        free(smaller);
}

/* A single thread may be about to fill its newest block only. */
static void child_zeroed_begun_alone(void)
{
        enum { SIZE = 2 << 20, BLOCKS = 6, WRITTEN = 2 };
        char *smaller = zeroed_block(SIZE / 2, false);
        char *blocks[BLOCKS];

        memset(smaller, 7, SIZE / 2);
        for (int i = 0; i < BLOCKS; i++) {
                blocks[i] = zeroed_block(SIZE, i < WRITTEN);
                blocks[i][0] = 7;
        }
        for (int i = 0; i < BLOCKS; i++)
                free(blocks[i]);
        free(smaller);
}

/* A program that fills one block and uses the beginning of the next, in turn, has few of these written. */
static void child_zeroed_for_nothing(void)
{
        enum { SIZE = 3 << 20, BLOCKS = 60, WRITTEN_MOST_BLOCKS = 20 };
        static char *kept[BLOCKS];
        int written = 0;

        for (int i = 0; i < BLOCKS; i++) {
                char *filled = calloc(1, hide(SIZE));

                check(filled != NULL);
                memset(filled, 7, SIZE);
                __asm__ volatile(""
                                 :
                                 : "r"(filled)
                                 : "memory"); /* else nothing is written before free */
                kept[i] = calloc(1, hide(SIZE));
                check(kept[i] != NULL);
                written += resident_bytes(kept[i], SIZE) == SIZE;
                kept[i][0] = 7;
                free(filled);
                heap_trim(0);
        }
        check(written <= WRITTEN_MOST_BLOCKS);
        for (int i = 0; i < BLOCKS; i++)
                free(kept[i]);
}

/* Blocks are not written for what the program did with much smaller ones, nor many bytes for it. */
static void child_zeroed_far_from_filled(void)
{
        enum { SIZE = 300 << 10, TOGETHER = 16 << 20 };
        static char *blocks[3][3];
        char *smaller = zeroed_block(SIZE, false);

        memset(smaller, 7, SIZE);
        for (int i = 0; i < 3; i++) {
                blocks[0][i] = zeroed_block(30 << 20, false);
                blocks[0][i][0] = 7;
                blocks[1][i] = zeroed_block(8 * SIZE, false); /* three doublings above */
                blocks[1][i][0] = 7;
        }
        memset(blocks[1][1], 7, 8 * SIZE);
        memset(blocks[1][2], 7, 8 * SIZE);
        for (int i = 0; i < 3; i++) {
                blocks[2][i] = zeroed_block(7 << 20, i < TOGETHER / (7 << 20));
                blocks[2][i][0] = 7;
        }
        for (int i = 0; i < 3; i++)
                for (int j = 0; j < 3; j++)
                        free(blocks[i][j]);
        free(smaller);
}

/* A block that realloc resizes into another doubling has been used so far as it was. */
static void child_zeroed_resized(void)
{
        enum { SIZE = 2 << 20 };
        char *block = zeroed_block(SIZE, false);
        char *longer;

        memset(block, 7, SIZE);
        longer = realloc(block, 3 * SIZE / 2);
        check(longer == block);
        free(longer);
        heap_trim(0);
        free(zeroed_block(SIZE, true));
}

/* A look at a block whose first page is zero reads no other page of it. */
static void child_zeroed_looks_once(void)
{
        enum { SIZE = 2 << 20, PAGES = SIZE / 4096 };
        static unsigned char resident[PAGES];
        char *block = zeroed_block(SIZE, false);
        unsigned int touched = 0;

        free(zeroed_block(SIZE, false));
        check_equal(mincore(block, SIZE, resident), 0);
        for (int i = 0; i < PAGES; i++)
                touched += resident[i] & 1;
        check(touched <= 1);
        free(block);
}

/* Blocks that were begun and freed stayed sparse. */
static void child_zeroed_begun_and_freed(void)
{
        enum { SIZE = 3 << 20 };
        char *blocks[4];

        for (int i = 0; i < 4; i++) {
                blocks[i] = zeroed_block(SIZE, false);
                ((volatile char *)blocks[i])[0] = 7;
        }
        memset(blocks[0], 7, SIZE);
        for (int i = 1; i < 4; i++)
                free(blocks[i]);
        heap_trim(0);
        free(zeroed_block(SIZE, false)); /* 1 of 4 */
        free(blocks[0]);
}

/* A program that goes on to use its blocks in another way is noticed after eight. */
static void child_zeroed_by_new_use(void)
{
        enum { SIZE = 3 << 20, BEFORE = 9, AFTER = 17 };
        static char *blocks[BEFORE + AFTER];

        for (int i = 0; i < BEFORE; i++)
                blocks[i] = zeroed_block(SIZE, false);
        for (int i = BEFORE; i < BEFORE + AFTER; i++)
                memset(blocks[i] = calloc(1, hide(SIZE)), 7, SIZE);
        free(zeroed_block(SIZE, true));
        for (int i = 0; i < BEFORE + AFTER; i++)
                free(blocks[i]);
}

static void child_zeroed_first_of_doubling(void)
{
        enum { SIZE = 3 << 20 };
        char *smaller = zeroed_block(SIZE, false);
        char *larger;

        memset(smaller, 7, SIZE);
        larger = zeroed_block(2 * SIZE, true);
        free(larger);
        free(smaller);
}

static void zeroed_by_use(void **state)
{
        skip_on_larger_pages();
        child_passes("zeroed_by_use", "thp=never");
        child_passes("zeroed_by_new_use", "thp=never");
        child_passes("zeroed_first_of_doubling", "thp=never");
        child_passes("zeroed_begun", "thp=never");
        child_passes("zeroed_begun_alone", "thp=never");
        child_passes("zeroed_for_nothing", "thp=never");
        child_passes("zeroed_far_from_filled", "thp=never");
        child_passes("zeroed_resized", "thp=never");
        child_passes("zeroed_looks_once", "thp=never");
        child_passes("zeroed_begun_and_freed", "thp=never");
}

/* Resident memory of the process, without the system's page of zeros. */
static size_t resident_of_process(void)
{
        FILE *file = fopen("/proc/self/statm", "r");
        size_t pages;

        check(file && fscanf(file, "%*u %zu", &pages) == 1);
        fclose(file);
        return pages * system_page_bytes();
}

/* Pages of a freed block that read as zero are not written when calloc gives them out again. */
static void zero_pages_stay(size_t size)
{
        volatile char *block = malloc(hide(size)); /* else no byte is written before free */
        char *again;
        size_t before;

        check(block != NULL);
        block[0] = 7;
        block[size - 1] = 7;
        free((void *)block);
        before = resident_of_process();
        again = calloc(1, hide(size));
        check(again == block && is_filled(again, 0, size));
        check(resident_of_process() < before + size / 4);
        free(again);
}

static void child_zero_pages_stay(void)
{
        resident_of_process(); /* its buffer is there before a block's pages are free */
        /* The longest first: a larger block would take from a slot what rests there, and lie beside it. */
        zero_pages_stay(31 << 20);
        zero_pages_stay(9 << 20);
        zero_pages_stay(1 << 20);
}

static void zero_pages_stay_unwritten(void **state)
{
        skip_on_larger_pages();
        child_passes("zero_pages_stay", "thp=never");
}

static void skip_without_classes_of_pages(void)
{
        skip_unless_engine(slub_engine);
        if (options.classes == CLASSES_KERNEL)
                skip_because("classes=kernel has none");
        if (!cache_would_have_sheaves("kmalloc-36k", 0))
                skip_because("debug caches have no sheaves");
}

/*
 * Blocks of 32 KiB to 1 MiB are objects of classes of pages, unless they were moved, or are zeroed and above
 * 256 KiB and no pages that were touched are free.
 */
static void child_classes_of_pages(void)
{
        static const size_t sizes[][2] = {
                {32769, 36864}, {65536, 65536}, {65537, 81920}, {131073, 163840}, {262144, 262144}};
        /* The longest first: the other one's blocks say something about it (cleared_are_filled). */
        static const size_t longer[][2] = {{1 << 20, 1 << 20}, {262145, 327680}};
        char *block, *moved;

        for (size_t i = 0; i < array_size(sizes); i++) {
                block = malloc(hide(sizes[i][0]));
                check(block && cache_of(block));
                check_equal(malloc_usable_size(block), sizes[i][1]);
                memset(block, 7, sizes[i][1]);
                free(block);
                zeroed_pages(sizes[i][0], false);
        }
        for (size_t i = 0; i < array_size(longer); i++) {
                block = malloc(hide(longer[i][0]));
                check(block && cache_of(block));
                check_equal(malloc_usable_size(block), longer[i][1]);
                free(block);
                zeroed_pages(longer[i][0], true);
        }
        block = malloc(hide((1 << 20) + 1));
        check(block && !cache_of(block));
        free(block);
        block = malloc(hide(40000));
        block[39999] = 7;
        moved = realloc(block, hide(90000));
        check(moved && !cache_of(moved) && moved[39999] == 7);
        /* It grows and shrinks in place, if nothing is behind it. */
        moved = realloc(moved, hide(40000));
        check(moved && moved[39999] == 7);
        free(moved);
}

/* In a child, as blocks of calloc that were freed before say something about those here. */
static void classes_of_pages(void **state)
{
        const char *own = getenv("KMEM_OPTIONS");

        skip_without_classes_of_pages();
        child_passes("classes_of_pages", own ? own : "");
}

enum {
        PAGE_CLASSES = 24,
        BLOCKS_OF_CLASS = 8,
        COUNT_EACH = 8, /* blocks, from one count of a full slot to the next (percpu/rest.c) */
};

/* The sizes of the classes of pages, ascending; returns their number. */
static unsigned int sizes_of_pages(size_t sizes[PAGE_CLASSES])
{
        unsigned int count = 0;
        const struct kmem_cache *cache;

        for (size_t size = class_bytes_max() + 1; (cache = class_cache_paged(size)); size++) {
                check(count < PAGE_CLASSES);
                size = sizes[count++] = cache->size;
        }
        return count;
}

static void *resting_block(struct kmem_cache *cache)
{
        return percpu_unmarked(cache, percpu_alloc_resting(cache));
}

static uint64_t resting(struct kmem_cache *cache)
{
        struct kmem_cache_info info = {.size = sizeof(info)};

        check_equal(kmem_cache_info(cache, &info), 0);
        return info.objects_resting;
}

static size_t bytes_at_rest(const size_t *sizes, unsigned int count)
{
        size_t bytes = 0;

        for (unsigned int i = 0; i < count; i++)
                bytes += resting(class_cache_paged(sizes[i])) * sizes[i];
        return bytes;
}

static void *written_block(size_t size)
{
        char *block = malloc(hide(size));

        check(block != NULL);
        for (size_t at = 0; at < size; at += PAGE_SIZE)
                ((volatile char *)block)[at] = 1;
        return block;
}

/* A slot that was full before a trim is counted after a few blocks, and all classes count in full (REST-3). */
static void have_slot_counted(const size_t *sizes, unsigned int count)
{
        for (unsigned int i = 0; i < count; i++)
                class_cache_paged(sizes[i])->untouched = 0;
        for (unsigned int i = 0; i < COUNT_EACH; i++)
                free(written_block(sizes[0]));
}

/* Frees blocks until so many do not come to rest that a count refused one; true if it did. Their places are NULL then. */
static bool fill_slot(void *(*blocks)[BLOCKS_OF_CLASS], const size_t *sizes, unsigned int count)
{
        unsigned int refused = 0;

        for (unsigned int i = 0; i < count; i++) {
                for (unsigned int k = 0; k < BLOCKS_OF_CLASS; k++) {
                        size_t before = bytes_at_rest(sizes, count);

                        free(blocks[i][k]);
                        blocks[i][k] = NULL;
                        refused += bytes_at_rest(sizes, count) <= before;
                        if (refused == 2 * COUNT_EACH)
                                return true;
                }
        }
        return false;
}

/* A block that is aligned to a page at most is of a class of pages if malloc's of its size is. */
static void aligned_blocks_of_pages(void **state)
{
        size_t sizes[PAGE_CLASSES];
        unsigned int count;

        skip_without_classes_of_pages();
        count = sizes_of_pages(sizes);
        for (unsigned int i = 0; i < count; i++)
                for (size_t align = 32; align <= PAGE_SIZE; align *= 2) {
                        void *block = memalign(align, hide(sizes[i] - 1));

                        check(block != NULL);
                        check_equal((uintptr_t)block % align, 0);
                        check(cache_of(block) == class_cache_paged(sizes[i]));
                        free(block);
                }
}

static void stay_on_this_cpu(void)
{
        cpu_set_t here;

        CPU_ZERO(&here);
        CPU_SET((size_t)sched_getcpu(), &here);
        check_equal(sched_setaffinity(0, sizeof(here), &here), 0);
}

/* Blocks of each class of pages, in a heap that was trimmed; returns the number of classes, whose sizes it sets. */
static unsigned int take_blocks_of_pages(void *blocks[][BLOCKS_OF_CLASS], size_t *sizes)
{
        unsigned int count = sizes_of_pages(sizes);

        heap_trim(0);
        have_slot_counted(sizes, count);
        for (unsigned int i = 0; i < count; i++)
                for (unsigned int k = 0; k < BLOCKS_OF_CLASS; k++)
                        blocks[i][k] = written_block(sizes[i]);
        return count;
}

/* The bytes that REST-1 lets a slot have at rest. */
static size_t rest_share(void)
{
        bool alone = system_threads() == THREADS_ONE;
        size_t share = heap.accessible_bytes / (alone ? 16 : 4) / max_of(slots_made_count(), 1u);

        return max_of(share, (size_t)(alone ? 256 : 1024) << 10);
}

/*
 * REST-1: however many blocks of pages are freed, a slot's share of them rests, and a block of each class (REST-2).
 * REST-2: a block whose class has none at rest comes to rest though the slot is full.
 */
static void blocks_of_pages_rest(void **state)
{
        static void *blocks[PAGE_CLASSES][BLOCKS_OF_CLASS];
        size_t sizes[PAGE_CLASSES];
        size_t sum = 0;
        unsigned int count;
        void *rested[64];
        cpu_set_t all;
        size_t taken = 0;
        struct kmem_cache *last;
        size_t share;
        void *block;

        skip_without_classes_of_pages();
        /* The thread stays with its slot. */
        check_equal(sched_getaffinity(0, sizeof(all), &all), 0);
        stay_on_this_cpu();
        count = take_blocks_of_pages(blocks, sizes);
        last = class_cache_paged(sizes[count - 1]);
        /* A block that comes to a full slot by REST-2 makes no room for others when it goes. */
        if (!cache_is_closed(last) && last->sheaf_capacity) {
                check(fill_slot(blocks, sizes, count - 1));
                for (unsigned int i = 0; i < 2 * COUNT_EACH; i++) {
                        free(blocks[count - 1][0]);
                        check(slot_current()->rest_budget + (int64_t)bytes_at_rest(sizes, count) <=
                              slot_current()->rest_most);
                        check((blocks[count - 1][0] = malloc(hide(sizes[count - 1]))) != NULL);
                }
        }
        /* Without a bound, all that sheaves, stocks and barns have room for would rest. */
        for (unsigned int i = 0; i < count - 1; i++) {
                sum += sizes[i];
                for (unsigned int k = 0; k < BLOCKS_OF_CLASS; k++)
                        free(blocks[i][k]);
        }
        share = rest_share() * max_of(slots_made_count(), 1u);
        check(bytes_at_rest(sizes, count - 1) <= share + slots_made_count() * sum);
        while (taken < array_size(rested) && (rested[taken] = resting_block(last)) != NULL)
                taken++;
        check(taken < array_size(rested));
        block = blocks[count - 1][0];
        free(block);
        if (!cache_is_closed(last) && last->sheaf_capacity)
                for (unsigned int i = 0; i < 2 * COUNT_EACH; i++) {
                        check(resting_block(last) == block);
                        free(block);
                }
        for (unsigned int k = 1; k < BLOCKS_OF_CLASS; k++)
                free(blocks[count - 1][k]);
        while (taken)
                free(rested[--taken]);
        check_equal(sched_setaffinity(0, sizeof(all), &all), 0);
}

/* Takes blocks, writes to each page or to none, and frees them; returns what the first look that found less found. */
static uint32_t burst_of_blocks(struct kmem_cache *cache, bool written)
{
        enum { BURST = 48 };
        uint32_t found = 0;
        void *blocks[BURST];

        for (unsigned int i = 0; i < BURST; i++)
                check((blocks[i] = written ? written_block(cache->size)
                                           : malloc(hide(cache->size))) != NULL);
        for (unsigned int i = 0; i < BURST; i++) {
                free(blocks[i]);
                if (!found)
                        found = cache->untouched;
        }
        return found;
}

/*
 * REST-3: more blocks than the bound has room for come to rest if the program wrote to few of their pages, and are
 * counted in full soon after it began to fill them. REST-4: their sheaves are larger meanwhile.
 */
static void child_rest_untouched(void)
{
        enum { ROUNDS = 200 };
        static const size_t size = 160 << 10;
        struct kmem_cache *cache = class_cache_paged(size);
        uint32_t capacity = cache->sheaf_capacity;
        uint32_t found = 0;

        stay_on_this_cpu();
        check_equal(burst_of_blocks(cache, true), 0);
        heap_trim(0);
        for (unsigned int i = 0; i < ROUNDS; i++)
                burst_of_blocks(cache, false);
        check(cache->untouched > 0);
        check(cache->untouched <= size - (size >> 3));
        check(bytes_at_rest(&size, 1) > rest_share() + slots_made_count() * size);
        check(cache->sheaf_capacity > capacity || !cache->capacity_follows);
        for (unsigned int i = 0; i < ROUNDS && cache->untouched; i++)
                burst_of_blocks(cache, true);
        check_equal(cache->untouched, 0);
        check_equal(cache->sheaf_capacity, capacity);
        /* A look that finds less counts for a quarter. */
        heap_trim(0);
        for (unsigned int i = 0; i < ROUNDS && !found; i++)
                found = burst_of_blocks(cache, false);
        check(found > 0 && found <= size / 4);
        /* A capacity that somebody sets stays. */
        lock_take(&cache_mutex);
        percpu_change_capacity(cache, capacity);
        lock_drop(&cache_mutex);
        for (unsigned int i = 0; i < ROUNDS; i++)
                burst_of_blocks(cache, false);
        check_equal(cache->sheaf_capacity, capacity);
}

static void skip_without_sheaves_of_pages(void)
{
        const struct kmem_cache *cache;

        skip_without_classes_of_pages();
        cache = class_cache_paged(160 << 10);
        if (cache_is_closed(cache) || cache->sheaf_capacity < 2 || !options.slot_cache_max)
                skip_because("the class has no sheaves with room for a burst");
}

/* In a child, as a large heap lets more rest than a burst has. */
static void blocks_of_pages_rest_untouched(void **state)
{
        const char *own = getenv("KMEM_OPTIONS");

        skip_without_sheaves_of_pages();
        child_passes("rest_untouched", own ? own : "");
}

/* Blocks of pages that are freed in bulk come to rest within the bound, too. */
static void blocks_of_pages_in_bulk_rest(void **state)
{
        static void *blocks[PAGE_CLASSES][BLOCKS_OF_CLASS];
        size_t sizes[PAGE_CLASSES];
        cpu_set_t all;
        unsigned int count;
        size_t sum = 0;
        size_t share;

        skip_without_classes_of_pages();
        check_equal(sched_getaffinity(0, sizeof(all), &all), 0);
        stay_on_this_cpu();
        count = take_blocks_of_pages(blocks, sizes);
        for (unsigned int i = 0; i < count; i++) {
                sum += sizes[i];
                kfree_bulk(BLOCKS_OF_CLASS, blocks[i]);
        }
        share = max_of(heap.accessible_bytes / 4, (size_t)1 << 20);
        check(bytes_at_rest(sizes, count) <= share + slots_made_count() * sum);
        check_equal(sched_setaffinity(0, sizeof(all), &all), 0);
}

/*
 * A heap that grows again after a peak has what rests in other sizes taken away, as one that grows for the first
 * time.
 */
static void child_grows_after_a_peak(void)
{
        enum { PEAK = 64 << 10, AGAIN = 24 << 10, BYTES = 1000, RESTING = 6, LONG = 20480 };
        static void *small[PEAK];
        void *blocks[RESTING];
        struct kmem_cache *cache;

        stay_on_this_cpu();
        for (int i = 0; i < PEAK; i++)
                check((small[i] = malloc(hide(BYTES))) != NULL);
        for (int i = 0; i < PEAK; i++)
                free(small[i]);
        malloc_trim(0);
        for (int i = 0; i < RESTING; i++)
                check((blocks[i] = malloc(hide(LONG))) != NULL);
        cache = cache_of(blocks[0]);
        for (int i = 0; i < RESTING; i++)
                free(blocks[i]);
        check(resting(cache) >= RESTING);
        for (int i = 0; i < AGAIN; i++)
                check((small[i] = malloc(hide(BYTES))) != NULL);
        check_equal(resting(cache), 0);
        for (int i = 0; i < AGAIN; i++)
                free(small[i]);
}

static void grows_after_a_peak(void **state)
{
        skip_on_larger_pages();
        child_passes("grows_after_a_peak", "engine=slub");
}

/* What rests of objects above a page goes to the free pages for a large block's new ones, if it is much of the heap. */
static void child_rest_ends(void)
{
        enum {
                BLOCKS = 6,
                SHORT = 20480,
                LONG = 81920,
                LESS = 200 << 12,
                LARGE = 2 << 20,
                MUCH = 8 << 20
        };
        void *blocks[BLOCKS], *others[BLOCKS];
        struct kmem_cache *cache, *other;

        if (system_threads() != THREADS_ONE)
                skip_because("libc does not say that there is a single thread");
        stay_on_this_cpu();
        for (int i = 0; i < BLOCKS; i++) {
                blocks[i] = written_block(LONG);
                others[i] = written_block(SHORT);
        }
        cache = cache_of(blocks[0]);
        other = cache_of(others[0]);
        for (int i = 0; i < BLOCKS; i++) {
                free(blocks[i]);
                free(others[i]);
        }
        check(resting(cache) && resting(other));
        check(malloc(hide(LESS)) != NULL);
        check(resting(cache) && resting(other));
        check(malloc(hide(LARGE)) != NULL);
        check_equal(resting(cache) + resting(other), 0);
        /* No block of pages rests now. */
        free(written_block(SHORT));
        check(malloc(hide(LARGE)) != NULL);
        check(resting(other) != 0);
        /* A block is little of this heap. */
        free(written_block(LONG));
        check(malloc(hide(MUCH)) != NULL);
        check(resting(cache) != 0);
}

static void rest_ends(void **state)
{
        skip_on_larger_pages();
        skip_without_classes_of_pages();
        child_passes("rest_ends", "engine=slub");
}

/*
 * The slots' budgets have room for most of their bounds. A pair of malloc and free leaves a budget as it is
 * (REST-1); and a size that the program goes on to comes to rest, though a full slot has others (percpu_look_full).
 */
static void blocks_of_pages_in_use_rest(void **state)
{
        enum { PAIRS = 1000, BURST = 2 };
        static void *blocks[PAGE_CLASSES][BLOCKS_OF_CLASS];
        size_t sizes[PAGE_CLASSES];
        unsigned int count;
        cpu_set_t all;
        struct kmem_cache *last;
        int64_t budget;
        void *burst[BURST];
        bool rests;

        skip_without_classes_of_pages();
        count = sizes_of_pages(sizes);
        last = class_cache_paged(sizes[0]);
        if (cache_is_closed(last) || last->sheaf_capacity < BURST)
                skip_because("the classes have no sheaves for a burst");
        check_equal(sched_getaffinity(0, sizeof(all), &all), 0);
        stay_on_this_cpu();
        heap_trim(0);
        have_slot_counted(sizes, count);
        /* The largest class of which a slot's bound has room for a burst. */
        while (count > 2 && BURST * (int64_t)sizes[count - 1] > slot_current()->rest_most)
                count--;
        last = class_cache_paged(sizes[count - 1]);
        budget = slot_current()->rest_budget;
        for (unsigned int i = 0; i < PAIRS; i++)
                free(malloc(hide(sizes[0])));
        check_equal(slot_current()->rest_budget, budget);
        for (unsigned int i = 0; i < count - 1; i++)
                for (unsigned int k = 0; k < BLOCKS_OF_CLASS; k++)
                        blocks[i][k] = written_block(sizes[i]);
        for (unsigned int i = 0; i < count - 1; i++)
                for (unsigned int k = 0; k < BLOCKS_OF_CLASS; k++)
                        free(blocks[i][k]);
        for (unsigned int i = 0; i < PAIRS; i++) {
                for (unsigned int k = 0; k < BURST; k++)
                        burst[k] = written_block(sizes[count - 1]);
                for (unsigned int k = 0; k < BURST; k++)
                        free(burst[k]);
        }
        rests = (burst[0] = resting_block(last)) && (burst[1] = resting_block(last));
        check(rests);
        free(burst[0]);
        free(burst[1]);
        check_equal(sched_setaffinity(0, sizeof(all), &all), 0);
}

static void mallinfo_counts(void **state)
{
        struct mallinfo2 before = mallinfo2();
        struct mallinfo2 after;
        void *small = malloc(hide(1000));
        void *large = malloc(hide(200000));
        void *huge = malloc(hide(50 << 20));

        after = mallinfo2();
        check(after.uordblks >= before.uordblks + 1000 + 200000);
        check(after.uordblks <= before.uordblks + 1200 + 230000);
        check_equal(after.uordblks + after.fordblks, after.arena);
        check(after.keepcost <= after.fordblks);
        check_equal(after.hblks, before.hblks + 1);
        check(after.hblkhd >= before.hblkhd + (50 << 20));
        check(after.hblkhd <= before.hblkhd + (51 << 20));
        free(small);
        free(large);
        free(huge);
        after = mallinfo2();
        check_equal(after.uordblks, before.uordblks);
        check_equal(after.hblks, before.hblks);
        check(mallinfo().uordblks > 0);
}

/* As long as malloc_trim rests at most. */
static void rest_from_trims(void)
{
        usleep(10000);
}

static void trim(void **state)
{
        enum { COUNT = 20000 };
        static void *blocks[COUNT];
        struct mallinfo2 info;

        skip_on_larger_pages();
        for (unsigned int i = 0; i < COUNT; i++)
                memset(blocks[i] = malloc(500), 1, 500);
        for (unsigned int i = 0; i < COUNT; i++)
                free(blocks[i]);
        rest_from_trims();
        malloc_trim(0);
        info = mallinfo2();
        check_equal(info.keepcost, 0);
        rest_from_trims();
        check_equal(malloc_trim(0), 0); /* nothing is left to give back */
}

/*
 * Whether one of a few trims after a rest gives a freed block back. With a delay of 0 the frees
 * have done it. Otherwise the reclaim thread is first where a rest lasts longer than the delay, as
 * on a machine with much other work.
 */
static bool trims_after_a_rest(void)
{
        bool trimmed = false;

        for (unsigned int i = 0; i < 10 && !trimmed; i++) {
                free(memset(malloc(100000), 1, 100000));
                rest_from_trims();
                trimmed = malloc_trim(0);
        }
        return trimmed;
}

/*
 * Page by page as fast as it goes: most calls do nothing, and the next call after a rest does all
 * the work.
 */
static void trim_in_a_loop(void **state)
{
        enum { CALLS = 1000 };
        unsigned int trimmed = 0; /* calls that gave something back */

        skip_on_larger_pages();
        rest_from_trims();
        for (unsigned int i = 0; i < CALLS; i++) {
                char *block = malloc(100000);

                block[0] = 1;
                free(block);
                trimmed += (unsigned int)malloc_trim(0);
        }
        check(trimmed < CALLS);
        check_equal(trims_after_a_rest(), options.purge_delay != 0);
        check_equal(mallinfo2().keepcost, 0);
}

static size_t number_behind(const char *text, const char *words)
{
        const char *found = strstr(text, words);

        check(found != NULL);
        return strtoul(found + strlen(words), NULL, 10);
}

static unsigned int count_of(const char *text, const char *words)
{
        unsigned int count = 0;

        while ((text = strstr(text, words))) {
                text += strlen(words);
                count++;
        }
        return count;
}

static void tuning(void **state)
{
        const char *rest;
        FILE *file = tmpfile();
        static char text[1 << 16];
        struct kmem_cache *cache = kmem_cache_create("a<b>&\"c\n\x7f\xc3\xbc", 100, 0, 0, NULL);
        /* Half of a surrogate pair, a long form of '/', and a beginning of something; a euro sign. */
        struct kmem_cache *bytes = kmem_cache_create("\xed\xa0\x80\xc0\xaf\xf5\xe2\x82\xacz", 100,
                                                     0, SLAB_NO_MERGE, NULL);
        /* Blocks of 48 bytes; the last of them belongs to the block before. */
        struct kmem_cache *cut =
                kmem_cache_create("0123456789012345678901234567890123456789012345\xc3\xbc", 100, 0,
                                  SLAB_NO_MERGE, NULL);

        check(cache && bytes && cut);
        check_equal(mallopt(M_MMAP_THRESHOLD, 1 << 20), 1);
        check_equal(mallopt(M_ARENA_MAX, 1), 1);
        check_equal(mallopt(-9999, 1), 0);
        errno = 0;
        check_equal(malloc_info(1, file), -1);
        check_equal(errno, EINVAL);
        check_equal(malloc_info(0, file), 0);
        rewind(file);
        text[fread(text, 1, sizeof(text) - 1, file)] = '\0';
        check(strstr(text, "<malloc version=\"1\""));
        check(strstr(text, "name=\"kmalloc-"));
        check(strstr(text, "</malloc>"));
        rest = strstr(text, "<total type=\"rest\"");
        check(rest != NULL);
        check_equal(number_behind(text, "<total type=\"inuse\" size=\"") +
                            number_behind(rest, " size=\""),
                    number_behind(text, "<system type=\"current\" size=\""));
        check_equal(count_of(text, "<system type=\"max\""), 2);
        check_equal(count_of(text, "<aspace type=\"total\""), 2);
        check_equal(count_of(text, "<total type=\"rest\""), 2);
        check_equal(count_of(text, "<total type=\"mmap\""), 1);
        check(strstr(text, "name=\"a&lt;b&gt;&amp;&quot;c!!\xc3\xbc\""));
        check(strstr(text, "name=\"!!!!!!\xe2\x82\xacz\""));
        check(strstr(text, "name=\"0123456789012345678901234567890123456789012345!\""));
        kmem_cache_destroy(cache);
        kmem_cache_destroy(bytes);
        kmem_cache_destroy(cut);
        fclose(file);
}

/* The reclaim thread may hold a block for a moment. */
static bool page_locks_become_free(void)
{
        for (int round = 0; round < 1000; round++) {
                if (heap_page_locks_free())
                        return true;
                usleep(1000);
        }
        return false;
}

/*
 * A thread that lowers the limit of the address space need not wait for the set of caches, which a
 * trim holds.
 */
static void page_locks_beside_the_set_of_caches(void **state)
{
        bool beside_caches, beside_huge;

        free(malloc(hide(64)));
        lock_take(&cache_mutex);
        beside_caches = page_locks_become_free();
        lock_drop(&cache_mutex);
        lock_take(&huge_lock);
        beside_huge = heap_page_locks_free();
        lock_drop(&huge_lock);
        check(beside_caches);
        check(!beside_huge);
        check(page_locks_become_free());
}

static void child_stats(void)
{
        static void *blocks[3];
        struct mallinfo2 info;

        for (unsigned int i = 0; i < 3; i++)
                blocks[i] = malloc(hide(40 << 20));
        for (unsigned int i = 0; i < 2; i++)
                free(blocks[i]);
        free(malloc(hide(64)));
        info = mallinfo2();
        malloc_stats();
        check(info.hblks == 1 && info.hblkhd >= 40 << 20);
        fprintf(stderr, "expected %zu %zu\n", info.arena, info.uordblks);
}

/*
 * Glibc's lines come first, in its order and form, with the figures of mallinfo2; then comes
 * libkmem's table.
 */
static void stats(void **state)
{
        static struct child_result result;
        size_t arena, in_use, total, total_in_use, regions, mapped, expected, expected_in_use;
        int end = 0;

        child_run("stats", NULL, &result);
        assert_int_equal(result.status, 0);
        assert_int_equal(sscanf(result.output,
                                "Arena 0:\nsystem bytes     = %10zu\nin use bytes     = %10zu\n"
                                "Total (incl. mmap):\nsystem bytes     = %10zu\n"
                                "in use bytes     = %10zu\nmax mmap regions = %10zu\n"
                                "max mmap bytes   = %10zu\n%n",
                                &arena, &in_use, &total, &total_in_use, &regions, &mapped, &end),
                         6);
        assert_int_equal(sscanf(strstr(result.output, "expected "), "expected %zu %zu", &expected,
                                &expected_in_use),
                         2);
        assert_int_equal(arena, expected);
        assert_int_equal(in_use, expected_in_use);
        assert_int_equal(total - arena, total_in_use - in_use);
        assert_int_equal(total - arena, 40 << 20);
        assert_int_equal(regions, 3);
        assert_int_equal(mapped, 120 << 20);
        assert_memory_equal(result.output, "Arena 0:\nsystem bytes     = ", 28);
        assert_int_equal(strncmp(result.output + end, "slabinfo - version: 2.1", 23), 0);
        assert_non_null(strstr(result.output, "kmalloc-64 "));
}

/* Contents survive any sequence of calls. */
static void random_calls(void **state)
{
        enum { BLOCKS = 300 };
        static struct {
                unsigned char *at;
                size_t bytes;
                unsigned char fill;
        } blocks[BLOCKS];
        uint64_t random = 42;

        for (unsigned int step = 0; step < 60000; step++) {
                unsigned int i = (unsigned int)(random_step(&random) % BLOCKS);
                size_t bytes = random_step(&random) % (step % 50 ? 2000 : 200000);
                size_t kept = min_of(bytes, blocks[i].bytes);
                unsigned int choice = (unsigned int)(random_step(&random) % 4);

                if (blocks[i].at)
                        check(is_filled(blocks[i].at, blocks[i].fill, blocks[i].bytes));
                if (choice == 0 && blocks[i].at) {
                        blocks[i].at = realloc(blocks[i].at, bytes + 1);
                        check(is_filled(blocks[i].at, blocks[i].fill, kept));
                } else {
                        free(blocks[i].at);
                        blocks[i].at = choice == 1   ? calloc(1, bytes)
                                       : choice == 2 ? memalign(1u << step % 13, bytes)
                                                     : malloc(bytes);
                        if (choice == 1)
                                check(is_filled(blocks[i].at, 0, bytes));
                }
                blocks[i].bytes = bytes;
                blocks[i].fill = (unsigned char)step;
                check(blocks[i].at != NULL);
                memset(blocks[i].at, blocks[i].fill, bytes);
        }
        for (unsigned int i = 0; i < BLOCKS; i++)
                free(blocks[i].at);
}

/* As much as the class says: each power of two and three times each in a small heap, later all. */
static void check_classes(bool coarse)
{
        for (size_t size = 1; size <= 4096; size++) {
                void *block = malloc(size);
                size_t usable = malloc_usable_size(block);
                size_t odd = usable >> __builtin_ctzl(usable);

                check(usable >= size);
                /* The fast path finds the next block of this size. */
                check_equal(front()->malloc_class[(size - 1) >> CLASS_STEP_SHIFT],
                            class_cache(CLASS_MALLOC, size)->pair_offset);
                check(coarse ? odd <= 3 : odd <= 15);
                check(usable - size < (coarse ? size / 2 : size / 8) + 16);
                free(block);
        }
}

/* Until the process ends. */
static void *wait_for_ever(void *unused)
{
        for (;;)
                pause();
        return unused;
}

static void have_two_threads(void)
{
        pthread_t thread;

        check_equal(pthread_create(&thread, NULL, wait_for_ever, NULL), 0);
}

/* Whether blocks that come to rest are soon counted by the share. A count may precede the heap's growth. */
static bool are_counted_by_share(void)
{
        enum { ROUNDS = 100 };
        struct kmem_cache *cache = class_cache_paged(160 << 10);

        for (unsigned int i = 0; i < ROUNDS; i++) {
                burst_of_blocks(cache, true);
                if (slot_current()->rest_most == (int64_t)rest_share())
                        return true;
        }
        return false;
}

/* REST-1: while the program has one thread, a quarter as much rests. */
static void child_rest_alone(void)
{
        stay_on_this_cpu();
        check_equal(system_threads(), THREADS_ONE);
        check(are_counted_by_share());
        have_two_threads();
        check_equal(system_threads(), THREADS_MANY);
        check(are_counted_by_share());
}

static void blocks_of_pages_rest_alone(void **state)
{
        const char *own = getenv("KMEM_OPTIONS");

        skip_without_sheaves_of_pages();
        if (system_threads() == THREADS_UNKNOWN)
                skip_because("libc does not say how many threads there are");
        child_passes("rest_alone", own ? own : "");
}

/*
 * A heap that grows gets all classes while other threads allocate. Blocks from the few classes are
 * freed, resized and recognized as before.
 */
static void child_classes_grow(void)
{
        enum { EARLY = 200, FILL = 3000 };
        static unsigned char *early[EARLY];
        static void *fill[FILL];

        have_two_threads();
        check_classes(true);
        for (unsigned int i = 0; i < EARLY; i++) {
                early[i] = malloc(80);
                check_equal(malloc_usable_size(early[i]), 96);
                memset(early[i], (int)i, 96);
        }
        for (unsigned int i = 0; i < FILL; i++)
                check(fill[i] = malloc(4096));
        check_classes(false);
        for (unsigned int i = 0; i < EARLY; i++) {
                unsigned char *late = malloc(80);

                check_equal(malloc_usable_size(late), 80);
                check_equal(malloc_usable_size(early[i]), 96);
                check(is_filled(early[i], (unsigned char)i, 96));
                if (i % 2)
                        check(realloc(early[i], 96) == early[i]);
                free(early[i]);
                free(late);
        }
        for (unsigned int i = 0; i < FILL; i++)
                free(fill[i]);
        check_classes(false);
}

/* Also by calls that name an alignment. */
static void child_classes_aligned(void)
{
        enum { FILL = 3000 };

        have_two_threads();
        check_equal(malloc_usable_size(memalign(16, 80)), 96);
        for (unsigned int i = 0; i < FILL; i++)
                check(memalign(64, 4096));
        check_equal(malloc_usable_size(memalign(16, 80)), 80);
}

/*
 * A program of a single thread has all classes from the start. When a second thread comes, the
 * classes that the program has asked for stay, until a request for a size of the few classes takes
 * their sizes along.
 */
static void child_classes_alone(void)
{
        void *early = malloc(80);

        check_equal(malloc_usable_size(early), 80);
        check_equal(malloc_usable_size(malloc(700)), 704);
        have_two_threads();
        check_equal(malloc_usable_size(malloc(80)), 80);
        check_equal(malloc_usable_size(malloc(81)), 96);
        check_equal(malloc_usable_size(malloc(80)), 96);
        check_equal(malloc_usable_size(early), 80);
        check(early == realloc(early, 80));
        free(early);
        check_equal(malloc_usable_size(malloc(1100)), 1536);
        check_equal(malloc_usable_size(malloc(640)), 768);
}

static void child_classes_stay(void)
{
        check_classes(false);
        check_equal(malloc_usable_size(malloc(80)), 80);
}

static void *changing_sizes(void *seed)
{
        enum { LIVE = 2000 };
        unsigned char *blocks[LIVE] = {0};
        size_t bytes[LIVE] = {0};
        uint64_t random = (uint64_t)(uintptr_t)seed;

        for (unsigned int step = 0; step < 20 * LIVE; step++) {
                unsigned int i = (unsigned int)(random_step(&random) % LIVE);

                check(is_filled(blocks[i], (unsigned char)i, bytes[i]));
                free(blocks[i]);
                bytes[i] = 1 + random_step(&random) % 4000;
                check(blocks[i] = malloc(bytes[i]));
                memset(blocks[i], (int)i, bytes[i]);
        }
        for (unsigned int i = 0; i < LIVE; i++)
                free(blocks[i]);
        return NULL;
}

static void child_classes_threads(void)
{
        pthread_t threads[4];

        for (uintptr_t i = 0; i < 4; i++)
                check_equal(pthread_create(&threads[i], NULL, changing_sizes, (void *)(i + 1)), 0);
        for (unsigned int i = 0; i < 4; i++)
                pthread_join(threads[i], NULL);
        check_classes(false);
}

static void classes(void **state)
{
        child_passes("classes_grow", "classes=auto,engine=slub");
        child_passes("classes_grow", "classes=auto,engine=slub,slots=locked");
        child_passes("classes_aligned", "classes=auto,engine=slub");
        child_passes("classes_alone", "classes=auto,engine=slub");
        child_passes("classes_alone", "classes=auto,engine=slub,slots=locked");
        child_passes("classes_stay", "classes=fine,engine=slub");
        child_passes("classes_threads", "classes=auto,engine=slub");
        child_passes("classes_threads", "classes=auto,engine=slub,slots=locked");
}

enum { OUTSIDE_BYTES = 3000 };

static void check_outside(void *block, bool zeroed)
{
        check(block && !heap_contains(block));
        check(!zeroed || is_filled(block, 0, OUTSIDE_BYTES));
        memset(block, 0x33, OUTSIDE_BYTES);
        free(block);
}

/* A block without room in the reservation lies outside it, aligned or not. */
static void child_beyond_the_reservation(void)
{
        enum { BLOCKS = 5000, BYTES = OUTSIDE_BYTES };
        unsigned int outside = 0;
        void *small;

        for (unsigned int i = 0; i < BLOCKS; i++)
                check(malloc(hide(BYTES)) != NULL);
        for (size_t align = 32; align <= PAGE_SIZE; align *= 2) {
                void *block = aligned_alloc(align, hide(BYTES));

                check(block != NULL);
                check_equal((uintptr_t)block % align, 0);
                memset(block, 0x33, BYTES);
                outside += !heap_contains(block);
                free(block);
        }
        check(outside > 0);
        check_outside(malloc(hide(BYTES)), false);
        check_outside(calloc(1, hide(BYTES)), true);
        kmem_group_set(kmem_group_create("group", NULL, 0));
        check_outside(kmalloc(BYTES, GFP_KERNEL_ACCOUNT), false);
        /* Small objects would waste most of a mapping of their own. */
        while ((small = malloc(hide(1024))))
                check(heap_contains(small));
}

static void beyond_the_reservation(void **state)
{
        child_passes("beyond", "engine=slub,reserve=8M");
        child_passes("beyond", "engine=slub,reserve=8M,slots=locked");
        child_passes("beyond", "engine=slab,reserve=8M");
}

/* Free objects that rest in other classes' sheaves serve a request before it fails. */
static void child_resting_elsewhere(void)
{
        enum { BLOCKS = 50000, BYTES = 1000, ROUND_BYTES = 20 << 20 };
        static const size_t sizes[] = {200000, 100000, 50000, 25000, 12000, 6000, 3000};
        static void *blocks[BLOCKS];
        unsigned int fresh = 0;
        unsigned int again = 0;

        while (fresh < BLOCKS && (blocks[fresh] = malloc(hide(BYTES))))
                fresh++;
        check(fresh < BLOCKS);
        for (unsigned int i = 0; i < fresh; i++)
                free(blocks[i]);
        for (unsigned int round = 0; round < array_size(sizes); round++) {
                unsigned int taken = 0;

                while (taken * sizes[round] < ROUND_BYTES)
                        check(blocks[taken++] = malloc(hide(sizes[round])));
                while (taken)
                        free(blocks[--taken]);
        }
        while (again < BLOCKS && (blocks[again] = malloc(hide(BYTES))))
                again++;
        fprintf(stderr, "# %u blocks, %u at first\n", again, fresh);
        check(again >= fresh - fresh / 50);
}

static int by_address(const void *a, const void *b)
{
        uintptr_t first = (uintptr_t) * (void *const *)a;
        uintptr_t second = (uintptr_t) * (void *const *)b;

        return (first > second) - (first < second);
}

enum { FULL_BLOCKS = 50000, FULL_BYTES = 1000, FREED = 100, WANTED_BYTES = 2000 };

/* Fills the heap, and frees blocks side by side in it, which rest in sheaves then. */
static void free_in_full_heap(void **blocks)
{
        unsigned int count = 0;

        while (count < FULL_BLOCKS && (blocks[count] = malloc(hide(FULL_BYTES))))
                count++;
        check(count > 2 * FREED && count < FULL_BLOCKS);
        /* A request finds nothing, and what it did is remembered. */
        check(malloc(hide(WANTED_BYTES)) == NULL);
        check(malloc(hide(WANTED_BYTES)) == NULL);
        qsort(blocks, count, sizeof(*blocks), by_address);
        for (unsigned int i = 0; i < FREED; i++)
                free(blocks[count / 2 + i]);
}

/* What rests in the sheaves of a full heap serves a longer request, though no object went to a slab. */
static void child_resting_in_a_full_heap(void)
{
        static void *blocks[FULL_BLOCKS];

        stay_on_this_cpu();
        free_in_full_heap(blocks);
        check(malloc(hide(WANTED_BYTES)) != NULL);
}

enum { HOLDER_MAY = 1, HOLDER_HAS = 2 };

static void *hold_the_set_of_caches(void *argument)
{
        uint32_t *stage = argument;

        while (load_acquire(stage) != HOLDER_MAY)
                usleep(1000);
        lock_take(&cache_mutex);
        store_release(stage, HOLDER_HAS);
        usleep(30000);
        lock_drop(&cache_mutex);
        return NULL;
}

/* So it does while another thread makes a report, which holds the lock of the set of caches. */
static void child_resting_beside_a_report(void)
{
        static void *blocks[FULL_BLOCKS];
        uint32_t stage = 0;
        pthread_t thread;

        stay_on_this_cpu();
        check_equal(pthread_create(&thread, NULL, hold_the_set_of_caches, &stage), 0);
        free_in_full_heap(blocks);
        store_release(&stage, HOLDER_MAY);
        while (load_acquire(&stage) != HOLDER_HAS)
                usleep(1000);
        check(malloc(hide(WANTED_BYTES)) != NULL);
        pthread_join(thread, NULL);
}

static void resting_elsewhere(void **state)
{
        child_passes("resting_in_a_full_heap", "engine=slub,reserve=24M,reclaim_thread=off");
        child_passes("resting_in_a_full_heap", "engine=slub,reserve=24M,slots=locked");
        child_passes("resting_beside_a_report", "engine=slub,reserve=24M,reclaim_thread=off");
        child_passes("resting", "engine=slub,reserve=24M");
        child_passes("resting", "engine=slub,reserve=24M,slots=locked");
        child_passes("resting", "engine=slab,reserve=24M");
}

static void child_double_free(void)
{
        void *block = malloc(hide(50));
        void *neighbour = malloc(hide(50)); /* engine slob gives an empty page back at once */

        free(block);
        free(block);
        free(neighbour);
}

static void child_not_ours(void)
{
        free((void *)(hide(0x7654321000)));
}

static void child_realloc_not_ours(void)
{
        check(realloc((void *)(hide(0x7654321000)), 10) == NULL);
}

/* Whether the block could stay in place, grow or shrink: a pointer into an object is no block. */
static void child_realloc_inside(void)
{
        static const size_t sizes[] = {1, 100, 200, 3000};
        char *block = malloc(hide(200));

        memset(block, 7, 200);
        for (unsigned int i = 0; i < array_size(sizes); i++) {
                errno = 0;
                check(realloc((void *)hide((uintptr_t)block + 16), hide(sizes[i])) == NULL);
                check_equal(errno, EINVAL);
        }
        for (unsigned int i = 0; i < 200; i++)
                check_equal(block[i], 7);
        free(block);
        printf("went on\n");
}

/* Whether the block could stay in place, grow or shrink. */
static void child_realloc_freed(void)
{
        static const size_t sizes[] = {1, 100, 200, 3000};
        char *block = malloc(hide(200));
        char *neighbour = malloc(hide(200));

        for (unsigned int i = 0; i < array_size(sizes); i++) {
                void *freed = malloc(hide(200));

                free(freed);
                errno = 0;
                check_equal(malloc_usable_size((void *)hide((uintptr_t)freed)), 0);
                check(realloc((void *)hide((uintptr_t)freed), hide(sizes[i])) == NULL);
                check_equal(errno, EINVAL);
        }
        free(block);
        free(neighbour);
        printf("went on\n");
}

/* Pages in which no object starts are not in the page map. */
static void child_free_inside_pages(void)
{
        static const size_t sizes[] = {8192, 32768, 100000};

        for (unsigned int i = 0; i < array_size(sizes); i++) {
                char *before = malloc(hide(sizes[i]));
                char *block = malloc(hide(sizes[i]));

                for (size_t page = 1; page < sizes[i] / PAGE_SIZE; page++)
                        free(block + page * PAGE_SIZE);
                check_equal(malloc_usable_size((void *)hide((uintptr_t)block + PAGE_SIZE)), 0);
                check(malloc_usable_size(block) >= sizes[i]);
                free(block);
                free(before);
        }
        printf("went on\n");
}

/* Frees of blocks of pages look at the address, also in the pages that the map knows. */
static void child_free_in_first_page(void)
{
        static const size_t sizes[] = {40000, 100000, 250000};
        static const size_t from_start[] = {16, 2048, PAGE_SIZE - 16};

        for (unsigned int i = 0; i < array_size(sizes); i++) {
                char *block = malloc(hide(sizes[i]));

                memset(block, 7, sizes[i]);
                for (unsigned int j = 0; j < array_size(from_start); j++) {
                        char *inside = block + from_start[j];

                        free((void *)hide((uintptr_t)inside));
                        check(malloc(hide(sizes[i])) != inside);
                        check_equal(*inside, 7);
                }
                free(block);
                check(malloc(hide(sizes[i])) == block);
                free(block);
                free((void *)hide((uintptr_t)block));
        }
        printf("went on\n");
}

static void child_misaligned(void)
{
        char *block = malloc(hide(200));

        for (int i = 0; i < 3; i++)
                free(malloc(hide(200)));
        free(block + 8);
}

static void misaligned_free(void **state)
{
        child_aborts("misaligned", "bad_free=abort", "kmem: free(0x");
}

static void misuse(void **state)
{
        child_prints("realloc_inside", "bad_free=ignore", "): not the start of a block");
        child_prints("realloc_inside", "bad_free=ignore", "went on");
        child_aborts("realloc_inside", "bad_free=abort", "kmem: realloc(0x");
        child_prints("realloc_freed", "bad_free=ignore", "): not the start of a block in use");
        child_prints("realloc_freed", "bad_free=ignore", "went on");
        child_prints("free_inside_pages", "bad_free=ignore,engine=slub",
                     "): not the start of a block");
        child_prints("free_inside_pages", "bad_free=ignore,engine=slub", "went on");
        child_prints("free_in_first_page", "bad_free=ignore,engine=slub",
                     "): inside an object, not at its start");
        child_prints("free_in_first_page", "bad_free=ignore,engine=slub",
                     "): free already (double free)");
        child_prints("free_in_first_page", "bad_free=ignore,engine=slub", "went on");
        child_prints("free_in_first_page", "bad_free=ignore,engine=slub,slots=locked", "went on");
        child_aborts("double_free", "bad_free=abort", "kmem: free(0x");
        child_aborts("double_free", "bad_free=abort", "free already (double free)");
        child_aborts("double_free", "bad_free=abort,engine=slub",
                     "at that address is an object of ");
        child_aborts("misaligned", "bad_free=abort,engine=slub",
                     "at that address is byte 8 of the object of ");
        child_aborts("not_ours", "bad_free=abort", "kmem: free(0x7654321000): not the start");
        child_aborts("not_ours", "bad_free=abort", "kmem:   that address is not in the heap");
        child_prints("not_ours", "bad_free=ignore", "free(0x7654321000)");
        child_aborts("realloc_not_ours", "bad_free=abort", "realloc(0x7654321000)");
}

/* The drop-in drops RTLD_DEEPBIND, so both calls open a single library. */
static void deepbind(void **state)
{
        void *a = dlopen("libm.so.6", RTLD_NOW | RTLD_DEEPBIND);
        void *b = dlopen("libm.so.6", RTLD_NOW);

        check(a && a == b);
        dlclose(a);
        dlclose(b);
}

static void walk_at_end(void **state)
{
        struct walk_counts counts;

        walk_heap(NULL, &counts);
}

int main(int argc, char **argv)
{
        static const struct child_case children[] = {
                {"stats", child_stats},
                {"classes_grow", child_classes_grow},
                {"classes_aligned", child_classes_aligned},
                {"classes_alone", child_classes_alone},
                {"classes_stay", child_classes_stay},
                {"classes_threads", child_classes_threads},
                {"beyond", child_beyond_the_reservation},
                {"resting", child_resting_elsewhere},
                {"resting_in_a_full_heap", child_resting_in_a_full_heap},
                {"resting_beside_a_report", child_resting_beside_a_report},
                {"grows_after_a_peak", child_grows_after_a_peak},
                {"rest_ends", child_rest_ends},
                {"rest_untouched", child_rest_untouched},
                {"rest_alone", child_rest_alone},
                {"realloc_appends", child_realloc_appends},
                {"realloc_stays", child_realloc_stays},
                {"realloc_without_room", child_realloc_without_room},
                {"realloc_grows", child_realloc_grows},
                {"zeroed_by_use", child_zeroed_by_use},
                {"zeroed_by_new_use", child_zeroed_by_new_use},
                {"zeroed_first_of_doubling", child_zeroed_first_of_doubling},
                {"classes_of_pages", child_classes_of_pages},
                {"zeroed_begun", child_zeroed_begun},
                {"zeroed_begun_alone", child_zeroed_begun_alone},
                {"zeroed_for_nothing", child_zeroed_for_nothing},
                {"zeroed_far_from_filled", child_zeroed_far_from_filled},
                {"zeroed_resized", child_zeroed_resized},
                {"zeroed_looks_once", child_zeroed_looks_once},
                {"zeroed_begun_and_freed", child_zeroed_begun_and_freed},
                {"zero_pages_stay", child_zero_pages_stay},
                {"usable_sizes", child_usable_sizes},
                {"misaligned", child_misaligned},
                {"double_free", child_double_free},
                {"not_ours", child_not_ours},
                {"realloc_not_ours", child_realloc_not_ours},
                {"realloc_inside", child_realloc_inside},
                {"realloc_freed", child_realloc_freed},
                {"free_inside_pages", child_free_inside_pages},
                {"free_in_first_page", child_free_in_first_page},
        };
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(is_ours),
                cmocka_unit_test(every_size),
                cmocka_unit_test(size_zero),
                cmocka_unit_test(errors),
                cmocka_unit_test(free_keeps_errno),
                cmocka_unit_test(zeroed),
                cmocka_unit_test(aligned),
                cmocka_unit_test(realloc_rules),
                cmocka_unit_test(realloc_appends),
                cmocka_unit_test(realloc_shrinks),
                cmocka_unit_test(realloc_shrinks_into_its_class),
                cmocka_unit_test(usable_sizes),
                cmocka_unit_test(realloc_stays),
                cmocka_unit_test(realloc_grows_with_room),
                cmocka_unit_test(beyond_the_reservation),
                cmocka_unit_test(resting_elsewhere),
                cmocka_unit_test(frees_are_interchangeable),
                cmocka_unit_test(classes_of_pages),
                cmocka_unit_test(zeroed_by_use),
                cmocka_unit_test(zero_pages_stay_unwritten),
                cmocka_unit_test(aligned_blocks_of_pages),
                cmocka_unit_test(blocks_of_pages_rest),
                cmocka_unit_test(blocks_of_pages_in_use_rest),
                cmocka_unit_test(blocks_of_pages_rest_untouched),
                cmocka_unit_test(blocks_of_pages_rest_alone),
                cmocka_unit_test(blocks_of_pages_in_bulk_rest),
                cmocka_unit_test(grows_after_a_peak),
                cmocka_unit_test(rest_ends),
                cmocka_unit_test(mallinfo_counts),
                cmocka_unit_test(trim),
                cmocka_unit_test(trim_in_a_loop),
                cmocka_unit_test(tuning),
                cmocka_unit_test(page_locks_beside_the_set_of_caches),
                cmocka_unit_test(stats),
                cmocka_unit_test(classes),
                cmocka_unit_test(random_calls),
                cmocka_unit_test(misaligned_free),
                cmocka_unit_test(misuse),
                cmocka_unit_test(deepbind),
                cmocka_unit_test(walk_at_end),
        };

        child_main(argc, argv, children, array_size(children));
        return cmocka_run_group_tests_name("malloc", tests, NULL, NULL);
}
