/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * The events of a load as a trace file: every object that it takes and gives back, with the
 * modelled time. Memory by size is in caches named kmalloc-SIZE.
 */
#include "tools/loads/loads.h"

#include "tools/trace/trace.h"
#include "simulator/machine/state.h"

#include <string.h>
#include <sys/mman.h>

enum { GRAIN_SHIFT = 4, GRAINS = 1 << 28, FIRST_NAME = 2 };

static struct trace_writer *writer;
static uint32_t *ids; /* for each 16 bytes of the heap: the life that begins there */
static uint32_t lives;
static uint64_t started;
static uint64_t latest;
static uint32_t thread;

static bool by_size(unsigned int kind)
{
        return !strncmp(kinds[kind].name, "kmalloc-", strlen("kmalloc-"));
}

void record_open(void)
{
        struct trace_error error;

        writer = trace_writer_open(settings.trace, settings.load_cpus, (uint32_t)sim_page_bytes(),
                                   "kmem lab workloads", &error);
        if (!writer)
                die(settings.trace, error.text);
        ids = mmap(NULL, GRAINS * sizeof(*ids), PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (ids == MAP_FAILED)
                die("no address space for the trace", "");
        trace_writer_cache(writer, "kmalloc");
        trace_writer_cache(writer, "?");
        for (unsigned int i = 0; i < kind_count; i++)
                trace_writer_cache(writer, kinds[i].name);
        trace_writer_site(writer, "?");
        started = sim.clock;
}

void record_thread(uint32_t number)
{
        thread = number;
}

void record_event(bool frees, unsigned int kind, const void *object)
{
        size_t grain = ((uintptr_t)object - heap.base) >> GRAIN_SHIFT;
        uint64_t now = sim.clock > started ? (sim.clock - started) / 1000 : 0;

        /* The objects of each CPU come before the load, and stay. */
        if (!writer)
                return;
        if (grain >= GRAINS)
                die("a load that is recorded has 4 GiB of slabs at most", "");
        if (!frees)
                ids[grain] = lives++;
        /* CPUs take turns for the work of an object, so their clocks may differ by that much. */
        if (now > latest)
                latest = now;
        trace_writer_add(writer, &(struct trace_record){
                                         .time = latest,
                                         .requested = kinds[kind].size,
                                         .given = kinds[kind].size,
                                         .thread = (int32_t)thread,
                                         .object = ids[grain],
                                         .cpu = sim.mark - 1,
                                         .cache = by_size(kind) ? TRACE_CACHE_KMALLOC
                                                                : (uint16_t)(FIRST_NAME + kind),
                                         .operation = frees ? TRACE_FREE : TRACE_ALLOC,
                                 });
}

void record_close(void)
{
        struct trace_error error;

        if (writer && !trace_writer_close(writer, lives, &error))
                die(settings.trace, error.text);
}
