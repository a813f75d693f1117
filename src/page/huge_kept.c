/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * The kept mappings are an array in the order they were freed, the oldest first. It is short,
 * so it is searched and shifted in line.
 */
#include "page/huge_kept.h"

#include "machine/message.h"
#include "base/options.h"
#include "page/huge.h"
#include "page/large.h"

struct kept {
        void *start;
        size_t bytes;
        uint64_t time_freed; /* ms */
};

static struct kept kept[KEPT_MAX];
static unsigned int length;
static size_t total_bytes;             /* written under huge_lock */
static uint64_t next_due = UINT64_MAX; /* written under huge_lock */

static void due_update_locked(void)
{
        uint64_t delay = min_of(options.purge_delay, (uint64_t)UINT32_MAX);

        store_relaxed(&next_due, length ? kept[0].time_freed + delay : UINT64_MAX);
}

static struct kept kept_remove_locked(unsigned int index)
{
        struct kept removed = kept[index];

        debug_check(lock_is_held(&huge_lock));
        length--;
        for (unsigned int i = index; i < length; i++)
                kept[i] = kept[i + 1];
        add_owned(&total_bytes, -removed.bytes);
        due_update_locked();
        return removed;
}

static void victim_add(struct huge_victims *victims, struct kept mapping)
{
        check_or_die(victims->count <= KEPT_MAX);
        victims->mapping[victims->count].start = mapping.start;
        victims->mapping[victims->count].bytes = mapping.bytes;
        victims->count++;
}

void *huge_kept_take_locked(size_t *bytes, size_t align)
{
        unsigned int best = KEPT_MAX;

        debug_check(lock_is_held(&huge_lock));
        for (unsigned int i = 0; i < length; i++) {
                bool fits = kept[i].bytes >= *bytes && kept[i].bytes - *bytes <= *bytes / 4 &&
                            ((uintptr_t)kept[i].start & (align - 1)) == 0;

                /* Of mappings of equal size the newest, which is likelier to be in a cache. */
                if (fits && (best == KEPT_MAX || kept[i].bytes <= kept[best].bytes))
                        best = i;
        }
        if (best == KEPT_MAX)
                return NULL;
        *bytes = kept[best].bytes;
        return kept_remove_locked(best).start;
}

void huge_kept_limit_locked(size_t bytes, struct huge_victims *victims)
{
        while (total_bytes > bytes)
                victim_add(victims, kept_remove_locked(0));
}

void huge_kept_add_locked(void *start, size_t bytes, uint64_t now, struct huge_victims *victims)
{
        struct kept added = {.start = start, .bytes = bytes, .time_freed = now};

        if (bytes > options.huge_cache_max) {
                victim_add(victims, added);
                return;
        }
        huge_kept_limit_locked((size_t)options.huge_cache_max - bytes, victims);
        if (length == KEPT_MAX)
                victim_add(victims, kept_remove_locked(0));
        kept[length++] = added;
        add_owned(&total_bytes, bytes);
        due_update_locked();
}

void huge_kept_expire_locked(uint64_t now, struct huge_victims *victims)
{
        while (length != 0 && next_due <= now)
                victim_add(victims, kept_remove_locked(0));
}

size_t huge_kept_bytes(void)
{
        return load_relaxed(&total_bytes);
}

uint64_t huge_kept_due(void)
{
        return load_relaxed(&next_due);
}
