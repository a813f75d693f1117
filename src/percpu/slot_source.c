/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Slot sources: restartable sequences where the kernel and libc allow them, locked records where
 * not; chosen once at start. The simulator has a third in place of this file.
 */
#define _GNU_SOURCE
#include "percpu/slot_source.h"

#include "base/message.h"
#include "base/options.h"
#include "base/system.h"

#include <errno.h>
#include <linux/membarrier.h>
#include <sys/auxv.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { RSEQ_FLAG_UNREGISTER = 1 };

#ifndef AT_RSEQ_FEATURE_SIZE
#define AT_RSEQ_FEATURE_SIZE 27
#endif

/* Programs find it under the name that says what is in it; see kmem-sequence.h. */
struct kmem_inline_layout fast __attribute__((aligned(CACHE_LINE)));
extern KMEM_PUBLIC struct kmem_inline_layout kmem_inline_layout_1 __attribute__((alias("fast")));

/*
 * Locked slots: the first so many of those made. Release and acquire, so that the records are seen.
 * An old count costs waiting, or leaves an object in a slot that is not used any more.
 */
static unsigned int locked_in_use;
static bool rseq_mode;
static bool register_threads; /* libc registered nobody, so each thread does it itself */
static bool fence_refused;

/*
 * Our own rseq area. Its offset from the thread pointer is the same in every thread, and it
 * says "not registered" until the thread registers it. Without rseq it stays so for good, which
 * sends the fast paths to the slow one. Initial-exec: access must never allocate.
 */
static _Thread_local struct rseq_area own_area
        __attribute__((tls_model("initial-exec"))) = {.cpu_id = -1};

/* libc's registration, where it makes one (glibc from 2.35 on). */
extern const ptrdiff_t __rseq_offset __attribute__((weak));
extern const unsigned int __rseq_size __attribute__((weak));

static bool libc_registers(void)
{
        return &__rseq_size && __rseq_size > 0;
}

static intptr_t own_area_offset(void)
{
        return (intptr_t)((char *)&own_area - (char *)thread_pointer());
}

static struct rseq_area *this_area(void)
{
        return (struct rseq_area *)((char *)thread_pointer() + fast.rseq);
}

/* What own_area.padding says besides: 1, the kernel refused. */
enum { OUR_THREAD = 2 };

/* A thread that was refused once is not asked for again: own_area.padding remembers it. */
static bool register_this_thread(void)
{
        int saved_errno = errno;
        bool done;

        if (own_area.padding)
                return false;
        done = syscall(SYS_rseq, &own_area, sizeof(own_area), 0, RSEQ_SIGNATURE_VALUE) == 0;
        own_area.padding = !done;
        errno = saved_errno;
        return done;
}

static bool membarrier_register(void)
{
        return syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED_RSEQ, 0, 0) == 0;
}

/* Whether one 16-byte store to aligned memory is seen whole by interrupts and other CPUs. */
static bool pair_store_is_whole(void)
{
#if defined(__aarch64__)
        const unsigned long hwcap_uscat = 1ul << 25; /* FEAT_LSE2 */

        return getauxval(AT_HWCAP) & hwcap_uscat;
#else
        return true;
#endif
}

/* Uses libc's registration, or our own if there is none; false if the kernel refuses. */
static bool rseq_init(void)
{
        if (!pair_store_is_whole())
                return false;
        if (libc_registers()) {
                fast.rseq = __rseq_offset;
                if (this_area()->cpu_id < 0)
                        return false;
        } else {
                if (!register_this_thread())
                        return false;
                register_threads = true;
        }
        /*
         * glibc 2.36 says size 20, but registers the 32 bytes that the kernel fills: its own
         * feature size is what tells whether mm_cid is there.
         */
        fast.slot_field =
                fast.rseq + (getauxval(AT_RSEQ_FEATURE_SIZE) >= offsetof(struct rseq_area, padding)
                                     ? (intptr_t)offsetof(struct rseq_area, mm_cid)
                                     : (intptr_t)offsetof(struct rseq_area, cpu_id));
        fence_refused = !membarrier_register();
        return true;
}

