/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * CPU counts from the affinity mask, the cgroup's quota and /sys. Each source may be missing
 * (containers, sandboxes, chroots), so each has a fallback: the affinity mask, then 1.
 *
 * Runs before anything else of the library, and again when caches are made or trimmed; with system
 * calls only. A single caller at a time.
 */
#define _GNU_SOURCE
#include "machine/cpus.h"

#include "lang/number.h"
#include "machine/file.h"
#include "machine/group_files.h"
#include "machine/syscall.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>

enum {
        CPU_LIMIT = 65536, /* larger numbers in a file mean that it is no CPU list */
};

/*
 * Files are read and masks computed in here, not on the stack: the first allocation of a process
 * may run on a small stack. In this order most calls touch a single page of it.
 */
static KMEM_SPARSE struct {
        uint64_t mask[CPU_MASK_WORDS]; /* the mask of a thread */
        union {
                struct group_room group;
                char text[sizeof(struct group_room)]; /* a file's, or directory entries */
        } __attribute__((aligned(8)));
} room;

void cpus_parse_list(const char *text, unsigned int *count, unsigned int *limit)
{
        *count = 0;
        *limit = 0;
        for (;;) {
                int64_t first, last;

                if (!number_range(&text, CPU_LIMIT, &first, &last)) {
                        *count = 0;
                        *limit = 0;
                        return;
                }
                *count += (unsigned int)(last - first) + 1;
                *limit = max_of(*limit, (unsigned int)last + 1);
                if (*text != ',')
                        return;
                text++;
        }
}

static unsigned int quota_cpus(int64_t quota, int64_t period)
{
        int64_t cpus;

        if (quota <= 0 || period <= 0)
                return 0;
        cpus = quota / period + (quota % period != 0);
        return (unsigned int)min_of(cpus, (int64_t)CPU_LIMIT);
}

unsigned int cpus_parse_quota(const char *text)
{
        int64_t quota = number_next(&text);

        if (quota < 0 || *text != ' ')
                return 0;
        text++;
        return quota_cpus(quota, number_next(&text));
}

/* Keeps the least quota that a folder shows, in *@result; 0 for none. */
static void quota_visit(const struct group_folder *folder, void *result)
{
        unsigned int *least = result;
        unsigned int quota = 0;
        char text[64];
        const char *number = text;
        int64_t per_period;

        if (folder->unified) {
                if (file_read(group_file(folder, "/cpu.max"), text, sizeof(text)))
                        quota = cpus_parse_quota(text);
        } else if (file_read(group_file(folder, "/cpu.cfs_quota_us"), text, sizeof(text))) {
                per_period = number_next(&number); /* -1: no limit, and "-1" is no number here */
                number = text;
                if (per_period > 0 &&
                    file_read(group_file(folder, "/cpu.cfs_period_us"), text, sizeof(text)))
                        quota = quota_cpus(per_period, number_next(&number));
        }
        if (quota != 0 && (*least == 0 || quota < *least))
                *least = quota;
}

/* CPUs that the cgroup's quota allows, 0 for no quota. */
static unsigned int quota_read(void)
{
        unsigned int least = 0;

        groups_each("cpu", &room.group, quota_visit, &least);
        return least;
}

/* Adds the CPUs of a thread's mask; false if the kernel does not tell. */
static bool affinity_add(long thread, uint64_t mask[CPU_MASK_WORDS])
{
        /* The kernel writes no more bits than it has CPUs. */
        long bytes = system_call(SYS_sched_getaffinity, thread, sizeof(room.mask), (long)room.mask);

        if (bytes <= 0)
                return false;
        for (size_t word = 0; word < (size_t)bytes / sizeof(room.mask[0]); word++)
                mask[word] |= room.mask[word];
        return true;
}

/* How many CPUs a mask names, and the highest number + 1. */
static void mask_count(const uint64_t mask[CPU_MASK_WORDS], unsigned int *count,
                       unsigned int *limit)
{
        *count = 0;
        *limit = 0;
        for (unsigned int word = 0; word < CPU_MASK_WORDS; word++) {
                if (mask[word] == 0)
                        continue;
                *count += (unsigned int)__builtin_popcountll(mask[word]);
                *limit = word * 64 + 64u - (unsigned int)__builtin_clzll(mask[word]);
        }
}

/* Adds the masks of all threads, as far as /proc shows them. */
static void affinity_add_threads(uint64_t mask[CPU_MASK_WORDS])
{
        long folder = system_call(SYS_openat, AT_FDCWD, (long)"/proc/self/task",
                                  O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        long bytes;

        if (system_call_failed(folder))
                return;
        while ((bytes = system_call(SYS_getdents64, folder, (long)room.text, sizeof(room.text))) >
               0)
                for (long at = 0; at < bytes;) {
                        const struct dirent64 *entry = (const void *)(room.text + at);
                        const char *name = entry->d_name;
                        int64_t thread = number_next(&name);

                        if (thread > 0)
                                affinity_add(thread, mask);
                        at += entry->d_reclen;
                }
        system_call(SYS_close, folder, 0, 0);
}

/*
 * The CPUs that the process may run on. A thread that is kept on a CPU says nothing about other
 * CPUs, so the masks of all threads count. They are asked for only if the first thread's mask
 * leaves out CPUs that are online. False if the kernel does not tell.
 */
static bool affinity_read(uint64_t mask[CPU_MASK_WORDS], unsigned int online)
{
        unsigned int count, limit;

        if (!affinity_add((long)system_process_id(), mask) && !affinity_add(0, mask))
                return false;
        mask_count(mask, &count, &limit);
        if (count < online)
                affinity_add_threads(mask);
        return true;
}

static void list_read(const char *path, unsigned int *count, unsigned int *limit)
{
        *count = 0;
        *limit = 0;
        if (file_read(path, room.text, GROUP_TEXT_BYTES))
                cpus_parse_list(room.text, count, limit);
}

static bool possible_known;

bool system_cpus_known(void)
{
        return possible_known;
}

void cpus_read(struct cpus *cpus)
{
        unsigned int usable, usable_limit;
        unsigned int online, online_limit;
        unsigned int present, present_limit;
        unsigned int possible, possible_limit;
        unsigned int quota = quota_read();
        bool has_mask;

        list_read("/sys/devices/system/cpu/online", &online, &online_limit);
        list_read("/sys/devices/system/cpu/present", &present, &present_limit);
        list_read("/sys/devices/system/cpu/possible", &possible, &possible_limit);
        possible_known = possible != 0;
        memset(cpus->mask, 0, sizeof(cpus->mask));
        has_mask = affinity_read(cpus->mask, online ? online : UINT_MAX);
        mask_count(cpus->mask, &usable, &usable_limit);
        if (!has_mask)
                memset(cpus->mask, 0xff, sizeof(cpus->mask));

        if (usable == 0)
                usable = max_of(online, 1u);
        if (online == 0)
                online = usable;
        if (present == 0)
                present = online;
        possible_limit = max_of(possible_limit, usable_limit);
        possible_limit = max_of(possible_limit, online_limit);
        possible_limit = max_of(possible_limit, present_limit);
        possible_limit = max_of(possible_limit, present);

        cpus->counts[CPUS_USABLE] = quota != 0 ? min_of(usable, quota) : usable;
        cpus->counts[CPUS_ONLINE] = online;
        cpus->counts[CPUS_PRESENT] = present > 1 ? present : possible_limit;
        cpus->counts[CPUS_POSSIBLE] = possible_limit;
}
