/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Objects of a file system in memory, in the manner of inodes: found by number, kept while
 * unused, written back when dirty, given up when memory is wanted.
 */
#ifndef TESTS_KERNEL_OBJCACHE_H
#define TESTS_KERNEL_OBJCACHE_H

#include <linux/types.h>

struct obj;

/* The medium behind the cache, of the user's: both may be called at any time. */
struct obj_store {
        /* Fills in the size of object @number; 0 or a negative error. */
        int (*read)(u64 number, u64 *size);
        void (*write)(u64 number, u64 size);
};

/* Takes a reference, reading the object if it is not cached; or ERR_PTR(). */
struct obj *obj_get(u64 number);
/* As obj_get, but only if it is cached, without locks of the table; else NULL. */
struct obj *obj_find(u64 number);
struct obj *obj_hold(struct obj *obj);
/* The last reference leaves the object cached, on the list of unused objects. */
void obj_put(struct obj *obj);

u64 obj_number(const struct obj *obj);
u64 obj_size(const struct obj *obj);
/* Changes the size and makes the object dirty. */
void obj_resize(struct obj *obj, u64 size);

/* Named attributes: set (NULL takes away), and a copy of the value (kfree it), NULL if unset. */
int obj_set_attribute(struct obj *obj, const char *name, const void *value, u32 bytes);
void *obj_attribute(struct obj *obj, const char *name, u32 *bytes);
/* Whether it is set, without locks. */
bool obj_has_attribute(struct obj *obj, const char *name);
unsigned int obj_attributes(struct obj *obj);

/* Writes up to @count dirty objects back; returns how many. */
unsigned int obj_write_back(unsigned int count);
/* Gives up to @count unused clean objects up, oldest first; returns how many. */
unsigned long obj_shrink(unsigned long count);
/* Unused objects that obj_shrink would look at. */
unsigned long obj_unused(void);
unsigned long obj_cached(void);
unsigned long obj_dirty(void);

void obj_set_store(const struct obj_store *store);

#endif
