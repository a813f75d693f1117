/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * The watch over option soft_limit. A slow path compares what the heap holds with a number; beyond
 * it, or after a tenth of a second in a control group, somebody looks, and trims if the limit is
 * near:
 *
 *   soft_limit=SIZE  the heap holds more than that
 *   soft_limit=auto  the control group uses more than 7/8 of its limit, or its tasks waited for
 *                    memory more than a tenth of the last ten seconds
 *
 * A trim empties sheaves and walks over the slabs of all caches, so trims keep a distance from each
 * other: the heap grows by 1/32 of the limit in between, or a pause goes by. The pause doubles, up to
 * ten seconds, while trims give back less than 1/64 of the limit: then the program uses what it
 * holds.
 *
 * A look takes cache_mutex, and leaves it to the next slow path if somebody has it. During a trim
 * other threads that would grow the heap wait for its end, but not for long: they may hold a lock
 * that the trim needs. Files are read by threads of the program outside sandboxes only.
 */
#include "heap/soft_limit.h"

#include "base/options.h"
#include "heap/heap.h"
#include "heap/reclaim.h"
#include "machine/event.h"
#include "machine/group_memory.h"
#include "machine/probe.h"
#include "machine/thread.h"
#include "percpu/area.h"
#include "percpu/figures.h"

#include <errno.h>

enum {
        LOOK_MS = 100,        /* between looks at a control group, and the first pause */
        UNLIMITED_MS = 10000, /* between looks at a group without a limit */
        SHOW_MS = 1000,       /* between looks for the figures' sake alone */
        WAIT_MS = 50,         /* for a trim of another thread, at most */
        PAUSE_MS = 10000,     /* the longest */
        NEAR = 8,             /* an eighth of a group's limit is left */
        GROWN = 32,           /* see above */
        LITTLE = 64,          /* see above; also the growth between looks at a control group */
        PRESSURE_PART = 10,   /* percent of the time */
};

struct soft_limit_figures soft_limit_figures;

/* When the next look is due: the heap holds so much, or it is so late. Written under cache_mutex. */
static uint64_t look_bytes;
static uint64_t look_ms;
static uint64_t pause_ms;   /* 0: the last trim was worth its while, or there was none */
static uint64_t trim_bytes; /* the next trim waits until the heap holds so much, or until: */
static uint64_t trim_ms;
/*
 * The thread that trims; its own drains are slow paths too. Relaxed: a stale value makes a thread wait
 * for nothing, or grow the heap during a trim.
 */
static void *trimmer;

/* Shows the figures to other processes. */
static void show_locked(void)
{
        struct registry_head *head = registry_head_shown();

        if (!head)
                return;
        store_relaxed(&head->soft_limit_bytes, soft_limit_figures.bytes);
        store_relaxed(&head->soft_limit_trims, soft_limit_figures.trims);
        store_relaxed(&head->soft_limit_given_back, soft_limit_figures.given_back_bytes);
}

/* Whether the limit is near; false also if there is none. */
static bool is_near_locked(uint64_t held)
{
        struct group_memory memory;

        if (options.soft_limit != SOFT_LIMIT_AUTO) {
                store_relaxed(&soft_limit_figures.bytes, options.soft_limit);
                return held > options.soft_limit;
        }
        if (!group_memory_read(&memory)) {
                store_relaxed(&soft_limit_figures.bytes, (uint64_t)0);
                return false;
        }
        store_relaxed(&soft_limit_figures.bytes, memory.limit);
        return memory.used > memory.limit - memory.limit / NEAR || memory.pressure >= PRESSURE_PART;
}

static void trim_locked(uint64_t limit, uint64_t now)
{
        size_t before = heap_held_bytes();
        size_t held;
        size_t given;

        store_relaxed(&trimmer, thread_pointer());
        heap_trim_locked();
        store_relaxed(&trimmer, NULL);
        held = heap_held_bytes();
        given = before - min_of(before, held);
        add_owned(&soft_limit_figures.trims, 1);
        add_owned(&soft_limit_figures.given_back_bytes, given);
        pause_ms = given >= limit / LITTLE
                           ? 0
                           : min_of(max_of(2 * pause_ms, (uint64_t)LOOK_MS), (uint64_t)PAUSE_MS);
        trim_bytes = held + limit / GROWN;
        trim_ms = now + max_of(pause_ms, (uint64_t)LOOK_MS);
        PROBE3(soft_limit, limit, given, held);
}

static void look_locked(uint64_t held, uint64_t now)
{
        bool near = is_near_locked(held);
        uint64_t limit = load_relaxed(&soft_limit_figures.bytes);

        if (near && (held >= trim_bytes || now >= trim_ms)) {
                trim_locked(limit, now);
                held = heap_held_bytes();
        }
        show_locked();
        if (options.soft_limit == SOFT_LIMIT_AUTO) {
                store_relaxed(&look_bytes, limit ? held + limit / LITTLE : UINT64_MAX);
                store_relaxed(&look_ms, now + (limit ? LOOK_MS : UNLIMITED_MS));
        } else {
                store_relaxed(&look_bytes, near ? trim_bytes : limit + 1);
                store_relaxed(&look_ms, near ? trim_ms : now + SHOW_MS);
        }
}

/* Whether the thread may look: it reads files for a control group's limit. */
static bool may_look(void)
{
        bool ours = area_thread_is_ours();

        if (system_is_lent())
                return false;
        if (options.soft_limit == SOFT_LIMIT_AUTO)
                return !ours && !system_entered_sandbox();
        return !ours || slots_can_drain();
}

static void wait_for_trim(void)
{
        const void *own = thread_pointer();
        const void *other = load_relaxed(&trimmer);

        for (unsigned int ms = 0; ms < WAIT_MS && other && other != own; ms++) {
                event_pause(1);
                other = load_relaxed(&trimmer);
        }
}

static void watch(void)
{
        uint64_t held = heap_held_bytes();
        uint64_t now = system_time_ms();
        int saved_errno = errno;

        if ((held < load_relaxed(&look_bytes) && now < load_relaxed(&look_ms)) || !may_look())
                return;
        if (!lock_try(&cache_mutex)) {
                wait_for_trim();
                return;
        }
        look_locked(held, now);
        lock_drop(&cache_mutex);
        errno = saved_errno;
}

void soft_limit_init(void)
{
        if (options.soft_limit)
                memory_watch = watch;
}
