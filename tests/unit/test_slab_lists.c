/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Engine slab step by step: the list that a slab is on, the work of a CPU array, of shared and
 * alien arrays and of the reaper, and the reports of wrong frees. A single thread; time stands
 * still unless a case moves it.
 */
#include "child.h"
#include "record_bytes.h"
#include "skip.h"
#include "walk_slab.h"

#include "heap/heap.h"
#include "base/options.h"
#include "introspect/totals.h"
#include "page/page.h"
#include "engines/slab/slab.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MANY = 400 };

static struct kmem_cache *cache;
static struct engine_slot slot; /* of the test's own */
static void *objects[MANY];

/* Stands in for the node of the CPU. */
static uint32_t this_node;

uint32_t slab_local_node(void)
{
        return this_node;
}

static uint64_t now_ms = 1000000;
uint64_t __wrap_system_time_ms(void);

uint64_t __wrap_system_time_ms(void)
{
        return now_ms;
}

/* The calls of metadata_alloc left until a call fails; 0: none fails. */
static unsigned int metadata_calls;
void *__real_metadata_alloc(size_t bytes);
void *__wrap_metadata_alloc(size_t bytes);

void *__wrap_metadata_alloc(size_t bytes)
{
        if (metadata_calls && --metadata_calls == 0)
                return NULL;
        return __real_metadata_alloc(bytes);
}

static struct walk_slab_counts walk(void)
{
        struct walk_slab_counts counts;

        walk_slab_cache(cache, &counts);
        return counts;
}

static struct slab_node *node(void)
{
        return &slab_data(cache)->node[0];
}

static struct cache_totals totals(void)
{
        struct cache_totals totals;

        cache_total(cache, &totals);
        return totals;
}

static void begin(const char *name, uint32_t size, slab_flags_t flags)
{
        cache = kmem_cache_create(name, size, 0, flags, NULL);
        check(cache && cache->engine == &slab_engine);
        memset(&slot, 0, sizeof(slot));
}

static void end(void)
{
        check_equal(kmem_cache_shrink(cache), 0);
        check_equal(walk().active, 0);
        kmem_cache_destroy(cache);
}

static void take(void **to, unsigned int count)
{
        for (unsigned int taken = 0; taken < count;)
                taken += slab_take(cache, &slot, to + taken, count - taken);
        walk();
}

static void give(void **from, unsigned int count)
{
        void *copy[MANY];

        memcpy(copy, from, count * sizeof(*from));
        slab_give(cache, &slot, copy, count);
        walk();
}

static void flush(void **from, unsigned int count)
{
        void *copy[MANY];

        memcpy(copy, from, count * sizeof(*from));
        slab_flush(cache, &slot, copy, count);
        walk();
}

static size_t used_pages(void)
{
        struct page_counts counts;

        pages_free(pages_alloc(0, NODE_ANY, NULL), 1); /* the first of all costs page 0 */
        pages_count(&counts);
        return counts.used_pages;
}

/* The tests' CPU array holds a case's objects as the program sees them. */
static void alloc_all(void **to, unsigned int count)
{
        for (unsigned int i = 0; i < count; i++)
                check((to[i] = kmem_cache_alloc(cache, GFP_KERNEL)) != NULL);
}

static void free_all(void **from, unsigned int count)
{
        for (unsigned int i = 0; i < count; i++)
                kmem_cache_free(cache, from[i]);
}

/* S6-10, S6-32: ascending in the slab; a slab that is made is taken from before it is listed. */
static void fresh_slab(void **state)
{
        begin("fresh", 256, 0);
        take(objects, 5);
        for (unsigned int i = 1; i < 5; i++)
                check(objects[i] == (char *)objects[i - 1] + cache->size);
        check_equal(walk().partial, 1);
        check_equal(node()->free_objects, cache->objects - 5);
        take(objects + 5, cache->objects - 5);
        check_equal(walk().full, 1);
        give(objects, cache->objects);
        check_equal(walk().free, 1);
        end();
}

/* S6-21 */
static void colours_in_turn(void **state)
{
        begin("colours", 700, SLAB_RECLAIM_ACCOUNT);
        check_equal(slab_data(cache)->colours, 9);
        take(objects, 11 * cache->objects);
        for (unsigned int i = 0; i < 11; i++)
                check_equal(slab_first_offset(slab_of(cache, objects[i * cache->objects])),
                            (i + 1) % 9 * 64);
        give(objects, 11 * cache->objects);
        end();
}

