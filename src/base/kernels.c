/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * The policies of released kernels, as options of ours (docs/kernels.md).
 *
 * A row says every policy that differs between kernels, so that rows can be compared, and so that
 * a change of our own defaults changes no kernel.
 */
#include "base/kernels.h"

/* Free objects are linked through themselves, so some strides are longer (S4-05). */
#define OF_ALL_SLUB                                                                                \
        "engine=slub,classes=kernel,slab_merge=1,order_cpus=present,free_pointer=object,"

/*
 * 6.18 gives sheaves to caches that ask for them, above CPU slabs. 7.0 gives them to all caches, and
 * has no CPU slabs (S13-01). A program asks by kmem_cache_args, and gets sheaves in every row.
 */
#define NO_SHEAVES "cpu_slabs=1,sheaf_rule=7.0,sheaf_capacity=0,"
#define SHEAVES "cpu_slabs=0,sheaf_rule=7.0,"

/* CPU partial lists are counted in objects up to 5.15 (S2-03), in slabs afterwards (S2-12). */
#define IN_OBJECTS "cpu_partial_accounting=objects,cpu_partial_defaults=seed,"
#define IN_SLABS "cpu_partial_accounting=slabs,cpu_partial_defaults=later,"

/* The search for an order was simplified in 6.7 (S3-20). */
#define OLD_ORDERS "order_rule=5.10,"
#define NEW_ORDERS "order_rule=6.12,"

/* From 6.8 on a slab is frozen when a CPU begins to use it. */
#define EAGER "freeze=eager"
#define DELAYED "freeze=delayed"

/* A bulk free skips NULL until 5.17; 6.1 and later do not take it (S5-07). */
#define SKIPS_NULL ",bulk_null=skip"
#define TAKES_NO_NULL ",bulk_null=refuse"

static const char *const kernels[] = {
        "",
        "engine=slob,classes=kernel,slob_compat=2.6.24,slob_breaks=,bulk_null=skip",
        OF_ALL_SLUB NO_SHEAVES IN_OBJECTS OLD_ORDERS EAGER SKIPS_NULL,    /* 5.14 */
        OF_ALL_SLUB NO_SHEAVES IN_OBJECTS OLD_ORDERS EAGER SKIPS_NULL,    /* 5.15 */
        OF_ALL_SLUB NO_SHEAVES IN_SLABS OLD_ORDERS EAGER SKIPS_NULL,      /* 5.16 */
        OF_ALL_SLUB NO_SHEAVES IN_SLABS OLD_ORDERS EAGER SKIPS_NULL,      /* 5.17 */
        OF_ALL_SLUB NO_SHEAVES IN_SLABS OLD_ORDERS EAGER TAKES_NO_NULL,   /* 6.1 */
        OF_ALL_SLUB NO_SHEAVES IN_SLABS NEW_ORDERS EAGER TAKES_NO_NULL,   /* 6.7 */
        OF_ALL_SLUB NO_SHEAVES IN_SLABS NEW_ORDERS DELAYED TAKES_NO_NULL, /* 6.8 */
        OF_ALL_SLUB NO_SHEAVES IN_SLABS NEW_ORDERS DELAYED TAKES_NO_NULL, /* 6.12 */
        OF_ALL_SLUB NO_SHEAVES IN_SLABS NEW_ORDERS DELAYED TAKES_NO_NULL, /* 6.18 */
        OF_ALL_SLUB SHEAVES IN_SLABS NEW_ORDERS DELAYED TAKES_NO_NULL,    /* 7.2 */
};

const char *kernel_options(uint64_t position)
{
        return kernels[position];
}
