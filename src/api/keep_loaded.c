/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Shared libraries with inlined sequences stay in memory (kmem-inline.h). The dynamic linker's
 * functions are weak: a static program has none and unloads nothing.
 */
#define _GNU_SOURCE
#define KMEM_INLINE_NODELETE /* as this library is */
#include "kmem-inline.h"

#include "base/compiler.h"
#include "base/message.h"

#include <dlfcn.h>
#include <link.h>

extern __typeof__(dlopen) dlopen __attribute__((weak));
extern __typeof__(dladdr1) dladdr1 __attribute__((weak));

KMEM_PUBLIC void kmem_inline_keep_loaded(const void *address)
{
        struct link_map *map = NULL;
        Dl_info info;

        if (!dlopen || !dladdr1)
                return;
        if (!dladdr1(address, &info, (void **)&map, RTLD_DL_LINKMAP) || !map)
                return; /* in no shared library: nobody can unload it */
        /* The program itself has no name. The handle is kept, too: it counts as one more user. */
        if (!*map->l_name || dlopen(map->l_name, RTLD_LAZY | RTLD_NOLOAD | RTLD_NODELETE))
                return;
        message("%s has inlined restartable sequences and cannot be kept in memory; it must not be "
                "unloaded (link it with -z nodelete)",
                map->l_name);
}
