/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Memory groups: random calls against a model with nested groups and limits, the exact byte of
 * refusal, bulk calls, groups that end before their objects, and calls that change their way while
 * other threads use them. The heap is the library's, malloc included.
 */
#define _GNU_SOURCE
#include "../exec.h"
#include "engines.h"
#include "forked.h"
#include "unit.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/syscall.h>

#include "account/group.h"
#include "lang/atomic.h"
#include "lang/bits.h"
#include "kmem.h"
#include "filter.h"
#include "random.h"
#include "steps.h"

enum { WORD = sizeof(void *) };

static struct kmem_cache *make_cache(const char *name, unsigned int size, slab_flags_t flags)
{
        struct kmem_cache *cache = kmem_cache_create(name, size, 0, flags, (void (*)(void *))NULL);

        assert_non_null(cache);
        return cache;
}

static void free_object(struct kmem_cache *cache, void *object, bool by_address)
{
        if (by_address && !is_slob())
                kfree(object);
        else
                kmem_cache_free(cache, object);
}

/* The largest size with a cache: the kernel's classes (option classes) end at 8 KiB. */
static size_t class_max(void)
{
        return kmalloc_size_roundup(9000) == 12288 ? 8192 : 32768;
}

static size_t whole_pages(size_t size)
{
        return (size + 4095) & ~(size_t)4095;
}

static size_t block_charge(size_t size)
{
        if (is_slob())
                return size < 4088 ? ((size + 7) & ~(size_t)7) + WORD : whole_pages(size);
        return size > class_max() ? whole_pages(size) : kmalloc_size_roundup(size) + WORD;
}

static struct kmem_group_stats stats_of(struct kmem_group *group)
{
        struct kmem_group_stats stats;

        assert_int_equal(kmem_group_stats(group, &stats), 0);
        return stats;
}

static struct kmem_group *make_group(const char *name, struct kmem_group *parent, size_t limit)
{
        struct kmem_group *group = kmem_group_create(name, parent, limit);

        assert_non_null(group);
        return group;
}

/* ---- Random calls against a model ---- */

enum { GROUPS = 12, CACHES = 3, HELD = 600, BULK = 40, STEPS = 60000 };

struct model_group {
        struct kmem_group *group; /* NULL: the group does not exist */
        int parent;               /* -1: none */
        size_t bytes, objects, limit, peak, refusals;
        bool zombie;
};

/* Everything is charged to `owner` and the groups above it; -1 nobody. */
struct held {
        void *object;
        struct kmem_cache *cache; /* NULL: a block */
        size_t charge;
        int owner;
        unsigned char fill;
        size_t bytes;
};

struct world {
        struct random random;
        struct model_group groups[GROUPS];
        struct kmem_cache *caches[CACHES];
        unsigned int stride[CACHES];
        struct held held[HELD];
        size_t count;
        int current;
};

static int up(const struct world *world, int group)
{
        return world->groups[group].parent;
}

static bool model_charge(struct world *world, int owner, size_t count, size_t bytes)
{
        for (int g = owner; g >= 0; g = up(world, g)) {
                struct model_group *group = &world->groups[g];

                if (group->limit && group->bytes + bytes > group->limit) {
                        group->refusals++;
                        return false;
                }
        }
        for (int g = owner; g >= 0; g = up(world, g)) {
                struct model_group *group = &world->groups[g];

                group->bytes += bytes;
                group->objects += count;
                if (group->peak < group->bytes)
                        group->peak = group->bytes;
        }
        return true;
}

static void model_uncharge(struct world *world, int owner, size_t count, size_t bytes)
{
        for (int g = owner; g >= 0; g = up(world, g)) {
                world->groups[g].bytes -= bytes;
                world->groups[g].objects -= count;
        }
        /* A zombie without bytes is gone, and so is its name. */
        for (int g = owner; g >= 0; g = up(world, g))
                if (world->groups[g].zombie && world->groups[g].bytes == 0)
                        world->groups[g].group = NULL;
}

static void check_groups(const struct world *world)
{
        for (int g = 0; g < GROUPS; g++) {
                const struct model_group *group = &world->groups[g];
                struct kmem_group_stats stats;

                if (!group->group || group->zombie)
                        continue;
                stats = stats_of(group->group);
                assert_int_equal(stats.bytes, group->bytes);
                assert_int_equal(stats.objects, group->objects);
                assert_int_equal(stats.limit, group->limit);
                assert_int_equal(stats.peak, group->peak);
                assert_int_equal(stats.refusals, group->refusals);
                assert_int_equal(stats.unowned, 0);
        }
}

static void hold(struct world *world, struct held held)
{
        assert_true(world->count < HELD);
        held.fill = (unsigned char)random_next(&world->random);
        memset(held.object, held.fill, held.bytes);
        world->held[world->count++] = held;
}

/* Takes a held object out, and checks its content. */
static struct held let_go(struct world *world, size_t index)
{
        struct held held = world->held[index];

        for (size_t i = 0; i < held.bytes; i += 1 + held.bytes / 64)
                assert_int_equal(((unsigned char *)held.object)[i], held.fill);
        world->held[index] = world->held[--world->count];
        return held;
}

static void step_group_made(struct world *world)
{
        int place = (int)random_below(&world->random, GROUPS);
        int parent = (int)random_below(&world->random, GROUPS + 1) - 1;
        struct model_group *group = &world->groups[place];

        if (group->group || parent == place ||
            (parent >= 0 && (!world->groups[parent].group || world->groups[parent].zombie)))
                return;
        *group = (struct model_group){
                .parent = parent,
                .limit = random_below(&world->random, 3) ? random_below(&world->random, 60000) : 0,
        };
        group->group = make_group("random", parent >= 0 ? world->groups[parent].group : NULL,
                                  group->limit);
}

static void step_group_ended(struct world *world)
{
        int place = (int)random_below(&world->random, GROUPS);
        struct model_group *group = &world->groups[place];
        bool has_children = false;

        if (!group->group || group->zombie)
                return;
        for (int g = 0; g < GROUPS; g++)
                has_children |= world->groups[g].group && !world->groups[g].zombie &&
                                world->groups[g].parent == place;
        if (has_children) {
                assert_int_equal(kmem_group_destroy(group->group), -1);
                assert_int_equal(errno, EBUSY);
                return;
        }
        assert_int_equal(kmem_group_destroy(group->group), group->objects);
        group->zombie = true;
        if (group->bytes == 0)
                group->group = NULL;
        if (world->current == place)
                world->current = -1;
}

