/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Memory comes back while the program sleeps: pages inside slabs, the steps of a look with a clock
 * that the test moves, and the thread that looks, in processes of its own.
 */
#define _GNU_SOURCE
#include "child.h"
#include "filter.h"
#include "skip.h"
#include "walker.h"

#include "heap/heap.h"
#include "heap/reclaim.h"
#include "base/options.h"
#include "introspect/totals.h"
#include "percpu/barn.h"
#include "percpu/quiet.h"
#include "engines/slub/slab.h"
#include "profile/sample.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { MANY = 4000, LOOKS_MAX = 40 };

/* ---- The machine ------------------------------------------------------------------------- */

static bool clock_is_ours; /* else it is the system's */
static uint64_t now_ms = 1000;

uint64_t __real_system_time_ms(void);
uint64_t __wrap_system_time_ms(void);

uint64_t __wrap_system_time_ms(void)
{
        return clock_is_ours ? load_relaxed(&now_ms) : __real_system_time_ms();
}

static bool no_address_space;

void *__real_system_reserve(size_t bytes);
void *__wrap_system_reserve(size_t bytes);

void *__wrap_system_reserve(size_t bytes)
{
        return no_address_space ? NULL : __real_system_reserve(bytes);
}

static size_t larger_page_bytes; /* 0: this machine's */

size_t __real_system_page_bytes(void);
size_t __wrap_system_page_bytes(void);

size_t __wrap_system_page_bytes(void)
{
        return larger_page_bytes ? larger_page_bytes : __real_system_page_bytes();
}

static bool is_resident(const void *page)
{
        unsigned char present = 0;

        check(mincore((void *)((uintptr_t)page & ~(system_page_bytes() - 1)), 1, &present) == 0);
        return present & 1;
}

/* ---- Pages inside slabs ------------------------------------------------------------------ */

static struct kmem_cache *cache;
static unsigned char *objects[MANY];

static void fill(unsigned int size, slab_flags_t flags, void (*ctor)(void *))
{
        cache = kmem_cache_create("reclaim", size, 0, flags, ctor);
        check(cache != NULL);
        for (unsigned int i = 0; i < MANY; i++) {
                check((objects[i] = kmem_cache_alloc(cache, 0)) != NULL);
                memset(objects[i], (int)(i % 255 + 1), size);
        }
}

/* Frees each object with a chance of @percent in a hundred. */
static void free_some(unsigned int percent, uint64_t *random)
{
        for (unsigned int i = 0; i < MANY; i++)
                if (objects[i] && random_step(random) % 100 < percent) {
                        kmem_cache_free(cache, objects[i]);
                        objects[i] = NULL;
                }
}

static void check_contents(unsigned int size)
{
        for (unsigned int i = 0; i < MANY; i++)
                for (unsigned int at = 0; objects[i] && at < size; at++)
                        check(objects[i][at] == i % 255 + 1);
}

static size_t purge(unsigned int slabs)
{
        size_t bytes = 0;

        for (unsigned int node = 0; node < system_nodes(); node++)
                while (!cache->engine->purge(cache, node, slabs, &bytes))
                        ;
        return bytes;
}

static void settle(void)
{
        percpu_flush(cache, false);
        cache->engine->shrink(cache);
}

static void free_all(void)
{
        uint64_t random = 1;

        free_some(100, &random);
        kmem_cache_destroy(cache);
}

/*
 * A page is resident exactly if an object lies in it. Exceptions are pages behind the last object
 * of a full slab, which is on no list, and pages that do not lie in a single slab. Returns the
 * number of violations.
 */
static size_t check_pages(unsigned int size)
{
        size_t page_bytes = system_page_bytes();
        uint8_t *held = calloc(heap.accessible_bytes / page_bytes, 1);
        size_t gone = 0;

        for (unsigned int i = 0; i < MANY; i++)
                if (objects[i])
                        for (size_t page = ((uintptr_t)objects[i] - heap.base) / page_bytes;
                             page <= ((uintptr_t)objects[i] - heap.base + size - 1) / page_bytes;
                             page++)
                                held[page] = 1;
        for (size_t page = 0; page < heap.accessible_bytes / page_bytes; page++) {
                char *address = (char *)heap.base + page * page_bytes;
                const struct page *slab = slub_slab_of(cache, address);
                char *start = page_address(slab);
                size_t used = (size_t)slab_objects(slab) * cache->size;

                if (load_relaxed(&heap.map[address_page(address)]) == cache->pair_offset &&
                    address >= start && address < start + used &&
                    address + page_bytes <=
                            start + (pages_of_slab(cache, slab->order) << PAGE_SHIFT)) {
                        check(is_resident(address) == held[page]);
                        gone += !held[page];
                }
        }
        free(held);
        return gone;
}

