/* SPDX-License-Identifier: Apache-2.0 OR MIT */
#define _GNU_SOURCE
#include "failure_script.h"

#include "child.h"
#include "failure_wrap.h"
#include "slob_walk.h"
#include "walk_slab.h"
#include "walker.h"

#include "heap/heap.h"
#include "heap/reclaim.h"
#include "introspect/totals.h"

#include <errno.h>
#include <malloc.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { QUIET = GFP_KERNEL | __GFP_NOWARN, OBJECTS_MAX = 200 };

static bool complete; /* no call of this run has failed */

/* ---- A thread in another slot ---------------------------------------------------------------- */

static struct {
        sem_t wanted;
        sem_t done;
        void (*work)(void *);
        void *argument;
} helper;

static void *helper_thread(void *unused)
{
        for (;;) {
                while (sem_wait(&helper.wanted))
                        ;
                helper.work(helper.argument);
                sem_post(&helper.done);
        }
        return unused;
}

static void on_helper(void (*work)(void *), void *argument)
{
        helper.work = work;
        helper.argument = argument;
        sem_post(&helper.wanted);
        while (sem_wait(&helper.done))
                ;
}

/* On CPUs of their own, where there are two, the threads have slots of their own. */
static void pin(pthread_t thread, unsigned int number, const cpu_set_t *allowed)
{
        cpu_set_t one;

        for (size_t cpu = 0; cpu < CPU_SETSIZE; cpu++)
                if (CPU_ISSET(cpu, allowed) && number-- == 0) {
                        CPU_ZERO(&one);
                        CPU_SET(cpu, &one);
                        pthread_setaffinity_np(thread, sizeof(one), &one);
                }
}

static void callback(struct kmem_rcu_head *head)
{
        head->next = NULL;
}

void failure_script_prepare(void)
{
        static struct kmem_rcu_head head;
        pthread_t thread;
        cpu_set_t allowed;

        /* Registering for membarrier is quick as long as there is only a single thread. */
        kmem_synchronize_rcu();
        malloc_trim(0);
        check(sem_init(&helper.wanted, 0, 0) == 0 && sem_init(&helper.done, 0, 0) == 0);
        check(pthread_create(&thread, NULL, helper_thread, NULL) == 0);
        check(sched_getaffinity(0, sizeof(allowed), &allowed) == 0);
        pin(pthread_self(), 0, &allowed);
        pin(thread, 1, &allowed);
        kmem_rcu_read_lock();
        kmem_rcu_read_unlock();
        kmem_call_rcu(&head, callback);
        kmem_rcu_barrier();
}

/* ---- Checks ---------------------------------------------------------------------------------- */

/* Notes a failure, which must have said so. */
static bool there(const void *block)
{
        if (block)
                return true;
        check_equal(errno, ENOMEM);
        complete = false;
        return false;
}

static void fill(void *block, size_t bytes, unsigned char tag)
{
        memset(block, tag, bytes);
}

static void holds(const void *block, size_t bytes, unsigned char tag)
{
        const unsigned char *byte = block;

        for (size_t i = 0; i < bytes; i++)
                if (byte[i] != tag)
                        check_equal(byte[i], tag);
}

/* Nobody allocates meanwhile. */
static void walk(struct kmem_cache *cache)
{
        struct walk_counts counts;
        struct walk_slab_counts slab_counts;
        struct slob_walk slob_pages;

        failure_hold();
        walk_heap(NULL, &counts);
        slob_walk(&slob_pages);
        if (cache && cache->engine == &slab_engine)
                walk_slab_cache(cache, &slab_counts);
        failure_go_on();
}

/* Objects of earlier steps in sheaves and slabs go, so that the next step needs memory. */
static void cool(void)
{
        failure_hold();
        heap_trim(0);
        failure_go_on();
}

/* ---- Caches ---------------------------------------------------------------------------------- */

struct kind {
        const char *name;
        unsigned int size;
        unsigned int align;
        slab_flags_t flags;
        bool constructed;
        unsigned int count; /* objects at a time: some sheaves' worth */
};

