/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * The reservation of hardened blocks, and the sizes of its classes, slabs and quarantines.
 *
 *   tables: chunks | records | pools || chunks of the classes
 *
 * The tables are accessible as far as they are in use, with address space without access behind each. A chunk is 4
 * MiB, or less under a limit of the address space, so that every class may have some.
 */
#include "engines/hardened/hardened.h"
#include "engines/hardened/large.h"

#include "lang/bits.h"
#include "machine/message.h"
#include "machine/system.h"

#include <string.h>

struct hardened_table hardened;

/* glibc's: 0 once the process has, or had, a second thread. */
extern char __libc_single_threaded __attribute__((weak));

static const char never_single;
const char *hardened_single = &never_single;

enum {
        CHUNK_SHIFT_MAX = 22,
        CHUNKS_LEAST = 4 * HARDENED_CLASSES, /* as far as 256 KiB chunks go */
        CHUNK_SHIFT_MIN = 18,
        RECORDS_SHIFT = 4,          /* a 16th of the chunk has room for the records of its slabs */
        QUARANTINE_BYTES = 8 << 10, /* in each of a pool's two parts, or a single object */
        WINDOW_CHUNKS = 64,
        WANTED_PART = 8,
        LARGE_WAIT_BYTES = 32 << 10, /* above it an object does not grow old */
};

static const size_t RESERVED_MAX = (size_t)1 << 40;
static const size_t RESERVED_LEAST = (size_t)32 << 20;
static const uintptr_t LARGE_PLACES_BITS = 46; /* large blocks lie below that address */

/*
 * 16-byte steps to 128, then eight classes a doubling to 1 KiB, then four to 128 KiB. Room for the canary is a part of
 * the size, so malloc(24) takes 32 bytes as with glibc.
 */
static uint32_t size_of_class(uint32_t number)
{
        uint32_t least, step;

        if (number <= 7)
                return 16 * (number + 1);
        if (number < 32) {
                least = 128u << (number - 8) / 8;
                step = (number - 8) % 8 + 1;
                return least + least / 8 * step;
        }
        least = 1024u << (number - 32) / 4;
        step = (number - 32) % 4 + 1;
        return least + least / 4 * step;
}

/* The class with the least size of @bytes or more, from 32 bytes on. */
static uint32_t class_of_bytes(size_t bytes)
{
        uint32_t power, shift;

        if (bytes <= 128)
                return bytes <= 32 ? 1 : (uint32_t)((bytes + 15) / 16 - 1);
        power = fls(bytes - 1) - 1;
        shift = power < 10 ? power - 3 : power - 2;
        bytes = (bytes - 1) >> shift;
        return power < 10 ? 8 + (power - 7) * 8 + (uint32_t)(bytes - 8)
                          : 32 + (power - 10) * 4 + (uint32_t)(bytes - 4);
}

uint32_t hardened_class_for(size_t size, size_t align)
{
        size_t most = hardened.classes[HARDENED_CLASSES - 1].size;
        uint32_t number;

        if (size == 0 && align <= hardened.classes[0].size)
                return 0;
        if (size > most - CANARY_BYTES || align > PAGE_SIZE)
                return HARDENED_CLASSES;
        number = class_of_bytes(size + CANARY_BYTES);
        while (number < HARDENED_CLASSES && hardened.classes[number].size & (align - 1))
                number++;
        return number;
}

size_t hardened_round(size_t size, size_t align)
{
        uint32_t number = hardened_class_for(size, align);

        if (number == 0)
                return 0;
        return number == HARDENED_CLASSES ? size : hardened.classes[number].size - CANARY_BYTES;
}

/* About eight objects or more, in slabs that small heaps can afford. */
static uint32_t bytes_of_slab(uint32_t size)
{
        uint32_t bytes = size <= 256     ? 8 << 10
                         : size <= 2048  ? 16 << 10
                         : size <= 4096  ? 32 << 10
                         : size <= 16384 ? 64 << 10
                                         : size;

        return (uint32_t)round_up((size_t)bytes, system_page_bytes());
}

/* With it, and for offsets below 2^22, a multiplication and a shift divide exactly. */
static uint64_t reciprocal_of(uint32_t divisor)
{
        return ((uint64_t)1 << 40) / divisor + 1;
}

static void class_init(struct hardened_class *class, uint32_t size)
{
        uint32_t guard = (uint32_t)system_page_bytes();
        size_t chunk = (size_t)1 << hardened.chunk_shift;
        uint32_t waiting = max_of(QUARANTINE_BYTES / size, 1u);

        class->size = size;
        class->slab_bytes = bytes_of_slab(size);
        class->objects = min_of(class->slab_bytes / size, (uint32_t)HARDENED_OBJECTS_MAX);
        class->wanted = (uint16_t)max_of(class->objects / WANTED_PART, 1u);
        class->record_bytes =
                (uint16_t)round_up(offsetof(struct slab_record, states) + 2ul * class->objects, 16);
        class->stride = class->slab_bytes + guard;
        /* The chunk begins with a guard, and the records have a bounded room. */
        class->slabs = (uint32_t)min_of((chunk - guard) / class->stride,
                                        hardened.chunk_records_bytes / class->record_bytes);
        class->drawn = min_of(waiting, (uint32_t)HARDENED_WAITING_MAX);
        class->aged = size > LARGE_WAIT_BYTES ? 0 : class->drawn;
        class->stride_reciprocal = reciprocal_of(class->stride);
        class->size_reciprocal = reciprocal_of(size);
        class->last_pair = class == &hardened.classes[0] ? 0 : size - 16;
}

