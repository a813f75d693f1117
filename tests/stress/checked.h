/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Objects that carry a checked pattern and their owner. The first word says that the object is
 * held, its kind and its owner; every other byte follows from that word. An object that is handed
 * out while its first word says "held" has two owners, and so had an object with changed bytes.
 */
#ifndef TESTS_STRESS_CHECKED_H
#define TESTS_STRESS_CHECKED_H

#include "kmem.h"

/* The kinds from KIND_CACHE on are named caches. */
enum kind {
        KIND_KMALLOC,
        KIND_KZALLOC,
        KIND_MALLOC,
        KIND_CALLOC,
        KIND_MEMALIGN,
        KIND_CACHE,
        KIND_BRIEF = KIND_CACHE + 8, /* a cache that comes and goes */
        KINDS = KIND_BRIEF,
};

enum { NAMED_CACHES = 8, CHECKED_BYTES_MAX = 60000, BULK_MAX = 150 };

/* Prints a line and aborts. */
void fail(const char *format, ...) __attribute__((format(printf, 1, 2), noreturn, cold));

void checked_caches_create(void);
/* Checks that no object is left and that shrinking leaves no slab; then ends the caches. */
void checked_caches_destroy(void);
struct kmem_cache *checked_cache(unsigned int number);

/* A constructor that marks an object as constructed. */
void checked_constructor(void *object);

/* Never NULL: without memory the test fails. */
void *checked_alloc(enum kind kind, size_t size, unsigned int owner);
/* Bytes of an object of this kind, given a random number. */
size_t checked_size(enum kind kind, uint64_t random);
/* Checks the whole object. */
void checked_verify(const void *object);
void checked_free(void *object, uint64_t random);
/* krealloc or realloc; objects of named caches come back unchanged. */
void *checked_realloc(void *object, size_t size, unsigned int owner);

/* Takes, checks and gives back up to BULK_MAX objects by the bulk calls. */
void checked_bulk(uint64_t random, unsigned int owner);

/* Writes and checks the pattern of an object that some other allocation gave. */
void checked_claim(void *object, enum kind kind, size_t size, unsigned int owner);
void checked_release(void *object);

static inline uint64_t random_next(uint64_t *state)
{
        uint64_t value = *state;

        value ^= value << 13;
        value ^= value >> 7;
        value ^= value << 17;
        *state = value;
        return value * 0x2545f4914f6cdd1dull;
}

#endif