static const struct kind kinds[] = {
        {"fail-plain", 72, 0, 0, false, OBJECTS_MAX},
        {"fail-built", 200, 0, 0, true, 60},
        {"fail-typesafe", 120, 0, SLAB_TYPESAFE_BY_RCU, false, 60},
        {"fail-account", 64, 0, SLAB_ACCOUNT, false, 60},
        {"fail-aligned", 300, 512, 0, false, 30},
        {"fail-big", 5000, 0, 0, false, 20},
};
enum { KINDS = array_size(kinds), PLAIN = 0, TYPESAFE = 2, ACCOUNT = 3 };

struct objects {
        const struct kind *kind;
        struct kmem_cache *cache;
        unsigned int count;
        void *object[OBJECTS_MAX];
};

static void construct(void *object)
{
        memset(object, 0x5c, 200);
}

static void inuse_is(struct kmem_cache *cache, uint64_t count)
{
        struct cache_totals totals;

        cache_total(cache, &totals);
        check_equal(totals.inuse, count);
}

static void make(struct objects *all, const struct kind *kind)
{
        *all = (struct objects){.kind = kind};
        errno = 0;
        all->cache = (kmem_cache_create)(kind->name, kind->size, kind->align, kind->flags,
                                         kind->constructed ? construct : NULL);
        there(all->cache);
}

static unsigned char tag_of(const struct objects *all, unsigned int i)
{
        return all->kind->constructed ? 0x5c : (unsigned char)(i * 7 + all->kind->size);
}

static void take(struct objects *all, gfp_t flags)
{
        errno = 0;
        void *object = kmem_cache_alloc(all->cache, flags);

        if (!there(object))
                return;
        check_equal((uintptr_t)object % max_of(all->kind->align, 8u), 0);
        if (all->kind->constructed)
                holds(object, all->kind->size, 0x5c);
        else if (flags & __GFP_ZERO)
                holds(object, all->kind->size, 0);
        fill(object, all->kind->size, tag_of(all, all->count));
        all->object[all->count++] = object;
}

/* All or nothing. */
static void take_bulk(struct objects *all, gfp_t flags, unsigned int count)
{
        unsigned int before = all->count;
        int got;

        errno = 0;
        got = kmem_cache_alloc_bulk(all->cache, flags, count, all->object + before);
        check(got == 0 || got == (int)count);
        if (!there(got ? all : NULL)) {
                inuse_is(all->cache, before);
                return;
        }
        for (unsigned int i = 0; i < count; i++, all->count++) {
                if (flags & __GFP_ZERO)
                        holds(all->object[before + i], all->kind->size, 0);
                fill(all->object[before + i], all->kind->size, tag_of(all, before + i));
        }
        inuse_is(all->cache, all->count);
}

static void drop(struct objects *all)
{
        all->count--;
        holds(all->object[all->count], all->kind->size, tag_of(all, all->count));
        kmem_cache_free(all->cache, all->object[all->count]);
}

/* Half of them singly: more than the helper's slot has had sheaves for. */
static void drop_half(void *argument)
{
        struct objects *all = argument;

        for (unsigned int rest = all->count / 2; all->count > rest;)
                drop(all);
}

static void drop_bulk(struct objects *all)
{
        for (unsigned int i = 0; i < all->count; i++)
                holds(all->object[i], all->kind->size, tag_of(all, i));
        kmem_cache_free_bulk(all->cache, all->count, all->object);
        all->count = 0;
}

/* S6-51; the other engines refuse it. */
static void retune(struct objects *all)
{
        char line[64];

        snprintf(line, sizeof(line), "%s 30 10 4", all->kind->name);
        errno = 0;
        if (kmem_slabinfo_write(line) == 0)
                return;
        if (all->cache->engine == &slab_engine)
                there(NULL);
        else
                check_equal(errno, EIO);
}

