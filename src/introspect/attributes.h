/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * The attributes of a cache: a table with the name of each, the function that shows it and the
 * function that changes it (S9). Everything here runs under cache_mutex, so the cache stays.
 */
#ifndef KMEM_INTROSPECT_ATTRIBUTES_H
#define KMEM_INTROSPECT_ATTRIBUTES_H

#include "heap/heap.h"
#include "lang/text.h"

struct attribute {
        const char *name;
        /* Adds the value, without a newline; adds nothing if the attribute reads as empty. */
        void (*show)(const struct attribute *attribute, struct kmem_cache *cache,
                     struct text *text);
        /* Takes a value; 0, or an errno and then nothing has changed. NULL: read only. */
        int (*store)(const struct attribute *attribute, struct kmem_cache *cache,
                     const char *value);
        size_t place; /* the field's place in the struct that show reads; for a counter its
                         number */
        slab_flags_t flag;
        uint64_t most; /* largest value that may be written; 0: the cache decides, or no number */
        bool outside;  /* other processes may ask for it to be changed (docs/attributes.md) */
};

extern KMEM_HIDDEN const struct attribute attributes[];
extern KMEM_HIDDEN const size_t attribute_count;

/* Sets guard_sampling for every cache, and for those to come. */
KMEM_HIDDEN int guards_set_locked(const char *value);

KMEM_HIDDEN const struct attribute *find_attribute(const char *name);
/* Changes an attribute. 0, or an errno: EIO if it is read only. */
KMEM_HIDDEN int attribute_store_locked(const struct attribute *attribute, struct kmem_cache *cache,
                                       const char *value);

/*
 * Whether the cache has the attribute: counters if it counts, as in a kernel with CONFIG_SLUB_STATS
 * (S9.2), traces if it stores users (S9.1), and the number of errors if it is a debug cache.
 */
KMEM_HIDDEN bool attribute_exists(const struct attribute *attribute,
                                  const struct kmem_cache *cache);
/*
 * Writes the value with its newline and a zero byte; returns its length. @bytes is KMEM_ATTR_BYTES
 * or more; only traces use more. Names of functions are still marks (machine/stack.h), to be
 * resolved without cache_mutex.
 */
KMEM_HIDDEN size_t attribute_show_locked(const struct attribute *attribute,
                                         struct kmem_cache *cache, char *text, size_t bytes);

/* show.c; @place is in struct kmem_cache, in struct engine_node_report */
#define SHOW(what)                                                                                 \
        KMEM_HIDDEN void show_##what(const struct attribute *attribute, struct kmem_cache *cache,  \
                                     struct text *text)
SHOW(number);
SHOW(flag);
SHOW(nodes);
SHOW(nothing);
SHOW(engine);
SHOW(min_partial);
SHOW(slabs_cpu_partial);
SHOW(objects);
SHOW(objects_inuse);
SHOW(ctor);
SHOW(aliases);
SHOW(failslab);
SHOW(defrag_ratio);
SHOW(skip_kfence);
SHOW(counter);
SHOW(traces);
SHOW(errors);
#undef SHOW

/* store.c */
#define STORE(what)                                                                                \
        KMEM_HIDDEN int store_##what(const struct attribute *attribute, struct kmem_cache *cache,  \
                                     const char *value)
STORE(min_partial);
STORE(cpu_partial);
STORE(validate);
STORE(shrink);
STORE(failslab);
STORE(defrag_ratio);
STORE(skip_kfence);
STORE(guard_sampling);
STORE(sheaf_capacity);
STORE(counter);
#undef STORE

#endif
