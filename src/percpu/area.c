/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * A child of vfork runs on its parent's memory and thread block, so it finds its parent's area
 * there. By POSIX it may do next to nothing, but programs allocate in it, beside other threads of
 * the parent. The kernel has no area of the child: it would abort none of its sequences, and not
 * write its slot number.
 *
 * So the parent unregisters before it calls vfork, and registers anew when the child is gone. The
 * kernel leaves "not registered" in the area, and the child takes the slow path.
 *
 * A sandbox that was announced may kill for the system call, or the kernel may refuse it. Then the
 * parent turns fast.rseq instead: for as long as the child lives, sequences of all threads read an
 * area that was never registered. A thread that has read fast.rseq before still runs on its own
 * area. fast.slot_field is not turned: a thread that has the old fast.rseq with another field would
 * take the slot of number 0.
 */
#define _GNU_SOURCE
#include "percpu/area.h"

#include "lang/number.h"
#include "machine/event.h"
#include "machine/message.h"
#include "machine/system.h"
#include "percpu/slot.h"

#include <pthread.h>

enum {
        RSEQ_UNREGISTER = 1,      /* of the system call */
        SLICES_ENABLED = 1u << 5, /* of the area's flags, in areas longer than 32 bytes */
        TURNING_SPINS = 64,
};

/*
 * A thread's own part, at an offset from the thread pointer that all threads share. Initial-exec:
 * access must never allocate.
 */
static _Thread_local struct {
        struct rseq_area own;   /* the kernel's, once it is registered, where libc registers none */
        struct rseq_area never; /* never registered */
        bool refused;           /* the kernel refused once: it is not asked again */
        bool ours;              /* of a bare thread */
        uint32_t unregistered;  /* vforks under way whose parent is unregistered meanwhile */
        uint32_t turned;        /* vforks under way that have fast.rseq turned */
} thread __attribute__((tls_model("initial-exec"))) = {.own.cpu_id = -1, .never.cpu_id = -1};

/* libc's registration, where it makes one (glibc from 2.35 on). */
extern const ptrdiff_t __rseq_offset __attribute__((weak));
extern const unsigned int __rseq_size __attribute__((weak));

static bool register_threads; /* libc registers no thread, so each thread does it itself */
static bool none_used;        /* area_use_none was called */
static intptr_t used_offset;  /* fast.rseq while it is not turned; 0 before the heap starts */

/*
 * Number of vforks of the process that have fast.rseq turned, and the thread that changes the
 * number at this moment. A signal handler may interrupt that thread and call vfork: the handler
 * changes the number as well, and has changed it back when the thread goes on.
 */
static uint32_t turned;
static void *turning;

static bool libc_registers(void)
{
        return &__rseq_size && __rseq_size > 0;
}

static intptr_t thread_offset(const void *field)
{
        return (const char *)field - (const char *)thread_pointer();
}

static struct rseq_area *area_at(intptr_t offset)
{
        return (struct rseq_area *)((char *)thread_pointer() + offset);
}

intptr_t area_offset(void)
{
        return libc_registers() ? __rseq_offset : thread_offset(&thread.own);
}

/*
 * The length of the registration (AREA-3): libc says how much of the area is used, and registers at
 * least the 32 bytes of the first kernels.
 */
static size_t area_bytes(void)
{
        size_t least = sizeof(struct rseq_area);

        return libc_registers() ? max_of((size_t)__rseq_size, least) : least;
}

static bool area_register(void)
{
        return system_rseq(area_at(area_offset()), area_bytes(), 0, RSEQ_SIGNATURE_VALUE);
}

static bool area_unregister(void)
{
        return system_rseq(area_at(area_offset()), area_bytes(), RSEQ_UNREGISTER,
                           RSEQ_SIGNATURE_VALUE);
}

/*
 * musl's detached threads unmap their own storage before they end, and the kernel kills for an area
 * that is not there. So an area ends with its thread's keys, and the thread, whose other destructors
 * may come later, does not get it back. In glibc, storage goes after the kernel has seen the end.
 */
#ifdef __GLIBC__

static bool ends_begin(void)
{
        return true;
}

static bool ends_note(void)
{
        return true;
}

#else

static pthread_key_t end_key;

static void thread_ends(void *unused)
{
        (void)unused;
        thread.refused = true;
        area_unregister();
}

static bool ends_begin(void)
{
        return pthread_key_create(&end_key, thread_ends) == 0;
}

static bool ends_note(void)
{
        return pthread_setspecific(end_key, &thread) == 0;
}

#endif

/*
 * Registers the thread, but neither in a child of vfork, which runs on its parent's area, nor in a
 * signal handler that interrupted its parent's vfork: the child would find the area registered
 * (AREA-2).
 */
static bool register_this_thread(void)
{
        if (thread.refused || thread.ours || thread.unregistered || load_relaxed(&turned) ||
            system_is_lent() || system_sandbox_was_told())
                return false;
        thread.refused = !ends_note() || !area_register();
        return !thread.refused;
}

