/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Samples are objects like any other: every way of freeing and resizing takes them, they are aligned,
 * constructed and as large as promised, and misuse is reported. In children with a fine interval, so that
 * of a few hundred objects some are samples.
 */
#define _GNU_SOURCE
#include "child.h"
#include "records.h"

#include "heap/heap.h"
#include "base/options.h"
#include "introspect/profile.h"
#include "kmem.h"
#include "percpu/percpu.h"
#include "profile/draw.h"
#include "profile/sample.h"
#include "unit.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/personality.h>

#define FINE "profile_interval=2048,engine=slub"
enum { OBJECTS = 4000 };

static void *objects[OBJECTS];

static void free_objects(void)
{
        for (unsigned int i = 0; i < OBJECTS; i++)
                kfree(objects[i]);
}

static unsigned int count_samples(void)
{
        unsigned int samples = 0;

        for (unsigned int i = 0; i < OBJECTS; i++)
                samples += in_sample_region(objects[i]);
        return samples;
}

/* With p = 1 - exp(-size / 2048); six standard deviations. */
static void check_share(unsigned int samples, double p)
{
        double expected = (double)OBJECTS * p;
        double off = (double)samples - expected;

        check(off * off < 36 * expected);
}

static void take_sizes_child(void)
{
        for (unsigned int i = 0; i < OBJECTS; i++) {
                check(objects[i] = kmalloc(256, GFP_KERNEL));
                check_equal(ksize(objects[i]), 256);
                check_equal((uintptr_t)objects[i] % 256, 0);
                memset(objects[i], 0x5a, 256);
        }
        check_share(count_samples(), sample_probability(256, 2048));
        free_objects();
}

static void construct(void *object)
{
        memset(object, 7, 100);
}

static void caches_child(void)
{
        struct kmem_cache_args args = {.align = 64, .ctor = construct};
        struct kmem_cache *cache = kmem_cache_create_args("sampled", 100, &args, 0);

        for (unsigned int round = 0; round < 3; round++) {
                for (unsigned int i = 0; i < OBJECTS; i++) {
                        check(objects[i] = kmem_cache_alloc(cache, GFP_KERNEL));
                        check_equal((uintptr_t)objects[i] % 64, 0);
                        check_equal(*((char *)objects[i] + 99), 7);
                }
                check_share(count_samples(), sample_probability(100, 2048));
                if (round == 0)
                        kmem_cache_free_bulk(cache, OBJECTS, objects);
                else if (round == 1)
                        kfree_bulk(OBJECTS, objects);
                else
                        for (unsigned int i = 0; i < OBJECTS; i++)
                                kmem_cache_free(cache, objects[i]);
        }
        check_equal(kmem_cache_alloc_bulk(cache, GFP_KERNEL, OBJECTS, objects), OBJECTS);
        check_share(count_samples(), sample_probability(100, 2048));
        for (unsigned int i = 0; i < OBJECTS; i++)
                check_equal(*((char *)objects[i] + 99), 7);
        kmem_cache_free_bulk(cache, OBJECTS, objects);
        kmem_cache_destroy(cache);
}

static bool marks_refused;

bool __real_handed_mark(const void *object);
bool __wrap_handed_mark(const void *object);

bool __wrap_handed_mark(const void *object)
{
        return !marks_refused && __real_handed_mark(object);
}

/* A checked cache that has no memory for marks gives samples back as samples: no sheaf, and later no slab, gets them. */
static void without_marks_child(void)
{
        struct kmem_cache *cache = kmem_cache_create("checked", 256, 0, 0, NULL);

        marks_refused = true;
        check_equal(kmem_cache_alloc_bulk(cache, GFP_KERNEL, OBJECTS, objects), 0);
        marks_refused = false;
        kmem_cache_shrink(cache);
        for (unsigned int i = 0; i < OBJECTS; i++)
                check(objects[i] = kmem_cache_alloc(cache, GFP_KERNEL));
        check_share(count_samples(), sample_probability(256, 2048));
        kmem_cache_free_bulk(cache, OBJECTS, objects);
        kmem_cache_destroy(cache);
}

