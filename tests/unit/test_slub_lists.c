/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Slabs on their way between CPU slab, CPU partial list, node partial list and the page layer, with
 * CPU records of the test's own in place of CPUs. A single thread; a walk over all descriptors
 * follows every step.
 */
#include "child.h"
#include "walker.h"

#include "base/metadata.h"
#include "base/options.h"
#include "page/deferred.h"
#include "percpu/percpu.h"
#include "engines/slub/slab.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/single_threaded.h>

enum { SLOTS = 4, SLABS_MAX = 64 };

static struct kmem_cache *cache;
static struct engine_slot slots[SLOTS];

/* pages_alloc_many of this order and above fails, and gives so many at most; see the link arguments. */
static unsigned int refused_order = ORDER_MAX + 1;
static unsigned int blocks_at_once = UINT32_MAX;

struct page *__real_pages_alloc_many(size_t pages, size_t align, int node, unsigned int count,
                                     bool one_object);
struct page *__wrap_pages_alloc_many(size_t pages, size_t align, int node, unsigned int count,
                                     bool one_object);

struct page *__wrap_pages_alloc_many(size_t pages, size_t align, int node, unsigned int count,
                                     bool one_object)
{
        return pages >= order_pages(refused_order)
                       ? NULL
                       : __real_pages_alloc_many(pages, align, node, min_of(count, blocks_at_once),
                                                 one_object);
}

/* The calls of metadata_alloc and metadata_alloc_many left until a call fails; 0: none fails. */
static unsigned int metadata_calls;

void *__real_metadata_alloc(size_t bytes);
void *__wrap_metadata_alloc(size_t bytes);

void *__wrap_metadata_alloc(size_t bytes)
{
        if (metadata_calls && --metadata_calls == 0)
                return NULL;
        return __real_metadata_alloc(bytes);
}

unsigned int __real_metadata_alloc_many(void **blocks, unsigned int count, size_t bytes);
unsigned int __wrap_metadata_alloc_many(void **blocks, unsigned int count, size_t bytes);

unsigned int __wrap_metadata_alloc_many(void **blocks, unsigned int count, size_t bytes)
{
        if (metadata_calls && --metadata_calls == 0)
                return 0;
        return __real_metadata_alloc_many(blocks, count, bytes);
}

static struct walk_counts walk(void)
{
        struct walk_counts counts;

        walk_heap(cache, &counts);
        return counts;
}

/* The limit of CPU partial lists in slabs; 0: no lists. */
static void set_limit(uint32_t cpu_partial_slabs)
{
        cache->cpu_partial_slabs = cpu_partial_slabs;
        cache->has_cpu_partial = cpu_partial_slabs > 0;
}

static void begin_with(void (*ctor)(void *), uint32_t size, uint32_t cpu_partial_slabs,
                       size_t least_partial)
{
        cache = kmem_cache_create("lists", size, 0, 0, ctor);
        check(cache != NULL);
        set_limit(cpu_partial_slabs);
        cache->min_partial = least_partial;
        for (unsigned int i = 0; i < SLOTS; i++)
                slots[i] = (struct engine_slot){.freelist = ENGINE_NO_OBJECT, .home = 1 + i};
        walk_own_slots(cache, slots, SLOTS);
}

static void begin(uint32_t size, uint32_t cpu_partial_slabs, size_t least_partial)
{
        begin_with(NULL, size, cpu_partial_slabs, least_partial);
}

/* All objects must have been given back. */
static void end(void)
{
        for (unsigned int i = 0; i < SLOTS; i++)
                cache->engine->flush_slot(cache, &slots[i]);
        check_equal(walk().inuse, 0);
        check_equal(kmem_cache_shrink(cache), 0);
        check_equal(walk().slabs, 0);
        walk_own_slots(NULL, NULL, 0);
        kmem_cache_destroy(cache);
}

static void take(unsigned int slot, void **objects, unsigned int count)
{
        check_equal(cache->engine->take(cache, &slots[slot], objects, count), count);
        walk();
}

static void give(unsigned int slot, void **objects, unsigned int count)
{
        void *copy[4096];

        memcpy(copy, objects, count * sizeof(*objects));
        cache->engine->give(cache, &slots[slot], copy, count);
        walk();
}

static struct page *slab_at(void *object)
{
        return slub_slab_of(cache, object);
}