void slots_refuse(void)
{
        fast.rseq = own_area_offset();
        fast.slot_field = fast.rseq + (intptr_t)offsetof(struct rseq_area, mm_cid);
}

void slot_source_init(void)
{
        int saved_errno = errno;

        slots_refuse();
        if (options.slots != SLOTS_LOCKED && system_cpus(CPUS_POSSIBLE) <= SLOTS_MAX)
                rseq_mode = rseq_init();
        if (!rseq_mode) {
                slots_refuse();
                if (options.slots == SLOTS_RSEQ)
                        message("option slots=rseq: the kernel or libc refuses restartable "
                                "sequences; using locked slots");
        }
        slots_follow_cpus();
        errno = saved_errno;
}

/* Locked slots: as many are in use as there are CPUs. */
void slots_follow_cpus(void)
{
        unsigned int wanted = min_of(system_cpus(CPUS_USABLE), (unsigned int)SLOTS_MAX);

        if (rseq_mode)
                return;
        while (slots_made_count() < wanted && slot_make(slots_made_count()))
                ;
        store_release(&locked_in_use, min_of(wanted, slots_made_count()));
}

bool slot_may_have_left(const struct slot *slot)
{
        bool ids_are_cpus = fast.slot_field - fast.rseq == offsetof(struct rseq_area, cpu_id);

        if (!rseq_mode)
                return slot->id >= locked_in_use;
        return !ids_are_cpus || !system_cpu_is_usable(slot->id);
}

bool slots_are_rseq(void)
{
        return rseq_mode;
}

/*
 * Takes some slot's lock: the thread's own choice, else any that is free, else waits. NULL if
 * there is no slot.
 */
static struct slot *locked_slot_take(void)
{
        unsigned int slots = load_acquire(&locked_in_use);
        unsigned int choice;

        if (!slots)
                return NULL;
        choice = thread_choice(slots);
        for (unsigned int step = 0; step < slots; step++) {
                struct slot *slot = slot_made((choice + step) % slots);

                if (lock_try(&slot->lock))
                        return slot;
        }
        lock_take(&slot_made(choice)->lock);
        return slot_made(choice);
}

void *locked_slot_pop(uint32_t pair_offset)
{
        void *object = NULL;
        struct slot *slot;
        struct sheaf *main;

        slot = locked_slot_take();
        if (!slot)
                return NULL;
        main = slot_pair(slot, pair_offset)->main;
        if (main->size)
                object = main->object[--main->size];
        lock_drop(&slot->lock);
        return object;
}

enum push_result locked_slot_push(uint32_t pair_offset, void *object)
{
        enum push_result result = PUSH_FULL;
        struct slot *slot;
        struct sheaf *main;

        slot = locked_slot_take();
        if (!slot)
                return PUSH_FULL;
        main = slot_pair(slot, pair_offset)->main;
        if (main->size && main->object[main->size - 1] == object) {
                result = PUSH_ON_TOP;
        } else if (main->size < main->capacity) {
                main->object[main->size++] = object;
                result = PUSH_DONE;
        }
        lock_drop(&slot->lock);
        return result;
}

/*
 * In a locked slot a pair is replaced under the lock, which the drainer takes after setting a stop mark
 * that is to stay.
 */
static bool locked_slot_replace(struct slot *slot, uint32_t pair_offset,
                                const struct pair *expected, const struct pair *new_pair)
{
        struct pair *pair = slot_pair(slot, pair_offset);
        bool replaced;

        lock_take(&slot->lock);
        replaced = !load_relaxed(&slot->stopped) && pair->main == expected->main &&
                   pair->spare == expected->spare;
        if (replaced)
                *pair = *new_pair;
        lock_drop(&slot->lock);
        return replaced;
}

bool slot_replace(struct slot *slot, uint32_t pair_offset, const struct pair *expected,
                  const struct pair *new_pair)
{
        if (slot == &shared_slot || expected->main == &closed_sheaf)
                return false;
        return rseq_mode ? rseq_replace(slot, pair_offset, expected, new_pair)
                         : locked_slot_replace(slot, pair_offset, expected, new_pair);
}

