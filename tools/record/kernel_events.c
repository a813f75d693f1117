/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Events in pages of ring buffers, in the order of time over all CPUs.
 *
 * The kernel's clock "mono" is the same on all CPUs. A free is traced before the object can be
 * handed out again, an allocation after it was handed out. So if an address has two lives, the free
 * of the first has the lower time. At equal times the order within a CPU stays, and frees go first.
 */
#define _GNU_SOURCE
#include "tools/record/kernel.h"
#include "tools/record/symbols.h"

#include <errno.h>
#include <event-parse.h>
#include <fcntl.h>
#include <inttypes.h>
#include <kbuffer.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <tracefs.h>
#include <unistd.h>

enum {
        KINDS_MOST = 8,
        NAME_BYTES = 64,
        /* Bits of common_flags, as the kernel has them since 2.6. */
        FLAG_HARDIRQ = 0x08,
        FLAG_SOFTIRQ = 0x10,
        ADDRESS_LEAST = 4096, /* NULL and the result of kmalloc(0) are below */
};

/* The place of a field in an event; 0 bytes: the kernel has no field of that name. */
struct field {
        int offset;
        int bytes;
};

/* A tracepoint. */
struct kind {
        int id;
        uint8_t operation; /* and TRACE_KFREE */
        bool by_size;
        struct field call_site, pointer, requested, given, flags, name;
};

struct cpu {
        struct kbuffer *buffer;
        char *pages;
        size_t bytes;
        size_t next; /* offset of the next page */
        void *event; /* NULL: at the end */
        unsigned long long time;
};

struct reading {
        const struct kernel_source *source;
        struct lives *lives;
        struct kind kinds[KINDS_MOST];
        unsigned int kind_count;
        struct field type, irq, thread;
        struct cpu *cpus;
        struct symbols *symbols;
        uint64_t first_time;
        uint64_t events;
};

/* The value of a field in an event of @bytes. */
static uint64_t value_of(const struct field *field, const char *event, size_t bytes)
{
        uint64_t value = 0;

        if (field->offset < 0 || field->bytes < 0 ||
            (size_t)field->offset + (size_t)field->bytes > bytes)
                die("an event of %zu bytes; expected a field of %d at byte %d", bytes, field->bytes,
                    field->offset);
        /* Little-endian, as trace files are. */
        memcpy(&value, event + field->offset, (size_t)(field->bytes > 8 ? 8 : field->bytes));
        return value;
}

static struct field find_field(struct tep_event *event, const char *name)
{
        struct tep_format_field *field = tep_find_any_field(event, name);

        return field ? (struct field){field->offset, field->size} : (struct field){0};
}

static void add_kind(struct reading *reading, struct tep_handle *tep, const char *name,
                     uint8_t operation, bool by_size)
{
        struct tep_event *event = tep_find_event_by_name(tep, "kmem", name);
        struct kind *kind = &reading->kinds[reading->kind_count];

        if (!event)
                return;
        *kind = (struct kind){
                .id = event->id,
                .operation = operation,
                .by_size = by_size,
                .call_site = find_field(event, "call_site"),
                .pointer = find_field(event, "ptr"),
                .requested = find_field(event, "bytes_req"),
                .given = find_field(event, "bytes_alloc"),
                .flags = find_field(event, "gfp_flags"),
                .name = find_field(event, "name"),
        };
        if (!kind->pointer.bytes || (operation == TRACE_ALLOC && !kind->requested.bytes))
                die("events/kmem/%s/format: expected the fields ptr, bytes_req", name);
        reading->type = find_field(event, "common_type");
        reading->irq = find_field(event, "common_flags");
        reading->thread = find_field(event, "common_pid");
        reading->kind_count++;
}

static void read_formats(struct reading *reading)
{
        static const char *const systems[] = {"kmem", NULL};
        struct tep_handle *tep = tracefs_local_events_system(NULL, systems);

        if (!tep)
                die("tracefs: the formats of events cannot be read: %s", strerror(errno));
        add_kind(reading, tep, "kmalloc", TRACE_ALLOC, true);
        add_kind(reading, tep, "kmalloc_node", TRACE_ALLOC, true);
        add_kind(reading, tep, "kmem_cache_alloc", TRACE_ALLOC, false);
        add_kind(reading, tep, "kmem_cache_alloc_node", TRACE_ALLOC, false);
        add_kind(reading, tep, "kfree", TRACE_FREE | TRACE_KFREE, true);
        add_kind(reading, tep, "kmem_cache_free", TRACE_FREE, false);
        tep_free(tep);
}