static size_t node_length(void)
{
        return cache->node[0].partial.length;
}

static uint32_t chain_length_of(unsigned int slot)
{
        return slots[slot].partial ? page_at(slots[slot].partial)->prev : 0;
}

/* Position on the node's partial list, counted from its head; -1: not on it. */
static int node_position(const struct page *slab)
{
        int position = 0;

        for (struct page *at = page_list_first(&cache->node[0].partial); at;
             at = page_list_next(at), position++)
                if (at == slab)
                        return position;
        return -1;
}

/*
 * Takes whole slabs: objects[i][0 ..] are all objects of the i-th, in the order handed out. The
 * slot has no CPU slab afterwards.
 */
static void take_full_slabs(unsigned int slot, unsigned int count, void *objects[][64])
{
        check(cache->objects <= 64);
        for (unsigned int i = 0; i < count; i++) {
                void *batch[64];

                take(slot, batch, cache->objects);
                for (unsigned int j = 0; j < cache->objects; j++)
                        objects[i][j] = batch[cache->objects - 1 - j];
        }
        cache->engine->flush_slot(cache, &slots[slot]);
        walk();
}

/* S4-30: a fresh slab hands out ascending addresses; a sheaf is popped from its end. */
static void ascending_order(void **state)
{
        void *objects[64];

        begin(64, 2, 5);
        take(0, objects, 40);
        for (unsigned int i = 0; i < 39; i++)
                check(objects[i] == (char *)objects[i + 1] + cache->size);
        check(objects[39] == page_address(slab_at(objects[39])));
        check_equal(slots[0].carved, 40);
        give(0, objects, 40);
        end();
}

/* Whether two objects of @size bytes have a line of the cache in common. */
static bool share_line(const void *one, const void *other, uint32_t size)
{
        uintptr_t a = (uintptr_t)one, b = (uintptr_t)other;

        return a / CACHE_LINE <= (b + size - 1) / CACHE_LINE &&
               b / CACHE_LINE <= (a + size - 1) / CACHE_LINE;
}

/*
 * Objects of a new slab that go out in turn share no line, and they are the objects that a kernel's
 * new slab would give.
 */
static void check_apart(uint32_t size, slab_flags_t flags, bool has_threads)
{
        enum { MOST = 240 };
        void *objects[MOST];
        bool seen[MOST] = {false};
        unsigned int count;
        char *base;

        /* Slabs of several pages: some of the sizes have lines with objects of two pages. */
        options.slub_min_objects = MOST;
        begin(size, 2, 5);
        options.slub_min_objects = 0;
        check_equal(cache->size, size);
        cache->flags |= flags;
        count = min_of(cache->objects, (uint32_t)MOST);
        __libc_single_threaded = !has_threads;
        take(0, objects, count);
        __libc_single_threaded = 1;
        cache->flags &= ~flags;
        base = page_address(slab_at(objects[0]));
        for (unsigned int i = 0; i < count; i++) {
                size_t index = (size_t)((char *)objects[i] - base) / size;

                check(index < count && !seen[index]);
                seen[index] = true;
                check(objects[i] == base + index * size);
                check(i == 0 || !share_line(objects[i - 1], objects[i], size));
        }
        give(0, objects, count);
        end();
}

static const uint32_t sizes_apart[] = {8, 16, 24, 32, 40, 48, 80, 96, 112, 160, 208, 240, 248};

static void apart_in_threads(void **state)
{
        for (unsigned int i = 0; i < array_size(sizes_apart); i++)
                check_apart(sizes_apart[i], 0, true);
}

/* A program makes its threads' tables with its first calls of malloc, before it has threads. */
static void first_apart_before_threads(void **state)
{
        for (unsigned int i = 0; i < array_size(sizes_apart); i++)
                check_apart(sizes_apart[i], SLAB_KMALLOC, false);
}

static void check_ascending(slab_flags_t flags, bool takes_before)
{
        void *before, *objects[60];

        begin(32, 2, 5);
        check(cache->objects > array_size(objects));
        cache->flags |= flags;
        if (takes_before)
                take(0, &before, 1);
        take(0, objects, array_size(objects));
        cache->flags &= ~flags;
        for (unsigned int i = 1; i < array_size(objects); i++)
                check(objects[i - 1] == (char *)objects[i] + cache->size);
        give(0, objects, array_size(objects));
        if (takes_before)
                give(0, &before, 1);
        end();
}

