/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Counters and CPU partial lists of a cache, summed over the slots, as the attribute files show
 * them. The parts are read in turn: sums are exact while the cache is at rest.
 */
#ifndef KMEM_INTROSPECT_COUNTERS_H
#define KMEM_INTROSPECT_COUNTERS_H

#include "engines/engine.h"
#include "engines/slub/counters.h"
#include "lang/text.h"

/* Whether the cache counts: engine slub and option stats. All figures are 0 otherwise. */
KMEM_HIDDEN bool counters_are_on(const struct kmem_cache *cache);

KMEM_HIDDEN uint64_t counters_sum(struct kmem_cache *cache, enum slub_counter counter);
/* Sets a counter to 0 in every slot; increments that run at the same time may be lost. */
KMEM_HIDDEN void counters_reset(struct kmem_cache *cache, enum slub_counter counter);
/* All counters, and the costs of all transitions. */
KMEM_HIDDEN void counters_reset_all(struct kmem_cache *cache);

/* The costs of a transition so far: times, swaps, swaps under list_lock, list_lock taken. */
KMEM_HIDDEN void counters_cost(struct kmem_cache *cache, enum slub_transition transition,
                               uint64_t costs[SLUB_COSTS]);

/*
 * Adds the texts of the attribute files, without a newline. counters_text adds "SUM C0=x C3=y" with
 * the slots that counted anything (S9.2); threads without a slot count in the sum only.
 * cpu_partial_text adds "OBJECTS(SLABS) C0=OBJECTS(SLABS)" with the slots that have a CPU partial
 * list (S2-30, S2-31). Slots that do not fit are left out.
 */
KMEM_HIDDEN void counters_text(struct kmem_cache *cache, enum slub_counter counter,
                               struct text *text);
KMEM_HIDDEN void cpu_partial_text(struct kmem_cache *cache, struct text *text);

/* Free objects, as the cache's accounting rule knows them, and slabs on CPU partial lists. */
struct cpu_partial_figures {
        uint64_t objects;
        uint64_t slabs;
};

/*
 * Of all slots together, which is not the sum of each slot's figures, because of rounding (S2-31).
 */
KMEM_HIDDEN void cpu_partial_sum(struct kmem_cache *cache, struct cpu_partial_figures *figures);

#endif