/* Goes to the next page that holds an event; event is NULL at the end. */
static void load_page(struct reading *reading, struct cpu *cpu)
{
        cpu->event = NULL;
        while (!cpu->event && cpu->next < cpu->bytes) {
                if (cpu->bytes - cpu->next < reading->source->page_bytes ||
                    kbuffer_load_subbuffer(cpu->buffer, cpu->pages + cpu->next) < 0)
                        die("byte %zu of a ring buffer: expected a page of events", cpu->next);
                cpu->next += reading->source->page_bytes;
                cpu->event = kbuffer_read_event(cpu->buffer, &cpu->time);
        }
}

static void next_event(struct reading *reading, struct cpu *cpu)
{
        cpu->event = kbuffer_next_event(cpu->buffer, &cpu->time);
        if (!cpu->event)
                load_page(reading, cpu);
}

static void open_cpu(struct reading *reading, unsigned int number)
{
        const char *folder = reading->source->folder;
        struct cpu *cpu = &reading->cpus[number];
        struct stat status;
        char *path;
        int file;

        cpu->buffer = kbuffer_alloc(KBUFFER_LSIZE_SAME_AS_HOST, KBUFFER_ENDIAN_SAME_AS_HOST);
        if (!cpu->buffer || asprintf(&path, "%s/cpu%u", folder, number) < 0)
                die("no memory");
        file = open(path, O_RDONLY | O_CLOEXEC);
        if (file < 0 || fstat(file, &status))
                die("%s: %s", path, strerror(errno));
        /* On a full disk the last page may be incomplete. */
        cpu->bytes = (size_t)status.st_size / reading->source->page_bytes;
        cpu->bytes *= reading->source->page_bytes;
        if (cpu->bytes) {
                cpu->pages = mmap(NULL, cpu->bytes, PROT_READ, MAP_PRIVATE, file, 0);
                if (cpu->pages == MAP_FAILED)
                        die("%s: %s", path, strerror(errno));
        }
        close(file);
        free(path);
        load_page(reading, cpu);
}

static size_t event_bytes(const struct cpu *cpu)
{
        int bytes = kbuffer_event_size(cpu->buffer);

        return bytes > 0 ? (size_t)bytes : 0;
}

static const struct kind *kind_of(const struct reading *reading, int id)
{
        for (unsigned int i = 0; i < reading->kind_count; i++)
                if (reading->kinds[i].id == id)
                        return &reading->kinds[i];
        return NULL;
}

/*
 * The CPU with the earliest event. A free at the time of another CPU's allocation may have made
 * that allocation possible, so frees go first.
 */
static struct cpu *earliest(struct reading *reading)
{
        struct cpu *best = NULL;
        bool best_frees = false;

        for (unsigned int i = 0; i < reading->source->cpus; i++) {
                struct cpu *cpu = &reading->cpus[i];
                const struct kind *kind;
                bool frees;

                if (!cpu->event || (best && cpu->time > best->time))
                        continue;
                kind = kind_of(reading,
                               (int)value_of(&reading->type, cpu->event, event_bytes(cpu)));
                frees = kind && (kind->operation & TRACE_OPERATION_MASK) == TRACE_FREE;
                if (!best || cpu->time < best->time || (frees && !best_frees)) {
                        best = cpu;
                        best_frees = frees;
                }
        }
        return best;
}