/* False if the calling thread was interrupted while it had the right to turn: it still has it. */
static bool turning_begin(void)
{
        void *nobody = NULL;

        if (load_relaxed(&turning) == &thread)
                return false;
        for (unsigned int round = 0; !compare_swap_acquire(&turning, &nobody, (void *)&thread);
             round++) {
                nobody = NULL;
                if (round < TURNING_SPINS)
                        cpu_relax();
                else
                        event_pause(1);
        }
        return true;
}

static void turning_end(bool begun)
{
        /* Acquire and release: `turned` and fast.rseq change together. */
        if (begun)
                store_release(&turning, NULL);
}

static void follow_turned(void)
{
        store_relaxed(&fast.rseq, turned || none_used ? thread_offset(&thread.never) : used_offset);
}

/*
 * Counts a child of vfork more (@change is 1) or less, and turns fast.rseq accordingly. The store
 * comes before the caller's vfork in program order, and the child is the caller's thread in all but
 * name, so the child reads the new value.
 */
static void turn(uint32_t change)
{
        bool begun = turning_begin();

        thread.turned += change;
        /*
         * Relaxed: other threads read it to decide whether they may register, and they never
         * register a lent area.
         */
        add_owned(&turned, change);
        follow_turned();
        turning_end(begun);
}

/* Chooses the area that sequences run on while none is turned. */
static void use(bool none, intptr_t offset)
{
        bool begun = turning_begin();

        none_used = none;
        used_offset = offset;
        follow_turned();
        turning_end(begun);
}

bool area_release_aborts(const char *release)
{
        uint64_t number[3] = {0};

        for (unsigned int i = 0;
             i < array_size(number) && number_scan(&release, 10, &number[i]) != NUMBER_NONE; i++)
                release += *release == '.';
        return !(number[0] == 6 && number[1] == 19) &&
               !(number[0] == 7 && number[1] == 0 && number[2] <= 13);
}

static bool kernel_aborts(void)
{
#if defined(__aarch64__)
        char release[SYSTEM_RELEASE_BYTES];

        system_release(release);
        if (area_release_aborts(release))
                return true;
        message("Linux %s does not abort restartable sequences on arm64 where it should; using "
                "locked "
                "slots",
                release);
        return false;
#elif defined(__x86_64__)
        return true;
#else
        return false; /* there are no sequences (rseq_none.h) */
#endif
}

bool area_use(void)
{
        if (!kernel_aborts())
                return false;
        if (libc_registers()) {
                if (load_relaxed(&area_at(__rseq_offset)->cpu_id) < 0)
                        return false;
        } else {
                if (!ends_begin() || !register_this_thread())
                        return false;
                register_threads = true;
        }
        use(false, area_offset());
        return true;
}

void area_use_none(void)
{
        use(true, 0);
}

bool area_is_registered(void)
{
        return likely(load_relaxed(&area_at(load_relaxed(&fast.rseq))->cpu_id) >= 0) ||
               (register_threads && register_this_thread());
}

intptr_t area_thread_offset(void)
{
        return thread_offset(&thread);
}

/* A bare thread begins with zeroed storage, and the kernel has no area of it. */
void area_refuse_this_thread(void)
{
        thread.ours = true;
        thread.own.cpu_id = thread.never.cpu_id = -1;
        area_at(area_offset())->cpu_id = -1;
}

bool area_thread_is_ours(void)
{
        return thread.ours;
}

enum area_lent area_lend(void)
{
        struct rseq_area *area = area_at(area_offset());
        bool slices =
                area_bytes() > sizeof(*area) && (load_relaxed(&area->flags) & SLICES_ENABLED) != 0;

        if (none_used || load_relaxed(&area->cpu_id) < 0)
                return AREA_UNUSED;
        if (!system_sandbox_was_told()) {
                thread.unregistered++;
                if (area_unregister())
                        return slices ? AREA_UNREGISTERED_SLICES : AREA_UNREGISTERED;
                thread.unregistered--;
        }
        turn(1);
        return AREA_TURNED;
}

/*
 * Goes by the sandbox state at the time of area_lend: the parent was in no sandbox when it
 * unregistered, even if its child has entered a sandbox since.
 */
void area_take_back(enum area_lent lent)
{
        switch (lent) {
        case AREA_UNUSED:
                break;
        case AREA_UNREGISTERED_SLICES:
        case AREA_UNREGISTERED:
                area_register();
                if (lent == AREA_UNREGISTERED_SLICES)
                        system_extend_slices();
                thread.unregistered--;
                break;
        case AREA_TURNED:
                turn(-1u);
                break;
        }
}

/*
 * The calling thread is the only thread of the new process. A child of vfork that forked gave the
 * new process memory of its own, so the process may have the area. In a signal handler that came
 * just behind a vfork, the interrupted call registers once more, and is refused.
 */
void area_fork_child(void)
{
        store_relaxed(&turning, NULL);
        turned = thread.turned;
        follow_turned();
        if (system_is_lent() && thread.unregistered && !system_sandbox_was_told())
                area_register();
}
