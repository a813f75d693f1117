/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Huge blocks: mapped, kept for reuse when freed, resized by mremap.
 *
 * HUGE-1  A mapping is in the table, or kept, or known to a single thread. It leaves the table
 *         before it is unmapped and enters it after it was mapped, so an address is never in the
 *         table twice. mremap does both at once and runs under huge_lock.
 * HUGE-2  Kept mappings never raise the peak: before fresh memory is mapped, and again before it is
 *         handed out, the oldest go until blocks and kept mappings together stay within the most
 *         that blocks ever had.
 */
#include "page/huge.h"

#include "base/options.h"
#include "machine/message.h"
#include "machine/probe.h"
#include "registry/registry.h"
#include "machine/system.h"
#include "page/guarded.h"
#include "page/huge_kept.h"
#include "page/huge_table.h"

/* A huge block that shrinks below this moves to the heap, where small steps are cheap. */
static const size_t MOVE_BYTES = (size_t)CHUNK_PAGES << PAGE_SHIFT;

struct lock huge_lock;

static size_t live_bytes;  /* bytes of blocks in the table; written under huge_lock */
static size_t peak_bytes;  /* the most that live_bytes ever was; written under huge_lock */
static size_t peak_blocks; /* the most blocks that the table ever had; written under huge_lock */
static size_t handed_out;  /* cumulative; added to without a lock */

/* Under huge_lock, so that the figures shown last are the newest. */
static void show_locked(void)
{
        struct registry_head *head = registry_head_shown();

        debug_check(lock_is_held(&huge_lock));
        if (!head)
                return;
        store_relaxed(&head->huge_blocks, (uint64_t)huge_table_length());
        store_relaxed(&head->huge_bytes, (uint64_t)live_bytes);
        store_relaxed(&head->huge_kept_bytes, (uint64_t)huge_kept_bytes());
}

/* Drops the lock, under which blocks or kept mappings have changed, and shows them. */
static void huge_drop_changed(void)
{
        show_locked();
        lock_drop(&huge_lock);
}

/* Without huge_lock. Returns the bytes given back. */
static size_t victims_unmap(const struct huge_victims *victims)
{
        size_t bytes = 0;

        for (unsigned int i = 0; i < victims->count; i++) {
                PROBE3(pages_purge, victims->mapping[i].start, victims->mapping[i].bytes, true);
                system_unmap(victims->mapping[i].start,
                             victims->mapping[i].bytes + guarded_behind());
                bytes += victims->mapping[i].bytes;
        }
        return bytes;
}

static void live_add_locked(size_t bytes)
{
        add_owned(&live_bytes, bytes);
        store_relaxed(&peak_bytes, max_of(peak_bytes, live_bytes));
        store_relaxed(&peak_blocks, max_of(peak_blocks, (size_t)huge_table_length()));
}

/* HUGE-2, before @bytes are added. */
static void kept_make_room_locked(size_t bytes, struct huge_victims *victims)
{
        size_t live = live_bytes + bytes;

        huge_kept_limit_locked(peak_bytes > live ? peak_bytes - live : 0, victims);
}

/* More than is asked for is mapped to reach a large alignment, and trimmed at both ends. */
static void *map_aligned(size_t bytes, size_t align)
{
        size_t slack = align > system_page_bytes() ? align - system_page_bytes() : 0;
        size_t all = bytes + guarded_behind();
        uintptr_t start, aligned;

        if (all + slack < bytes)
                return NULL;
        start = (uintptr_t)system_map(all + slack);
        if (!start)
                return NULL;
        aligned = round_up(start, align);
        if (aligned != start)
                system_unmap((void *)start, aligned - start);
        if (aligned - start != slack)
                system_unmap((void *)(aligned + all), slack - (aligned - start));
        return guarded_close_behind((void *)aligned, bytes) ? (void *)aligned : NULL;
}

