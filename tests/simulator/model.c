/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Each step does one thing on a random CPU: an object or several, of a cache or of kmalloc, is
 * allocated or freed; or time passes, a CPU comes or leaves, a cache is shrunk. Every block is filled
 * with a pattern of its own when it comes and compared when it goes, so two owners of one byte are
 * found. Now and then the machine is at rest: then all lists are walked and counts must be exact.
 */
#include "model.h"

#include "../unit/walker.h"

#include "introspect/totals.h"
#include "kmem.h"
#include "page/deferred.h"

#include <stdlib.h>
#include <string.h>

enum {
        BLOCKS_MAX = 6000, /* alive at a time */
        CACHES = 7,
        KMALLOC = CACHES, /* in place of a cache's number */
        KINDS,
        BULK_MAX = 40,
        CONSTRUCTED = 3, /* the cache with a constructor */
        REST_STEPS = 4000,
};

struct block {
        unsigned char *memory;
        uint32_t bytes;
        uint32_t kind; /* number of the cache, or KMALLOC */
};

static const uint32_t sizes[CACHES] = {8, 24, 104, 192, 700, 2048, 9000};
static const uint64_t constructed_word = 0xc0ffee00c0ffee;

static struct kmem_cache *caches[CACHES];
static struct block blocks[BLOCKS_MAX];
static unsigned int block_count;
static uint64_t alive[KINDS];
static uint64_t random_state;
static const struct model *model;
static uint64_t now_ns;

static unsigned int below(unsigned int limit)
{
        return (unsigned int)(random_step(&random_state) % limit);
}

static void construct(void *object)
{
        *(uint64_t *)object = constructed_word;
}

static unsigned char pattern(const unsigned char *memory)
{
        return (unsigned char)((uintptr_t)memory >> 3 ^ (uintptr_t)memory >> 12);
}

/* Constructed objects keep their first word. Long blocks are filled at both ends. */
static void fill(const struct block *block)
{
        uint32_t kept = block->kind == CONSTRUCTED ? 8 : 0;
        uint32_t bytes = block->bytes - kept;

        memset(block->memory + kept, pattern(block->memory), bytes < 512 ? bytes : 256);
        if (bytes >= 512)
                memset(block->memory + block->bytes - 256, pattern(block->memory), 256);
}

static void compare(const struct block *block)
{
        uint32_t kept = block->kind == CONSTRUCTED ? 8 : 0;

        if (kept)
                check(*(uint64_t *)block->memory == constructed_word);
        for (uint32_t at = kept; at < block->bytes; at++) {
                if (block->bytes - kept >= 512 && at == kept + 256)
                        at = block->bytes - 256;
                check_equal(block->memory[at], pattern(block->memory));
        }
}

static void add_block(void *memory, uint32_t bytes, uint32_t kind)
{
        struct block *block = &blocks[block_count++];

        check(memory != NULL && (uintptr_t)memory % 8 == 0);
        *block = (struct block){memory, bytes, kind};
        if (kind == CONSTRUCTED)
                check(*(uint64_t *)memory == constructed_word);
        fill(block);
        alive[kind]++;
}

static struct block take_block(unsigned int number)
{
        struct block block = blocks[number];

        compare(&block);
        alive[block.kind]--;
        blocks[number] = blocks[--block_count];
        return block;
}

static void step_alloc(void)
{
        unsigned int kind = below(KINDS);

        if (block_count == BLOCKS_MAX)
                return;
        if (kind == KMALLOC) {
                uint32_t bytes = 1 + below(below(20) ? 3000 : 200000);

                add_block(kmalloc(bytes, 0), bytes, KMALLOC);
        } else {
                add_block(kmem_cache_alloc(caches[kind], 0), sizes[kind], kind);
        }
}

static void step_alloc_bulk(void)
{
        unsigned int kind = below(CACHES);
        unsigned int count = 1 + below(BULK_MAX);
        void *objects[BULK_MAX];

        if (block_count + count > BLOCKS_MAX)
                return;
        check_equal(kmem_cache_alloc_bulk(caches[kind], 0, count, objects), count);
        for (unsigned int i = 0; i < count; i++)
                add_block(objects[i], sizes[kind], kind);
}

static void free_block(unsigned int number)
{
        struct block block = take_block(number);

        if (block.kind == KMALLOC)
                kfree(block.memory);
        else
                kmem_cache_free(caches[block.kind], block.memory);
}

