/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * New tunables for caches of engine slab (S6-51): the form of a line, its effect, and that programs
 * may be at work meanwhile. Caches are of engine slab by their flag, so this runs under every
 * option.
 */
#define _GNU_SOURCE
#include "../exec.h"
#include "child.h"
#include "skip.h"
#include "walk_slab.h"

#include "heap/heap.h"
#include "base/options.h"
#include "introspect/totals.h"
#include "engines/slab/slab.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MANY = 6000, WORKERS = 3, KEPT = 500, BURSTS = 10000, BURSTS_SLOW = 300 };

static struct kmem_cache *cache;
static void *objects[MANY];

/* The next call of metadata_alloc for more than this fails, once; 0: none does. */
static size_t metadata_fails_above;
void *__real_metadata_alloc(size_t bytes);
void *__wrap_metadata_alloc(size_t bytes);

void *__wrap_metadata_alloc(size_t bytes)
{
        if (metadata_fails_above && bytes > metadata_fails_above) {
                metadata_fails_above = 0;
                return NULL;
        }
        return __real_metadata_alloc(bytes);
}

/* Whether each call of metadata_free is interrupted, before and behind, by a handler that forks. */
static bool frees_fork;
void __real_metadata_free(void *block, size_t bytes);
void __wrap_metadata_free(void *block, size_t bytes);

static void fork_in_handler(void)
{
        pid_t pid = fork();

        if (pid == 0)
                _exit(0);
        child_wait(pid);
}

void __wrap_metadata_free(void *block, size_t bytes)
{
        if (frees_fork)
                fork_in_handler();
        __real_metadata_free(block, bytes);
        if (frees_fork)
                fork_in_handler();
}

static struct cache_totals totals(void)
{
        struct cache_totals totals;

        cache_total(cache, &totals);
        return totals;
}

static void tunables_are(uint32_t limit, uint32_t batchcount, uint32_t shared)
{
        struct engine_report report = totals().report;

        check_equal(report.limit, limit);
        check_equal(report.batchcount, batchcount);
        check_equal(report.shared, shared);
        for (uint32_t node = 0; node < system_nodes(); node++) {
                const struct slab_node *data = &slab_data(cache)->node[node];

                check_equal(data->shared ? data->shared->limit : 0, shared * batchcount);
                check_equal(data->free_limit,
                            (1 + system_node_cpus(node)) * batchcount + cache->objects); /* S6-43 */
        }
}

static void begin(unsigned int size)
{
        cache = kmem_cache_create("tuned", size, 0, SLAB_ENGINE_SLAB | SLAB_NO_MERGE, NULL);
        check(cache != NULL);
        check_equal(kmem_slabinfo_write("tuned 120 60 8"), 0);
        tunables_are(120, 60, 8);
}

static void end(void)
{
        struct walk_slab_counts counts;

        check_equal(kmem_cache_shrink(cache), 0);
        walk_slab_cache(cache, &counts);
        check_equal(counts.active, 0);
        kmem_cache_destroy(cache);
}

static void alloc_all(unsigned int count)
{
        for (unsigned int i = 0; i < count; i++) {
                check((objects[i] = kmem_cache_alloc(cache, GFP_KERNEL)) != NULL);
                *(uint32_t *)objects[i] = i;
        }
}

static void free_all(unsigned int count)
{
        for (unsigned int i = 0; i < count; i++) {
                check_equal(*(uint32_t *)objects[i], i);
                kmem_cache_free(cache, objects[i]);
        }
}

static void refused(const char *line, int error)
{
        errno = 0;
        if (kmem_slabinfo_write(line) != -1 || errno != error) {
                fprintf(stderr, "line \"%s\": errno %d, expected %d\n", line, errno, error);
                check(errno == error);
        }
        tunables_are(120, 60, 8);
}

