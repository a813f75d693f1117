/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Both generations of the kernel's order selection: 5.10 (S3.2) lowers its wish for objects until a
 * slab wastes at most a quarter; 6.12 (S3-20 to S3-22) keeps the wish and lets a slab waste a half.
 * Nothing here reads or changes any state.
 */
#include "engines/slub/order.h"

#include "lang/bits.h"

enum {
        ORDER_LIMIT = ORDER_NONE - 1, /* largest order of the page allocator (S3-02) */
        OBJECTS_LIMIT = 32767,        /* 15 bits in a slab's state */
};

static size_t bytes_of(unsigned int order, const struct order_rules *rules)
{
        return (size_t)1 << (rules->page_shift + order);
}

static size_t objects_of(unsigned int order, size_t size, const struct order_rules *rules)
{
        return bytes_of(order, rules) / size;
}

/* The smallest order with room for @bytes (S3-01). */
static unsigned int order_for(size_t bytes, const struct order_rules *rules)
{
        size_t pages = (bytes - 1) >> rules->page_shift;

        return fls(pages);
}

/* Objects that a slab should hold (S3-02, S3-13). */
static size_t wanted_objects(size_t size, const struct order_rules *rules)
{
        size_t objects = rules->min_objects ? rules->min_objects : 4 * (fls(rules->cpus) + 1);

        return min_of(objects, objects_of(rules->max_order, size, rules));
}

static bool too_many(unsigned int order, size_t size, const struct order_rules *rules)
{
        return objects_of(order, size, rules) > OBJECTS_LIMIT;
}

/* The largest order with at most OBJECTS_LIMIT objects. */
static unsigned int order_of_most_objects(size_t size, const struct order_rules *rules)
{
        return order_for(size * OBJECTS_LIMIT, rules) - 1;
}

/* The first order from @floor to @top that wastes at most 1/@fraction of a slab, or ORDER_NONE. */
static unsigned int first_that_fits(size_t size, unsigned int floor, unsigned int top,
                                    unsigned int fraction, const struct order_rules *rules)
{
        for (unsigned int order = floor; order <= top; order++)
                if (bytes_of(order, rules) % size <= bytes_of(order, rules) / fraction)
                        return order;
        return ORDER_NONE;
}

static unsigned int search_5_10(size_t size, size_t objects, unsigned int top,
                                unsigned int fraction, const struct order_rules *rules)
{
        unsigned int floor = max_of(rules->min_order, order_for(size * objects, rules));

        if (too_many(rules->min_order, size, rules))
                return order_of_most_objects(size, rules);
        return first_that_fits(size, floor, top, fraction, rules);
}

static unsigned int order_5_10(size_t size, const struct order_rules *rules)
{
        unsigned int order;

        for (size_t objects = wanted_objects(size, rules); objects > 1; objects--)
                for (unsigned int fraction = 16; fraction >= 4; fraction /= 2) {
                        order = search_5_10(size, objects, rules->max_order, fraction, rules);
                        if (order != ORDER_NONE)
                                return order;
                }
        order = search_5_10(size, 1, rules->max_order, 1, rules);
        return order != ORDER_NONE ? order : search_5_10(size, 1, ORDER_LIMIT, 1, rules);
}

/* The order by 6.12's rule (S3-20 to S3-22). */
static unsigned int order_6_12(size_t size, const struct order_rules *rules)
{
        size_t objects = max_of(wanted_objects(size, rules), (size_t)1);
        unsigned int floor = max_of(rules->min_order, order_for(size * objects, rules));

        if (too_many(floor, size, rules))
                return order_of_most_objects(size, rules);
        for (unsigned int fraction = 16; fraction >= 2; fraction /= 2) {
                unsigned int order =
                        first_that_fits(size, floor, rules->max_order, fraction, rules);

                if (order != ORDER_NONE)
                        return order;
        }
        return min_of(order_for(size, rules), (unsigned int)ORDER_NONE);
}

unsigned int slub_order_tight(uint32_t size, const struct order_rules *rules)
{
        unsigned int floor = max_of(rules->min_order, slub_order(size, rules));
        unsigned int top = min_of(rules->max_order + 3, (unsigned int)ORDER_LIMIT);
        unsigned int best = floor;

        for (unsigned int order = floor; order <= top; order++) {
                size_t waste = bytes_of(order, rules) % size;

                if (waste <= bytes_of(order, rules) / 16)
                        return order;
                /* Compared as shares of their slabs. */
                if (waste << (top - order) < bytes_of(best, rules) % size << (top - best))
                        best = order;
        }
        return best;
}

unsigned int slub_order(uint32_t size, const struct order_rules *rules)
{
        return rules->rule == ORDER_RULE_5_10 ? order_5_10(size, rules) : order_6_12(size, rules);
}