/* S6-42: a slab that gets an object back goes to the tail, and S6-31 takes from the head. */
static void partial_order(void **state)
{
        unsigned int each;
        struct page *slab[3];

        begin("partial", 256, 0);
        each = cache->objects;
        take(objects, 3 * each);
        for (unsigned int i = 0; i < 3; i++)
                slab[i] = slab_of(cache, objects[i * each]);
        give(&objects[1 * each], 1);
        give(&objects[0], 1);
        give(&objects[2 * each], 1);
        check(page_list_first(&cache->node[0].partial) == slab[1]);
        give(&objects[1 * each + 1], 1); /* moves to the tail again */
        check(page_list_first(&cache->node[0].partial) == slab[0]);
        check_equal(cache->node[0].partial.last, page_number(slab[1]));
        take(objects, 1);
        check(slab_of(cache, objects[0]) == slab[0] && slab[0]->active == each);
        take(&objects[2 * each], 1);
        take(&objects[1 * each], 2);
        give(&objects[0], 2);
        give(&objects[1 * each], 1);
        take(objects, 1); /* an object is left, so its slab stays the head */
        check(page_list_first(&cache->node[0].partial) == slab[0]);
        take(objects + 1, 1);
        take(&objects[1 * each], 1);
        give(objects, 3 * each);
        end();
}

/* S6-43: free slabs go while there are more free objects than the limit, the oldest first. */
static void free_limit(void **state)
{
        unsigned int each;
        unsigned int slabs;

        begin("limit", 1024, 0);
        each = cache->objects;
        slabs = MANY / each;
        take(objects, slabs * each);
        check_equal(cache->node[0].slabs, slabs);
        give(objects, slabs * each);
        check(node()->free_objects <= node()->free_limit);
        check_equal(walk().free, node()->free_limit / each);
        check(slab_of(cache, objects[(slabs - 1) * each])->active == 0);
        check_equal(heap.map[address_page(objects[0])], 0);
        check_equal(kmem_cache_shrink(cache), 0);
        /* As many as the limit stay. */
        node()->free_limit = 2 * each;
        take(objects, 3 * each);
        give(objects, 2 * each);
        check_equal(walk().free, 2);
        give(objects + 2 * each, each);
        check_equal(walk().free, 2);
        end();
}

/* S6-31: at most 16 objects while untouched, then a batch; the last taken is popped first. */
static void refills(void **state)
{
        begin("refill", 64, 0);
        alloc_all(objects, 1);
        check_equal(totals().report.taken, 16);
        check_equal(totals().resting, 15);
        alloc_all(objects + 1, 15);
        check_equal(totals().report.taken, 16);
        for (unsigned int i = 1; i < 16; i++)
                check(objects[i] == (char *)objects[i - 1] - cache->size);
        alloc_all(objects + 16, 1);
        check_equal(totals().report.taken, 16 + 48); /* the slab holds 64 */
        alloc_all(objects + 17, 48);
        check_equal(totals().report.taken, 64 + 60);
        free_all(objects, 65);
        end();
}

/* S6-41: the oldest entries leave, to the shared array while it has room, then to slabs. */
static void flushes(void **state)
{
        begin("flush", 64, 0); /* limit 4, batchcount 2, shared 1: see main */
        check_equal(cache->sheaf_capacity, 4);
        alloc_all(objects, 30);
        check_equal(kmem_cache_shrink(cache), 1);
        free_all(objects, 4);
        check_equal(totals().resting, 4);
        check_equal(node()->shared->available, 0);
        free_all(objects + 4, 1);
        check_equal(totals().resting, 3);
        check_equal(node()->shared->available, 2);
        check(node()->shared->object[0] == objects[0] && node()->shared->object[1] == objects[1]);
        check_equal(totals().report.shared_objects, 2);
        free_all(objects + 5, 2); /* no room: to the slab */
        check_equal(node()->shared->available, 2);
        check(!slab_is_used(cache, slab_of(cache, objects[2]),
                            slab_index(cache, slab_of(cache, objects[2]), objects[2])));
        check_equal(totals().inuse, 23);
        /* A refill looks at the shared array first (S6-31). */
        alloc_all(objects, 3);
        check_equal(node()->shared->available, 2);
        alloc_all(objects + 3, 1);
        check_equal(node()->shared->available, 0);
        check(node()->shared->touched);
        free_all(objects, 4);
        free_all(objects + 7, 23);
        end();
}

