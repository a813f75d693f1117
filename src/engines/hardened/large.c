/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Large hardened blocks (large.h), found by address in a table with open addressing. */
#include "engines/hardened/large.h"

#include "base/metadata.h"
#include "lang/bits.h"
#include "machine/system.h"

#include <string.h>

enum {
        TABLE_FIRST = 64,
        GUARD_PAGES_MOST = 16,  /* on each side, drawn from 1 on */
        WAITING_MOST = 64,      /* blocks in each part of the quarantine */
        PLACE_PAGES_SHIFT = 24, /* blocks lie in a window of that many pages */
        ROOMY_MOST = 1000,      /* blocks with room: each is three mappings */
        FILLED_LEAST = 8,       /* blocks that tell how a program uses them, */
        FILLED_PARTS = 4,       /* by a word in each of that many parts */
};

/* A block that has grown before gets as much room as it has bytes, up to that. */
static const size_t ROOM_BYTES_MOST = (size_t)1 << 30;

/* Pages that a block gets at once where the program will probably write to them (0038, item 16). */
static const size_t POPULATED_MOST = (size_t)4 << 20;
static const size_t GROWN_POPULATED_MOST = (size_t)256 << 10;

/* Of addresses; no memory is behind them. */
static const size_t WAITING_BYTES_MOST = (size_t)16 << 30;

struct large_block {
        uintptr_t start;   /* 0: the entry is empty */
        size_t size;       /* that was asked for */
        uintptr_t mapping; /* with the guards */
        size_t mapping_bytes;
        uint8_t form; /* enum block_form */
        bool aligned; /* to more than a line of the cache: the program may protect a part of it by itself */
        bool has_room; /* the rest of its mapping is no guards in mappings, and the block may grow into it */
};

struct closed_block {
        uintptr_t start; /* of the block; 0: none */
        uintptr_t mapping;
        size_t mapping_bytes;
};

struct lock hardened_large_lock;

/* Under hardened_large_lock. */
static KMEM_SPARSE struct {
        struct large_block *entries;
        size_t capacity; /* a power of two, or 0 */
        size_t count;
        size_t bytes;
        uint64_t taken;
        uint32_t roomy;  /* blocks with room */
        uint32_t filled; /* blocks freed since the last that was not filled, up to FILLED_LEAST */
        size_t closed_bytes;
        uint32_t next_aged;
        struct random_stream random;
        struct closed_block drawn[WAITING_MOST], aged[WAITING_MOST];
} large;

static size_t hash_of(uintptr_t start)
{
        return (size_t)(((uint64_t)start >> PAGE_SHIFT) * 0x9e3779b97f4a7c15u >> 20) &
               (large.capacity - 1);
}

static struct large_block *find_locked(const void *block)
{
        if (!large.capacity || !block)
                return NULL;
        for (size_t i = hash_of((uintptr_t)block);; i = (i + 1) & (large.capacity - 1)) {
                if (large.entries[i].start == (uintptr_t)block)
                        return &large.entries[i];
                if (!large.entries[i].start)
                        return NULL;
        }
}

static void insert_locked(const struct large_block *block)
{
        size_t i = hash_of(block->start);

        while (large.entries[i].start)
                i = (i + 1) & (large.capacity - 1);
        large.entries[i] = *block;
}

/* Entries behind the removed one move up where the search for them would end at the gap. */
static void remove_locked(struct large_block *block)
{
        size_t mask = large.capacity - 1;
        size_t gap = (size_t)(block - large.entries);

        for (size_t i = (gap + 1) & mask; large.entries[i].start; i = (i + 1) & mask) {
                size_t home = hash_of(large.entries[i].start);

                if (((i - home) & mask) >= ((i - gap) & mask)) {
                        large.entries[gap] = large.entries[i];
                        gap = i;
                }
        }
        large.entries[gap].start = 0;
}

