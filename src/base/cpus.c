/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * CPU counts from the affinity mask, the cgroup's quota and /sys. Each source may be missing
 * (containers, sandboxes, chroots), so each has a fallback: the affinity mask, then 1.
 *
 * Runs once, before anything else of the library, with system calls only.
 */
#define _GNU_SOURCE
#include "base/cpus.h"

#include "base/syscall.h"

#include <fcntl.h>
#include <limits.h>
#include <string.h>

enum {
        AFFINITY_WORDS = 8192 / 64, /* the largest NR_CPUS of any kernel configuration */
        CPU_LIMIT = 65536,          /* larger numbers in a file mean that it is no CPU list */
};

/* Reads a small file whole; the text ends in a zero byte. False if there is none. */
static bool file_read(const char *path, char *text, size_t bytes)
{
        long descriptor = system_call(SYS_openat, AT_FDCWD, (long)path, O_RDONLY | O_CLOEXEC);
        size_t used = 0;

        if (system_call_failed(descriptor))
                return false;
        while (used < bytes - 1) {
                long got = system_call(SYS_read, descriptor, (long)(text + used),
                                       (long)(bytes - 1 - used));

                if (got <= 0)
                        break;
                used += (size_t)got;
        }
        text[used] = '\0';
        system_call(SYS_close, descriptor, 0, 0);
        return used != 0;
}

/* The number at *text, which moves behind it; -1 if there is none. Saturates. */
static int64_t parse_number(const char **text)
{
        const char *digit = *text;
        int64_t value = 0;

        while (*digit >= '0' && *digit <= '9') {
                if (value < INT64_MAX / 16)
                        value = value * 10 + (*digit - '0');
                digit++;
        }
        if (digit == *text)
                return -1;
        *text = digit;
        return value;
}

void cpus_parse_list(const char *text, unsigned int *count, unsigned int *limit)
{
        *count = 0;
        *limit = 0;
        for (;;) {
                int64_t first = parse_number(&text);
                int64_t last = first;

                if (*text == '-') {
                        text++;
                        last = parse_number(&text);
                }
                if (first < 0 || last < first || last >= CPU_LIMIT) {
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
        int64_t quota = parse_number(&text);

        if (quota < 0 || *text != ' ')
                return 0;
        text++;
        return quota_cpus(quota, parse_number(&text));
}

static unsigned int quota_of_folder(const char *path, size_t length, bool unified)
{
        char name[PATH_MAX];
        char text[64];
        const char *number = text;
        int64_t quota;

        if (length + sizeof("/cpu.cfs_period_us") > sizeof(name))
                return 0;
        memcpy(name, path, length);
        if (unified) {
                strcpy(name + length, "/cpu.max");
                return file_read(name, text, sizeof(text)) ? cpus_parse_quota(text) : 0;
        }
        strcpy(name + length, "/cpu.cfs_quota_us");
        if (!file_read(name, text, sizeof(text)))
                return 0;
        quota = parse_number(&number); /* -1: none, and "-1" is no number here */
        strcpy(name + length, "/cpu.cfs_period_us");
        if (quota <= 0 || !file_read(name, text, sizeof(text)))
                return 0;
        number = text;
        return quota_cpus(quota, parse_number(&number));
}

/*
 * The least quota of a group and all its parents. Parents count because a limit on a
 * container is often set one level above the process, and because inside a container the
 * path may name folders that only exist outside, in which case the root is the container's.
 */
static unsigned int quota_of_group(const char *root, const char *group, size_t length, bool unified)
{
        char path[PATH_MAX];
        size_t root_length = strlen(root);
        unsigned int least = 0;

        if (root_length + length >= sizeof(path))
                return 0;
        memcpy(path, root, root_length);
        memcpy(path + root_length, group, length);
        length += root_length;
        for (;;) {
                unsigned int quota;

                while (length > root_length && path[length - 1] == '/')
                        length--;
                quota = quota_of_folder(path, length, unified);
                if (quota != 0 && (least == 0 || quota < least))
                        least = quota;
                if (length <= root_length)
                        return least;
                while (length > root_length && path[length - 1] != '/')
                        length--;
        }
}

static bool names_cpu_controller(const char *start, const char *end)
{
        for (const char *word = start; word < end; word++) {
                const char *stop = word;

                while (stop < end && *stop != ',')
                        stop++;
                if (stop - word == 3 && memcmp(word, "cpu", 3) == 0)
                        return true;
                word = stop;
        }
        return false;
}

/* CPUs that the cgroup's quota allows, 0 for no quota. */
static unsigned int quota_read(void)
{
        char text[4096];
        unsigned int least = 0;

        if (!file_read("/proc/self/cgroup", text, sizeof(text)))
                return quota_of_folder("/sys/fs/cgroup", strlen("/sys/fs/cgroup"), true);

        /* Lines are "number:controllers:path"; the unified hierarchy has number 0. */
        for (char *line = text; *line != '\0';) {
                char *end = strchrnul(line, '\n');
                char *controllers = memchr(line, ':', (size_t)(end - line));
                char *path = controllers
                                     ? memchr(controllers + 1, ':', (size_t)(end - controllers - 1))
                                     : NULL;
                unsigned int quota = 0;

                if (path && path == controllers + 1)
                        quota = quota_of_group("/sys/fs/cgroup", path + 1, (size_t)(end - path - 1),
                                               true);
                else if (path && names_cpu_controller(controllers + 1, path))
                        quota = quota_of_group("/sys/fs/cgroup/cpu", path + 1,
                                               (size_t)(end - path - 1), false);
                if (quota != 0 && (least == 0 || quota < least))
                        least = quota;
                line = *end ? end + 1 : end;
        }
        return least;
}

/* CPUs of the calling thread's mask, and the highest number + 1; both 0 if refused. */
static void affinity_read(unsigned int *count, unsigned int *limit)
{
        uint64_t mask[AFFINITY_WORDS] = {0};

        *count = 0;
        *limit = 0;
        if (system_call(SYS_sched_getaffinity, 0, sizeof(mask), (long)mask) <= 0)
                return;
        for (unsigned int word = 0; word < AFFINITY_WORDS; word++) {
                if (mask[word] == 0)
                        continue;
                *count += (unsigned int)__builtin_popcountll(mask[word]);
                *limit = word * 64 + 64u - (unsigned int)__builtin_clzll(mask[word]);
        }
}

static void list_read(const char *path, unsigned int *count, unsigned int *limit)
{
        char text[4096];

        *count = 0;
        *limit = 0;
        if (file_read(path, text, sizeof(text)))
                cpus_parse_list(text, count, limit);
}

static bool possible_known;

bool system_cpus_known(void)
{
        return possible_known;
}

void cpus_read(unsigned int counts[CPUS_POSSIBLE + 1])
{
        unsigned int usable, usable_limit;
        unsigned int online, online_limit;
        unsigned int present, present_limit;
        unsigned int possible, possible_limit;
        unsigned int quota = quota_read();

        affinity_read(&usable, &usable_limit);
        list_read("/sys/devices/system/cpu/online", &online, &online_limit);
        list_read("/sys/devices/system/cpu/present", &present, &present_limit);
        list_read("/sys/devices/system/cpu/possible", &possible, &possible_limit);
        possible_known = possible != 0;

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

        counts[CPUS_USABLE] = quota != 0 ? min_of(usable, quota) : usable;
        counts[CPUS_ONLINE] = online;
        counts[CPUS_PRESENT] = present > 1 ? present : possible_limit;
        counts[CPUS_POSSIBLE] = possible_limit;
}
