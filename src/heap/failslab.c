/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Option failslab: decides for each request whether it fails, in the order of the kernel's rule:
 * times, space, interval, probability.
 */
#include "heap/failslab.h"

#include "machine/message.h"
#include "machine/random.h"

enum { MESSAGES = 10, PERCENT = 100 };

static uint64_t space_used; /* bytes that were let through for the rule's space */
static uint64_t requests;
static uint64_t faults;
static uint64_t draws;

/*
 * Whether the request passes because of the rule's space: as long as it leaves some of the space,
 * it takes its bytes from it.
 */
static bool fits_space(const struct failslab_rule *rule, uint32_t bytes)
{
        uint64_t used = load_relaxed(&space_used);

        if (rule->space <= used || rule->space - used <= bytes)
                return false;
        add_relaxed(&space_used, bytes);
        return true;
}

bool failslab_fails(const struct kmem_cache *cache, gfp_t flags)
{
        const struct failslab_rule *rule = &options.failslab;
        uint64_t fault;

        if (likely(!failslab_is_on()) || !load_relaxed(&cache->failslab) || flags & __GFP_NOFAIL)
                return false;
        if (load_relaxed(&faults) >= rule->times || fits_space(rule, cache->object_size))
                return false;
        if (add_relaxed(&requests, 1) % rule->interval)
                return false;
        if (random_next(&draws) % PERCENT >= rule->probability)
                return false;
        fault = add_relaxed(&faults, 1);
        if (fault > rule->times)
                return false;
        if (!(flags & __GFP_NOWARN) && fault <= MESSAGES)
                message("cache \"%s\": option failslab makes a request fail, gfp=0x%x", cache->name,
                        flags);
        return true;
}