/* Room for a further block; false without memory. */
static bool make_room_locked(void)
{
        size_t old_capacity = large.capacity;
        struct large_block *old = large.entries;
        size_t capacity = old_capacity ? old_capacity * 2 : TABLE_FIRST;
        struct large_block *entries;

        if ((large.count + 1) * 2 <= old_capacity)
                return true;
        entries = metadata_alloc(capacity * sizeof(*entries));
        if (!entries)
                return false;
        large.entries = entries;
        large.capacity = capacity;
        for (size_t i = 0; i < old_capacity; i++)
                if (old[i].start)
                        insert_locked(&old[i]);
        metadata_free(old, old_capacity * sizeof(*old));
        return true;
}

static void show_locked(void)
{
        store_relaxed(&hardened_figures.large_bytes, (uint64_t)large.bytes);
        /* A read-modify-write, for the fence in hardened_show. */
        exchange_release(&hardened_figures.closed_bytes, (uint64_t)large.closed_bytes);
        hardened_show();
}

static bool add_block(const struct large_block *block)
{
        bool added;

        lock_take(&hardened_large_lock);
        added = make_room_locked();
        if (added) {
                insert_locked(block);
                large.count++;
                large.bytes += block->size;
                large.taken++;
                add_owned(&large.roomy, (uint32_t)block->has_room);
                show_locked();
        }
        lock_drop(&hardened_large_lock);
        return added;
}

struct plan {
        size_t front, back; /* bytes of guards */
        uintptr_t wish;
};

static struct plan draw_plan(void)
{
        size_t page = system_page_bytes();
        uint64_t word;

        lock_take(&hardened_large_lock);
        large.random.nonce = HARDENED_ARENAS_MAX * HARDENED_CLASSES + 1;
        word = stream_word(&large.random, hardened.key);
        lock_drop(&hardened_large_lock);
        return (struct plan){
                .front = (1 + word % GUARD_PAGES_MOST) * page,
                .back = (1 + word / GUARD_PAGES_MOST % GUARD_PAGES_MOST) * page,
                .wish = round_down(hardened.large_window, page << PLACE_PAGES_SHIFT) +
                        (word >> 32 & ((1 << PLACE_PAGES_SHIFT) - 1)) * page,
        };
}

/* The block is accessible, and the rest of its mapping is not. @open: all of it is accessible already. */
static bool open_block(const struct large_block *block, size_t bytes, bool open)
{
        uintptr_t end = block->start + bytes;
        uintptr_t mapping_end = block->mapping + block->mapping_bytes;

        if (open || (!block->has_room && hardened.has_guards &&
                     system_commit((void *)block->mapping, block->mapping_bytes))) {
                if (system_guard((void *)block->mapping, block->start - block->mapping) &&
                    system_guard((void *)end, mapping_end - end))
                        return true;
                system_close((void *)block->mapping, block->mapping_bytes);
        }
        return system_commit((void *)block->start, bytes);
}

/* The mapping had room for any place of an aligned block of @bytes: what lies beyond its guards goes back. */
static void fit_mapping(struct large_block *block, size_t bytes, const struct plan *plan)
{
        uintptr_t begin = block->start - plan->front;
        uintptr_t end = block->start + bytes + plan->back;
        uintptr_t old_end = block->mapping + block->mapping_bytes;

        if (begin > block->mapping)
                system_unmap((void *)block->mapping, begin - block->mapping);
        if (old_end > end)
                system_unmap((void *)end, old_end - end);
        block->mapping = begin;
        block->mapping_bytes = end - begin;
}

/* @room: bytes that the block may grow by in place. */
static void *large_alloc(size_t size, size_t align, enum block_form form, size_t room)
{
        size_t page = system_page_bytes();
        size_t bytes = round_up(size, page);
        size_t slack = (align > page ? align : 0) + room;
        struct plan plan = draw_plan();
        /* Three calls of the system in place of six; locked memory takes no guards. */
        bool open = !slack && hardened.has_guards && !system_locks_memory();
        struct large_block block = {.size = size,
                                    .form = (uint8_t)form,
                                    .aligned = align > CACHE_LINE,
                                    .has_room = room != 0};

        if (size > PTRDIFF_MAX || bytes + slack < bytes ||
            bytes + slack + plan.front + plan.back < bytes)
                return NULL;
        block.mapping_bytes = plan.front + bytes + slack + plan.back;
        block.mapping = (uintptr_t)(open ? system_map_at(plan.wish, block.mapping_bytes)
                                         : system_reserve_at(plan.wish, block.mapping_bytes));
        if (!block.mapping)
                return NULL;
        block.start = round_up(block.mapping + plan.front, max_of(align, page));
        fit_mapping(&block, bytes + room, &plan);
        if (open_block(&block, bytes, open) && add_block(&block))
                return (void *)block.start;
        system_unmap((void *)block.mapping, block.mapping_bytes);
        return NULL;
}