static unsigned int samples_taken(struct kmem_cache *cache)
{
        unsigned int samples;

        for (unsigned int i = 0; i < OBJECTS; i++)
                check(objects[i] = kmem_cache_alloc(cache, GFP_KERNEL));
        samples = count_samples();
        kmem_cache_free_bulk(cache, OBJECTS, objects);
        return samples;
}

/* Attribute skip_kfence, set and taken back; samples that are in use go as they came. */
static void left_out_child(void)
{
        struct kmem_cache *cache = kmem_cache_create("left out", 256, 0, 0, NULL);

        check_equal(kmem_attr_write("left out", "skip_kfence", "1"), 0);
        check_equal(samples_taken(cache), 0);
        check_equal(kmem_attr_write("left out", "skip_kfence", "0"), 0);
        check_share(samples_taken(cache), sample_probability(256, 2048));
        for (unsigned int i = 0; i < OBJECTS; i++)
                check(objects[i] = kmem_cache_alloc(cache, GFP_KERNEL));
        check_equal(kmem_attr_write("left out", "skip_kfence", "1"), 0);
        kmem_cache_free_bulk(cache, OBJECTS, objects);
        check_equal(samples_taken(cache), 0);
        kmem_cache_destroy(cache);
}

/* Without sheaves each call is decided. */
static void no_sheaves_child(void)
{
        take_sizes_child();
}

static void *sample_of(size_t size)
{
        for (;;) {
                void *block = kmalloc(size, GFP_KERNEL);

                if (in_sample_region(block))
                        return block;
        }
}

static void resize_child(void)
{
        unsigned char *block = sample_of(512);

        memset(block, 0x33, 512);
        check(krealloc(block, 400, GFP_KERNEL) == block);
        block = krealloc(block, 5000, GFP_KERNEL);
        check(block && ksize(block) >= 5000);
        for (unsigned int i = 0; i < 400; i++)
                check_equal(block[i], 0x33);
        block = krealloc(block, 200000, GFP_KERNEL);
        check(block && block[399] == 0x33);
        block = krealloc(block, 40000000, GFP_KERNEL);
        check(block && block[399] == 0x33);
        kfree(block);
        check(sample_of(8000));
        block = kzalloc(16, GFP_KERNEL | __GFP_ZERO);
        kfree(block);
        for (unsigned int i = 0; i < OBJECTS; i++) {
                unsigned char *zero = kzalloc(300, GFP_KERNEL);

                for (unsigned int at = 0; at < 300; at++)
                        check_equal(zero[at], 0);
                memset(zero, 0xff, 300);
                kfree(zero);
        }
}

static void double_free_child(void)
{
        void *block = sample_of(512);

        kfree(block);
        kfree(block);
}

static void inner_free_child(void)
{
        kfree((char *)sample_of(512) + 16);
}

static void gone_cache_child(void)
{
        struct kmem_cache *cache = kmem_cache_create("gone", 512, 0, 0, NULL);
        void *sample;

        do
                sample = kmem_cache_alloc(cache, GFP_KERNEL);
        while (!in_sample_region(sample));
        kmem_cache_shrink(cache);
        kmem_cache_destroy(cache);
        /* Its own cache is not there any more, and nothing is touched of it. */
        kfree(sample);
}

/* kmem_cache_free of another cache's sample says so, and that of the cache's own does not. */
static void stranger_child(void)
{
        struct kmem_cache *cache = kmem_cache_create("stranger", 512, 0, SLAB_NO_MERGE, NULL);
        void *own;

        do
                own = kmem_cache_alloc(cache, GFP_KERNEL);
        while (!in_sample_region(own));
        kmem_cache_free(cache, own);
        kmem_cache_free(cache, sample_of(512));
}

