/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * The samples in use, each in the registry with its time, its weight and its thread. So readers tell
 * old bytes from new bytes, and the bytes of a thread from those of others.
 *
 *  LIVE-1  The place in the registry belongs to the sample's entry, so its owner alone writes it.
 *          The stack is stored last and cleared first: a place without a stack has no sample.
 *  LIVE-2  A thread's record stays as long as the thread has samples in use. Records of threads
 *          without any are taken for other threads when the table is full.
 *  LIVE-3  A forked child begins with empty places and no threads, and hides no sample of its
 *          parent's time (SAMPLE-2).
 */
#ifndef KMEM_PROFILE_LIVE_H
#define KMEM_PROFILE_LIVE_H

#include "registry/registry.h"

/* Belongs to the owner of a sample. */
struct live {
        uint64_t time_ms; /* of the allocation, by system_time_ms */
        uint32_t thread;  /* in the table of threads; 0: none */
};

enum { LIVE_ENTRIES = 1 << 17 }; /* that samples may have */

/*
 * Shows a sample of the calling thread. @figures is the record of its stack; @objects and @bytes are
 * its weight. Without room in the registry it is not shown.
 */
KMEM_HIDDEN void live_show(uint32_t entry, struct live *live, const struct registry_stack *figures,
                           uint64_t objects, uint64_t bytes);
/* Ends what live_show began, in the same generation of the registry. */
KMEM_HIDDEN void live_hide(uint32_t entry, const struct live *live);

#endif