static void use_cache(struct objects *all)
{
        if (!all->cache)
                return;
        for (unsigned int i = 0; i < all->kind->count / 2; i++)
                take(all, i % 2 || all->kind->constructed ? QUIET : QUIET | __GFP_ZERO);
        inuse_is(all->cache, all->count);
        take_bulk(all, all->kind->constructed ? QUIET : QUIET | __GFP_ZERO, all->kind->count / 3);
        on_helper(drop_half, all);
        retune(all);
        inuse_is(all->cache, all->count);
        kmem_cache_shrink(all->cache);
        inuse_is(all->cache, all->count);
        walk(all->cache);
        take_bulk(all, QUIET, all->kind->count / 4);
        drop_half(all);
        drop_bulk(all);
        inuse_is(all->cache, 0);
        take(all, QUIET);
        inuse_is(all->cache, all->count);
}

/* ---- Memory by size -------------------------------------------------------------------------- */

/* Huge blocks are looked at at their ends only. */
enum { LOOK_BYTES = 20000 };

static void fill_ends(char *block, size_t bytes, unsigned char tag)
{
        fill(block, min_of(bytes, (size_t)LOOK_BYTES), tag);
        block[bytes - 1] = (char)tag;
}

static void holds_start(const void *block, size_t bytes, unsigned char tag)
{
        holds(block, min_of(bytes, (size_t)LOOK_BYTES), tag);
}

static const size_t sizes[] = {1, 8, 100, 256, 1000, 4000, 4096, 9000, 40000, 3 << 20, 33 << 20};

static void by_size(gfp_t flags)
{
        void *blocks[array_size(sizes)];

        for (size_t i = 0; i < array_size(sizes); i++) {
                errno = 0;
                blocks[i] = i % 2 ? kmalloc(sizes[i], flags) : kcalloc(1, sizes[i], flags);
                if (!there(blocks[i]))
                        continue;
                check(ksize(blocks[i]) >= sizes[i]);
                if (i % 2 == 0)
                        holds_start(blocks[i], sizes[i], 0);
                fill_ends(blocks[i], sizes[i], (unsigned char)(i + 1));
        }
        for (size_t i = 0; i < array_size(sizes); i++)
                if (blocks[i])
                        holds_start(blocks[i], sizes[i], (unsigned char)(i + 1));
        kfree_bulk(array_size(blocks), blocks);
}

typedef void *resize_call(void *block, size_t size);

static void *by_krealloc(void *block, size_t size)
{
        return krealloc(block, size, QUIET);
}

static void *by_krealloc_accounted(void *block, size_t size)
{
        return krealloc(block, size, QUIET | __GFP_ACCOUNT);
}

static void *by_realloc(void *block, size_t size)
{
        return realloc(block, size);
}

/* The old block stays as it is when there is none of the new size. */
static void resized(resize_call *resize)
{
        static const size_t steps[] = {24,       200,      3000, 40000,   70000, 1 << 18,
                                       34 << 20, 40 << 20, 100,  1 << 17, 64};
        void *block = NULL;
        size_t old = 0;

        for (size_t i = 0; i < array_size(steps); i++) {
                unsigned char tag = (unsigned char)(i + 1);
                void *after;

                errno = 0;
                after = resize(block, steps[i]);
                if (!there(after)) {
                        if (block)
                                holds_start(block, old, tag - 1);
                        check(!block || ksize(block) >= old);
                        if (block)
                                fill_ends(block, old, tag);
                        continue;
                }
                holds_start(after, min_of(old, steps[i]), tag - 1);
                block = after;
                old = steps[i];
                fill_ends(block, old, tag);
        }
        kfree(block);
}

