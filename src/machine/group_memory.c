/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Limits of memory in cgroup v2 and v1 (group_memory.h). */
#include "machine/group_memory.h"

#include "lang/bits.h"
#include "lang/number.h"
#include "machine/file.h"
#include "machine/group_files.h"

/* v1 writes the largest number of whole pages for "no limit". */
static const uint64_t NO_LIMIT = (uint64_t)1 << 60;

static KMEM_SPARSE struct group_room folders_room;
static KMEM_SPARSE char text[GROUP_TEXT_BYTES];

uint64_t group_stat_parse(const char *line, const char *name)
{
        size_t length = strlen(name);
        uint64_t number;

        while (strncmp(line, name, length) != 0 || line[length] != ' ') {
                line = strchr(line, '\n');
                if (!line)
                        return 0;
                line++;
        }
        line += length + 1;
        number_scan(&line, 10, &number);
        return number;
}

uint32_t group_pressure_parse(const char *line)
{
        static const char some[] = "some avg10=";
        uint64_t percent;

        if (strncmp(line, some, sizeof(some) - 1) != 0)
                return 0;
        line += sizeof(some) - 1;
        number_scan(&line, 10, &percent);
        return (uint32_t)min_of(percent, (uint64_t)100);
}

/* A file with a single number; @otherwise if there is none in it ("max"), or no file. */
static uint64_t number_of(const struct group_folder *folder, const char *name, uint64_t otherwise)
{
        const char *start = text;
        uint64_t number;

        if (!file_read(group_file(folder, name), text, sizeof(text)) ||
            number_scan(&start, 10, &number) == NUMBER_NONE)
                return otherwise;
        return number;
}

static uint64_t limit_of(const struct group_folder *folder)
{
        if (!folder->unified)
                return number_of(folder, "/memory.limit_in_bytes", UINT64_MAX);
        return min_of(number_of(folder, "/memory.high", UINT64_MAX),
                      number_of(folder, "/memory.max", UINT64_MAX));
}

/* Pages of files that were not used lately are the first that the kernel takes back. */
static uint64_t used_of(const struct group_folder *folder)
{
        bool unified = folder->unified;
        uint64_t used =
                number_of(folder, unified ? "/memory.current" : "/memory.usage_in_bytes", 0);
        uint64_t files = 0;

        if (file_read(group_file(folder, "/memory.stat"), text, sizeof(text)))
                files = group_stat_parse(text, unified ? "inactive_file" : "total_inactive_file");
        return used - min_of(used, files);
}

/* Keeps the figures of the group with the least room in *@result. */
static void memory_visit(const struct group_folder *folder, void *result)
{
        struct group_memory *least = result;
        uint64_t limit = limit_of(folder);
        uint64_t used;

        if (limit >= NO_LIMIT)
                return;
        used = used_of(folder);
        if (limit - min_of(limit, used) >= least->limit - min_of(least->limit, least->used))
                return;
        *least = (struct group_memory){.limit = limit, .used = used};
        if (folder->unified &&
            file_read(group_file(folder, "/memory.pressure"), text, sizeof(text)))
                least->pressure = group_pressure_parse(text);
}

bool group_memory_read(struct group_memory *memory)
{
        *memory = (struct group_memory){.limit = UINT64_MAX};
        groups_each("memory", &folders_room, memory_visit, memory);
        return memory->limit != UINT64_MAX;
}