static void wrong_lines(void **state)
{
        static const char *const lines[] = {
                "",
                " ",
                "tuned",
                "tuned ",
                "tuned 10",
                "tuned 10 5",
                "tuned 10 5 ",
                "tuned 10 5 x",
                "tuned 10 5 2 1",
                "tuned 10 5 2x",
                "tuned x 5 2",
                " tuned 10 5 2",
                "tuned,10,5,2",
                "other 10 5 2",
                "tune 10 5 2",
        };
        char line[200];

        begin(64);
        for (size_t i = 0; i < array_size(lines); i++)
                refused(lines[i], EINVAL);
        refused(NULL, EINVAL);
        memset(line, 'n', sizeof(line));
        strcpy(line + CACHE_NAME_BYTES, " 10 5 2");
        refused(line, EINVAL);
        /* 129 characters, and then 128. */
        snprintf(line, sizeof(line), "tuned 120 60 %0116d", 8);
        refused(line, EINVAL);
        snprintf(line, sizeof(line), "tuned 120 60 %0115d", 8);
        check_equal(strlen(line), 128);
        check_equal(kmem_slabinfo_write(line), 0);
        refused("tuned 65536 60 8", ERANGE);
        refused("tuned 120 60 1025", ERANGE);
        refused("tuned 99999999999999999999999 60 8", ERANGE);
        refused("tuned 4294967297 60 8", ERANGE);
        end();
}

/* S6-51: success, and nothing happens. */
static void ignored_values(void **state)
{
        static const char *const lines[] = {
                "tuned 0 1 1",
                "tuned -1 1 1",
                "tuned 10 0 1",
                "tuned 10 -3 1",
                "tuned 10 11 1",
                "tuned 10 5 -1",
                "tuned -9999999999999999999999 5 1",
                "tuned 10 65537 1",
        };

        begin(64);
        for (size_t i = 0; i < array_size(lines); i++) {
                errno = 77;
                check_equal(kmem_slabinfo_write(lines[i]), 0);
                check_equal(errno, 77);
                tunables_are(120, 60, 8);
        }
        end();
}

static void other_engines(void **state)
{
        static const slab_flags_t flags[] = {SLAB_ENGINE_SLUB, SLAB_ENGINE_SLOB};

        for (size_t i = 0; i < array_size(flags); i++) {
                struct kmem_cache *other = kmem_cache_create("other", 64, 0, flags[i], NULL);

                errno = 0;
                check_equal(kmem_slabinfo_write("other 10 5 2"), -1);
                check_equal(errno, EIO);
                kmem_cache_destroy(other);
        }
}

static void stay_on_one_cpu(void)
{
        cpu_set_t one;

        CPU_ZERO(&one);
        CPU_SET((size_t)sched_getcpu(), &one);
        check(sched_setaffinity(0, sizeof(one), &one) == 0);
}

/* Refills bring batchcount, an array holds limit at most, the shared array shared * batchcount. */
static void child_new_values(void)
{
        uint64_t taken;

        stay_on_one_cpu();
        begin(64);
        alloc_all(MANY);
        free_all(MANY);
        check(totals().resting > 10);
        check_equal(kmem_slabinfo_write("tuned 10 4 2\n"), 0);
        tunables_are(10, 4, 2);
        /* The objects of the arrays have gone to the slabs. */
        check_equal(totals().resting, 0);
        check_equal(totals().report.shared_objects, 0);
        check_equal(totals().inuse, 0);

        taken = totals().report.taken;
        alloc_all(1);
        check_equal(totals().report.taken - taken, 4);
        check_equal(totals().resting, 3);
        free_all(1);
        alloc_all(MANY);
        check_equal(totals().inuse, MANY);
        free_all(MANY);
        check_equal(totals().inuse, 0);
        check_equal(totals().report.shared_objects, 8);
        check(totals().resting >= 6 && totals().resting <= 10);

        /* Larger than anything before, and without shared arrays. */
        check_equal(kmem_slabinfo_write("tuned 3000 1500 0"), 0);
        tunables_are(3000, 1500, 0);
        taken = totals().report.taken;
        alloc_all(1);
        free_all(1);
        alloc_all(MANY);
        free_all(MANY);
        check(totals().resting >= 1500 && totals().resting <= 3000);
        check_equal(totals().report.shared_objects, 0);
        check_equal(totals().inuse, 0);

        check_equal(kmem_slabinfo_write("tuned 1 1 1"), 0);
        tunables_are(1, 1, 1);
        alloc_all(MANY);
        free_all(MANY);
        check(totals().resting <= 1);
        end();
}