struct slot *slot_current(void)
{
        struct slot *slot;
        uint32_t id;

        if (!rseq_mode) {
                unsigned int slots = load_acquire(&locked_in_use);

                return slots ? slot_made(thread_choice(slots)) : &shared_slot;
        }
        if (unlikely(load_relaxed(&this_area()->cpu_id) < 0) &&
            !(register_threads && !system_sandbox_was_told() && register_this_thread()))
                return &shared_slot;
        id = load_relaxed((uint32_t *)((char *)thread_pointer() + fast.slot_field));
        slot = slot_at(id);
        if (unlikely(slot == &shared_slot))
                slot = slot_make(id);
        return slot ? slot : &shared_slot;
}

intptr_t slots_thread_offset(void)
{
        return own_area_offset();
}

void slots_refuse_this_thread(void)
{
        own_area.padding = OUR_THREAD;
        this_area()->cpu_id = -1;
}

/*
 * What cpu_id says while a child of vfork in a sandbox has the area, which it may not register: as long as
 * it is below 0 no sequence begins, in the child or in the parent, which is stopped meanwhile.
 *
 * The parent makes it its own number again. The kernel may move it at any moment, and then stores both
 * numbers: before our store that is overwritten by an old one, which the look after it finds, since
 * cpu_id_start has changed; behind it, both are right. It may have restored cpu_id already, when the
 * parent went on; then there is nothing to do. An older number would let a sequence of ours work on
 * a slot that another CPU's thread is in.
 */
enum { BORROWED = -3 };

static void mark_borrowed_area(struct rseq_area *area, bool child)
{
        int32_t cpu = load_relaxed(&area->cpu_id);

        if (child && cpu >= 0)
                store_relaxed(&area->cpu_id, BORROWED);
        if (child || cpu != BORROWED)
                return;
        do {
                cpu = (int32_t)load_relaxed(&area->cpu_id_start);
                store_relaxed(&area->cpu_id, cpu);
                __atomic_signal_fence(__ATOMIC_SEQ_CST);
        } while ((int32_t)load_relaxed(&area->cpu_id_start) != cpu);
}

void slots_register_borrowed_area(bool child)
{
        struct rseq_area *area = &own_area;
        size_t bytes = sizeof(own_area);
        int saved_errno = errno;

        /* Not by fast.rseq: the heap may not have started. */
        if (libc_registers()) {
                area = (struct rseq_area *)((char *)thread_pointer() + __rseq_offset);
                bytes = round_up(max_of((size_t)__rseq_size, bytes), bytes);
        }
        if (system_sandbox_was_told()) {
                mark_borrowed_area(area, child);
                return;
        }
        /* Nor was the thread whose it is. */
        if (load_relaxed(&area->cpu_id) < 0)
                return;
        if (child ||
            syscall(SYS_rseq, area, bytes, RSEQ_FLAG_UNREGISTER, RSEQ_SIGNATURE_VALUE) == 0)
                syscall(SYS_rseq, area, bytes, 0, RSEQ_SIGNATURE_VALUE);
        errno = saved_errno;
}

bool slots_thread_is_ours(void)
{
        return own_area.padding == OUR_THREAD;
}

bool slots_can_drain(void)
{
        return !rseq_mode || (!fence_refused && !system_sandbox_was_told());
}

enum { FENCE_ROUNDS = 1000 };

bool slots_fence(void)
{
        int saved_errno = errno;
        int result = -1;

        if (fence_refused)
                return false;
        /* ENOMEM may pass; EPERM means that this process (a forked child) must register anew. */
        for (int round = 0; round < FENCE_ROUNDS; round++) {
                result = (int)syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED_RSEQ, 0, 0);
                if (result == 0 || (errno == EPERM && !membarrier_register()) ||
                    (errno != EPERM && errno != ENOMEM))
                        break;
        }
        errno = saved_errno;
        return result == 0;
}
