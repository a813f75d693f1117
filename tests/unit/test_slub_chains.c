/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Chains of many slabs at once, as a sheaf gives its objects back: how many swaps they take, and that
 * no object is lost or counted twice, whatever the order and whatever others do before a swap. A single
 * thread; a walk over all descriptors follows every step.
 */
#include "child.h"
#include "random.h"
#include "walker.h"

#include "percpu/percpu.h"
#include "engines/slub/slab.h"

#include <string.h>

/* A sheaf's most objects, and the places that chains have (give.c). */
enum { SLOTS = 4, SLABS_MAX = 400, EACH = 16, SHEAF = 254, PLACES = 32 };

static struct kmem_cache *cache;
static struct engine_slot slots[SLOTS];
static void *objects[SLABS_MAX][EACH];

static unsigned int swaps;
static struct page *hooked_slab;
static void (*hook)(void);

void slab_swap_hook(struct page *slab)
{
        swaps++;
        if (!hook || slab != hooked_slab)
                return;
        hooked_slab = NULL;
        hook();
}

static struct walk_counts walk(void)
{
        struct walk_counts counts;

        walk_heap(cache, &counts);
        return counts;
}

/* Makes @slabs full slabs of 16 objects of 256 bytes, one behind the other. */
static void begin(unsigned int slabs)
{
        cache = kmem_cache_create("chains", 256, 0, 0, NULL);
        check(cache != NULL);
        check_equal(cache->objects, EACH);
        check(!cache->slab_pages && load_relaxed(&cache->sheaf_capacity));
        cache->cpu_partial_slabs = SLABS_MAX;
        cache->has_cpu_partial = true;
        for (unsigned int i = 0; i < SLOTS; i++)
                slots[i] = (struct engine_slot){.freelist = ENGINE_NO_OBJECT, .home = 1 + i};
        walk_own_slots(cache, slots, SLOTS);
        for (unsigned int s = 0; s < slabs; s++) {
                check_equal(cache->engine->take(cache, &slots[0], objects[s], EACH), EACH);
                cache->engine->flush_slot(cache, &slots[0]);
                for (unsigned int i = 0; i < EACH; i++)
                        check(slub_slab_of(cache, objects[s][i]) ==
                              slub_slab_of(cache, objects[s][0]));
        }
        walk();
        swaps = 0;
}

static void end(void)
{
        hook = NULL;
        for (unsigned int i = 0; i < SLOTS; i++)
                cache->engine->flush_slot(cache, &slots[i]);
        check_equal(walk().inuse, 0);
        check_equal(kmem_cache_shrink(cache), 0);
        walk_own_slots(NULL, NULL, 0);
        kmem_cache_destroy(cache);
}

/* Swaps that the call takes. The array is the caller's and stays as it is. */
static unsigned int give(unsigned int slot, void *const *given, unsigned int count)
{
        unsigned int before = swaps;
        void *copy[SHEAF];

        memcpy(copy, given, count * sizeof(*given));
        check_equal(cache->engine->give(cache, &slots[slot], copy, count), 0);
        walk();
        return swaps - before;
}

static uint32_t inuse_of(unsigned int slab)
{
        return state_unpack(slub_slab_of(cache, objects[slab][0])->state).inuse;
}

/* All objects of the slabs from @first on but the last @kept of each, in random order. */
static unsigned int shuffled(void **all, unsigned int slabs, unsigned int kept)
{
        struct random random = {slabs};
        unsigned int count = 0;

        for (unsigned int s = 0; s < slabs; s++)
                for (unsigned int i = 0; i < EACH - kept; i++)
                        all[count++] = objects[s][i];
        for (unsigned int i = count; i > 1; i--) {
                size_t j = random_below(&random, i);
                void *object = all[i - 1];

                all[i - 1] = all[j];
                all[j] = object;
        }
        return count;
}

/* A swap for each slab that has objects in the sheaf, however these are mixed. */
static void a_swap_a_slab(void **state)
{
        static void *all[SLABS_MAX * EACH];
        enum { SLABS = 30 }; /* each has a place of its own */
        unsigned int count;

        begin(SLABS);
        count = shuffled(all, SLABS, 1);
        for (unsigned int at = 0; at < count; at += SHEAF) {
                unsigned int piece = min_of(count - at, (unsigned int)SHEAF);
                bool touched[SLABS] = {false};
                unsigned int slabs = 0;

                for (unsigned int i = at; i < at + piece; i++)
                        for (unsigned int s = 0; s < SLABS; s++)
                                if (slub_slab_of(cache, all[i]) ==
                                            slub_slab_of(cache, objects[s][0]) &&
                                    !touched[s]) {
                                        touched[s] = true;
                                        slabs++;
                                }
                check_equal(give(1, all + at, piece), slabs);
        }
        for (unsigned int s = 0; s < SLABS; s++) {
                check_equal(inuse_of(s), 1);
                give(1, &objects[s][EACH - 1], 1);
        }
        end();
}

