/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Sheaves, pairs, stock and barn; each of the sequences; exact counts at rest. Tests that look into
 * the calling thread's slot keep the thread on a CPU, so that it stays in its slot.
 */
#define _GNU_SOURCE
#include "engines.h"
#include "record_bytes.h"
#include "walker.h"

#include "introspect/totals.h"
#include "percpu/area.h"
#include "percpu/barn.h"
#include "percpu/percpu.h"
#include "percpu/rest.h"
#include "percpu/stock.h"
#include "process/start.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MANY = 4000 };

static struct kmem_cache *cache;
static void *objects[MANY];

static void begin(const char *name, unsigned int size)
{
        cache = kmem_cache_create(name, size, 0, 0, NULL);
        check(cache != NULL);
}

static uint64_t inuse(void)
{
        struct cache_totals totals;

        cache_total(cache, &totals);
        return totals.inuse;
}

static uint64_t resting(void)
{
        struct cache_totals totals;

        cache_total(cache, &totals);
        return totals.resting;
}

static void take_many(unsigned int count)
{
        for (unsigned int i = 0; i < count; i++) {
                objects[i] = kmem_cache_alloc(cache, GFP_KERNEL);
                check(objects[i] != NULL);
                memset(objects[i], 0x77, cache->object_size);
        }
}

static void free_many(unsigned int count)
{
        for (unsigned int i = 0; i < count; i++)
                kmem_cache_free(cache, objects[i]);
}

static void end(void)
{
        struct walk_counts counts;

        walk_heap(cache, &counts);
        check_equal(inuse(), 0);
        check_equal(kmem_cache_shrink(cache), 0);
        walk_heap(cache, &counts);
        check_equal(counts.slabs, 0);
        kmem_cache_destroy(cache);
}

static void stay_on_one_cpu(void)
{
        cpu_set_t set;

        CPU_ZERO(&set);
        CPU_SET((size_t)sched_getcpu(), &set);
        sched_setaffinity(0, sizeof(set), &set);
}

static bool has_sheaves(void)
{
        return cache->sheaf_capacity > 0;
}

static struct pair own_pair(void)
{
        return slot_read_pair(slot_current(), cache->sheaf_offset);
}

static struct slot_cache *own_record(void)
{
        struct slot *slot = slot_current();

        return slot_record(&slot, cache);
}

/* As many as a miss brings: a sheaf, of a single slab if there are CPU slabs, or a batch (S6-31). */
static uint32_t refill_objects(void)
{
        uint32_t wanted = cache->sheaf_capacity;

        if (cache->engine->caching == CACHING_ARRAY)
                wanted = min_of(cache->batchcount, 16u);
        return cache->no_cpu_slabs ? wanted : min_of(wanted, cache->objects);
}

/* The first allocation refills a sheaf and installs it as main. */
static void first_refill(void **state)
{
        void *object;

        begin("percpu", 64);
        check(sheaf_is_cold(own_pair().main) && sheaf_is_cold(own_pair().spare));
        object = kmem_cache_alloc(cache, 0);
        check_equal(inuse(), 1);
        if (has_sheaves()) {
                check_equal(own_pair().main->capacity, cache->sheaf_capacity);
                check_equal(own_pair().main->size, refill_objects() - 1);
                check(sheaf_is_cold(own_pair().spare));
        }
        kmem_cache_free(cache, object);
        check_equal(inuse(), 0);
        end();
}

/* Last in, first out, from the top of main. */
static void newest_first(void **state)
{
        void *a, *b;

        begin("percpu", 64);
        if (!has_sheaves())
                goto out;
        take_many(10);
        a = objects[3];
        b = objects[7];
        kmem_cache_free(cache, a);
        kmem_cache_free(cache, b);
        check(kmem_cache_alloc(cache, 0) == b);
        check(kmem_cache_alloc(cache, 0) == a);
        free_many(10);
out:
        end();
}

/* Main and spare take turns before anything else is asked. */
static void spare_before_refill(void **state)
{
        unsigned int count, in_pair;
        uint64_t taken;

        skip_unless_engine(slub_engine); /* an array has no spare */
        begin("percpu", 64);
        count = cache->sheaf_capacity * 3;
        if (cache->sheaf_capacity < 20)
                goto out;
        take_many(count);
        for (unsigned int i = 0; i < cache->sheaf_capacity * 2; i++)
                kmem_cache_free(cache, objects[--count]);
        in_pair = own_pair().main->size + own_pair().spare->size;
        check(in_pair >= cache->sheaf_capacity);
        taken = own_record()->engine.taken;
        for (unsigned int i = 0; i < in_pair; i++)
                objects[count++] = kmem_cache_alloc(cache, 0);
        check_equal(own_record()->engine.taken, taken);
        check_equal(own_pair().main->size + own_pair().spare->size, 0);
        free_many(count);
out:
        end();
}

/* Limits of stock, barn and slot hold while many are freed. */
static void limits_hold(void **state)
{
        static const unsigned int sizes[] = {16, 64, 512, 2000, 8000};

        for (size_t i = 0; i < array_size(sizes); i++) {
                begin("percpu", sizes[i]);
                take_many(MANY);
                for (unsigned int j = 0; j < MANY; j++) {
                        kmem_cache_free(cache, objects[j]);
                        check(own_record()->stock_size <= cache->stock_max);
                        check(own_record()->empty_size <= cache->stock_empty_max);
                        check(slot_current()->stock_bytes <= options.slot_cache_max);
                        check(cache->barn->full_size <= cache->barn->full_max);
                        check(cache->barn->empty_size <= BARN_EMPTY_MAX);
                }
                check_equal(inuse(), 0);
                for (unsigned int j = 0; j < MANY; j++) {
                        objects[j] = kmem_cache_alloc(cache, GFP_KERNEL);
                        check(own_record()->empty_size <= cache->stock_empty_max);
                        check(cache->barn->empty_size <= BARN_EMPTY_MAX);
                }
                free_many(MANY);
                end();
        }
}

