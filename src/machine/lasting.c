/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Objects that last: the program with the libraries that it needs, and those that these need, which
 * the dynamic linker loads before the program begins and never unloads; the dynamic linker; libc,
 * and this library, which is linked so that it stays. All others may be closed (dlclose).
 *
 * A needed name belongs to the first object with this name in the order of loading, by its own name
 * (DT_SONAME) or by its file's: the dynamic linker decides so too. Objects behind the first
 * OBJECTS_MAX are not looked at.
 *
 * Threads: the list is read under the dynamic linker's lock, inside a callback of dl_iterate_phdr.
 */
#define _GNU_SOURCE
#include "machine/lasting.h"

#include "lang/atomic.h"
#include "machine/system.h"

#include <elf.h>
#include <link.h>
#include <string.h>

enum { OBJECTS_MAX = 64, SEGMENTS_MAX = 5 * OBJECTS_MAX };

struct object {
        uintptr_t base; /* of addresses in the headers */
        const ElfW(Phdr) * headers;
        unsigned int header_count;
        const ElfW(Dyn) * dynamic;
        const char *strings;
        const char *name;
        const char *file;
        bool lasts;
        bool is_followed; /* what it needs lasts, too */
};

static KMEM_SPARSE struct object objects[OBJECTS_MAX];
static unsigned int object_count;
static uint32_t is_found;

/* Segments of objects that last and can be read, for is_lasting and is_lasting_data. */
struct segment {
        uintptr_t start;
        size_t bytes;
        bool is_code;
};

static KMEM_SPARSE struct segment segments[SEGMENTS_MAX];
static uint32_t segment_count;

extern const char __ehdr_start[] __attribute__((visibility("hidden"), weak));

static const char *last_part(const char *path)
{
        const char *slash = strrchr(path, '/');

        return slash ? slash + 1 : path;
}

/* glibc writes addresses into the table where it can write; others have offsets there. */
static void read_dynamic(struct object *object)
{
        const ElfW(Dyn) * entry;

        for (entry = object->dynamic; entry->d_tag != DT_NULL; entry++)
                if (entry->d_tag == DT_STRTAB)
                        object->strings = (const char *)entry->d_un.d_ptr;
        if ((uintptr_t)object->strings < object->base)
                object->strings += object->base;
        for (entry = object->dynamic; entry->d_tag != DT_NULL; entry++)
                if (entry->d_tag == DT_SONAME)
                        object->name = object->strings + entry->d_un.d_val;
}

static int add_object(struct dl_phdr_info *info, size_t bytes, void *argument)
{
        struct object *object = &objects[object_count];

        (void)bytes, (void)argument;
        *object = (struct object){
                .base = info->dlpi_addr,
                .headers = info->dlpi_phdr,
                .header_count = info->dlpi_phnum,
                .file = last_part(info->dlpi_name),
        };
        for (unsigned int i = 0; i < info->dlpi_phnum; i++)
                if (info->dlpi_phdr[i].p_type == PT_DYNAMIC)
                        object->dynamic = (const void *)(object->base + object->headers[i].p_vaddr);
        if (object->dynamic) {
                read_dynamic(object);
                object_count++;
        }
        return object_count == OBJECTS_MAX;
}

static bool has_name(const struct object *object, const char *name)
{
        return (object->name && strcmp(object->name, name) == 0) ||
               strcmp(object->file, last_part(name)) == 0;
}

static void last_by_name(const char *name)
{
        for (unsigned int i = 0; i < object_count; i++) {
                if (has_name(&objects[i], name)) {
                        objects[i].lasts = true;
                        return;
                }
        }
}

static bool contains(const struct object *object, uintptr_t address)
{
        for (unsigned int i = 0; i < object->header_count; i++)
                if (object->headers[i].p_type == PT_LOAD &&
                    address - object->base - object->headers[i].p_vaddr <
                            object->headers[i].p_memsz)
                        return true;
        return false;
}

static void last_by_address(uintptr_t address)
{
        for (unsigned int i = 0; i < object_count; i++)
                if (contains(&objects[i], address))
                        objects[i].lasts = true;
}

/* False if the needs of all that last were followed. */
static bool follow_one(void)
{
        const ElfW(Dyn) * entry;
        unsigned int i = 0;

        while (i < object_count && (!objects[i].lasts || objects[i].is_followed))
                i++;
        if (i == object_count)
                return false;
        objects[i].is_followed = true;
        for (entry = objects[i].dynamic; entry->d_tag != DT_NULL; entry++)
                if (entry->d_tag == DT_NEEDED)
                        last_by_name(objects[i].strings + entry->d_un.d_val);
        return true;
}

static void publish(const struct object *object)
{
        for (unsigned int i = 0; i < object->header_count && segment_count < SEGMENTS_MAX; i++) {
                const ElfW(Phdr) *header = &object->headers[i];

                if (header->p_type != PT_LOAD || !(header->p_flags & PF_R))
                        continue;
                segments[segment_count].start = object->base + header->p_vaddr;
                segments[segment_count].bytes = header->p_memsz;
                segments[segment_count].is_code = header->p_flags & PF_X;
                /* Release: the segment is complete. Partner: the acquire in segment_of. */
                store_release(&segment_count, segment_count + 1);
        }
}

/* Of the first object alone: the lock, which may be taken again, is held until this returns. */
static int read_list(struct dl_phdr_info *info, size_t bytes, void *argument)
{
        (void)info, (void)bytes, (void)argument;
        dl_iterate_phdr(add_object, NULL);
        last_by_address(system_auxv(AT_ENTRY));
        last_by_address(system_auxv(AT_BASE));
        last_by_address((uintptr_t)__ehdr_start);
        while (follow_one())
                ;
        for (unsigned int i = 0; i < object_count; i++)
                if (objects[i].lasts)
                        publish(&objects[i]);
        return 1;
}

void lasting_find(void)
{
        /* Relaxed: it keeps a second thread out, which then sees what the first published. */
        if (!or_relaxed(&is_found, 1))
                dl_iterate_phdr(read_list, NULL);
}

static const struct segment *segment_of(uintptr_t address)
{
        /* Acquire: partner of the release in publish. */
        uint32_t count = load_acquire(&segment_count);

        for (uint32_t i = 0; i < count; i++)
                if (address - segments[i].start < segments[i].bytes)
                        return &segments[i];
        return NULL;
}

bool is_lasting(uintptr_t address)
{
        const struct segment *segment = segment_of(address);

        return segment && segment->is_code;
}

bool is_lasting_data(uintptr_t address)
{
        const struct segment *segment = segment_of(address);

        return segment && !segment->is_code;
}