static void expect_same_arrays(struct kmem_cache *bulk, struct kmem_cache *single)
{
        struct cache_totals expected;
        struct cache_totals found;

        cache_total(bulk, &found);
        cache_total(single, &expected);
        check_equal(found.inuse, expected.inuse);
        check_equal(found.resting, expected.resting);
        check_equal(found.report.shared_objects, expected.report.shared_objects);
        check_equal(found.nodes.objects - found.nodes.listed_free,
                    expected.nodes.objects - expected.nodes.listed_free);
        cache = bulk;
        walk();
}

/* A few random bulks of up to the whole array, and as many single calls on a second cache. */
static void bulks_beside_singles(const char *tunables, uint64_t seed)
{
        struct kmem_cache *bulk = kmem_cache_create("bulk", 256, 0, SLAB_NO_MERGE, NULL);
        struct kmem_cache *single = kmem_cache_create("single", 256, 0, SLAB_NO_MERGE, NULL);
        struct kmem_cache *other = kmem_cache_create("other", 256, 0, SLAB_NO_MERGE, NULL);
        static void *others[MANY];
        unsigned int held = 0;
        char line[64];

        check(bulk && single && other);
        check_equal(kmem_slabinfo_write("other 1 1 0"), 0);
        snprintf(line, sizeof(line), "bulk %s", tunables);
        check_equal(kmem_slabinfo_write(line), 0);
        snprintf(line, sizeof(line), "single %s", tunables);
        check_equal(kmem_slabinfo_write(line), 0);
        /* Which objects a call gets may differ, and so which slabs would end. */
        slab_data(bulk)->node[0].free_limit = UINT64_MAX;
        slab_data(single)->node[0].free_limit = UINT64_MAX;
        for (unsigned int step = 0; step < 300; step++) {
                unsigned int count = (unsigned int)(random_step(&seed) % MANY) + 1;

                if (random_step(&seed) % 2) {
                        count = min_of(count, MANY - held);
                        check_equal(kmem_cache_alloc_bulk(bulk, GFP_KERNEL, count, objects + held),
                                    count);
                        cache = single;
                        alloc_all(others + held, count);
                        held += count;
                } else {
                        count = min_of(count, held);
                        held -= count;
                        kmem_cache_free_bulk(step % 2 ? bulk : NULL, count, objects + held);
                        cache = single;
                        free_all(others + held, count);
                }
                expect_same_arrays(bulk, single);
                /*
                 * Slow paths of a third cache let the reaper see both in an equal state; after a
                 * few rounds it takes from arrays that nobody touched.
                 */
                for (uint64_t round = random_step(&seed) % 8; round > 3; round--) {
                        void *pair[2];

                        now_ms += 4000;
                        cache = other;
                        alloc_all(pair, 2);
                        free_all(pair, 2);
                        expect_same_arrays(bulk, single);
                }
        }
        kmem_cache_free_bulk(bulk, held, objects);
        cache = single;
        free_all(others, held);
        end();
        kmem_cache_destroy(other);
        cache = bulk;
        end();
}

/* S5-30: a bulk call leaves the arrays as single calls for these objects would. */
static void bulk_is_single_calls(void **state)
{
        static const char *const tunables[] = {"120 60 8", "120 50 1", "7 3 5",    "10 10 2",
                                               "1 1 3",    "64 40 0",  "300 150 2"};

        for (uint64_t i = 0; i < array_size(tunables); i++)
                bulks_beside_singles(tunables[i], i + 1);
}

/* While the slot's array cannot be had, all objects come from slabs and go there (ARRAY-3). */
static void bulk_without_array(void **state)
{
        if (!slots_are_rseq())
                skip_because("a locked slot is stopped by its lock, not by the mark");
        begin("stopped", 256, 0);
        alloc_all(objects, 1);
        free_all(objects, 1);
        for (unsigned int number = 0; number < slots_made_count(); number++)
                store_release(&slot_made(number)->stopped, 1u);
        check_equal(kmem_cache_alloc_bulk(cache, GFP_KERNEL, MANY, objects), MANY);
        check_equal(totals().inuse, MANY);
        check_equal(totals().resting, 0);
        kmem_cache_free_bulk(cache, MANY, objects);
        check_equal(totals().inuse, 0);
        for (unsigned int number = 0; number < slots_made_count(); number++)
                store_release(&slot_made(number)->stopped, 0u);
        end();
}