static void new_values(void **state)
{
        child_passes("new_values", "");
        child_passes("new_values", "check=sheaf");
        child_passes("new_values", "sheaf_capacity=0");
}

/* The table shows them, and a cache that has none gets arrays. */
static void child_table(void)
{
        cache = kmem_cache_create("tuned", 64, 0, SLAB_ENGINE_SLAB, NULL);
        check_equal(totals().report.limit, 0);
        check_equal(kmem_slabinfo_write("tuned 10 4 2"), 0);
        alloc_all(100);
        free_all(100);
        check(totals().resting > 0);
}

static void table(void **state)
{
        child_prints("table", "sheaf_capacity=0,slabinfo=-", ": tunables   10    4    2 :");
}

/* An alias is a name of the cache; of several caches with a name the newest is meant. */
static void child_names(void)
{
        struct kmem_cache *old =
                kmem_cache_create("twice", 64, 0, SLAB_ENGINE_SLAB | SLAB_NO_MERGE, NULL);

        cache = kmem_cache_create("twice", 80, 0, SLAB_ENGINE_SLAB, NULL);
        check(kmem_cache_create("alias", 80, 0, SLAB_ENGINE_SLAB, NULL) == cache);
        check_equal(kmem_slabinfo_write("twice 10 4 2"), 0);
        tunables_are(10, 4, 2);
        check_equal(kmem_slabinfo_write("alias 11 5 3"), 0);
        tunables_are(11, 5, 3);
        check_equal(kmem_slabinfo_write(":0000080 12 6 4"), 0);
        tunables_are(12, 6, 4);
        kmem_cache_destroy(cache);
        kmem_cache_destroy(cache);
        cache = old;
        check(totals().report.limit != 12);
        check_equal(kmem_slabinfo_write("twice 9 9 0"), 0);
        tunables_are(9, 9, 0);
}

static void names(void **state)
{
        child_passes("names", "slab_merge=1");
}

/* Without memory for the shared arrays of each node nothing changes. */
static void no_memory(void **state)
{
        begin(64);
        metadata_fails_above = 3000 * sizeof(void *);
        refused("tuned 400 400 10", ENOMEM);
        check_equal(metadata_fails_above, 0);
        check_equal(kmem_slabinfo_write("tuned 400 400 10"), 0);
        tunables_are(400, 400, 10);
        end();
}

/* Objects of an accounted cache are charged all the while. */
static void accounted(void **state)
{
        struct kmem_group *group = kmem_group_create("tuned", NULL, 0);
        struct kmem_group_stats stats;

        cache = kmem_cache_create("tuned", 64, 0, SLAB_ENGINE_SLAB | SLAB_ACCOUNT, NULL);
        kmem_group_set(group);
        alloc_all(500);
        check_equal(kmem_slabinfo_write("tuned 7 7 7"), 0);
        check_equal(kmem_group_stats(group, &stats), 0);
        check_equal(stats.objects, 500);
        free_all(500);
        check_equal(kmem_group_stats(group, &stats), 0);
        check_equal(stats.objects, 0);
        kmem_group_set(NULL);
        check_equal(kmem_group_destroy(group), 0);
        end();
}

static unsigned int working; /* workers that have bursts to do */

static void drop_to(uint64_t **kept, unsigned int *count, unsigned int wanted, uint64_t worker)
{
        while (*count > wanted) {
                --*count;
                check_equal(*kept[*count], worker << 32 | *count);
                kmem_cache_free(cache, kept[*count]);
        }
}