void *hardened_large_alloc(size_t size, size_t align, enum block_form form)
{
        char *block = large_alloc(size, align, form, 0);

        /* Relaxed: what programs do with blocks changes seldom. */
        if (block && load_relaxed(&large.filled) == FILLED_LEAST)
                system_populate(block, min_of(size, POPULATED_MOST));
        return block;
}

/* The first byte behind the block that is not zero, as offset in the block, or UINT32_MAX. */
static uint32_t harmed_end(const struct large_block *block)
{
        const char *end = (const char *)block->start + block->size;
        const char *stop = (const char *)round_up((uintptr_t)end, system_page_bytes());

        for (const char *at = end; at < stop; at++) {
                /* Words at a time, as far as they are zero. */
                while ((uintptr_t)at % 8 == 0 && at < stop && !*(const uint64_t *)(const void *)at)
                        at += 8;
                if (at < stop && *at)
                        return (uint32_t)min_of((size_t)(at - (const char *)block->start),
                                                (size_t)UINT32_MAX - 1);
        }
        return UINT32_MAX;
}

static bool is_waiting_locked(const void *block)
{
        for (uint32_t i = 0; i < WAITING_MOST; i++)
                if (large.drawn[i].start == (uintptr_t)block ||
                    large.aged[i].start == (uintptr_t)block)
                        return true;
        return false;
}

/* Puts the block into the quarantine; returns the block that leaves it, which may be the same. */
static struct closed_block wait_locked(struct closed_block block)
{
        struct closed_block *drawn =
                &large.drawn[stream_below(&large.random, hardened.key, WAITING_MOST)];
        struct closed_block *aged = &large.aged[large.next_aged];
        struct closed_block leaves;

        if (block.mapping_bytes > WAITING_BYTES_MOST / WAITING_MOST)
                return block;
        large.closed_bytes += block.mapping_bytes;
        leaves = *drawn;
        *drawn = block;
        if (leaves.start) {
                struct closed_block oldest = *aged;

                *aged = leaves;
                large.next_aged = (large.next_aged + 1) % WAITING_MOST;
                leaves = oldest;
        }
        if (leaves.start)
                large.closed_bytes -= leaves.mapping_bytes;
        return leaves;
}

/* The room of a block does not wait: nothing was ever there. */
static void give_room_back(struct large_block *block)
{
        size_t page = system_page_bytes();
        size_t bytes = block->start + round_up(block->size, page) + page - block->mapping;

        if (block->has_room && bytes < block->mapping_bytes) {
                system_unmap((void *)(block->mapping + bytes), block->mapping_bytes - bytes);
                block->mapping_bytes = bytes;
        }
}

/* A block that is in no table any more. */
static void close_block(struct large_block *block)
{
        struct closed_block closed;

        give_room_back(block);
        closed = (struct closed_block){block->start, block->mapping, block->mapping_bytes};

        if (!system_retire((void *)block->mapping, block->mapping_bytes)) {
                system_unmap((void *)block->mapping, block->mapping_bytes);
                return;
        }
        lock_take(&hardened_large_lock);
        closed = wait_locked(closed);
        show_locked();
        lock_drop(&hardened_large_lock);
        if (closed.start)
                system_unmap((void *)closed.mapping, closed.mapping_bytes);
}

/*
 * Takes a block out of the table, unless something is wrong with the call; *known is false if there is no block.
 */