static void step_group_entered(struct world *world)
{
        int place = (int)random_below(&world->random, GROUPS + 1) - 1;
        struct kmem_group *before =
                world->current >= 0 ? world->groups[world->current].group : NULL;

        if (place >= 0 && (!world->groups[place].group || world->groups[place].zombie))
                return;
        assert_ptr_equal(kmem_group_current(), before);
        assert_ptr_equal(kmem_group_set(place >= 0 ? world->groups[place].group : NULL), before);
        world->current = place;
}

static void step_limit(struct world *world)
{
        struct model_group *group = &world->groups[random_below(&world->random, GROUPS)];

        if (!group->group || group->zombie)
                return;
        group->limit = random_below(&world->random, 3) ? random_below(&world->random, 90000) : 0;
        assert_int_equal(kmem_group_set_limit(group->group, group->limit), 0);
}

static void step_object(struct world *world)
{
        size_t which = random_below(&world->random, CACHES);
        /* The last cache has no SLAB_ACCOUNT: only the flag makes it charge. */
        bool flag = random_below(&world->random, 2);
        bool accounted = flag || which + 1 < CACHES;
        gfp_t flags = flag ? GFP_KERNEL_ACCOUNT : GFP_KERNEL;
        struct held held = {
                .cache = world->caches[which],
                .charge = world->stride[which] + WORD,
                .owner = accounted ? world->current : -1,
                .bytes = world->stride[which],
        };
        bool expected = model_charge(world, held.owner, 1, held.charge);

        errno = 0;
        held.object = kmem_cache_alloc(held.cache, flags);
        assert_int_equal(held.object != NULL, expected);
        assert_int_equal(errno, expected ? 0 : ENOMEM);
        if (held.object)
                hold(world, held);
}

static size_t random_size(struct random *random)
{
        size_t size = 1 + random_below(random, (size_t)1 << (1 + random_below(random, 17)));

        return random_below(random, 2000) ? size : ((size_t)32 << 20) + size;
}

static void step_block(struct world *world)
{
        size_t size = random_size(&world->random);
        bool flag = random_below(&world->random, 4);
        gfp_t flags = (flag ? GFP_KERNEL_ACCOUNT : GFP_KERNEL) |
                      (random_below(&world->random, 4) ? 0 : __GFP_ZERO);
        struct held held = {
                .charge = block_charge(size),
                .owner = flag ? world->current : -1,
                .bytes = size,
        };
        bool expected = model_charge(world, held.owner, 1, held.charge);

        held.object = kmalloc(size, flags);
        assert_int_equal(held.object != NULL, expected);
        if (!held.object)
                return;
        if (flags & __GFP_ZERO)
                assert_int_equal(((char *)held.object)[size - 1], 0);
        hold(world, held);
}

/*
 * krealloc of an accounted block, by the group it is in. A block that stays keeps its charge; a
 * block that grows in place is charged the difference; a new block is charged before the old block
 * goes. The test cannot know the way, so there is room for both here, and it reads the peak.
 */
static void step_resize(struct world *world)
{
        size_t index = random_below(&world->random, world->count + 1);
        size_t size = random_size(&world->random) % 200000 + 1;
        struct held *held = &world->held[index];
        size_t charge = block_charge(size);
        void *moved;

        if (index == world->count || held->cache || held->owner < 0 ||
            held->owner != world->current || size <= ksize(held->object) ||
            world->groups[held->owner].group != kmem_group_current())
                return;
        for (int g = held->owner; g >= 0; g = up(world, g))
                if (world->groups[g].limit &&
                    world->groups[g].limit < world->groups[g].bytes + charge)
                        return;
        moved = krealloc(held->object, size, GFP_KERNEL_ACCOUNT);
        assert_non_null(moved);
        for (int g = held->owner; g >= 0; g = up(world, g)) {
                struct kmem_group_stats stats = stats_of(world->groups[g].group);

                world->groups[g].bytes += charge - held->charge;
                assert_int_equal(stats.bytes, world->groups[g].bytes);
                assert_true(stats.peak >= world->groups[g].peak);
                world->groups[g].peak = stats.peak;
        }
        held->object = moved;
        held->charge = charge;
        held->bytes = size;
        memset(moved, held->fill, size);
}

static void step_bulk(struct world *world)
{
        size_t which = random_below(&world->random, CACHES);
        size_t count = random_below(&world->random, BULK + 1);
        bool flag = random_below(&world->random, 2);
        struct held held = {
                .cache = world->caches[which],
                .charge = world->stride[which] + WORD,
                .owner = flag || which + 1 < CACHES ? world->current : -1,
                .bytes = world->stride[which],
        };
        void *objects[BULK];
        bool expected = count == 0 || model_charge(world, held.owner, count, count * held.charge);
        int got = kmem_cache_alloc_bulk(held.cache, flag ? GFP_KERNEL_ACCOUNT : GFP_KERNEL, count,
                                        objects);

        assert_int_equal(got, expected ? count : 0);
        for (int i = 0; i < got; i++) {
                held.object = objects[i];
                hold(world, held);
        }
}

static void step_free(struct world *world)
{
        struct held held = let_go(world, random_below(&world->random, world->count));

        if (held.cache)
                free_object(held.cache, held.object, random_below(&world->random, 2));
        else
                kfree(held.object);
        model_uncharge(world, held.owner, 1, held.charge);
}

/* Objects of any kind in a call, or of a single cache with NULL among them. */
static void step_free_bulk(struct world *world)
{
        size_t wanted = random_below(&world->random, BULK);
        struct kmem_cache *cache = random_below(&world->random, 2)
                                           ? world->caches[random_below(&world->random, CACHES)]
                                           : NULL;
        struct held gone[BULK];
        void *objects[BULK];
        size_t count = 0;

        for (size_t i = 0; i < wanted && world->count; i++) {
                size_t index = random_below(&world->random, world->count);

                if ((cache || is_slob()) && world->held[index].cache != cache) {
                        gone[count] = (struct held){.owner = -1};
                        objects[count++] = NULL;
                        continue;
                }
                gone[count] = let_go(world, index);
                objects[count] = gone[count].object;
                count++;
        }
        kmem_cache_free_bulk(cache, count, objects);
        for (size_t i = 0; i < count; i++)
                if (gone[i].owner >= 0)
                        model_uncharge(world, gone[i].owner, 1, gone[i].charge);
}

static void step(struct world *world)
{
        size_t choice = random_below(&world->random, 100);

        if (choice < 4)
                step_group_made(world);
        else if (choice < 6)
                step_group_ended(world);
        else if (choice < 12)
                step_group_entered(world);
        else if (choice < 14)
                step_limit(world);
        else if (choice < 16)
                step_resize(world);
        else if (world->count > HELD - 2 * BULK || (choice < 50 && world->count))
                choice % 5 ? step_free(world) : step_free_bulk(world);
        else if (choice < 75)
                step_object(world);
        else if (choice < 92)
                step_block(world);
        else
                step_bulk(world);
}

