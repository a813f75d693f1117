/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * The description that the registry's file carries of itself. Included by registry.c only.
 */
#ifndef KMEM_REGISTRY_REGISTRY_LAYOUT_H
#define KMEM_REGISTRY_REGISTRY_LAYOUT_H

#include "registry/registry.h"
#include "kmem.h"

#define FIELD(part, type, field, text)                                                             \
        {                                                                                          \
#field, part, offsetof(struct type, field), sizeof(((struct type *)0)->field), 1,  \
                        text                                                                       \
        }
#define HEAD_FIELD(field) FIELD(PART_HEAD, registry_head, field, 0)
#define HARDENED_FIELD(field)                                                                      \
        {                                                                                          \
                "hardened_" #field, PART_HEAD, offsetof(struct registry_head, hardened.field),     \
                        sizeof(uint64_t), 1, 0                                                     \
        }
#define REQUEST_FIELD(field) FIELD(PART_REQUEST, registry_request, field, 0)
#define SLOT_FIELD(field) FIELD(PART_SLOT, registry_slot, field, 0)
#define STACK_FIELD(field) FIELD(PART_STACK, registry_stack, field, 0)
#define SAMPLE_FIELD(field) FIELD(PART_SAMPLE, registry_sample, field, 0)
#define NODE_FIELD(field) FIELD(PART_NODE, registry_node, field, 0)
#define ZONE_FIELD(field) FIELD(PART_ZONE, registry_zone, field, 0)
#define CACHE_FIELD(field) FIELD(PART_CACHE, registry_cache, field, 0)
#define FLAG(name, flag)                                                                           \
        {                                                                                          \
                name, PART_FLAG, 0, 0, 1, flag                                                     \
        }