/* S6-60, S6-61: a round leaves a touched array alone, the next round takes a fifth of its limit. */
static void reaping(void **state)
{
        static const unsigned int expected[] = {64, 40, 16, 8};
        struct kmem_cache *other;

        begin("reap", 64, 0);
        other = kmem_cache_create("reap-other", 4096, 0, 0, NULL);
        alloc_all(objects, 100);
        free_all(objects, 100);
        /* 16, 48 and 60 were taken; the 121st object that rested made 60 leave. */
        check_equal(totals().resting, 64);
        check_equal(node()->shared->available, 60);
        end();
        begin("reap", 64, 0);
        alloc_all(objects, 60);
        free_all(objects, 60);
        check_equal(totals().resting, 64);
        for (unsigned int round = 0; round < 4; round++) {
                void *object;

                now_ms += 2000;
                object = kmem_cache_alloc(other, GFP_KERNEL);
                kmem_cache_free(other, object);
                kmem_cache_shrink(other); /* the next allocation takes the slow path again */
                check_equal(totals().resting, expected[round]);
        }
        end();
        kmem_cache_destroy(other);
}

/* S6-60: free slabs that were not needed for 4 s go, a slice a round. */
static void reaping_slabs(void **state)
{
        uint64_t slabs;

        begin("reap-slabs", 1024, 0);
        take(objects, 80);
        give(objects, 80);
        take(objects, 1); /* had to look at the free list: a mark that the first round clears */
        give(objects, 1);
        slabs = walk().free;
        check(slabs > 4);
        slab_reap(cache, 5000);
        check_equal(walk().free, slabs);
        slab_reap(cache, 7000); /* too early */
        check_equal(walk().free, slabs);
        slab_reap(cache, 9000);
        slabs -= (node()->free_limit + 5 * cache->objects - 1) / (5 * cache->objects);
        check_equal(walk().free, slabs);
        end();
}

/* S6-60, S6-61: so do the shared array, a fifth of its limit or half of few, and alien arrays. */
static void reaping_shared(void **state)
{
        static const unsigned int left[] = {15, 11, 7, 3, 1, 0};
        size_t pages = used_pages();
        uint64_t now = 5000;
        void *object;

        begin("reap-shared", 1024, 0);
        check_equal(kmem_slabinfo_write("reap-shared 20 10 2"), 0);
        node()->free_limit = 0;
        take(objects, 20);
        flush(objects, 20);
        check_equal(slab_take(cache, &slot, &object, 1),
                    1); /* a mark that the first round clears */
        check(object == objects[19]);
        slab_reap(cache, now);
        check_equal(node()->shared->available, 19);
        for (unsigned int round = 0; round < array_size(left); round++) {
                now += 4000;
                slab_reap(cache, now);
                check_equal(node()->shared->available, left[round]);
                check(!left[round] || node()->shared->object[0] == objects[19 - left[round]]);
        }
        check_equal(walk().active, 1);
        give(&object, 1);
        end();
        check_equal(used_pages(), pages);
}

/* Objects in the arrays of a cache that is shrunk or destroyed go back, down to the pages. */
static void arrays_emptied(void **state)
{
        size_t metadata = record_bytes();
        size_t pages = used_pages();

        for (unsigned int shrunk = 0; shrunk < 2; shrunk++) {
                begin("emptied", 1024, 0);
                check_equal(kmem_slabinfo_write("emptied 20 10 8"), 0);
                check_equal(kmem_slabinfo_write("emptied 40 20 4"), 0);
                node()->free_limit = 0;
                take(objects, 40);
                flush(objects, 40);
                check_equal(node()->shared->available, 40);
                if (shrunk)
                        check_equal(kmem_cache_shrink(cache), 0);
                kmem_cache_destroy(cache);
                check_equal(record_bytes(), metadata);
                check_equal(used_pages(), pages);
        }
}

/*
 * S6-41: a flush is of a batch, or of the number that has room in the shared array if that is less.
 */
static void flush_counts(void **state)
{
        begin("counts", 1024, 0);
        check_equal(kmem_slabinfo_write("counts 20 10 2"), 0);
        take(objects, 20);
        check_equal(slab_flush_count(cache, 20, 1), 10);
        flush(objects, 15);
        check_equal(slab_flush_count(cache, 20, 1), 5);
        check_equal(slab_flush_count(cache, 20, 6), 5 + 10);
        flush(objects + 15, 5);
        check_equal(slab_flush_count(cache, 20, 1), 10);
        end();
}

/*
 * Slabs that become free by objects that a flush finds no room for are ended, down to their pages.
 */
