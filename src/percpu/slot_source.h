/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * The interface between the set of slots (slots.c) and their source (slot_source.c). The functions
 * of slot.h that depend on the source are in slot_source.c: slots_refuse, slots_are_rseq,
 * slots_follow_cpus, slot_may_have_left, slot_current, slot_replace, slots_can_drain, slots_fence
 * and the functions of locked slots.
 */
#ifndef KMEM_PERCPU_SLOT_SOURCE_H
#define KMEM_PERCPU_SLOT_SOURCE_H

#include "percpu/slot.h"

/* Chooses the source, and makes the slots that it needs from the start; single-threaded. */
KMEM_HIDDEN void slot_source_init(void);

/* slots.c: the slot of an id, made if need be; NULL without memory. */
KMEM_HIDDEN struct slot *slot_make(uint32_t id);

#endif
