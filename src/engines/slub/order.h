/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * The order of a cache's slabs, computed from numbers alone (S3): the library calls this for its
 * caches, tools/order.c for any machine.
 */
#ifndef KMEM_ENGINES_SLUB_ORDER_H
#define KMEM_ENGINES_SLUB_ORDER_H

#include "base/options.h"

enum { ORDER_NONE = 11 }; /* above the largest order */

/* The numbers that decide an order, beside the size of the objects (S3-02, S3-10). */
struct order_rules {
        enum order_rule rule;
        unsigned int page_shift; /* pages of 1 << page_shift bytes; 12 to 16 */
        unsigned int cpus;       /* CPUs of the machine, 1 or more */
        unsigned int min_order;  /* at most max_order */
        unsigned int max_order;  /* at most 10; exceeded only where an object does not fit */
        uint32_t min_objects;    /* objects that a slab should hold; 0: from cpus (S3-13) */
};

/*
 * Order of slabs of objects that are @size bytes apart, 8 or more (S3-03); ORDER_NONE if an object
 * fits no slab. Pure.
 */
KMEM_HIDDEN unsigned int slub_order(uint32_t size, const struct order_rules *rules);
/*
 * For size classes that no kernel has, of more than a page: the first order, up to three above
 * max_order, that wastes at most a sixteenth of a slab, else the order that wastes least. The
 * kernel's rule can waste nearly half: it gives objects of 18 KiB a slab of 32 KiB each. Pure.
 */
KMEM_HIDDEN unsigned int slub_order_tight(uint32_t size, const struct order_rules *rules);

#endif