static struct large_block take_out(void *address, size_t size, enum block_form form,
                                   const char *call, const void *site, bool *known)
{
        struct large_block block = {0};
        struct large_block *entry;
        uint32_t bad = UINT32_MAX;
        bool waits, wrong = false;

        lock_take(&hardened_large_lock);
        entry = find_locked(address);
        waits = !entry && is_waiting_locked(address);
        if (entry) {
                block = *entry;
                bad = harmed_end(entry);
                wrong = hardened_is_wrong_form(block.form, form);
                if (bad == UINT32_MAX && !wrong && (size == SIZE_MAX || size == block.size)) {
                        remove_locked(entry);
                        large.count--;
                        large.bytes -= block.size;
                        add_owned(&large.roomy, -(uint32_t)block.has_room);
                }
        }
        lock_drop(&hardened_large_lock);
        *known = entry != NULL;
        if (unlikely(waits))
                hardened_report(call, address, "Object already free", "free already (double free)",
                                UINT32_MAX);
        if (unlikely(bad != UINT32_MAX))
                hardened_report(call, address, "Canary overwritten", "written to behind its end",
                                bad);
        if (unlikely(wrong)) {
                hardened_wrong_form(address, form, call, site);
                return take_out(address, size, form, call, site, known);
        }
        if (unlikely(entry && size != SIZE_MAX && size != block.size))
                hardened_report(call, address, "Wrong size of free", "freed with another size",
                                UINT32_MAX);
        return block;
}

/* By the last word of each part: none is zero. */
static bool is_filled(const struct large_block *block)
{
        for (size_t part = 1; part <= FILLED_PARTS; part++) {
                const char *end = (const char *)block->start + block->size / FILLED_PARTS * part;
                uint64_t word;

                memcpy(&word, end - sizeof(word), sizeof(word));
                if (!word)
                        return false;
        }
        return true;
}

/* Whether the program fills its large blocks, by those that it frees. */
static void note_filled(const struct large_block *block)
{
        bool filled;

        if (block->aligned || block->size < FILLED_PARTS * sizeof(uint64_t))
                return;
        filled = is_filled(block);
        lock_take(&hardened_large_lock);
        store_relaxed(&large.filled, filled ? min_of(large.filled + 1, (uint32_t)FILLED_LEAST) : 0);
        lock_drop(&hardened_large_lock);
}

bool hardened_large_free(void *address, size_t size, enum block_form form, const char *call,
                         const void *site)
{
        bool known;
        struct large_block block = take_out(address, size, form, call, site, &known);

        if (known) {
                note_filled(&block);
                close_block(&block);
        }
        return known;
}

size_t hardened_large_bytes(const void *address, bool *known)
{
        struct large_block *block;
        size_t bytes;

        lock_take(&hardened_large_lock);
        block = find_locked(address);
        bytes = block ? block->size : 0;
        *known = block != NULL;
        lock_drop(&hardened_large_lock);
        return bytes;
}

/* A program that makes a block larger has filled it, and goes on. */
static void populate_grown(char *block, size_t old, size_t size)
{
        size_t old_bytes = round_up(old, system_page_bytes());

        if (size > old_bytes)
                system_populate(block + old_bytes, min_of(size - old_bytes, GROWN_POPULATED_MOST));
}

/* LARGE-2: a page at least stays without access behind a block that grows. */
static bool grow_locked(const struct large_block *block, size_t size)
{
        size_t page = system_page_bytes();
        size_t old_bytes = round_up(block->size, page);
        size_t room = block->mapping + block->mapping_bytes - block->start - page;

        return block->has_room && size > block->size && size <= room &&
               system_commit((char *)block->start + old_bytes, round_up(size, page) - old_bytes);
}

/*
 * Resizes within the block's last page, or by its room; the bytes that the program gives up become zero (LARGE-1).
 */
