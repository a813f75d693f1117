/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Linear probing, at most half full, and no tombstones: removing an entry moves back the entries
 * behind it that were pushed over its place, so a search may stop at the first empty entry.
 */
#include "page/huge_table.h"

#include "lang/bits.h"
#include "machine/message.h"
#include "base/metadata.h"
#include "page/large.h"

enum { CAPACITY_MIN = 64 };

static struct huge_block *entries;
static size_t capacity; /* a power of two, or 0 */
static size_t length;   /* written under huge_lock */

/* Multiplying by 2^64 over the golden ratio spreads addresses that differ in few bits. */
static size_t home_of(uintptr_t start)
{
        return (size_t)((uint64_t)(start >> PAGE_SHIFT) * 0x9e3779b97f4a7c15u >> 32) &
               (capacity - 1);
}

static size_t index_behind(size_t index)
{
        return (index + 1) & (capacity - 1);
}

static struct huge_block *entry_put(struct huge_block block)
{
        size_t index = home_of(block.start);

        while (entries[index].start != 0)
                index = index_behind(index);
        entries[index] = block;
        return &entries[index];
}

bool huge_table_reserve_locked(void)
{
        struct huge_block *old = entries;
        size_t old_capacity = capacity;
        size_t new_capacity = old_capacity ? old_capacity * 2 : CAPACITY_MIN;
        struct huge_block *larger;

        debug_check(lock_is_held(&huge_lock));
        if (2 * (length + 1) <= capacity)
                return true;
        larger = metadata_alloc(new_capacity * sizeof(*larger));
        if (!larger)
                return length + 1 < capacity; /* slow when nearly full, but right */
        entries = larger;
        capacity = new_capacity;
        for (size_t i = 0; i < old_capacity; i++)
                if (old[i].start != 0)
                        entry_put(old[i]);
        metadata_free(old, old_capacity * sizeof(*old));
        return true;
}

struct huge_block *huge_table_add_locked(void *start, size_t bytes)
{
        debug_check(lock_is_held(&huge_lock));
        check_or_die(length + 1 < capacity);
        add_owned(&length, 1);
        return entry_put((struct huge_block){.start = (uintptr_t)start, .bytes = bytes});
}

struct huge_block *huge_table_find_locked(const void *start)
{
        debug_check(lock_is_held(&huge_lock));
        if (length == 0 || !start)
                return NULL;
        for (size_t i = home_of((uintptr_t)start); entries[i].start != 0; i = index_behind(i))
                if (entries[i].start == (uintptr_t)start)
                        return &entries[i];
        return NULL;
}

void huge_table_each_locked(void (*act)(const struct huge_block *block))
{
        debug_check(lock_is_held(&huge_lock));
        for (size_t i = 0; i < capacity; i++)
                if (entries[i].start != 0)
                        act(&entries[i]);
}

void huge_table_remove_locked(struct huge_block *block)
{
        size_t hole = (size_t)(block - entries);
        size_t index = hole;

        debug_check(lock_is_held(&huge_lock));
        for (;;) {
                size_t distance;

                index = index_behind(index);
                if (entries[index].start == 0)
                        break;
                /* An entry may move back as long as it does not pass its home. */
                distance = (index - home_of(entries[index].start)) & (capacity - 1);
                if (distance >= ((index - hole) & (capacity - 1))) {
                        entries[hole] = entries[index];
                        hole = index;
                }
        }
        entries[hole] = (struct huge_block){0};
        add_owned(&length, (size_t)-1);
}

size_t huge_table_length(void)
{
        return load_relaxed(&length);
}
