/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * The kernel's services for this process: memory, identity, output. This part of machine/system.h
 * also serves a simulated machine unchanged.
 */
#define _GNU_SOURCE
#include "machine/system.h"

#include "lang/atomic.h"
#include "lang/bits.h"
#include "lang/number.h"
#include "machine/file.h"
#include "machine/random.h"
#include "machine/syscall.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/utsname.h>
#include <time.h>

/* Of Linux 7.0; the headers of older systems lack it. */
#ifndef PR_RSEQ_SLICE_EXTENSION
#define PR_RSEQ_SLICE_EXTENSION 79
#define PR_RSEQ_SLICE_EXTENSION_SET 2
#define PR_RSEQ_SLICE_EXT_ENABLE 1
#endif
/* Of Linux 6.13. */
#ifndef MADV_GUARD_INSTALL
#define MADV_GUARD_INSTALL 102
#define MADV_GUARD_REMOVE 103
#endif

/* Of Linux 5.14, and 5.7. */
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif
#ifndef MREMAP_DONTUNMAP
#define MREMAP_DONTUNMAP 4
#endif

bool system_rseq(void *area, size_t bytes, int flags, uint32_t signature)
{
        return !system_call_failed(
                system_call6(SYS_rseq, (long)area, (long)bytes, flags, (long)signature, 0, 0));
}

void system_extend_slices(void)
{
        system_call6(SYS_prctl, PR_RSEQ_SLICE_EXTENSION, PR_RSEQ_SLICE_EXTENSION_SET,
                     PR_RSEQ_SLICE_EXT_ENABLE, 0, 0, 0);
}

int system_membarrier(int command)
{
        long result = system_call(SYS_membarrier, command, 0, 0);

        return system_call_failed(result) ? (int)-result : 0;
}

void system_release(char release[SYSTEM_RELEASE_BYTES])
{
        struct utsname names = {0};

        system_call(SYS_uname, (long)&names, 0, 0);
        memcpy(release, names.release, sizeof(names.release));
}

uint32_t system_process_id(void)
{
        return (uint32_t)system_call(SYS_getpid, 0, 0, 0);
}

/*
 * A child of fork in a sandbox may not ask for its number. libc has it, as the number of the
 * child's only thread, and writes it into recursive locks.
 */
static uint32_t number_after_fork(void)
{
#ifdef __GLIBC__
        pthread_mutex_t lock = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
        const int *owner = &lock.__data.__owner;
#else
        /* musl's: the kind of the lock, and its owner. */
        pthread_mutex_t lock = {.__u.__i = {PTHREAD_MUTEX_RECURSIVE}};
        const int *owner = &lock.__u.__i[1];
#endif
        uint32_t number;

        pthread_mutex_lock(&lock);
        number = (uint32_t)*owner;
        pthread_mutex_unlock(&lock);
        return number;
}

static uint32_t own_process; /* the process of the heap; 0 until it is claimed */
/* Number of nested children of vfork that run in the calling thread's memory. */
static _Thread_local unsigned int borrowers __attribute__((tls_model("initial-exec")));

/*
 * Flags of mlockall, while it holds for memory to come; relaxed, because a mapping made meanwhile
 * may be locked or not.
 */
static int lock_flags;

static void claim(void)
{
        store_relaxed(&own_process,
                      system_sandbox_was_told() ? number_after_fork() : system_process_id());
}

/* Of system_thread_id_known. Initial-exec: access must never allocate. */
static __thread uint32_t known_id __attribute__((tls_model("initial-exec")));

void system_claim_process(bool forked)
{
        /* A child that a vfork child makes by fork has memory of its own. */
        if (forked) {
                borrowers = 0;
                lock_flags = 0;
                known_id = 0;
        }
        if (!borrowers)
                claim();
}

void system_lend_process(bool child)
{
        /* There are no borrowers in a child of fork that a signal's handler made just before. */
        if (child)
                borrowers++;
        else if (borrowers && --borrowers == 0 && !load_relaxed(&own_process))
                claim();
}

bool system_is_lent(void)
{
        return borrowers != 0;
}

bool system_is_own_process(void)
{
        return load_relaxed(&own_process) == system_process_id();
}

void system_sleep_ns(long nanoseconds)
{
        const struct timespec time = {.tv_nsec = nanoseconds};

        system_call(SYS_nanosleep, (long)&time, 0, 0);
}

