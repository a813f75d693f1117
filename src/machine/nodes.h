/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * The NUMA nodes of the machine that this process may have memory of. Only system.c includes this;
 * the rest of the library asks system_nodes() and its like.
 *
 * They are numbered from 0 without holes, in the order of the kernel's numbers, which may have
 * holes.
 */
#ifndef KMEM_MACHINE_NODES_H
#define KMEM_MACHINE_NODES_H

#include "machine/system.h"

enum {
        NODE_NUMBERS = 1024,
        NODE_MASK_WORDS = NODE_NUMBERS / 64
}; /* the kernel's largest MAX_NUMNODES */

struct nodes {
        unsigned int count;                 /* to NODES_MAX; below 2 nothing else counts */
        uint16_t number[NODES_MAX];         /* the kernel's number of each */
        unsigned int cpus[NODES_MAX];       /* online CPUs that are nearest to it */
        uint8_t near[NODES_MAX][NODES_MAX]; /* all nodes by their distance from it, itself first */
        uint8_t of[NODE_NUMBERS];           /* the nearest of our nodes, by the kernel's number */
};

/* Fills in @nodes, which is all zero, and stays so if the kernel gives us a single node only. */
KMEM_HIDDEN void nodes_read(struct nodes *nodes);

/*
 * The part of it that reads files, here for its tests: @folder is /sys/devices/system/node, or like
 * it, and @allowed a mask of the kernel's numbers that memory may come from. The CPUs of a node
 * without memory belong to the nearest node with memory; so do the CPUs of nodes beyond NODES_MAX.
 */
KMEM_HIDDEN void nodes_read_folder(struct nodes *nodes, const char *folder,
                                   const uint64_t allowed[NODE_MASK_WORDS]);

#endif