/*
 * Sheaves that a stock fills and empties in turn stay with their slot: the barn, whose lock other CPUs want, gives and gets
 * none, and none is made.
 */
static void empty_sheaves_stay(void **state)
{
        unsigned int count, empty;
        size_t bytes;

        skip_unless_engine(slub_engine);
        begin("percpu", 64);
        count = cache->sheaf_capacity * (cache->stock_max + 1);
        if (cache->sheaf_capacity < 20 || !cache->stock_max ||
            cache->stock_empty_max < cache->stock_max || options.slot_cache_max < count * 64)
                goto out;
        take_many(count);
        free_many(count);
        check(own_record()->stock_size >= cache->stock_max - 1);
        take_many(count);
        check_equal(own_record()->stock_size, 0);
        empty = own_record()->empty_size;
        check(empty >= cache->stock_max - 1);
        bytes = record_bytes();
        for (int i = 0; i < 3; i++) {
                free_many(count);
                check(own_record()->empty_size < empty);
                take_many(count);
                check_equal(own_record()->empty_size, empty);
        }
        check_equal(record_bytes(), bytes);
        check_equal(barn_here(cache)->full_size + barn_here(cache)->empty_size, 0);
        free_many(count);
out:
        end();
}

/* An empty sheaf goes to the barn where the slot has enough, and is freed if the capacity has changed. */
static void empty_sheaves_within_bounds(void **state)
{
        struct sheaf *sheaves[64];
        uint32_t most;
        size_t bytes;

        skip_unless_engine(slub_engine);
        begin("percpu", 64);
        most = cache->stock_empty_max;
        if (cache->sheaf_capacity < 2 || !most || most >= array_size(sheaves) ||
            !barn_here(cache)->empty_max)
                goto out;
        take_many(1); /* the slot has its record */
        bytes = record_bytes();
        for (uint32_t i = 0; i <= most; i++)
                check((sheaves[i] = stock_take_empty(cache, own_record())) != NULL);
        for (uint32_t i = 0; i <= most; i++)
                stock_put_empty(cache, own_record(), sheaves[i]);
        check_equal(own_record()->empty_size, most);
        check_equal(barn_here(cache)->empty_size, 1);
        check(stock_take_empty(cache, own_record()) == sheaves[most - 1]);
        stock_put_empty(cache, own_record(), sheaves[most - 1]);
        percpu_change_capacity(cache, cache->sheaf_capacity - 1);
        check_equal(own_record()->empty_size + barn_here(cache)->empty_size, 0);
        sheaves[0] = stock_take_empty(cache, own_record());
        percpu_change_capacity(cache, cache->sheaf_capacity + 1);
        stock_put_empty(cache, own_record(), sheaves[0]);
        check_equal(own_record()->empty_size + barn_here(cache)->empty_size, 0);
        check(record_bytes() <= bytes);
        free_many(1);
out:
        end();
}

/* Sizes of S13-03, by the stride. */
static uint32_t capacity_of_7_0(uint32_t stride)
{
        return stride < 256 ? 60 : stride < 1024 ? 28 : stride < PAGE_SIZE ? 12 : 4;
}

/*
 * Smaller for larger objects, but anew above a page (decisions/0003), a power of two with its header,
 * and never megabytes at rest.
 */
static void check_capacity(uint32_t capacity, uint32_t last, uint32_t size)
{
        check(capacity <= last);
        check(!capacity || is_power_of_two(capacity + 2));
        check((size_t)capacity * size <= 512 << 10);
        check(capacity > 0 || size > 65536);
}

static void default_capacities(void **state)
{
        uint32_t last = UINT32_MAX;
        uint64_t set;

        skip_unless_engine(slub_engine); /* engine slab has S6-51 */
        for (uint32_t size = 8; size <= 100000; size += size / 8 * 8) {
                begin("percpu", size);
                if (size > PAGE_SIZE && size / 2 <= PAGE_SIZE)
                        last = UINT32_MAX;
                if (!options_for_cache("percpu", OPTION_SHEAF_CAPACITY, &set) &&
                    cache->engine->caching != CACHING_NONE) {
                        if (cache->sheaves_as_7_0)
                                check_equal(cache->sheaf_capacity, capacity_of_7_0(cache->size));
                        else
                                check_capacity(cache->sheaf_capacity, last, size);
                        last = cache->sheaf_capacity;
                }
                end();
        }
}

/* Flush leaves nothing in any slot or the barn, and frees the sheaves. */
static void flush_empties_everything(void **state)
{
        begin("percpu", 64);
        take_many(MANY);
        free_many(MANY / 2);
        for (unsigned int i = MANY / 2; i < MANY; i++)
                objects[i - MANY / 2] = objects[i];
        check(percpu_flush(cache, false));
        check_equal(resting(), 0);
        check_equal(inuse(), MANY - MANY / 2);
        for (unsigned int number = 0; number < slots_made_count(); number++) {
                struct pair pair = slot_read_pair(slot_made(number), cache->sheaf_offset);
                struct slot_cache *record = slot_peek(slot_made(number), cache_index(cache));

                check(sheaf_is_cold(pair.main) && sheaf_is_cold(pair.spare));
                check(!record ||
                      (!record->stock && !record->stock_size && !record->empty &&
                       !record->empty_size && !record->engine.slab && !record->engine.partial));
        }
        check(!cache->barn->full && !cache->barn->empty);
        check_equal(cache->barn->full_size + cache->barn->empty_size, 0);
        free_many(MANY - MANY / 2);
        /* That of all caches at once, too. */
        percpu_flush_all();
        check_equal(resting(), 0);
        check_equal(cache->barn->full_size + cache->barn->empty_size, 0);
        end();
}

