/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Text that `kmem import` reads. The first byte is how many bytes come at a time, as from a pipe. What
 * the lines give is looked at in place of the table of lives.
 */
#include "target.h"
#include "tools/import/import.h"

#include <string.h>

static struct import *import;
static unsigned int caches;

uint16_t lives_cache(struct lives *lives, const char *name)
{
        (void)lives;
        expect(strlen(name) < 64);
        return (uint16_t)(TRACE_CACHE_UNKNOWN + 1 + caches++);
}

void lives_add(struct lives *lives, const struct lives_event *event)
{
        (void)lives;
        expect(event->address != 0);
        expect((event->operation & TRACE_OPERATION_MASK) <= TRACE_FREE);
        expect(event->site <= import->sites.count);
        expect(event->cache <= TRACE_CACHE_UNKNOWN + caches);
        expect(event->thread >= -1); /* -1: of a task that is gone */
        expect(event->cpu < import->cpus_most);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
        size_t step = size ? (size_t)*bytes + 1 : 1;
        char *buffer;
        size_t have = 0;
        bool skip = false;

        import = calloc(1, sizeof(*import));
        buffer = malloc(LINE_BYTES_MOST + step + 1);
        expect(import && buffer);
        import->cpus_most = 4;
        import->objects_most = 1000;
        caches = 0;
        for (size_t at = 1; at < size; at += step) {
                size_t part = size - at < step ? size - at : step;

                memcpy(buffer + have, bytes + at, part);
                have = import_lines(import, buffer, have + part, &skip);
                expect(have <= LINE_BYTES_MOST);
        }
        if (have && !skip)
                import_line(import, buffer, have);
        import_end(import);
        expect(!import->folded_bytes);
        expect(import->unreadable <= import->lines);
        expect(!import->unreadable == !import->first_unreadable);
        expect(memchr(import->reason, '\0', sizeof(import->reason)) != NULL);
        expect(import->snapshot_objects <= import->objects_most);
        heaptrack_free(import->heaptrack);
        texts_free(&import->sites);
        texts_free(&import->caches);
        texts_free(&import->flags);
        free(import);
        free(buffer);
        return 0;
}
