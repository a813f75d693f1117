/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * The events of option record: draws their numbers, maps the file in chunks and writes them
 * (record.h, format.h). Any thread may draw and write events at any time; only the mapping of
 * chunks is under record_lock, which is inside all other locks. A forked child goes on in its
 * parent's file, under a number of its own.
 */
#define _GNU_SOURCE
#include "record/record.h"

#include "lang/bits.h"
#include "machine/file.h"
#include "machine/lock.h"
#include "machine/message.h"
#include "base/options.h"
#include "machine/shared_file.h"
#include "lang/text.h"
#include "record/clock.h"
#include "record/format.h"

#include <errno.h>
#include <string.h>

enum {
        CHUNKS_MAX = 1 << 14,
        CHUNK_BYTES = RECORD_CHUNK_EVENTS * (int)sizeof(struct record_event),
        /* Chunks so far behind the newest leave memory; a late writer gets its page back. */
        CHUNKS_RESIDENT = 4,
        WAIT_FOR_HEADER_MS = 1000,
};

bool record_on;

static struct lock record_lock;
static struct record_header *header;
static struct shared_file raw_file; /* that has the header */
/*
 * Mapped chunks; each entry written once, under record_lock (release), read without it (acquire).
 */
static KMEM_SPARSE struct record_event *chunks[CHUNKS_MAX];
/* Number of the process in the file. Changes in a forked child only, which has a single thread. */
static uint16_t process;
/* This process writes no more: the file has its first events only. */
static bool ended;
/* Number of the latest fork event, plus 1; under cache_mutex, as all forks are. */
static uint64_t fork_number;

/* Initial-exec: access must never allocate. A child of vfork shares its parent's, and its heap. */
static _Thread_local struct {
        uint32_t thread;
        uint16_t process;
} self __attribute__((tls_model("initial-exec")));

static void end_recording(int error)
{
        uint64_t none = 0;

        if (load_relaxed(&ended))
                return;
        store_relaxed(&ended, true);
        compare_swap(&header->ended, &none, (uint64_t)error);
        message("record: %s: %s (error %d); expected %s; those of process %u from here on are "
                "lost, and counted",
                options.record, message_error(error), error,
                error == ESTALE ? "the file that it began, for more events"
                                : "room for more events",
                system_process_id());
}

/* Maps the chunk that begins with a number that was drawn; NULL if that fails. */
static KMEM_NOINLINE struct record_event *map_chunk(uint64_t chunk)
{
        struct record_event *events = NULL;
        int error = EFBIG;
        bool fresh = false;

        if (load_relaxed(&ended))
                return NULL;
        lock_take(&record_lock);
        if (chunk < CHUNKS_MAX) {
                events = chunks[chunk];
                fresh = !events;
        }
        if (fresh)
                events = shared_file_map(options.record, RECORD_HEADER_BYTES + chunk * CHUNK_BYTES,
                                         CHUNK_BYTES, &raw_file, &error);
        if (!events)
                end_recording(error);
        else if (fresh)
                store_release(&chunks[chunk], events);
        if (events && chunk >= CHUNKS_RESIDENT && chunks[chunk - CHUNKS_RESIDENT])
                system_purge(chunks[chunk - CHUNKS_RESIDENT], CHUNK_BYTES);
        lock_drop(&record_lock);
        /* Libraries may have been loaded meanwhile; ever more seldom. */
        if (fresh && events && chunk && is_power_of_two(chunk))
                record_maps();
        return events;
}

/*
 * RECORD-2: the counter is read and written with acquire and release, so no access of the caller
 * moves across. Pairs with itself in other threads.
 */
static struct record_event *draw(uint64_t *number)
{
        uint64_t drawn;
        uint64_t chunk;
        struct record_event *events;

        if (unlikely(load_relaxed(&ended))) {
                add_relaxed(&header->lost, 1);
                return NULL;
        }
        drawn = __atomic_fetch_add(&header->next, 1, __ATOMIC_ACQ_REL);
        chunk = drawn >> RECORD_CHUNK_SHIFT;
        /* Acquire pairs with the release in map_chunk. */
        events = likely(chunk < CHUNKS_MAX) ? load_acquire(&chunks[chunk]) : NULL;
        if (unlikely(!events)) {
                events = map_chunk(chunk);
                if (!events)
                        return NULL;
        }
        *number = drawn;
        return &events[drawn & (RECORD_CHUNK_EVENTS - 1)];
}

struct record_event *record_draw(void)
{
        uint64_t number;

        return draw(&number);
}

static KMEM_NOINLINE void know_thread(void)
{
        self.thread = system_thread_id();
        self.process = process;
}

/*
 * The kind comes last: an event that has a kind is whole. Release: pairs with readers of the file.
 */
static void fill(struct record_event *event, unsigned int kind, uint64_t address, uint64_t site,
                 uint64_t bytes)
{
        if (unlikely(!event))
                return;
        if (unlikely(self.process != process))
                know_thread();
        event->address = (address & RECORD_LOW_MASK) | (uint64_t)process << 48;
        event->site = site;
        event->bytes = bytes;
        event->clock = record_clock(&event->cpu);
        event->thread = self.thread;
        store_release(&event->kind, (uint16_t)kind);
}

void record_alloc(const void *block, size_t bytes, size_t given, uint32_t cache, const void *site)
{
        uint64_t excess = given >= bytes ? given - bytes : RECORD_EXCESS_UNKNOWN;

        if (!block)
                return;
        excess = min_of(excess, (uint64_t)RECORD_EXCESS_UNKNOWN);
        fill(record_draw(), RECORD_ALLOC | cache << RECORD_CACHE_SHIFT, (uintptr_t)block,
             (uintptr_t)site, (bytes & RECORD_LOW_MASK) | excess << 48);
}

