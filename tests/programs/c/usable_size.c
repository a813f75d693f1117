/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Writes the whole usable size of objects; built with -O2 -D_FORTIFY_SOURCE=3, under which libc
 * ends the program when a write exceeds what the compiler can derive of the object's size.
 */
#include <malloc.h>

#include "check.h"

#define OBJECTS 4000

/* Not inlined and without alloc_size, so that the compiler does not know the size of the block. */
static __attribute__((noinline)) void *unknown_size(size_t bytes)
{
        return opaque(malloc(bytes));
}

/* Neighbours must not overlap when each is written up to its usable size. */
static void fill_whole_objects(size_t step)
{
        static struct {
                unsigned char *address;
                size_t bytes;
        } objects[OBJECTS];

        for (size_t i = 0; i < OBJECTS; i++) {
                size_t asked = i % 500 * step;

                objects[i].address = unknown_size(asked);
                check(objects[i].address != NULL);
                objects[i].bytes = malloc_usable_size(objects[i].address);
                check(objects[i].bytes >= asked);
                memset(objects[i].address, (int)(i % 251), objects[i].bytes);
        }
        for (size_t i = 0; i < OBJECTS; i++) {
                check(intact(objects[i].address, objects[i].bytes, (unsigned char)(i % 251)));
                check(malloc_usable_size(objects[i].address) == objects[i].bytes);
                free(objects[i].address);
        }
}

/* Writes that the compiler can bound: first the requested size, then the usable size by realloc. */
static void grow_to_usable(size_t asked)
{
        char *object = malloc(asked);
        char *grown;
        size_t usable;

        check(object != NULL);
        memset(object, 0x11, asked);
        check(__builtin_dynamic_object_size(object, 0) == asked);
        usable = malloc_usable_size(object);
        grown = realloc(object, usable);
        check(grown != NULL);
        memset(grown + asked, 0x22, usable - asked);
        check(intact(grown, asked, 0x11));
        check(intact(grown + asked, usable - asked, 0x22));
        check(malloc_usable_size(grown) >= usable);
        free(grown);
}

int main(int argc, char **argv)
{
        (void)argv;
        watchdog(120);
        check(malloc_usable_size(NULL) == 0);
        fill_whole_objects(1);
        fill_whole_objects(17);
        fill_whole_objects(300);
        for (size_t asked = 1; asked < 100000; asked += asked / 3 + (size_t)argc)
                grow_to_usable(asked);
        puts("ok");
        return 0;
}