static void world_end(struct world *world)
{
        while (world->count)
                step_free(world);
        check_groups(world);
        kmem_group_set(NULL);
        for (int round = 0; round < GROUPS; round++)
                for (int g = 0; g < GROUPS; g++)
                        if (world->groups[g].group &&
                            kmem_group_destroy(world->groups[g].group) == 0)
                                world->groups[g].group = NULL;
        for (int g = 0; g < GROUPS; g++)
                assert_null(world->groups[g].group);
        for (int i = 0; i < CACHES; i++)
                kmem_cache_destroy(world->caches[i]);
}

static void test_model(void **state)
{
        static const unsigned int strides[CACHES] = {24, 704, 64};
        static struct world world;

        (void)state;
        for (uint64_t seed = 1; seed <= 8; seed++) {
                world = (struct world){.random = {seed * 0x9e3779b97f4a7c15u}, .current = -1};
                for (int i = 0; i < CACHES; i++) {
                        world.stride[i] = strides[i];
                        world.caches[i] = make_cache("group-model", strides[i],
                                                     i + 1 < CACHES ? SLAB_ACCOUNT : 0);
                }
                for (int i = 0; i < STEPS; i++) {
                        step(&world);
                        if (i % 16 == 0)
                                check_groups(&world);
                }
                world_end(&world);
        }
}

/* ---- The exact byte ---- */

static size_t fill(struct kmem_cache *cache, void **objects, size_t most)
{
        size_t count = 0;

        while (count < most && (objects[count] = kmem_cache_alloc(cache, GFP_KERNEL)))
                count++;
        return count;
}

static void test_same_byte_in_every_run(void **state)
{
        enum { RUNS = 1000, CHARGE = 96 + WORD, FIT = 337 };
        struct kmem_cache *cache = make_cache("group-exact", 96, SLAB_ACCOUNT);
        static void *objects[FIT + 2];

        (void)state;
        for (int run = 0; run < RUNS; run++) {
                size_t slack = (size_t)run % CHARGE;
                struct kmem_group *group = make_group("exact", NULL, FIT * CHARGE + slack);

                kmem_group_set(group);
                assert_int_equal(fill(cache, objects, FIT + 2), FIT);
                assert_int_equal(errno, ENOMEM);
                assert_int_equal(stats_of(group).bytes, FIT * CHARGE);
                assert_int_equal(stats_of(group).refusals, 1);
                /* One byte more than the rest is refused, exactly the rest is not. */
                assert_int_equal(kmem_group_set_limit(group, (FIT + 1) * CHARGE - 1), 0);
                assert_null(kmem_cache_alloc(cache, GFP_KERNEL));
                assert_int_equal(kmem_group_set_limit(group, (FIT + 1) * CHARGE), 0);
                objects[FIT] = kmem_cache_alloc(cache, GFP_KERNEL);
                assert_non_null(objects[FIT]);
                for (int i = 0; i <= FIT; i++)
                        kmem_cache_free(cache, objects[i]);
                assert_int_equal(stats_of(group).peak, (FIT + 1) * CHARGE);
                assert_int_equal(kmem_group_destroy(group), 0);
        }
        assert_null(kmem_group_current());
        kmem_cache_destroy(cache);
}

static void test_bulk_is_all_or_nothing(void **state)
{
        enum { CHARGE = 128 + WORD, FIT = 100 };
        struct kmem_cache *cache = make_cache("group-bulk", 128, SLAB_ACCOUNT);
        struct kmem_group *group = make_group("bulk", NULL, FIT * CHARGE);
        static void *objects[2 * FIT];

        (void)state;
        kmem_group_set(group);
        for (size_t held = 0; held <= FIT; held++) {
                size_t room = FIT - held;

                assert_int_equal(kmem_cache_alloc_bulk(cache, GFP_KERNEL, held, objects), held);
                assert_int_equal(stats_of(group).objects, held);
                errno = 0;
                assert_int_equal(kmem_cache_alloc_bulk(cache, GFP_KERNEL, room + 1, objects + held),
                                 0);
                assert_int_equal(errno, ENOMEM);
                assert_int_equal(stats_of(group).bytes, held * CHARGE);
                assert_int_equal(kmem_cache_alloc_bulk(cache, GFP_KERNEL, room, objects + held),
                                 room);
                assert_int_equal(stats_of(group).bytes, FIT * CHARGE);
                kmem_cache_free_bulk(is_slob() ? cache : NULL, FIT, objects);
                assert_int_equal(stats_of(group).bytes, 0);
        }
        kmem_group_set(NULL);
        assert_int_equal(kmem_group_destroy(group), 0);
        kmem_cache_destroy(cache);
}

/* ---- Threads on a single limit ---- */

enum { THREADS = 16, RACE_CHARGE = 48 + WORD, RACE_FIT = 5000, RACE_STEPS = 40000 };

static struct race {
        struct kmem_cache *cache;
        struct kmem_group *outer, *inner[2];
        pthread_barrier_t start;
        uint32_t done;
        size_t live; /* objects that threads hold at the end, atomic */
} race;

/* Random allocations and frees, some of them in bulk; objects held at the end stay. */
static size_t race_churn(struct random *random, void **held, size_t most)
{
        size_t count = 0;

        for (int i = 0; i < RACE_STEPS; i++) {
                size_t some = 1 + random_below(random, 24);

                if (count + some < most && random_below(random, 2))
                        count += (size_t)kmem_cache_alloc_bulk(race.cache, GFP_KERNEL, some,
                                                               held + count);
                if (count < most && (held[count] = kmem_cache_alloc(race.cache, GFP_KERNEL)))
                        count++;
                if (count > some && random_below(random, 2)) {
                        count -= some;
                        kmem_cache_free_bulk(race.cache, some, held + count);
                }
        }
        return count;
}

static void *race_thread(void *argument)
{
        size_t number = (size_t)argument;
        struct random random = {number + 77};
        void **held = calloc(RACE_FIT + 1, sizeof(*held));
        size_t count;

        kmem_group_set(race.inner[number % 2]);
        pthread_barrier_wait(&race.start);
        count = race_churn(&random, held, RACE_FIT / 4);
        pthread_barrier_wait(&race.start);
        /* Together all threads fill the outer group to its last object. */
        while ((held[count] = kmem_cache_alloc(race.cache, GFP_KERNEL)))
                count++;
        add_relaxed(&race.live, count);
        pthread_barrier_wait(&race.start);
        pthread_barrier_wait(&race.start);
        for (size_t i = 0; i < count; i++)
                kmem_cache_free(race.cache, held[i]);
        free(held);
        return NULL;
}