static void copies(void)
{
        char *copy;

        errno = 0;
        copy = kmemdup("0123456789", 10, QUIET);
        check(!there(copy) || memcmp(copy, "0123456789", 10) == 0);
        kfree(copy);
        cool();
        errno = 0;
        copy = kstrdup("one two three", QUIET);
        check(!there(copy) || strcmp(copy, "one two three") == 0);
        kfree_sensitive(copy);
        errno = 0;
        copy = kvcalloc(7, 3000, QUIET);
        if (there(copy))
                holds(copy, 21000, 0);
        kvfree(copy);
        errno = 0;
        copy = kmem_pages_alloc(QUIET | __GFP_ZERO, 3);
        if (there(copy)) {
                check_equal((uintptr_t)copy % 32768, 0);
                holds(copy, 32768, 0);
        }
        kfree(copy);
}

/* ---- The drop-in ----------------------------------------------------------------------------- */

static void of_malloc(void)
{
        static const size_t aligns[] = {16, 64, 1024, 4096, 65536, 8 << 20};
        void *blocks[3 * array_size(aligns)] = {NULL};
        size_t count = 0;

        for (size_t i = 0; i < array_size(aligns); i++) {
                void *mark = &blocks;
                void *block;
                int error;

                errno = 0;
                block = memalign(aligns[i], 5000 * i + 10);
                if (there(block))
                        check_equal((uintptr_t)block % aligns[i], 0);
                blocks[count++] = block;

                block = mark;
                errno = 0;
                error = posix_memalign(&block, aligns[i], 300 * i + 10);
                check_equal(errno, 0);
                check(error == 0 || (error == ENOMEM && block == mark));
                errno = error;
                if (there(error ? NULL : block)) {
                        check_equal((uintptr_t)block % aligns[i], 0);
                        blocks[count++] = block;
                }

                errno = 0;
                block = calloc(30, 37 * i + 1);
                if (there(block))
                        holds(block, 30 * (37 * i + 1), 0);
                blocks[count++] = block;
        }
        while (count)
                free(blocks[--count]);
        cool();
        resized(by_realloc);
}

/* ---- Pools ----------------------------------------------------------------------------------- */

/* Promised objects are there, whatever fails. */
static void drain_pool(mempool_t *pool)
{
        void *elements[40];
        int promised = pool->curr_nr;

        check(promised <= (int)array_size(elements));
        for (int i = 0; i < promised; i++) {
                errno = 0;
                elements[i] = mempool_alloc(pool, GFP_NOWAIT);
                check(elements[i]);
        }
        for (int i = 0; i < promised; i++)
                mempool_free(elements[i], pool);
        /* A reserve that was short has kept the objects that came back. */
        check(pool->curr_nr >= promised);
}

static void use_pool(mempool_t *pool)
{
        int error;

        if (!there(pool))
                return;
        check_equal(pool->min_nr, 6);
        check_equal(pool->curr_nr, 6);
        drain_pool(pool);
        cool();
        error = mempool_resize(pool, 40);
        check(error == 0 || error == -ENOMEM);
        errno = -error;
        there(error ? NULL : pool);
        check_equal(pool->min_nr, error ? 6 : 40);
        check(pool->curr_nr >= 6 && pool->curr_nr <= pool->min_nr);
        if (pool->curr_nr < pool->min_nr)
                complete = false;
        drain_pool(pool);
        check_equal(mempool_resize(pool, 3), 0);
        check_equal(pool->min_nr, 3);
        check_equal(pool->curr_nr, 3);
        mempool_destroy(pool);
}

static void pools(struct kmem_cache *cache)
{
        if (cache) {
                errno = 0;
                use_pool(mempool_create_slab_pool(6, cache));
                inuse_is(cache, 0);
        }
        errno = 0;
        use_pool(mempool_create_kmalloc_pool(6, 700));
        errno = 0;
        use_pool(mempool_create_page_pool(6, 1));
}

/* ---- Groups ---------------------------------------------------------------------------------- */

static size_t unowned_before; /* in all groups of earlier steps */

static void group_holds(struct kmem_group *group, size_t objects)
{
        struct kmem_group_stats stats;

        check_equal(kmem_group_stats(group, &stats), 0);
        check_equal(stats.objects + stats.unowned, objects + unowned_before);
        check_equal(stats.refusals, 0);
        check(stats.objects || !stats.bytes);
        /* Given out without a charge is a failure too: the call did less than it was asked for. */
        complete &= stats.unowned == 0;
}