/* While there is one thread, it has the use of a line for several objects of a named cache (S4-30). */
static void named_ascending_before_threads(void **state)
{
        check_ascending(0, false);
}

static void later_ascending_before_threads(void **state)
{
        check_ascending(SLAB_KMALLOC, true);
}

/* Objects with whole lines, and larger objects, stay in a kernel's order. */
static void ascending_in_threads(void **state)
{
        static const uint32_t sizes[] = {64, 128, 192, 256, 264, 1000};
        void *objects[64];

        for (unsigned int i = 0; i < array_size(sizes); i++) {
                unsigned int count;

                begin(sizes[i], 2, 5);
                count = cache->objects / 2;
                __libc_single_threaded = 0;
                take(0, objects, min_of(count, 64u));
                __libc_single_threaded = 1;
                for (unsigned int j = 1; j < min_of(count, 64u); j++)
                        check(objects[j - 1] == (char *)objects[j] + cache->size);
                give(0, objects, min_of(count, 64u));
                end();
        }
}

/* T3, S1-13: an exhausted CPU slab is unfrozen at the next reload and forgotten. */
static void exhausted_slab_is_full(void **state)
{
        void *objects[64], *next;
        struct page *slab;

        begin(64, 2, 5);
        take(0, objects, cache->objects);
        slab = slab_at(objects[0]);
        check(slots[0].slab == slab && state_unpack(slab->state).frozen);
        take(0, &next, 1);
        check(slab_at(next) != slab);
        check(!state_unpack(slab->state).frozen);
        check_equal(state_unpack(slab->state).head, INDEX_END);
        check_equal(walk().full, 1);
        give(0, &next, 1);
        give(0, objects, cache->objects);
        end();
}

/* S1-32: a free into a frozen slab moves nothing, even if all its objects come back. */
static void free_into_cpu_slab(void **state)
{
        void *objects[64];
        struct page *slab;

        begin(64, 2, 0);
        take(0, objects, cache->objects);
        slab = slab_at(objects[0]);
        give(1, objects, cache->objects);
        check(slots[0].slab == slab && state_unpack(slab->state).frozen);
        check_equal(state_unpack(slab->state).inuse, 0);
        check_equal(chain_length_of(1), 0);
        /* T2: the refill comes from the slab's own list. */
        take(0, objects, 1);
        check(slab_at(objects[0]) == slab);
        check_equal(cache->node[0].slabs, 1);
        give(0, objects, 1);
        end();
}

/* S1-31, S1-32, T14: the first free into a FULL slab puts it on the freeing slot's list. */
static void first_free_of_full_slab(void **state)
{
        void *objects[1][64];

        begin(512, 4, 5);
        take_full_slabs(0, 1, objects);
        give(2, objects[0], 1);
        check_equal(chain_length_of(2), 1);
        check(page_at(slots[2].partial) == slab_at(objects[0][0]));
        check(!slab_at(objects[0][0])->node_partial);
        /* T11, S1-33: emptied there, it stays there. */
        give(1, &objects[0][1], cache->objects - 1);
        check_equal(chain_length_of(2), 1);
        check_equal(cache->node[0].slabs, 1);
        end();
}

/* S2-12: the list never grows beyond its limit; a drain moves the old list to the node's tail. */
static void drain_rule(void **state)
{
        static void *objects[SLABS_MAX][64];

        for (uint32_t limit = 1; limit <= 6; limit++) {
                begin(512, limit, 100);
                take_full_slabs(0, 20, objects);
                for (unsigned int i = 0; i < 20; i++) {
                        give(1, objects[i], 1);
                        check_equal(chain_length_of(1), i % limit + 1);
                        check_equal(node_length(), i / limit * limit);
                        /* Each drained list went to the tail, newest slab first (S1-55). */
                        if (i >= limit && i % limit == 0)
                                check_equal(node_position(slab_at(objects[i - 1][0])),
                                            node_length() - limit);
                }
                for (unsigned int i = 0; i < 20; i++)
                        give(1, &objects[i][1], cache->objects - 1);
                end();
        }
}