void record_free(const void *block, const void *site)
{
        record_free_at(record_draw(), block, site);
}

void record_free_at(struct record_event *event, const void *block, const void *site)
{
        fill(event, RECORD_FREE, (uintptr_t)block, (uintptr_t)site, 0);
}

void record_void_at(struct record_event *event)
{
        fill(event, RECORD_VOID, 0, 0, 0);
}

/* Writes a name in parts; the last part has a zero byte, or no part follows it. */
static void record_name(uint32_t cache, const char *name)
{
        size_t length = strlen(name);

        for (size_t part = 0; part * RECORD_NAME_BYTES < length; part++) {
                const char *rest = name + part * RECORD_NAME_BYTES;
                uint64_t words[RECORD_NAME_BYTES / sizeof(uint64_t)] = {0};

                memcpy(words, rest, min_of(strlen(rest), sizeof(words)));
                fill(record_draw(), RECORD_NAME | cache << RECORD_CACHE_SHIFT, part, words[0],
                     words[1]);
        }
}

void record_cache(uint32_t cache, const char *name)
{
        record_name(cache, name);
}

/* Takes a number for this process, and records where its heap comes from. */
static void begin_process(uint64_t parent)
{
        char name[RECORD_NAME_BYTES + 1] = "";
        uint32_t number = add_relaxed(&header->processes, 1);

        if (number > RECORD_PROCESSES_MAX) {
                end_recording(EUSERS);
                return;
        }
        process = (uint16_t)number;
        fill(record_draw(), RECORD_PROCESS, 0, parent, system_process_id());
        system_thread_name(name);
        if (*name)
                record_name(0, name);
        record_maps();
}

/* The process that made the file writes the header; the others wait until it is written. */
static bool header_is_ready(void)
{
        uint64_t none = 0;
        uint64_t magic;
        uint64_t found;
        uint16_t cpu;

        memcpy(&magic, RECORD_MAGIC, sizeof(magic));
        if (compare_swap((uint64_t *)(void *)header->magic, &none, 1)) {
                header->clock_ns = system_time_ns();
                header->clock = record_clock(&cpu);
                header->event_bytes = sizeof(struct record_event);
                header->page_bytes = (uint32_t)PAGE_SIZE;
                header->cpus = system_cpus(CPUS_POSSIBLE);
                /* Pairs with the acquire below, of another process. */
                store_release((uint64_t *)(void *)header->magic, magic);
                return true;
        }
        for (uint64_t start = system_time_ms();;) {
                found = load_acquire((uint64_t *)(void *)header->magic);
                if (found != 1 || system_time_ms() - start > WAIT_FOR_HEADER_MS)
                        return found == magic;
                cpu_relax();
        }
}

static void report_other_file(void)
{
        message("record: %s: expected a new file, or one of this recording; nothing is "
                "recorded of process %u",
                options.record, system_process_id());
}

/*
 * Whether the file may have a recording: it is not there yet, it is empty, or it has a header, perhaps one that another
 * process is about to fill. Nothing else is touched, so a wrong name costs no file.
 */
static bool takes_recording(void)
{
        char start[sizeof(uint64_t) + 1];
        uint64_t magic, found;
        struct stat status;
        size_t used;

        /* What cannot be looked at, or is no file, has its reason when it is mapped. */
        if (file_status(-1, options.record, &status) || !S_ISREG(status.st_mode) ||
            status.st_size == 0 || file_read_all(options.record, start, sizeof(start), &used))
                return true;
        memcpy(&magic, RECORD_MAGIC, sizeof(magic));
        memcpy(&found, start, sizeof(found));
        return status.st_size >= RECORD_HEADER_BYTES &&
               (found == magic || found == 1 || (!found && status.st_size == RECORD_HEADER_BYTES));
}

void record_start(void)
{
        int error = 0;

        if (!takes_recording()) {
                report_other_file();
                return;
        }
        header = shared_file_map(options.record, 0, RECORD_HEADER_BYTES, &raw_file, &error);
        if (!header) {
                message("record: cannot write %s: %s (error %d); expected a file that may be "
                        "written, on a disk with room; nothing is recorded of process %u",
                        options.record, message_error(error), error, system_process_id());
                return;
        }
        if (!header_is_ready()) {
                report_other_file();
                return;
        }
        record_on = true;
        begin_process(0);
}

void record_maps(void)
{
        char path[sizeof(options.record) + 16];
        long maps = file_open_own("maps");

        if (maps < 0)
                return;
        if (text_print(path, sizeof(path), "%s.maps.%u", options.record, process) < sizeof(path))
                shared_file_copy(maps, path);
        file_close(maps);
}

bool record_lock_free(void)
{
        return !lock_is_held(&record_lock);
}

void record_fork_each_lock(void (*change)(struct lock *lock))
{
        change(&record_lock);
}

void record_fork(bool within)
{
        fork_number = 0;
        if (is_recording() && !within) {
                uint64_t number = 0;
                struct record_event *event = draw(&number);

                fill(event, RECORD_FORK, 0, 0, 0);
                fork_number = event ? number + 1 : 0;
        }
}

/* A child without a fork event has an unknown past, so nothing of it is recorded. */
void record_fork_child(bool within)
{
        if (!is_recording())
                return;
        if (fork_number && !within)
                begin_process(fork_number);
        else
                store_relaxed(&ended, true);
}
