/* SPDX-License-Identifier: Apache-2.0 OR MIT */
#include "engines/slub/counters.h"

const char *const slub_counter_names[SLUB_COUNTERS] = {
        [ALLOC_FASTPATH] = "alloc_fastpath",
        [ALLOC_SLOWPATH] = "alloc_slowpath",
        [FREE_FASTPATH] = "free_fastpath",
        [FREE_SLOWPATH] = "free_slowpath",
        [FREE_FROZEN] = "free_frozen",
        [FREE_ADD_PARTIAL] = "free_add_partial",
        [FREE_REMOVE_PARTIAL] = "free_remove_partial",
        [ALLOC_FROM_PARTIAL] = "alloc_from_partial",
        [ALLOC_SLAB] = "alloc_slab",
        [ALLOC_REFILL] = "alloc_refill",
        [ALLOC_NODE_MISMATCH] = "alloc_node_mismatch",
        [FREE_SLAB] = "free_slab",
        [CPUSLAB_FLUSH] = "cpuslab_flush",
        [DEACTIVATE_FULL] = "deactivate_full",
        [DEACTIVATE_EMPTY] = "deactivate_empty",
        [DEACTIVATE_TO_HEAD] = "deactivate_to_head",
        [DEACTIVATE_TO_TAIL] = "deactivate_to_tail",
        [DEACTIVATE_REMOTE_FREES] = "deactivate_remote_frees",
        [DEACTIVATE_BYPASS] = "deactivate_bypass",
        [ORDER_FALLBACK] = "order_fallback",
        [CMPXCHG_DOUBLE_CPU_FAIL] = "cmpxchg_double_cpu_fail",
        [CMPXCHG_DOUBLE_FAIL] = "cmpxchg_double_fail",
        [CPU_PARTIAL_ALLOC] = "cpu_partial_alloc",
        [CPU_PARTIAL_FREE] = "cpu_partial_free",
        [CPU_PARTIAL_NODE] = "cpu_partial_node",
        [CPU_PARTIAL_DRAIN] = "cpu_partial_drain",
};

const char *const slub_transition_names[SLUB_TRANSITIONS] = {
        [REFILL_OWN] = "T2",          [EXHAUST] = "T3",           [PARTIAL_TO_CPU] = "T4",
        [MISMATCH_TO_NODE] = "T5",    [NODE_TO_CPU] = "T6",       [NODE_TO_PARTIAL] = "T7",
        [NEW_TO_CPU] = "T8",          [FREE_TO_CPU] = "T9",       [FREE_TO_PARTIAL] = "T10",
        [EMPTY_PARTIAL] = "T11",      [FREE_TO_NODE] = "T12",     [EMPTY_NODE] = "T13",
        [FULL_TO_PARTIAL] = "T14",    [FULL_TO_NODE] = "T15",     [OVERFLOW_TO_NODE] = "T16",
        [DEACTIVATE_TO_NODE] = "T17", [DEACTIVATE_OTHER] = "T18", [FLUSH_TO_NODE] = "T19",
        [SHRINK_NODE] = "T20",        [DEBUG_CALL] = "T21",
};
