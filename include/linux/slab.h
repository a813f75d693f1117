/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * The slab interface of the kernel. Functions and flags are in kmem.h; here are the kernel's macros
 * and inline functions around them.
 */
#ifndef KMEM_LINUX_SLAB_H
#define KMEM_LINUX_SLAB_H

#include <linux/cleanup.h>
#include <linux/compiler.h>
#include <linux/err.h>
#include <linux/gfp.h>
#include <linux/overflow.h>
#include <linux/rcupdate.h>
#include <linux/types.h>

#include <kmem.h>

#define SLAB_DESTROY_BY_RCU SLAB_TYPESAFE_BY_RCU /* its old name */
/* Flags of some kernels or configurations, of no effect in the others. */
#define SLAB_MEM_SPREAD 0u
#define SLAB_SKIP_KFENCE 0u
#define ARCH_KMALLOC_MINALIGN 8
#define ARCH_SLAB_MINALIGN 8
#define KMALLOC_MIN_SIZE 8

/* Makes a cache of objects of a struct, with the struct's name, size and alignment (S8-01). */
#define KMEM_CACHE(tag, flags)                                                                     \
        (kmem_cache_create)(#tag, sizeof(struct tag), __alignof__(struct tag), flags, NULL)
#define KMEM_CACHE_USERCOPY(tag, flags, member)                                                    \
        kmem_cache_create_usercopy(#tag, sizeof(struct tag), __alignof__(struct tag), flags,       \
                                   offsetof(struct tag, member),                                   \
                                   sizeof(((struct tag *)NULL)->member), NULL)

/* __free(kfree) and its kind leave errors that are pointers alone. */
DEFINE_FREE(kfree, void *, if (!IS_ERR_OR_NULL(_T)) kfree(_T))
DEFINE_FREE(kvfree, void *, if (!IS_ERR_OR_NULL(_T)) kvfree(_T))
DEFINE_FREE(kfree_sensitive, void *, if (!IS_ERR_OR_NULL(_T)) kfree_sensitive(_T))

#define kmalloc_track_caller(size, flags) kmalloc(size, flags)
#define kmalloc_node_track_caller(size, flags, node) kmalloc_node(size, flags, node)

static inline void *kvzalloc_node(size_t size, gfp_t flags, int node)
{
        return kzalloc_node(size, flags, node);
}

static inline void *kvrealloc(const void *block, size_t size, gfp_t flags)
{
        return krealloc(block, size, flags);
}

static inline void *kvmemdup(const void *source, size_t size, gfp_t flags)
{
        return kmemdup(source, size, flags);
}

static inline void *kmemdup_array(const void *source, size_t count, size_t size, gfp_t flags)
{
        return kmemdup(source, size_mul(count, size), flags);
}

static inline void kvfree_sensitive(const void *block, size_t size)
{
        (void)size;
        kfree_sensitive(block);
}

/* The kernel's kstrdup_const does not copy constant strings; here it copies all of them. */
static inline void kfree_const(const void *block)
{
        kfree(block);
}

static inline bool slab_is_available(void)
{
        return true;
}

/*
 * Objects by type: the pointer has the type, and the flags may be left out (GFP_KERNEL). The
 * argument is a type or a variable of it.
 */
#define KMEM_FLAGS_OR_KERNEL(...) KMEM_SECOND(0, ##__VA_ARGS__, GFP_KERNEL)
#define KMEM_SECOND(first, second, ...) (second)
#define kmalloc_obj(object, ...)                                                                   \
        ((__typeof__(object) *)kmalloc(sizeof(__typeof__(object)),                                 \
                                       KMEM_FLAGS_OR_KERNEL(__VA_ARGS__)))
#define kzalloc_obj(object, ...)                                                                   \
        ((__typeof__(object) *)kzalloc(sizeof(__typeof__(object)),                                 \
                                       KMEM_FLAGS_OR_KERNEL(__VA_ARGS__)))
#define kmalloc_objs(object, count, ...)                                                           \
        ((__typeof__(object) *)kmalloc_array(count, sizeof(__typeof__(object)),                    \
                                             KMEM_FLAGS_OR_KERNEL(__VA_ARGS__)))
#define kzalloc_objs(object, count, ...)                                                           \
        ((__typeof__(object) *)kcalloc(count, sizeof(__typeof__(object)),                          \
                                       KMEM_FLAGS_OR_KERNEL(__VA_ARGS__)))
#define kmalloc_flex(object, member, count, ...)                                                   \
        ((__typeof__(object) *)kmalloc(struct_size_t(__typeof__(object), member, count),           \
                                       KMEM_FLAGS_OR_KERNEL(__VA_ARGS__)))
#define kzalloc_flex(object, member, count, ...)                                                   \
        ((__typeof__(object) *)kzalloc(struct_size_t(__typeof__(object), member, count),           \
                                       KMEM_FLAGS_OR_KERNEL(__VA_ARGS__)))

#endif
