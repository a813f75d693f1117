/* SPDX-License-Identifier: Apache-2.0 OR MIT */
#define _GNU_SOURCE
#include "base/bits.h"
#include "base/stack.h"

#include <dlfcn.h>
#include <link.h>
#include <stdio.h>
#include <string.h>

size_t symbol_text(uintptr_t address, char text[SYMBOL_BYTES])
{
        const ElfW(Sym) *symbol = NULL;
        const char *file;
        Dl_info found;
        int length;

        if (!dladdr1((void *)address, &found, (void **)&symbol, RTLD_DL_SYMENT) ||
            !found.dli_fname) {
                length = snprintf(text, SYMBOL_BYTES, "0x%lx", (unsigned long)address);
        } else if (found.dli_sname && symbol) {
                length = snprintf(text, SYMBOL_BYTES, "%s+0x%lx/0x%lx", found.dli_sname,
                                  (unsigned long)(address - (uintptr_t)found.dli_saddr),
                                  (unsigned long)symbol->st_size);
        } else {
                file = strrchr(found.dli_fname, '/');
                length = snprintf(text, SYMBOL_BYTES, "[%s]+0x%lx",
                                  file ? file + 1 : found.dli_fname,
                                  (unsigned long)(address - (uintptr_t)found.dli_fbase));
        }
        return min_of((size_t)max_of(length, 0), (size_t)SYMBOL_BYTES - 1);
}
