/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* The table of figures that a process shows to others (registry=on). */
#ifndef SHOWN_H
#define SHOWN_H

#include <glob.h>

#include "check.h"

/* Whether the registry exists; removes it on request. Allocates. */
static inline int is_shown(pid_t process, int remove)
{
        char pattern[80];
        glob_t found;
        int failed;

        snprintf(pattern, sizeof(pattern), "/dev/shm/kmem-%u/*.%d", geteuid(), (int)process);
        failed = glob(pattern, 0, NULL, &found);
        if (!failed && remove)
                check(unlink(found.gl_pathv[0]) == 0);
        globfree(&found);
        return !failed;
}

#endif
