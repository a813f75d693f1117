/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Changing the attributes that can be written (S9.1). All under cache_mutex.
 */
#include "introspect/attributes.h"

#include "introspect/counters.h"
#include "engines/slub/slab.h"
#include "heap/failslab.h"
#include "lang/number.h"

#include <errno.h>

/*
 * A decimal number as the kernel reads it: a plus sign, digits, a newline, of which the digits
 * must be there. ERANGE above @most.
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

/* One of two digits. */
static int parse_switch(const char *text, bool *on)
{
        if ((*text != '0' && *text != '1') || text[1 + (text[1] == '\n')])
                return EINVAL;
        *on = *text == '1';
        return 0;
}

/* The other engines keep no empty slabs on partial lists and take 0 only. */
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

/* S2-33 */
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
        /* Where fences are refused others keep their sheaves; their lists are flushed all the same. */
        percpu_flush(cache, false);
        return 0;
}

/* S10-30 */
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

/* A marked cache is not merged with others any more, so one that has been cannot be marked. */
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
        /* What rests in sheaves was not decided. */
        if (!on)
                percpu_flush(cache, false);
        return 0;
}

/*
 * Ours. In engine slab the capacity is the tunable limit, which stands for other figures too, and
 * slob has none. Debug caches have none either, and no room for any.
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

/* S9.2: only the first character counts, and it must be 0. */
int store_counter(const struct attribute *attribute, struct kmem_cache *cache, const char *value)
{
        if (*value != '0')
                return EINVAL;
        counters_reset(cache, (enum slub_counter)attribute->place);
        return 0;
}
