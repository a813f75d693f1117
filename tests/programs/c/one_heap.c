/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Under the drop-in, a library libkmem.so (argv[1]) that is opened later shares its heap: kfree
 * takes blocks of malloc, and free takes blocks of kmalloc. A request that a group's limit refuses
 * does not lead to a message there, either. With argv[2] it frees a pointer that is no block.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <malloc.h>

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
        use_group(library);
        if (argc == 3)
                resize_no_block(library);
        check(dlclose(library) == 0);
        puts("ok");
        return 0;
}
