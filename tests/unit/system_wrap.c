/* SPDX-License-Identifier: Apache-2.0 OR MIT */
#include "system_wrap.h"

#include "lang/atomic.h"
#include "machine/message.h"

struct system_wrap system_wrap = {
        .now_ms = 1000000,
        .calls_left = {SIZE_MAX, SIZE_MAX, SIZE_MAX, SIZE_MAX},
};

/* The linker gives the library these, and gives the wrappers the real functions (--wrap). */
void *__real_system_map(size_t bytes);
void *__real_system_remap(void *start, size_t old_bytes, size_t new_bytes);
bool __real_system_commit(void *start, size_t bytes);
bool __real_system_purge(void *start, size_t bytes);
size_t __real_system_page_bytes(void);
void *__wrap_system_map(size_t bytes);
void *__wrap_system_remap(void *start, size_t old_bytes, size_t new_bytes);
bool __wrap_system_commit(void *start, size_t bytes);
bool __wrap_system_purge(void *start, size_t bytes);
uint64_t __wrap_system_time_ms(void);
uint64_t __wrap_system_faults(void);
size_t __wrap_system_page_bytes(void);

void system_wrap_allow_all(void)
{
        for (int call = 0; call < WRAPPED_CALLS; call++)
                store_relaxed(&system_wrap.calls_left[call], SIZE_MAX);
}

static bool allowed(enum wrapped_call call)
{
        add_relaxed(&system_wrap.calls_made[call], 1);
        if (load_relaxed(&system_wrap.calls_left[call]) == SIZE_MAX)
                return true;
        if (load_relaxed(&system_wrap.calls_left[call]) == 0)
                return false;
        sub_relaxed(&system_wrap.calls_left[call], 1);
        return true;
}

void *__wrap_system_map(size_t bytes)
{
        if (system_wrap.while_mapping)
                system_wrap.while_mapping();
        return allowed(CALL_MAP) ? __real_system_map(bytes) : NULL;
}

void *__wrap_system_remap(void *start, size_t old_bytes, size_t new_bytes)
{
        return allowed(CALL_REMAP) ? __real_system_remap(start, old_bytes, new_bytes) : NULL;
}

bool __wrap_system_commit(void *start, size_t bytes)
{
        return allowed(CALL_COMMIT) && __real_system_commit(start, bytes);
}

bool __wrap_system_purge(void *start, size_t bytes)
{
        /* The system would round the length up, and so take pages that are in use. */
        check_or_die(((uintptr_t)start | bytes) % system_page_bytes() == 0);
        if (system_wrap.while_purging)
                system_wrap.while_purging();
        return allowed(CALL_PURGE) && __real_system_purge(start, bytes);
}

uint64_t __wrap_system_time_ms(void)
{
        return load_relaxed(&system_wrap.now_ms);
}

uint64_t __wrap_system_faults(void)
{
        return system_wrap.faults;
}

size_t __wrap_system_page_bytes(void)
{
        return system_wrap.page_bytes ? system_wrap.page_bytes : __real_system_page_bytes();
}
