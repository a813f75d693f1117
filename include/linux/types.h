/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * The system's <linux/types.h> and, for kernel code (linux/compiler.h defines that), the kernel's
 * short names and the structs of list heads.
 */
#if !defined(KMEM_KERNEL_HEADERS) && (defined(__KERNEL__) || !defined(_FEATURES_H))
#define KMEM_KERNEL_HEADERS 1
#endif

#include_next <linux/types.h>

#if defined(KMEM_KERNEL_HEADERS) && !defined(KMEM_LINUX_TYPES_H) && !defined(__cplusplus)
#define KMEM_LINUX_TYPES_H

#include <linux/compiler.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include <kmem.h>

typedef __u8 u8;
typedef __u16 u16;
typedef __u32 u32;
typedef __u64 u64;
typedef __s8 s8;
typedef __s16 s16;
typedef __s32 s32;
typedef __s64 s64;

typedef unsigned short umode_t;
typedef unsigned long pgoff_t;
typedef u64 sector_t;
typedef u64 phys_addr_t;
typedef u64 dma_addr_t;

typedef struct {
        int counter;
} atomic_t;

typedef struct {
        s64 counter;
} atomic64_t;

typedef atomic64_t atomic_long_t;

struct list_head {
        struct list_head *next;
        struct list_head *prev;
};

struct hlist_node {
        struct hlist_node *next;
        struct hlist_node **pprev; /* the pointer that points here: the head's or a node's next */
};

struct hlist_head {
        struct hlist_node *first;
};

/* As in the kernel, where the struct has the name callback_head too. */
#define rcu_head kmem_rcu_head
#define callback_head kmem_rcu_head
typedef void (*rcu_callback_t)(struct rcu_head *head);

#endif