/*
 * Every size: held objects keep their content, all other pages go, and come back with new objects.
 */
static void purge_child(void)
{
        static const unsigned int sizes[] = {16,   48,   64,   200,  512,  1000, 1024,
                                             1500, 3000, 4096, 5000, 8192, 12000};
        struct walk_counts counts;
        uint64_t random = 7;

        for (size_t i = 0; i < array_size(sizes); i++) {
                fill(sizes[i], 0, NULL);
                check(purge(100) == 0);
                free_some(93, &random);
                settle();
                purge(7);
                check_contents(sizes[i]);
                check_pages(sizes[i]);
                walk_heap(NULL, &counts);
                for (unsigned int j = 0; j < MANY; j++)
                        if (!objects[j]) {
                                check((objects[j] = kmem_cache_alloc(cache, 0)) != NULL);
                                memset(objects[j], (int)(j % 255 + 1), sizes[i]);
                        }
                check_contents(sizes[i]);
                free_all();
        }
}

/* Slabs of exact pages begin anywhere in a larger page of the system. */
static void purge_larger_pages_child(void)
{
        static const unsigned int sizes[] = {5000, 7000, 10000, 14000};
        uint64_t random = 17;
        size_t gone = 0;

        for (size_t i = 0; i < array_size(sizes); i++) {
                for (unsigned int j = 0; j < MANY; j++) {
                        check((objects[j] = kmalloc(sizes[i], GFP_KERNEL)) != NULL);
                        memset(objects[j], (int)(j % 255 + 1), sizes[i]);
                }
                cache = caches_by_index[heap.map[address_page(objects[0])] >> PAIR_SHIFT];
                check(cache->slab_pages != 0);
                larger_page_bytes = 4 * PAGE_SIZE;
                free_some(90, &random);
                settle();
                purge(7);
                check_contents(sizes[i]);
                gone += check_pages(sizes[i]);
                larger_page_bytes = 0;
                free_some(100, &random);
        }
        check(gone != 0);
}

/* PURGE-2: not asked again until something changes. */
static void purge_once_child(void)
{
        uint64_t random = 3;
        size_t bytes;

        fill(2048, 0, NULL);
        free_some(95, &random);
        settle();
        bytes = purge(5);
        check(bytes != 0);
        check(purge(5) == 0);
        free_some(50, &random);
        settle();
        check(purge(5) != 0);
        check_contents(2048);
        free_all();
}

static size_t slab_bytes(void)
{
        struct cache_totals totals;
        size_t pages = pages_of_slab(cache, cache->order);

        cache_total(cache, &totals);
        return totals.nodes.slabs * (pages << PAGE_SHIFT);
}

static size_t free_parts(size_t part_bytes, bool due_only, bool in_sheaves)
{
        return cache_free_parts(cache, part_bytes, due_only, in_sheaves);
}

/*
 * What free_parts says of slabs on lists, of CPU slabs and of CPU partial lists is what a flush, a
 * shrink and a purge then give back. Without sheaves, which it does not look into.
 */
static void free_parts_child(void)
{
        static const unsigned int sizes[] = {16, 200, 1024, 1500, 3000, 5000, 12000};
        uint64_t random = 19;
        size_t of_slots = 0;

        for (size_t i = 0; i < array_size(sizes); i++) {
                size_t page_bytes = system_page_bytes();
                size_t expected, before, given;

                fill(sizes[i], 0, NULL);
                /* Slabs of these frees join CPU partial lists, and the last slab is not full. */
                free_some(90, &random);
                expected = free_parts(page_bytes, true, false);
                check(free_parts(page_bytes, false, false) == expected);
                of_slots += expected -
                            cache->engine->free_parts(
                                    cache, 0, &(struct parts_wanted){page_bytes, true, NULL});
                before = slab_bytes();
                settle();
                given = before - slab_bytes();
                check(free_parts(page_bytes, true, false) == expected - given);
                check(given + purge(7) == expected);
                /* Purged pages are free, and not due again. */
                check(free_parts(page_bytes, true, false) == 0);
                check(free_parts(page_bytes, false, false) == expected - given);
                /* A larger part is free only if all its pages are. */
                check(free_parts(2 * page_bytes, false, false) <= expected - given);
                check_contents(sizes[i]);
                free_all();
        }
        check(of_slots != 0);
}

/*
 * Objects of a size class that rest in sheaves keep pages, and slabs, that a flush makes free. They
 * are freed in a drawn order, so that few slabs have all of their objects in sheaves: such a slab
 * is on no list, and is not seen.
 */