/* A program's cache is none of malloc's classes, whatever flags and size it has. */
static void flag_of_classes(void **state)
{
        for (unsigned int i = 0; i < 40; i++) {
                void *object;

                cache = kmem_cache_create("kmalloc-mine", 40000, 0, SLAB_KMALLOC, NULL);
                check(cache != NULL && !cache_is_of_pages(cache));
                check(cache->flags & SLAB_KMALLOC);
                object = kmem_cache_alloc(cache, 0);
                check(object != NULL);
                kmem_cache_free(cache, object);
                end();
        }
}

/* All metadata of a cache comes back when it is destroyed. */
static void no_metadata_leaks(void **state)
{
        size_t before = 0;

        for (unsigned int round = 0; round < 20; round++) {
                begin("percpu", 24 + round * 40);
                take_many(1500);
                free_many(1500);
                kmem_cache_destroy(cache);
                if (round == 1)
                        before = record_bytes();
        }
        check_equal(record_bytes(), before);
}

/* Counts are exact at every step, and all objects are different. */
static void counts_against_model(void **state)
{
        uint64_t random = 4711;
        unsigned int out = 0;

        begin("percpu", 120);
        for (unsigned int step = 0; step < 40000; step++) {
                bool grow = step / 5000 % 2 == 0;

                if (out < MANY && (!out || random_step(&random) % 16 < (grow ? 10 : 6))) {
                        objects[out] = kmem_cache_alloc(cache, 0);
                        check(*(void **)objects[out] != objects[out]); /* held already */
                        *(void **)objects[out] = objects[out];
                        out++;
                } else {
                        unsigned int from = (unsigned int)(random_step(&random) % out);

                        check(*(void **)objects[from] == objects[from]);
                        *(void **)objects[from] = NULL;
                        kmem_cache_free(cache, objects[from]);
                        objects[from] = objects[--out];
                }
                if (step % 7 == 0)
                        check_equal(inuse(), out);
                if (step % 5000 == 4999)
                        kmem_cache_shrink(cache);
        }
        for (unsigned int i = 0; i < out; i++)
                *(void **)objects[i] = NULL;
        free_many(out);
        end();
}

/* The bulk calls: all objects different, counts exact, any mixture with single calls. */
static void bulk_against_model(void **state)
{
        uint64_t random = 99;
        unsigned int out = 0;

        begin("percpu", 64);
        for (unsigned int step = 0; step < 4000; step++) {
                unsigned int count = (unsigned int)(random_step(&random) % 200);

                if (random_step(&random) % 2) {
                        count = min_of(count, MANY - out);
                        check_equal(kmem_cache_alloc_bulk(cache, __GFP_ZERO, count, objects + out),
                                    count);
                        for (unsigned int i = out; i < out + count; i++) {
                                check(*(void **)objects[i] == NULL);
                                *(void **)objects[i] = objects[i];
                        }
                        out += count;
                } else {
                        count = min_of(count, out);
                        for (unsigned int i = out - count; i < out; i++) {
                                check(*(void **)objects[i] == objects[i]);
                                *(void **)objects[i] = NULL;
                        }
                        out -= count;
                        if (count > 3 && random_step(&random) % 4 == 0) {
                                if (is_slob())
                                        kmem_cache_free(cache, objects[out + 2]);
                                else
                                        kfree(objects[out + 2]);
                                objects[out + 2] = NULL; /* S5-07 */
                        }
                        kmem_cache_free_bulk(random_step(&random) % 2 || is_slob() ? cache : NULL,
                                             count, objects + out);
                }
                check_equal(inuse(), out);
        }
        for (unsigned int i = 0; i < out; i++)
                *(void **)objects[i] = NULL;
        kmem_cache_free_bulk(is_slob() ? cache : NULL, out, objects);
        end();
}

/* ---- The sequences ----------------------------------------------------------------------- */

/* Puts a pair of the test's own into the calling thread's slot. */
static struct sheaf *make_sheaf(unsigned int size)
{
        struct sheaf *sheaf = barn_take_empty(cache);

        check(sheaf != NULL);
        for (sheaf->size = 0; sheaf->size < size; sheaf->size++)
                sheaf->object[sheaf->size] = (void *)(0x1000ul + 64 * sheaf->size);
        return sheaf;
}

static bool replace(const struct pair *expected, struct sheaf *main, struct sheaf *spare)
{
        struct pair new_pair = {.main = main, .spare = spare};

        return slot_replace(slot_current(), cache->sheaf_offset, expected, &new_pair);
}

static void *pop(void)
{
        return slots_are_rseq() ? rseq_pop(cache->sheaf_offset)
                                : locked_slot_pop(cache->sheaf_offset);
}

static bool push(void *object)
{
        return slots_are_rseq() ? rseq_push(cache->sheaf_offset, object) == PUSH_DONE
                                : locked_slot_push(cache->sheaf_offset, object) == PUSH_DONE;
}

/* A locked slot may be any free slot; with a single thread it is the chosen slot. */
static void pop_and_push(void **state)
{
        static const struct pair cold = {&cold_sheaf, &cold_sheaf};
        struct sheaf *sheaf;
        struct pair pair;

        begin("percpu", 64);
        if (cache->sheaf_capacity < 4)
                goto out;
        check(pop() == NULL);         /* cold is empty */
        check(!push((void *)0x1000)); /* and full */
        sheaf = make_sheaf(2);
        check(replace(&cold, sheaf, &cold_sheaf));
        pair = own_pair();
        check(pair.main == sheaf && sheaf_is_cold(pair.spare));
        check(!push((void *)0x1040)); /* on top already */
        check(pop() == (void *)0x1040);
        check_equal(sheaf->size, 1);
        check(push((void *)0x2000));
        check(push((void *)0x1040)); /* deeper sheaves are not seen */
        check_equal(sheaf->size, 3);
        while (sheaf->size < sheaf->capacity)
                check(push((void *)(0x3000ul + sheaf->size)));
        check(!push((void *)0x9000));
        check_equal(sheaf->size, sheaf->capacity);
        while (sheaf->size)
                check(pop() != NULL);
        check(pop() == NULL);
        check(replace(&pair, &cold_sheaf, &cold_sheaf));
        barn_put_empty(cache, sheaf);
out:
        end();
}