/* S2-22: a refill takes a slab, and floor(L / 2) + 1 more for the CPU partial list if L > 0. */
static void refill_stop(void **state)
{
        static void *objects[SLABS_MAX][64];

        for (uint32_t limit = 0; limit <= 7; limit++) {
                uint32_t expected = limit ? limit / 2 + 1 : 0;
                void *one;

                begin(512, limit, 100);
                cache->sheaf_capacity = 0; /* as the kernel takes slabs */
                take_full_slabs(0, 12, objects);
                set_limit(0);
                for (unsigned int i = 0; i < 12; i++)
                        give(0, objects[i], 1); /* T15: to the node's tail */
                check_equal(node_length(), 12);
                set_limit(limit);
                take(1, &one, 1);
                check(one == objects[0][0]); /* from the head */
                check_equal(chain_length_of(1), expected);
                check_equal(node_length(), 11 - expected);
                /* T4: the next slabs come from the CPU partial list. */
                if (expected) {
                        void *second;

                        take(1, &second, 1);
                        check_equal(chain_length_of(1), expected - 1);
                        give(1, &second, 1);
                }
                give(1, &one, 1);
                for (unsigned int i = 0; i < 12; i++)
                        give(1, &objects[i][1], cache->objects - 1);
                end();
        }
}

/* A list shorter than wanted is taken whole. */
static void refill_short_list(void **state)
{
        static void *objects[SLABS_MAX][64];
        void *one;

        begin(512, 0, 100);
        take_full_slabs(0, 2, objects);
        give(0, objects[0], 1);
        give(0, objects[1], 1);
        set_limit(8);
        take(1, &one, 1);
        check_equal(chain_length_of(1), 1);
        check_equal(node_length(), 0);
        give(1, &one, 1);
        give(1, &objects[0][1], cache->objects - 1);
        give(1, &objects[1][1], cache->objects - 1);
        end();
}

/* S1-51: without remote frees to the head, with them to the tail. */
static void deactivate_position(void **state)
{
        void *objects[4][64];

        begin(512, 4, 5);
        for (unsigned int slot = 0; slot < 3; slot++)
                take(slot, objects[slot], 5);
        cache->engine->flush_slot(cache, &slots[0]);
        walk();
        give(3, objects[1], 1); /* a remote free into slot 1's CPU slab */
        cache->engine->flush_slot(cache, &slots[1]);
        walk();
        check_equal(node_position(slab_at(objects[0][0])), 0);
        check_equal(node_position(slab_at(objects[1][0])), 1);
        cache->engine->flush_slot(cache, &slots[2]);
        walk();
        check_equal(node_position(slab_at(objects[2][0])), 0);
        check_equal(node_position(slab_at(objects[0][0])), 1);
        give(0, objects[0], 5);
        give(0, &objects[1][1], 4);
        give(0, objects[2], 5);
        end();
}

/* S1-51: the CPU freelist goes in front of the slab's list; the uncarved room is linked too. */
static void deactivate_links_everything(void **state)
{
        void *objects[64], *again[64];
        struct page *slab;

        begin(64, 4, 5);
        take(0, objects, 10);
        slab = slab_at(objects[0]);
        check_equal(state_unpack(slab->state).inuse, cache->objects);
        cache->engine->flush_slot(cache, &slots[0]);
        check_equal(walk().inuse, 10);
        check_equal(state_unpack(slab->state).inuse, 10);
        take(1, again, cache->objects - 10);
        check(slab_at(again[0]) == slab);
        for (unsigned int i = 1; i < cache->objects - 10; i++)
                check((char *)again[i - 1] == (char *)again[i] + cache->size);
        give(1, again, cache->objects - 10);
        give(1, objects, 10);
        end();
}

/* S1-51, S1-35: an empty CPU slab is kept while fewer than min_partial slabs are there. */
static void deactivate_empty(void **state)
{
        for (size_t least = 0; least < 3; least++) {
                void *one;

                begin(512, 4, least);
                for (unsigned int slot = 0; slot < SLOTS; slot++) {
                        take(slot, &one, 1);
                        give((slot + 1) % SLOTS, &one, 1); /* into the CPU slab: frozen */
                }
                for (unsigned int slot = 0; slot < SLOTS; slot++)
                        cache->engine->flush_slot(cache, &slots[slot]);
                walk();
                check_equal(node_length(), least);
                check_equal(cache->node[0].slabs, least);
                end();
        }
}