static void *race_sampler(void *argument)
{
        size_t samples = 0;

        (void)argument;
        while (!load_acquire(&race.done)) {
                struct kmem_group_stats outer, inner;

                if (kmem_group_stats(race.outer, &outer) || kmem_group_stats(race.inner[0], &inner))
                        return NULL;
                if (outer.bytes > outer.limit || outer.bytes != outer.objects * RACE_CHARGE ||
                    inner.bytes != inner.objects * RACE_CHARGE || inner.bytes > inner.limit ||
                    outer.peak > outer.limit)
                        return NULL;
                samples++;
        }
        return (void *)samples;
}

static void test_threads_race_on_a_limit(void **state)
{
        pthread_t threads[THREADS], sampler;
        void *samples;

        (void)state;
        race.cache = make_cache("group-race", 48, SLAB_ACCOUNT);
        race.outer = make_group("outer", NULL, (size_t)RACE_FIT * RACE_CHARGE + RACE_CHARGE - 1);
        race.inner[0] = make_group("left", race.outer, (size_t)RACE_FIT * RACE_CHARGE);
        race.inner[1] = make_group("right", race.outer, 0);
        race.done = 0;
        race.live = 0;
        pthread_barrier_init(&race.start, NULL, THREADS + 1);
        pthread_create(&sampler, NULL, race_sampler, NULL);
        for (size_t i = 0; i < THREADS; i++)
                pthread_create(&threads[i], NULL, race_thread, (void *)i);
        for (int phase = 0; phase < 3; phase++)
                pthread_barrier_wait(&race.start);
        assert_int_equal(race.live, RACE_FIT);
        assert_int_equal(stats_of(race.outer).bytes, (size_t)RACE_FIT * RACE_CHARGE);
        assert_int_equal(stats_of(race.inner[0]).objects + stats_of(race.inner[1]).objects,
                         RACE_FIT);
        pthread_barrier_wait(&race.start);
        for (int i = 0; i < THREADS; i++)
                pthread_join(threads[i], NULL);
        store_release(&race.done, 1);
        pthread_join(sampler, &samples);
        assert_non_null(samples);
        assert_int_equal(stats_of(race.outer).bytes, 0);
        assert_int_equal(kmem_group_destroy(race.inner[0]), 0);
        assert_int_equal(kmem_group_destroy(race.inner[1]), 0);
        assert_int_equal(kmem_group_destroy(race.outer), 0);
        pthread_barrier_destroy(&race.start);
        kmem_cache_destroy(race.cache);
}

/* ---- Groups that end, threads that end ---- */

static void *free_from_elsewhere(void *object)
{
        kfree(object);
        return NULL;
}

static void run_thread(void *(*function)(void *), void *argument)
{
        pthread_t thread;

        assert_int_equal(pthread_create(&thread, NULL, function, argument), 0);
        assert_int_equal(pthread_join(thread, NULL), 0);
}

static void test_group_ends_before_its_objects(void **state)
{
        struct kmem_cache *cache = make_cache("group-zombie", 256, SLAB_ACCOUNT);
        struct kmem_group *parent = make_group("parent", NULL, 0);
        struct kmem_group *child = make_group("child", parent, 0);
        void *blocks[4];
        size_t bytes;

        (void)state;
        assert_ptr_equal(kmem_group_set(child), NULL);
        blocks[0] = kmem_cache_alloc(cache, GFP_KERNEL);
        blocks[1] = kmalloc(1000, GFP_KERNEL_ACCOUNT);
        blocks[2] = kmalloc(100000, GFP_KERNEL_ACCOUNT);
        blocks[3] = kmalloc((size_t)40 << 20, GFP_KERNEL_ACCOUNT);
        bytes = 256 + WORD + block_charge(1000) + 102400 + ((size_t)40 << 20);
        assert_int_equal(stats_of(child).bytes, bytes);
        assert_int_equal(kmem_group_destroy(parent), -1);
        assert_int_equal(errno, EBUSY);
        assert_int_equal(kmem_group_destroy(child), 4);
        assert_null(kmem_group_current());
        assert_int_equal(stats_of(parent).bytes, bytes);
        /* Charged to nobody from now on. */
        kfree(kmalloc(64, GFP_KERNEL_ACCOUNT));
        assert_int_equal(stats_of(parent).peak, bytes);
        /* The parent may end too; both records go with the last object. */
        assert_int_equal(kmem_group_destroy(parent), 4);
        free_object(cache, blocks[0], true);
        for (int i = 1; i < 4; i++)
                run_thread(free_from_elsewhere, blocks[i]);
        /* Records are reused: neither of the two is in use any more. */
        parent = make_group("again", NULL, 0);
        child = make_group("again", NULL, 0);
        assert_int_equal(stats_of(parent).bytes + stats_of(child).bytes, 0);
        assert_int_equal(kmem_group_destroy(parent), 0);
        assert_int_equal(kmem_group_destroy(child), 0);
        kmem_cache_destroy(cache);
}

/*
 * Another thread ends the group between the two looks of group_charge. It holds the lock during
 * this thread's first look, and ends the group while this thread naps.
 */
static _Thread_local struct kmem_group *ends_at_nap;

void __real_system_sleep_ns(long nanoseconds);
void __wrap_system_sleep_ns(long nanoseconds);
void __wrap_system_sleep_ns(long nanoseconds)
{
        struct kmem_group *group = ends_at_nap;

        if (group) {
                ends_at_nap = NULL;
                group_lock_drop();
                assert_int_equal(kmem_group_destroy(group), 0);
        }
        __real_system_sleep_ns(nanoseconds);
}

static void test_group_ends_before_the_charge(void **state)
{
        struct kmem_group *parent = make_group("parent", NULL, 0);
        struct kmem_group *child = make_group("child", parent, 0);
        void *block;

        (void)state;
        kmem_group_set(child);
        /* The additional work of the first request of a kind needs no lock later. */
        kfree(kmalloc(100, GFP_KERNEL_ACCOUNT));
        ends_at_nap = child;
        group_lock_take();
        block = kmalloc(100, GFP_KERNEL_ACCOUNT);
        assert_null(ends_at_nap);
        assert_non_null(block);
        assert_null(kmem_group_current());
        /* A charge to the group that has ended would have reached its parent. */
        assert_int_equal(stats_of(parent).bytes, 0);
        assert_int_equal(stats_of(parent).objects, 0);
        /* The record is another group's now, which the block is none of. */
        child = make_group("next", parent, 0);
        kfree(block);
        assert_int_equal(stats_of(child).bytes, 0);
        assert_int_equal(kmem_group_destroy(child), 0);
        assert_int_equal(kmem_group_destroy(parent), 0);
}

