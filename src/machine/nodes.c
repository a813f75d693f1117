/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * NUMA nodes from /sys/devices/system/node and the process's cpuset. Runs once, before the first
 * allocation; with system calls only. On a machine with a single node it makes a single system
 * call.
 */
#define _GNU_SOURCE
#include "machine/nodes.h"

#include "lang/bits.h"
#include "lang/number.h"
#include "machine/cpus.h"
#include "machine/file.h"
#include "machine/syscall.h"
#include "lang/text.h"

#include <limits.h>
#include <linux/mempolicy.h>
#include <string.h>

enum {
        TEXT_BYTES = 4096,
        DISTANCE_SELF = 10,  /* the distance that firmware gives from a node to itself, */
        DISTANCE_OTHER = 20, /* and the kernel for two nodes that it knows nothing about */
};

static unsigned int bits_count(const uint64_t mask[NODE_MASK_WORDS])
{
        unsigned int count = 0;

        for (unsigned int word = 0; word < NODE_MASK_WORDS; word++)
                count += (unsigned int)__builtin_popcountll(mask[word]);
        return count;
}

/* A list like "0-1,3" as a mask; false and an empty mask if the text is no list. */
static bool parse_mask(const char *text, uint64_t mask[NODE_MASK_WORDS])
{
        memset(mask, 0, NODE_MASK_WORDS * sizeof(*mask));
        for (;;) {
                int64_t first, last;

                if (!number_range(&text, NODE_NUMBERS, &first, &last)) {
                        memset(mask, 0, NODE_MASK_WORDS * sizeof(*mask));
                        return false;
                }
                for (; first <= last; first++)
                        bit_set(mask, (size_t)first);
                if (*text != ',')
                        return true;
                text++;
        }
}

/* Not on the stack, which may be small. */
static KMEM_SPARSE char file_text[TEXT_BYTES];

/* Into file_text: reads @folder/@name, or @folder/node@number/@name if that is not negative. */
static bool node_file_read(const char *folder, int number, const char *name)
{
        static KMEM_SPARSE char path[PATH_MAX];
        char *end;

        if (strlen(folder) + strlen(name) + sizeof("/node1023/") > sizeof(path))
                return false;
        end = stpcpy(path, folder);
        if (number >= 0)
                end = text_number(stpcpy(end, "/node"), (uint64_t)number, 0);
        stpcpy(stpcpy(end, "/"), name);
        return file_read(path, file_text, TEXT_BYTES);
}

/*
 * Distances from the node with the kernel's number @from to each of our nodes. The file has a
 * distance for each online node.
 */
static void distances_read(const struct nodes *nodes, const char *folder, unsigned int from,
                           const uint64_t online[NODE_MASK_WORDS], int64_t distance[NODES_MAX])
{
        const char *at = file_text;

        for (unsigned int node = 0; node < nodes->count; node++)
                distance[node] = nodes->number[node] == from ? DISTANCE_SELF : DISTANCE_OTHER;
        if (!node_file_read(folder, (int)from, "distance"))
                return;
        for (unsigned int number = 0; number < NODE_NUMBERS; number++) {
                int64_t value;

                if (!bit_get(online, number))
                        continue;
                while (*at == ' ')
                        at++;
                value = number_next(&at);
                if (value < 0)
                        return;
                for (unsigned int node = 0; node < nodes->count; node++)
                        if (nodes->number[node] == number && number != from)
                                distance[node] = max_of(value, (int64_t)DISTANCE_SELF + 1);
        }
}

/*
 * Sorts all our nodes, the nearest first; at equal distance the nodes that follow @from in the ring
 * come first.
 */
static void sort_near(const struct nodes *nodes, unsigned int from,
                      const int64_t distance[NODES_MAX], uint8_t near[NODES_MAX])
{
        for (unsigned int step = 0; step < nodes->count; step++) {
                uint8_t node = (uint8_t)((from + step) % nodes->count);
                unsigned int place = step;

                while (place && distance[near[place - 1]] > distance[node]) {
                        near[place] = near[place - 1];
                        place--;
                }
                near[place] = node;
        }
}

void nodes_read_folder(struct nodes *nodes, const char *folder,
                       const uint64_t allowed[NODE_MASK_WORDS])
{
        uint64_t online[NODE_MASK_WORDS];
        uint64_t memory[NODE_MASK_WORDS];

        memset(nodes, 0, sizeof(*nodes));
        if (!node_file_read(folder, -1, "online") || !parse_mask(file_text, online))
                memset(online, 0, sizeof(online));
        if (!node_file_read(folder, -1, "has_memory") || !parse_mask(file_text, memory))
                memcpy(memory, online, sizeof(memory));
        for (unsigned int number = 0; number < NODE_NUMBERS && nodes->count < NODES_MAX; number++)
                if (bit_get(memory, number) && bit_get(online, number) && bit_get(allowed, number))
                        nodes->number[nodes->count++] = (uint16_t)number;
        if (nodes->count < 2) {
                nodes->count = 1;
                return;
        }
        for (unsigned int number = 0; number < NODE_NUMBERS; number++) {
                int64_t distance[NODES_MAX];
                uint8_t near[NODES_MAX] = {0};
                unsigned int own = 0;
                unsigned int cpus, limit;

                if (!bit_get(online, number))
                        continue;
                while (own < nodes->count && nodes->number[own] != number)
                        own++;
                distances_read(nodes, folder, number, online, distance);
                sort_near(nodes, own % nodes->count, distance, near);
                nodes->of[number] = near[0];
                if (own < nodes->count)
                        memcpy(nodes->near[own], near, sizeof(near));
                if (!node_file_read(folder, (int)number, "cpulist"))
                        continue;
                cpus_parse_list(file_text, &cpus, &limit);
                nodes->cpus[near[0]] += cpus;
        }
}

void nodes_read(struct nodes *nodes)
{
        uint64_t allowed[NODE_MASK_WORDS] = {0};
        long result = system_call6(SYS_get_mempolicy, 0, (long)allowed, NODE_NUMBERS, 0,
                                   MPOL_F_MEMS_ALLOWED, 0);

        if (system_call_failed(result) || bits_count(allowed) == 0)
                memset(allowed, 0xff, sizeof(allowed));
        if (bits_count(allowed) != 1)
                nodes_read_folder(nodes, "/sys/devices/system/node", allowed);
}
