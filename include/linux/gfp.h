/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * GFP_* flags are in kmem.h. Pages: a struct page is never looked into; its pointer is the
 * address of the memory itself.
 */
#ifndef KMEM_LINUX_GFP_H
#define KMEM_LINUX_GFP_H

#include <linux/compiler.h>
#include <linux/types.h>

#include <kmem.h>

/* <sys/user.h> has these too. */
#undef PAGE_SHIFT
#undef PAGE_SIZE
#undef PAGE_MASK
#define PAGE_SHIFT 12
#define PAGE_SIZE (1ul << PAGE_SHIFT)
#define PAGE_MASK (~(PAGE_SIZE - 1))
#define PAGE_ALIGN(address) (((address) + PAGE_SIZE - 1) & PAGE_MASK)
#define MAX_PAGE_ORDER 10

#define __GFP_NOLOCKDEP 0u
#define __GFP_ZEROTAGS 0u
#define GFP_HIGHUSER (GFP_USER | __GFP_HIGHMEM)
#define GFP_HIGHUSER_MOVABLE (GFP_HIGHUSER | __GFP_MOVABLE)
#define GFP_TRANSHUGE_LIGHT (GFP_HIGHUSER_MOVABLE | __GFP_COMP | __GFP_NOWARN)

struct page;

static inline bool gfpflags_allow_blocking(gfp_t flags)
{
        return (flags & __GFP_DIRECT_RECLAIM) != 0;
}

static inline struct page *alloc_pages(gfp_t flags, unsigned int order)
{
        return (struct page *)kmem_pages_alloc(flags, order);
}

#define alloc_page(flags) alloc_pages(flags, 0)
#define alloc_pages_node(node, flags, order) alloc_pages(flags, order)

static inline void __free_pages(struct page *page, unsigned int order)
{
        (void)order;
        kfree(page);
}

#define __free_page(page) __free_pages(page, 0)

static inline void *page_address(const struct page *page)
{
        return (void *)page;
}

static inline struct page *virt_to_page(const void *address)
{
        return (struct page *)((unsigned long)address & PAGE_MASK);
}

static inline unsigned long __get_free_pages(gfp_t flags, unsigned int order)
{
        return (unsigned long)kmem_pages_alloc(flags, order);
}

#define __get_free_page(flags) __get_free_pages(flags, 0)

static inline unsigned long get_zeroed_page(gfp_t flags)
{
        return __get_free_pages(flags | __GFP_ZERO, 0);
}

static inline void free_pages(unsigned long address, unsigned int order)
{
        (void)order;
        kfree((void *)address);
}

#define free_page(address) free_pages(address, 0)

/* The least order of a block of @size bytes. */
static inline int get_order(unsigned long size)
{
        return size <= PAGE_SIZE ? 0 : 64 - __builtin_clzl((size - 1) >> PAGE_SHIFT);
}

#endif
