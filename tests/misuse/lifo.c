/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * An allocator that notices nothing: lists of freed blocks by size, without a look at them. The
 * tests of the cases preload it, since there every double free must show its harm.
 */
#include <stddef.h>
#include <stdint.h>

enum { CLASSES = 64, HEADER = 16, ROOM = 64 << 20 };

struct block {
        size_t class;
        struct block *next; /* in place of the block's first word, behind the header */
};

static struct block *freed[CLASSES];
static _Alignas(4096) char room[ROOM];
static size_t used = HEADER;

static size_t class_of(size_t bytes)
{
        size_t class = 5;

        while (((size_t)1 << class) < bytes + HEADER)
                class ++;
        return class;
}

static struct block **link_of(struct block *block)
{
        return (struct block **)((char *)block + HEADER);
}

void *malloc(size_t bytes)
{
        size_t class = class_of(bytes);
        struct block *block = freed[class];

        if (block) {
                freed[class] = *link_of(block);
                return (char *)block + HEADER;
        }
        if (class > 25 || used + ((size_t)1 << class) > ROOM)
                return NULL;
        block = (struct block *)(room + used);
        used += (size_t)1 << class;
        block->class = class;
        return (char *)block + HEADER;
}

void free(void *pointer)
{
        struct block *block = (struct block *)((char *)pointer - HEADER);

        if (!pointer)
                return;
        *link_of(block) = freed[block->class % CLASSES];
        freed[block->class % CLASSES] = block;
}

static void copy(char *to, const char *from, size_t bytes)
{
        for (size_t i = 0; i < bytes; i++)
                to[i] = from[i];
}

void *calloc(size_t count, size_t size)
{
        volatile char *block = malloc(count * size);

        for (size_t i = 0; block && i < count * size; i++)
                block[i] = 0;
        return (void *)block;
}

size_t malloc_usable_size(void *pointer)
{
        return pointer ? ((size_t)1 << *(size_t *)((char *)pointer - HEADER)) - HEADER : 0;
}

void *realloc(void *pointer, size_t bytes)
{
        size_t old = malloc_usable_size(pointer);
        void *moved = malloc(bytes);

        if (moved)
                copy(moved, pointer, old < bytes ? old : bytes);
        free(pointer);
        return moved;
}