static void free_parts_of_sheaves_child(void)
{
        size_t page_bytes = system_page_bytes();
        size_t before, given, expected, unseen;
        struct cache_totals totals;
        uint64_t random = 23;

        for (unsigned int i = 0; i < MANY; i++) {
                check((objects[i] = kmalloc(500, GFP_KERNEL)) != NULL);
                memset(objects[i], (int)(i % 255 + 1), 500);
        }
        cache = caches_by_index[heap.map[address_page(objects[0])] >> PAIR_SHIFT];
        check(cache->marks_freed);
        for (unsigned int i = 0; i < 3 * MANY; i++) {
                unsigned int drawn = (unsigned int)(random_step(&random) % MANY);

                kfree(objects[drawn]);
                objects[drawn] = NULL;
        }
        cache_total(cache, &totals);
        check(totals.resting != 0);
        unseen = totals.nodes.slabs - totals.nodes.partial_slabs;
        check(unseen < totals.nodes.slabs / 20);
        expected = free_parts(page_bytes, true, true);
        check(expected > free_parts(page_bytes, true, false) + totals.resting * cache->size / 2);
        before = slab_bytes();
        settle();
        given = before - slab_bytes();
        given += purge(7);
        check(expected <= given);
        check(given <= expected + unseen * (pages_of_slab(cache, cache->order) << PAGE_SHIFT));
        check_contents(500);
        for (unsigned int i = 0; i < MANY; i++)
                kfree(objects[i]);
}

/* A program may protect a page that is its own: free_parts must not read it. */
static void free_parts_of_unreadable_child(void)
{
        size_t page_bytes = system_page_bytes();

        for (unsigned int i = 0; i < 2048; i++)
                check((objects[i] = kmalloc(page_bytes, GFP_KERNEL)) != NULL);
        cache = caches_by_index[heap.map[address_page(objects[0])] >> PAIR_SHIFT];
        check(cache->marks_freed && cache->size == page_bytes);
        for (unsigned int i = 0; i < 2048; i += 2)
                check(mprotect(objects[i], page_bytes, PROT_NONE) == 0);
        for (unsigned int i = 1; i < 2048; i += 2)
                kfree(objects[i]);
        check(free_parts(page_bytes, true, true) >= free_parts(page_bytes, true, false));
        for (unsigned int i = 0; i < 2048; i += 2) {
                check(mprotect(objects[i], page_bytes, PROT_READ | PROT_WRITE) == 0);
                kfree(objects[i]);
        }
}

/* PURGE-1: of a cache whose free objects count, only slabs without an object are due. */
static void free_parts_of_contents_child(void)
{
        fill(1024, SLAB_TYPESAFE_BY_RCU, NULL);
        for (unsigned int i = 0; i < MANY; i++)
                if (i % 32) {
                        kmem_cache_free(cache, objects[i]);
                        objects[i] = NULL;
                }
        settle();
        check(free_parts(system_page_bytes(), true, false) == 0);
        check(free_parts(system_page_bytes(), false, false) != 0);
        free_all();
}

static void construct(void *object)
{
        memset(object, 0x5a, 1024);
}

/* PURGE-1 */
static void purge_not_child(void)
{
        static const slab_flags_t flags[] = {0, SLAB_TYPESAFE_BY_RCU};
        static void (*const ctors[])(void *) = {construct, NULL};
        unsigned char *freed[MANY];

        for (size_t which = 0; which < 2; which++) {
                uint64_t random = 5;

                fill(1024, flags[which], ctors[which]);
                memcpy(freed, objects, sizeof(freed));
                for (unsigned int i = 0; i < MANY; i++)
                        memset(objects[i], 0x5a, 1024);
                /* Not the first of each eight, so that no slab ends. */
                for (unsigned int i = 0; i < MANY; i++)
                        if (i % 8) {
                                kmem_cache_free(cache, objects[i]);
                                objects[i] = NULL;
                        }
                settle();
                check(purge(10) == 0);
                for (unsigned int i = 0; i < MANY; i++)
                        for (unsigned int at = 0; at < 1024; at++)
                                check(freed[i][at] == 0x5a);
                free_some(100, &random);
                kmem_cache_destroy(cache);
        }
}

/* The list changes between two parts of a walk: slabs leave it, also the slab to go on with. */
static void purge_while_list_changes_child(void)
{
        struct engine_node *node;
        uint64_t random = 11;
        unsigned int rounds = 0;

        fill(1500, 0, NULL);
        node = &cache->node[0];
        free_some(80, &random);
        settle();
        for (unsigned int i = 0; i < MANY; i++) {
                size_t bytes = 0;

                if (cache->engine->purge(cache, 0, 1 + i % 3, &bytes))
                        rounds++;
                /* Takes the first slab of the list; sometimes it is the next slab to purge. */
                if (!objects[i]) {
                        check((objects[i] = kmem_cache_alloc(cache, 0)) != NULL);
                        memset(objects[i], (int)(i % 255 + 1), 1500);
                }
                if (i % 16 == 0)
                        percpu_flush(cache, false);
                for (uint32_t at = node->purge_next; at; at = page_at(at)->next)
                        check(page_at(at)->node_partial);
        }
        check(rounds > 0);
        check_contents(1500);
        free_all();
}

