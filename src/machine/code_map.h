/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Places of code in the files that it was loaded from, for reports: PATH+0xOFFSET, and the file's
 * build id where a text names the file first. `kmem symbolize` makes functions and lines of them.
 *
 * A report may be made in the middle of anything, also in a signal's handler and beside a thread
 * that holds the dynamic linker's lock. So places come from /proc/thread-self/maps and build ids through
 * /proc/thread-self/mem, by system calls and in memory of their own alone:
 *
 * CODE-1  the map has a single user at a time; code_map_take() gives it, code_map_drop() ends that;
 * CODE-2  memory of libraries is read by the kernel, as a thread may unload any of them meanwhile;
 * CODE-3  a text is equal at each time that it is asked for between code_map_restart() and the next.
 */
#ifndef KMEM_MACHINE_CODE_MAP_H
#define KMEM_MACHINE_CODE_MAP_H

#include "lang/compiler.h"

struct code_map;

/* The place of a return address: that of the call is a byte in front of it. */
struct code_place {
        const char *path;     /* NULL: in no file, or in none of the map */
        uintptr_t from_start; /* as addr2line wants it, but in programs linked for a fixed place */
        uint64_t offset;      /* in the file */
        uint32_t object;
};

/*
 * Reads the code of the process as it is now. NULL if another report has the map for longer than a
 * second, as may be if this one is made in a handler that interrupted it, and in a sandbox.
 */
KMEM_HIDDEN struct code_map *code_map_take(void);
KMEM_HIDDEN void code_map_drop(struct code_map *map);
/* A thread that had the map at the fork is not in the child, and never gives it back there. */
KMEM_HIDDEN void code_map_fork_child(void);

/* The next text names each file for the first time. */
KMEM_HIDDEN void code_map_restart(struct code_map *map);

KMEM_HIDDEN struct code_place code_map_find(const struct code_map *map, uintptr_t return_address);

/*
 * PATH+0xOFFSET, with (BuildId: ID) behind it the first time, or without a place the address.
 * Returns how long the text is, or would be if @bytes had room for it and the zero byte. @map may
 * be NULL.
 */
KMEM_HIDDEN size_t code_map_text(struct code_map *map, uintptr_t return_address, char *text,
                                 size_t bytes);

/*
 * Copies a text with places for its marks of addresses (machine/stack.h), and a zero byte. Returns
 * the length; with @text NULL that is all. Else @bytes is at least that and the zero byte.
 */
KMEM_HIDDEN size_t code_map_resolve(struct code_map *map, const char *marked, char *text,
                                    size_t bytes);

#endif