/* S1-51: a CPU slab that is used up is FULL after deactivation, on no list. */
static void deactivate_full(void **state)
{
        void *objects[64];

        begin(512, 4, 5);
        take(0, objects, cache->objects);
        cache->engine->flush_slot(cache, &slots[0]);
        check_equal(walk().full, 1);
        check_equal(node_length(), 0);
        give(0, objects, cache->objects);
        end();
}

/* S1-55, S1-56: a flushed chain goes to the tail; empty slabs beyond min_partial are freed. */
static void put_chain(void **state)
{
        static void *objects[SLABS_MAX][64];

        begin(512, 10, 2);
        take_full_slabs(0, 6, objects);
        for (unsigned int i = 0; i < 6; i++)
                give(1, objects[i], i < 4 ? cache->objects : 1); /* 0 to 3 are empty */
        check_equal(chain_length_of(1), 6);
        cache->engine->flush_slot(cache, &slots[1]);
        walk();
        /* From the newest: 5, 4 stay as partial; the empty slabs meet nr_partial >= min_partial. */
        check_equal(node_length(), 2);
        check_equal(node_position(slab_at(objects[5][0])), 0);
        check_equal(node_position(slab_at(objects[4][0])), 1);
        check_equal(cache->node[0].slabs, 2);
        give(0, &objects[4][1], cache->objects - 1);
        give(0, &objects[5][1], cache->objects - 1);
        end();
}

/* S1-33, S1-35, T13: freeing the last object of a NODE partial slab. */
static void free_empties_node_slab(void **state)
{
        static void *objects[SLABS_MAX][64];

        begin(512, 0, 3);
        take_full_slabs(0, 5, objects);
        for (unsigned int i = 0; i < 5; i++)
                give(0, objects[i], 1);
        check_equal(node_length(), 5);
        /* T12: not emptied, it stays where it is. */
        give(0, &objects[2][1], 1);
        check_equal(node_position(slab_at(objects[2][0])), 2);
        for (unsigned int i = 0; i < 5; i++) {
                unsigned int from = i == 2 ? 2 : 1;

                give(0, &objects[i][from], cache->objects - from);
                /* 5 and 4 on the list are >= 3, so are 3: the slab goes; then 2 are kept. */
                check_equal(node_length(), i < 3 ? 4 - i : 2);
        }
        end();
}

/* T15 and S1-33: without CPU partial lists a FULL slab goes to the node's tail. */
static void full_slab_without_cpu_partial(void **state)
{
        static void *objects[SLABS_MAX][64];

        begin(512, 0, 1);
        take_full_slabs(0, 4, objects);
        give(0, objects[0], 1);
        give(0, objects[1], 1);
        check_equal(node_position(slab_at(objects[1][0])), 1);
        check_equal(chain_length_of(0), 0);
        /* All objects of a FULL slab in a chain: it is empty, and enough slabs are on the list. */
        give(0, objects[2], cache->objects);
        check_equal(cache->node[0].slabs, 3);
        give(0, objects[3], cache->objects);
        give(0, &objects[0][1], cache->objects - 1);
        give(0, &objects[1][1], cache->objects - 1);
        end();
}

/* min_partial 0 keeps no empty slab at all. */
static void min_partial_zero(void **state)
{
        static void *objects[SLABS_MAX][64];

        begin(512, 0, 0);
        take_full_slabs(0, 3, objects);
        for (unsigned int i = 0; i < 3; i++) {
                give(0, objects[i], cache->objects);
                check_equal(cache->node[0].slabs, 2 - i);
        }
        end();
}

/* S1-57: the fullest slab first; slabs with more than 32 free objects behind, as they were. */
static void shrink_order(void **state)
{
        static void *objects[SLABS_MAX][64];
        static const unsigned int freed[8] = {40, 3, 64, 33, 32, 1, 50, 3};
        static const int expected[8] = {4, 1, -1, 5, 3, 0, 6, 2};

        options.slub_min_objects = 64; /* 64 objects a slab */
        begin(64, 0, 100);
        options.slub_min_objects = 0;
        check_equal(cache->objects, 64);
        take_full_slabs(0, 8, objects);
        for (unsigned int i = 0; i < 8; i++)
                give(0, objects[i], freed[i]);
        check_equal(node_length(), 8);
        check_equal(cache->engine->shrink(cache), true); /* slabs remain */
        walk();
        check_equal(node_length(), 7);
        for (unsigned int i = 0; i < 8; i++) {
                int position = node_position(slab_at(objects[i][0]));

                /* Equal buckets: in which order is not said. */
                if (freed[i] == 3)
                        check(position == 1 || position == 2);
                else if (freed[i] < 64)
                        check_equal(position, expected[i]);
        }
        for (unsigned int i = 0; i < 8; i++)
                if (freed[i] < 64)
                        give(0, &objects[i][freed[i]], 64 - freed[i]);
        check_equal(cache->engine->shrink(cache), false);
        end();
}