/*
 * Bulk sequences move the objects that are there, in the order of single sequences, and nothing
 * more.
 */
static void bulk_sequences(void **state)
{
        static const struct pair cold = {&cold_sheaf, &cold_sheaf};
        struct sheaf *sheaf;
        struct pair pair;
        void *array[80];

        begin("percpu", 64);
        if (!slots_are_rseq() || cache->sheaf_capacity < 20)
                goto out;
        for (unsigned int have = 0; have <= cache->sheaf_capacity; have++)
                for (unsigned int count = 1; count < 70; count += 1 + count / 9) {
                        unsigned int room = cache->sheaf_capacity - have;
                        unsigned int expected = min_of(have, count);

                        sheaf = make_sheaf(have);
                        check(replace(&cold, sheaf, &cold_sheaf));
                        pair = own_pair();
                        memset(array, 0, sizeof(array));
                        check_equal(rseq_pop_bulk(cache->sheaf_offset, array, count), expected);
                        for (unsigned int i = 0; i < expected; i++)
                                check_equal((uintptr_t)array[i],
                                            0x1000ul + 64 * (have - expected + i));
                        check(!array[expected]);
                        check_equal(sheaf->size, have - expected);
                        sheaf->size = have;
                        for (unsigned int i = 0; i < count; i++)
                                array[i] = (void *)(heap.base + 8 * i);
                        expected = min_of(room, count);
                        check_equal(rseq_push_bulk(cache->sheaf_offset, array, count), expected);
                        check_equal(sheaf->size, have + expected);
                        for (unsigned int i = 0; i < expected; i++)
                                check(sheaf->object[have + i] == array[i]);
                        for (unsigned int i = 0; i < have; i++)
                                check_equal((uintptr_t)sheaf->object[i], 0x1000ul + 64 * i);
                        sheaf->size = 0;
                        check(replace(&pair, &cold_sheaf, &cold_sheaf));
                        barn_put_empty(cache, sheaf);
                }
out:
        end();
}

/* A stranger anywhere among the objects, and a bulk push leaves the sheaf as it was. */
static void bulk_push_refuses_strangers(void **state)
{
        static const struct pair cold = {&cold_sheaf, &cold_sheaf};
        void *const strangers[] = {NULL, (void *)(heap.base - 16), (void *)~(uintptr_t)7,
                                   (void *)(heap.base + ~heap.outside + 1), &cold_sheaf};
        struct sheaf *sheaf;
        void *array[32];

        begin("percpu", 64);
        if (!slots_are_rseq() || cache->sheaf_capacity < 20)
                goto out;
        sheaf = make_sheaf(0);
        check(replace(&cold, sheaf, &cold_sheaf));
        for (unsigned int count = 1; count <= 20; count++)
                for (unsigned int at = 0; at < count; at++)
                        for (unsigned int i = 0; i < sizeof(strangers) / sizeof(strangers[0]);
                             i++) {
                                for (unsigned int j = 0; j < count; j++)
                                        array[j] = (void *)(heap.base + 8 * j);
                                array[at] = strangers[i];
                                check_equal(rseq_push_bulk(cache->sheaf_offset, array, count), 0);
                                check_equal(sheaf->size, 0);
                        }
        check(replace(&(struct pair){sheaf, &cold_sheaf}, &cold_sheaf, &cold_sheaf));
        barn_put_empty(cache, sheaf);
out:
        end();
}

/* A replacement needs the slot, both pointers, and a slot that is not stopped (INV-3, INV-4). */
static void replace_compares(void **state)
{
        static const struct pair cold = {&cold_sheaf, &cold_sheaf};
        struct sheaf *a, *b, *c;
        struct slot *slot = slot_current();
        struct pair pair, other;

        begin("percpu", 64);
        if (!has_sheaves())
                goto out;
        a = make_sheaf(0);
        b = make_sheaf(0);
        c = make_sheaf(0);
        check(replace(&cold, a, b));
        pair = own_pair();
        check(pair.main == a && pair.spare == b);
        other = (struct pair){c, b};
        check(!replace(&other, c, c)); /* main differs */
        other = (struct pair){a, c};
        check(!replace(&other, c, c)); /* spare differs */
        other = (struct pair){b, a};
        check(!replace(&other, c, c));
        check(own_pair().main == a && own_pair().spare == b);
        if (slots_are_rseq()) {
                struct pair new_pair = {c, c};

                check(!slot_replace(&shared_slot, cache->sheaf_offset, &pair, &new_pair));
                check(!slot_replace(&shared_slot, cache->sheaf_offset, &cold, &new_pair));
                check(!rseq_replace(&shared_slot, cache->sheaf_offset, &cold, &new_pair));
                store_release(&slot->stopped, 1);
                check(!replace(&pair, c, c));
                store_release(&slot->stopped, 0);
                check(own_pair().main == a && own_pair().spare == b);
        }
        check(replace(&pair, &cold_sheaf, &cold_sheaf));
        barn_put_empty(cache, a);
        barn_put_empty(cache, b);
        barn_put_empty(cache, c);
out:
        end();
}

