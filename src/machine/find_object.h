/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * The dynamic linker's object at an address, as glibc tells it from 2.35 on. Older headers lack the
 * type, and older_libc.c answers on older releases.
 */
#ifndef KMEM_MACHINE_FIND_OBJECT_H
#define KMEM_MACHINE_FIND_OBJECT_H

#include "lang/compiler.h"

struct link_map;

/* As glibc's struct dl_find_object. */
struct found_object {
        unsigned long long flags;
        void *begin;
        void *end;
        struct link_map *map; /* from glibc alone */
        void *frames;         /* segment PT_GNU_EH_FRAME */
        unsigned long long reserved[7];
};

/*
 * 0 if there is one. NULL in a libc that lacks it, unless older_libc.c is there. glibc declares it with
 * its own type.
 */
extern int find_object(void *address, struct found_object *found) __asm__("_dl_find_object")
        __attribute__((weak));

#endif
