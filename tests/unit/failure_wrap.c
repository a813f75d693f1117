/* SPDX-License-Identifier: Apache-2.0 OR MIT */
#include "failure_wrap.h"

#include "machine/message.h"
#include "base/metadata.h"
#include "machine/system.h"
#include "page/page.h"

#include <stdlib.h>
#include <unistd.h>

static struct {
        bool asked_environment;
        size_t n; /* 0: nothing fails */
        bool held;
        bool rest;
        size_t points;
        size_t injected;
        size_t mapped_bytes;
} state;

void failure_arm(size_t n, bool rest)
{
        store_relaxed(&state.points, 0);
        store_relaxed(&state.injected, 0);
        state.rest = rest;
        state.asked_environment = true;
        store_release(&state.n, n);
}

void failure_disarm(void)
{
        state.asked_environment = true;
        store_release(&state.n, 0);
}

void failure_hold(void)
{
        store_relaxed(&state.held, true);
}

void failure_go_on(void)
{
        store_relaxed(&state.held, false);
}

size_t failure_points(void)
{
        return load_relaxed(&state.points);
}

size_t failures_injected(void)
{
        return load_relaxed(&state.injected);
}

size_t failure_mapped_bytes(void)
{
        return load_relaxed(&state.mapped_bytes);
}

static void ask_environment(void)
{
        const char *start = getenv("FAIL_START");

        state.asked_environment = true;
        if (start)
                failure_arm(strtoul(start, NULL, 10), getenv("FAIL_START_REST") != NULL);
}

static bool fails(const char *call)
{
        size_t point;
        size_t n;

        if (!state.asked_environment)
                ask_environment();
        if (load_relaxed(&state.held))
                return false;
        n = load_acquire(&state.n);
        point = add_relaxed(&state.points, 1);
        if (!n || point < n || (point > n && !state.rest))
                return false;
        if (add_relaxed(&state.injected, 1) == 1)
                message_print(STDERR_FILENO, "point %zu fails: %s\n", point, call);
        return true;
}

static void *mapped(void *start, size_t bytes)
{
        if (start)
                add_relaxed(&state.mapped_bytes, round_up(bytes, system_page_bytes()));
        return start;
}

/* The linker gives the library the wrappers, and gives the wrappers the real functions (--wrap). */
void *__real_metadata_alloc(size_t bytes);
unsigned int __real_metadata_alloc_many(void **blocks, unsigned int count, size_t bytes);
struct page *__real_pages_alloc(unsigned int order, int node, bool *zero);
struct page *__real_pages_alloc_many(size_t pages, size_t align, int node, unsigned int count,
                                     bool one_object);
struct page *__real_pages_alloc_exact(size_t count, size_t align_pages, size_t *fresh);
struct page *__real_pages_alloc_zeroed(size_t count, size_t align_pages);
bool __real_pages_resize(struct page *page, size_t count, size_t new_count);
void *__real_system_reserve(size_t bytes);
void *__real_system_map(size_t bytes);
void __real_system_unmap(void *start, size_t bytes);
void *__real_system_remap(void *start, size_t old_bytes, size_t new_bytes);
bool __real_system_commit(void *start, size_t bytes);

void *__wrap_metadata_alloc(size_t bytes);
unsigned int __wrap_metadata_alloc_many(void **blocks, unsigned int count, size_t bytes);
struct page *__wrap_pages_alloc(unsigned int order, int node, bool *zero);
struct page *__wrap_pages_alloc_many(size_t pages, size_t align, int node, unsigned int count,
                                     bool one_object);
struct page *__wrap_pages_alloc_exact(size_t count, size_t align_pages, size_t *fresh);
struct page *__wrap_pages_alloc_zeroed(size_t count, size_t align_pages);
bool __wrap_pages_resize(struct page *page, size_t count, size_t new_count);
void *__wrap_system_reserve(size_t bytes);
void *__wrap_system_map(size_t bytes);
void __wrap_system_unmap(void *start, size_t bytes);
void *__wrap_system_remap(void *start, size_t old_bytes, size_t new_bytes);
bool __wrap_system_commit(void *start, size_t bytes);

void *__wrap_metadata_alloc(size_t bytes)
{
        return fails("metadata_alloc") ? NULL : __real_metadata_alloc(bytes);
}

/* One object of many is missing. */
unsigned int __wrap_metadata_alloc_many(void **blocks, unsigned int count, size_t bytes)
{
        if (fails("metadata_alloc_many") && --count == 0)
                return 0;
        return __real_metadata_alloc_many(blocks, count, bytes);
}

struct page *__wrap_pages_alloc_many(size_t pages, size_t align, int node, unsigned int count,
                                     bool one_object)
{
        if (fails("pages_alloc_many") && --count == 0)
                return NULL;
        return __real_pages_alloc_many(pages, align, node, count, one_object);
}

struct page *__wrap_pages_alloc(unsigned int order, int node, bool *zero)
{
        return fails("pages_alloc") ? NULL : __real_pages_alloc(order, node, zero);
}

struct page *__wrap_pages_alloc_exact(size_t count, size_t align_pages, size_t *fresh)
{
        return fails("pages_alloc_exact") ? NULL
                                          : __real_pages_alloc_exact(count, align_pages, fresh);
}

struct page *__wrap_pages_alloc_zeroed(size_t count, size_t align_pages)
{
        return fails("pages_alloc_zeroed") ? NULL : __real_pages_alloc_zeroed(count, align_pages);
}

/* Only growing takes memory. */
bool __wrap_pages_resize(struct page *page, size_t count, size_t new_count)
{
        return !(new_count > count && fails("pages_resize")) &&
               __real_pages_resize(page, count, new_count);
}

void *__wrap_system_reserve(size_t bytes)
{
        return fails("system_reserve") ? NULL : mapped(__real_system_reserve(bytes), bytes);
}

void *__wrap_system_map(size_t bytes)
{
        return fails("system_map") ? NULL : mapped(__real_system_map(bytes), bytes);
}

void __wrap_system_unmap(void *start, size_t bytes)
{
        sub_relaxed(&state.mapped_bytes, round_up(bytes, system_page_bytes()));
        __real_system_unmap(start, bytes);
}

void *__wrap_system_remap(void *start, size_t old_bytes, size_t new_bytes)
{
        void *moved =
                fails("system_remap") ? NULL : __real_system_remap(start, old_bytes, new_bytes);

        if (moved) {
                sub_relaxed(&state.mapped_bytes, round_up(old_bytes, system_page_bytes()));
                mapped(moved, new_bytes);
        }
        return moved;
}

bool __wrap_system_commit(void *start, size_t bytes)
{
        return !fails("system_commit") && __real_system_commit(start, bytes);
}