/* While the slot is stopped, both slow paths still serve and install nothing. */
static void stopped_slot_serves(void **state)
{
        struct slot *slot = slot_current();

        begin("percpu", 64);
        if (!slots_are_rseq() || !has_sheaves())
                goto out;
        store_release(&slot->stopped, 1);
        take_many(500);
        check(sheaf_is_cold(own_pair().main) && sheaf_is_cold(own_pair().spare));
        check_equal(inuse(), 500);
        free_many(500);
        check(sheaf_is_cold(own_pair().main) && sheaf_is_cold(own_pair().spare));
        check_equal(inuse(), 0);
        store_release(&slot->stopped, 0);
out:
        end();
}

/* ---- Threads ----------------------------------------------------------------------------- */

enum { KEPT_MAX = 200 };

struct kept {
        void *objects[KEPT_MAX];
        unsigned int count;
        uint64_t seed;
};

/* Works on the cache with other threads, and keeps some objects. */
static void *thread_work(void *argument)
{
        struct kept *kept = argument;
        uint64_t random = kept->seed * 77 + 1;

        for (unsigned int step = 0; step < 50000; step++)
                if (kept->count < KEPT_MAX && random_step(&random) & 1) {
                        void *object = kmem_cache_alloc(cache, 0);

                        check(__atomic_exchange_n((void **)object, object, __ATOMIC_ACQ_REL) !=
                              object);
                        kept->objects[kept->count++] = object;
                } else if (kept->count) {
                        void *object = kept->objects[--kept->count];

                        check(__atomic_exchange_n((void **)object, NULL, __ATOMIC_ACQ_REL) ==
                              object);
                        kmem_cache_free(cache, object);
                }
        return NULL;
}

/* Counts are exact again as soon as the threads are gone; objects that they kept are in use. */
static void counts_after_threads(void **state)
{
        static struct kept kept[4];
        pthread_t threads[4];
        uint64_t total = 0;

        begin("percpu", 64);
        for (unsigned int i = 0; i < 4; i++) {
                kept[i] = (struct kept){.seed = i};
                assert_int_equal(pthread_create(&threads[i], NULL, thread_work, &kept[i]), 0);
        }
        for (unsigned int i = 0; i < 4; i++) {
                pthread_join(threads[i], NULL);
                total += kept[i].count;
        }
        check_equal(inuse(), total);
        kmem_cache_shrink(cache);
        check_equal(inuse(), total);
        check_equal(resting(), 0);
        for (unsigned int i = 0; i < 4; i++)
                while (kept[i].count) {
                        void *object = kept[i].objects[--kept[i].count];

                        *(void **)object = NULL;
                        kmem_cache_free(cache, object);
                }
        end();
}

extern const unsigned int __rseq_size __attribute__((weak)); /* glibc's, from 2.35 on */

/*
 * A thread that is not registered, with a concurrency id that reads 0, works beside registered
 * threads. It must have no slot: it would share slot 0 without protection.
 */
static void *unregistered_work(void *argument)
{
        struct rseq_area *area = (struct rseq_area *)((char *)thread_pointer() + fast.rseq);

        if (!&__rseq_size)
                return (void *)1; /* the library itself would register the thread anew */
        /* glibc 2.36 registers 32 bytes; newer versions register the kernel's size. */
        for (uint32_t bytes = 32; bytes <= 128 && area->cpu_id >= 0; bytes++)
                syscall(SYS_rseq, area, bytes, 1 /* unregister */, RSEQ_SIGNATURE_VALUE);
        if (area->cpu_id >= 0)
                return (void *)1; /* cannot be tried here */
        check(slot_current() == &shared_slot);
        for (unsigned int step = 0; step < 3000; step++) {
                check(rseq_pop(cache->sheaf_offset) == NULL);
                check(rseq_push(cache->sheaf_offset, objects) == PUSH_FULL);
        }
        return thread_work(argument);
}

static void skip_without_rseq(void)
{
        if (slots_are_rseq())
                return;
        puts("# skipped: no restartable sequences here");
        exit(CHILD_SKIP);
}

static void child_unregistered(void)
{
        static struct kept kept[3];
        pthread_t threads[3];
        void *result;

        skip_without_rseq();
        begin("percpu", 64);
        take_many(200);
        free_many(200);
        for (unsigned int i = 0; i < 3; i++) {
                kept[i].seed = i;
                check(pthread_create(&threads[i], NULL, i ? thread_work : unregistered_work,
                                     &kept[i]) == 0);
        }
        pthread_join(threads[1], NULL);
        pthread_join(threads[2], NULL);
        pthread_join(threads[0], &result);
        if (result) {
                puts("# skipped: a thread cannot be unregistered here");
                exit(CHILD_SKIP);
        }
        check_equal(inuse(), kept[0].count + kept[1].count + kept[2].count);
}

static void unregistered_thread(void **state)
{
        child_passes("unregistered", "");
}

static void stepped_calls(void)
{
        const unsigned int count = 20;

        check(ptrace(PTRACE_TRACEME, 0, NULL, NULL) == 0);
        raise(SIGSTOP);
        for (unsigned int i = 0; i < count; i++) {
                objects[i] = kmem_cache_alloc(cache, GFP_KERNEL);
                check(objects[i] != NULL);
        }
        for (unsigned int i = 0; i < count; i++)
                kmem_cache_free(cache, objects[i]);
        check_equal(kmem_cache_alloc_bulk(cache, GFP_KERNEL, count, objects), count);
        kmem_cache_free_bulk(cache, count, objects);
}

enum { STEPS_MAX = 1000000 };

