/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Places of code in files, by the process's maps (code_map.h). */
#define _GNU_SOURCE
#include "machine/code_map.h"

#include "lang/atomic.h"
#include "lang/bits.h"
#include "lang/number.h"
#include "lang/text.h"
#include "machine/file.h"
#include "machine/stack.h"
#include "machine/syscall.h"
#include "machine/system.h"

#include <elf.h>
#include <errno.h>
#include <limits.h>
#include <link.h>
#include <string.h>

enum {
        OBJECTS = 512,
        PARTS = 1024,
        PATHS_BYTES = 48 << 10,
        LINE_BYTES = PATH_MAX + 128,
        HEADERS = 32, /* program headers that are looked at */
        NOTE_BYTES = 1024,
        ID_BYTES = 32, /* 20 are usual */
        ID_TEXT_BYTES = sizeof(" (BuildId: )") + 2 * ID_BYTES,
        WAIT_MS = 1000,
};

/* A file with code. One that is loaded twice is two objects. */
struct object {
        uintptr_t start; /* where its beginning is mapped */
        uint32_t path;   /* in paths */
        bool is_named;   /* in this text */
        bool has_id_read;
        char id[ID_TEXT_BYTES]; /* as it is printed; empty: there is none */
};

/* A mapping with code. */
struct part {
        uintptr_t start;
        uintptr_t end;
        uint64_t offset;
        uint32_t object;
};

struct code_map {
        uint32_t objects;
        uint32_t parts;
        uint32_t paths_used;
        struct object object[OBJECTS];
        struct part part[PARTS]; /* by address */
        char paths[PATHS_BYTES];
        /* While the file is read: the last mapping of a file. */
        char file[PATH_MAX];
        uintptr_t file_start;
        uint64_t file_offset;
        bool file_is_object;
        char line[LINE_BYTES];
        /* While a build id is read. The stack of a thread that reports may be small. */
        ElfW(Phdr) header[HEADERS];
        char notes[NOTE_BYTES];
};

/* Mapped by the first report, and kept: mlockall would lock a static one. Written while it is taken. */
static struct code_map *code_map;
/* The thread that has taken it, by the address of its errno; NULL: none has. */
static void *taker;

/* ---- Reading the mappings ------------------------------------------------------------------------ */

/* Names of files are anybody's: no line ends and controls of a terminal. */
static bool keep_path(struct code_map *map, struct object *object)
{
        size_t bytes = strlen(map->file) + 1;
        char *path = map->paths + map->paths_used;

        if (bytes > PATHS_BYTES - map->paths_used)
                return false;
        object->path = map->paths_used;
        map->paths_used += (uint32_t)bytes;
        for (size_t i = 0; i < bytes - 1; i++)
                path[i] = (unsigned char)map->file[i] < ' ' || map->file[i] == 127 ? '?'
                                                                                   : map->file[i];
        path[bytes - 1] = '\0';
        return true;
}

/*
 * The mappings of a loaded file follow each other, and their offsets do not fall: a file that is
 * loaded a second time right behind begins anew.
 */
static void note_file(struct code_map *map, uintptr_t start, uint64_t offset, const char *path)
{
        if (strcmp(map->file, path) != 0 || offset < map->file_offset) {
                size_t bytes = min_of(strlen(path), sizeof(map->file) - 1);

                memcpy(map->file, path, bytes);
                map->file[bytes] = '\0';
                map->file_start = start - offset;
                map->file_is_object = false;
        }
        map->file_offset = offset;
}

static void note_mapping(struct code_map *map, const struct part *found, bool is_code,
                         const char *path)
{
        struct object *object = &map->object[map->objects];

        note_file(map, found->start, found->offset, path);
        if (!is_code || map->parts == PARTS)
                return;
        if (!map->file_is_object) {
                if (map->objects == OBJECTS || !keep_path(map, object))
                        return;
                object->start = map->file_start;
                object->has_id_read = false;
                map->objects++;
                map->file_is_object = true;
        }
        map->part[map->parts] = *found;
        map->part[map->parts++].object = map->objects - 1;
}

/* START-END RIGHTS OFFSET DEVICE INODE PATH */
static void note_line(struct code_map *map, const char *line)
{
        const char *path = strchr(line, '/');
        uint64_t start, end, offset;
        bool is_code;

        if (!path || number_scan(&line, 16, &start) != NUMBER_READ || *line++ != '-' ||
            number_scan(&line, 16, &end) != NUMBER_READ || strnlen(line, 6) < 6)
                return;
        is_code = line[3] == 'x';
        line += 6;
        if (number_scan(&line, 16, &offset) != NUMBER_READ)
                return;
        note_mapping(
                map,
                &(struct part){.start = (uintptr_t)start, .end = (uintptr_t)end, .offset = offset},
                is_code, path);
}

static void read_maps(struct code_map *map)
{
        size_t used = 0;
        long file = file_open_own("maps");
        long got;

        map->objects = map->parts = map->paths_used = 0;
        map->file[0] = '\0';
        map->file_offset = 0;
        while (file >= 0 && (got = file_next(file, map->line + used, LINE_BYTES - 1 - used)) > 0) {
                char *line = map->line;
                char *end;

                used += (size_t)got;
                map->line[used] = '\0';
                for (; (end = strchr(line, '\n')); line = end + 1) {
                        *end = '\0';
                        note_line(map, line);
                }
                used -= (size_t)(line - map->line);
                memmove(map->line, line, used);
                /* A line that does not fit has a path longer than the kernel opens: it is left out. */
                if (used == LINE_BYTES - 1)
                        used = 0;
        }
        if (file >= 0)
                file_close(file);
}

struct code_map *code_map_take(void)
{
        void *nobody = NULL;