/* ---- Looks ------------------------------------------------------------------------------- */

static unsigned int look_until_nothing(void)
{
        unsigned int looks = 0;

        while (reclaim_step(add_relaxed(&now_ms, 100)))
                check(++looks < LOOKS_MAX);
        return looks;
}

/* All that a program leaves behind goes, and then the looks say so. */
static void looks_child(void)
{
        struct heap_totals totals;
        struct cache_totals one;
        uint64_t random = 13;

        clock_is_ours = true;
        fill(1024, 0, NULL);
        check(look_until_nothing() > 0);
        check_contents(1024);
        free_some(95, &random);
        cache_total(cache, &one);
        check(one.resting != 0 || cache->sheaf_capacity == 0);
        check(look_until_nothing() > 0);
        cache_total(cache, &one);
        heap_total(&totals);
        check_equal(one.resting, 0);
        check_equal(totals.pages.free_touched_pages, 0);
        check(one.nodes.slabs <= one.inuse);
        check_contents(1024);
        if (cache->engine->purge)
                check_pages(1024);
        check(!reclaim_step(add_relaxed(&now_ms, 100)));
        free_all();
}

/* A slot in use keeps its sheaves. */
static void look_spares_users_child(void)
{
        cpu_set_t one_cpu;
        struct cache_totals one;

        clock_is_ours = true;
        CPU_ZERO(&one_cpu);
        CPU_SET(0, &one_cpu);
        if (sched_setaffinity(0, sizeof(one_cpu), &one_cpu)) {
                puts("# skipped: this process may not run on CPU 0");
                exit(CHILD_SKIP);
        }
        fill(64, 0, NULL);
        look_until_nothing();
        for (unsigned int i = 0; i < 40; i++) {
                kmem_cache_free(cache, objects[i]);
                objects[i] = NULL;
                check(reclaim_step(add_relaxed(&now_ms, 100)));
                cache_total(cache, &one);
                check_equal(one.resting, i + 1);
        }
        look_until_nothing();
        cache_total(cache, &one);
        check_equal(one.resting, 0);
        free_all();
}

/* ---- A heap that grows ------------------------------------------------------------------- */

enum { FEW = 8, OF_PAGES = 20000 };

static void stay_on_a_cpu(void)
{
        cpu_set_t one_cpu;

        CPU_ZERO(&one_cpu);
        CPU_SET((size_t)sched_getcpu(), &one_cpu);
        if (sched_setaffinity(0, sizeof(one_cpu), &one_cpu)) {
                puts("# skipped: this process may not choose its CPU");
                exit(CHILD_SKIP);
        }
}

static struct kmem_cache *cache_with_sheaves(const void *object)
{
        struct kmem_cache *of = cache_of(object);

        if (!of || of->engine->caching != CACHING_SHEAVES || !of->sheaf_capacity ||
            of->sheaves_as_7_0) {
                puts("# skipped: the class has no sheaves of ours");
                exit(CHILD_SKIP);
        }
        return of;
}

/* Objects of 1000 bytes, which stay. */
static void grow_by(size_t bytes)
{
        for (size_t i = 0; i < bytes / 1000; i++)
                check(block_alloc(CLASS_MALLOC, 1000, false, NULL) != NULL);
}

/* While other sizes let the heap grow, a class of pages that nobody uses gives back what rests in its sheaves. */
static void growth_child(void)
{
        struct cache_totals one;
        void *blocks[FEW];
        void *small;

        stay_on_a_cpu();
        for (unsigned int i = 0; i < FEW; i++)
                check((blocks[i] = block_alloc(CLASS_MALLOC, OF_PAGES, false, NULL)) != NULL);
        check((small = block_alloc(CLASS_MALLOC, 500, false, NULL)) != NULL);
        cache = cache_with_sheaves(blocks[0]);
        for (unsigned int i = 0; i < FEW; i++)
                block_free_at(blocks[i], "free", NULL);
        block_free_at(small, "free", NULL);
        cache_total(cache, &one);
        check(one.resting >= FEW);
        grow_by(6 << 20);
        cache_total(cache, &one);
        check_equal(one.resting, 0);
        check_equal(one.nodes.slabs, 0);
        cache_total(cache_of(small), &one);
        check(one.resting > 0);
}