/* The cache by the name in the event; if the kernel does not tell the name, by the call site. */
static uint16_t cache_of(struct reading *reading, const struct kind *kind, const char *event,
                         size_t bytes)
{
        char name[NAME_BYTES];
        uint64_t place;

        if (kind->by_size)
                return kind->operation == TRACE_ALLOC ? TRACE_CACHE_KMALLOC : TRACE_CACHE_UNKNOWN;
        if (kind->name.bytes) {
                /*
                 * A dynamic field: the lower bits are the offset of the text, the upper bits its
                 * length.
                 */
                place = value_of(&kind->name, event, bytes) & 0xffff;
                if (place >= bytes)
                        die("an event's name lies outside of it, at byte %" PRIu64, place);
                snprintf(name, sizeof(name), "%.*s", (int)(bytes - place), event + place);
        } else if (kind->operation == TRACE_ALLOC) {
                char function[NAME_BYTES / 2];

                symbols_name(reading->symbols, value_of(&kind->call_site, event, bytes), function,
                             sizeof(function));
                function[strcspn(function, "+")] = '\0';
                snprintf(name, sizeof(name), "?%s:%" PRIu64, function,
                         value_of(&kind->requested, event, bytes));
        } else {
                return TRACE_CACHE_UNKNOWN;
        }
        return lives_cache(reading->lives, name);
}

static void add_event(struct reading *reading, const struct cpu *cpu)
{
        const char *event = cpu->event;
        size_t bytes = event_bytes(cpu);
        int id = (int)value_of(&reading->type, event, bytes);
        const struct kind *kind = kind_of(reading, id);
        uint64_t irq = value_of(&reading->irq, event, bytes);
        struct lives_event converted;

        if (!kind)
                return;
        if (!reading->events++)
                reading->first_time = cpu->time;
        converted = (struct lives_event){
                .address = value_of(&kind->pointer, event, bytes),
                .time = cpu->time - reading->first_time,
                .site = value_of(&kind->call_site, event, bytes),
                .requested = value_of(&kind->requested, event, bytes),
                .given = value_of(&kind->given, event, bytes),
                .thread = (int32_t)value_of(&reading->thread, event, bytes),
                .flags = (uint32_t)value_of(&kind->flags, event, bytes),
                .cpu = (uint16_t)(cpu - reading->cpus),
                .operation = (uint8_t)(kind->operation | (irq & FLAG_SOFTIRQ ? TRACE_SOFTIRQ : 0) |
                                       (irq & FLAG_HARDIRQ ? TRACE_HARDIRQ : 0)),
        };
        if (converted.address < ADDRESS_LEAST)
                return;
        converted.cache = cache_of(reading, kind, event, bytes);
        lives_add(reading->lives, &converted);
}

static void name_site(void *context, uint64_t site, char *text, size_t bytes)
{
        symbols_name(((struct reading *)context)->symbols, site, text, bytes);
}

void kernel_convert(const struct kernel_source *source)
{
        struct reading *reading = calloc(1, sizeof(*reading));
        struct trace_error error;
        struct lives_counts counts;
        struct cpu *cpu;
        FILE *report;
        char *path;

        if (!reading || !(reading->cpus = calloc(source->cpus, sizeof(*reading->cpus))))
                die("no memory");
        reading->source = source;
        reading->symbols = symbols_read();
        read_formats(reading);
        for (unsigned int i = 0; i < source->cpus; i++)
                open_cpu(reading, i);
        reading->lives = lives_open(source->path, source->cpus, (uint32_t)sysconf(_SC_PAGESIZE),
                                    source->text, name_site, reading, &error);
        if (!reading->lives)
                die("%s: %s", source->path, error.text);
        while ((cpu = earliest(reading))) {
                add_event(reading, cpu);
                next_event(reading, cpu);
        }
        if (!lives_close(reading->lives, &counts, &error))
                die("%s: %s", source->path, error.text);
        if (asprintf(&path, "%s/report", source->folder) < 0 || !(report = fopen(path, "r+e")))
                die("%s: %s", source->folder, strerror(errno));
        free(path);
        fprintf(report, "{");
        print_counts(report, &counts);
        fprintf(report,
                "\"events\": %" PRIu64 ", \"lost\": %" PRIu64
                ", \"seconds\": %.3f, \"status\": %d, ",
                reading->events, source->lost, source->seconds, source->status);
        fprintf(report, "\"cpus\": %u}\n", source->cpus);
        if (fclose(report))
                die("%s: %s", source->folder, strerror(errno));
}