/* S5-21: a chain takes objects of its slab until three strangers have been seen. */
static void chains_of_a_batch(void **state)
{
        static void *objects[SLABS_MAX][64];
        void *batch[60];
        unsigned int count = 0;

        begin(512, 10, 100);
        take_full_slabs(0, 4, objects);
        for (unsigned int i = 0; i < 10; i++)
                for (unsigned int slab = 0; slab < 4; slab++)
                        batch[count++] = objects[slab][i];
        give(1, batch, count);
        for (unsigned int slab = 0; slab < 4; slab++)
                check_equal(state_unpack(slab_at(objects[slab][0])->state).inuse,
                            cache->objects - 10);
        for (unsigned int slab = 0; slab < 4; slab++)
                give(1, &objects[slab][10], cache->objects - 10);
        end();
}

/*
 * S1-50: slabs of the fallback order, beside slabs of the preferred order. Several lie side by side, where a
 * slab of the preferred order would be.
 */
static void fallback_order_of(uint32_t size)
{
        void *objects[600];
        unsigned int count = 0;
        bool unaligned = false;

        begin(size, 2, 5);
        check(cache->order > cache->min_order);
        for (unsigned int round = 0; round < 12; round++) {
                unsigned int expected;

                refused_order = round % 6 ? cache->order : ORDER_MAX + 1;
                expected = round % 6 ? cache->min_order_objects : cache->objects;
                take(0, objects + count, expected);
                check_equal(slab_objects(slab_at(objects[count])), expected);
                check_equal(slab_at(objects[count])->order,
                            round % 6 ? cache->min_order : cache->order);
                unaligned |= page_number(slab_at(objects[count])) % order_pages(cache->order) != 0;
                count += expected;
                cache->engine->flush_slot(cache, &slots[0]);
        }
        refused_order = ORDER_MAX + 1;
        check(unaligned);
        for (unsigned int i = 0; i < count; i++) {
                check(cache->engine->is_object(cache, objects[i]));
                check(!cache->engine->is_object(cache, (char *)objects[i] + 8));
        }
        give(1, objects, count);
        end();
}

/* Objects of 1,024 bytes begin where objects of a larger slab would. */
static void fallback_order(void **state)
{
        fallback_order_of(700);
        fallback_order_of(1024);
}

/* Without pages and without memory for tables. */
static void no_memory(void **state)
{
        void *objects[64];

        begin(200, 2, 5);
        refused_order = 0;
        check_equal(cache->engine->take(cache, &slots[0], objects, 10), 0);
        errno = 0;
        check(kmem_cache_alloc(cache, GFP_KERNEL | __GFP_NOWARN) == NULL);
        check_equal(errno, ENOMEM);
        refused_order = ORDER_MAX + 1;
        /* A slab's objects are handed out, and no more. */
        take(0, objects, 1);
        refused_order = 0;
        check_equal(cache->engine->take(cache, &slots[0], objects + 1, 60), cache->objects - 1);
        refused_order = ORDER_MAX + 1;
        give(0, objects, cache->objects);
        end();
}

/* Of slabs that could not be made the tables go back. */
static void fewer_slabs(void **state)
{
        void *objects[100];
        unsigned int count;
        size_t before;

        begin(512, 4, 5);
        before = metadata_used_bytes();
        blocks_at_once = 1;
        count = cache->engine->take(cache, &slots[0], objects, 100);
        check(count >= 50);
        blocks_at_once = UINT32_MAX;
        check_equal(metadata_used_bytes() - before,
                    walk().slabs * metadata_round(slub_table_bytes(cache->objects)));
        give(0, objects, count);
        end();
}

