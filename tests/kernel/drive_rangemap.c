/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * The model of the extent map: the value of each index in a few clusters, which lie far apart.
 */
#include "driver.h"
#include "rangemap.h"

#include <errno.h>

enum { CLUSTERS = 8, POSITIONS = 512 };

static uint64_t expected[CLUSTERS][POSITIONS];

/* From 0 up to the very last index. */
static uint64_t base_of(unsigned int cluster)
{
        if (cluster == CLUSTERS - 1)
                return UINT64_MAX - POSITIONS + 1;
        return cluster ? 1ull << (cluster * 8 + 8) : 0;
}

static uint64_t expected_count(void)
{
        uint64_t count = 0;

        for (unsigned int cluster = 0; cluster < CLUSTERS; cluster++)
                for (unsigned int i = 0; i < POSITIONS; i++)
                        count += expected[cluster][i] != 0;
        return count;
}

/* Runs of equal values. Clusters never touch. */
static uint64_t expected_extents(void)
{
        uint64_t count = 0;

        for (unsigned int cluster = 0; cluster < CLUSTERS; cluster++)
                for (unsigned int i = 0; i < POSITIONS; i++)
                        count += expected[cluster][i] &&
                                 (!i || expected[cluster][i] != expected[cluster][i - 1]);
        return count;
}

static void store(struct random *random, unsigned int cluster, unsigned int from, unsigned int to)
{
        uint64_t value = (uint64_t)(cluster + 1) << 32 | (1 + below(random, 3));

        check(rm_store(base_of(cluster) + from, base_of(cluster) + to, value) == 0);
        for (unsigned int i = from; i <= to; i++)
                expected[cluster][i] = value;
}

static void erase(unsigned int cluster, unsigned int from, unsigned int to)
{
        int64_t count = 0;

        for (unsigned int i = from; i <= to; i++) {
                count += expected[cluster][i] != 0;
                expected[cluster][i] = 0;
        }
        check(rm_erase(base_of(cluster) + from, base_of(cluster) + to) == count);
}

/* The next extent by the model, of this cluster only. */
static void next(unsigned int cluster, unsigned int position)
{
        unsigned int start = position;
        unsigned int end;
        unsigned long long first;
        unsigned long long last;
        unsigned long long value;
        bool found = rm_next(base_of(cluster) + position, &first, &last, &value);

        while (start < POSITIONS && !expected[cluster][start])
                start++;
        if (start == POSITIONS) {
                check(!found || first > base_of(cluster) + POSITIONS - 1);
                return;
        }
        for (end = start; end + 1 < POSITIONS; end++)
                if (expected[cluster][end + 1] != expected[cluster][start])
                        break;
        while (start && expected[cluster][start - 1] == expected[cluster][start])
                start--;
        check(found && first == base_of(cluster) + start && last == base_of(cluster) + end &&
              value == expected[cluster][end]);
}

static void look(struct random *random)
{
        unsigned int cluster = below(random, CLUSTERS);
        uint64_t value = rm_load(base_of(cluster) + below(random, POSITIONS));

        check(value == 0 || value >> 32 == cluster + 1);
}

static void step(struct random *random, uint64_t operation)
{
        unsigned int cluster = below(random, CLUSTERS);
        unsigned int from = below(random, POSITIONS);
        unsigned int to = from + below(random, 30);
        unsigned int which = below(random, 100);

        if (to >= POSITIONS)
                to = POSITIONS - 1;
        if (which < 30)
                store(random, cluster, from, to);
        else if (which < 50)
                erase(cluster, from, to);
        else if (which < 80)
                check(rm_load(base_of(cluster) + from) == expected[cluster][from]);
        else if (which < 99)
                next(cluster, from);
        else
                erase(cluster, 0, POSITIONS - 1);
        if (operation % 20000 == 0) {
                check(rm_check() == 0);
                check(rm_extents() == expected_extents());
                check(rm_store(2, 1, 1) == -EINVAL && rm_store(1, 2, 0) == -EINVAL);
        }
}

void drive_rangemap(uint64_t operations, struct random *random)
{
        readers_start(look);
        for (uint64_t operation = 1; operation <= operations; operation++)
                step(random, operation);
        readers_stop();
        check(rm_erase(0, UINT64_MAX) == (int64_t)expected_count());
        check(rm_extents() == 0 && rm_check() == 0);
}