/* The kernel aborts a sequence at each step of a debugger; calls must still come to an end. */
static void child_single_steps(void)
{
        unsigned int steps = 0;
        int status;
        pid_t pid;

        begin("percpu", 64);
        take_many(200);
        free_many(200);
        pid = fork();
        check(pid >= 0);
        if (pid == 0) {
                /* Work that a child of fork does once is not worth stepping through. */
                kmem_cache_free(cache, kmem_cache_alloc(cache, GFP_KERNEL));
                stepped_calls();
                _exit(0);
        }
        check(waitpid(pid, &status, 0) == pid);
        if (!WIFSTOPPED(status) || ptrace(PTRACE_SINGLESTEP, pid, NULL, NULL)) {
                kill(pid, SIGKILL);
                puts("# skipped: ptrace is refused here");
                exit(CHILD_SKIP);
        }
        while (waitpid(pid, &status, 0) == pid && WIFSTOPPED(status) && steps++ < STEPS_MAX)
                check(ptrace(PTRACE_SINGLESTEP, pid, NULL, NULL) == 0);
        if (WIFSTOPPED(status))
                kill(pid, SIGKILL);
        check(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static void single_steps(void **state)
{
        if (emulated())
                skip_because("the steps would be the emulator's");
#if defined(__aarch64__)
        /* Each step takes the reservation away that an atomic access made of two instructions needs. */
        if (!(getauxval(AT_HWCAP) & HWCAP_ATOMICS))
                skip_because("no atomic access comes to its end by steps without FEAT_LSE");
#endif
        child_passes("single_steps", "");
}

/* ---- Options, each in a child ------------------------------------------------------------ */

static void child_capacity(void)
{
        begin("percpu", 64);
        check_equal(cache->sheaf_capacity, 7);
        take_many(1000);
        check(own_pair().main->capacity == 7 || !slots_are_rseq());
        free_many(1000);
        end();
        begin("another", 64);
        check_equal(cache->sheaf_capacity, 3);
        end();
}

static void capacity_option(void **state)
{
        skip_on_slob("has no sheaves");
        child_passes("capacity", "sheaf_capacity=3,percpu.sheaf_capacity=7");
        child_passes("capacity", "percpu.sheaf_capacity=7,sheaf_capacity=3,slots=locked");
}

static void child_no_sheaves(void)
{
        begin("percpu", 64);
        take_many(1000);
        free_many(500);
        check_equal(resting(), 0);
        for (unsigned int number = 0; number < slots_made_count(); number++) {
                struct pair pair = slot_read_pair(slot_made(number), cache->sheaf_offset);

                check(sheaf_is_cold(pair.main) && sheaf_is_cold(pair.spare));
        }
        for (unsigned int i = 500; i < 1000; i++)
                kmem_cache_free(cache, objects[i]);
        end();
}

static void capacity_zero(void **state)
{
        child_passes("no_sheaves", "sheaf_capacity=0");
        child_passes("no_sheaves", "sheaf_capacity=0,slots=locked");
}

static void child_no_stock(void)
{
        begin("percpu", 64);
        take_many(MANY);
        for (unsigned int i = 0; i < MANY; i++) {
                kmem_cache_free(cache, objects[i]);
                check_equal(slot_current()->stock_bytes, 0);
        }
        check_equal(own_record()->stock_size, 0);
        end();
}

static void slot_cache_max_zero(void **state)
{
        child_passes("no_stock", "slot_cache_max=0");
        child_passes("no_stock", "slot_cache_max=0,slots=locked");
}

/* The barn is for several slots: in a program with a single slot it keeps a single full sheaf. */
static void child_barn_fills(void)
{
        stay_on_one_cpu();
        begin("percpu", 1024);
        take_many(MANY);
        free_many(MANY);
        check(!slots_are_rseq() || slots_made_count() == 1);
        check(cache->barn->full_max > 1);
        check_equal(cache->barn->full_size, slots_made_count() > 1 ? cache->barn->full_max : 1);
        end();
}

/* A slot's sheaves of objects that share pages stay in its stock. */
static void child_small_stay(void)
{
        static const uint32_t sizes[] = {16, 512};

        stay_on_one_cpu();
        for (size_t i = 0; i < array_size(sizes); i++) {
                begin("percpu", sizes[i]);
                take_many(MANY);
                free_many(MANY);
                check_equal(cache->barn->full_size, 0);
                check_equal(own_record()->stock_size, cache->stock_max);
                check(cache->stock_max > 4);
                end();
        }
}

/* A slot with slabs of its own leaves a barn's sheaves of objects that share pages to others. */
static void child_own_slabs_first(void)
{
        static const uint32_t sizes[] = {64, 1024};

        stay_on_one_cpu();
        for (size_t i = 0; i < array_size(sizes); i++) {
                struct slot_cache *record;
                struct sheaf *sheaf, *taken;
                void *first;

                begin("percpu", sizes[i]);
                first = kmem_cache_alloc(cache, GFP_KERNEL);
                record = own_record();
                sheaf = barn_take_empty(cache);
                sheaf_set_size(sheaf, cache->engine->take(cache, &record->engine, sheaf->object,
                                                          sheaf->capacity));
                cache->barn->full_max_few = 1;
                check(barn_put_full(barn_here(cache), sheaf));
                while (!cache->engine->has_slabs(&record->engine, cache->sheaf_capacity))
                        check(cache->engine->take(cache, &record->engine, &objects[0], 1) &&
                              cache->engine->give(cache, &record->engine, &objects[0], 1) == 0);
                taken = percpu_take_full(cache, slot_current(), record);
                if (sizes[i] == 64) {
                        check(!taken);
                        cache->engine->flush_slot(cache, &record->engine);
                        taken = percpu_take_full(cache, slot_current(), record);
                }
                check(taken == sheaf);
                sheaf_give(cache, record, sheaf);
                barn_put_empty(cache, sheaf);
                kmem_cache_free(cache, first);
                end();
        }
}

static void small_stay(void **state)
{
        skip_unless_engine(slub_engine);
        child_passes("small_stay", "engine=slub,reclaim_thread=off");
        child_passes("own_slabs_first", "engine=slub,reclaim_thread=off");
}

static void barn_of_one_slot(void **state)
{
        skip_unless_engine(slub_engine);
        child_passes("barn_fills", "engine=slub,reclaim_thread=off");
        child_passes("barn_fills", "engine=slub,reclaim_thread=off,slots=locked");
}

static void child_locked(void)
{
        check(!slots_are_rseq());
        check(slots_made_count() >= 1);
        begin("percpu", 64);
        check(rseq_pop(cache->sheaf_offset) == NULL);
        take_many(1000);
        free_many(1000);
        end();
}

static void locked_slots(void **state)
{
        child_passes("locked", "slots=locked");
}

static void child_double_free_on_top(void)
{
        begin("percpu", 64);
        take_many(3);
        kmem_cache_free(cache, objects[0]);
        kmem_cache_free(cache, objects[0]);
}

/* Free on top of a sheaf already: caught at the call. */
static void double_free_on_top(void **state)
{
        const char *text = "free already (double free)";

        child_aborts("double_free_on_top", "bad_free=abort", text);
        child_aborts("double_free_on_top", "bad_free=abort,slots=locked", text);
        child_aborts("double_free_on_top", "bad_free=abort,check=sheaf", text);
        child_aborts("double_free_on_top", "bad_free=abort,sheaf_capacity=0", text);
        child_prints("double_free_on_top", "bad_free=ignore", text);
}

static void child_double_free_deeper(void)
{
        begin("percpu", 64);
        take_many(10);
        kmem_cache_free(cache, objects[0]);
        kmem_cache_free(cache, objects[1]);
        kmem_cache_free(cache, objects[0]);
        fputs("called\n", stderr);
        percpu_flush(cache, false);
}

/* Deeper in a sheaf: caught when both copies reach a drain; with check=sheaf at the call. */
static void double_free_deeper(void **state)
{
        static struct child_result result;

        skip_on_slob("sees every free at the call");
        child_run("double_free_deeper", "bad_free=abort", &result);
        assert_true(result.status != 0);
        assert_non_null(strstr(result.output, "called\n"));
        assert_non_null(strstr(result.output, "it is free already (double free)"));
        child_run("double_free_deeper", "bad_free=abort,check=sheaf", &result);
        assert_true(result.status != 0);
        assert_null(strstr(result.output, "called\n"));
        assert_non_null(strstr(result.output, "free already (double free)"));
}

/* S8-42: freed to a wrong cache, an object goes to its own when it leaves the sheaf. */
static void child_wrong_cache(void)
{
        struct kmem_cache *other = kmem_cache_create("other", 64, 0, 0, NULL);
        void *object = kmem_cache_alloc(other, 0);

        begin("percpu", 64);
        kmem_cache_free(cache, kmem_cache_alloc(cache, 0));
        kmem_cache_free(cache, object);
        percpu_flush(cache, false);
        end();
        cache = other;
        end();
}

/* Objects of two other caches lie between and at both ends of the objects that a call gives back. */
static void child_wrong_caches(void)
{
        struct kmem_cache *others[2];
        void *batch[60];

        begin("percpu", 64);
        others[0] = kmem_cache_create("other", 64, 0, 0, NULL);
        others[1] = kmem_cache_create("another", 192, 0, 0, NULL);
        for (unsigned int i = 0; i < 60; i++) {
                bool strange = i % 7 == 0 || i == 59;

                batch[i] = kmem_cache_alloc(strange ? others[i % 2] : cache, 0);
        }
        kmem_cache_free_bulk(cache, 60, batch);
        percpu_flush(cache, false);
        end();
        for (unsigned int i = 0; i < 2; i++) {
                cache = others[i];
                percpu_flush(cache, false);
                end();
        }
}

static void wrong_caches(void **state)
{
        skip_on_slob("does not know of which cache an object is (S7-43)");
        child_prints("wrong_caches", "", "the object is from another");
        child_prints("wrong_caches", "slots=locked", "the object is from another");
        child_prints("wrong_caches", "sheaf_capacity=0", "the object is from another");
}

static void wrong_cache(void **state)
{
        const char *text = "wrong slab cache: the object is from other";

        skip_on_slob("does not know of which cache an object is (S7-43)");
        child_prints("wrong_cache", "", text);
        child_prints("wrong_cache", "slots=locked", text);
        child_prints("wrong_cache", "sheaf_capacity=0", text);
        child_prints("wrong_cache", "check=sheaf", text);
}

/* On the given CPU for a while, so that both CPUs' slots hold sheaves. */
static void *spread(void *argument)
{
        cpu_set_t set;

        CPU_ZERO(&set);
        CPU_SET((size_t)(uintptr_t)argument, &set);
        sched_setaffinity(0, sizeof(set), &set);
        for (unsigned int round = 0; round < 50; round++) {
                void *batch[50];

                for (unsigned int i = 0; i < 50; i++)
                        batch[i] = kmem_cache_alloc(cache, 0);
                for (unsigned int i = 0; i < 50; i++)
                        kmem_cache_free(cache, batch[i]);
                sched_yield();
        }
        return NULL;
}

static void spread_over_cpus(void)
{
        pthread_t threads[2];

        for (uintptr_t i = 0; i < 2; i++)
                check(pthread_create(&threads[i], NULL, spread, (void *)i) == 0);
        pthread_join(threads[0], NULL);
        pthread_join(threads[1], NULL);
        check_equal(inuse(), 0);
}

/* Without membarrier a shrink empties the caller's slot and says so. */
static void child_no_fence(void)
{
        skip_without_rseq();
        begin("percpu", 64);
        spread_over_cpus();
        check(!slots_fence());
        kmem_cache_shrink(cache);
        check(sheaf_is_cold(own_pair().main) && sheaf_is_cold(own_pair().spare));
        check_equal(inuse(), 0);
        take_many(500);
        free_many(500);
        check_equal(inuse(), 0);
}

static void fence_refused(void **state)
{
        child_refuse_system_call(SYS_membarrier);
        child_prints("no_fence", "", "the kernel refuses membarrier");
        child_refuse_system_call(-1);
}

/* Destroy needs no fence: objects that rest in another slot are no leftovers. */
static void child_destroy_without_fence(void)
{
        begin("percpu", 64);
        spread_over_cpus();
        kmem_cache_destroy(cache);
        begin("percpu", 64); /* takes the cache's index */
        spread_over_cpus();
        kmem_cache_destroy(cache);
}

static void nothing_is_left_without_fence(const char *child)
{
        static struct child_result result;

        child_refuse_system_call(SYS_membarrier);
        child_run(child, "", &result);
        child_refuse_system_call(-1);
        assert_int_equal(result.status, 0);
        assert_null(strstr(result.output, "Objects remaining"));
}

static void destroy_without_fence(void **state)
{
        nothing_is_left_without_fence("destroy_without_fence");
}

/* A cache that cannot be closed keeps the objects in its sheaves, of all slots. */
static void child_close_without_fence(void)
{
        struct pair pair;
        uint64_t rest;
        int error;

        skip_without_rseq();
        begin("percpu", 64);
        if (!has_sheaves())
                goto out;
        spread_over_cpus();
        take_many(500);
        free_many(500);
        pair = own_pair();
        rest = resting();
        check(rest != 0);
        lock_take(&cache_mutex);
        error = percpu_close(cache);
        lock_drop(&cache_mutex);
        check_equal(error, EPERM);
        check(!cache_is_closed(cache));
        check(own_pair().main == pair.main && own_pair().spare == pair.spare);
        check_equal(resting(), rest);
        check_equal(inuse(), 0);
out:
        kmem_cache_destroy(cache);
}

static void close_without_fence(void **state)
{
        nothing_is_left_without_fence("close_without_fence");
}

/* Where the kernel has no rseq the library falls back to locked slots and works. */
static void child_no_rseq(void)
{
        check(!slots_are_rseq());
        child_locked();
}

static void rseq_refused(void **state)
{
        /* glibc's registration fails in the child too, then ours. */
        child_refuse_system_call(SYS_rseq);
        child_passes("no_rseq", "");
        child_prints("no_rseq", "slots=rseq", "using locked slots");
        child_refuse_system_call(-1);
}

/* Linux on arm64; mended in 7.0.14 and 7.1. */
static void test_releases_that_abort(void **state)
{
        static const char *const good[] = {
                "6.18.44",   "6.1.0-18-arm64",     "6.190.0", "7.0.14-arm64",
                "7.1.0-rc1", "7.2.13+deb14-arm64", "17.0.3",  ""};
        static const char *const bad[] = {"6.19.0",    "6.19",    "6.19.12-generic",
                                          "7.0.0-rc3", "7.0-rc1", "7.0.13+deb14-cloud-arm64",
                                          "7.0.9"};

        (void)state;
        for (size_t i = 0; i < array_size(good); i++)
                assert_true(area_release_aborts(good[i]));
        for (size_t i = 0; i < array_size(bad); i++)
                assert_false(area_release_aborts(bad[i]));
}

int main(int argc, char **argv)
{
        static const struct child_case children[] = {
                {"unregistered", child_unregistered},
                {"single_steps", child_single_steps},
                {"capacity", child_capacity},
                {"no_sheaves", child_no_sheaves},
                {"no_stock", child_no_stock},
                {"barn_fills", child_barn_fills},
                {"small_stay", child_small_stay},
                {"own_slabs_first", child_own_slabs_first},
                {"locked", child_locked},
                {"double_free_on_top", child_double_free_on_top},
                {"double_free_deeper", child_double_free_deeper},
                {"wrong_cache", child_wrong_cache},
                {"wrong_caches", child_wrong_caches},
                {"no_fence", child_no_fence},
                {"destroy_without_fence", child_destroy_without_fence},
                {"close_without_fence", child_close_without_fence},
                {"no_rseq", child_no_rseq},
        };
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_releases_that_abort),
                cmocka_unit_test(first_refill),
                cmocka_unit_test(newest_first),
                cmocka_unit_test(spare_before_refill),
                cmocka_unit_test(limits_hold),
                cmocka_unit_test(empty_sheaves_stay),
                cmocka_unit_test(empty_sheaves_within_bounds),
                cmocka_unit_test(default_capacities),
                cmocka_unit_test(flush_empties_everything),
                cmocka_unit_test(flag_of_classes),
                cmocka_unit_test(no_metadata_leaks),
                cmocka_unit_test(counts_against_model),
                cmocka_unit_test(bulk_against_model),
                cmocka_unit_test(pop_and_push),
                cmocka_unit_test(bulk_sequences),
                cmocka_unit_test(bulk_push_refuses_strangers),
                cmocka_unit_test(replace_compares),
                cmocka_unit_test(stopped_slot_serves),
                cmocka_unit_test(counts_after_threads),
                cmocka_unit_test(unregistered_thread),
                cmocka_unit_test(single_steps),
                cmocka_unit_test(capacity_option),
                cmocka_unit_test(capacity_zero),
                cmocka_unit_test(slot_cache_max_zero),
                cmocka_unit_test(barn_of_one_slot),
                cmocka_unit_test(small_stay),
                cmocka_unit_test(locked_slots),
                cmocka_unit_test(double_free_on_top),
                cmocka_unit_test(double_free_deeper),
                cmocka_unit_test(wrong_cache),
                cmocka_unit_test(wrong_caches),
                cmocka_unit_test(fence_refused),
                cmocka_unit_test(destroy_without_fence),
                cmocka_unit_test(close_without_fence),
                cmocka_unit_test(rseq_refused),
        };

        stay_on_one_cpu();
        if (!heap_ready())
                return 1;
        child_main(argc, argv, children, array_size(children));
        return cmocka_run_group_tests_name("percpu", tests, NULL, NULL);
}