/* An owner is noted by the page of the heap, of which a sample has none. */
static void closed_child(void)
{
        struct kmem_cache *cache = kmem_cache_create("closed", 256, 0, SLAB_ACCOUNT, NULL);
        struct kmem_group_stats stats;
        struct kmem_group *group;
        void *sample;

        do
                sample = kmem_cache_alloc(cache, GFP_KERNEL);
        while (!in_sample_region(sample));
        for (unsigned int i = 0; i < OBJECTS; i++)
                check(objects[i] = kmem_cache_alloc(cache, GFP_KERNEL));
        check(count_samples());
        /* Their marks rest in sheaves that the barn keeps. */
        kmem_cache_free_bulk(cache, OBJECTS, objects);
        check(group = kmem_group_create("group", NULL, 0));
        kmem_group_set(group);
        for (unsigned int i = 0; i < OBJECTS / 2; i++)
                check(objects[i] = kmem_cache_alloc(cache, GFP_KERNEL));
        check_equal(kmem_cache_alloc_bulk(cache, GFP_KERNEL, OBJECTS / 2, objects + OBJECTS / 2),
                    OBJECTS / 2);
        check_equal(count_samples(), 0);
        check_equal(kmem_group_stats(group, &stats), 0);
        check_equal(stats.objects, OBJECTS);
        kmem_cache_free(cache, sample);
        kmem_cache_free_bulk(cache, OBJECTS, objects);
        check_equal(kmem_group_stats(group, &stats), 0);
        check_equal(stats.objects, 0);
}

/* An emulator's mincore refuses places that are not accessible yet, which hold nothing. */
static size_t resident_pages(void)
{
        enum { PLACES = 1000 }; /* more than these tests get to */
        unsigned char in_memory[SAMPLE_BYTES_MAX / PAGE_SIZE];
        size_t resident = 0;

        for (uintptr_t i = 0; i < PLACES; i++) {
                if (mincore((void *)(sample_base + i * SAMPLE_BYTES_MAX), SAMPLE_BYTES_MAX,
                            in_memory)) {
                        check_equal(errno, ENOMEM);
                        continue;
                }
                for (size_t page = 0; page < sizeof(in_memory); page++)
                        resident += in_memory[page] & 1;
        }
        return resident;
}

static void large_objects_child(void)
{
        enum { PAGES = SAMPLE_BYTES_MAX / PAGE_SIZE };
        struct kmem_cache *cache = kmem_cache_create("large", SAMPLE_BYTES_MAX, 0, 0, NULL);
        struct kmem_cache *larger = kmem_cache_create("larger", SAMPLE_BYTES_MAX + 1, 0, 0, NULL);

        for (unsigned int i = 0; i < 100; i++) {
                check(objects[i] = kmem_cache_alloc(cache, GFP_KERNEL));
                memset(objects[i], 0x5a, SAMPLE_BYTES_MAX);
        }
        check(count_samples() > 90);
        check(resident_pages() > 90 * PAGES);
        kmem_cache_free_bulk(cache, 100, objects);
        /*
         * A few places keep their pages for the next samples, also small pages; all others do not.
         */
        check(resident_pages() > 0 && resident_pages() < 20 * PAGES);
        for (unsigned int i = 0; i < 100; i++)
                check(objects[i] = kmem_cache_alloc(cache, GFP_KERNEL));
        for (unsigned int i = 0; i < 100; i++)
                memset(objects[i], 0x5a, SAMPLE_BYTES_MAX);
        kmem_cache_free_bulk(cache, 100, objects);
        for (unsigned int round = 0; round < 20; round++)
                kfree(sample_of(64));
        check(resident_pages() < 20 * PAGES);
        for (unsigned int i = 0; i < 100; i++)
                check(objects[i] = kmem_cache_alloc(larger, GFP_KERNEL));
        check_equal(count_samples(), 0);
        kmem_cache_free_bulk(larger, 100, objects);
}

