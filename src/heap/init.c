/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * The start of the heap, on the first slow path of the process: possibly before libc's own
 * constructors, always with one thread or under the lock.
 */
#include "heap/heap.h"
#include "heap/owner.h"
#include "heap/reclaim.h"

#include "account/group.h"
#include "engines/hardened/hardened.h"
#include "machine/message.h"
#include "base/options.h"
#include "page/guarded.h"
#include "record/record.h"

uint32_t heap_state;
struct lock heap_start_lock;

/*
 * The steps in front of the heap. They are done once, even if the heap is refused more often: bad
 * options are reported once, and a recording has the process once.
 */
static void prepare_locked(void)
{
        static bool prepared;

        if (prepared)
                return;
        prepared = true;
        system_init();
        system_watch_sandbox();
        options_init();
        guarded_init();
        system_nodes_init(options.numa == NUMA_AUTO, (unsigned int)options.numa_fake);
        if (options.record[0])
                record_start();
}

/* The heap's address space, once; and hardened blocks' if they are wanted, as often as it takes. */
static bool reserve_locked(void)
{
        static bool has_pages, refused;

        has_pages = has_pages || pages_init();
        if (!has_pages || options.protect == PROTECT_NONE || hardened_start())
                return has_pages;
        if (!refused)
                message("option protect=hardened: there is no address space for its blocks, so "
                        "nothing can be allocated");
        refused = true;
        return false;
}

bool heap_start(void)
{
        bool started = false;

        if (heap_is_foreign()) {
                slots_refuse();
                return false;
        }
        lock_take(&heap_start_lock);
        if (heap_state == HEAP_NEW) {
                prepare_locked();
                if (reserve_locked()) {
                        registry_init();
                        slots_init();
                        if (options.memory_limit)
                                group_limit_process(options.memory_limit);
                        classes_init();
                        percpu_regain = heap_regain;
                        /*
                         * Release, with heap_is_up: a thread that sees the heap ready sees all of
                         * it.
                         */
                        store_release(&heap_state, HEAP_READY);
                        started = true;
                }
        }
        lock_drop(&heap_start_lock);
        return started;
}