static void flushed_slabs(void **state)
{
        size_t pages = used_pages();

        begin("flushed", 1024, 0);
        check_equal(kmem_slabinfo_write("flushed 20 10 1"), 0);
        node()->free_limit = 0;
        take(objects, 60);
        flush(objects, 60);
        check_equal(node()->shared->available, 10);
        check_equal(walk().active, 10);
        /* The objects in the array may lie in three slabs at most. */
        check(used_pages() <= pages + 3 * order_pages(cache->order));
        end();
        check_equal(used_pages(), pages);
}

/* The figures that other processes see are the report's. */
static void figures_shown(void **state)
{
        struct registry_node shown;
        struct engine_report report;

        memset(&shown, 0xff, sizeof(shown));
        begin("flush", 1024, 0);
        take(objects, 30);
        give(objects, 9);
        cache->node[0].figures = &shown;
        slab_flush(cache, &slot, objects + 9, 3);
        cache->node[0].figures = NULL;
        memset(&report, 0, sizeof(report));
        slab_engine.report(cache, &report);
        check_equal(shown.slabs, cache->node[0].slabs);
        check_equal(shown.objects, report.node[0].objects);
        check_equal(shown.partial, report.node[0].partial_slabs);
        check_equal(shown.free_slabs, report.free_slabs);
        check_equal(shown.free_objects, report.node[0].listed_free);
        check_equal(shown.shared_objects, 2);
        check_equal(shown.refused, 0);
        check(shown.free_slabs > 0 && shown.partial > 0);
        give(objects + 12, 18);
        end();
}

/* A program writes into the free object that holds the free list, from an entry of it on. */
static void overwrite(int byte, unsigned int from)
{
        unsigned int each;
        bool seen[64] = {false};

        begin("uaf", 64, 0);
        each = cache->objects;
        take(objects, each);
        give(objects, each - 1); /* objects[0] came back first and holds the list */
        memset((char *)objects[0] + from, byte, 64 - from);
        check_equal(slab_take(cache, &slot, objects, each - 1), each - 1);
        for (unsigned int i = 0; i < each; i++) {
                uint32_t index = slab_index(cache, slab_of(cache, objects[i]), objects[i]);

                check(!seen[index]);
                seen[index] = true;
        }
        walk();
        give(objects, each);
        end();
}

static void overwritten_list(void)
{
        overwrite(0xff, 0);
}

static void overwritten_end(void)
{
        overwrite(0xff, 40);
}

/* Of an index twice it may look like a list. */
static void overwritten_with_one_index(void)
{
        overwrite(5, 0);
}

/* Of the object's own index, too, which would be handed out with the list still inside. */
static void overwritten_with_own_index(void)
{
        overwrite(0, 0);
}

/* As above, an object at a time: the library writes to none that the program has. */
static void overwritten_between_calls(void)
{
        char expected[64];

        begin("uaf", 64, 0);
        take(objects, cache->objects);
        give(objects, cache->objects - 1);
        memset(objects[0], 0, 64);
        memset(expected, 0x77, sizeof(expected));
        for (unsigned int i = 0; i < cache->objects - 1; i++) {
                check_equal(slab_take(cache, &slot, &objects[i], 1), 1);
                memset(objects[i], 0x77, 64);
        }
        for (unsigned int i = 0; i < cache->objects - 1; i++)
                check(memcmp(objects[i], expected, sizeof(expected)) == 0);
        give(objects, cache->objects);
        end();
}

static void overwritten_with_limit(void)
{
        overwrite(64, 0);
}

static void mended(void **state)
{
        child_prints("overwritten_list", NULL, "was overwritten");
        child_prints("overwritten_end", NULL, "was overwritten");
        child_prints("overwritten_with_one_index", NULL, "was overwritten");
        child_prints("overwritten_with_own_index", NULL, "was overwritten");
        child_prints("overwritten_between_calls", NULL, "was overwritten");
        child_prints("overwritten_with_limit", NULL, "was overwritten");
}

static void double_free(void)
{
        begin("wrong", 100, 0);
        alloc_all(objects, 3);
        free_all(objects, 2);
        free_all(objects, 1);
        kmem_cache_shrink(cache);
}

static void interior_free(void)
{
        begin("wrong", 100, 0);
        alloc_all(objects, 1);
        kmem_cache_free(cache, (char *)objects[0] + 8);
        kmem_cache_shrink(cache);
}

/* The figures are right again after a wrong free has been left out. */
static void ignored_free(void)
{
        begin("flush", 100, 0);
        alloc_all(objects, 30);
        free_all(objects, 2);
        free_all(objects, 1);
        free_all(objects + 2, 8); /* both copies pass the shared array */
        kmem_cache_shrink(cache);
        check_equal(totals().inuse, 20);
        free_all(objects + 10, 20);
        end();
}

