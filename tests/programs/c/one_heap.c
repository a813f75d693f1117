/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Under the drop-in, a library libkmem.so (argv[1]) that is opened later shares its heap: kfree
 * takes what malloc gave and free takes what kmalloc gave.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <malloc.h>

#include <kmem.h>

#include "check.h"

int main(int argc, char **argv)
{
        __typeof__(&kmalloc) allocate;
        __typeof__(&krealloc) resize;
        __typeof__(&kfree) release;
        __typeof__(&ksize) size_of;
        void *library;

        check(argc == 2);
        watchdog(60);
        library = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
        if (!library)
                dprintf(STDERR_FILENO, "%s\n", dlerror());
        check(library != NULL);
        allocate = (__typeof__(&kmalloc))dlsym(library, "kmalloc");
        resize = (__typeof__(&krealloc))dlsym(library, "krealloc");
        release = (__typeof__(&kfree))dlsym(library, "kfree");
        size_of = (__typeof__(&ksize))dlsym(library, "ksize");
        check(allocate && resize && release && size_of);

        for (size_t bytes = 1; bytes < (64u << 20); bytes += bytes / 3 + 1) {
                unsigned char *from_malloc = opaque(malloc(bytes));
                unsigned char *from_kmalloc = opaque(allocate(bytes, GFP_KERNEL));

                check(from_malloc != NULL && from_kmalloc != NULL);
                from_malloc[0] = from_malloc[bytes - 1] = 1;
                from_kmalloc[0] = from_kmalloc[bytes - 1] = 2;
                check(size_of(from_malloc) == malloc_usable_size(from_malloc));
                check(size_of(from_kmalloc) == malloc_usable_size(from_kmalloc));
                from_malloc = resize(from_malloc, bytes + 100, GFP_KERNEL);
                from_kmalloc = realloc(from_kmalloc, bytes + 100);
                check(from_malloc != NULL && from_malloc[0] == 1 && from_malloc[bytes - 1] == 1);
                check(from_kmalloc != NULL && from_kmalloc[0] == 2 && from_kmalloc[bytes - 1] == 2);
                release(opaque(from_malloc));
                free(opaque(from_kmalloc));
        }
        check(dlclose(library) == 0);
        puts("ok");
        return 0;
}