/* In use meanwhile, it keeps them. */
static void growth_spares_users_child(void)
{
        struct cache_totals one;
        void *blocks[FEW];

        stay_on_a_cpu();
        for (unsigned int i = 0; i < FEW; i++)
                check((blocks[i] = block_alloc(CLASS_MALLOC, OF_PAGES, false, NULL)) != NULL);
        cache = cache_with_sheaves(blocks[0]);
        for (unsigned int i = 0; i < FEW; i++) {
                block_free_at(blocks[i], "free", NULL);
                grow_by(512 << 10);
        }
        cache_total(cache, &one);
        check(one.resting >= FEW);
}

/* A class of pages gets no more objects by a refill than it had before; a class of less up to a whole sheaf. */
static void refill_child(void)
{
        struct cache_totals one;
        void *block;

        stay_on_a_cpu();
        for (unsigned int i = 0; i < FEW; i++) {
                check((block = block_alloc(CLASS_MALLOC, 10000, false, NULL)) != NULL);
                cache_total(cache_with_sheaves(block), &one);
                check_equal(one.inuse, i + 1);
                check(one.inuse + one.resting <= max_of(2 * i, 1u));
        }
        check((block = block_alloc(CLASS_MALLOC, 1000, false, NULL)) != NULL);
        cache_total(cache_with_sheaves(block), &one);
        check(one.resting > 1);
}

/* A barn loses the sheaves that nobody needed between two looks, and no more. */
static void barn_child(void)
{
        struct barn *barn;
        struct sheaf *sheaf;

        fill(64, 0, NULL);
        barn = &cache->barn[0];
        barn->full_max_few = barn->full_max;
        for (unsigned int i = 0; i < 3; i++) {
                check((sheaf = barn_take_empty(cache)) != NULL);
                sheaf->size = cache->engine->take(
                        cache, &slot_peek(&shared_slot, cache_index(cache))->engine, sheaf->object,
                        4);
                check(sheaf->size == 4 && barn_put_full(barn, sheaf));
        }
        check(!barn_take_surplus(barn));
        barn_mark_low(barn);
        sheaf = barn_take_full(barn);
        check(sheaf && barn_put_full(barn, sheaf));
        for (unsigned int i = 0; i < 2; i++) {
                check((sheaf = barn_take_surplus(barn)) != NULL);
                sheaf->size = 0;
                sheaf_free(cache, sheaf);
        }
        check(!barn_take_surplus(barn));
        check_equal(barn->full_size, 1);
        _exit(0);
}

/* ---- The thread -------------------------------------------------------------------------- */

static void *block[MANY];

static void nap(void)
{
        const struct timespec a_while = {.tv_nsec = 2000000};

        nanosleep(&a_while, NULL);
}

/* The id of our thread, 0 if there is none; of several any. */
static int thread_id(void)
{
        DIR *tasks = opendir("/proc/self/task");
        struct dirent *task;
        int found = 0;

        check(tasks != NULL);
        while ((task = readdir(tasks))) {
                char path[300];
                char name[32] = "";
                int file;

                snprintf(path, sizeof(path), "/proc/self/task/%s/comm", task->d_name);
                file = open(path, O_RDONLY);
                if (file < 0)
                        continue;
                if (read(file, name, sizeof(name) - 1) > 0 && !strcmp(name, "kmem-reclaim\n"))
                        found = atoi(task->d_name);
                close(file);
        }
        closedir(tasks);
        return found;
}

/* Whether a thread is there and of that user. */
static bool thread_is_of(int id, unsigned int user)
{
        char text[4096];
        char path[64];
        char *line = NULL;
        ssize_t got;
        int file;

        snprintf(path, sizeof(path), "/proc/self/task/%d/status", id);
        file = open(path, O_RDONLY);
        if (file < 0)
                return false;
        got = read(file, text, sizeof(text) - 1);
        close(file);
        if (got > 0) {
                text[got] = '\0';
                line = strstr(text, "\nUid:\t");
        }
        return line && strtoul(line + 6, NULL, 10) == user;
}

/* Frees that reach a slow path. */
static void use_heap(unsigned int count)
{
        for (unsigned int i = 0; i < count; i++)
                check((block[i] = kmalloc(2000, GFP_KERNEL)) != NULL);
        for (unsigned int i = 0; i < count; i++)
                kfree(block[i]);
}

static size_t free_touched(void)
{
        struct page_counts counts;

        pages_count(&counts);
        return counts.free_touched_pages;
}

/* child_main's alarm is the deadline of all waiting here. */
static int await_thread(void)
{
        int id;

        while (!(id = thread_id())) {
                use_heap(MANY);
                nap();
        }
        return id;
}

/*
 * A debug cache with tracks. The thread frees its objects after their grace period, and gives its
 * slabs back. libc does not know this thread, so libkmem must not ask libc for the caller.
 */
