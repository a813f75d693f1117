/* SPDX-License-Identifier: Apache-2.0 OR MIT */
#define _GNU_SOURCE
#include "checked.h"

#include "introspect/totals.h"

#include <malloc.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Tops of the first word. No pattern word has any of them. */
static const uint64_t HELD = 0xa110;
static const uint64_t FREED = 0xf4ee;
static const uint64_t CONSTRUCTED = 0xc0de;
static const uint64_t PATTERN = 0x5a5a;

static const struct {
        const char *name;
        unsigned int size;
        slab_flags_t flags;
        bool constructed;
} cache_kinds[NAMED_CACHES] = {
        {"stress-8", 8, 0, false},
        {"stress-24", 24, 0, true},
        {"stress-64", 64, SLAB_HWCACHE_ALIGN, false},
        {"stress-100", 100, 0, false},
        {"stress-200", 200, SLAB_HWCACHE_ALIGN, true},
        {"stress-700", 700, 0, false},
        {"stress-1500", 1500, 0, true},
        {"stress-5000", 5000, 0, false},
};

static struct kmem_cache *caches[NAMED_CACHES];

void fail(const char *format, ...)
{
        char line[400];
        va_list arguments;
        int length;
        ssize_t ignored;

        va_start(arguments, format);
        length = vsnprintf(line, sizeof(line) - 1, format, arguments);
        va_end(arguments);
        line[length] = '\n';
        ignored = write(STDERR_FILENO, line, (size_t)length + 1);
        (void)ignored;
        abort();
}

/* First word: top 16, kind 8, size 16, owner 24 bits. */
static uint64_t held_word(enum kind kind, size_t size, unsigned int owner)
{
        return HELD << 48 | (uint64_t)kind << 40 | (uint64_t)size << 24 | (owner & 0xffffff);
}

static enum kind word_kind(uint64_t word)
{
        return (enum kind)(word >> 40 & 0xff);
}

static size_t word_size(uint64_t word)
{
        return word >> 24 & 0xffff;
}

static uint64_t pattern_word(uint64_t word, size_t position)
{
        uint64_t mixed = (word + position) * 0x9e3779b97f4a7c15ull;

        return PATTERN << 48 | mixed >> 16;
}

static void write_pattern(void *object, uint64_t word)
{
        size_t size = word_size(word);
        size_t words = size / 8;
        uint64_t *place = object;
        uint64_t tail = pattern_word(word, words);

        for (size_t i = 1; i < words; i++)
                place[i] = pattern_word(word, i);
        memcpy(place + words, &tail, size % 8);
}

static void check_pattern(const void *object, uint64_t word)
{
        size_t size = word_size(word);
        size_t words = size / 8;
        const uint64_t *place = object;
        uint64_t tail = pattern_word(word, words);

        for (size_t i = 1; i < words; i++)
                if (place[i] != pattern_word(word, i))
                        fail("object %p of %zu bytes, kind %d: word %zu is 0x%lx: two owners, or "
                             "overwritten",
                             object, size, (int)word_kind(word), i, (unsigned long)place[i]);
        if (memcmp(place + words, &tail, size % 8) != 0)
                fail("object %p of %zu bytes, kind %d: the tail was overwritten", object, size,
                     (int)word_kind(word));
}

void checked_constructor(void *object)
{
        store_relaxed((uint64_t *)object, CONSTRUCTED << 48);
}

void checked_caches_create(void)
{
        for (unsigned int i = 0; i < NAMED_CACHES; i++) {
                caches[i] = kmem_cache_create(
                        cache_kinds[i].name, cache_kinds[i].size, 0, cache_kinds[i].flags,
                        cache_kinds[i].constructed ? checked_constructor : NULL);
                if (!caches[i])
                        fail("cannot create %s", cache_kinds[i].name);
        }
}

struct kmem_cache *checked_cache(unsigned int number)
{
        return caches[number];
}

void checked_caches_destroy(void)
{
        for (unsigned int i = 0; i < NAMED_CACHES; i++) {
                struct cache_totals totals;
                int remain;

                cache_total(caches[i], &totals);
                if (totals.inuse)
                        fail("%s: %lu objects are in use after all were freed", cache_kinds[i].name,
                             (unsigned long)totals.inuse);
                remain = kmem_cache_shrink(caches[i]);
                cache_total(caches[i], &totals);
                if (remain || totals.nodes.slabs || totals.resting)
                        fail("%s: %lu slabs and %lu objects in sheaves remain after shrinking",
                             cache_kinds[i].name, (unsigned long)totals.nodes.slabs,
                             (unsigned long)totals.resting);
                kmem_cache_destroy(caches[i]);
        }
}

size_t checked_size(enum kind kind, uint64_t random)
{
        unsigned int shape = (unsigned int)(random >> 32 & 63);

        if (kind >= KIND_CACHE)
                return cache_kinds[kind - KIND_CACHE].size;
        if (shape == 0)
                return 8 + random % (CHECKED_BYTES_MAX - 8);
        if (shape < 6)
                return 8 + random % 3000;
        return 8 + random % 300;
}

static void check_zero(const void *object, size_t size)
{
        const char *bytes = object;

        for (size_t i = 0; i < size; i++)
                if (bytes[i])
                        fail("object %p of %zu bytes: byte %zu is not zero", object, size, i);
}

/* Only engine slob's objects of caches cannot be freed by their address (S5-32). */
static bool address_suffices(enum kind kind)
{
        return kind < KIND_CACHE || !caches[kind - KIND_CACHE]->engine->shared;
}

/*
 * malloc's 16 bytes. kmalloc has them too, except for the sizes below and for engine slob, where
 * kmalloc aligns only powers of two (S7-40).
 */