/* Takes and gives in random bursts; each object holds the number of its owner. */
static void *work(void *argument)
{
        uint64_t random = 0x9e3779b97f4a7c15ull * ((uintptr_t)argument + 1);
        static _Thread_local uint64_t *kept[KEPT];
        unsigned int bursts = emulated() || THREAD_SANITIZER ? BURSTS_SLOW : BURSTS;
        unsigned int count = 0;

        while (bursts--) {
                unsigned int wanted = (unsigned int)(random_step(&random) % KEPT);

                for (; count < wanted; count++) {
                        check((kept[count] = kmem_cache_alloc(cache, GFP_KERNEL)) != NULL);
                        *kept[count] = (uintptr_t)argument << 32 | count;
                }
                drop_to(kept, &count, wanted, (uintptr_t)argument);
        }
        drop_to(kept, &count, 0, (uintptr_t)argument);
        __atomic_fetch_sub(&working, 1, __ATOMIC_RELEASE);
        return NULL;
}

/* Shrinks drain the shared arrays that are being replaced. */
static void *shrink(void *argument)
{
        while (__atomic_load_n(&working, __ATOMIC_ACQUIRE))
                kmem_cache_shrink(cache);
        return argument;
}

static void child_at_work(void)
{
        pthread_t threads[WORKERS + 1];
        uint64_t random = 42;

        begin(72);
        working = WORKERS;
        for (uintptr_t i = 0; i <= WORKERS; i++)
                check(pthread_create(&threads[i], NULL, i < WORKERS ? work : shrink, (void *)i) ==
                      0);
        while (__atomic_load_n(&working, __ATOMIC_ACQUIRE)) {
                unsigned int limit = 1 + (unsigned int)(random_step(&random) % 400);
                unsigned int batchcount = 1 + (unsigned int)(random_step(&random) % limit);
                unsigned int shared = (unsigned int)(random_step(&random) % 5);
                char line[64];

                snprintf(line, sizeof(line), "tuned %u %u %u", limit, batchcount, shared);
                check_equal(kmem_slabinfo_write(line), 0);
                tunables_are(limit, batchcount, shared);
        }
        for (unsigned int i = 0; i <= WORKERS; i++)
                pthread_join(threads[i], NULL);
        check_equal(totals().inuse, 0);
        end();
}

static void at_work(void **state)
{
        child_passes("at_work", "");
        child_passes("at_work", "check=sheaf");
        child_passes("at_work", "slots=locked");
        child_passes("at_work", "numa_fake=2");
}

/* Fork takes all locks of all caches, also while a cache goes. */
static void child_forks_at_end(void)
{
        begin(72);
        objects[0] = kmem_cache_alloc(cache, GFP_KERNEL);
        kmem_cache_free(cache, objects[0]);
        alarm(60);
        frees_fork = true;
        kmem_cache_destroy(cache);
        frees_fork = false;
        fork_in_handler();
}

static void forks_at_end(void **state)
{
        child_passes("forks_at_end", "reclaim_thread=off");
        child_passes("forks_at_end", "reclaim_thread=off,numa_fake=8");
}

int main(int argc, char **argv)
{
        static const struct child_case children[] = {
                {"new_values", child_new_values},
                {"table", child_table},
                {"names", child_names},
                {"at_work", child_at_work},
                {"forks_at_end", child_forks_at_end},
        };
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(wrong_lines),   cmocka_unit_test(ignored_values),
                cmocka_unit_test(other_engines), cmocka_unit_test(new_values),
                cmocka_unit_test(table),         cmocka_unit_test(names),
                cmocka_unit_test(no_memory),     cmocka_unit_test(accounted),
                cmocka_unit_test(at_work),       cmocka_unit_test(forks_at_end),
        };

        child_main(argc, argv, children, array_size(children));
        return cmocka_run_group_tests_name("slab_tune", tests, NULL, NULL);
}