/* Large blocks that are samples lie elsewhere: their places do not keep pages of objects that were here. */
static void large_blocks_child(void)
{
        struct kmem_cache *cache = kmem_cache_create("large", SAMPLE_BYTES_MAX, 0, 0, NULL);

        for (unsigned int i = 0; i < 200; i++) {
                void *object = kmem_cache_alloc(cache, GFP_KERNEL);

                check(object);
                memset(object, 0x5a, SAMPLE_BYTES_MAX);
                kmem_cache_free(cache, object);
                check(objects[i] = kmalloc(100000, GFP_KERNEL));
        }
        check(load_relaxed(&sample_large_blocks) > 190);
        check(resident_pages() < 20 * SAMPLE_BYTES_MAX / PAGE_SIZE);
        for (unsigned int i = 0; i < 200; i++)
                kfree(objects[i]);
        check_equal(load_relaxed(&sample_large_blocks), 0);
}

/* Objects of classes of pages are samples where they lie, however they are freed. */
static void paged_classes_child(void)
{
        for (unsigned int i = 0; i < 200; i++) {
                check(objects[i] = block_alloc(CLASS_MALLOC, 40000 + 1000 * i, i % 2, NULL));
                check(cache_of(objects[i]));
        }
        check(load_relaxed(&sample_large_blocks) > 190);
        check_equal(count_samples(), 0);
        for (unsigned int i = 0; i < 10; i++)
                check(objects[i] = block_resize(CLASS_MALLOC, objects[i], block_bytes(objects[i]),
                                                500000, NULL));
        check(load_relaxed(&sample_large_blocks) > 190);
        kfree_bulk(100, objects);
        check(load_relaxed(&sample_large_blocks) > 90 && load_relaxed(&sample_large_blocks) <= 100);
        for (unsigned int i = 0; i < 100; i++)
                objects[i] = objects[100 + i];
        for (unsigned int i = 0; i < 50; i++)
                kfree_rcu(objects[i]);
        kfree_rcu_barrier();
        check(load_relaxed(&sample_large_blocks) > 40 && load_relaxed(&sample_large_blocks) <= 50);
        for (unsigned int i = 50; i < 100; i++)
                kfree(objects[i]);
        check_equal(load_relaxed(&sample_large_blocks), 0);
}

/* Whether the kernel keeps the mapping of an address free of huge pages; smaps(5), flag "nh". */
static bool has_small_pages(uintptr_t address)
{
        FILE *maps = fopen("/proc/self/smaps", "r");
        unsigned long start;
        unsigned long end;
        bool inside = false;
        bool small = false;
        char line[512];

        check(maps);
        while (fgets(line, sizeof(line), maps)) {
                if (sscanf(line, "%lx-%lx ", &start, &end) == 2)
                        inside = start <= address && address < end;
                else if (inside && strncmp(line, "VmFlags:", 8) == 0)
                        small = strstr(line, " nh") != NULL;
        }
        fclose(maps);
        return small;
}

/* Where the system makes huge pages of all it can, each sample would take a huge page. */
static void small_pages_child(void)
{
        bool huge = access("/sys/kernel/mm/transparent_hugepage/enabled", F_OK) == 0;

        sample_of(64);
        if (!huge)
                fputs("# not checked: the kernel has no transparent huge pages\n", stderr);
        else if (checks_natively("flags of mappings"))
                check(has_small_pages(sample_base) &&
                      has_small_pages(sample_base + sample_region_bytes - 1));
}

static void *other_thread(void *unused)
{
        free_objects();
        return unused;
}

static void threads_child(void)
{
        for (unsigned int round = 0; round < 20; round++) {
                pthread_t thread;

                for (unsigned int i = 0; i < OBJECTS; i++)
                        check(objects[i] = kmalloc(128, GFP_KERNEL));
                check_share(count_samples(), sample_probability(128, 2048));
                check_equal(pthread_create(&thread, NULL, other_thread, NULL), 0);
                pthread_join(thread, NULL);
        }
}