/*
 * A record becomes another group's while a thread of the group before looks whether it is still in
 * a group: behind each instruction of that look. The record is fresh, so its generation was 0.
 */
enum { RECORDS_MAX = 2000 };
static struct kmem_group *records[RECORDS_MAX];
static unsigned int record_count;
static bool looked_alive;

static void make_record(void)
{
        records[record_count++] = kmem_group_create("record", NULL, 0);
}

static void look_for_group(void)
{
        looked_alive = kmem_group_current() != NULL;
}

static void test_record_used_again(void **state)
{
        bool more = true;

        (void)state;
        skip_without_steps();
        for (unsigned int count = 0; more; count++) {
                struct kmem_group *fresh;

                do {
                        assert_true(record_count + 2 < RECORDS_MAX);
                        make_record();
                        fresh = records[record_count - 1];
                } while (fresh->generation);
                kmem_group_set(fresh);
                assert_int_equal(kmem_group_destroy(fresh), 0);
                record_count--;
                looked_alive = false;
                more = run_with_act_at(count, make_record, look_for_group);
                assert_ptr_equal(records[record_count - 1], fresh);
                assert_false(looked_alive);
        }
        kmem_group_set(NULL);
        while (record_count)
                assert_int_equal(kmem_group_destroy(records[--record_count]), 0);
}

static void *allocate_and_exit(void *group)
{
        void **objects = malloc(100 * sizeof(*objects));

        if (kmem_group_current() || kmem_group_set(group))
                return NULL;
        for (int i = 0; i < 100; i++)
                objects[i] = kmalloc(40, GFP_KERNEL_ACCOUNT);
        return objects;
}

static void test_objects_outlive_their_thread(void **state)
{
        struct kmem_group *group = make_group("thread", NULL, 0);
        void **objects;
        pthread_t thread;

        (void)state;
        kmem_group_set(group);
        /* A new thread is in no group, whoever starts it; it enters by itself. */
        pthread_create(&thread, NULL, allocate_and_exit, group);
        pthread_join(thread, (void **)&objects);
        assert_non_null(objects);
        assert_int_equal(stats_of(group).bytes, 100 * block_charge(40));
        kmem_cache_free_bulk(NULL, 100, objects);
        free(objects);
        assert_int_equal(stats_of(group).bytes, 0);
        assert_int_equal(kmem_group_destroy(group), 0);
}

static void test_wrong_calls(void **state)
{
        struct kmem_group_stats stats;
        struct kmem_group *group = make_group("wrong", NULL, 0);
        char name[100];

        (void)state;
        memset(name, 'n', sizeof(name));
        name[99] = '\0';
        errno = 0;
        assert_null(kmem_group_create(NULL, NULL, 0));
        assert_int_equal(errno, EINVAL);
        assert_null(kmem_group_create("", NULL, 0));
        assert_int_equal(kmem_group_destroy(NULL), 0);
        assert_int_equal(kmem_group_stats(NULL, &stats), -1);
        assert_int_equal(kmem_group_set_limit(NULL, 1), -1);
        assert_int_equal(kmem_group_destroy(make_group(name, group, 0)), 0);
        errno = 0;
        assert_int_equal(kmem_group_stats(group, NULL), -1);
        assert_int_equal(errno, EINVAL);
        assert_int_equal(kmem_group_destroy(group), 0);
        assert_int_equal(kmem_group_destroy(group), -1);
        assert_int_equal(errno, EINVAL);
        assert_int_equal(kmem_group_stats(group, &stats), -1);
        assert_int_equal(kmem_group_set_limit(group, 1), -1);
        assert_null(kmem_group_create("child", group, 0));
        errno = 0;
        assert_null(kmem_group_set(group));
        assert_int_equal(errno, EINVAL);
        assert_null(kmem_group_current());
}

/* ---- A cache that is closed while threads use it ---- */

static struct closing {
        struct kmem_cache *cache;
        struct kmem_group *group;
        uint32_t stop;
} closing;

/* Plain requests all the time; every object's content is its own. */
static void *closing_user(void *argument)
{
        struct random random = {(uintptr_t)argument + 5};
        uint64_t *held[64] = {NULL};

        while (!load_acquire(&closing.stop)) {
                size_t i = random_below(&random, 64);

                if (held[i] && *held[i] != (uintptr_t)held[i])
                        return argument;
                if (held[i])
                        kmem_cache_free(closing.cache, held[i]);
                held[i] = kmem_cache_alloc(closing.cache, GFP_KERNEL);
                *held[i] = (uintptr_t)held[i];
        }
        kmem_cache_free_bulk(closing.cache, 64, (void **)held);
        return NULL;
}

static void closing_round(void)
{
        enum { USERS = 4, MINE = 500 };
        static void *mine[MINE];
        pthread_t users[USERS];
        void *failed;

        closing.cache = make_cache("group-closing", 32, 0);
        closing.group = make_group("closing", NULL, 0);
        closing.stop = 0;
        for (size_t i = 0; i < USERS; i++)
                pthread_create(&users[i], NULL, closing_user, (void *)(i + 1));
        kmem_group_set(closing.group);
        for (int i = 0; i < 1000; i++)
                kmem_cache_free(closing.cache, kmem_cache_alloc(closing.cache, GFP_KERNEL));
        for (int i = 0; i < MINE; i++) {
                mine[i] = kmem_cache_alloc(closing.cache, GFP_KERNEL_ACCOUNT);
                memset(mine[i], 0xff, 32);
        }
        assert_int_equal(stats_of(closing.group).bytes, MINE * (32 + WORD));
        for (int i = 0; i < MINE; i++)
                free_object(closing.cache, mine[i], i % 2);
        assert_int_equal(stats_of(closing.group).bytes, 0);
        store_release(&closing.stop, 1);
        for (int i = 0; i < USERS; i++) {
                pthread_join(users[i], &failed);
                assert_null(failed);
        }
        assert_int_equal(kmem_group_destroy(closing.group), 0);
        assert_int_equal(kmem_cache_shrink(closing.cache), 0);
        kmem_cache_destroy(closing.cache);
}

static void test_closing_under_use(void **state)
{
        (void)state;
        for (int round = 0; round < 60; round++)
                closing_round();
}

/* ---- Fork ---- */

static uint32_t fork_stop;

static void *fork_user(void *group)
{
        kmem_group_set(group);
        while (!load_acquire(&fork_stop)) {
                void *block = kmalloc(100, GFP_KERNEL_ACCOUNT);

                kfree(krealloc(block, 50000, GFP_KERNEL_ACCOUNT));
        }
        return NULL;
}

