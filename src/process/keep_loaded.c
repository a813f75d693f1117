/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Shared libraries with inlined sequences stay in memory (kmem-inline.h). The dynamic linker's
 * functions are weak: a static program has none and unloads nothing. dlopen is looked up, because
 * linkers warn of its mere name when they make a static program.
 */
#define _GNU_SOURCE
#define KMEM_INLINE_NODELETE /* as this library is */
#include "kmem-inline.h"

#include "lang/compiler.h"
#include "machine/message.h"
#include "machine/system.h"

#include <dlfcn.h>
#include <link.h>
#include <stdint.h>

#ifdef __GLIBC__

extern __typeof__(dlsym) dlsym __attribute__((weak));
extern __typeof__(dladdr1) dladdr1 __attribute__((weak));

/*
 * Whether the program's own segments contain an address. The kernel's auxiliary vector answers it:
 * each program with inlined code asks once when it starts, and dladdr1 would search the symbols of
 * a large program. In a position-independent program PT_PHDR tells the address that it was linked
 * for.
 */
static bool is_of_program(const void *address)
{
        const ElfW(Phdr) *headers = (const ElfW(Phdr) *)system_auxv(AT_PHDR);
        size_t count = headers ? system_auxv(AT_PHNUM) : 0;
        uintptr_t bias = 0;

        for (size_t i = 0; i < count; i++) /* in front of all PT_LOAD, by the ELF specification */
                if (headers[i].p_type == PT_PHDR)
                        bias = (uintptr_t)headers - headers[i].p_vaddr;
                else if (headers[i].p_type == PT_LOAD &&
                         (uintptr_t)address - bias - headers[i].p_vaddr < headers[i].p_memsz)
                        return true;
        return false;
}

KMEM_PUBLIC void kmem_inline_keep_loaded(const void *address)
{
        void *(*open)(const char *file, int mode);
        struct link_map *map = NULL;
        Dl_info info;

        if (!dlsym || !dladdr1 || is_of_program(address))
                return;
        if (!dladdr1(address, &info, (void **)&map, RTLD_DL_LINKMAP) || !map)
                return; /* in no shared library: nobody can unload it */
        if (!*map->l_name)
                return; /* the program itself, where the auxiliary vector has no headers */
        /* The handle is kept: it counts as a further user. */
        *(void **)&open = dlsym(RTLD_DEFAULT, "dlopen");
        if (open && open(map->l_name, RTLD_LAZY | RTLD_NOLOAD | RTLD_NODELETE))
                return;
        message("%s has inlined restartable sequences and cannot be kept in memory; it must not be "
                "unloaded (link it with -z nodelete)",
                map->l_name);
}

#else

/* musl unloads nothing. */
KMEM_PUBLIC void kmem_inline_keep_loaded(const void *address)
{
        (void)address;
}

#endif