static void fork_child(void)
{
        pid_t child;

        take_sizes_child();
        for (unsigned int i = 0; i < OBJECTS; i++)
                check(objects[i] = kmalloc(128, GFP_KERNEL));
        child = fork();
        check(child >= 0);
        if (child == 0) {
                free_objects();
                take_sizes_child();
                _exit(0);
        }
        child_wait(child);
        free_objects();
}

static void take_objects(void)
{
        for (unsigned int i = 0; i < OBJECTS; i++)
                check(objects[i] = kmalloc(256, GFP_KERNEL));
        check(count_samples());
}

/* Of all stacks together; of none of them more samples were freed than there have been. */
static uint64_t count_shown_samples(void)
{
        const struct registry_record_head *record = NULL;
        uint64_t samples = 0;

        check(registry_is_made());
        while ((record = record_behind(record))) {
                const struct registry_stack *stack = (const void *)record;

                if (record->kind != RECORD_STACK)
                        continue;
                check(stack->freed_samples <= stack->samples);
                samples += stack->samples;
        }
        return samples;
}

/*
 * Sampling was asked for, so the child makes its registry only after some slow paths. Its samples until
 * then come from a stack that has a place there already, its parent's.
 */
static void fork_before_registry_child(void)
{

        lock_take(&cache_mutex);
        check_equal(profile_set_locked(1024), 0);
        lock_drop(&cache_mutex);
        for (unsigned int round = 0; round < 2; round++) {
                pid_t child = 0;

                take_objects();
                free_objects();
                check(count_shown_samples());
                if (round == 0 && (child = fork())) {
                        child_wait(child);
                        return;
                }
        }
        _exit(0);
}

/* Without sheaves each allocation is decided, also if it always gets the last object again. */
static void stopped_child(void)
{
        double p = sample_probability(256, 2048);
        unsigned int samples = 0;
        unsigned int slots;

        kfree(kmalloc(256, GFP_KERNEL));
        lock_take(&cache_mutex);
        check(percpu_stop(&slots));
        lock_drop(&cache_mutex);
        for (unsigned int i = 0; i < OBJECTS; i++) {
                void *object = kmalloc(256, GFP_KERNEL);

                check(object);
                samples += in_sample_region(object);
                kfree(object);
        }
        percpu_go_on(slots);
        check_share(samples, p);
        kfree(kmalloc(256, GFP_KERNEL));
}

static void set_interval(uint64_t interval)
{
        lock_take(&cache_mutex);
        check_equal(profile_set_locked(interval), 0);
        lock_drop(&cache_mutex);
}

/* The effect of a request from outside. */
static void lease_interval(uint64_t interval)
{
        lock_take(&cache_mutex);
        check_equal(profile_set_locked(interval), 0);
        profile_renew_locked();
        lock_drop(&cache_mutex);
}

static void take_and_free(void)
{
        for (unsigned int i = 0; i < OBJECTS; i++)
                check(objects[i] = kmalloc(256, GFP_KERNEL));
        free_objects();
}

/* LEASE-1, in this process and in a child that was forked while it lasted. */
static void lease_child(void)
{
        pid_t child;

        lease_interval(4096);
        take_and_free();
        check_equal(profile_interval, 4096);
        check(profile_lease_ends_ms > system_time_ms());
        child = fork();
        store_relaxed(&profile_lease_ends_ms, (uint64_t)1);
        take_and_free();
        check_equal(profile_interval, options.profile_interval);
        check_equal(profile_lease_ends_ms, 0);
        if (!child)
                _exit(0);
        child_wait(child);
        /* The program's own value is no lease. */
        lease_interval(options.profile_interval);
        check_equal(profile_lease_ends_ms, 0);
}

