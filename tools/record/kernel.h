/* SPDX-License-Identifier: Apache-2.0 OR MIT */
#ifndef KMEM_TOOLS_RECORD_KERNEL_H
#define KMEM_TOOLS_RECORD_KERNEL_H

#include "tools/record/record.h"

struct kernel_source {
        const char *path;   /* of the trace */
        const char *folder; /* cpu0, cpu1, ...: whole pages of the ring buffers */
        const char *text;   /* for the trace's header */
        unsigned int cpus;
        size_t page_bytes; /* of a ring buffer's pages */
        uint64_t lost;
        double seconds;
        int status; /* of the command */
};

/*
 * Reads the pages, writes the trace, and fills FOLDER/report, which exists already; dies with a
 * reason.
 */
void kernel_convert(const struct kernel_source *source);

#endif
