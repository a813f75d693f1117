/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Every C symbol of the malloc family: results, alignment, contents, errors. Calls that this libc
 * does not declare (cfree, free_sized, free_aligned_sized) are found with dlsym; `symbols all`
 * requires them, `symbols libc` leaves out missing calls.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <malloc.h>
#include <stdbool.h>

#include "check.h"

#define PAGE 4096

static bool all_required;

static void *found(const char *name)
{
        void *symbol = dlsym(RTLD_DEFAULT, name);

        check(symbol != NULL || !all_required);
        return symbol;
}

/* Sizes 0 to 2000, then on to 64 MiB in steps of a seventh. */
static size_t following(size_t bytes)
{
        return bytes < 2000 ? bytes + 1 : bytes + bytes / 7;
}

#define for_each_size(bytes) for (size_t bytes = 0; bytes < (64u << 20); bytes = following(bytes))

static void test_malloc(void)
{
        for_each_size(bytes)
        {
                unsigned char *pointer = opaque(malloc(bytes));

                check(pointer != NULL);
                check(aligned(pointer, 16));
                check(malloc_usable_size(pointer) >= bytes);
                if (bytes) {
                        pointer[0] = 1;
                        pointer[bytes - 1] = 2;
                }
                free(pointer);
        }
        free(NULL);
}

static void test_zero_sizes_differ(void)
{
        void *first = opaque(malloc(0));
        void *second = opaque(malloc(0));

        check(first && second && first != second);
        free(first);
        free(second);
        first = opaque(calloc(0, 10));
        second = opaque(calloc(10, 0));
        check(first && second && first != second);
        free(first);
        free(second);
}

static void test_calloc_after_dirty_use(void)
{
        for (size_t bytes = 1; bytes < (4u << 20); bytes += bytes / 3 + 1) {
                void *dirty[16];

                for (size_t i = 0; i < 16; i++) {
                        dirty[i] = opaque(malloc(bytes));
                        check(dirty[i] != NULL);
                        fill(dirty[i], bytes, 0xff);
                }
                for (size_t i = 0; i < 16; i++)
                        free(dirty[i]);
                for (size_t i = 0; i < 16; i++) {
                        dirty[i] = opaque(calloc(1, bytes));
                        check(dirty[i] != NULL && aligned(dirty[i], 16));
                        check(intact(dirty[i], bytes, 0));
                }
                for (size_t i = 0; i < 16; i++)
                        free(dirty[i]);
        }
}

static void test_realloc_keeps_content(void)
{
        static const size_t sizes[] = {1,     15,      16,    100,       1000,    5000,
                                       40000, 1 << 20, 33000, 100 << 20, 3 << 20, 200};
        unsigned char *pointer = opaque(realloc(NULL, 10));
        size_t before = 10;

        check(pointer != NULL);
        fill(pointer, before, 0x61);
        for (size_t round = 0; round < 3; round++) {
                for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
                        size_t kept = before < sizes[i] ? before : sizes[i];

                        pointer = opaque(realloc(pointer, sizes[i]));
                        check(pointer != NULL && aligned(pointer, 16));
                        check(intact(pointer, kept, 0x61));
                        fill(pointer, sizes[i], 0x61);
                        before = sizes[i];
                }
        }
        /* As glibc: the block is freed and NULL returned. */
        check(opaque(realloc(pointer, 0)) == NULL);
}

/* A block that grows a little at a time, from bytes to many megabytes. */
static void test_realloc_growth(void)
{
        unsigned char *pointer = NULL;

        for (size_t bytes = 1, before = 0; bytes < (80u << 20); bytes += bytes / 9 + 1) {
                pointer = opaque(realloc(pointer, bytes));
                check(pointer != NULL && aligned(pointer, 16));
                if (before)
                        check(pointer[0] == 7 && pointer[before - 1] == 7);
                pointer[0] = pointer[bytes - 1] = 7;
                before = bytes;
        }
        free(pointer);
}

static void test_reallocarray(void)
{
        volatile size_t many = SIZE_MAX / 2;
        unsigned char *pointer = opaque(reallocarray(NULL, 10, 30));

        check(pointer != NULL && malloc_usable_size(pointer) >= 300);
        fill(pointer, 300, 5);
        pointer = opaque(reallocarray(pointer, 100, 30));
        check(pointer != NULL && intact(pointer, 300, 5));
        errno = 0;
        check(opaque(reallocarray(pointer, many, 3)) == NULL && errno == ENOMEM);
        check(intact(pointer, 300, 5));
        free(pointer);
}

static void check_aligned_block(void *pointer, size_t alignment, size_t bytes)
{
        check(pointer != NULL);
        check(aligned(pointer, alignment) && aligned(pointer, 16));
        check(malloc_usable_size(pointer) >= bytes);
        if (bytes) {
                ((unsigned char *)pointer)[0] = 1;
                ((unsigned char *)pointer)[bytes - 1] = 1;
        }
}

