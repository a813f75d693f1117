/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* The memory that the process's control group may have, as the kernel shows it. */
#ifndef KMEM_MACHINE_GROUP_MEMORY_H
#define KMEM_MACHINE_GROUP_MEMORY_H

#include "lang/compiler.h"

#include <stdint.h>

struct group_memory {
        uint64_t limit;    /* bytes: the lower of memory.high and memory.max */
        uint64_t used;     /* bytes, without pages of files that were not used lately */
        uint32_t pressure; /* percent of the last ten seconds in which a task waited for memory; 0
                              where the kernel does not say */
};

/*
 * The figures of the group with the least room, of the process's groups and their parents. False if
 * none has a limit. With system calls only; a single caller at a time.
 */
KMEM_HIDDEN bool group_memory_read(struct group_memory *memory);

/*
 * Parsers, here for their tests. The number behind @name at the beginning of a line, as in
 * memory.stat; 0 if there is none.
 */
KMEM_HIDDEN uint64_t group_stat_parse(const char *text, const char *name);
/* The avg10 of line "some" of memory.pressure, in whole percent. */
KMEM_HIDDEN uint32_t group_pressure_parse(const char *text);

#endif