static void classes_init_all(void)
{
        hardened.page_bytes = (uint32_t)system_page_bytes();
        for (uint32_t bytes = 0; bytes <= HARDENED_SMALL_MOST; bytes += 16)
                hardened.small_class[bytes / 16] = (uint8_t)class_of_bytes(bytes);
        /* Objects of the class without memory only need addresses of their own. */
        class_init(&hardened.classes[0], 32);
        for (uint32_t number = 1; number < HARDENED_CLASSES; number++)
                class_init(&hardened.classes[number], size_of_class(number));
}

/* A fourth of a limit: the heap of the named caches has another fourth, the program the rest. */
static size_t wanted_bytes(void)
{
        size_t bytes = RESERVED_MAX;
        size_t limit = system_address_space_limit();

        while (bytes > RESERVED_LEAST && bytes > limit / 4)
                bytes /= 2;
        return bytes;
}

static uint32_t chosen_arenas(void)
{
        uint32_t cpus = min_of(system_cpus(CPUS_USABLE), (unsigned int)HARDENED_ARENAS_MAX);

        return cpus <= 1 ? 1 : 1u << fls(cpus - 1);
}

static size_t pools_bytes(void)
{
        return round_up(HARDENED_ARENAS_MAX * HARDENED_CLASSES * sizeof(struct pool),
                        system_page_bytes());
}

static size_t chunks_bytes(size_t bytes)
{
        return round_up((bytes >> hardened.chunk_shift) * sizeof(*hardened.chunks),
                        system_page_bytes());
}

static size_t tables_bytes(size_t bytes)
{
        /* A page without access in front of each, and in front of the chunks. */
        return chunks_bytes(bytes) + (bytes >> RECORDS_SHIFT) + pools_bytes() +
               4 * system_page_bytes();
}

static void choose_chunks(size_t bytes)
{
        hardened.chunk_shift = CHUNK_SHIFT_MAX;
        while (hardened.chunk_shift > CHUNK_SHIFT_MIN &&
               bytes >> hardened.chunk_shift < CHUNKS_LEAST)
                hardened.chunk_shift--;
        hardened.chunk_mask = (1u << hardened.chunk_shift) - 1;
        hardened.chunk_records_bytes = (size_t)1 << (hardened.chunk_shift - RECORDS_SHIFT);
}

static bool lay_out(char *start, size_t bytes)
{
        size_t page = system_page_bytes();
        size_t chunk = (size_t)1 << hardened.chunk_shift;

        start += page;
        hardened.chunks = (uint64_t *)(void *)start;
        start += chunks_bytes(bytes) + page;
        hardened.pools = (struct pool *)(void *)start;
        start += pools_bytes() + page;
        hardened.records = start;
        start += (bytes >> RECORDS_SHIFT) + page;
        hardened.base = round_up((uintptr_t)start, chunk);
        return system_commit(hardened.chunks, chunks_bytes(bytes)) &&
               system_commit(hardened.pools, pools_bytes());
}

static void make_key(void)
{
        struct random_stream first = {0};

        system_random(hardened.key, sizeof(hardened.key));
        /* The upper half of the lower 2^46: far from what the kernel places by itself. */
        hardened.large_window = stream_word(&first, hardened.key) >> (64 - LARGE_PLACES_BITS + 1);
        hardened.large_window |= (uintptr_t)1 << (LARGE_PLACES_BITS - 1);
}

static bool reserve(size_t bytes)
{
        size_t all;
        char *start;

        choose_chunks(bytes);
        all = tables_bytes(bytes) + bytes + ((size_t)1 << hardened.chunk_shift);
        start = system_reserve(all);
        if (!start)
                return false;
        system_keep_pages_small(start, all);
        if (!lay_out(start, bytes)) {
                system_unmap(start, all);
                return false;
        }
        hardened.has_guards = system_guard((void *)hardened.base, system_page_bytes());
        hardened.arenas = chosen_arenas();
        hardened.window_chunks =
                (uint32_t)min_of(bytes >> hardened.chunk_shift, (size_t)WINDOW_CHUNKS);
        classes_init_all();
        make_key();
        hardened.bytes = bytes;
        return true;
}

bool hardened_start(void)
{
        size_t bytes = wanted_bytes();

        while (!reserve(bytes)) {
                bytes /= 2;
                if (bytes < RESERVED_LEAST)
                        return false;
        }
        hardened.often_most = HARDENED_SMALL_MOST - CANARY_BYTES;
        if (&__libc_single_threaded)
                store_relaxed(&hardened_single, &__libc_single_threaded);
        hardened_change(false);
        return true;
}

void hardened_share(void)
{
        store_relaxed(&hardened_single, &never_single);
}

/* With system pages larger than the table, the table shares its page and stays writable. */
bool hardened_change(bool writable)
{
        return system_page_bytes() > sizeof(hardened) ||
               system_make_writable(&hardened, sizeof(hardened), writable);
}

/* Streams begin anew under another key; at most a block of each is the parent's. */
void hardened_fork_child(void)
{
        if (!hardened.bytes || system_sandbox_was_told() || !hardened_change(true))
                return;
        system_random(hardened.key, sizeof(hardened.key));
        hardened_change(false);
}