uint64_t system_clock_seconds(void)
{
        struct timespec now = {0};

        system_call(SYS_clock_gettime, CLOCK_REALTIME, (long)&now, 0);
        return (uint64_t)now.tv_sec;
}

void system_name_thread(const char *name)
{
        system_call(SYS_prctl, PR_SET_NAME, (long)name, 0);
}

/* Whether the calling thread's system calls are filtered (seccomp). */
static bool is_filtered(void)
{
        long mode = system_call(SYS_prctl, PR_GET_SECCOMP, 0, 0);

        return !system_call_failed(mode) && mode != 0;
}

static bool was_filtered; /* when the heap started */
static uint32_t sandbox_told;

void system_watch_sandbox(void)
{
        was_filtered = is_filtered();
}

void system_tell_sandbox(void)
{
        store_relaxed(&sandbox_told, 1);
}

bool system_sandbox_was_told(void)
{
        return load_relaxed(&sandbox_told);
}

bool system_entered_sandbox(void)
{
        return system_sandbox_was_told() || is_filtered() != was_filtered;
}

uint32_t system_thread_id(void)
{
        return (uint32_t)system_call(SYS_gettid, 0, 0, 0);
}

uint32_t system_thread_id_known(void)
{
        /* A child of vfork has its parent's variables. */
        if (borrowers)
                return system_thread_id();
        if (unlikely(!known_id))
                known_id = system_thread_id();
        return known_id;
}

bool system_has_thread(uint32_t id)
{
        return id &&
               !system_call_failed(system_call(SYS_tgkill, (long)system_process_id(), (long)id, 0));
}

void system_thread_name(char name[SYSTEM_NAME_BYTES])
{
        name[0] = '\0';
        system_call(SYS_prctl, PR_GET_NAME, (long)name, 0);
}

/*
 * The limit of the heap's process. In a sandbox no call asks for the caller's number, so the heap's
 * process is named there: a child of vfork may have another limit.
 */
static size_t soft_limit(int resource)
{
        long process = system_sandbox_was_told() ? (long)load_relaxed(&own_process) : 0;
        struct {
                uint64_t soft;
                uint64_t hard;
        } limit;
        long result = system_call6(SYS_prlimit64, process, resource, 0, (long)&limit, 0, 0);

        return system_call_failed(result) ? SIZE_MAX : limit.soft;
}

size_t system_address_space_limit(void)
{
        return soft_limit(RLIMIT_AS);
}

size_t system_lock_limit(void)
{
        return soft_limit(RLIMIT_MEMLOCK);
}

size_t system_mapped_bytes(void)
{
        char text[128] = "";
        const char *number = text;
        long file = file_open_own("statm");
        int64_t pages;

        if (file < 0)
                return 0;
        file_next(file, text, sizeof(text) - 1);
        file_close(file);
        pages = number_next(&number);
        return pages > 0 ? (size_t)pages * system_page_bytes() : 0;
}

void system_tell_locked(int flags)
{
        store_relaxed(&lock_flags, flags & MCL_FUTURE ? flags : 0);
}

bool system_locks_memory(void)
{
        return load_relaxed(&lock_flags) != 0;
}

void system_unlock(void *start, size_t bytes)
{
        if (!system_sandbox_was_told())
                system_call(SYS_munlock, (long)start, (long)bytes, 0);
}

/* Locks the range as the kernel would lock a mapping that is made now. */
static bool lock_as_told(void *start, size_t bytes)
{
        int flags = load_relaxed(&lock_flags);

        return !flags || system_sandbox_was_told() ||
               !system_call_failed(system_call(SYS_mlock2, (long)start, (long)bytes,
                                               flags & MCL_ONFAULT ? MLOCK_ONFAULT : 0));
}

static void *map_private(uintptr_t wish, size_t bytes, int protection, int flags)
{
        long result = system_call6(SYS_mmap, (long)wish, (long)bytes, protection,
                                   MAP_PRIVATE | MAP_ANONYMOUS | flags, -1, 0);

        return system_call_failed(result) ? NULL : (void *)result;
}

/* Rounds up to whole system pages; 0 if that overflows, which every call below refuses. */
static size_t round_to_system(size_t bytes)
{
        return round_up(bytes, system_page_bytes());
}

void *system_reserve(size_t bytes)
{
        return system_reserve_at(0, bytes);
}