        /* A filter may end the process for opening a file. */
        if (system_entered_sandbox())
                return NULL;
        /* Acquire, with the release in code_map_drop. */
        for (int waited = 0; !compare_swap_acquire(&taker, &nobody, (void *)&errno); waited++) {
                if (waited == WAIT_MS)
                        return NULL;
                nobody = NULL;
                system_sleep_ns(1000000);
        }
        if (!code_map)
                code_map = system_map(sizeof(*code_map));
        if (!code_map) {
                store_release(&taker, NULL);
                return NULL;
        }
        read_maps(code_map);
        code_map_restart(code_map);
        return code_map;
}

void code_map_drop(struct code_map *map)
{
        if (map)
                store_release(&taker, NULL);
}

void code_map_fork_child(void)
{
        if (load_relaxed(&taker) != &errno)
                store_relaxed(&taker, NULL);
}

void code_map_restart(struct code_map *map)
{
        for (uint32_t i = 0; i < map->objects; i++)
                map->object[i].is_named = false;
}

/* ---- Build ids ----------------------------------------------------------------------------------- */

static bool read_memory(long memory, uintptr_t from, void *to, size_t bytes)
{
        return system_call(SYS_lseek, memory, (long)from, 0 /* SEEK_SET */) == (long)from &&
               file_next(memory, to, bytes) == (long)bytes;
}

/* The first build id among the notes. */
static void find_id(const char *notes, size_t bytes, char id[ID_TEXT_BYTES])
{
        ElfW(Nhdr) note;

        for (size_t at = 0; bytes - at >= sizeof(note); at += round_up((size_t)note.n_descsz, 4)) {
                struct text text;

                memcpy(&note, notes + at, sizeof(note));
                at += sizeof(note);
                if (note.n_namesz > bytes - at || round_up((size_t)note.n_namesz, 4) > bytes - at)
                        return;
                at += round_up((size_t)note.n_namesz, 4);
                if (note.n_descsz > bytes - at || round_up((size_t)note.n_descsz, 4) > bytes - at)
                        return;
                if (note.n_type != NT_GNU_BUILD_ID || note.n_namesz != sizeof("GNU") ||
                    memcmp(notes + at - sizeof("GNU"), "GNU", sizeof("GNU")) != 0 ||
                    note.n_descsz > ID_BYTES || !note.n_descsz)
                        continue;
                text_begin(&text, id, ID_TEXT_BYTES);
                text_add(&text, " (BuildId: ");
                for (uint32_t i = 0; i < note.n_descsz; i++)
                        text_add(&text, "%02x", (unsigned char)notes[at + i]);
                text_add(&text, ")");
                return;
        }
}

/* Without the right to open mem, as after a change of rights, there is no id. */
static void read_id(struct code_map *map, struct object *object)
{
        ElfW(Phdr) *header = map->header;
        ElfW(Ehdr) start;
        uintptr_t base = 0;
        long memory = file_open_own("mem");
        uint32_t count = 0;
        bool has_base = false;

        object->has_id_read = true;
        object->id[0] = '\0';
        if (memory < 0)
                return;
        if (read_memory(memory, object->start, &start, sizeof(start)) &&
            memcmp(start.e_ident, ELFMAG, SELFMAG) == 0 && start.e_phentsize == sizeof(header[0])) {
                count = min_of((uint32_t)start.e_phnum, (uint32_t)HEADERS);
                if (!read_memory(memory, object->start + start.e_phoff, header,
                                 count * sizeof(header[0])))
                        count = 0;
        }
        for (uint32_t i = 0; i < count; i++)
                if (header[i].p_type == PT_LOAD && !has_base) {
                        base = object->start - (header[i].p_vaddr - header[i].p_offset);
                        has_base = true;
                }
        for (uint32_t i = 0; has_base && i < count && !object->id[0]; i++) {
                size_t bytes = min_of((size_t)header[i].p_filesz, sizeof(map->notes));

                if (header[i].p_type == PT_NOTE &&
                    read_memory(memory, base + header[i].p_vaddr, map->notes, bytes))
                        find_id(map->notes, bytes, object->id);
        }
        file_close(memory);
}

/* ---- Places -------------------------------------------------------------------------------------- */

struct code_place code_map_find(const struct code_map *map, uintptr_t return_address)
{
        uintptr_t address = return_address - 1;
        uint32_t low = 0;
        uint32_t high = map->parts;

        while (low < high) {
                uint32_t middle = low + (high - low) / 2;
                const struct part *part = &map->part[middle];

                if (address >= part->end)
                        low = middle + 1;
                else if (address < part->start)
                        high = middle;
                else
                        return (struct code_place){
                                .path = map->paths + map->object[part->object].path,
                                .from_start = return_address - map->object[part->object].start,
                                .offset = address - part->start + part->offset,
                                .object = part->object,
                        };
        }
        return (struct code_place){0};
}

size_t code_map_text(struct code_map *map, uintptr_t return_address, char *text, size_t bytes)
{
        struct code_place place = {0};
        struct object *object;
        const char *id = "";

        if (map)
                place = code_map_find(map, return_address);
        if (!place.path)
                return text_print(text, bytes, "0x%lx", (unsigned long)return_address);
        object = &map->object[place.object];
        if (!object->has_id_read)
                read_id(map, object);
        if (!object->is_named)
                id = object->id;
        object->is_named = true;
        return text_print(text, bytes, "%s+0x%lx%s", place.path, (unsigned long)place.from_start,
                          id);
}

static size_t write_place(void *map, uintptr_t address, char *text, size_t bytes)
{
        return code_map_text(map, address, text, bytes);
}

size_t code_map_resolve(struct code_map *map, const char *marked, char *text, size_t bytes)
{
        if (map)
                code_map_restart(map);
        return marks_replace(marked, write_place, map, text, bytes);
}
