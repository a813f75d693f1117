/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* The table of attributes, and reading and changing one of them by its entry. */
#include "introspect/attributes.h"

#include "introspect/counters.h"
#include "percpu/figures.h"

#include <errno.h>
#include <string.h>

#define FIELD(field) offsetof(struct kmem_cache, field)
#define NODE(field) offsetof(struct engine_node_report, field)
#define COUNTER .show = show_counter, .store = store_counter, .place

/*
 * The kernel's attributes (S9.1), our own, and the kernel's counters (S9.2). Readers in Python get
 * the table from tools/attributes.c.
 */
const struct attribute attributes[] = {
        {"slab_size", .show = show_number, .place = FIELD(size)},
        {"object_size", .show = show_number, .place = FIELD(object_size)},
        {"objs_per_slab", .show = show_number, .place = FIELD(objects)},
        {"order", .show = show_number, .place = FIELD(order)},
        {"align", .show = show_number, .place = FIELD(align)},
        {"min_partial", .show = show_min_partial, .store = store_min_partial, .outside = true},
        {"cpu_partial", .show = show_number, .store = store_cpu_partial,
         .place = FIELD(cpu_partial), .outside = true},
        {"slabs_cpu_partial", .show = show_slabs_cpu_partial},
        {"partial", .show = show_nodes, .place = NODE(partial_slabs)},
        {"objects_partial", .show = show_nodes, .place = NODE(partial_inuse)},
        {"cpu_slabs", .show = show_nodes, .place = NODE(cpu_slabs)},
        {"slabs", .show = show_nodes, .place = NODE(slabs)},
        {"total_objects", .show = show_nodes, .place = NODE(objects)},
        {"objects", .show = show_objects},
        {"ctor", .show = show_ctor},
        {"aliases", .show = show_aliases},
        {"hwcache_align", .show = show_flag, .flag = SLAB_HWCACHE_ALIGN},
        {"reclaim_account", .show = show_flag, .flag = SLAB_RECLAIM_ACCOUNT},
        {"destroy_by_rcu", .show = show_flag, .flag = SLAB_TYPESAFE_BY_RCU},
        {"cache_dma", .show = show_flag, .flag = SLAB_CACHE_DMA},
        {"usersize", .show = show_number, .place = FIELD(usersize)},
        {"sanity_checks", .show = show_flag, .flag = SLAB_CONSISTENCY_CHECKS},
        {"red_zone", .show = show_flag, .flag = SLAB_RED_ZONE},
        {"poison", .show = show_flag, .flag = SLAB_POISON},
        {"store_user", .show = show_flag, .flag = SLAB_STORE_USER},
        {"trace", .show = show_flag, .flag = SLAB_TRACE},
        {"validate", .show = show_nothing, .store = store_validate, .most = 1},
        {"shrink", .show = show_nothing, .store = store_shrink, .most = 1, .outside = true},
        {"failslab", .show = show_failslab, .store = store_failslab, .most = 1, .outside = true},
        {"remote_node_defrag_ratio", .show = show_defrag_ratio, .store = store_defrag_ratio,
         .most = 100, .outside = true},
        {"skip_kfence", .show = show_skip_kfence, .store = store_skip_kfence, .most = 1,
         .outside = true},
        {"guard_sampling", .show = show_number, .store = store_guard_sampling,
         .place = FIELD(guard_rate), .most = GUARD_RATE_MOST, .outside = true},
        {"engine", .show = show_engine},
        {"sheaf_capacity", .show = show_number, .store = store_sheaf_capacity,
         .place = FIELD(sheaf_capacity), .outside = true},
        {"objects_inuse", .show = show_objects_inuse},
        {"debug_errors", .show = show_errors},
        {"alloc_traces", .show = show_traces, .place = false},
        {"free_traces", .show = show_traces, .place = true},
        {"alloc_fastpath", COUNTER = ALLOC_FASTPATH},
        {"alloc_slowpath", COUNTER = ALLOC_SLOWPATH},
        {"free_fastpath", COUNTER = FREE_FASTPATH},
        {"free_slowpath", COUNTER = FREE_SLOWPATH},
        {"free_frozen", COUNTER = FREE_FROZEN},
        {"free_add_partial", COUNTER = FREE_ADD_PARTIAL},
        {"free_remove_partial", COUNTER = FREE_REMOVE_PARTIAL},
        {"alloc_from_partial", COUNTER = ALLOC_FROM_PARTIAL},
        {"alloc_slab", COUNTER = ALLOC_SLAB},
        {"alloc_refill", COUNTER = ALLOC_REFILL},
        {"alloc_node_mismatch", COUNTER = ALLOC_NODE_MISMATCH},
        {"free_slab", COUNTER = FREE_SLAB},
        {"cpuslab_flush", COUNTER = CPUSLAB_FLUSH},
        {"deactivate_full", COUNTER = DEACTIVATE_FULL},
        {"deactivate_empty", COUNTER = DEACTIVATE_EMPTY},
        {"deactivate_to_head", COUNTER = DEACTIVATE_TO_HEAD},
        {"deactivate_to_tail", COUNTER = DEACTIVATE_TO_TAIL},
        {"deactivate_remote_frees", COUNTER = DEACTIVATE_REMOTE_FREES},
        {"deactivate_bypass", COUNTER = DEACTIVATE_BYPASS},
        {"order_fallback", COUNTER = ORDER_FALLBACK},
        {"cmpxchg_double_cpu_fail", COUNTER = CMPXCHG_DOUBLE_CPU_FAIL},
        {"cmpxchg_double_fail", COUNTER = CMPXCHG_DOUBLE_FAIL},
        {"cpu_partial_alloc", COUNTER = CPU_PARTIAL_ALLOC},
        {"cpu_partial_free", COUNTER = CPU_PARTIAL_FREE},
        {"cpu_partial_node", COUNTER = CPU_PARTIAL_NODE},
        {"cpu_partial_drain", COUNTER = CPU_PARTIAL_DRAIN},
        {"sheaf_flush", COUNTER = SHEAF_FLUSH},
        {"sheaf_refill", COUNTER = SHEAF_REFILL},
        {"sheaf_alloc", COUNTER = SHEAF_ALLOC},
        {"sheaf_free", COUNTER = SHEAF_FREE},
        {"barn_get", COUNTER = BARN_GET},
        {"barn_get_fail", COUNTER = BARN_GET_FAIL},
        {"barn_put", COUNTER = BARN_PUT},
        {"barn_put_fail", COUNTER = BARN_PUT_FAIL},
        {"free_rcu_sheaf", COUNTER = FREE_RCU_SHEAF},
        {"free_rcu_sheaf_fail", COUNTER = FREE_RCU_SHEAF_FAIL},
};
const size_t attribute_count = array_size(attributes);

