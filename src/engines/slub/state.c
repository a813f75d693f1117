/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * The table of state.h, checked in debug builds.
 */
#include "engines/slub/state.h"

#ifdef KMEM_DEBUG_CHECKS

static const char *const stage_names[SLAB_STAGES] = {
        [STAGE_NEW] = "new",
        [STAGE_CPU] = "CPU slab",
        [STAGE_CPU_PARTIAL] = "CPU partial",
        [STAGE_NODE_PARTIAL] = "node partial",
        [STAGE_TRANSIT] = "in transit",
        [STAGE_FULL] = "full",
        [STAGE_GONE] = "gone",
        [STAGE_DISABLED] = "disabled",
};

/* The stages that may follow each stage, as bits. */
static const uint8_t next_stages[SLAB_STAGES] = {
        [STAGE_NEW] = 1 << STAGE_CPU | 1 << STAGE_FULL,
        [STAGE_CPU] = 1 << STAGE_CPU | 1 << STAGE_FULL | 1 << STAGE_TRANSIT,
        [STAGE_CPU_PARTIAL] = 1 << STAGE_CPU | 1 << STAGE_TRANSIT,
        [STAGE_NODE_PARTIAL] = 1 << STAGE_TRANSIT,
        [STAGE_TRANSIT] =
                1 << STAGE_CPU | 1 << STAGE_CPU_PARTIAL | 1 << STAGE_NODE_PARTIAL | 1 << STAGE_GONE,
        [STAGE_FULL] = 1 << STAGE_TRANSIT,
        [STAGE_GONE] = 0,
        [STAGE_DISABLED] = 0,
};

/* As next_stages, without CPU slabs (refill.c). */
static const uint8_t node_next_stages[SLAB_STAGES] = {
        [STAGE_NEW] = 1 << STAGE_FULL | 1 << STAGE_TRANSIT,
        [STAGE_NODE_PARTIAL] = 1 << STAGE_TRANSIT,
        [STAGE_TRANSIT] = 1 << STAGE_FULL | 1 << STAGE_NODE_PARTIAL | 1 << STAGE_GONE,
        [STAGE_FULL] = 1 << STAGE_TRANSIT,
};

/* As next_stages, for the back end that changes these slabs under list_lock only: debug caches. */
static const uint8_t locked_next_stages[SLAB_STAGES] = {
        [STAGE_NEW] = 1 << STAGE_TRANSIT,
        [STAGE_NODE_PARTIAL] = 1 << STAGE_TRANSIT,
        [STAGE_FULL] = 1 << STAGE_TRANSIT,
        [STAGE_TRANSIT] =
                1 << STAGE_NODE_PARTIAL | 1 << STAGE_FULL | 1 << STAGE_GONE | 1 << STAGE_DISABLED,
};

/* Whether a slab with this state word may be in the stage. */
static bool stage_fits(const struct kmem_cache *cache, const struct page *slab,
                       struct slab_state state, enum slab_stage stage)
{
        switch (stage) {
        case STAGE_CPU:
                return state.frozen && !slab->node_partial;
        case STAGE_CPU_PARTIAL:
                return state.frozen == cache->freeze_eagerly && !slab->node_partial &&
                       state.head != INDEX_END;
        case STAGE_NODE_PARTIAL:
                return !state.frozen && slab->node_partial && state.head != INDEX_END;
        case STAGE_TRANSIT:
                return !state.frozen || cache->freeze_eagerly;
        case STAGE_FULL:
                return !state.frozen && !slab->node_partial && state.head == INDEX_END;
        case STAGE_GONE:
                return !state.frozen && !slab->node_partial && state.inuse == 0;
        case STAGE_DISABLED:
                return state.frozen && !slab->node_partial && state.head == INDEX_END;
        default:
                return true;
        }
}

void slab_check_way(const struct kmem_cache *cache, const struct page *slab,
                    struct slab_state state, enum slab_stage from, enum slab_stage to)
{
        const uint8_t *next = cache->engine == &slub_engine        ? next_stages
                              : cache->engine == &slub_node_engine ? node_next_stages
                                                                   : locked_next_stages;

        if (from == STAGE_ANY && to == STAGE_ANY)
                return;
        if (from >= SLAB_STAGES || to >= SLAB_STAGES || !(next[from] >> to & 1))
                message_fatal("slab %u of cache \"%s\": illegal transition from %s to %s",
                              page_number(slab), cache->name,
                              from < SLAB_STAGES ? stage_names[from] : "any",
                              to < SLAB_STAGES ? stage_names[to] : "any");
        if (!stage_fits(cache, slab, state, to))
                message_fatal("slab %u of cache \"%s\": from %s to %s with frozen %u, "
                              "node_partial %u, %u of %u objects in use",
                              page_number(slab), cache->name, stage_names[from], stage_names[to],
                              state.frozen, slab->node_partial, state.inuse, state.objects);
}

#endif