static int forked(struct kmem_group *group, void *mine)
{
        struct kmem_group_stats before, after;

        forked_child_starts_no_thread_under_qemu();
        child_check(kmem_group_current() == group);
        child_check(kmem_group_stats(group, &before) == 0);
        kfree(mine);
        child_check(kmem_group_stats(group, &after) == 0);
        child_check(before.bytes - after.bytes == 200704);
        mine = kmalloc(200000, GFP_KERNEL_ACCOUNT);
        child_check(mine && kmalloc(24, GFP_KERNEL_ACCOUNT));
        child_check(kmem_group_create("in child", group, 100));
        return 0;
}

static void test_fork(void **state)
{
        enum { USERS = 4 };
        /* The emulator stops all threads for each fork: a second and more on a busy machine. */
        const int forks = under_qemu() ? 8 : 40;
        struct kmem_group *group = make_group("fork", NULL, 0);
        pthread_t users[USERS];
        void *mine;

        (void)state;
        kmem_group_set(group);
        mine = kmalloc(200000, GFP_KERNEL_ACCOUNT);
        fork_stop = 0;
        for (int i = 0; i < USERS; i++)
                pthread_create(&users[i], NULL, fork_user, group);
        for (int i = 0; i < forks; i++) {
                pid_t pid = fork();

                if (pid == 0)
                        _exit(forked(group, mine));
                child_wait(pid);
        }
        store_release(&fork_stop, 1);
        for (int i = 0; i < USERS; i++)
                pthread_join(users[i], NULL);
        assert_int_equal(stats_of(group).bytes, 200704);
        kfree(mine);
        kmem_group_set(NULL);
        assert_int_equal(kmem_group_destroy(group), 0);
}

/* ---- No memory for the owners ---- */

static uint32_t refuse_metadata;

void *__real_metadata_alloc(size_t bytes);
void *__wrap_metadata_alloc(size_t bytes);
void *__wrap_metadata_alloc(size_t bytes)
{
        return load_relaxed(&refuse_metadata) ? NULL : __real_metadata_alloc(bytes);
}

static void test_objects_without_owner(void **state)
{
        struct kmem_cache *cache = make_cache("group-unowned", 512, SLAB_ACCOUNT);
        struct kmem_group *group = make_group("unowned", NULL, 0);
        void *objects[3];

        (void)state;
        skip_on_slob("shares pages: other objects may have made the vectors");
        /* Outside any group, so that there are free objects but no vectors yet. */
        kmem_cache_free(cache, kmem_cache_alloc(cache, GFP_KERNEL));
        kmem_group_set(group);
        store_relaxed(&refuse_metadata, 1);
        objects[0] = kmem_cache_alloc(cache, GFP_KERNEL);
        assert_int_equal(kmem_cache_alloc_bulk(cache, GFP_KERNEL, 2, objects + 1), 2);
        store_relaxed(&refuse_metadata, 0);
        assert_non_null(objects[0]);
        assert_int_equal(stats_of(group).bytes, 0);
        assert_int_equal(stats_of(group).objects, 0);
        assert_int_equal(stats_of(group).unowned, 3);
        kmem_cache_free_bulk(NULL, 3, objects);
        assert_int_equal(stats_of(group).bytes, 0);
        kmem_group_set(NULL);
        assert_int_equal(kmem_group_destroy(group), 0);
        kmem_cache_destroy(cache);
}

/* ---- A limit for the process ---- */

enum { PROCESS_LIMIT = 8 << 20 };

static size_t fill_with_malloc(void **blocks, size_t most, size_t size)
{
        size_t count = 0;

        while (count < most && (blocks[count] = malloc(size)))
                count++;
        return count;
}

static void process_child_aligned(size_t before)
{
        void *block = NULL;

        child_check(posix_memalign(&block, 65536, 9 << 20) == ENOMEM && !block);
        block = aligned_alloc(4096, 4096);
        child_check(stats_of(NULL).bytes == before + block_charge(4096));
        block = realloc(block, 1 << 20);
        child_check(stats_of(NULL).bytes == before + (1 << 20));
        block = realloc(block, 2 << 20);
        child_check(block && stats_of(NULL).bytes == before + (2 << 20));
        child_check(!realloc(block, 9 << 20) && errno == ENOMEM);
        free(block);
        child_check(!malloc((size_t)64 << 20) && !calloc(9, 1 << 20));
}

/* Runs under memory_limit=8M; the program's own allocations are there before. */
static int process_child(void)
{
        static void *blocks[200000];
        size_t before = stats_of(NULL).bytes;
        size_t fit = (PROCESS_LIMIT - before) / (64 + WORD);
        struct kmem_group *group;

        child_check(stats_of(NULL).limit == PROCESS_LIMIT);
        for (int round = 0; round < 3; round++) {
                child_check(fill_with_malloc(blocks, 200000, 64) == fit && errno == ENOMEM);
                child_check(stats_of(NULL).bytes == before + fit * (64 + WORD));
                for (size_t i = 0; i < fit; i++)
                        free(blocks[i]);
                child_check(stats_of(NULL).bytes == before);
        }
        process_child_aligned(before);
        child_check(stats_of(NULL).bytes == before);
        /* Groups are below the process's group, and its limit holds for them too. */
        group = kmem_group_create("below", NULL, 0);
        child_check(group && !kmem_group_set(group));
        child_check(!kmalloc(9 << 20, GFP_KERNEL_ACCOUNT) && stats_of(group).refusals == 0);
        blocks[0] = kmalloc(1 << 20, GFP_KERNEL_ACCOUNT);
        blocks[1] = kmalloc(1 << 20, GFP_KERNEL);
        child_check(stats_of(group).bytes == 1 << 20);
        child_check(stats_of(NULL).bytes == before + (2 << 20));
        child_check(kmem_group_destroy(NULL) == 0 && kmem_group_destroy(group) == 1);
        kfree(blocks[0]);
        kfree(blocks[1]);
        child_check(stats_of(NULL).bytes == before);
        return 0;
}

static void test_process_limit(void **state)
{
        pid_t pid = fork();

        (void)state;
        if (pid == 0) {
                setenv("KMEM_OPTIONS", child_settings("memory_limit=8M"), 1);
                exec_program("/proc/self/exe",
                             (char *[]){(char *)"test_group", (char *)"process-child", NULL});
                _exit(126);
        }
        child_wait(pid);
}

