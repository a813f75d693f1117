/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Names of functions by their addresses, from the dynamic linker, in place of marks in a text
 * (stack.h).
 */
#define _GNU_SOURCE
#include "lang/number.h"
#include "machine/stack.h"
#include "lang/text.h"

#include <dlfcn.h>
#include <link.h>
#include <string.h>

/*
 * What the dynamic linker knows of an address; sets *symbol where libc tells it. musl has no
 * dladdr1, and so no sizes.
 */
static bool find_symbol(uintptr_t address, Dl_info *found, const ElfW(Sym) * *symbol)
{
#ifdef __GLIBC__
        return dladdr1((void *)address, found, (void **)symbol, RTLD_DL_SYMENT) && found->dli_fname;
#else
        (void)symbol;
        return dladdr((void *)address, found) && found->dli_fname;
#endif
}

#ifdef __GLIBC__
static const bool has_sizes = true;
#else
static const bool has_sizes;
#endif

/*
 * symbol+offset/size as the kernel prints it, without the size where libc does not tell it,
 * [file]+offset where the function has no dynamic symbol (addr2line takes that), or the address.
 * Returns the length, cut to SYMBOL_BYTES - 1. It asks the dynamic linker, which takes a lock that
 * comes before all of ours: no lock may be held.
 */
static size_t symbol_text(uintptr_t address, char text[SYMBOL_BYTES])
{
        const ElfW(Sym) *symbol = NULL;
        const char *file;
        Dl_info found;
        size_t length;

        if (!find_symbol(address, &found, &symbol)) {
                length = text_print(text, SYMBOL_BYTES, "0x%lx", (unsigned long)address);
        } else if (found.dli_sname && symbol) {
                length = text_print(text, SYMBOL_BYTES, "%s+0x%lx/0x%lx", found.dli_sname,
                                    (unsigned long)(address - (uintptr_t)found.dli_saddr),
                                    (unsigned long)symbol->st_size);
        } else if (found.dli_sname && !has_sizes) {
                length = text_print(text, SYMBOL_BYTES, "%s+0x%lx", found.dli_sname,
                                    (unsigned long)(address - (uintptr_t)found.dli_saddr));
        } else {
                file = strrchr(found.dli_fname, '/');
                length = text_print(text, SYMBOL_BYTES, "[%s]+0x%lx",
                                    file ? file + 1 : found.dli_fname,
                                    (unsigned long)(address - (uintptr_t)found.dli_fbase));
        }
        return min_of(length, (size_t)SYMBOL_BYTES - 1);
}

/* The address in the digits of a mark, as traces write them. */
static uintptr_t address_of(const char *digits)
{
        uint64_t address;

        number_scan(&digits, 16, &address);
        return address;
}

size_t marks_replace(const char *marked, address_writer *write, void *context, char *text,
                     size_t bytes)
{
        size_t used = 0;

        while (*marked) {
                size_t plain = strcspn(marked, SYMBOL_MARK);
                char digits[SYMBOL_MARK_BYTES] = {0};
                size_t room;
                size_t length;

                if (text && plain >= bytes - used)
                        break;
                if (text)
                        memcpy(text + used, marked, plain);
                used += plain;
                marked += plain;
                if (!*marked)
                        break;
                memcpy(digits, marked + 1, sizeof(digits) - 1);
                room = text ? bytes - used : 0;
                length = write(context, address_of(digits), text ? text + used : NULL, room);
                if (text && length >= room)
                        break;
                used += length;
                marked += SYMBOL_MARK_BYTES;
        }
        if (text)
                text[used] = '\0';
        return used;
}

static size_t write_symbol(void *context, uintptr_t address, char *text, size_t bytes)
{
        char name[SYMBOL_BYTES];
        size_t length = symbol_text(address, name);

        (void)context;
        if (length < bytes)
                memcpy(text, name, length);
        return length;
}

/* Names change when libraries are opened and closed between the two looks. */
size_t symbols_resolve(const char *marked, char *text, size_t bytes)
{
        size_t length = marks_replace(marked, write_symbol, NULL, NULL, 0);

        return length < bytes ? marks_replace(marked, write_symbol, NULL, text, bytes) : length;
}