static void test_alignments(void)
{
        static const size_t sizes[] = {0,    1,    8,     24,    40,      100,     500,
                                       1000, 4000, 10000, 70000, 1 << 20, 40 << 20};

        for (size_t alignment = sizeof(void *); alignment <= (8u << 20); alignment *= 2) {
                for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
                        void *blocks[3];

                        check(posix_memalign(&blocks[0], alignment, sizes[i]) == 0);
                        blocks[1] = opaque(aligned_alloc(alignment, sizes[i]));
                        blocks[2] = opaque(memalign(alignment, sizes[i]));
                        for (size_t j = 0; j < 3; j++)
                                check_aligned_block(blocks[j], alignment, sizes[i]);
                        /* realloc and free take aligned blocks like any other. */
                        blocks[1] = opaque(realloc(blocks[1], sizes[i] * 2 + 1));
                        check(blocks[1] != NULL && aligned(blocks[1], 16));
                        for (size_t j = 0; j < 3; j++)
                                free(blocks[j]);
                }
        }
}

/* Many live blocks at once: none may overlap. */
static void test_aligned_blocks_do_not_overlap(void)
{
        static void *blocks[2000];

        for (size_t i = 0; i < 2000; i++) {
                blocks[i] = opaque(memalign((size_t)16 << i % 9, i % 300 + 1));
                check_aligned_block(blocks[i], (size_t)16 << i % 9, i % 300 + 1);
                fill(blocks[i], malloc_usable_size(blocks[i]), (unsigned char)i);
        }
        for (size_t i = 0; i < 2000; i++) {
                check(intact(blocks[i], malloc_usable_size(blocks[i]), (unsigned char)i));
                free(blocks[i]);
        }
}

static void test_bad_alignments(void)
{
        static const size_t bad[] = {0, 3, 6, 24, 48, 1000, 4095, SIZE_MAX};
        void *untouched = (void *)0x1234;
        void *pointer = untouched;

        for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
                check(posix_memalign(&pointer, bad[i], 100) == EINVAL);
                check(pointer == untouched);
        }
        for (size_t small = 1; small < sizeof(void *); small *= 2)
                check(posix_memalign(&pointer, small, 100) == EINVAL);
        /* glibc 2.36 rounds these up instead. */
        for (size_t i = 0; all_required && i < sizeof(bad) / sizeof(*bad); i++) {
                errno = 0;
                check(opaque(aligned_alloc(bad[i], 100)) == NULL && errno == EINVAL);
        }
        /* As glibc's. */
        for (size_t i = 0; i + 1 < sizeof(bad) / sizeof(*bad); i++)
                check_aligned_block(memalign(bad[i], 100), 16, 100);
        check_aligned_block(memalign(1000, 100), 1024, 100);
}

static void test_pages(void)
{
        for (size_t bytes = 1; bytes < 100000; bytes = bytes * 2 + 1) {
                void *pointer = opaque(valloc(bytes));

                check_aligned_block(pointer, PAGE, bytes);
                free(pointer);
                pointer = opaque(pvalloc(bytes));
                check_aligned_block(pointer, PAGE, (bytes + PAGE - 1) / PAGE * PAGE);
                free(pointer);
        }
}

static void expect_enomem(void *pointer)
{
        check(pointer == NULL);
        check(errno == ENOMEM);
        errno = 0;
}

static void test_huge_sizes(void)
{
        static const size_t huge[] = {PTRDIFF_MAX,     (size_t)PTRDIFF_MAX + 1, SIZE_MAX,
                                      SIZE_MAX - 4096, SIZE_MAX / 2 - 100000,   (size_t)1 << 62};
        volatile size_t one = 1;

        errno = 0;
        for (size_t i = 0; i < sizeof(huge) / sizeof(*huge); i++) {
                size_t bytes = huge[i] * one;
                unsigned char *kept = opaque(malloc(50));
                void *pointer = NULL;

                expect_enomem(opaque(malloc(bytes)));
                expect_enomem(opaque(calloc(1, bytes)));
                expect_enomem(opaque(calloc(bytes, 1)));
                expect_enomem(opaque(memalign(64, bytes)));
                expect_enomem(opaque(memalign(1 << 20, bytes)));
                expect_enomem(opaque(aligned_alloc(64, bytes)));
                expect_enomem(opaque(valloc(bytes)));
                expect_enomem(opaque(pvalloc(bytes)));
                check(posix_memalign(&pointer, 64, bytes) == ENOMEM && pointer == NULL);
                check(kept != NULL);
                fill(kept, 50, 0x2a);
                errno = 0;
                expect_enomem(opaque(realloc(kept, bytes)));
                expect_enomem(opaque(reallocarray(kept, bytes, 1)));
                check(intact(kept, 50, 0x2a));
                free(kept);
        }
}