/* A kept mapping made a block again, or NULL. */
static void *huge_reuse_locked(size_t bytes, size_t align)
{
        void *start = huge_kept_take_locked(&bytes, align);

        if (start) {
                huge_table_add_locked(start, bytes);
                live_add_locked(bytes);
        }
        return start;
}

static void *huge_map(size_t bytes, size_t align)
{
        struct huge_victims victims = {.count = 0};
        void *start = map_aligned(bytes, align);
        bool added;

        /* The limit that refused it counts kept mappings too. */
        if (!start && huge_kept_drop(UINT64_MAX) != 0)
                start = map_aligned(bytes, align);
        if (!start)
                return NULL;
        PROBE2(pages_commit, start, bytes);
        lock_take(&huge_lock);
        added = huge_table_reserve_locked();
        if (added) {
                huge_table_add_locked(start, bytes);
                live_add_locked(bytes);
                /* Other threads may have mapped theirs since room was made for this block. */
                kept_make_room_locked(0, &victims);
        }
        huge_drop_changed();
        victims_unmap(&victims);
        if (!added) {
                system_unmap(start, bytes + guarded_behind());
                return NULL;
        }
        if (options.thp == THP_ALWAYS)
                system_make_pages_huge(start, bytes);
        else if (options.thp == THP_NEVER)
                system_keep_pages_small(start, bytes);
        return start;
}

void *huge_alloc(size_t bytes, size_t align, bool zero)
{
        struct huge_victims victims = {.count = 0};
        void *start = NULL;

        bytes = round_up(bytes, system_page_bytes());
        lock_take(&huge_lock);
        /* Clearing a kept mapping costs as much as mapping fresh memory. */
        if (!zero && huge_table_reserve_locked())
                start = huge_reuse_locked(bytes, align);
        if (!start)
                kept_make_room_locked(bytes, &victims);
        huge_drop_changed();
        victims_unmap(&victims);
        if (!start)
                start = huge_map(bytes, align);
        if (start)
                add_relaxed(&handed_out, 1);
        return start;
}

size_t huge_size(const void *address)
{
        struct huge_block *block;
        size_t bytes;

        /* A thread that asks about a huge block was given it after it was counted. */
        if (huge_table_length() == 0)
                return 0;
        lock_take(&huge_lock);
        block = huge_table_find_locked(address);
        bytes = !block ? 0 : block->request ? block->request : block->bytes;
        lock_drop(&huge_lock);
        return bytes;
}

bool huge_owner_set(const void *address, void *owner, size_t charge)
{
        struct huge_block *block;

        lock_take(&huge_lock);
        block = huge_table_find_locked(address);
        if (block) {
                block->owner = owner;
                block->charge = charge;
        }
        lock_drop(&huge_lock);
        return block != NULL;
}

void *huge_owner(const void *address, size_t *charge)
{
        struct huge_block *block;
        void *owner = NULL;

        if (huge_table_length() == 0)
                return NULL;
        lock_take(&huge_lock);
        block = huge_table_find_locked(address);
        if (block) {
                owner = block->owner;
                *charge = block->charge;
        }
        lock_drop(&huge_lock);
        return owner;
}

/* A freed mapping is kept, or if it is guarded, closed, and the one before it goes. */
static void give_locked(void *start, size_t bytes, uint64_t now, struct huge_victims *victims)
{
        if (!large_guarded) {
                huge_kept_add_locked(start, bytes, now, victims);
                return;
        }
        start = guarded_close_locked(start, &bytes);
        if (start) {
                victims->mapping[victims->count].start = start;
                victims->mapping[victims->count++].bytes = bytes;
        }
}

bool huge_free(void *address)
{
        struct huge_victims victims = {.count = 0};
        uint64_t now;
        struct huge_block *block;

        if (huge_table_length() == 0)
                return false;
        now = system_time_ms();
        lock_take(&huge_lock);
        block = huge_table_find_locked(address);
        if (block) {
                size_t bytes = block->bytes;

                PROBE2(large_free, address, bytes);
                guarded_check_locked(block);
                huge_table_remove_locked(block);
                add_owned(&live_bytes, -bytes);
                huge_kept_expire_locked(now, &victims);
                give_locked(address, bytes, now, &victims);
        }
        huge_drop_changed();
        victims_unmap(&victims);
        return block != NULL;
}

