/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * print_rows LIBRARY: the row of each address in its code, as frame_row_read has it (test_frame_rows.py).
 * A line has the offset in the library where a row begins, and the row: none, unknown, last, or the
 * frame's base, the caller's frame pointer and the return address.
 */
#define _GNU_SOURCE
#include "machine/find_object.h"
#include "machine/frame_row.h"

#include <dlfcn.h>
#include <link.h>
#include <stdio.h>
#include <string.h>

static void describe(enum row_answer answer, const struct frame_row *row, char text[96])
{
        const char *base = row->is_from_frame_pointer ? "rbp" : "rsp";
        char saved[24] = "u";

        if (answer != ROW_FOUND || row->is_last) {
                strcpy(text, answer == ROW_NONE ? "none" : answer ? "unknown" : "last");
                return;
        }
        if (row->saved)
                snprintf(saved, sizeof(saved), "c%+ld", (long)row->saved);
        snprintf(text, 96, "%s%+ld %s c%+ld", base, (long)row->base, saved,
                 (long)row->return_address);
}

static void print_segment(uintptr_t base, uintptr_t start, uintptr_t end)
{
        char before[96] = "";
        char text[96];
        uint32_t hint = 0;

        for (uintptr_t address = start; address < end; address++) {
                struct found_object object;
                struct frame_row row = {0};
                enum row_answer answer = ROW_NONE;

                if (find_object((void *)address, &object) == 0)
                        answer = frame_row_read(object.frames, address + 1, &hint, &row);
                describe(answer, &row, text);
                if (strcmp(text, before) != 0)
                        printf("%lx %s\n", (unsigned long)(address - base), text);
                strcpy(before, text);
        }
        printf("%lx end\n", (unsigned long)(end - base));
}

static int print_object(struct dl_phdr_info *info, size_t bytes, void *argument)
{
        const struct link_map *map = argument;

        (void)bytes;
        if (info->dlpi_addr != map->l_addr)
                return 0;
        for (unsigned int i = 0; i < info->dlpi_phnum; i++) {
                const ElfW(Phdr) *segment = &info->dlpi_phdr[i];
                uintptr_t start = info->dlpi_addr + segment->p_vaddr;

                if (segment->p_type == PT_LOAD && segment->p_flags & PF_X)
                        print_segment(info->dlpi_addr, start, start + segment->p_memsz);
        }
        return 1;
}

int main(int count, char **arguments)
{
        struct link_map *map = count == 2 ? dlopen(arguments[1], RTLD_LAZY) : NULL;

        if (!find_object) {
                puts("this libc does not tell objects by their addresses");
                return 77;
        }
        if (!map || !dl_iterate_phdr(print_object, map)) {
                fprintf(stderr, "print_rows: expected a library, got: %s\n",
                        count == 2 ? dlerror() : "no argument");
                return 2;
        }
        return 0;
}
