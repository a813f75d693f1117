/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Frees in another form than the allocation's: C++'s operators with a wrong size or alignment, new
 * with free. Harm: blocks overlap afterwards. All of these are undefined, and most are harmless in
 * allocators that go by the address alone.
 */
#include "misuse.h"

#include <malloc.h>

#define NEW "_Znwm"
#define NEW_ARRAY "_Znam"
#define NEW_ALIGNED "_ZnwmSt11align_val_t"
#define DELETE "_ZdlPv"
#define DELETE_ARRAY "_ZdaPv"
#define DELETE_SIZED "_ZdlPvm"
#define DELETE_ALIGNED "_ZdlPvSt11align_val_t"
#define DELETE_ALIGNED_SIZED "_ZdlPvmSt11align_val_t"

enum { ALIGN = 256 };

/* Takes by one function and frees by another, with up to two more arguments of each. */
static void mismatch(size_t bytes, const char *maker, const char *ender, size_t first,
                     size_t second)
{
        void *(*make)(size_t, size_t) = (void *(*)(size_t, size_t))function_named(maker);
        void (*end)(void *, size_t, size_t) =
                (void (*)(void *, size_t, size_t))function_named(ender);
        char *block = hide(make(bytes, ALIGN));
        char *neighbour = hide(make(bytes, ALIGN));

        fill(block, bytes, 'B');
        hold(neighbour, bytes);
        end(block, first, second);
        hold_many(bytes);
        harm_if(held_overlap(), "memory of a block in use was handed out");
}

static void sized_smaller(size_t bytes)
{
        mismatch(bytes, NEW, DELETE_SIZED, bytes / 4, 0);
}

static void sized_larger(size_t bytes)
{
        mismatch(bytes, NEW, DELETE_SIZED, 4 * bytes, 0);
}

static void sized_much_larger(size_t bytes)
{
        mismatch(bytes, NEW, DELETE_SIZED, 64 * bytes, 0);
}

static void sized_one(size_t bytes)
{
        mismatch(bytes, NEW, DELETE_SIZED, 1, 0);
}

static void free_sized_smaller(size_t bytes)
{
        mismatch(bytes, "malloc", "free_sized", bytes / 4, 0);
}

static void free_sized_larger(size_t bytes)
{
        mismatch(bytes, "malloc", "free_sized", 4 * bytes, 0);
}

static void array_by_plain(size_t bytes)
{
        mismatch(bytes, NEW_ARRAY, DELETE, 0, 0);
}

static void plain_by_array(size_t bytes)
{
        mismatch(bytes, NEW, DELETE_ARRAY, 0, 0);
}

static void new_by_free(size_t bytes)
{
        mismatch(bytes, NEW, "free", 0, 0);
}

static void malloc_by_delete(size_t bytes)
{
        mismatch(bytes, "malloc", DELETE, 0, 0);
}

static void aligned_by_plain(size_t bytes)
{
        mismatch(bytes, NEW_ALIGNED, DELETE, 0, 0);
}

static void plain_by_aligned(size_t bytes)
{
        mismatch(bytes, NEW, DELETE_ALIGNED, ALIGN, 0);
}

static void aligned_wrong_align(size_t bytes)
{
        mismatch(bytes, NEW_ALIGNED, DELETE_ALIGNED, 16 * ALIGN, 0);
}

static void aligned_wrong_size(size_t bytes)
{
        mismatch(bytes, NEW_ALIGNED, DELETE_ALIGNED_SIZED, 8 * bytes, ALIGN);
}

static void free_aligned_sized_otherwise(size_t bytes)
{
        void (*end)(void *, size_t, size_t) =
                (void (*)(void *, size_t, size_t))function_named("free_aligned_sized");
        char *block = hide(memalign(ALIGN, bytes));

        end(block, 16 * (size_t)ALIGN, bytes);
        hold_many(bytes);
        harm_if(held_overlap(), "memory of a block in use was handed out");
}

/* The array's pointer stands behind a count, as that of an array with destructors. */
static void array_behind_count(size_t bytes)
{
        void *(*make)(size_t) = (void *(*)(size_t))function_named(NEW_ARRAY);
        void (*end)(void *) = (void (*)(void *))function_named(DELETE);
        char *block = hide(make(bytes));

        hold(block, bytes);
        end(hide(block + WORD_BYTES));
        hold_many(bytes);
        harm_if(held_overlap(), "memory of a block in use was handed out");
}

const struct way form_ways[] = {
        {"mismatch", "delete-smaller", sized_smaller, EACH_SIZE},
        {"mismatch", "delete-larger", sized_larger, EACH_SIZE},
        {"mismatch", "delete-much-larger", sized_much_larger, EACH_SIZE},
        {"mismatch", "delete-one", sized_one, EACH_SIZE},
        {"mismatch", "free_sized-smaller", free_sized_smaller, EACH_SIZE},
        {"mismatch", "free_sized-larger", free_sized_larger, EACH_SIZE},
        {"mismatch", "array-by-delete", array_by_plain, OBJECTS},
        {"mismatch", "new-by-delete[]", plain_by_array, OBJECTS},
        {"mismatch", "new-by-free", new_by_free, OBJECTS},
        {"mismatch", "malloc-by-delete", malloc_by_delete, OBJECTS},
        {"mismatch", "aligned-by-delete", aligned_by_plain, OBJECTS},
        {"mismatch", "new-by-aligned", plain_by_aligned, OBJECTS},
        {"mismatch", "other-alignment", aligned_wrong_align, OBJECTS},
        {"mismatch", "aligned-larger", aligned_wrong_size, OBJECTS},
        {"mismatch", "free_aligned_sized", free_aligned_sized_otherwise, OBJECTS},
        {"mismatch", "array-behind-count", array_behind_count, EACH_SIZE},
        {0},
};
