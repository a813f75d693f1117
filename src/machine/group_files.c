/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Folders of control groups, found with system calls only. */
#include "machine/group_files.h"

#include "machine/file.h"

#include <string.h>

static const char ROOT[] = "/sys/fs/cgroup";

const char *group_file(const struct group_folder *folder, const char *name)
{
        strcpy(folder->path + folder->length, name);
        return folder->path;
}

/* @length: of the first folder, whose path is in @folder already; @root_length: of the last. */
static void folders_each(struct group_folder *folder, size_t root_length,
                         void (*visit)(const struct group_folder *folder, void *result),
                         void *result)
{
        char *path = folder->path;

        for (;;) {
                while (folder->length > root_length && path[folder->length - 1] == '/')
                        folder->length--;
                if (folder->length + GROUP_FILE_BYTES <= PATH_MAX)
                        visit(folder, result);
                if (folder->length <= root_length)
                        return;
                while (folder->length > root_length && path[folder->length - 1] != '/')
                        folder->length--;
        }
}

/*
 * The first @wanted in a text, or its end. Not libc's function, because each of these touches
 * another page.
 */
static const char *find(const char *text, const char *end, char wanted)
{
        while (text < end && *text != wanted)
                text++;
        return text;
}

static bool names_controller(const char *start, const char *end, const char *controller)
{
        size_t length = strlen(controller);

        for (const char *word = start; word < end; word++) {
                const char *stop = find(word, end, ',');

                if ((size_t)(stop - word) == length && memcmp(word, controller, length) == 0)
                        return true;
                word = stop;
        }
        return false;
}

/*
 * A line of /proc/self/cgroup: "number:controllers:path", without controllers in the unified
 * hierarchy.
 */
static void line_visit(const char *line, const char *end, const char *controller,
                       struct group_folder *folder,
                       void (*visit)(const struct group_folder *folder, void *result), void *result)
{
        const char *controllers = find(line, end, ':');
        const char *group = find(controllers + 1, end, ':');
        size_t root_length = sizeof(ROOT) - 1;

        if (group >= end)
                return;
        folder->unified = group == controllers + 1;
        memcpy(folder->path, ROOT, sizeof(ROOT));
        if (!folder->unified) {
                if (!names_controller(controllers + 1, group, controller))
                        return;
                folder->path[root_length] = '/';
                strcpy(folder->path + root_length + 1, controller);
                root_length += 1 + strlen(controller);
        }
        group++;
        if (root_length + (size_t)(end - group) >= PATH_MAX)
                return;
        memcpy(folder->path + root_length, group, (size_t)(end - group));
        folder->length = root_length + (size_t)(end - group);
        folders_each(folder, root_length, visit, result);
}

void groups_each(const char *controller, struct group_room *room,
                 void (*visit)(const struct group_folder *folder, void *result), void *result)
{
        char *text = room->text;
        struct group_folder folder = {.path = text, .unified = true};
        char *text_end;

        if (!file_read("/proc/self/cgroup", text, GROUP_TEXT_BYTES)) {
                memcpy(text, ROOT, sizeof(ROOT));
                folder.length = sizeof(ROOT) - 1;
                folders_each(&folder, folder.length, visit, result);
                return;
        }
        text_end = text + strlen(text);
        folder.path = text_end + 1;
        for (const char *line = text; line < text_end;) {
                const char *end = find(line, text_end, '\n');

                line_visit(line, end, controller, &folder, visit, result);
                line = end + 1;
        }
}