static void debug_frees_child(void)
{
        static void *blocks[1000];
        char inuse[KMEM_ATTR_BYTES];

        for (size_t i = 0; i < array_size(blocks); i++)
                check(blocks[i] = kmalloc(200, GFP_KERNEL));
        for (size_t i = 0; i < array_size(blocks); i++)
                kfree_rcu(blocks[i]);
        do {
                await_thread();
                nap();
                check(kmem_attr_read("kmalloc-208", "objects_inuse", inuse, sizeof(inuse)) > 0 ||
                      kmem_attr_read("kmalloc-256", "objects_inuse", inuse, sizeof(inuse)) > 0);
        } while (atoi(inuse) > 0);
}

static void thread_comes_and_goes_child(void)
{
        await_thread();
        while (free_touched())
                nap();
        while (thread_id())
                nap();
        check(await_thread() != 0);
}

static int handled; /* the thread that ran the handler */

static void handle(int number)
{
        handled = gettid();
}

/* A signal that all threads of the program block waits, for all that ours is there. */
static void signals_child(void)
{
        sigset_t one;

        signal(SIGUSR1, handle);
        sigemptyset(&one);
        sigaddset(&one, SIGUSR1);
        sigprocmask(SIG_BLOCK, &one, NULL);
        for (unsigned int round = 0; round < 20; round++) {
                await_thread();
                kill(getpid(), SIGUSR1);
                use_heap(MANY);
                nap();
                check_equal(handled, 0);
        }
        sigprocmask(SIG_UNBLOCK, &one, NULL);
        check_equal(handled, getpid());
}

static void no_thread_child(void)
{
        for (unsigned int round = 0; round < 5; round++) {
                use_heap(MANY);
                check(!thread_id());
        }
}

/* The kernel, which is asked for threads if libc does not say, is asked seldom. */
static void *use_in_thread(void *argument)
{
        do
                use_heap(MANY);
        while (system_threads() == THREADS_UNKNOWN && !thread_id());
        return argument;
}

static void auto_child(void)
{
        pthread_t thread;

        no_thread_child();
        check(pthread_create(&thread, NULL, use_in_thread, NULL) == 0);
        check(pthread_join(thread, NULL) == 0);
        await_thread();
}

static void refused_memory_child(void)
{
        no_address_space = true;
        no_thread_child();
}

static void refused_processes_child(void)
{
        struct rlimit none = {0, 0};

        if (geteuid() != 0) {
                puts("# skipped: only root can become a user without processes");
                exit(CHILD_SKIP);
        }
        check(setresuid(65533, 65533, 65533) == 0);
        check(setrlimit(RLIMIT_NPROC, &none) == 0);
        no_thread_child();
}

static void sandbox_later_child(void)
{
        if (filter_calls(-1, ANY_ARGUMENT, SECCOMP_RET_ALLOW) < 0) {
                puts("# skipped: no seccomp filter can be set here");
                exit(CHILD_SKIP);
        }
        no_thread_child();
}

/* Where madvise is refused nothing comes back, and the thread still ends. */
static void refused_purge_child(void)
{
        await_thread();
        while (thread_id())
                nap();
        check(free_touched());
}

static void refused_fence_child(void)
{
        await_thread();
        while (free_touched() || thread_id())
                nap();
}

/* The program gives up its rights; within a while so does the thread, because it is another. */
static void credentials_child(void)
{
        int first = await_thread();
        int id;

        if (geteuid() != 0) {
                puts("# skipped: only root can become another user");
                exit(CHILD_SKIP);
        }
        check(thread_is_of(first, 0));
        check(setresuid(65533, 65533, 65533) == 0);
        while (!(id = thread_id()) || !thread_is_of(id, 65533)) {
                use_heap(MANY);
                nap();
        }
        while (thread_is_of(first, 0))
                nap();
}

static void fork_child(void)
{
        for (unsigned int round = 0; round < 10; round++) {
                pid_t child;

                await_thread();
                /* A slice belongs to the parent's thread. */
                store_relaxed(&profile_in_slice, true);
                child = fork();
                check(child >= 0);
                if (child == 0) {
                        alarm(60);
                        check(!profile_in_slice);
                        await_thread();
                        while (free_touched())
                                nap();
                        _exit(0);
                }
                store_relaxed(&profile_in_slice, false);
                use_heap(MANY);
                child_wait(child);
        }
}

static bool signal_at_clone;
static pid_t forked = -1; /* by the handler */

static void fork_in_handler(int number)
{
        forked = fork();
        check(forked >= 0);
}

long __real_thread_clone(int (*run)(void *), void *argument, void *stack, long flags, void *storage,
                         uint32_t *id);
long __wrap_thread_clone(int (*run)(void *), void *argument, void *stack, long flags, void *storage,
                         uint32_t *id);