static unsigned int samples_of_64(void)
{
        for (unsigned int i = 0; i < OBJECTS; i++)
                check(objects[i] = kmalloc(64, GFP_KERNEL));
        return count_samples();
}

/*
 * A finer interval took samples that would each stand for hundreds of objects now. With a coarser
 * interval they do not count: neither marks that rest in sheaves, nor marks of samples that are
 * freed later.
 */
static void intervals_child(void)
{
        const uint64_t coarse = 1 << 20;

        check(samples_of_64() > 100);
        free_objects();
        set_interval(coarse);
        check(samples_of_64() < 10);
        free_objects();

        set_interval(1024);
        check(samples_of_64() > 100);
        set_interval(coarse);
        free_objects();
        check(samples_of_64() < 10);
        free_objects();

        set_interval(1024);
        check(samples_of_64() > 100);
        set_interval(0);
        set_interval(coarse);
        free_objects();
        check(samples_of_64() < 10);
        free_objects();
}

static const struct child_case children[] = {
        {"left out", left_out_child},
        {"intervals", intervals_child},
        {"lease", lease_child},
        {"sizes", take_sizes_child},
        {"caches", caches_child},
        {"without marks", without_marks_child},
        {"no sheaves", no_sheaves_child},
        {"resize", resize_child},
        {"double free", double_free_child},
        {"inner free", inner_free_child},
        {"gone cache", gone_cache_child},
        {"stranger", stranger_child},
        {"closed", closed_child},
        {"large objects", large_objects_child},
        {"large blocks", large_blocks_child},
        {"paged classes", paged_classes_child},
        {"small pages", small_pages_child},
        {"threads", threads_child},
        {"fork", fork_child},
        {"fork before registry", fork_before_registry_child},
        {"stopped", stopped_child},
};

static void test_sizes(void **state)
{
        child_passes("sizes", FINE);
        child_passes("sizes", FINE ",slots=locked");
        child_passes("sizes", FINE ",check=sheaf");
        child_passes("sizes", FINE ",sheaf_capacity=3");
}

static void test_caches(void **state)
{
        const unsigned long ask = 0xffffffff;
        unsigned long before = (unsigned long)personality(ask);

        child_passes("caches", FINE);
        child_passes("caches", FINE ",slots=locked");
        child_passes("without marks", FINE ",check=sheaf");
        child_passes("no sheaves", FINE ",sheaf_capacity=0");
        child_passes("left out", FINE);
        child_passes("left out", FINE ",slots=locked");
        /* Mappings from the bottom up: a mapping made after the heap lies above it. */
        check(personality(before | ADDR_COMPAT_LAYOUT) >= 0);
        child_passes("caches", FINE ",reserve=768M");
        child_passes("caches", FINE ",reserve=768M,slots=locked");
        check(personality(before) >= 0);
}

static void test_resize(void **state)
{
        child_passes("resize", FINE);
}

/* Of the two frees one is wrong. */
static void assert_reports_stranger_once(const char *own)
{
        static struct child_result result;
        char line[100];
        const char *first;

        snprintf(line, sizeof(line), "wrong slab cache: the object is from %s\n", own);
        child_run("stranger", FINE, &result);
        assert_int_equal(result.status, 0);
        first = strstr(result.output, line);
        assert_non_null(first);
        assert_null(strstr(first + 1, "wrong slab cache"));
        assert_null(strstr(result.output, "object is from stranger"));
}

static void test_misuse(void **state)
{
        child_aborts("double free", FINE, "not the start of an object that is in use");
        child_aborts("inner free", FINE, "not the start of an object that is in use");
        child_aborts("inner free", FINE, "samples of the heap profile");
        assert_reports_stranger_once("kmalloc-512");
}

static void test_gone_cache(void **state)
{
        child_passes("gone cache", FINE);
}

static void test_closed(void **state)
{
        child_passes("closed", FINE);
        child_passes("closed", FINE ",slots=locked");
}