/* Only the right counts matter. */
static void ignored_gift(void)
{
        void *twice[3];

        begin("gift", 100, 0);
        take(objects, 2);
        twice[0] = twice[2] = objects[0];
        twice[1] = objects[1];
        slab_give(cache, &slot, twice, 3);
        check_equal(slot.given, 2);
        end();
}

/* All of a slab: its list counts, and only some of its objects are named. */
static void leftover_slab(void)
{
        begin("left", 256, 0);
        check(cache->objects > 9);
        take(objects, 3 * cache->objects);
        printf("%u in 3 slabs\n", 3 * cache->objects);
        fflush(stdout);
        kmem_cache_destroy(cache);
}

static void leftovers_named(void **state)
{
        static struct child_result result;
        unsigned int named = 0;
        char expected[100];

        child_run("leftover_slab", "left.limit=4", &result);
        check(result.status == 0);
        snprintf(expected, sizeof(expected), "still has objects: %u in 3 slabs, leaked",
                 (unsigned int)strtoul(result.output, NULL, 10));
        check(strstr(result.output, expected) != NULL);
        for (const char *at = result.output; (at = strstr(at, "@offset=")) != NULL; at++)
                named++;
        check_equal(named, 3 * min_of(strtoul(result.output, NULL, 10) / 3, 8ul));
}

static void leftovers(void)
{
        begin("left", 100, 0);
        alloc_all(objects, 5);
        free_all(objects, 3);
        kmem_cache_destroy(cache);
}

static void wrong_frees(void **state)
{
        child_aborts("double_free", NULL, "is free already (double free)");
        child_aborts("interior_free", NULL, "inside an object");
        child_prints("ignored_free",
                     "engine=slab,bad_free=ignore,flush.limit=4,flush.batchcount=2,flush.shared=1",
                     "is free already (double free); ignored");
        child_passes("ignored_gift", "engine=slab,bad_free=ignore");
        child_prints("leftovers", NULL, "still has objects: 2 in 1 slabs, leaked");
}

static unsigned int locks;

static void count_lock(struct lock *lock)
{
        locks++;
}

/*
 * S6-44, S6-33: on node 0 objects of node 1 wait in an alien array. A full array is emptied into
 * its home's shared array, the newest objects, and into slabs.
 */
static void alien_arrays(void)
{
        size_t metadata = record_bytes();
        size_t pages = used_pages();
        struct object_array *alien;
        struct slab_node *home;
        void *object;

        begin("single", 1024, 0);
        check_equal(slab_data(cache)->node[0].alien[1]->limit, 1);
        end();
        begin("alien", 1024, 0);
        slab_engine.each_lock(cache, count_lock);
        check_equal(locks, 2);
        home = &slab_data(cache)->node[1];
        home->free_limit = 0;
        alien = slab_data(cache)->node[0].alien[1];
        this_node = 1;
        take(objects, 20);
        this_node = 0;
        flush(objects, 12);
        check_equal(alien->available, 12);
        check_equal(home->shared->available, 0);
        flush(objects + 12, 1);
        check_equal(alien->available, 1);
        check_equal(home->shared->available, 4);
        for (unsigned int i = 0; i < 4; i++)
                check(home->shared->object[i] == objects[8 + i]);
        check_equal(walk().active, 7 + 1 + 4);
        check_equal(slot.given, 13);
        /*
         * Taking a single object of the node does not use the node's shared array, and makes no
         * slab if a slab has a free object.
         */
        slot.taken = 0;
        home->free_limit = UINT64_MAX;
        give(objects + 13, 4);
        for (unsigned int i = 0; i < 2; i++) {
                uint64_t slabs = cache->node[1].slabs;

                object = slab_take_on_node(cache, &slot, 1);
                check(object && slab_of(cache, object)->node == 1);
                check_equal(cache->node[1].slabs, slabs);
                give(&object, 1);
        }
        check_equal(slot.taken, 2);
        check_equal(home->shared->available, 4);
        give(objects + 17, 3);
        end();
        check_equal(record_bytes(), metadata);
        check_equal(used_pages(), pages);
}

/* S6-60: a round empties the array of a single other node. */
static void reaped_aliens(void)
{
        begin("alien", 1024, 0);
        for (uint32_t home = 1; home < 3; home++) {
                this_node = home;
                take(objects, 2);
                this_node = 0;
                flush(objects, 2);
        }
        check_equal(walk().arrays, 4);
        slab_reap(cache, 0);
        slab_reap(cache, 0);
        check_equal(walk().arrays, 2);
        slab_reap(cache, 0);
        check_equal(walk().arrays, 0);
        end();
}

