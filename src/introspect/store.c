/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Changes the attributes that can be written (S9.1). All under cache_mutex. */
#include "introspect/attributes.h"

#include "introspect/counters.h"
#include "engines/slub/slab.h"
#include "heap/failslab.h"
#include "lang/number.h"
#include "percpu/figures.h"
#include "profile/guard.h"

#include <errno.h>

/*
 * Reads a decimal number as the kernel does: a plus sign, digits, a newline, of which only the
 * digits are required. ERANGE above @most.
 */
static int parse_number(const char *text, uint64_t most, uint64_t *number)
{
        enum number_found found;

        if (*text == '+')
                text++;
        found = number_scan(&text, 10, number);
        if (found == NUMBER_NONE || text[*text == '\n'])
                return EINVAL;
        return found == NUMBER_READ && *number <= most ? 0 : ERANGE;
}

/* Reads 0 or 1. */
static int parse_switch(const char *text, bool *on)
{
        if ((*text != '0' && *text != '1') || text[1 + (text[1] == '\n')])
                return EINVAL;
        *on = *text == '1';
        return 0;
}

/* Sets min_partial. The other engines keep no empty slabs on partial lists and take 0 only. */
int store_min_partial(const struct attribute *attribute, struct kmem_cache *cache,
                      const char *value)
{
        uint64_t slabs;
        int error = parse_number(value, UINT64_MAX, &slabs);

        if (error)
                return error;
        if (slabs && cache->engine->number != ENGINE_SLUB)
                return EINVAL;
        store_relaxed(&cache->min_partial, slabs);
        return 0;
}

/* Sets cpu_partial (S2-33). */
int store_cpu_partial(const struct attribute *attribute, struct kmem_cache *cache,
                      const char *value)
{
        uint64_t objects;
        int error = parse_number(value, UINT32_MAX, &objects);

        if (error)
                return error;
        if (!cache->has_cpu_partial)
                return objects ? EINVAL : 0;
        slub_set_cpu_partial(cache, (uint32_t)objects);
        /* If fences are refused, other slots keep their sheaves, but their lists are flushed. */
        percpu_flush(cache, false);
        return 0;
}

/* Checks the cache's slabs (S10-30). */
int store_validate(const struct attribute *attribute, struct kmem_cache *cache, const char *value)
{
        bool on;

        if (parse_switch(value, &on) || !on || !cache->engine->validate)
                return EINVAL;
        cache->engine->validate(cache);
        return 0;
}

int store_shrink(const struct attribute *attribute, struct kmem_cache *cache, const char *value)
{
        bool on;

        if (parse_switch(value, &on) || !on)
                return EINVAL;
        cache_shrink(cache);
        return 0;
}

/*
 * Sets failslab. A cache with this attribute is not merged with others any more, so a merged cache
 * cannot get it.
 */
int store_failslab(const struct attribute *attribute, struct kmem_cache *cache, const char *value)
{
        bool on;
        int error = cache->references > 1 ? EINVAL : parse_switch(value, &on);

        /* FAULT-2 */
        if (!error && on && failslab_is_on())
                error = percpu_close(cache);
        if (!error)
                store_relaxed(&cache->failslab, on);
        return error;
}

int store_defrag_ratio(const struct attribute *attribute, struct kmem_cache *cache,
                       const char *value)
{
        uint64_t percent;
        int error = parse_number(value, attribute->most, &percent);

        if (!error)
                store_relaxed(&cache->remote_node_defrag_ratio, (uint32_t)percent * 10);
        return error;
}

int store_skip_kfence(const struct attribute *attribute, struct kmem_cache *cache,
                      const char *value)
{
        bool on;
        int error = parse_switch(value, &on);

        if (error || on == cache->skip_kfence)
                return error;
        store_relaxed(&cache->skip_kfence, on);
        /* Objects that rest in sheaves were not decided while skip_kfence was set. */
        if (!on)
                percpu_flush(cache, false);
        return 0;
}

static int parse_rate(const char *value, uint64_t *rate)
{
        int error = parse_number(value, GUARD_RATE_MOST, rate);

        if (!error && *rate && !guards_init())
                error = ENOMEM;
        return error;
}

int store_guard_sampling(const struct attribute *attribute, struct kmem_cache *cache,
                         const char *value)
{
        uint64_t rate;
        int error = parse_rate(value, &rate);

        (void)attribute;
        if (error)
                return error;
        guard_note_rate((uint32_t)rate);
        store_relaxed(&cache->guard_rate, (uint32_t)rate);
        return 0;
}

int guards_set_locked(const char *value)
{
        uint64_t rate;
        int error = parse_rate(value, &rate);
        struct list *node;

        if (error)
                return error;
        guard_rate_of_new = (uint32_t)rate;
        store_relaxed(&guard_gate_rate, (uint32_t)rate);
        list_for_each (node, &cache_list) {
                struct kmem_cache *cache = container_of(node, struct kmem_cache, list);

                store_relaxed(&cache->guard_rate, (uint32_t)rate);
                figures_show_cache(cache);
        }
        return 0;
}

/*
 * Sets sheaf_capacity, which the kernel does not have. In engine slab the capacity is the tunable
 * limit, on which other figures depend, and slob has none. Debug caches have none either, and no
 * room for it.
 */
int store_sheaf_capacity(const struct attribute *attribute, struct kmem_cache *cache,
                         const char *value)
{
        uint64_t objects;
        int error = parse_number(value, UINT32_MAX, &objects);

        if (error)
                return error;
        if (cache->engine->number != ENGINE_SLUB)
                return objects == cache->sheaf_capacity ? 0 : EINVAL;
        if (objects > cache->sheaf_room)
                return ERANGE;
        if (cache->engine->caching == CACHING_SHEAVES)
                percpu_change_capacity(cache, (uint32_t)objects);
        return 0;
}

/* Resets a counter (S9.2): only the first character counts, and it must be 0. */
int store_counter(const struct attribute *attribute, struct kmem_cache *cache, const char *value)
{
        if (*value != '0')
                return EINVAL;
        counters_reset(cache, (enum slub_counter)attribute->place);
        return 0;
}