static void test_large_objects(void **state)
{
        child_passes("large objects", FINE);
        child_passes("large blocks", FINE);
        child_passes("paged classes", FINE);
        child_passes("paged classes", FINE ",slots=locked");
        child_passes("paged classes", FINE ",check=sheaf");
        child_passes("paged classes", FINE ",sheaf_capacity=0");
        child_passes("paged classes", FINE ",sheaf_rule=7.0");
        child_passes("small pages", FINE);
}

static void test_threads(void **state)
{
        child_passes("threads", FINE);
        child_passes("threads", FINE ",slots=locked");
        child_passes("threads", FINE ",numa_fake=2");
}

static void test_fork(void **state)
{
        child_passes("fork", FINE);
        child_passes("fork before registry", "engine=slub");
}

/* Off by default, and then nothing is a sample. */
static void test_off(void **state)
{
        if (is_profiling())
                skip_because("KMEM_OPTIONS switches it on");
        for (unsigned int i = 0; i < OBJECTS; i++)
                check(objects[i] = kmalloc(256, GFP_KERNEL));
        check_equal(count_samples(), 0);
        free_objects();
}

static void test_intervals(void **state)
{
        child_passes("intervals", FINE ",profile_interval=1024");
        child_passes("intervals", FINE ",profile_interval=1024,slots=locked");
}

static void test_lease(void **state)
{
        child_passes("lease", "engine=slub");
        child_passes("lease", FINE);
        child_passes("lease", FINE ",slots=locked");
}

static void test_stopped(void **state)
{
        child_passes("stopped", FINE);
        child_passes("stopped", FINE ",slots=locked");
}

/* p against values from tables, and gaps against their mean and their share of zeros. */
static void test_draws(void **state)
{
        enum { DRAWS = 200000 };
        double p = sample_probability(256, 8192);
        uint64_t sum = 0;
        uint64_t zeros = 0;
        double mean;

        check(p > 0.030766 && p < 0.030767);
        check(sample_probability(8192, 8192) > 0.6321205 &&
              sample_probability(8192, 8192) < 0.6321206);
        check(sample_probability(1, 1 << 30) > 0.99e-9 / 1.07374 &&
              sample_probability(1, 1 << 30) < 1.01e-9 / 1.07374);
        check(sample_probability(1 << 20, 1024) == 1);
        for (unsigned int i = 0; i < DRAWS; i++) {
                uint32_t gap = draw_gap(256, 8192);

                sum += gap;
                zeros += gap == 0;
        }
        mean = (double)sum / (double)DRAWS;
        check(mean > 0.985 * (1 - p) / p && mean < 1.015 * (1 - p) / p);
        check((double)zeros > 0.93 * p * (double)DRAWS && (double)zeros < 1.07 * p * (double)DRAWS);
        for (unsigned int share = 1; share <= 64; share *= 4) {
                uint64_t falls = 0;

                p = sample_probability(share * 1024, 8192);
                for (unsigned int i = 0; i < DRAWS; i++)
                        falls += draw_falls(share * 1024, 8192);
                check((double)falls > 0.98 * p * (double)DRAWS &&
                      (double)falls < 1.02 * p * (double)DRAWS);
        }
}

int main(int argc, char **argv)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_sizes),         cmocka_unit_test(test_caches),
                cmocka_unit_test(test_resize),        cmocka_unit_test(test_misuse),
                cmocka_unit_test(test_gone_cache),    cmocka_unit_test(test_threads),
                cmocka_unit_test(test_fork),          cmocka_unit_test(test_off),
                cmocka_unit_test(test_draws),         cmocka_unit_test(test_closed),
                cmocka_unit_test(test_large_objects), cmocka_unit_test(test_stopped),
                cmocka_unit_test(test_intervals),     cmocka_unit_test(test_lease),
        };

        child_main(argc, argv, children, sizeof(children) / sizeof(*children));
        return cmocka_run_group_tests(tests, NULL, NULL);
}