/*
 * A debugger that writes a dump of the process (gcore) also writes inaccessible memory, a TiB of
 * it, except ranges that are marked as not to be dumped. Each commit takes the mark back for its
 * part, which for a moment is a mapping of its own: a process that may have no more mappings takes
 * it back for the whole reservation.
 */
static struct {
        uintptr_t start;
        size_t bytes;
} first; /* reservation: the heap's */
static uint32_t all_dumped;

void system_dump_reservation(void)
{
        if (!exchange_acquire(&all_dumped, 1))
                system_call(SYS_madvise, (long)first.start, (long)first.bytes, MADV_DODUMP);
}

/*
 * The program gets addresses that the reservation gives back, and may mark its mappings there for
 * its own reasons. So our mark is taken back before, while the whole range is ours.
 */
static void leave_reservation(uintptr_t start, size_t bytes)
{
        if (start == first.start && bytes == first.bytes) {
                first.bytes = 0;
                store_relaxed(&all_dumped, 0);
        } else if (start - first.start < first.bytes) {
                system_dump_reservation();
        }
}

void *system_reserve_at(uintptr_t wish, size_t bytes)
{
        void *start = map_private(wish, round_to_system(bytes), PROT_NONE, MAP_NORESERVE);

        if (!start || system_sandbox_was_told())
                return start;
        system_call(SYS_madvise, (long)start, (long)round_to_system(bytes), MADV_DONTDUMP);
        /* The kernel locks all of a mapping that is made now. */
        if (system_locks_memory())
                system_unlock(start, round_to_system(bytes));
        if (first.bytes == 0) {
                first.start = (uintptr_t)start;
                first.bytes = round_to_system(bytes);
        }
        return start;
}

static uint32_t map_refused;

void *system_map(size_t bytes)
{
        void *start = map_private(0, round_to_system(bytes), PROT_READ | PROT_WRITE, 0);

        if (!start)
                store_relaxed(&map_refused, 1);
        return start;
}

void *system_map_at(uintptr_t wish, size_t bytes)
{
        return map_private(wish, round_to_system(bytes), PROT_READ | PROT_WRITE, MAP_NORESERVE);
}

bool system_map_was_refused(void)
{
        return load_relaxed(&map_refused);
}

void system_unmap(void *start, size_t bytes)
{
        long result;

        leave_reservation((uintptr_t)start, round_to_system(bytes));
        result = system_call(SYS_munmap, (long)start, (long)round_to_system(bytes), 0);
        /*
         * The kernel joins neighbours, and refuses to cut them when a process has too many
         * mappings.
         */
        if (system_call_failed(result))
                system_purge(start, round_to_system(bytes));
}

void *system_remap(void *start, size_t old_bytes, size_t new_bytes)
{
        long result = system_call6(SYS_mremap, (long)start, (long)round_to_system(old_bytes),
                                   (long)round_to_system(new_bytes), MREMAP_MAYMOVE, 0, 0);

        return system_call_failed(result) ? NULL : (void *)result;
}

/* Kernels without huge pages refuse, and need not be asked. */
void system_keep_pages_small(void *start, size_t bytes)
{
        if (!system_sandbox_was_told())
                system_call(SYS_madvise, (long)start, (long)round_to_system(bytes),
                            MADV_NOHUGEPAGE);
}

void system_make_pages_huge(void *start, size_t bytes)
{
        if (!system_sandbox_was_told())
                system_call(SYS_madvise, (long)start, (long)round_to_system(bytes), MADV_HUGEPAGE);
}

static bool make_accessible(void *start, size_t bytes)
{
        return !system_call_failed(
                system_call(SYS_mprotect, (long)start, (long)bytes, PROT_READ | PROT_WRITE));
}

bool system_commit(void *start, size_t bytes)
{
        bytes = round_to_system(bytes);
        if (!make_accessible(start, bytes)) {
                system_dump_reservation();
                if (!make_accessible(start, bytes))
                        return false;
        }
        if (!system_sandbox_was_told())
                system_call(SYS_madvise, (long)start, (long)bytes, MADV_DODUMP);
        return lock_as_told(start, bytes);
}

bool system_retire(void *start, size_t bytes)
{
        /* In a single step: no other thread's mapping may come between. */
        return map_private((uintptr_t)start, round_to_system(bytes), PROT_NONE,
                           MAP_NORESERVE | MAP_FIXED) != NULL;
}