int attribute_store_locked(const struct attribute *attribute, struct kmem_cache *cache,
                           const char *value)
{
        int error = EIO;

        if (attribute->store)
                error = attribute->store(attribute, cache, value);
        figures_show_cache(cache);
        return error;
}

const struct attribute *find_attribute(const char *name)
{
        for (size_t i = 0; i < attribute_count; i++)
                if (strcmp(attributes[i].name, name) == 0)
                        return &attributes[i];
        return NULL;
}

/* Counters that a cache without CPU slabs lacks (S13-12). */
static const uint64_t of_cpu_slabs =
        (uint64_t)1 << FREE_FROZEN | (uint64_t)1 << ALLOC_FROM_PARTIAL |
        (uint64_t)1 << ALLOC_REFILL | (uint64_t)1 << CPUSLAB_FLUSH |
        (uint64_t)1 << DEACTIVATE_FULL | (uint64_t)1 << DEACTIVATE_EMPTY |
        (uint64_t)1 << DEACTIVATE_TO_HEAD | (uint64_t)1 << DEACTIVATE_TO_TAIL |
        (uint64_t)1 << DEACTIVATE_REMOTE_FREES | (uint64_t)1 << DEACTIVATE_BYPASS |
        (uint64_t)1 << CMPXCHG_DOUBLE_CPU_FAIL | (uint64_t)1 << CPU_PARTIAL_ALLOC |
        (uint64_t)1 << CPU_PARTIAL_FREE | (uint64_t)1 << CPU_PARTIAL_NODE |
        (uint64_t)1 << CPU_PARTIAL_DRAIN;
_Static_assert(SLUB_COUNTERS <= 64, "a bit of a word for each counter");

/* Whether kernels with the cache's policies have the counter. */
static bool has_counter(const struct kmem_cache *cache, enum slub_counter counter)
{
        if (counter >= SHEAF_FLUSH)
                return cache->sheaves_as_7_0;
        return !(cache->no_cpu_slabs && of_cpu_slabs >> counter & 1);
}

bool attribute_exists(const struct attribute *attribute, const struct kmem_cache *cache)
{
        if (attribute->show == show_counter)
                return counters_are_on(cache) &&
                       has_counter(cache, (enum slub_counter)attribute->place);
        if (attribute->show == show_traces)
                return cache->engine->traces && cache->flags & SLAB_STORE_USER;
        return attribute->show != show_errors || cache->engine->errors;
}

size_t attribute_show_locked(const struct attribute *attribute, struct kmem_cache *cache,
                             char *text, size_t bytes)
{
        struct text value;

        text_begin(&value, text, bytes - 1);
        attribute->show(attribute, cache, &value);
        if (value.used)
                text[value.used++] = '\n';
        text[value.used] = '\0';
        return value.used;
}
