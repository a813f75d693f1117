/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Under the drop-in, a library libkmem.so (argv[1]) that is opened later shares its heap: kfree
 * takes blocks of malloc, and free takes blocks of kmalloc. A request that a group's limit refuses
 * does not lead to a message there, either. krealloc there clears what __GFP_ZERO asks for, and the two
 * libraries have one lock for a pool. glibc's calls show the heap, whichever library has it. With argv[2]
 * it resizes a pointer that is no block.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <malloc.h>
#include <pthread.h>

#include <kmem.h>

#include "check.h"

/* The library's, not the drop-in's. */
static void *function(void *library, const char *name)
{
        void *found = dlsym(library, name);

        check(found != NULL);
        return found;
}

static void use_group(void *library)
{
        __typeof__(&kmalloc) allocate = function(library, "kmalloc");
        __typeof__(&kmem_group_create) create = function(library, "kmem_group_create");
        __typeof__(&kmem_group_set) enter = function(library, "kmem_group_set");
        __typeof__(&kmem_group_destroy) destroy = function(library, "kmem_group_destroy");
        struct kmem_group *group = create("group", NULL, 1000);

        check(group && !enter(group));
        check(!allocate(100000, GFP_KERNEL_ACCOUNT) && errno == ENOMEM);
        check(enter(NULL) == group && destroy(group) == 0);
}

/* Bytes of the block before it shrank, and of the freed blocks whose memory it gets, are not seen again. */
static void resize_cleared(void *library)
{
        __typeof__(&krealloc) resize = function(library, "krealloc");
        __typeof__(&kzalloc) zeroed = function(library, "kzalloc");

        for (size_t bytes = 8; bytes < (1u << 20); bytes *= 3) {
                unsigned char *block = memset(opaque(malloc(3 * bytes)), 1, 3 * bytes);

                free(opaque(block));
                block = memset(zeroed(bytes, GFP_KERNEL), 2, bytes);
                block = resize(block, bytes / 2, GFP_KERNEL | __GFP_ZERO);
                check(block != NULL);
                block = resize(block, 3 * bytes, GFP_KERNEL | __GFP_ZERO);
                check(block != NULL && block[bytes / 2 - 1] == 2);
                for (size_t at = bytes / 2; at < 3 * bytes; at++)
                        check(block[at] == 0);
                free(opaque(block));
        }
}

enum { RESERVED = 4, ROUNDS = 1000000 };

static mempool_t pool;

struct pool_calls {
        __typeof__(&mempool_alloc) take;
        __typeof__(&mempool_free) give;
};

static struct pool_calls pool_calls_of(void *library)
{
        return (struct pool_calls){function(library, "mempool_alloc"),
                                   function(library, "mempool_free")};
}

static void *new_element(gfp_t flags, void *pool_data)
{
        static unsigned int elements[RESERVED];
        static unsigned int count;

        (void)flags;
        (void)pool_data;
        return count < RESERVED ? &elements[count++] : NULL;
}

static void no_free(void *element, void *pool_data)
{
        (void)pool_data;
        check(element == NULL); /* all elements belong to the reserve */
}

static void *use_elements(void *argument)
{
        const struct pool_calls *calls = argument;

        for (unsigned int round = 0; round < ROUNDS; round++) {
                unsigned int *element = calls->take(&pool, 0);

                check(element != NULL);
                check(__atomic_exchange_n(element, 1, __ATOMIC_RELAXED) == 0);
                __atomic_store_n(element, 0, __ATOMIC_RELAXED);
                calls->give(element, &pool);
        }
        return NULL;
}

/* A thread in each library takes elements of a pool and gives them back. */
static void use_pool(void *library)
{
        struct pool_calls own = pool_calls_of(RTLD_DEFAULT);
        struct pool_calls other = pool_calls_of(library);
        __typeof__(&mempool_init) init = function(library, "mempool_init");
        pthread_t thread;

        check(init(&pool, RESERVED, new_element, no_free, NULL) == 0);
        check(pthread_create(&thread, NULL, use_elements, &other) == 0);
        use_elements(&own);
        check(pthread_join(thread, NULL) == 0);
        check(pool.curr_nr == RESERVED);
}

static void look_at_heap(void)
{
        enum { BLOCKS = 4000, BYTES = 1000 };
        static void *blocks[BLOCKS];
        FILE *stream = fopen("/dev/null", "w");

        check(stream != NULL);
        for (unsigned int i = 0; i < BLOCKS; i++)
                blocks[i] = memset(opaque(malloc(BYTES)), 1, BYTES);
        check(mallinfo2().uordblks >= BLOCKS * BYTES);
        check(malloc_info(0, stream) == 0);
        check(fclose(stream) == 0);
        for (unsigned int i = 0; i < BLOCKS; i++)
                free(blocks[i]);
        check(malloc_trim(0) == 1);
}

static void resize_no_block(void *library)
{
        static char no_block[64];
        __typeof__(&krealloc) resize = function(library, "krealloc");

        check(!resize(opaque(no_block), 100, GFP_KERNEL) && errno == EINVAL);
}

int main(int argc, char **argv)
{
        __typeof__(&kmalloc) allocate;
        __typeof__(&krealloc) resize;
        __typeof__(&kfree) release;
        __typeof__(&ksize) size_of;
        __typeof__(&kmalloc_size_roundup) round;
        void *library;

        check(argc == 2 || argc == 3);
        watchdog(60);
        library = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
        if (!library)
                dprintf(STDERR_FILENO, "%s\n", dlerror());
        check(library != NULL);
        allocate = function(library, "kmalloc");
        resize = function(library, "krealloc");
        release = function(library, "kfree");
        size_of = function(library, "ksize");
        round = function(library, "kmalloc_size_roundup");

        for (size_t bytes = 1; bytes < (64u << 20); bytes += bytes / 3 + 1) {
                unsigned char *from_malloc = opaque(malloc(bytes));
                unsigned char *from_kmalloc = opaque(allocate(bytes, GFP_KERNEL));

                check(from_malloc != NULL && from_kmalloc != NULL);
                from_malloc[0] = from_malloc[bytes - 1] = 1;
                from_kmalloc[0] = from_kmalloc[bytes - 1] = 2;
                check(size_of(from_malloc) == malloc_usable_size(from_malloc));
                check(size_of(from_kmalloc) == malloc_usable_size(from_kmalloc));
                /* A kept mapping of a freed block may be larger than it must. */
                check(bytes > 1 << 20 || size_of(from_kmalloc) == round(bytes));
                from_malloc = resize(from_malloc, bytes + 100, GFP_KERNEL);
                from_kmalloc = realloc(from_kmalloc, bytes + 100);
                check(from_malloc != NULL && from_malloc[0] == 1 && from_malloc[bytes - 1] == 1);
                check(from_kmalloc != NULL && from_kmalloc[0] == 2 && from_kmalloc[bytes - 1] == 2);
                release(opaque(from_malloc));
                free(opaque(from_kmalloc));
        }
        look_at_heap();
        use_group(library);
        resize_cleared(library);
        use_pool(library);
        if (argc == 3)
                resize_no_block(library);
        check(dlclose(library) == 0);
        puts("ok");
        return 0;
}
