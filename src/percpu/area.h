/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * The area that a thread shares with the kernel for restartable sequences: its place, its
 * registration, and its fate while a child of vfork runs on the thread's memory.
 *
 *  AREA-1  The library never writes the fields of a registered area that the kernel writes (all but
 *          rseq_cs).
 *  AREA-2  A registered area belongs to a single task. No other task runs a sequence on it or
 *          registers it: a child of vfork finds either an area that says it is not registered, or
 *          the sequences' pointer turned away from it.
 *  AREA-3  A registration ends with the length that it began with.
 *
 * Linux 7.1 and later, and 7.0 from 7.0.10 on, end a process with SIGSEGV that breaks any of these
 * rules, if the registration is longer than 32 bytes; older kernels go on with a wrong slot.
 */
#ifndef KMEM_PERCPU_AREA_H
#define KMEM_PERCPU_AREA_H

#include "lang/atomic.h"

/* The fields that the library reads; libc's area may be longer. */
struct rseq_area {
        uint32_t cpu_id_start;
        int32_t cpu_id; /* below 0: not registered */
        uint64_t rseq_cs;
        uint32_t flags;
        uint32_t node_id;
        uint32_t mm_cid; /* concurrency id, where the kernel knows it */
        uint32_t padding;
} __attribute__((aligned(32)));
_Static_assert(sizeof(struct rseq_area) == 32, "the area every kernel with rseq accepts");

/*
 * Makes sequences run on the calling thread's area, libc's or our own; false if the kernel refuses.
 * At start.
 */
KMEM_HIDDEN bool area_use(void);
/* Sends every sequence to its slow path, in all threads and for good. */
KMEM_HIDDEN void area_use_none(void);
/* Bytes from the thread pointer to the area that sequences run on when nothing is turned. */
KMEM_HIDDEN intptr_t area_offset(void);

/*
 * Whether sequences run in the calling thread at this moment, after an attempt to register it where
 * libc does not.
 */
KMEM_HIDDEN bool area_is_registered(void);

/*
 * For threads that libc does not know (machine/bare_thread.h). The first function returns the
 * offset of the data that area.c keeps in a thread besides libc's area. The thread calls the second
 * before all else, and has no slot from then on.
 */
KMEM_HIDDEN intptr_t area_thread_offset(void);
KMEM_HIDDEN void area_refuse_this_thread(void);
/*
 * Whether the thread called area_refuse_this_thread: a thread of ours has rights that the program
 * may have given up.
 */
KMEM_HIDDEN bool area_thread_is_ours(void);

/* The step that a parent took before vfork and undoes after it. */
enum area_lent {
        AREA_UNUSED,              /* no sequence runs on it anyway: nothing */
        AREA_UNREGISTERED,        /* the kernel has no area of the thread */
        AREA_UNREGISTERED_SLICES, /* and its extensions of time slices ended with that */
        AREA_TURNED, /* sequences of all threads read an area that is never registered */
};

/* In front of vfork, by the parent. */
KMEM_HIDDEN enum area_lent area_lend(void);
/* Behind it, by the parent, also if there was no child. */
KMEM_HIDDEN void area_take_back(enum area_lent lent);
/* In a child of fork, before it counts as a process of its own (system_claim_process). */
KMEM_HIDDEN void area_fork_child(void);

/*
 * Whether the kernel of that release aborts sequences on AArch64. Linux 6.19 and 7.0 up to 7.0.13
 * miss some aborts.
 */
KMEM_HIDDEN bool area_release_aborts(const char *release);

#endif
