/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * The system's <linux/string.h>, which is libc's <string.h>, and for kernel code the kernel's
 * additions; kstrdup and its kind are in kmem.h.
 */
#if !defined(KMEM_KERNEL_HEADERS) && (defined(__KERNEL__) || !defined(_FEATURES_H))
#define KMEM_KERNEL_HEADERS 1
#endif

#include_next <linux/string.h>

#if defined(KMEM_KERNEL_HEADERS) && !defined(KMEM_LINUX_STRING_H) && !defined(__cplusplus)
#define KMEM_LINUX_STRING_H

#include <linux/compiler.h>
#include <linux/errno.h>
#include <linux/types.h>

#include <string.h>

/* Copies and always ends with a zero byte. Returns the length, or -E2BIG if it was cut. */
static inline ssize_t strscpy(char *to, const char *from, size_t bytes)
{
        size_t length;

        /* gcc at -O1 would warn of a literal that is shorter than @bytes. */
        OPTIMIZER_HIDE_VAR(from);
        length = strnlen(from, bytes);
        if (bytes == 0)
                return -E2BIG;
        if (length == bytes) {
                memcpy(to, from, bytes - 1);
                to[bytes - 1] = '\0';
                return -E2BIG;
        }
        memcpy(to, from, length + 1);
        return (ssize_t)length;
}

static inline void memzero_explicit(void *start, size_t bytes)
{
        memset(start, 0, bytes);
        __asm__ volatile("" : : "r"(start) : "memory");
}

static inline size_t str_has_prefix(const char *text, const char *prefix)
{
        size_t length = strlen(prefix);

        return strncmp(text, prefix, length) == 0 ? length : 0;
}

static inline const char *kbasename(const char *path)
{
        const char *slash = strrchr(path, '/');

        return slash ? slash + 1 : path;
}

static inline void *memset64(u64 *words, u64 value, size_t count)
{
        size_t i;

        for (i = 0; i < count; i++)
                words[i] = value;
        return words;
}

/* The kernel spares constant strings the copy; here all are copied. */
static inline const char *kstrdup_const(const char *text, gfp_t flags)
{
        return kstrdup(text, flags);
}

#endif