bool system_move(void *from, size_t bytes, void *to)
{
        return !system_call_failed(system_call6(SYS_mremap, (long)from, (long)bytes, (long)bytes,
                                                MREMAP_MAYMOVE | MREMAP_FIXED | MREMAP_DONTUNMAP,
                                                (long)to, 0));
}

bool system_make_writable(void *start, size_t bytes, bool writable)
{
        return !system_call_failed(system_call(SYS_mprotect, (long)start, (long)bytes,
                                               writable ? PROT_READ | PROT_WRITE : PROT_READ));
}

/* The bytes that the kernel gave the process at its start (AT_RANDOM), as a key of a weak sequence. */
static void random_at_start(unsigned char *to, size_t bytes)
{
        const unsigned char *given = (const unsigned char *)system_auxv(AT_RANDOM);
        uint64_t state = system_time_ms() ^ (uintptr_t)to;

        for (size_t i = 0; i < bytes; i++)
                to[i] = (unsigned char)((given ? given[i % 16] : 0) ^ random_next(&state));
}

void system_random(void *to, size_t bytes)
{
        long got = system_call(SYS_getrandom, (long)to, (long)bytes, 0);

        if (got != (long)bytes)
                random_at_start(to, bytes);
}

bool system_can_read(const void *address)
{
        return system_call6(SYS_rt_sigprocmask, -1, (long)address, 0, sizeof(uint64_t), 0, 0) ==
               -EINVAL;
}

bool system_purge(void *start, size_t bytes)
{
        return !system_call_failed(system_call(SYS_madvise, (long)start,
                                               (long)round_down(bytes, system_page_bytes()),
                                               MADV_DONTNEED));
}

/* Sandboxes that know madvise by its older advice kill the process for this one (sshd's does). */
static bool advise_new(void *start, size_t bytes, int advice)
{
        return !system_sandbox_was_told() &&
               !system_call_failed(system_call(SYS_madvise, (long)start, (long)bytes, advice));
}

/* The kernel goes from mapping to mapping, and leaves its guards in those before one that takes none. */
bool system_guard(void *start, size_t bytes)
{
        if (advise_new(start, bytes, MADV_GUARD_INSTALL))
                return true;
        advise_new(start, bytes, MADV_GUARD_REMOVE);
        return false;
}

bool system_unguard(void *start, size_t bytes)
{
        return advise_new(start, bytes, MADV_GUARD_REMOVE);
}

void system_populate(void *start, size_t bytes)
{
        advise_new(start, bytes, MADV_POPULATE_WRITE);
}

bool system_close(void *start, size_t bytes)
{
        bytes = round_to_system(bytes);
        if (system_call_failed(system_call(SYS_mprotect, (long)start, (long)bytes, PROT_NONE)))
                return false;
        system_purge(start, bytes);
        return true;
}

uint64_t system_mappings_most(void)
{
        char text[32];
        const char *number = text;
        int64_t most = file_read("/proc/sys/vm/max_map_count", text, sizeof(text))
                               ? number_next(&number)
                               : 0;

        return most > 0 ? (uint64_t)most : 65530;
}

/*
 * A line of ours may fail, as on a pipe whose reader has gone or in a file of full length, and the
 * program goes on: the signal that comes with the error is the program's end otherwise. One that
 * waited before is the program's own.
 */
long system_write(int file, const void *text, size_t bytes)
{
        const uint64_t failures = (uint64_t)1 << (SIGPIPE - 1) | (uint64_t)1 << (SIGXFSZ - 1);
        const struct {
                int64_t seconds;
                int64_t nanoseconds;
        } at_once = {0, 0};
        uint64_t before;
        uint64_t waiting = 0;
        uint64_t new;
        long result;

        /* A sandbox might end the process for these calls. */
        if (system_entered_sandbox() ||
            system_call_failed(system_call6(SYS_rt_sigprocmask, SIG_BLOCK, (long)&failures,
                                            (long)&before, sizeof(before), 0, 0)))
                return system_call(SYS_write, file, (long)text, (long)bytes);
        system_call(SYS_rt_sigpending, (long)&waiting, sizeof(waiting), 0);
        result = system_call(SYS_write, file, (long)text, (long)bytes);
        new = failures & ~waiting;
        if (result == -EPIPE || result == -EFBIG)
                system_call6(SYS_rt_sigtimedwait, (long)&new, 0, (long)&at_once, sizeof(new), 0, 0);
        signals_set(&before, NULL);
        return result;
}