/* The block moved or changed its size; its entry follows. */
static void *huge_remap_locked(struct huge_block *block, size_t bytes)
{
        size_t old_bytes = block->bytes;
        void *old_start = (void *)block->start;
        void *start = system_remap(old_start, old_bytes, bytes);

        if (!start)
                return NULL;
        if (start == old_start) {
                block->bytes = bytes;
        } else {
                void *owner = block->owner;
                size_t charge = block->charge;

                huge_table_remove_locked(block);
                block = huge_table_add_locked(start, bytes);
                block->owner = owner;
                block->charge = charge;
        }
        add_owned(&live_bytes, -old_bytes);
        live_add_locked(bytes);
        return start;
}

/* The end of the block goes once the lock is dropped, as that takes as long as there are pages in it. */
static void huge_cut_locked(struct huge_block *block, size_t bytes, struct huge_victims *victims)
{
        victims->mapping[victims->count].start = (char *)(void *)block->start + bytes;
        victims->mapping[victims->count++].bytes = block->bytes - bytes;
        add_owned(&live_bytes, bytes - block->bytes);
        block->bytes = bytes;
}

/* As huge_resize. *again: the system refused it, but has got kept mappings back since. */
static void *huge_try_resize(void *address, size_t bytes, bool *again)
{
        struct huge_victims victims = {.count = 0};
        struct huge_block *block;
        void *start = NULL;
        bool refused = false;

        lock_take(&huge_lock);
        block = huge_table_find_locked(address);
        if (block && block->bytes == bytes) {
                start = address;
        } else if (block && (bytes >= MOVE_BYTES || block->bytes < HUGE_BYTES)) {
                if (bytes < block->bytes) {
                        huge_cut_locked(block, bytes, &victims);
                        start = address;
                } else {
                        kept_make_room_locked(bytes - block->bytes, &victims);
                        start = huge_remap_locked(block, bytes);
                }
                refused = !start;
        }
        huge_drop_changed();
        *again = victims_unmap(&victims) != 0;
        *again = refused && (*again || huge_kept_drop(UINT64_MAX) != 0);
        return start;
}

void *huge_resize(void *address, size_t bytes)
{
        void *start;
        bool again;

        /* A guarded block moves, so that stale pointers to it are noticed. */
        if (huge_table_length() == 0 || large_guarded)
                return NULL;
        bytes = round_up(max_of(bytes, (size_t)1), system_page_bytes());
        do
                start = huge_try_resize(address, bytes, &again);
        while (again);
        return start;
}

size_t huge_kept_drop(uint64_t now)
{
        struct huge_victims victims = {.count = 0};

        if (huge_kept_bytes() == 0)
                return 0;
        lock_take(&huge_lock);
        huge_kept_expire_locked(now, &victims);
        huge_drop_changed();
        return victims_unmap(&victims);
}

void huge_count(struct large_counts *counts)
{
        counts->huge_handed_out = load_relaxed(&handed_out);
        counts->huge_blocks = huge_table_length();
        counts->huge_bytes = load_relaxed(&live_bytes);
        counts->huge_kept_bytes = huge_kept_bytes();
        counts->huge_peak_blocks = load_relaxed(&peak_blocks);
        counts->huge_peak_bytes = load_relaxed(&peak_bytes);
}

size_t huge_held_bytes(void)
{
        return load_relaxed(&live_bytes) + huge_kept_bytes();
}

void huge_note_request(const void *address, size_t request)
{
        struct huge_block *block;

        lock_take(&huge_lock);
        block = huge_table_find_locked(address);
        if (block)
                guarded_note_locked(block, request);
        lock_drop(&huge_lock);
}

void huge_show(void)
{
        lock_take(&huge_lock);
        huge_drop_changed();
}
