/* SPDX-License-Identifier: Apache-2.0 OR MIT */
#define _GNU_SOURCE
#include "machine/imports.h"

#include "machine/stack.h"

#include <link.h>
#include <string.h>

struct search {
        uintptr_t code;
        bool imports;
};

/* The part of an object's dynamic section that names what it imports; NULLs where it has no such part. */
struct names {
        const ElfW(Sym) * symbols;
        const char *strings;
        const uint32_t *hash;     /* DT_HASH */
        const uint32_t *gnu_hash; /* DT_GNU_HASH */
        bool others;              /* DT_NEEDED: there are objects to import from */
};

static bool has_code(const struct dl_phdr_info *object, uintptr_t code)
{
        for (size_t i = 0; i < object->dlpi_phnum; i++) {
                const ElfW(Phdr) *segment = &object->dlpi_phdr[i];

                if (segment->p_type == PT_LOAD &&
                    code - (object->dlpi_addr + segment->p_vaddr) < segment->p_memsz)
                        return true;
        }
        return false;
}

/* NULL: a program without a dynamic section. */
static const ElfW(Dyn) * dynamic_of(const struct dl_phdr_info *object)
{
        for (size_t i = 0; i < object->dlpi_phnum; i++)
                if (object->dlpi_phdr[i].p_type == PT_DYNAMIC)
                        return (const void *)(object->dlpi_addr + object->dlpi_phdr[i].p_vaddr);
        return NULL;
}

/* Some dynamic linkers write addresses into the section (glibc mostly), others leave distances (musl). */
static const void *place_of(const struct dl_phdr_info *object, uintptr_t value)
{
        return (const void *)(value < object->dlpi_addr ? object->dlpi_addr + value : value);
}

static struct names names_of(const struct dl_phdr_info *object, const ElfW(Dyn) * dynamic)
{
        struct names names = {0};

        for (; dynamic->d_tag != DT_NULL; dynamic++) {
                const void *place = place_of(object, dynamic->d_un.d_ptr);

                if (dynamic->d_tag == DT_SYMTAB)
                        names.symbols = place;
                else if (dynamic->d_tag == DT_STRTAB)
                        names.strings = place;
                else if (dynamic->d_tag == DT_HASH)
                        names.hash = place;
                else if (dynamic->d_tag == DT_GNU_HASH)
                        names.gnu_hash = place;
                else if (dynamic->d_tag == DT_NEEDED)
                        names.others = true;
        }
        return names;
}

/* The number of symbols among which all imported ones are: the second word of both tables. */
static uint32_t symbols_of(const struct names *names)
{
        return names->gnu_hash ? names->gnu_hash[1] : names->hash ? names->hash[1] : 0;
}

static bool is_operator(const char *name)
{
        return name[0] == '_' && name[1] == 'Z' &&
               (!strncmp(name + 2, "nw", 2) || !strncmp(name + 2, "na", 2) ||
                !strncmp(name + 2, "dl", 2) || !strncmp(name + 2, "da", 2));
}

static bool has_operator(const struct names *names)
{
        if (!names->symbols || !names->strings)
                return false;
        for (uint32_t i = 1; i < symbols_of(names); i++)
                if (names->symbols[i].st_shndx == SHN_UNDEF &&
                    is_operator(names->strings + names->symbols[i].st_name))
                        return true;
        return false;
}

static int look_into(struct dl_phdr_info *object, size_t bytes, void *argument)
{
        struct search *search = argument;
        const ElfW(Dyn) * dynamic;
        struct names names;

        (void)bytes;
        if (!has_code(object, search->code))
                return 0;
        dynamic = dynamic_of(object);
        if (dynamic)
                names = names_of(object, dynamic);
        search->imports = !dynamic || !names.others || has_operator(&names) ||
                          has_code(object, (uintptr_t)imports_operators);
        return 1;
}

bool imports_operators(const void *code)
{
        struct search search = {.code = (uintptr_t)code};

        if (!stack_is_refused())
                dl_iterate_phdr(look_into, &search);
        return search.imports;
}