/* Each call for metadata fails in turn, from creation to destruction. */
static void no_metadata(void **state)
{
        bool passed = false;

        cache = NULL;
        walk_own_slots(NULL, NULL, 0);
        for (unsigned int turn = 1; !passed && turn < 100; turn++) {
                struct kmem_cache *made;
                void *objects[20] = {0};

                metadata_calls = turn;
                made = kmem_cache_create("scarce", 300, 0, 0, NULL);
                check(made || errno == ENOMEM);
                for (unsigned int i = 0; made && i < 20; i++)
                        objects[i] = kmem_cache_alloc(made, __GFP_NOWARN);
                for (unsigned int i = 0; made && i < 20; i++)
                        kmem_cache_free(made, objects[i]);
                if (made)
                        kmem_cache_shrink(made);
                kmem_cache_destroy(made);
                passed = metadata_calls != 0;
                metadata_calls = 0;
                walk();
        }
        check(passed);
}

/* S8-31: constructors run once an object, before it is handed out, also where slabs fall back. */
static void *constructed[4096];
static unsigned int constructed_count;

static void construct(void *object)
{
        constructed[constructed_count++] = object;
        *(uint64_t *)object = 0xc0de;
}

static void check_constructed_once(void)
{
        for (unsigned int i = 0; i < constructed_count; i++)
                for (unsigned int j = 0; j < i; j++)
                        check(constructed[i] != constructed[j]);
}

static void constructors(void **state)
{
        void *objects[500];

        cache = kmem_cache_create("lists", 700, 0, 0, construct);
        check(cache != NULL);
        for (unsigned int round = 0; round < 3; round++) {
                constructed_count = 0;
                refused_order = round == 1 ? cache->order : ORDER_MAX + 1;
                for (unsigned int i = 0; i < 500; i++) {
                        objects[i] = kmem_cache_alloc(cache, 0);
                        check_equal(*(uint64_t *)objects[i], 0xc0de);
                        *(uint64_t *)objects[i] = 1;
                }
                check_equal(constructed_count, cache->node[0].objects);
                check_constructed_once();
                for (unsigned int i = 0; i < 500; i++) {
                        *(uint64_t *)objects[i] = 0xc0de;
                        kmem_cache_free(cache, objects[i]);
                }
                check_equal(kmem_cache_shrink(cache), 0);
        }
        refused_order = ORDER_MAX + 1;
        kmem_cache_destroy(cache);
}

static void *taken_within;

static void construct_and_take(void *object)
{
        static bool within;

        *(uint64_t *)object = 0xc0de;
        if (!within && !taken_within) {
                within = true;
                check_equal(cache->engine->take(cache, &slots[0], &taken_within, 1), 1);
                within = false;
        }
}

/*
 * A constructor that allocates brings the slot a CPU slab while a slab is made: both are there
 * then.
 */
static void constructor_that_allocates(void **state)
{
        void *object;

        taken_within = NULL;
        begin_with(construct_and_take, 700, 4, 5);
        take(0, &object, 1);
        check(taken_within && slab_at(taken_within) != slab_at(object));
        check_equal(walk().slabs, 2);
        give(0, &object, 1);
        give(0, &taken_within, 1);
        end();
}

/* S8-30, S1-59: slabs of a type-safe cache go at once, their pages when no reader is left. */
static void typesafe_pages_outlive_slabs(void **state)
{
        void *objects[100];

        cache = kmem_cache_create("typesafe", 128, 0, SLAB_TYPESAFE_BY_RCU, NULL);
        kmem_rcu_read_lock();
        for (unsigned int i = 0; i < 100; i++) {
                objects[i] = kmem_cache_alloc(cache, 0);
                memset(objects[i], (int)i, 128);
        }
        for (unsigned int i = 0; i < 100; i++)
                kmem_cache_free(cache, objects[i]);
        check_equal(kmem_cache_shrink(cache), 0);
        check_equal(walk().slabs, 0);
        check(deferred_pages >= 100 * 128 / PAGE_SIZE);
        for (unsigned int i = 0; i < 100; i++) {
                check_equal(heap.map[address_page(objects[i])], 0);
                check_equal(*((unsigned char *)objects[i] + i), i);
        }
        kmem_rcu_read_unlock();
        kmem_cache_destroy(cache);
        check_equal(deferred_pages, 0);
}

