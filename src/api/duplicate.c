/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Copies of strings and memory.
 */
#include "kmem.h"

#include "lang/compiler.h"

#include <string.h>

KMEM_PUBLIC void *kmemdup(const void *source, size_t bytes, gfp_t flags)
{
        void *copy = kmalloc(bytes, flags);

        if (copy && !ZERO_OR_NULL_PTR(copy))
                memcpy(copy, source, bytes);
        return copy;
}

KMEM_PUBLIC char *kmemdup_nul(const char *source, size_t bytes, gfp_t flags)
{
        char *copy;

        if (!source)
                return NULL;
        /* One byte for the end must not make the sum 0; above its maximum kmalloc refuses. */
        copy = kmalloc(min_of(bytes, KMALLOC_MAX_SIZE) + 1, flags);
        if (copy) {
                memcpy(copy, source, bytes);
                copy[bytes] = '\0';
        }
        return copy;
}

KMEM_PUBLIC char *kstrdup(const char *source, gfp_t flags)
{
        return source ? kmemdup(source, strlen(source) + 1, flags) : NULL;
}

KMEM_PUBLIC char *kstrndup(const char *source, size_t most, gfp_t flags)
{
        return source ? kmemdup_nul(source, strnlen(source, most), flags) : NULL;
}
