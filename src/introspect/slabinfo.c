/* SPDX-License-Identifier: Apache-2.0 OR MIT */
#define _GNU_SOURCE
#include "introspect/slabinfo.h"

#include "base/message.h"
#include "base/options.h"
#include "introspect/totals.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static void print(int file, const char *format, ...) KMEM_PRINTF(2, 3);

static void print(int file, const char *format, ...)
{
        char line[256];
        size_t written = 0;
        va_list arguments;
        int length;

        va_start(arguments, format);
        length = vsnprintf(line, sizeof(line), format, arguments);
        va_end(arguments);
        while (length > 0 && written < (size_t)length) {
                ssize_t result = write(file, line + written, (size_t)length - written);

                if (result <= 0)
                        return;
                written += (size_t)result;
        }
}

static void print_cache(int file, struct kmem_cache *cache)
{
        struct cache_totals totals;

        cache_total(cache, &totals);
        print(file,
              "%-17s %6lu %6lu %6u %4u %4d : tunables %4u %4u %4u : slabdata %6lu %6lu %6lu\n",
              cache->name, (unsigned long)totals.inuse, (unsigned long)totals.report.objects,
              cache->size, cache->objects, 1 << cache->order, 0, 0, 0,
              (unsigned long)totals.report.slabs, (unsigned long)totals.report.slabs, 0ul);
}

void slabinfo_write(int file)
{
        struct heap_totals totals;
        struct list *node;

        print(file, "slabinfo - version: 2.1\n");
        print(file, "# name            <active_objs> <num_objs> <objsize> <objperslab> "
                    "<pagesperslab> : tunables <limit> <batchcount> <sharedfactor> : slabdata "
                    "<active_slabs> <num_slabs> <sharedavail>\n");
        lock_take(&cache_mutex);
        list_for_each(node, &cache_list)
                print_cache(file, container_of(node, struct kmem_cache, list));
        lock_drop(&cache_mutex);
        heap_total(&totals);
        print(file, "# large blocks: %zu of %zu bytes, huge: %zu of %zu bytes\n",
              totals.large.blocks, totals.large.bytes, totals.large.huge_blocks,
              totals.large.huge_bytes);
        print(file, "# pages: %zu used, %zu free, %zu of them touched\n", totals.pages.used_pages,
              totals.pages.free_pages, totals.pages.free_touched_pages);
        print(file, "# objects handed out: %lu\n", (unsigned long)totals.objects_taken);
}

/* Copies the file name with %p replaced by the process id; false if it does not fit. */
static bool expand_name(const char *name, char *expanded, size_t bytes)
{
        size_t used = 0;

        for (; *name; name++) {
                int length;

                if (name[0] == '%' && name[1] == 'p') {
                        length = snprintf(expanded + used, bytes - used, "%u",
                                          system_process_id());
                        name++;
                } else {
                        length = snprintf(expanded + used, bytes - used, "%c", *name);
                }
                if (length < 0 || (size_t)length >= bytes - used)
                        return false;
                used += (size_t)length;
        }
        return true;
}

/*
 * Standard error as it was at the start: many programs close theirs before they end. 100 is
 * above the numbers that shells hand to programs.
 */
static int early_stderr = -1;

void slabinfo_init(void)
{
        int saved_errno = errno;

        if (strcmp(options.slabinfo, "-") == 0)
                early_stderr = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 100);
        errno = saved_errno;
}

void slabinfo_at_exit(void)
{
        static uint32_t done;
        char name[sizeof(options.slabinfo) + 16];
        int saved_errno = errno;
        int file;

        if (load_acquire(&heap_state) != HEAP_READY || !options.slabinfo[0] ||
            (options.slabinfo_pid && options.slabinfo_pid != system_process_id()) ||
            add_relaxed(&done, 1) > 1)
                return;
        if (strcmp(options.slabinfo, "-") == 0) {
                slabinfo_write(early_stderr >= 0 ? early_stderr : STDERR_FILENO);
        } else if (expand_name(options.slabinfo, name, sizeof(name))) {
                file = open(name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
                if (file >= 0) {
                        slabinfo_write(file);
                        close(file);
                } else {
                        message("slabinfo: cannot write %s: error %d", name, errno);
                }
        }
        errno = saved_errno;
}

__attribute__((destructor)) static void at_exit(void)
{
        slabinfo_at_exit();
}