static void group_is_empty(struct kmem_group *group)
{
        struct kmem_group_stats stats;

        check_equal(kmem_group_stats(group, &stats), 0);
        check_equal(stats.objects, 0);
        check_equal(stats.bytes, 0);
        check_equal(stats.refusals, 0);
        unowned_before = stats.unowned;
}

static void use_group(struct kmem_group *group, struct objects *account, struct objects *plain)
{
        struct objects *const both[] = {account, plain};

        unowned_before = 0;
        group_is_empty(group);
        check_equal(kmem_group_set(group), 0);
        for (size_t i = 0; i < array_size(both); i++) {
                gfp_t flags = both[i] == plain ? QUIET | __GFP_ACCOUNT : QUIET;

                if (!both[i]->cache)
                        continue;
                cool();
                check_equal(both[i]->count, 0);
                for (int taken = 0; taken < 20; taken++)
                        take(both[i], flags);
                take_bulk(both[i], flags, 40);
                group_holds(group, both[i]->count);
                on_helper(drop_half, both[i]);
                drop_bulk(both[i]);
                group_is_empty(group);
        }
        cool();
        by_size(QUIET | __GFP_ACCOUNT);
        group_is_empty(group);
        resized(by_krealloc_accounted);
        group_is_empty(group);
        check_equal(kmem_group_set(NULL), group);
}

static void groups(struct objects *account, struct objects *plain)
{
        struct kmem_group *parent;
        struct kmem_group *group;

        errno = 0;
        parent = kmem_group_create("fail-parent", NULL, 0);
        if (!there(parent))
                return;
        errno = 0;
        group = kmem_group_create("fail-group", parent, (size_t)1 << 30);
        if (there(group)) {
                use_group(group, account, plain);
                unowned_before = 0;
                group_is_empty(parent);
                check_equal(kmem_group_destroy(group), 0);
        }
        check_equal(kmem_group_destroy(parent), 0);
}

/* ---- After a grace period -------------------------------------------------------------------- */

struct deferred {
        char bytes[48];
        struct kmem_rcu_head head;
};

static void deferred(struct kmem_cache *cache)
{
        for (int i = 0; i < 50; i++) {
                struct deferred *one;

                errno = 0;
                one = kmalloc(sizeof(*one) + (size_t)i * 8, QUIET);
                if (!there(one))
                        continue;
                if (i % 2)
                        kfree_rcu(one, head);
                else
                        kfree_rcu(one);
        }
        /* Engine slob's kfree takes no objects of caches (S5-32). */
        for (int i = 0; cache && !cache->engine->shared && i < 50; i++) {
                void *object;

                errno = 0;
                object = kmem_cache_alloc(cache, QUIET);
                if (there(object))
                        kfree_rcu(object);
        }
        kfree_rcu_barrier();
        if (cache)
                inuse_is(cache, 0);
}

/* ---- All of it ------------------------------------------------------------------------------- */

bool failure_script_run(void)
{
        static struct objects all[KINDS];

        complete = true;
        for (size_t i = 0; i < KINDS; i++)
                make(&all[i], &kinds[i]);
        for (size_t i = 0; i < KINDS; i++)
                use_cache(&all[i]);
        by_size(QUIET);
        cool();
        resized(by_krealloc);
        copies();
        cool();
        of_malloc();
        for (size_t i = 0; i < KINDS; i++)
                while (all[i].count)
                        drop(&all[i]);
        cool();
        pools(all[PLAIN].cache);
        cool();
        deferred(all[TYPESAFE].cache);
        groups(&all[ACCOUNT], &all[PLAIN]);
        walk(all[PLAIN].cache);
        for (size_t i = 0; i < KINDS; i++)
                kmem_cache_destroy(all[i].cache);
        return complete;
}