/*
 * The reaper works on the node it runs on, and a single node that has slabs is enough for shrink.
 */
static void reaped_node(void)
{
        begin("alien", 1024, 0);
        this_node = 1;
        take(objects, 2);
        this_node = 0;
        flush(objects, 2);
        slab_reap(cache, 0);
        slab_reap(cache, 0);
        check_equal(walk().arrays, 0);
        this_node = 1;
        check_equal(cache->node[1].slabs, 1);
        slab_reap(cache, 0); /* clears the mark of the request */
        slab_reap(cache, 4000);
        check_equal(cache->node[1].slabs, 0);
        this_node = 0;
        take(objects, 1);
        check(slab_shrink(cache));
        give(objects, 1);
        end();
}

/* Objects of node 1, the first of them twice, freed on node 0. */
static void free_alien_twice(unsigned int count)
{
        this_node = 1;
        take(objects, count);
        this_node = 0;
        objects[count] = objects[0];
        slab_flush(cache, &slot, objects, count + 1);
}

static void ignored_alien(void)
{
        begin("alien", 1024, 0);
        free_alien_twice(5);
        check_equal(slot.given, options.noaliencache ? 5 : 6);
        check_equal(kmem_cache_shrink(cache), 0);
        check_equal(slab_data(cache)->node[1].refused, options.noaliencache ? 0 : 1);
        kmem_cache_destroy(cache);
}

/* A pointer that is no object any more, or never was, has no home to be sent to; it is left out. */
static void ignored_strangers(void)
{
        static char outside[64];

        begin("alien", 1024, 0);
        slab_data(cache)->node[1].free_limit = 0;
        this_node = 1;
        take(objects, 2 * cache->objects);
        give(objects, cache->objects);
        check_equal(cache->node[1].slabs, 1); /* the pages of the first slab have no owner */
        this_node = 0;
        slot.given = 0;
        objects[1] = outside;
        slab_give(cache, &slot, objects, 2);
        check_equal(slot.given, 0);
        slab_flush(cache, &slot, objects, 2);
        check_equal(kmem_cache_shrink(cache), 1);
        check_equal(walk().active, cache->objects);
        give(objects + cache->objects, cache->objects);
        end();
}

/* A batch goes where the CPU's node has room, not another node. */
static void flush_by_node(void)
{
        begin("alien", 1024, 0);
        this_node = 1;
        take(objects, 20);
        check_equal(slab_flush_count(cache, 4, 1), 2);
        flush(objects, 3);
        check_equal(slab_data(cache)->node[1].shared->available, 3);
        check_equal(slab_flush_count(cache, 4, 1), 1);
        this_node = 0;
        check_equal(slab_flush_count(cache, 4, 1), 2);
        this_node = 1;
        give(objects + 3, 17);
        end();
}

static void use_aliens(int signal)
{
        static const char done[] = "handler done\n";
        void *more[40];

        this_node = 1;
        for (unsigned int taken = 0; taken < array_size(more);)
                taken += slab_take(cache, &slot, more + taken, array_size(more) - taken);
        this_node = 0;
        slab_flush(cache, &slot, more, array_size(more));
        check(write(STDERR_FILENO, done, sizeof(done) - 1) > 0);
}

/* A program's reaction to a report must not wait for the code that made the report. */
static void reported_alien(void)
{
        alarm(20);
        signal(SIGABRT, use_aliens);
        begin("alien", 1024, 0);
        free_alien_twice(5);
        kmem_cache_shrink(cache);
}

static void several_nodes(void **state)
{
        static const char settings[] = "engine=slab,numa_fake=2,single.limit=1,"
                                       "alien.limit=4,alien.batchcount=2,alien.shared=2";

        child_passes("alien_arrays", settings);
        child_passes("flush_by_node", settings);
        child_passes("reaped_node", "engine=slab,numa_fake=2,alien.shared=0");
        child_passes("ignored_strangers", "engine=slab,numa_fake=2,bad_free=ignore");
        child_passes("reaped_aliens", "engine=slab,numa_fake=3,alien.shared=0");
        child_passes("ignored_alien", "engine=slab,numa_fake=2,alien.shared=0,bad_free=ignore");
        child_passes("ignored_alien", "engine=slab,numa_fake=2,noaliencache=1,bad_free=ignore");
        child_aborts("reported_alien", "engine=slab,numa_fake=2,alien.shared=0", "handler done");
}

