/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * The sequences of this architecture: rseq_pop, rseq_push, rseq_replace and their bulk forms. Only
 * slot.h includes this file. The simulator has plain C in its place.
 */
#ifndef KMEM_PERCPU_SEQUENCES_H
#define KMEM_PERCPU_SEQUENCES_H

#include "machine/thread.h"

#if defined(__x86_64__)
#include "percpu/rseq_x86_64.h"
#elif defined(__aarch64__)
#include "percpu/rseq_aarch64.h"
#else
#include "percpu/rseq_none.h"
#endif

#endif
