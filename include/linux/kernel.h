/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * The system's <linux/kernel.h>, which libc's <sys/sysinfo.h> includes too, and for kernel code the
 * names of the kernel's own header.
 */
#if !defined(KMEM_KERNEL_HEADERS) && (defined(__KERNEL__) || !defined(_FEATURES_H))
#define KMEM_KERNEL_HEADERS 1
#endif

#include_next <linux/kernel.h>

#if defined(KMEM_KERNEL_HEADERS) && !defined(KMEM_LINUX_KERNEL_H) && !defined(__cplusplus)
#define KMEM_LINUX_KERNEL_H

#include <linux/bitops.h>
#include <linux/bug.h>
#include <linux/compiler.h>
#include <linux/container_of.h>
#include <linux/err.h>
#include <linux/errno.h>
#include <linux/log2.h>
#include <linux/math.h>
#include <linux/minmax.h>
#include <linux/printk.h>
#include <linux/types.h>

#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#define U8_MAX ((u8)~0u)
#define U16_MAX ((u16)~0u)
#define U32_MAX ((u32)~0u)
#define U64_MAX ((u64)~0ull)
#define S8_MAX ((s8)(U8_MAX >> 1))
#define S16_MAX ((s16)(U16_MAX >> 1))
#define S32_MAX ((s32)(U32_MAX >> 1))
#define S64_MAX ((s64)(U64_MAX >> 1))
#define S8_MIN ((s8)(-S8_MAX - 1))
#define S16_MIN ((s16)(-S16_MAX - 1))
#define S32_MIN ((s32)(-S32_MAX - 1))
#define S64_MIN ((s64)(-S64_MAX - 1))

#define ARRAY_SIZE(array)                                                                          \
        (sizeof(array) / sizeof((array)[0]) +                                                      \
         (size_t)BUILD_BUG_ON_ZERO(                                                                \
                 __builtin_types_compatible_p(__typeof__(array), __typeof__(&(array)[0]))))

#define upper_32_bits(value) ((u32)((u64)(value) >> 32))
#define lower_32_bits(value) ((u32)(value))

#define might_sleep() ((void)0)
#define might_sleep_if(condition) ((void)(condition))
#define cpu_relax() barrier()

/* As snprintf, but returns the length that was written, without the part that did not fit. */
static inline __printf(3, 4) int scnprintf(char *text, size_t bytes, const char *format, ...)
{
        va_list arguments;
        int length;

        va_start(arguments, format);
        length = vsnprintf(text, bytes, format, arguments);
        va_end(arguments);
        if (length < 0 || bytes == 0)
                return 0;
        return (size_t)length < bytes ? length : (int)bytes - 1;
}

/* A string of kmalloc as long as the result; NULL without memory, or if libc refuses the format. */
static inline __printf(2, 0) char *kvasprintf(gfp_t flags, const char *format, va_list arguments)
{
        va_list measured;
        char *text = NULL;
        int length;

        va_copy(measured, arguments);
        length = vsnprintf(NULL, 0, format, measured);
        va_end(measured);
        if (length >= 0)
                text = kmalloc((size_t)length + 1, flags);
        if (text)
                vsnprintf(text, (size_t)length + 1, format, arguments);
        return text;
}

static inline __printf(2, 3) char *kasprintf(gfp_t flags, const char *format, ...)
{
        va_list arguments;
        char *text;

        va_start(arguments, format);
        text = kvasprintf(flags, format, arguments);
        va_end(arguments);
        return text;
}

#endif