/* More slabs than places: each object comes home, and each slab's count is exact. */
static void more_slabs_than_places(void **state)
{
        static void *all[SLABS_MAX * EACH];
        unsigned int count;

        begin(SLABS_MAX);
        count = shuffled(all, SLABS_MAX, 0);
        for (unsigned int at = 0; at < count; at += SHEAF)
                give(at / SHEAF % SLOTS, all + at, min_of(count - at, (unsigned int)SHEAF));
        end();
}

/* Two slabs that need a place in turn: each takes it from the other, with a swap. */
static void a_place_for_two(void **state)
{
        unsigned int other = 0;
        void *batch[EACH];

        begin(SLABS_MAX);
        /* A place of 32 is also one of the 8 that a batch of 8 has. */
        while (other == 0 || (page_number(slub_slab_of(cache, objects[other][0])) -
                              page_number(slub_slab_of(cache, objects[0][0]))) >>
                                             cache->order &
                                     (PLACES - 1))
                check(++other < SLABS_MAX);
        for (unsigned int i = 0; i < 8; i++)
                batch[i] = objects[i % 2 ? other : 0][i];
        check_equal(give(1, batch, 8), 8);
        check_equal(inuse_of(0), EACH - 4);
        check_equal(inuse_of(other), EACH - 4);
        for (unsigned int i = 0; i < 8; i++)
                batch[i] = objects[i % 2 ? 0 : other][i];
        give(1, batch, 8);
        give(1, objects[0] + 8, EACH - 8);
        give(1, objects[other] + 8, EACH - 8);
        for (unsigned int s = 1; s < SLABS_MAX; s++)
                if (s != other)
                        give(2, objects[s], EACH);
        end();
}

static void free_one(void)
{
        void *object = objects[0][EACH - 1];

        cache->engine->give(cache, &slots[3], &object, 1);
}

static unsigned int taken_count;
static void *taken[EACH];

static void take_all(void)
{
        taken_count = cache->engine->take(cache, &slots[1], taken, 2);
        check_equal(taken_count, 2);
}

/*
 * Between the read of a partial slab's state and the swap another thread frees into the slab, or makes it
 * its CPU slab.
 */
static void others_before_the_swap(void **state)
{
        begin(2);
        give(1, objects[0], 4);
        hooked_slab = slub_slab_of(cache, objects[0][0]);
        hook = free_one;
        check(give(1, objects[0] + 4, 4) > 1);
        check_equal(inuse_of(0), EACH - 9);

        hooked_slab = slub_slab_of(cache, objects[0][0]);
        hook = take_all;
        check(give(2, objects[0] + 8, 4) > 1);
        check(slots[1].slab == slub_slab_of(cache, objects[0][0]));
        check(state_unpack(slots[1].slab->state).frozen);
        give(1, taken, 2);
        give(2, objects[0] + 12, 3);
        give(2, objects[1], EACH);
        end();
}

/* Chains into each kind of slab: a CPU slab, a full slab, and one that becomes empty. */
static void each_kind_of_slab(void **state)
{
        void *batch[3 * EACH];
        void *own[4];

        begin(2);
        cache->min_partial = 0;
        cache->has_cpu_partial = false;
        /* Slot 0 has a CPU slab with 4 objects out; slab 0 is full; of slab 1 one object is out. */
        check_equal(cache->engine->take(cache, &slots[0], own, 4), 4);
        give(1, objects[1], EACH - 1);
        for (unsigned int i = 0; i < 2; i++) {
                batch[i * 3] = own[i];
                batch[i * 3 + 1] = objects[0][i];
                batch[i * 3 + 2] = i ? objects[0][2] : objects[1][EACH - 1];
        }
        check_equal(walk().slabs, 3);
        give(0, batch, 6);
        /* Slab 1 is gone, slab 0 is on the node's list, and the own slab is where it was. */
        check_equal(walk().slabs, 2);
        check_equal(inuse_of(0), EACH - 3);
        check(slub_slab_of(cache, objects[0][0])->node_partial);
        check(slots[0].slab == slub_slab_of(cache, own[0]));
        give(0, own + 2, 2);
        give(0, objects[0] + 3, EACH - 3);
        end();
}

int main(int argc, char **argv)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(a_swap_a_slab),     cmocka_unit_test(more_slabs_than_places),
                cmocka_unit_test(a_place_for_two),   cmocka_unit_test(others_before_the_swap),
                cmocka_unit_test(each_kind_of_slab),
        };

        return cmocka_run_group_tests_name("slub_chains", tests, NULL, NULL);
}