static unsigned int constructed;
static struct kmem_cache *inner;

/* S8-31: once an object, without locks: it may allocate. */
static void allocating_constructor(void *object)
{
        *(void **)object = kmem_cache_alloc(inner, GFP_KERNEL);
        constructed++;
}

static void constructors(void **state)
{
        unsigned int made;

        inner = kmem_cache_create("inner", 40, 0, 0, NULL);
        cache = kmem_cache_create("outer", 500, 0, 0, allocating_constructor);
        alloc_all(objects, 100);
        made = constructed;
        check_equal(made, totals().nodes.objects);
        free_all(objects, 100);
        alloc_all(objects, 100);
        check_equal(constructed, made);
        for (unsigned int i = 0; i < 100; i++)
                check(*(void **)objects[i] != NULL);
        free_all(objects, 100);
        end();
}

/* Every allocation of setup and of a slab's metadata fails in turn; nothing leaks. */
static void without_memory(void **state)
{
        size_t used = record_bytes();
        unsigned int failing = 0;

        do {
                metadata_calls = ++failing;
                cache = kmem_cache_create("poor", 48, 0, 0, NULL);
                check(cache || record_bytes() == used);
        } while (!cache);
        check(failing > 3);
        metadata_calls = 1;
        check_equal(slab_take(cache, &slot, objects, 1), 0);
        metadata_calls = 0;
        check_equal(walk().partial, 0);
        take(objects, 1);
        give(objects, 1);
        end();
        check_equal(record_bytes(), used);
}

static void leave_alone(void *object)
{
        (void)object;
}

/* As above, for a free list outside its slab (S6-12). */
static void without_memory_for_list(void **state)
{
        size_t used = record_bytes();
        size_t pages = used_pages();

        cache = kmem_cache_create("poor", 512, 0, 0, leave_alone);
        check_equal(slab_data(cache)->placement, PLACE_OFF_SLAB);
        memset(&slot, 0, sizeof(slot));
        metadata_calls = 1;
        check_equal(slab_take(cache, &slot, objects, 1), 0);
        metadata_calls = 0;
        check_equal(used_pages(), pages);
        take(objects, 30);
        give(objects, 30);
        end();
        check_equal(record_bytes(), used);
}

int main(int argc, char **argv)
{
        static const struct child_case children[] = {
                {"overwritten_list", overwritten_list},
                {"overwritten_end", overwritten_end},
                {"overwritten_with_one_index", overwritten_with_one_index},
                {"overwritten_with_own_index", overwritten_with_own_index},
                {"overwritten_between_calls", overwritten_between_calls},
                {"overwritten_with_limit", overwritten_with_limit},
                {"double_free", double_free},
                {"interior_free", interior_free},
                {"ignored_free", ignored_free},
                {"ignored_gift", ignored_gift},
                {"leftovers", leftovers},
                {"leftover_slab", leftover_slab},
                {"alien_arrays", alien_arrays},
                {"flush_by_node", flush_by_node},
                {"ignored_strangers", ignored_strangers},
                {"reaped_aliens", reaped_aliens},
                {"reaped_node", reaped_node},
                {"ignored_alien", ignored_alien},
                {"reported_alien", reported_alien},
        };
        static const struct CMUnitTest tests[] = {
                cmocka_unit_test(fresh_slab),
                cmocka_unit_test(colours_in_turn),
                cmocka_unit_test(partial_order),
                cmocka_unit_test(free_limit),
                cmocka_unit_test(refills),
                cmocka_unit_test(flushes),
                cmocka_unit_test(reaping),
                cmocka_unit_test(reaping_slabs),
                cmocka_unit_test(reaping_shared),
                cmocka_unit_test(arrays_emptied),
                cmocka_unit_test(flush_counts),
                cmocka_unit_test(flushed_slabs),
                cmocka_unit_test(figures_shown),
                cmocka_unit_test(mended),
                cmocka_unit_test(wrong_frees),
                cmocka_unit_test(leftovers_named),
                cmocka_unit_test(several_nodes),
                cmocka_unit_test(constructors),
                cmocka_unit_test(without_memory),
                cmocka_unit_test(without_memory_for_list),
                cmocka_unit_test(bulk_is_single_calls),
                cmocka_unit_test(bulk_without_array),
        };

        child_main(argc, argv, children, array_size(children));
        child_restart_with(argv, "engine=slab,flush.limit=4,flush.batchcount=2,flush.shared=1");
        return cmocka_run_group_tests(tests, NULL, NULL);
}
