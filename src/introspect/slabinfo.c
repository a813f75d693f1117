/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Writes the table of /proc/slabinfo to a file or standard error, also when the process ends. */
#define _GNU_SOURCE
#include "introspect/slabinfo.h"

#include "account/group.h"
#include "machine/file.h"
#include "machine/message.h"
#include "lang/text.h"
#include "introspect/totals.h"
#include "engines/slob/statistics.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* A line of the table, taken under the lock and written without it: writing may block. */
struct table_line {
        struct cache_totals totals;
        char name[CACHE_NAME_BYTES];
        uint32_t size;
        uint32_t objects;
        uint32_t pages;
};

/* Replaces characters that would end the line by '!'; a slash in a file name becomes '!' too. */
static void make_line(char *text)
{
        for (; *text; text++)
                if ((unsigned char)*text < ' ' || *text == 0x7f)
                        *text = '!';
}

/* Replaces, too, characters that would end the word or make a comment of it. */
static void make_word(char *text)
{
        make_line(text);
        if (*text == '#')
                *text = '!';
        for (; *text; text++)
                if (*text == ' ')
                        *text = '!';
}

/* Takes the line of the newest cache older than *birth, which moves on; false at the end. */
static bool next_line(uint64_t *birth, struct table_line *line)
{
        struct kmem_cache *cache;

        lock_take(&cache_mutex);
        cache = cache_before_locked(*birth);
        if (cache) {
                *birth = cache->birth;
                memcpy(line->name, cache->name, sizeof(line->name));
                line->size = cache->size;
                line->objects = cache->objects;
                line->pages = (uint32_t)pages_of_slab(cache, cache->order);
                cache_total(cache, &line->totals);
        }
        lock_drop(&cache_mutex);
        make_word(line->name);
        return cache != NULL;
}

static void print_group(int file, struct kmem_group *group, char *parent)
{
        char limit[24] = "none";

        make_line(group->name);
        make_line(parent);
        if (group->limit != SIZE_MAX)
                text_print(limit, sizeof(limit), "%zu", group->limit);
        message_print(file,
                      "# group %s%s: %zu bytes, %zu objects, peak %zu, limit %s, refused %zu, "
                      "parent %s\n",
                      group->name, group->state == GROUP_ZOMBIE ? " (destroyed)" : "", group->bytes,
                      group->objects, group->peak, limit, group->refusals, parent);
}

/* Prints each group outside the lock: a write may block, and all threads need the lock. */
static void print_groups(int file)
{
        char parent[GROUP_NAME_BYTES];
        struct kmem_group group;

        for (size_t number = 0; group_read_number(number, &group, parent); number++)
                print_group(file, &group, parent);
}

int slabinfo_write(int file)
{
        struct heap_totals totals;
        struct table_line line = {.name = ""};
        uint64_t birth = 0;

        message_print(file, "slabinfo - version: 2.1\n");
        message_print(file,
                      "# name            <active_objs> <num_objs> <objsize> <objperslab> "
                      "<pagesperslab> : tunables <limit> <batchcount> <sharedfactor> : slabdata "
                      "<active_slabs> <num_slabs> <sharedavail>\n");
        while (next_line(&birth, &line))
                message_print(
                        file,
                        "%-17s %6lu %6lu %6u %4u %4u : tunables %4u %4u %4u : slabdata %6lu %6lu "
                        "%6lu\n",
                        line.name, (unsigned long)active_objects(&line.totals.nodes),
                        (unsigned long)line.totals.nodes.objects, line.size, line.objects,
                        line.pages, line.totals.report.limit, line.totals.report.batchcount,
                        line.totals.report.shared,
                        (unsigned long)(line.totals.nodes.slabs - line.totals.report.free_slabs),
                        (unsigned long)line.totals.nodes.slabs,
                        (unsigned long)line.totals.report.shared_objects);
        heap_total(&totals);
        message_print(file, "# large blocks: %zu of %zu bytes, huge: %zu of %zu bytes\n",
                      totals.large.blocks, totals.large.bytes, totals.large.huge_blocks,
                      totals.large.huge_bytes);
        message_print(file, "# pages: %zu used, %zu free, %zu of them touched\n",
                      totals.pages.used_pages, totals.pages.free_pages,
                      totals.pages.free_touched_pages);
        slob_report(file);
        print_groups(file);
        /*
         * The last line shows readers that the table is whole. On a full disk this write fails,
         * too.
         */
        return message_print(file, "# objects handed out: %lu\n",
                             (unsigned long)totals.objects_taken);
}

/*
 * Standard error as it was at the start: many programs close theirs before they end. 100 is above
 * the numbers that shells hand to programs. A program that closes all files that it does not know
 * may have opened a file of its own under this number, and the table must not get into that file.
 */
static int early_stderr = -1;
static struct stat first_stderr;

static bool is_standard_error(const char *path)
{
        return strcmp(path, "-") == 0;
}

static bool is_still_standard_error(int file)
{
        struct stat now;

        return file_status(file, NULL, &now) == 0 && now.st_dev == first_stderr.st_dev &&
               now.st_ino == first_stderr.st_ino;
}

int slabinfo_begin(const char *path, bool alone)
{
        struct stat found;
        int file;

        if (is_standard_error(path)) {
                early_stderr = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 100);
                return file_status(STDERR_FILENO, NULL, &first_stderr);
        }
        /* The reader of a pipe would take the end of this look for the end of the table. */
        if (file_status(-1, path, &found) == 0 && S_ISFIFO(found.st_mode))
                return 0;
        file = open(path, O_WRONLY | O_CREAT | O_CLOEXEC | (alone ? O_TRUNC : 0), 0644);
        if (file < 0)
                return errno;
        close(file);
        return 0;
}

int slabinfo_end(const char *path)
{
        int file;
        int error;

        if (is_standard_error(path)) {
                if (is_still_standard_error(early_stderr))
                        return slabinfo_write(early_stderr);
                /* If it has changed, there is nobody to tell. */
                return is_still_standard_error(STDERR_FILENO) ? slabinfo_write(STDERR_FILENO) : 0;
        }
        /* Not blocking: a pipe that nobody reads must not keep the program from its end. */
        file = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NONBLOCK, 0644);
        if (file < 0)
                return errno;
        fcntl(file, F_SETFL, O_WRONLY);
        error = slabinfo_write(file);
        /* A half-written device or pipe cannot be taken back; a file is emptied. */
        if (error)
                (void)!ftruncate(file, 0);
        close(file);
        return error;
}