/* Frees objects of a random block's cache that stand behind the block. */
static void step_free_bulk(void)
{
        unsigned int number = below(block_count);
        uint32_t kind = blocks[number].kind;
        void *objects[BULK_MAX];
        unsigned int count = 0;

        while (kind != KMALLOC && count < BULK_MAX && number < block_count) {
                if (blocks[number].kind == kind)
                        objects[count++] = take_block(number).memory;
                else
                        number++;
        }
        if (count)
                kmem_cache_free_bulk(caches[kind], count, objects);
}

static void pass_time(uint64_t nanoseconds)
{
        sim_time_advance(nanoseconds);
        now_ns += nanoseconds;
        check_equal(sim_time(), now_ns);
}

/* Prints the content of each CPU's slot. */
static uint64_t resting_on(unsigned int cpu)
{
        struct slot *slot = slot_at(cpu);
        uint64_t resting = 0;

        for (uint32_t index = 1; index < slots_index_end(); index++) {
                const struct pair *pair = &slot->pairs[index];
                const struct slot_cache *record = slot_peek(slot, index);

                resting += pair->main->size + pair->spare->size;
                if (record)
                        resting += record->stock_size + (record->engine.slab != NULL) +
                                   record->engine.partial;
        }
        return resting;
}

static bool online[SIM_CPUS_MAX];

static void step_hotplug(void)
{
        unsigned int cpu = below(model->cpus);

        if (!model->hotplug || cpu == sim_cpu())
                return;
        online[cpu] = !online[cpu];
        check_equal(sim_cpu_online(cpu, online[cpu]), 0);
        if (!online[cpu])
                check_equal(resting_on(cpu), 0);
}

static void random_cpu(void)
{
        unsigned int cpu = below(model->cpus);

        if (!online[cpu])
                return;
        sim_set_cpu(cpu);
        check_equal(sim_cpu(), cpu);
}

static uint64_t in_use(struct kmem_cache *cache)
{
        struct cache_totals totals;

        cache_total(cache, &totals);
        return totals.inuse;
}

static void check_at_rest(void)
{
        struct walk_counts counts;
        uint64_t others = 0;
        struct list *node;

        walk_heap(NULL, &counts);
        for (unsigned int number = 0; number < CACHES; number++)
                check_equal(in_use(caches[number]), alive[number]);
        list_for_each (node, &cache_list)
                others += in_use(container_of(node, struct kmem_cache, list));
        for (unsigned int number = 0; number < CACHES; number++)
                others -= alive[number];
        check(others <= alive[KMALLOC]); /* all others are large blocks */
        check(percpu_locks_free());
}

static void step(void)
{
        unsigned int choice = below(100);

        random_cpu();
        if (choice < 38)
                step_alloc();
        else if (choice < 76 && block_count)
                free_block(below(block_count));
        else if (choice < 82)
                step_alloc_bulk();
        else if (choice < 90 && block_count)
                step_free_bulk();
        else if (choice < 98)
                pass_time(below(2000000));
        else if (choice < 99)
                step_hotplug();
        else if (below(20) == 0)
                pass_time((uint64_t)below(5000) * 1000000);
        else if (below(20) == 0)
                kmem_cache_shrink(caches[below(CACHES)]);
}

static void start(void)
{
        const struct sim_machine machine = {
                .cpus_online = model->cpus,
                .nodes = model->nodes,
                .options = model->options,
        };
        static const char *const names[CACHES] = {"m8",   "m24",   "m104", "mctor",
                                                  "m700", "m2048", "m9000"};

        check_equal(sim_start(&machine), 0);
        now_ns = sim_time();
        for (unsigned int cpu = 0; cpu < model->cpus; cpu++)
                online[cpu] = true;
        for (unsigned int number = 0; number < CACHES; number++) {
                caches[number] = kmem_cache_create(names[number], sizes[number], 0, 0,
                                                   number == CONSTRUCTED ? construct : NULL);
                check(caches[number] != NULL);
        }
}

/* Everything goes back; whoever is offline has nothing to give. */
static void finish(void)
{
        struct page_counts pages;
        struct list *node;

        while (block_count)
                free_block(block_count - 1);
        check_at_rest();
        for (unsigned int number = 0; number < CACHES; number++)
                kmem_cache_destroy(caches[number]);
        list_for_each (node, &cache_list) {
                struct kmem_cache *cache = container_of(node, struct kmem_cache, list);

                check_equal(in_use(cache), 0);
                percpu_flush(cache, false);
                cache->engine->shrink(cache);
        }
        pages_count(&pages);
        check_equal(pages.used_pages, 1); /* page 0 */
}

void model_run(const struct model *given)
{
        model = given;
        random_state = given->seed;
        start();
        for (unsigned int number = 1; number <= given->steps; number++) {
                step();
                if (number % REST_STEPS == 0)
                        check_at_rest();
        }
        finish();
}
