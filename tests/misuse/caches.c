/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Misuse of named caches, and of kmalloc beside malloc; absent in other allocators. Harm: two
 * objects in use overlap, or a cache hands out what is not its own.
 */
#include "misuse.h"

struct kmem_cache;

/* The program is not linked to the library: it runs on other allocators too. */
static struct {
        struct kmem_cache *(*create)(const char *, unsigned int, unsigned int, unsigned long,
                                     void (*)(void *));
        void (*destroy)(struct kmem_cache *);
        void *(*alloc)(struct kmem_cache *, unsigned int);
        void (*free)(struct kmem_cache *, void *);
        void (*free_bulk)(struct kmem_cache *, size_t, void **);
        void *(*kmalloc)(size_t, unsigned int);
        void (*kfree)(const void *);
        void (*kfree_bulk)(size_t, void **);
        void (*free_rcu)(const void *, const void *);
        void (*rcu_barrier)(void);
} call;

static struct kmem_cache *own;
static struct kmem_cache *other;

static void make_caches(size_t bytes, size_t bytes_of_other)
{
        *(void **)&call.create = function_named("kmem_cache_create");
        *(void **)&call.destroy = function_named("kmem_cache_destroy");
        *(void **)&call.alloc = function_named("kmem_cache_alloc");
        *(void **)&call.free = function_named("kmem_cache_free");
        *(void **)&call.free_bulk = function_named("kmem_cache_free_bulk");
        *(void **)&call.kmalloc = function_named("kmalloc");
        *(void **)&call.kfree = function_named("kfree");
        *(void **)&call.kfree_bulk = function_named("kfree_bulk");
        *(void **)&call.free_rcu = function_named("kmem_free_rcu");
        *(void **)&call.rcu_barrier = function_named("kfree_rcu_barrier");
        own = call.create("own", (unsigned int)bytes, 0, 0, NULL);
        other = call.create("other", (unsigned int)bytes_of_other, 0, 0, NULL);
        if (!own || !other)
                absent("no cache");
}

/* Their end takes the objects back, as frees by address would be another misuse. */
static void hold_objects(struct kmem_cache *cache, size_t bytes, void *strange)
{
        enum { MOST = 3000 };
        static char *taken[MOST];
        size_t count = many_of(bytes) < MOST ? many_of(bytes) : MOST;

        for (size_t i = 0; i < count; i++) {
                taken[i] = call.alloc(cache, 0);
                if (!taken[i])
                        absent("no memory");
                harm_if(strange && taken[i] < (char *)strange + bytes &&
                                taken[i] + bytes > (char *)strange,
                        "a block in use was handed out");
                for (size_t j = 0; j < i; j++)
                        if (taken[j] == taken[i]) {
                                harm("an address was handed out twice");
                                break;
                        }
        }
        for (size_t i = 0; i < count; i++)
                call.free(cache, taken[i]);
}

static void twice(size_t bytes)
{
        void *object;

        make_caches(bytes, bytes);
        object = call.alloc(own, 0);
        call.free(own, object);
        call.free(own, object);
        hold_objects(own, bytes, NULL);
}

static void a_b_a(size_t bytes)
{
        void *object;
        void *between;

        make_caches(bytes, bytes);
        object = call.alloc(own, 0);
        between = call.alloc(own, 0);
        call.free(own, object);
        call.free(own, between);
        call.free(own, object);
        hold_objects(own, bytes, NULL);
}

static void in_bulk(size_t bytes)
{
        void *object[2];

        make_caches(bytes, bytes);
        object[0] = object[1] = call.alloc(own, 0);
        call.free_bulk(own, 2, object);
        hold_objects(own, bytes, NULL);
}

static void inside(size_t bytes)
{
        char *object;

        make_caches(bytes, bytes);
        object = call.alloc(own, 0);
        call.free(own, object + 8);
        hold_objects(own, bytes, object);
}

/* The object is its own cache's afterwards, and not the cache's to which it was freed. */
static void to_cache(size_t bytes, size_t bytes_of_other)
{
        void *object;

        make_caches(bytes, bytes_of_other);
        object = call.alloc(own, 0);
        call.free(other, object);
        hold_objects(other, bytes_of_other, object);
        hold_objects(own, bytes, NULL);
}

static void to_equal(size_t bytes)
{
        to_cache(bytes, bytes);
}

static void to_larger(size_t bytes)
{
        to_cache(bytes, 2 * bytes);
}

static void block_to_cache(size_t bytes)
{
        void *block;

        make_caches(bytes, bytes);
        block = take(bytes);
        call.free(own, block);
        hold_objects(own, bytes, block);
}

static void kmalloc_to_cache(size_t bytes)
{
        void *block;

        make_caches(bytes, bytes);
        block = call.kmalloc(bytes, 0);
        call.free(own, block);
        hold_objects(own, bytes, block);
}

/* Allowed since the kernel knows an object's cache by its page; and then a second time. */
static void by_free_then_cache(size_t bytes)
{
        void *object;

        make_caches(bytes, bytes);
        object = call.alloc(own, 0);
        release(object);
        call.free(own, object);
        hold_objects(own, bytes, NULL);
}