static size_t promised_align(enum kind kind, size_t size)
{
        if (kind == KIND_MEMALIGN)
                return 64;
        if (kind <= KIND_KZALLOC && caches[0]->engine->alloc_bytes)
                return is_power_of_two(size) ? max_of(size, (size_t)8) : 8;
        return size >= 16 ? 16 : 8;
}

static void *raw_alloc(enum kind kind, size_t size)
{
        switch (kind) {
        case KIND_KMALLOC:
                return kmalloc(size, GFP_KERNEL);
        case KIND_KZALLOC:
                return kzalloc(size, GFP_KERNEL);
        case KIND_MALLOC:
                return malloc(size);
        case KIND_CALLOC:
                return calloc(1, size);
        case KIND_MEMALIGN:
                return memalign(64, size);
        default:
                return kmem_cache_alloc(caches[kind - KIND_CACHE], GFP_KERNEL);
        }
}

/* Marks the object as held; whoever finds it held already has been given it as the second. */
void checked_claim(void *object, enum kind kind, size_t size, unsigned int owner)
{
        uint64_t word = held_word(kind, size, owner);
        uint64_t before = __atomic_exchange_n((uint64_t *)object, word, __ATOMIC_ACQ_REL);

        if (before >> 48 == HELD)
                fail("object %p, kind %d, was handed out twice: held as 0x%lx", object, (int)kind,
                     (unsigned long)before);
        if (kind >= KIND_CACHE && kind < KINDS && cache_kinds[kind - KIND_CACHE].constructed &&
            before >> 48 != CONSTRUCTED)
                fail("object %p of %s: 0x%lx, not as constructed", object,
                     cache_kinds[kind - KIND_CACHE].name, (unsigned long)before);
        write_pattern(object, word);
}

void checked_release(void *object)
{
        uint64_t word = load_relaxed((uint64_t *)object);
        uint64_t freed = FREED << 48;
        enum kind kind = word_kind(word);

        checked_verify(object);
        if (kind >= KIND_CACHE && kind < KINDS && cache_kinds[kind - KIND_CACHE].constructed)
                freed = CONSTRUCTED << 48;
        if (__atomic_exchange_n((uint64_t *)object, freed, __ATOMIC_ACQ_REL) != word)
                fail("object %p: its owner changed while it was freed", object);
}

void *checked_alloc(enum kind kind, size_t size, unsigned int owner)
{
        void *object = raw_alloc(kind, size);

        if (!object)
                fail("no memory for %zu bytes, kind %d", size, (int)kind);
        if (kind < KIND_CACHE && (uintptr_t)object % promised_align(kind, size))
                fail("object %p of %zu bytes, kind %d, is not aligned", object, size, (int)kind);
        if (kind == KIND_KZALLOC || kind == KIND_CALLOC)
                check_zero(object, size);
        checked_claim(object, kind, size, owner);
        return object;
}

void checked_verify(const void *object)
{
        uint64_t word = load_relaxed((const uint64_t *)object);

        if (word >> 48 != HELD || word_kind(word) >= KINDS)
                fail("object %p: its first word is 0x%lx: two owners, or overwritten", object,
                     (unsigned long)word);
        check_pattern(object, word);
}

/* kfree and free are interchangeable, and both take objects of named caches where they can. */
void checked_free(void *object, uint64_t random)
{
        enum kind kind = word_kind(load_relaxed((uint64_t *)object));

        checked_release(object);
        if (kind >= KIND_CACHE && (random & 7 || !address_suffices(kind)))
                kmem_cache_free(caches[kind - KIND_CACHE], object);
        else if (random & 8)
                kfree(object);
        else
                free(object);
}

void *checked_realloc(void *object, size_t size, unsigned int owner)
{
        uint64_t word = load_relaxed((uint64_t *)object);
        size_t old = word_size(word);
        size_t kept = old < size ? old : size;
        enum kind kind = word_kind(word);
        void *moved;

        checked_verify(object);
        if (kind >= KIND_CACHE)
                return object;
        /* The old block is freed inside, so it must not read as held any more. */
        store_relaxed((uint64_t *)object, FREED << 48);
        moved = kind <= KIND_KZALLOC ? krealloc(object, size, GFP_KERNEL) : realloc(object, size);
        if (!moved)
                fail("no memory to make %zu bytes %zu", old, size);
        if (kept > 8) {
                uint64_t expected = pattern_word(word, 1);

                if (memcmp((char *)moved + 8, &expected, kept < 16 ? kept - 8 : 8) != 0)
                        fail("object %p: realloc from %zu to %zu bytes lost the content", moved,
                             old, size);
        }
        if (kind == KIND_MEMALIGN)
                kind = KIND_MALLOC;
        checked_claim(moved, kind, size, owner);
        return moved;
}

/* A bulk allocation and a bulk free of objects of a named cache. */
void checked_bulk(uint64_t random, unsigned int owner)
{
        unsigned int number = (unsigned int)(random % NAMED_CACHES);
        size_t count = 1 + (random >> 8) % BULK_MAX;
        void *objects[BULK_MAX];

        if (kmem_cache_alloc_bulk(caches[number], GFP_KERNEL, count, objects) != (int)count)
                fail("no memory for %zu objects of %s", count, cache_kinds[number].name);
        for (size_t i = 0; i < count; i++)
                checked_claim(objects[i], KIND_CACHE + number, cache_kinds[number].size, owner);
        for (size_t i = 0; i < count; i++)
                checked_release(objects[i]);
        if (random >> 16 & 1)
                objects[count / 2] = (kmem_cache_free(caches[number], objects[count / 2]), NULL);
        kmem_cache_free_bulk(
                random >> 17 & 1 || !address_suffices(KIND_CACHE + number) ? caches[number] : NULL,
                count, objects);
}
