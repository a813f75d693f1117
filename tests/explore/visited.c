/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Executions whose steps are the same, with each pair of dependent ones in the same order, have come to the
 * same state. What follows from there, within what is left of the bound, is run once. A second execution
 * that comes there ends; but the steps which would have followed race with steps in front of the choice, and
 * the search must plan for those as if they had been made. So each choice is kept with these races (Yang,
 * Chen, Gopalakrishnan and Kirby, "Efficient stateful dynamic partial order reduction", SPIN 2008). The state
 * is not compared, only the order of steps in front of it (Musuvathi and Qadeer, "Partial-order reduction for
 * context-bounded state exploration", 2007).
 *
 * A choice is kept when everything behind it was run. What is kept may be overwritten: then its
 * continuations are run again. The memory is private to the process that plans, and its children only read:
 * it is in huge pages, so that fork has few entries to copy.
 */
#define _GNU_SOURCE
#include "visited.h"

#include <stdint.h>
#include <string.h>
#include <sys/mman.h>

enum {
        ENTRIES = 1 << 20,
        WAYS = 4,
        RACES = 1 << 24,
        HUGE_BYTES = 2 << 20,
};

struct entry {
        uint64_t key;   /* 0: none */
        uint64_t first; /* number of its first race, of all that were kept */
        uint16_t count;
        uint8_t used;
        uint8_t going_on;
};

static struct memory {
        struct entry entry[ENTRIES];
        struct visited_race race[RACES]; /* the newest of all that were kept */
} * memory;
static uint64_t races;

bool visited_init(void)
{
        char *start = mmap(NULL, sizeof(*memory) + HUGE_BYTES, PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

        if (start == MAP_FAILED)
                return false;
        start += -(uintptr_t)start % HUGE_BYTES;
        madvise(start, sizeof(*memory), MADV_HUGEPAGE);
        memory = (struct memory *)(void *)start;
        return true;
}

void visited_clear(void)
{
        madvise(memory, sizeof(*memory), MADV_DONTNEED);
        races = 0;
}

static uint64_t mixed(uint64_t value)
{
        value = (value ^ value >> 31) * 0x9e3779b97f4a7c15;
        return value ^ value >> 29;
}

static uint64_t key_of(const struct visited_key *key)
{
        return mixed(key->trace ^ mixed((uint64_t)(key->last + 1) << 16 |
                                        (uint64_t)(key->stays + 1) << 8 | key->ready)) |
               1;
}

static struct entry *bucket_of(uint64_t key)
{
        return &memory->entry[(key >> 1) % (ENTRIES / WAYS) * WAYS];
}

static bool has_races(const struct entry *entry)
{
        return entry->first + RACES >= races;
}

bool visited_find(const struct visited_key *key, unsigned int used, struct visited *found)
{
        uint64_t sum = key_of(key);
        const struct entry *entry = bucket_of(sum);

        for (unsigned int i = 0; i < WAYS; i++)
                if (entry[i].key == sum && entry[i].used <= used && has_races(&entry[i])) {
                        *found = (struct visited){.race = &memory->race[entry[i].first % RACES],
                                                  .count = entry[i].count,
                                                  .going_on = entry[i].going_on};
                        return true;
                }
        return false;
}

/* In the place of the same choice with more preemptions in front, or of the oldest. */
void visited_add(const struct visited_key *key, unsigned int used, const struct visited *visited)
{
        uint64_t sum = key_of(key);
        struct entry *entry = bucket_of(sum);
        struct entry *oldest = entry;

        for (unsigned int i = 0; i < WAYS; i++) {
                if (entry[i].key == sum || !entry[i].key) {
                        oldest = &entry[i];
                        break;
                }
                if (entry[i].first < oldest->first)
                        oldest = &entry[i];
        }
        if (races % RACES + visited->count > RACES)
                races += RACES - races % RACES;
        memcpy(&memory->race[races % RACES], visited->race,
               visited->count * sizeof(*visited->race));
        *oldest = (struct entry){.key = sum,
                                 .first = races,
                                 .count = (uint16_t)visited->count,
                                 .used = (uint8_t)used,
                                 .going_on = (uint8_t)visited->going_on};
        races += visited->count;
}