static void by_kfree_twice(size_t bytes)
{
        void *object;

        make_caches(bytes, bytes);
        object = call.alloc(own, 0);
        call.kfree(object);
        call.kfree(object);
        hold_objects(own, bytes, NULL);
}

static void kmalloc_twice(size_t bytes)
{
        void *block;

        make_caches(bytes, bytes);
        block = call.kmalloc(bytes, 0);
        call.kfree(block);
        release(block);
        hold_many(bytes);
        harm_if(held_overlap(), "an address was handed out twice");
}

static void kmalloc_in_bulk(size_t bytes)
{
        enum { BLOCKS = 4 };
        void *block[BLOCKS];

        make_caches(bytes, bytes);
        for (int i = 0; i + 1 < BLOCKS; i++)
                block[i] = call.kmalloc(bytes, 0);
        block[BLOCKS - 1] = block[0];
        call.kfree_bulk(BLOCKS, block);
        hold_many(bytes);
        harm_if(held_overlap(), "an address was handed out twice");
}

static void by_rcu(size_t bytes)
{
        char *block;

        make_caches(bytes, bytes);
        block = call.kmalloc(bytes, 0);
        call.free_rcu(block, block);
        call.free_rcu(hide(block), block);
        call.rcu_barrier();
        hold_many(bytes);
        harm_if(held_overlap(), "an address was handed out twice");
}

/* A cache that was destroyed, as another one was behind it. */
static void alloc_of_destroyed(size_t bytes)
{
        make_caches(bytes, 2 * bytes);
        call.free(own, call.alloc(own, 0));
        call.destroy(other);
        call.destroy(own);
        harm_if(hide(call.alloc(hide(own), 0)) != NULL, "a destroyed cache gave an object");
}

static void destroy_twice(size_t bytes)
{
        make_caches(bytes, 2 * bytes);
        call.destroy(own);
        call.destroy(hide(own));
        hold_objects(other, 2 * bytes, NULL);
}

static void stack_to_cache(size_t bytes)
{
        char buffer[512] __attribute__((aligned(64))) = {0};
        void *object = hide(buffer);

        make_caches(bytes, bytes);
        call.free(own, object);
        hold_objects(own, bytes, object);
}

static void destroyed_in_use(size_t bytes)
{
        void *object;

        make_caches(bytes, bytes);
        object = call.alloc(own, 0);
        fill(object, bytes, 'O');
        call.destroy(own);
        hold_objects(other, bytes, object);
        harm_if(!is_filled(object, bytes, 'O'), "an object of the ended cache was changed");
}

static void destroyed_then_freed(size_t bytes)
{
        void *object;

        make_caches(bytes, bytes);
        object = call.alloc(own, 0);
        call.destroy(own);
        call.kfree(object);
        call.kfree(object);
        hold_objects(other, bytes, NULL);
}

static void overflow(size_t bytes)
{
        char *object[64];
        bool changed = false;

        make_caches(bytes, bytes);
        for (int i = 0; i < 64; i++) {
                object[i] = call.alloc(own, 0);
                fill(object[i], bytes, 'N');
        }
        misuse_write(object[32] + bytes, UNIT_BYTES, 'X');
        for (int i = 0; i < 64; i++)
                changed |= !is_filled(object[i], bytes, 'N');
        for (int i = 0; i < 64; i++)
                call.free(own, object[i]);
        harm_if(changed, "another object was changed");
}

static void stale_write(size_t bytes)
{
        char *object;

        make_caches(bytes, bytes);
        object = call.alloc(own, 0);
        call.free(own, object);
        misuse_write(object, bytes < 64 ? bytes : 64, 'W');
        for (int i = 0; i < 200; i++)
                harm_if(count_of(call.alloc(own, 0), 8, 'W') == 8,
                        "a stale write is in a new object");
}

const struct way cache_ways[] = {
        {"caches", "twice", twice, OBJECTS},
        {"caches", "a-b-a", a_b_a, OBJECTS},
        {"caches", "twice-in-bulk", in_bulk, OBJECTS},
        {"caches", "inside-8", inside, OBJECTS},
        {"caches", "to-equal-cache", to_equal, OBJECTS},
        {"caches", "to-larger-cache", to_larger, OBJECTS},
        {"caches", "malloc-to-cache", block_to_cache, OBJECTS},
        {"caches", "kmalloc-to-cache", kmalloc_to_cache, OBJECTS},
        {"caches", "free-then-cache", by_free_then_cache, OBJECTS},
        {"caches", "kfree-twice", by_kfree_twice, OBJECTS},
        {"caches", "kmalloc-twice", kmalloc_twice, OBJECTS},
        {"caches", "kmalloc-in-bulk", kmalloc_in_bulk, OBJECTS},
        {"caches", "rcu-twice", by_rcu, OBJECTS},
        {"caches", "alloc-of-destroyed", alloc_of_destroyed, OBJECTS},
        {"caches", "destroy-twice", destroy_twice, OBJECTS},
        {"caches", "stack-to-cache", stack_to_cache, TINY | SMALL},
        {"caches", "destroyed-in-use", destroyed_in_use, OBJECTS},
        {"caches", "destroyed-then-freed", destroyed_then_freed, OBJECTS},
        {"caches", "overflow-16", overflow, OBJECTS},
        {"caches", "stale-write", stale_write, OBJECTS},
        {0},
};