static void test_calloc_overflow(void)
{
        static const struct {
                size_t count, bytes;
        } products[] = {
                {SIZE_MAX, 2},
                {2, SIZE_MAX},
                {SIZE_MAX, SIZE_MAX},
                {(size_t)1 << 32, (size_t)1 << 32},
                {((size_t)1 << 32) + 1, (size_t)1 << 32},
                {SIZE_MAX / 16 + 2, 16},
                {(size_t)1 << 63, 2},
        };

        errno = 0;
        for (size_t i = 0; i < sizeof(products) / sizeof(*products); i++) {
                volatile size_t count = products[i].count;

                expect_enomem(opaque(calloc(count, products[i].bytes)));
                expect_enomem(opaque(reallocarray(NULL, count, products[i].bytes)));
        }
}

static void test_errno_is_kept(void)
{
        errno = 4711;
        for_each_size(bytes)
        {
                void *pointer = opaque(malloc(bytes));

                free(pointer);
                check(errno == 4711);
        }
}

static void test_usable_size(void)
{
        check(malloc_usable_size(NULL) == 0);
        for_each_size(bytes)
        {
                unsigned char *pointer = opaque(malloc(bytes));
                size_t usable = malloc_usable_size(pointer);

                check(usable >= bytes);
                /* realloc within the usable size keeps the content in any case. */
                if (bytes && bytes < 100000) {
                        fill(pointer, usable, 3);
                        pointer = opaque(realloc(pointer, usable));
                        check(intact(pointer, usable, 3));
                }
                free(pointer);
        }
}

/* malloc_stats writes to standard error, which is to stay empty. */
static void stats_unseen(void)
{
        int seen = dup(STDERR_FILENO);
        FILE *nowhere = fopen("/dev/null", "w");

        check(seen >= 0 && nowhere != NULL);
        check(dup2(fileno(nowhere), STDERR_FILENO) == STDERR_FILENO);
        malloc_stats();
        check(dup2(seen, STDERR_FILENO) == STDERR_FILENO);
        close(seen);
        fclose(nowhere);
}

static void test_statistics(void)
{
        void *blocks[1000];
        struct mallinfo2 before = mallinfo2();
        struct mallinfo2 during;
        char *text = NULL;
        size_t length = 0;
        FILE *stream;

        for (size_t i = 0; i < 1000; i++)
                check((blocks[i] = opaque(malloc(3000))) != NULL);
        during = mallinfo2();
        check(during.uordblks + during.hblkhd >= before.uordblks + before.hblkhd + 2000000);
        for (size_t i = 0; i < 1000; i++)
                free(blocks[i]);
        stream = open_memstream(&text, &length);
        check(stream != NULL);
        check(malloc_info(0, stream) == 0);
        check(fclose(stream) == 0);
        check(strncmp(text, "<malloc", 7) == 0 && strstr(text, "</malloc>") != NULL);
        free(text);
        stream = fopen("/dev/null", "w");
        check(malloc_info(1, stream) != 0);
        fclose(stream);
        stats_unseen();
        check(mallopt(M_MMAP_THRESHOLD, 1 << 20) == 1);
        check(mallopt(M_TRIM_THRESHOLD, 1 << 20) == 1);
        malloc_trim(0);
        malloc_trim(1 << 20);
}

static void test_sized_free(void)
{
        void (*cfree_found)(void *) = (void (*)(void *))found("cfree");
        void (*free_sized)(void *, size_t) = (void (*)(void *, size_t))found("free_sized");
        void (*free_aligned_sized)(void *, size_t, size_t) =
                (void (*)(void *, size_t, size_t))found("free_aligned_sized");

        for_each_size(bytes)
        {
                if (cfree_found)
                        cfree_found(opaque(malloc(bytes)));
                if (free_sized)
                        free_sized(opaque(malloc(bytes)), bytes);
                if (free_sized)
                        free_sized(opaque(calloc(1, bytes)), bytes);
                if (free_sized && bytes)
                        free_sized(opaque(realloc(opaque(malloc(1)), bytes)), bytes);
        }
        for (size_t alignment = 1; free_aligned_sized && alignment <= (1u << 20); alignment *= 2)
                for (size_t bytes = alignment; bytes < (1u << 21); bytes *= 3)
                        free_aligned_sized(opaque(aligned_alloc(alignment, bytes)), alignment,
                                           bytes);
        if (free_sized)
                free_sized(NULL, 10);
        if (free_aligned_sized)
                free_aligned_sized(NULL, 64, 10);
        if (cfree_found)
                cfree_found(NULL);
}

/* After all of the above, sized frees included, no object may be in two hands. */
static void test_heap_is_sound(void)
{
        struct churn churn;

        churn_init(&churn, 17);
        churn_run(&churn, 30000);
        churn_end(&churn);
}

int main(int argc, char **argv)
{
        all_required = argc == 2 && strcmp(argv[1], "all") == 0;
        watchdog(240);
        test_malloc();
        test_zero_sizes_differ();
        test_calloc_after_dirty_use();
        test_realloc_keeps_content();
        test_realloc_growth();
        test_reallocarray();
        test_alignments();
        test_aligned_blocks_do_not_overlap();
        test_bad_alignments();
        test_pages();
        test_huge_sizes();
        test_calloc_overflow();
        test_errno_is_kept();
        test_usable_size();
        test_statistics();
        test_sized_free();
        test_heap_is_sound();
        puts("ok");
        return 0;
}
