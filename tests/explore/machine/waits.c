/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * In place of pauses, and in front of the system calls that give memory back or make it accessible: each
 * is a scheduling point, and a fence (the linker's --wrap). Requests for memory may be refused here.
 */
#include "base/metadata.h"
#include "machine/system.h"
#include "page/page.h"
#include "races.h"

void __wrap_system_sleep_ns(long nanoseconds);
int __wrap_system_membarrier(int command);
bool __wrap_system_commit(void *start, size_t bytes);
bool __wrap_system_purge(void *start, size_t bytes);
bool __real_system_commit(void *start, size_t bytes);
bool __real_system_purge(void *start, size_t bytes);
struct page *__wrap_pages_alloc(unsigned int order, int node, bool *zero);
struct page *__real_pages_alloc(unsigned int order, int node, bool *zero);
struct page *__wrap_pages_alloc_many(size_t pages, size_t align_pages, int node, unsigned int count,
                                     bool one_object);
struct page *__real_pages_alloc_many(size_t pages, size_t align_pages, int node, unsigned int count,
                                     bool one_object);
struct page *__wrap_pages_alloc_exact(size_t count, size_t align_pages, size_t *fresh);
struct page *__real_pages_alloc_exact(size_t count, size_t align_pages, size_t *fresh);
void *__wrap_metadata_alloc(size_t bytes);
void *__real_metadata_alloc(size_t bytes);
unsigned int __wrap_metadata_alloc_many(void **blocks, unsigned int count, size_t bytes);
unsigned int __real_metadata_alloc_many(void **blocks, unsigned int count, size_t bytes);
void *__wrap_system_map(size_t bytes);
void *__real_system_map(size_t bytes);

void __wrap_system_sleep_ns(long nanoseconds)
{
        (void)nanoseconds;
        explore_call(THIS_PLACE("system_sleep_ns()"));
        explore_yield(THIS_PLACE("system_sleep_ns()"));
}

int __wrap_system_membarrier(int command)
{
        (void)command;
        sequences_fence(THIS_PLACE("system_membarrier()"));
        return 0;
}

bool __wrap_system_commit(void *start, size_t bytes)
{
        explore_point(THIS_PLACE("system_commit()"), start, ACCESS_LOCKED);
        if (search_refuses(THIS_PLACE("system_commit()")))
                return false;
        explore_effect(start, bytes, true);
        races_forget(start, bytes);
        return __real_system_commit(start, bytes);
}

bool __wrap_system_purge(void *start, size_t bytes)
{
        explore_point(THIS_PLACE("system_purge()"), start, ACCESS_LOCKED);
        explore_flush_all(); /* as the kernel has every CPU forget the page */
        explore_effect(start, bytes, true);
        races_forget(start, bytes);
        return __real_system_purge(start, bytes);
}

/* ---- Requests for memory, which the search may refuse --------------------------------------- */

struct page *__wrap_pages_alloc(unsigned int order, int node, bool *zero)
{
        return search_refuses(THIS_PLACE("pages_alloc()")) ? NULL
                                                           : __real_pages_alloc(order, node, zero);
}

struct page *__wrap_pages_alloc_many(size_t pages, size_t align_pages, int node, unsigned int count,
                                     bool one_object)
{
        if (search_refuses(THIS_PLACE("pages_alloc_many()")))
                return NULL;
        return __real_pages_alloc_many(pages, align_pages, node, count, one_object);
}

struct page *__wrap_pages_alloc_exact(size_t count, size_t align_pages, size_t *fresh)
{
        if (search_refuses(THIS_PLACE("pages_alloc_exact()")))
                return NULL;
        return __real_pages_alloc_exact(count, align_pages, fresh);
}

void *__wrap_metadata_alloc(size_t bytes)
{
        return search_refuses(THIS_PLACE("metadata_alloc()")) ? NULL : __real_metadata_alloc(bytes);
}

/* Half of the blocks are there: none of a single one. */
unsigned int __wrap_metadata_alloc_many(void **blocks, unsigned int count, size_t bytes)
{
        if (search_refuses(THIS_PLACE("metadata_alloc_many()")))
                count /= 2;
        return __real_metadata_alloc_many(blocks, count, bytes);
}

void *__wrap_system_map(size_t bytes)
{
        return search_refuses(THIS_PLACE("system_map()")) ? NULL : __real_system_map(bytes);
}
