/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Makes a trace of a process from a raw file that the library wrote (record/format.h).
 *
 *   record-program RAW                        lists the processes, as JSON
 *   record-program RAW PROCESS TRACE SOURCE   writes the trace of the process with that number
 *
 * A forked process has its parent's heap as it was then, so its trace begins with its parents'
 * events up to the fork.
 */
#define _GNU_SOURCE
#include "tools/record/record.h"

#include "lang/number.h"
#include "record/clock.h"
#include "record/format.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

const char program_words[] = "record";

enum {
        CACHES = 4096,
        CACHE_NAME = 64,
        LINEAGE_MAX = 256,
        ERRORS_MAX = 4095, /* the kernel's MAX_ERRNO */
};

struct process {
        uint64_t id;     /* of the system */
        uint64_t parent; /* number of the fork event, plus 1 */
        uint64_t events; /* allocations and frees */
        char name[RECORD_NAME_BYTES + 1];
};

struct mapping {
        uint64_t start;
        uint64_t end;
        uint64_t offset;
        char name[96];
};

struct raw {
        const struct record_header *header;
        const struct record_event *events;
        uint64_t count;            /* whole and holes */
        uint64_t missing;          /* drawn, but not in the file */
        struct process *processes; /* by number, from 1 on */
        struct mapping *mappings;  /* of the process that is written */
        size_t mapping_count;
};

static unsigned int kind_of(const struct record_event *event)
{
        return event->kind & RECORD_KIND_MASK;
}

static unsigned int process_of(const struct record_event *event)
{
        return (unsigned int)(event->address >> 48);
}

static void map_raw(struct raw *raw, const char *path)
{
        struct stat status;
        int file = open(path, O_RDONLY | O_CLOEXEC);
        const char *start;

        if (file < 0 || fstat(file, &status))
                die("%s: %s", path, strerror(errno));
        if (status.st_size < RECORD_HEADER_BYTES)
                die("%s: nothing was recorded", path);
        start = mmap(NULL, (size_t)status.st_size, PROT_READ, MAP_PRIVATE, file, 0);
        if (start == MAP_FAILED)
                die("%s: %s", path, strerror(errno));
        close(file);
        raw->header = (const void *)start;
        if (memcmp(raw->header->magic, RECORD_MAGIC, sizeof(raw->header->magic)) != 0 ||
            raw->header->event_bytes != sizeof(struct record_event))
                die("%s: not a raw file of this version", path);
        if (raw->header->cpus > TRACE_CPUS_MAX)
                die("%s: %u CPUs; expected at most %d", path, raw->header->cpus, TRACE_CPUS_MAX);
        if (raw->header->ended > ERRORS_MAX)
                die("%s: ended by error %" PRIu64 "; expected at most %d", path, raw->header->ended,
                    ERRORS_MAX);
        raw->events = (const void *)(start + RECORD_HEADER_BYTES);
        raw->count = ((uint64_t)status.st_size - RECORD_HEADER_BYTES) / sizeof(*raw->events);
        if (raw->count > raw->header->next)
                raw->count = raw->header->next;
        raw->missing = raw->header->next - raw->count + raw->header->lost;
}

static void find_processes(struct raw *raw)
{
        raw->processes = calloc((size_t)RECORD_PROCESSES_MAX + 1, sizeof(*raw->processes));
        if (!raw->processes)
                die("no memory");
        for (uint64_t i = 0; i < raw->count; i++) {
                const struct record_event *event = &raw->events[i];
                struct process *process = &raw->processes[process_of(event)];

                switch (kind_of(event)) {
                case 0:
                        raw->missing++;
                        break;
                case RECORD_ALLOC:
                case RECORD_FREE:
                        process->events++;
                        break;
                case RECORD_PROCESS:
                        process->id = event->bytes;
                        process->parent = event->site;
                        break;
                case RECORD_NAME:
                        if (!(event->kind >> RECORD_CACHE_SHIFT)) {
                                memcpy(process->name, &event->site, sizeof(event->site));
                                memcpy(process->name + sizeof(event->site), &event->bytes,
                                       sizeof(event->bytes));
                        }
                        break;
                }
        }
}

/* Prints a name inside quotes. */
static void print_name(const char *name)
{
        putchar('"');
        for (; *name; name++)
                if (*name == '"' || *name == '\\' || (unsigned char)*name < ' ')
                        putchar('?');
                else
                        putchar(*name);
        putchar('"');
}

