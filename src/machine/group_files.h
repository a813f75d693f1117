/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * The folders of the process's control groups (cgroup v1 and v2), in which the kernel shows limits.
 */
#ifndef KMEM_MACHINE_GROUP_FILES_H
#define KMEM_MACHINE_GROUP_FILES_H

#include "lang/compiler.h"

#include <limits.h>

enum { GROUP_TEXT_BYTES = 4096 };

/*
 * The text of a file, and behind its end a path. Callers have it in static memory, as stacks may be
 * small.
 */
struct group_room {
        char text[GROUP_TEXT_BYTES + PATH_MAX] __attribute__((aligned(8)));
};

/* A folder: the first @length characters of @path, which has room behind them for a file's name. */
struct group_folder {
        char *path;
        size_t length;
        bool unified; /* cgroup v2 */
};

/* The most bytes of a file's name for group_file, with the zero byte. */
enum { GROUP_FILE_BYTES = 40 };

/*
 * Calls @visit for the groups of the process in which v1's @controller ("cpu", "memory") or v2
 * shows its limits: each group, then its parents, up to the root. Parents count because a limit on
 * a container is often set a level above the process. Inside a container the path may also name
 * folders that only exist outside; then the root is the container's.
 */
KMEM_HIDDEN void groups_each(const char *controller, struct group_room *room,
                             void (*visit)(const struct group_folder *folder, void *result),
                             void *result);

/* Writes a file's name behind the folder. Returns the path, valid until the next call. */
KMEM_HIDDEN const char *group_file(const struct group_folder *folder, const char *name);

#endif