/* Where a request tries several ways to get memory, a limit refuses it once. */
static void refused_once(void)
{
        struct kmem_group *group = kmem_group_create("once", NULL, 1 << 20);
        size_t refusals = 0;
        void *block;

        kmem_group_set(group);
        /* In place, or else by a copy. */
        block = kmalloc(200000, GFP_KERNEL_ACCOUNT);
        check(block && !krealloc(block, 2 << 20, GFP_KERNEL_ACCOUNT));
        check_equal(stats_of(group).refusals, ++refusals);
        /* A copy that is charged nowhere is not refused. */
        block = krealloc(block, 2 << 20, GFP_KERNEL);
        check(block);
        check_equal(stats_of(group).refusals, refusals);
        check_equal(stats_of(group).bytes, 0);
        kfree(block);
        /* Outside the heap. */
        check_equal(kmem_group_set_limit(group, 8 << 20), 0);
        block = kmalloc(5 << 20, GFP_KERNEL_ACCOUNT);
        check(block && !krealloc(block, 30 << 20, GFP_KERNEL_ACCOUNT));
        check_equal(stats_of(group).refusals, ++refusals);
        kfree(block);
        /* On the node, or else as a block of its own. */
        check_equal(kmem_group_set_limit(group, 100), 0);
        errno = 0;
        check(!kmalloc_node(4000, GFP_KERNEL_ACCOUNT, 1) && errno == ENOMEM);
        check_equal(stats_of(group).refusals, ++refusals);
        check(!kmalloc_node(4000, GFP_KERNEL_ACCOUNT | __GFP_THISNODE, 0));
        check_equal(stats_of(group).refusals, ++refusals);
        check_equal(stats_of(group).bytes, 0);
}

static void test_refused_once(void **state)
{
        child_passes("refused-once", NULL);
        child_passes("refused-once", "numa_fake=2");
}

/* A large block that no group or another one is charged for grows into one that the thread's group is charged for. */
static void test_resize_charges_the_thread(void **state)
{
        struct kmem_group *first = make_group("first", NULL, 0);
        struct kmem_group *second = make_group("second", NULL, 0);

        (void)state;
        for (size_t bytes = 50000; bytes < 16 << 20; bytes *= 4) {
                char *block = kmalloc(bytes, GFP_KERNEL);

                assert_non_null(block);
                memset(block, 1, bytes);
                kmem_group_set(first);
                block = krealloc(block, 2 * bytes, GFP_KERNEL_ACCOUNT);
                assert_non_null(block);
                assert_true(stats_of(first).bytes >= 2 * bytes);
                assert_int_equal(stats_of(first).objects, 1);
                kmem_group_set(second);
                block = krealloc(block, 4 * bytes, GFP_KERNEL_ACCOUNT);
                assert_non_null(block);
                assert_int_equal(stats_of(first).bytes, 0);
                assert_true(stats_of(second).bytes >= 4 * bytes);
                assert_true(block[0] == 1 && block[bytes - 1] == 1);
                kmem_group_set(NULL);
                kfree(block);
                assert_int_equal(stats_of(second).bytes, 0);
        }
        assert_int_equal(kmem_group_destroy(first), 0);
        assert_int_equal(kmem_group_destroy(second), 0);
}

/*
 * A thread's group is charged for none of its requests without __GFP_ACCOUNT, whatever other flags they have. So many
 * that some of each kind take the slow path.
 */
static void test_only_accounted_requests_are_charged(void **state)
{
        static const gfp_t flags[] = {0, __GFP_NOFAIL, __GFP_NOWARN, __GFP_ZERO};
        struct kmem_group *group = make_group("small", NULL, 4096);
        static void *blocks[2000];

        (void)state;
        kmem_group_set(group);
        for (size_t i = 0; i < array_size(flags); i++) {
                for (size_t j = 0; j < array_size(blocks); j++) {
                        size_t size = j % 100 ? 64 : 100000;

                        blocks[j] = kmalloc(size, GFP_KERNEL | flags[i]);
                        assert_non_null(blocks[j]);
                        if (j % 2)
                                blocks[j] = krealloc(blocks[j], 2 * size, GFP_KERNEL | flags[i]);
                        assert_non_null(blocks[j]);
                }
                assert_int_equal(stats_of(group).peak, 0);
                assert_int_equal(stats_of(group).refusals, 0);
                for (size_t j = 0; j < array_size(blocks); j++)
                        kfree(blocks[j]);
        }
        kmem_group_set(NULL);
        assert_int_equal(kmem_group_destroy(group), 0);
}

/* INV-6: the pair that was in use is closed, and no slow path that still knows it puts a sheaf there. */
static void test_closed_pair_stays(void **state)
{
        struct kmem_group *group = make_group("pair", NULL, 0);
        struct kmem_cache *cache = make_cache("group-pair", 64, 0);
        uint32_t offset = cache->sheaf_offset;
        struct pair pair, cold = {&cold_sheaf, &cold_sheaf};
        void *object;

        (void)state;
        if (cache_is_closed(cache))
                skip_because("caches begin closed with check=sheaf");
        kmem_cache_free(cache, kmem_cache_alloc(cache, GFP_KERNEL));
        kmem_group_set(group);
        object = kmem_cache_alloc(cache, GFP_KERNEL_ACCOUNT);
        assert_true(cache_is_closed(cache));
        pair = slot_read_pair(slot_current(), offset);
        assert_ptr_equal(pair.main, &closed_sheaf);
        assert_ptr_equal(pair.spare, &closed_sheaf);
        for (int tries = 0; tries < 100; tries++)
                assert_false(slot_replace(slot_current(), offset, &pair, &cold));
        kmem_cache_free(cache, object);
        kmem_group_set(NULL);
        kmem_cache_destroy(cache);
        assert_int_equal(kmem_group_destroy(group), 0);
}

/* A closed cache's index serves the next cache as any other: it has sheaves there. */
static void index_again(void)
{
        struct kmem_cache *cache = kmem_cache_create("closed", 64, 0, SLAB_ACCOUNT, NULL);
        uint32_t index = cache_index(cache);
        struct pair pair;

        check(kmem_group_create("group", NULL, 0) != NULL);
        check(cache_is_closed(cache));
        kmem_cache_free(cache, kmem_cache_alloc(cache, GFP_KERNEL));
        kmem_cache_destroy(cache);
        cache = kmem_cache_create("open", 64, 0, SLAB_NO_MERGE, NULL);
        check_equal(cache_index(cache), index);
        kmem_cache_free(cache, kmem_cache_alloc(cache, GFP_KERNEL));
        pair = slot_read_pair(slot_current(), cache->pair_offset);
        check(!sheaf_is_cold(pair.main));
        kmem_cache_destroy(cache);
}