static void print_processes(const struct raw *raw)
{
        bool first = true;

        printf("{\"missing\": %" PRIu64 ", \"ended\": %" PRIu64 ", \"processes\": [", raw->missing,
               raw->header->ended);
        for (unsigned int i = 1; i <= RECORD_PROCESSES_MAX; i++) {
                const struct process *process = &raw->processes[i];

                /* A thread that was killed may have left a hole where the process says its id. */
                if (!process->id && !process->events)
                        continue;
                printf("%s\n {\"number\": %u, \"pid\": %" PRIu64
                       ", \"forked\": %s, \"events\": %" PRIu64 ", \"name\": ",
                       first ? "" : ",", i, process->id, process->parent ? "true" : "false",
                       process->events);
                print_name(process->name);
                putchar('}');
                first = false;
        }
        printf("]}\n");
}

/* Reads the process's mappings. If the file is missing, sites are addresses. */
static void read_maps(struct raw *raw, const char *path, unsigned int number)
{
        char line[4096];
        char *name;
        FILE *file;

        if (asprintf(&name, "%s.maps.%u", path, number) < 0)
                die("no memory");
        file = fopen(name, "re");
        free(name);
        while (file && fgets(line, sizeof(line), file)) {
                struct mapping mapping;
                char executable;
                int at = 0;

                if (sscanf(line, "%" SCNx64 "-%" SCNx64 " %*2c%c%*c %" SCNx64 " %*s %*s %n",
                           &mapping.start, &mapping.end, &executable, &mapping.offset, &at) != 4 ||
                    executable != 'x' || !at || line[at] != '/')
                        continue;
                line[strcspn(line, "\n")] = '\0';
                snprintf(mapping.name, sizeof(mapping.name), "%.95s", strrchr(line, '/') + 1);
                raw->mappings =
                        realloc(raw->mappings, (raw->mapping_count + 1) * sizeof(*raw->mappings));
                if (!raw->mappings)
                        die("no memory");
                raw->mappings[raw->mapping_count++] = mapping;
        }
        if (file)
                fclose(file);
}

static void name_site(void *context, uint64_t site, char *text, size_t bytes)
{
        const struct raw *raw = context;

        for (size_t i = 0; i < raw->mapping_count; i++) {
                const struct mapping *mapping = &raw->mappings[i];

                if (site >= mapping->start && site < mapping->end) {
                        snprintf(text, bytes, "%s+0x%" PRIx64, mapping->name,
                                 site - mapping->start + mapping->offset);
                        return;
                }
        }
        snprintf(text, bytes, "0x%" PRIx64, site);
}

/* The end of each ancestor's events, the oldest ancestor first; the process itself is the last. */
struct lineage {
        unsigned int count;
        unsigned int process[LINEAGE_MAX];
        uint64_t end[LINEAGE_MAX];
};

static void find_lineage(const struct raw *raw, unsigned int number, struct lineage *lineage)
{
        uint64_t end = raw->count;

        while (lineage->count < LINEAGE_MAX) {
                uint64_t parent = raw->processes[number].parent;

                memmove(lineage->process + 1, lineage->process,
                        lineage->count * sizeof(*lineage->process));
                memmove(lineage->end + 1, lineage->end, lineage->count * sizeof(*lineage->end));
                lineage->process[0] = number;
                lineage->end[0] = end;
                lineage->count++;
                if (!parent)
                        return;
                if (parent > end)
                        break;
                end = parent - 1;
                number = process_of(&raw->events[end]);
        }
        die("process %u has more than %u ancestors that forked, or is among them", number,
            LINEAGE_MAX);
}

struct conversion {
        struct raw *raw;
        struct lives *lives;
        uint64_t clock_first;
        double ns_per_tick;
        char (*cache_names)[CACHE_NAME];
        uint16_t cache_ids[CACHES]; /* 0: not asked yet; cache 0 is memory by size */
};