static const struct registry_field registry_fields[] = {
        HEAD_FIELD(head_bytes),
        HEAD_FIELD(process),
        HEAD_FIELD(asked),
        HEAD_FIELD(namespace),
        HEAD_FIELD(start_time),
        HEAD_FIELD(id),
        HEAD_FIELD(used_bytes),
        HEAD_FIELD(missing),
        FIELD(PART_HEAD, registry_head, release, 1),
        HEAD_FIELD(profile_interval),
        HEAD_FIELD(samples_missed),
        HEAD_FIELD(profile_slices),
        HEAD_FIELD(slice_ns),
        HEAD_FIELD(profile_lease_ms),
        HEAD_FIELD(profile_since_ms),
        HEAD_FIELD(profile_old_ms),
        HEAD_FIELD(heap_base),
        HEAD_FIELD(heap_reserved_bytes),
        HEAD_FIELD(guards_made),
        HEAD_FIELD(guards_live),
        HEAD_FIELD(guards_missed),
        HEAD_FIELD(guard_faults),
        HEAD_FIELD(huge_blocks),
        HEAD_FIELD(huge_bytes),
        HEAD_FIELD(huge_kept_bytes),
        HEAD_FIELD(soft_limit_bytes),
        HEAD_FIELD(soft_limit_trims),
        HEAD_FIELD(soft_limit_given_back),
        HARDENED_FIELD(level),
        HARDENED_FIELD(slab_bytes),
        HARDENED_FIELD(large_bytes),
        HARDENED_FIELD(waiting_bytes),
        HARDENED_FIELD(closed_bytes),
        {"kept", PART_HEAD, offsetof(struct registry_head, kept), sizeof(struct registry_kept),
         REGISTRY_KEPT, 0},
        HEAD_FIELD(zones),
        {"zone", PART_HEAD, offsetof(struct registry_head, zone), sizeof(struct registry_zone),
         REGISTRY_ZONES, 0},
        ZONE_FIELD(used_pages),
        ZONE_FIELD(free_pages),
        ZONE_FIELD(free_touched_pages),
        ZONE_FIELD(purged_pages),
        ZONE_FIELD(large_blocks),
        ZONE_FIELD(large_pages),
        {"requests", PART_HEAD, offsetof(struct registry_head, requests),
         sizeof(struct registry_request), REGISTRY_REQUESTS, 0},
        REQUEST_FIELD(state),
        REQUEST_FIELD(error),
        REQUEST_FIELD(number),
        REQUEST_FIELD(birth),
        REQUEST_FIELD(result),
        FIELD(PART_REQUEST, registry_request, attribute, 1),
        FIELD(PART_REQUEST, registry_request, value, 1),
        SLOT_FIELD(birth),
        SLOT_FIELD(slot),
        SLOT_FIELD(taken),
        SLOT_FIELD(given),
        SLOT_FIELD(slow_calls),
        SLOT_FIELD(fast_calls),
        CACHE_FIELD(birth),
        FIELD(PART_CACHE, registry_cache, name, 1),
        FIELD(PART_CACHE, registry_cache, engine, 1),
        CACHE_FIELD(object_size),
        CACHE_FIELD(slab_size),
        CACHE_FIELD(objs_per_slab),
        CACHE_FIELD(order),
        CACHE_FIELD(pages_per_slab),
        CACHE_FIELD(align),
        CACHE_FIELD(usersize),
        CACHE_FIELD(aliases),
        CACHE_FIELD(flags),
        CACHE_FIELD(cpu_partial),
        CACHE_FIELD(cpu_partial_most),
        CACHE_FIELD(sheaf_capacity),
        CACHE_FIELD(sheaf_capacity_most),
        CACHE_FIELD(min_partial),
        CACHE_FIELD(min_partial_most),
        CACHE_FIELD(failslab),
        CACHE_FIELD(skip_kfence),
        CACHE_FIELD(guard_sampling),
        CACHE_FIELD(remote_node_defrag_ratio),
        CACHE_FIELD(limit),
        CACHE_FIELD(batchcount),
        CACHE_FIELD(shared),
        CACHE_FIELD(taken),
        CACHE_FIELD(given),
        CACHE_FIELD(refreshed),
        CACHE_FIELD(objects_inuse),
        CACHE_FIELD(cpu_partial_objects),
        CACHE_FIELD(cpu_partial_slabs),
        CACHE_FIELD(nodes),
        {"node", PART_CACHE, offsetof(struct registry_cache, node), sizeof(struct registry_node), 0,
         0},
        NODE_FIELD(number),
        NODE_FIELD(slabs),
        NODE_FIELD(objects),
        NODE_FIELD(partial),
        NODE_FIELD(free_slabs),
        NODE_FIELD(free_objects),
        NODE_FIELD(shared_objects),
        NODE_FIELD(refused),
        NODE_FIELD(listed_free),
        NODE_FIELD(objects_partial),
        NODE_FIELD(cpu_slabs),
        STACK_FIELD(frames),
        STACK_FIELD(samples),
        STACK_FIELD(objects),
        STACK_FIELD(bytes),
        STACK_FIELD(freed_samples),
        STACK_FIELD(freed_objects),
        STACK_FIELD(freed_bytes),
        STACK_FIELD(slice_samples),
        STACK_FIELD(slice_objects),
        STACK_FIELD(slice_bytes),
        STACK_FIELD(old_freed_samples),
        STACK_FIELD(old_freed_bytes),
        {"frame", PART_STACK, offsetof(struct registry_stack, frame), sizeof(uint64_t),
         REGISTRY_FRAMES, 0},
        FIELD(PART_NAME, registry_name, number, 0),
        FIELD(PART_NAME, registry_name, bytes, 0),
        {"text", PART_NAME, offsetof(struct registry_name, text), sizeof(uint64_t),
         REGISTRY_NAME_WORDS, 0},
        {"sample", PART_SAMPLES, offsetof(struct registry_samples, sample),
         sizeof(struct registry_sample), REGISTRY_SAMPLES, 0},
        SAMPLE_FIELD(time_ms),
        SAMPLE_FIELD(stack),
        SAMPLE_FIELD(thread),
        SAMPLE_FIELD(objects),
        SAMPLE_FIELD(bytes),
        FIELD(PART_THREAD, registry_thread, thread, 0),
        FIELD(PART_THREAD, registry_thread, name, 1),
        FLAG("hwcache_align", SLAB_HWCACHE_ALIGN),
        FLAG("reclaim_account", SLAB_RECLAIM_ACCOUNT),
        FLAG("destroy_by_rcu", SLAB_TYPESAFE_BY_RCU),
        FLAG("cache_dma", SLAB_CACHE_DMA),
        FLAG("sanity_checks", SLAB_CONSISTENCY_CHECKS),
        FLAG("red_zone", SLAB_RED_ZONE),
        FLAG("poison", SLAB_POISON),
        FLAG("store_user", SLAB_STORE_USER),
        FLAG("trace", SLAB_TRACE),
};

#endif