static bool resize_in_place(void *address, size_t size, const char *call, size_t *old)
{
        struct large_block *block;
        bool fits = false;
        uint32_t bad = UINT32_MAX;
        bool wrong = false;

        lock_take(&hardened_large_lock);
        block = find_locked(address);
        *old = block ? block->size : 0;
        if (block) {
                bad = harmed_end(block);
                wrong = block->form != FORM_MALLOC;
                fits = bad == UINT32_MAX && !wrong &&
                       (round_up(size, system_page_bytes()) ==
                                round_up(block->size, system_page_bytes()) ||
                        grow_locked(block, size));
        }
        if (fits) {
                if (size < block->size)
                        memset((char *)address + size, 0, block->size - size);
                large.bytes += size - block->size;
                block->size = size;
        }
        lock_drop(&hardened_large_lock);
        if (unlikely(bad != UINT32_MAX))
                hardened_report(call, address, "Canary overwritten", "written to behind its end",
                                bad);
        if (unlikely(wrong))
                hardened_report(call, address, "Wrong form of free",
                                "from operator new, and cannot be resized", UINT32_MAX);
        return fits;
}

/* Moves the pages if the system can, else copies. */
static void move_content(char *to, char *from, size_t bytes)
{
        size_t pages = round_down(bytes, system_page_bytes());

        if (!pages || (uintptr_t)to % system_page_bytes() || !system_move(from, pages, to))
                pages = 0;
        memcpy(to + pages, from + pages, bytes - pages);
}

/* A block that grows will probably grow again, and each time it moves the system has much to do. */
static void *alloc_to_move(size_t old, size_t size, size_t align)
{
        size_t room = min_of(round_up(size, system_page_bytes()), ROOM_BYTES_MOST);
        void *moved = NULL;

        /* Relaxed: a bound that need not be exact. */
        if (size > old && load_relaxed(&large.roomy) < ROOMY_MOST)
                moved = large_alloc(size, align, FORM_MALLOC, room);
        return moved ? moved : hardened_alloc(size, align, FORM_MALLOC);
}

void *hardened_large_resize(void *address, size_t size, size_t align, const char *call)
{
        struct large_block block;
        size_t old;
        char *moved;
        bool known;

        if (resize_in_place(address, size, call, &old)) {
                populate_grown(address, old, size);
                return address;
        }
        moved = alloc_to_move(old, size, align);
        if (!moved)
                return NULL;
        if (hardened_contains(moved))
                memcpy(moved, address, min_of(old, size));
        else
                move_content(moved, address, min_of(old, size));
        block = take_out(address, SIZE_MAX, FORM_MALLOC, call, NULL, &known);
        /* Its pages have moved, so they do not tell whether they were filled. */
        if (known)
                close_block(&block);
        populate_grown(moved, old, size);
        return moved;
}

void hardened_large_count(struct hardened_counts *counts)
{
        lock_take(&hardened_large_lock);
        counts->large_blocks = large.count;
        counts->large_bytes = large.bytes;
        counts->blocks += large.count;
        counts->bytes += large.bytes;
        counts->taken += large.taken;
        counts->closed_bytes = large.closed_bytes;
        lock_drop(&hardened_large_lock);
}

static void unmap_closed_locked(struct closed_block *block)
{
        if (block->start)
                system_unmap((void *)block->mapping, block->mapping_bytes);
        *block = (struct closed_block){0};
}

void hardened_large_trim(void)
{
        lock_take(&hardened_large_lock);
        for (uint32_t i = 0; i < WAITING_MOST; i++) {
                unmap_closed_locked(&large.drawn[i]);
                unmap_closed_locked(&large.aged[i]);
        }
        large.closed_bytes = 0;
        show_locked();
        lock_drop(&hardened_large_lock);
}

void hardened_large_sweep(void)
{
        uintptr_t harmed = 0;
        uint32_t bad = UINT32_MAX;

        if (!lock_try(&hardened_large_lock))
                return;
        for (size_t i = 0; i < large.capacity && !harmed; i++)
                if (large.entries[i].start) {
                        bad = harmed_end(&large.entries[i]);
                        if (bad != UINT32_MAX)
                                harmed = large.entries[i].start;
                }
        lock_drop(&hardened_large_lock);
        if (unlikely(harmed))
                hardened_report("exit", (void *)harmed, "Canary overwritten",
                                "written to behind its end", bad);
}