/* A signal arrives while the library starts its thread, and is handled as soon as it is let in. */
long __wrap_thread_clone(int (*run)(void *), void *argument, void *stack, long flags, void *storage,
                         uint32_t *id)
{
        long started = __real_thread_clone(run, argument, stack, flags, storage, id);

        if (signal_at_clone) {
                signal_at_clone = false;
                check(raise(SIGUSR1) == 0);
        }
        return started;
}

/*
 * The child has no thread, even if its parent was about to start it, and gets a thread of its own.
 */
static void fork_at_start_child(void)
{
        signal(SIGUSR1, fork_in_handler);
        signal_at_clone = true;
        while (forked < 0)
                use_heap(MANY);
        alarm(60);
        await_thread();
        if (forked == 0)
                _exit(0);
        child_wait(forked);
}

static void *end_later(void *argument)
{
        use_heap(MANY);
        nap();
        return argument;
}

/* The last of libc's threads ends the process, whether ours is there or not. */
static void last_thread_child(void)
{
        pthread_t thread;

        await_thread();
        check(pthread_create(&thread, NULL, end_later, NULL) == 0);
        pthread_detach(thread);
        pthread_exit(NULL);
}

static void exit_child(void)
{
        for (unsigned int round = 0; round < 40; round++) {
                pid_t child = fork();

                check(child >= 0);
                if (child == 0) {
                        alarm(60);
                        await_thread();
                        use_heap(MANY);
                        /* Up to two looks and the time between them. */
                        for (unsigned int i = 0; i < 3 * round; i++)
                                nap();
                        exit(0);
                }
                child_wait(child);
        }
}

/* ---- Cases ------------------------------------------------------------------------------- */

static void purges_inside_slabs(void **state)
{
        child_passes("purge", "engine=slub,reclaim_thread=off");
        child_passes("purge", "engine=slub,reclaim_thread=off,freeze=eager,sheaf_capacity=0");
        child_passes("purge", "engine=slub,reclaim_thread=off,slub_min_order=3,numa_fake=2");
        child_passes("purge", "engine=slub,reclaim_thread=off,slub_max_order=0");
        child_passes("purge larger pages", "engine=slub,reclaim_thread=off");
}

static void purges_a_slab_once(void **state)
{
        child_passes("purge once", "engine=slub,reclaim_thread=off");
}

static void tells_free_parts(void **state)
{
        child_passes("free parts", "engine=slub,reclaim_thread=off,sheaf_capacity=0");
        child_passes("free parts", "engine=slub,reclaim_thread=off,sheaf_capacity=0,freeze=eager");
        child_passes("free parts of sheaves", "engine=slub,reclaim_thread=off");
        child_passes("free parts of sheaves", "engine=slub,reclaim_thread=off,slots=locked");
        child_passes("free parts of unreadable", "engine=slub,reclaim_thread=off");
        child_passes("free parts of contents", "engine=slub,reclaim_thread=off");
}

static void leaves_contents_that_count(void **state)
{
        child_passes("purge not", "engine=slub,reclaim_thread=off");
}

static void purges_while_the_list_changes(void **state)
{
        child_passes("list changes", "engine=slub,reclaim_thread=off,sheaf_capacity=0");
        child_passes("list changes", "engine=slub,reclaim_thread=off,freeze=eager,cpu_partial=0");
}

/*
 * Slabs of engine slab are single pages. With larger pages the system cannot have back a free one
 * beside one in use, so free pages that were touched remain.
 */
static void passes_on_slab(const char *name, const char *chosen)
{
        if (system_page_bytes() > PAGE_SIZE)
                print_message("skipped: %s: the system's pages are larger than slabs\n", chosen);
        else
                child_passes(name, chosen);
}

static void looks_give_all_back(void **state)
{
        child_passes("looks", "reclaim_thread=off");
        child_passes("looks", "reclaim_thread=off,slots=locked");
        passes_on_slab("looks", "reclaim_thread=off,engine=slab");
        child_passes("looks", "reclaim_thread=off,memory_limit=4G");
        child_passes("looks", "reclaim_thread=off,sheaf_capacity=0,freeze=eager,stats=1");
        child_passes("looks", "reclaim_thread=off,numa_fake=2,purge_delay=1000");
}

static void looks_spare_users(void **state)
{
        child_passes("look spares users", "reclaim_thread=off,engine=slub");
}

static void growth_takes_what_is_unused(void **state)
{
        child_passes("growth", "reclaim_thread=off,engine=slub");
        child_passes("growth spares users", "reclaim_thread=off,engine=slub");
}

static void refills_follow_the_need(void **state)
{
        child_passes("refill", "reclaim_thread=off,engine=slub");
}