static void read_clocks(uint64_t *clock, uint64_t *ns)
{
        struct timespec now;
        uint16_t cpu;

        clock_gettime(CLOCK_MONOTONIC, &now);
        *clock = record_clock(&cpu);
        *ns = (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

/*
 * Nanoseconds of a clock tick, by the time since the recording began, on this machine. Both clocks
 * begin anew with the machine: if it was restarted since, the result differs from the present
 * length of a tick, which is returned then.
 */
static double tick_ns(const struct record_header *header)
{
        static const struct timespec nap = {.tv_nsec = 20000000};
        uint64_t clock;
        uint64_t later_clock;
        uint64_t ns;
        uint64_t later_ns;
        double now;
        double since;

        read_clocks(&clock, &ns);
        nanosleep(&nap, NULL);
        read_clocks(&later_clock, &later_ns);
        if (later_clock <= clock)
                return 1;
        now = (double)(later_ns - ns) / (double)(later_clock - clock);
        if (later_clock <= header->clock || later_ns <= header->clock_ns)
                return now;
        since = (double)(later_ns - header->clock_ns) / (double)(later_clock - header->clock);
        return since > now * 0.98 && since < now * 1.02 ? since : now;
}

static void keep_name(struct conversion *conversion, unsigned int cache,
                      const struct record_event *event)
{
        uint64_t part = event->address & RECORD_LOW_MASK;
        char *name = conversion->cache_names[cache];

        if (part >= CACHE_NAME / RECORD_NAME_BYTES)
                return;
        if (part == 0)
                memset(name, 0, CACHE_NAME);
        memcpy(name + part * RECORD_NAME_BYTES, &event->site, sizeof(event->site));
        memcpy(name + part * RECORD_NAME_BYTES + sizeof(event->site), &event->bytes,
               sizeof(event->bytes));
        name[CACHE_NAME - 1] = '\0';
        conversion->cache_ids[cache] = 0;
}

static uint16_t cache_id(struct conversion *conversion, unsigned int cache)
{
        const char *name = conversion->cache_names[cache];

        if (!cache)
                return TRACE_CACHE_KMALLOC;
        if (!conversion->cache_ids[cache])
                conversion->cache_ids[cache] = lives_cache(conversion->lives, *name ? name : "?");
        return conversion->cache_ids[cache];
}

/* Damaged stamps may result in any number. */
static uint64_t time_of(double ns)
{
        return ns < (double)INT64_MAX ? (uint64_t)ns : INT64_MAX;
}

static void convert(struct conversion *conversion, const struct record_event *event)
{
        unsigned int kind = kind_of(event);
        unsigned int cache = event->kind >> RECORD_CACHE_SHIFT;
        uint64_t ticks = event->clock - conversion->clock_first;
        uint64_t excess = event->bytes >> 48;
        double ns = (double)ticks * conversion->ns_per_tick;
        struct lives_event converted = {
                .address = event->address & RECORD_LOW_MASK,
                .time = event->clock < conversion->clock_first ? 0 : time_of(ns),
                .site = event->site,
                .thread = (int32_t)event->thread,
                .cpu = event->cpu < conversion->raw->header->cpus ? event->cpu : 0,
        };

        if (kind == RECORD_NAME && cache) {
                keep_name(conversion, cache, event);
        } else if (kind == RECORD_ALLOC) {
                converted.operation = TRACE_ALLOC;
                converted.cache = cache_id(conversion, cache);
                converted.requested = event->bytes & RECORD_LOW_MASK;
                if (excess != RECORD_EXCESS_UNKNOWN)
                        converted.given = converted.requested + excess;
                lives_add(conversion->lives, &converted);
        } else if (kind == RECORD_FREE) {
                converted.operation = TRACE_FREE;
                converted.cache = TRACE_CACHE_UNKNOWN;
                lives_add(conversion->lives, &converted);
        }
}

static void write_trace(struct raw *raw, const char *raw_path, unsigned int number,
                        const char *path, const char *source)
{
        struct conversion *conversion = calloc(1, sizeof(*conversion));
        struct lineage lineage = {0};
        struct trace_error error;
        struct lives_counts counts;
        uint64_t at = 0;

        if (!conversion || !(conversion->cache_names = calloc(CACHES, CACHE_NAME)))
                die("no memory");
        find_lineage(raw, number, &lineage);
        for (unsigned int i = lineage.count; i-- > 0;)
                read_maps(raw, raw_path, lineage.process[i]);
        conversion->raw = raw;
        conversion->clock_first = raw->header->clock;
        conversion->ns_per_tick = tick_ns(raw->header);
        conversion->lives = lives_open(path, raw->header->cpus, raw->header->page_bytes, source,
                                       name_site, raw, &error);
        if (!conversion->lives)
                die("%s: %s", path, error.text);
        for (unsigned int i = 0; i < lineage.count; i++)
                for (; at < lineage.end[i]; at++)
                        if (process_of(&raw->events[at]) == lineage.process[i])
                                convert(conversion, &raw->events[at]);
        if (!lives_close(conversion->lives, &counts, &error))
                die("%s: %s", path, error.text);
        printf("{");
        print_counts(stdout, &counts);
        printf("\"process\": %u}\n", number);
}

int main(int argc, char **argv)
{
        struct raw raw = {0};
        uint64_t number;

        if (argc != 2 && argc != 5)
                die("expected a raw file, or a raw file, a process, a trace and a text");
        /* A write beyond the limit of file sizes is an error, and must not end the program. */
        signal(SIGXFSZ, SIG_IGN);
        map_raw(&raw, argv[1]);
        find_processes(&raw);
        if (argc == 2) {
                print_processes(&raw);
        } else {
                if (!number_whole(argv[2], &number) || !number || number > RECORD_PROCESSES_MAX ||
                    (!raw.processes[number].id && !raw.processes[number].events))
                        die("%s: no process of this recording", argv[2]);
                write_trace(&raw, argv[1], (unsigned int)number, argv[3], argv[4]);
        }
        return fflush(stdout) || ferror(stdout);
}
