/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Errors as pointers: the last page of the address space holds -1 to -4095. */
#ifndef KMEM_LINUX_ERR_H
#define KMEM_LINUX_ERR_H

#include <linux/compiler.h>
#include <linux/errno.h>

#define MAX_ERRNO 4095
#define IS_ERR_VALUE(value) unlikely((unsigned long)(value) >= (unsigned long)-MAX_ERRNO)

static inline void *ERR_PTR(long error)
{
        return (void *)error;
}

static inline long PTR_ERR(const void *pointer)
{
        return (long)pointer;
}

static inline bool IS_ERR(const void *pointer)
{
        return IS_ERR_VALUE(pointer);
}

static inline bool IS_ERR_OR_NULL(const void *pointer)
{
        return !pointer || IS_ERR_VALUE(pointer);
}

static inline void *ERR_CAST(const void *pointer)
{
        return (void *)pointer;
}

static inline int PTR_ERR_OR_ZERO(const void *pointer)
{
        return IS_ERR(pointer) ? (int)PTR_ERR(pointer) : 0;
}

#endif