static void looks_empty_barns_to_low_water(void **state)
{
        child_passes("barn", "reclaim_thread=off,engine=slub,slots=locked");
}

static void thread_comes_and_goes(void **state)
{
        child_passes("thread comes and goes", "reclaim_thread=on");
        passes_on_slab("thread comes and goes", "reclaim_thread=on,engine=slab");
        child_passes("thread comes and goes", "reclaim_thread=on,slots=locked");
}

static void frees_debug_objects(void **state)
{
        child_passes("debug frees", "reclaim_thread=on,engine=slub,debug=FZPU");
}

static void runs_no_handlers(void **state)
{
        child_passes("signals", "reclaim_thread=on");
}

static void no_thread_unless_wanted(void **state)
{
        child_passes("no thread", "reclaim_thread=off");
        child_passes("auto", "reclaim_thread=auto");
}

/* The thread does without a refused call, and prints nothing. */
static void refusals(void **state)
{
        static struct child_result result;
        static const struct {
                long call;
                const char *child;
        } refused[] = {
                {SYS_clone, "no thread"},          {SYS_madvise, "refused purge"},
                {SYS_membarrier, "refused fence"}, {-1, "refused memory"},
                {-1, "refused processes"},         {-1, "sandbox later"},
        };

        for (size_t i = 0; i < array_size(refused); i++) {
                child_refuse_system_call(refused[i].call);
                child_run(refused[i].child, "reclaim_thread=on", &result);
                if (result.status || strstr(result.output, "kmem:"))
                        fail_msg("%s: wait status 0x%x: %s", refused[i].child,
                                 (unsigned int)result.status, result.output);
        }
        child_refuse_system_call(-1);
}

static void takes_the_programs_credentials(void **state)
{
        child_passes("credentials", "reclaim_thread=on");
}

static void forks(void **state)
{
        if (emulated())
                skip_because("the emulator ends forked children that start a thread");
        child_passes("fork", "reclaim_thread=on");
}

static void forks_behind_a_start(void **state)
{
        if (emulated())
                skip_because("the emulator ends forked children that start a thread");
        child_passes("fork at start", "reclaim_thread=on");
}

static void ends_with_the_program(void **state)
{
        child_passes("last thread", "reclaim_thread=on");
        child_passes("exit", "reclaim_thread=on");
}

int main(int argc, char **argv)
{
        const struct child_case children[] = {
                {"purge", purge_child},
                {"purge larger pages", purge_larger_pages_child},
                {"purge once", purge_once_child},
                {"free parts", free_parts_child},
                {"free parts of sheaves", free_parts_of_sheaves_child},
                {"free parts of unreadable", free_parts_of_unreadable_child},
                {"free parts of contents", free_parts_of_contents_child},
                {"purge not", purge_not_child},
                {"list changes", purge_while_list_changes_child},
                {"looks", looks_child},
                {"look spares users", look_spares_users_child},
                {"growth", growth_child},
                {"growth spares users", growth_spares_users_child},
                {"refill", refill_child},
                {"barn", barn_child},
                {"thread comes and goes", thread_comes_and_goes_child},
                {"debug frees", debug_frees_child},
                {"signals", signals_child},
                {"no thread", no_thread_child},
                {"auto", auto_child},
                {"refused memory", refused_memory_child},
                {"refused processes", refused_processes_child},
                {"sandbox later", sandbox_later_child},
                {"refused purge", refused_purge_child},
                {"refused fence", refused_fence_child},
                {"credentials", credentials_child},
                {"fork", fork_child},
                {"fork at start", fork_at_start_child},
                {"last thread", last_thread_child},
                {"exit", exit_child},
        };
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(purges_inside_slabs),
                cmocka_unit_test(purges_a_slab_once),
                cmocka_unit_test(tells_free_parts),
                cmocka_unit_test(leaves_contents_that_count),
                cmocka_unit_test(purges_while_the_list_changes),
                cmocka_unit_test(looks_give_all_back),
                cmocka_unit_test(looks_spare_users),
                cmocka_unit_test(growth_takes_what_is_unused),
                cmocka_unit_test(refills_follow_the_need),
                cmocka_unit_test(looks_empty_barns_to_low_water),
                cmocka_unit_test(thread_comes_and_goes),
                cmocka_unit_test(frees_debug_objects),
                cmocka_unit_test(runs_no_handlers),
                cmocka_unit_test(no_thread_unless_wanted),
                cmocka_unit_test(refusals),
                cmocka_unit_test(takes_the_programs_credentials),
                cmocka_unit_test(forks),
                cmocka_unit_test(forks_behind_a_start),
                cmocka_unit_test(ends_with_the_program),
        };

        child_main(argc, argv, children, array_size(children));
        return cmocka_run_group_tests(tests, NULL, NULL);
}