/* Frees that are wrong, with bad_free=ignore: nothing changes, and the counts stay exact. */
static void child_bad_frees(void)
{
        void *objects[20], *batch[6];
        struct kmem_cache *other = kmem_cache_create("other", 512, 0, 0, NULL);
        void *foreign = kmem_cache_alloc(other, 0);
        void *large = kmalloc(100000, 0);
        int local;

        begin(512, 4, 5);
        take(0, objects, 10);
        batch[0] = objects[3];
        batch[1] = objects[4];
        batch[2] = objects[3];              /* twice in a batch */
        batch[3] = (char *)objects[5] + 16; /* inside an object */
        batch[4] = large;
        batch[5] = &local;
        cache->engine->give(cache, &slots[0], batch, 6);
        walk();
        check_equal(slots[0].taken - slots[0].given, 8);
        batch[0] = objects[4]; /* free already */
        batch[1] = foreign;    /* of another cache: the layer above sorts them out */
        cache->engine->give(cache, &slots[1], batch, 2);
        walk();
        check_equal(slots[1].given, 0);
        for (unsigned int i = 0; i < 10; i++)
                if (i != 3 && i != 4)
                        give(2, &objects[i], 1);
        kmem_cache_free(other, foreign);
        kfree(large);
        end();
        kmem_cache_destroy(other);
}

static void bad_frees_with(const char *row)
{
        static struct child_result result;

        child_run("bad_frees", row, &result);
        if (result.status)
                fprintf(stderr, "%s", result.output);
        assert_int_equal(result.status, 0);
        assert_non_null(strstr(result.output,
                               "to cache \"lists\": it is free already (double free); ignored"));
        assert_non_null(
                strstr(result.output, "it is inside an object (invalid object pointer); ignored"));
        assert_non_null(strstr(result.output, "it is not an object of this cache; ignored"));
}

/* By chains of many slabs, and by the kernel's (S5-21). */
static void bad_frees(void **state)
{
        bad_frees_with("bad_free=ignore");
        bad_frees_with("bad_free=ignore,sheaf_capacity=0");
}

static void child_double_free(void)
{
        void *objects[2];

        begin(512, 4, 5);
        take(0, objects, 2);
        give(0, objects, 1);
        give(0, objects, 1);
}

static void double_free_aborts(void **state)
{
        child_aborts("double_free", "bad_free=abort", "it is free already (double free)");
}

int main(int argc, char **argv)
{
        static const struct child_case children[] = {
                {"bad_frees", child_bad_frees},
                {"double_free", child_double_free},
        };
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(ascending_order),
                cmocka_unit_test(apart_in_threads),
                cmocka_unit_test(first_apart_before_threads),
                cmocka_unit_test(named_ascending_before_threads),
                cmocka_unit_test(later_ascending_before_threads),
                cmocka_unit_test(ascending_in_threads),
                cmocka_unit_test(exhausted_slab_is_full),
                cmocka_unit_test(free_into_cpu_slab),
                cmocka_unit_test(first_free_of_full_slab),
                cmocka_unit_test(drain_rule),
                cmocka_unit_test(refill_stop),
                cmocka_unit_test(refill_short_list),
                cmocka_unit_test(deactivate_position),
                cmocka_unit_test(deactivate_links_everything),
                cmocka_unit_test(deactivate_empty),
                cmocka_unit_test(deactivate_full),
                cmocka_unit_test(put_chain),
                cmocka_unit_test(free_empties_node_slab),
                cmocka_unit_test(full_slab_without_cpu_partial),
                cmocka_unit_test(min_partial_zero),
                cmocka_unit_test(shrink_order),
                cmocka_unit_test(chains_of_a_batch),
                cmocka_unit_test(fallback_order),
                cmocka_unit_test(no_memory),
                cmocka_unit_test(no_metadata),
                cmocka_unit_test(fewer_slabs),
                cmocka_unit_test(constructors),
                cmocka_unit_test(constructor_that_allocates),
                cmocka_unit_test(typesafe_pages_outlive_slabs),
                cmocka_unit_test(bad_frees),
                cmocka_unit_test(double_free_aborts),
        };

        child_main(argc, argv, children, array_size(children));
        child_restart_with(argv, "engine=slub");
        return cmocka_run_group_tests_name("slub lists", tests, NULL, NULL);
}