static void test_index_again(void **state)
{
        child_passes("index-again", "engine=slub,sheaf_capacity=6");
        child_passes("index-again", "engine=slub,sheaf_capacity=6,slots=locked");
}

/*
 * S8-42: objects of another cache in a bulk go home before the closed cache's sheaf takes them. It would
 * hand them out as its own and note their owners where its own objects would lie in their page.
 */
static void strangers_in_bulk(void)
{
        enum { STRANGERS = 3, REST = 8 };
        struct kmem_cache *large = kmem_cache_create("large", 512, 0, SLAB_ACCOUNT, NULL);
        struct kmem_cache *small = kmem_cache_create("small", 16, 0, SLAB_ACCOUNT, NULL);
        struct kmem_group *group = kmem_group_create("bulk", NULL, 0);
        void *objects[STRANGERS];
        void *rest[REST];

        kmem_group_set(group);
        /* So that there is a sheaf, with room. */
        check_equal(kmem_cache_alloc_bulk(small, GFP_KERNEL, REST, rest), REST);
        kmem_cache_free(small, kmem_cache_alloc(small, GFP_KERNEL));
        check_equal(kmem_cache_alloc_bulk(large, GFP_KERNEL, STRANGERS, objects), STRANGERS);
        kmem_cache_free_bulk(small, STRANGERS, objects);
        check_equal(stats_of(group).objects, REST);
        for (int i = 0; i < STRANGERS; i++) {
                objects[i] = kmem_cache_alloc(small, GFP_KERNEL);
                check_equal(heap.map[address_page(objects[i])], small->pair_offset);
        }
        for (int i = 0; i < STRANGERS; i++)
                kmem_cache_free(small, objects[i]);
        kmem_cache_free_bulk(small, REST, rest);
        check_equal(stats_of(group).bytes, 0);
        kmem_cache_destroy(small);
        kmem_cache_destroy(large);
}

static void test_strangers_in_bulk(void **state)
{
        skip_on_slob("shares pages: which cache an object is of is only known by its size");
        child_prints("strangers-in-bulk", NULL, "wrong slab cache: the object is from large");
}

/* Sheaves of a cache that is open already cannot be taken, which is no want of places. */
static void sandboxed(void)
{
        struct kmem_cache *cache = kmem_cache_create("before", 64, 0, SLAB_ACCOUNT, NULL);

        kmem_cache_free(cache, kmem_cache_alloc(cache, GFP_KERNEL));
        if (cache_is_closed(cache) || !slots_are_rseq() ||
            filter_calls(SYS_membarrier, ANY_ARGUMENT, SECCOMP_RET_ERRNO | EPERM) < 0) {
                puts("# skipped: no membarrier that could be refused later");
                exit(CHILD_SKIP);
        }
        check(!kmem_group_create("group", NULL, 0));
        check_equal(errno, EPERM);
        kmem_cache_free(cache, kmem_cache_alloc(cache, GFP_KERNEL));
        kmem_cache_destroy(cache);
        check(kmem_group_create("group", NULL, 0) != NULL);
}

static void test_sandboxed(void **state)
{
        child_passes("sandboxed", NULL);
}

/* A block that slob does not take, and that bad_free=ignore leaves in place, stays charged. */
static void ignored_size(void)
{
        struct kmem_cache *small = kmem_cache_create("small", 48, 0, SLAB_ACCOUNT, NULL);
        struct kmem_cache *large = kmem_cache_create("large", 200, 0, SLAB_ACCOUNT, NULL);
        struct kmem_cache *huge = kmem_cache_create("huge", 8192, 0, SLAB_ACCOUNT, NULL);
        struct kmem_group *group = kmem_group_create("ignored", NULL, 0);
        void *wrong[3];
        void *copy[3];
        size_t bytes;

        kmem_group_set(group);
        wrong[0] = kmem_cache_alloc(small, GFP_KERNEL);
        wrong[1] = kmem_cache_alloc(huge, GFP_KERNEL);
        wrong[2] = kmalloc(200, GFP_KERNEL_ACCOUNT);
        bytes = stats_of(group).bytes;
        check_equal(bytes, 48 + 8192 + block_charge(200) + 2 * WORD);
        for (int i = 0; i < 3; i++)
                kmem_cache_free(large, wrong[i]);
        check_equal(stats_of(group).bytes, bytes);
        memcpy(copy, wrong, sizeof(copy));
        kmem_cache_free_bulk(large, 3, copy);
        check_equal(stats_of(group).bytes, bytes);
        kmem_cache_free(huge, wrong[0]);
        check_equal(stats_of(group).bytes, bytes);
        kmem_cache_free(small, wrong[0]);
        kmem_cache_free(huge, wrong[1]);
        kfree(wrong[2]);
        check_equal(stats_of(group).bytes, 0);
        check_equal(stats_of(group).objects, 0);
}

static void test_ignored_size(void **state)
{
        child_prints("ignored-size", "engine=slob,bad_free=ignore",
                     "has another size than the objects of this cache; ignored");
}

int main(int argc, char **argv)
{
        static const struct child_case cases[] = {{"refused-once", refused_once},
                                                  {"index-again", index_again},
                                                  {"strangers-in-bulk", strangers_in_bulk},
                                                  {"sandboxed", sandboxed},
                                                  {"ignored-size", ignored_size}};
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_wrong_calls),
                cmocka_unit_test(test_model),
                cmocka_unit_test(test_same_byte_in_every_run),
                cmocka_unit_test(test_bulk_is_all_or_nothing),
                cmocka_unit_test(test_threads_race_on_a_limit),
                cmocka_unit_test(test_group_ends_before_its_objects),
                cmocka_unit_test(test_group_ends_before_the_charge),
                cmocka_unit_test(test_objects_outlive_their_thread),
                cmocka_unit_test(test_closing_under_use),
                cmocka_unit_test(test_closed_pair_stays),
                cmocka_unit_test(test_fork),
                cmocka_unit_test(test_objects_without_owner),
                cmocka_unit_test(test_process_limit),
                cmocka_unit_test(test_refused_once),
                cmocka_unit_test(test_resize_charges_the_thread),
                cmocka_unit_test(test_only_accounted_requests_are_charged),
                cmocka_unit_test(test_index_again),
                cmocka_unit_test(test_strangers_in_bulk),
                cmocka_unit_test(test_ignored_size),
                cmocka_unit_test(test_sandboxed),
                cmocka_unit_test(test_record_used_again),
        };

        if (argc > 1 && strcmp(argv[1], "process-child") == 0)
                return process_child();
        child_main(argc, argv, cases, sizeof(cases) / sizeof(*cases));
        return cmocka_run_group_tests(tests, NULL, NULL);
}
