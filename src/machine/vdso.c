/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Symbols of the vDSO, found by its own ELF tables without the dynamic linker (vdso.h). */
#include "machine/vdso.h"

#include "machine/system.h"

#include <elf.h>
#include <link.h>
#include <stdint.h>
#include <string.h>

/* The tables that lead to the vDSO's symbols. Addresses in the library are relative to its base. */
struct library {
        uintptr_t base;
        const ElfW(Dyn) * dynamic;
};

static struct library find_library(uintptr_t start)
{
        const ElfW(Ehdr) *header = (const void *)start;
        const ElfW(Phdr) *segments = (const void *)(start + header->e_phoff);
        struct library library = {0};

        for (int i = header->e_phnum - 1; i >= 0; i--) {
                const ElfW(Phdr) *segment = &segments[i];

                /*
                 * With several loaded segments the first counts, so the loop goes backwards and
                 * sees it last.
                 */
                if (segment->p_type == PT_LOAD)
                        library.base = start + segment->p_offset - segment->p_vaddr;
                else if (segment->p_type == PT_DYNAMIC)
                        library.dynamic = (const void *)(start + segment->p_offset);
        }
        return library;
}

static const void *find_entry(const struct library *library, ElfW(Sxword) tag)
{
        for (const ElfW(Dyn) *entry = library->dynamic; entry && entry->d_tag != DT_NULL; entry++)
                if (entry->d_tag == tag)
                        return (const void *)(library->base + entry->d_un.d_ptr);
        return NULL;
}

/*
 * GNU's table: four counts, a filter of words, the first symbol of each bucket or 0, and for each
 * symbol from @first on a hash; its lowest bit says that the bucket ends.
 */
static uint32_t count_by_gnu_table(const uint32_t *table)
{
        uint32_t buckets = table[0];
        uint32_t first = table[1];
        const uint32_t *bucket = table + 4 + table[2] * (sizeof(uintptr_t) / sizeof(uint32_t));
        const uint32_t *hashes = bucket + buckets;
        uint32_t last = 0;

        for (uint32_t i = 0; i < buckets; i++)
                if (bucket[i] > last)
                        last = bucket[i];
        if (last < first)
                return 0;
        while (!(hashes[last - first] & 1))
                last++;
        return last + 1;
}

static uint32_t count_symbols(const struct library *library)
{
        const uint32_t *old_table = find_entry(library, DT_HASH);
        const uint32_t *gnu_table = find_entry(library, DT_GNU_HASH);

        if (old_table)
                return old_table[1];
        return gnu_table ? count_by_gnu_table(gnu_table) : 0;
}

const void *vdso_find(const char *name)
{
        uintptr_t start = system_auxv(AT_SYSINFO_EHDR);
        struct library library = {0};
        const ElfW(Sym) * symbols;
        const char *names;
        uint32_t count;

        if (start)
                library = find_library(start);
        symbols = find_entry(&library, DT_SYMTAB);
        names = find_entry(&library, DT_STRTAB);
        count = symbols && names ? count_symbols(&library) : 0;
        for (uint32_t i = 0; i < count; i++)
                if (symbols[i].st_shndx != SHN_UNDEF &&
                    strcmp(names + symbols[i].st_name, name) == 0)
                        return (const void *)(library.base + symbols[i].st_value);
        return NULL;
}
