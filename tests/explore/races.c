/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Two accesses of different threads to a byte race if one of them writes, one of them is plain, and none
 * happens before the other. Under MEMORY_RA each thread's view says what happens before (views.h). So
 * a release or an acquire that is missing shows in the plain accesses that it should order, also where
 * the schedule has put these in a good order.
 *
 * The library's sources are built with -fsanitize=thread for the program explore-races: the compiler
 * then calls the functions __tsan_* in front of each plain access. They are here; the sanitizer's own
 * library is not linked. Each byte keeps its last plain write, its last atomic write and, of each
 * thread, its last plain and last atomic read. What lies before the threads began, and a thread's own
 * variables, do not count.
 */
#include "races.h"

#include "memory.h"
#include "search.h"
#include "views.h"

#include <string.h>

enum {
        GRANULE_SHIFT = 3,
        GRANULE_BYTES = 1 << GRANULE_SHIFT,
        GRANULES_SHIFT = 14,
        GRANULES = 1 << GRANULES_SHIFT,
        ATOMIC_BYTES_MAX = 16,
};

enum { PLAIN, ATOMIC, KINDS };

struct last {
        uint32_t epoch; /* views.h; 0: there was none */
        uint32_t step;  /* of the schedule: behind that many */
        const void *code;
};

/* The last access of each thread. */
struct byte {
        struct last write[KINDS][THREADS_MAX];
        struct last read[KINDS][THREADS_MAX];
};

struct granule {
        uintptr_t key;
        struct byte byte[GRANULE_BYTES];
};

static struct granule granules[GRANULES];
static const volatile char *atomic_at[THREADS_MAX];

static struct granule *find_granule(uintptr_t key)
{
        size_t at = (key * 0x9e3779b97f4a7c15) >> (64 - GRANULES_SHIFT);

        for (size_t tried = 0; tried < GRANULES; tried++, at = (at + 1) % GRANULES) {
                if (!granules[at].key)
                        granules[at].key = key;
                if (granules[at].key == key)
                        return &granules[at];
        }
        explore_fail("the explorer's table of plain accesses is full: expected fewer than %d",
                     GRANULES);
}

void races_forget(const volatile void *start, size_t bytes)
{
        for (size_t at = 0; at < GRANULES; at++) {
                uintptr_t first = granules[at].key << GRANULE_SHIFT;

                if (granules[at].key && first - (uintptr_t)start < bytes)
                        memset(granules[at].byte, 0, sizeof(granules[at].byte));
        }
}

void races_at_atomic(const volatile void *address)
{
        int self = (int)explore_self() - 1;

        if (self >= 0)
                atomic_at[self] = address;
}

static const struct place *place_behind(uint32_t steps)
{
        static const struct place first = {.text = "begins", .file = "", .line = 0};

        return steps ? search->step[steps - 1].place : &first;
}

/* What addr2line wants to know of code; 0: of an atomic access, which its step names. */
static unsigned long offset(const void *code)
{
        extern const char __executable_start;

        return code ? (unsigned long)((const char *)code - &__executable_start) : 0;
}

/* Fails if the thread's access is not behind all of these accesses of others. */
static void check(int self, const struct last *accesses, uintptr_t address, const void *code,
                  const char *did, const char *others_did)
{
        for (int other = 0; other < THREADS_MAX; other++) {
                const struct last *last = &accesses[other];
                const struct place *now = place_behind(search->steps);
                const struct place *before = place_behind(last->step);

                if (other == self || !last->epoch || views_knows(self, other, last->epoch))
                        continue;
                explore_fail(
                        "a race for %p: thread %d %s it at %#lx, behind %s at %s:%u; thread %d %s "
                        "it at %#lx, behind %s at %s:%u",
                        (void *)address, other, others_did, offset(last->code), before->text,
                        before->file, before->line, self, did, offset(code), now->text, now->file,
                        now->line);
        }
}

static void access_byte(int self, uintptr_t address, const void *code, int kind, bool writes)
{
        struct byte *byte = &find_granule(address >> GRANULE_SHIFT)->byte[address % GRANULE_BYTES];
        const char *did = writes ? "writes" : "reads";

        check(self, byte->write[PLAIN], address, code, did, "wrote");
        if (writes)
                check(self, byte->read[PLAIN], address, code, did, "read");
        if (kind == PLAIN)
                check(self, byte->write[ATOMIC], address, code, did, "wrote");
        if (kind == PLAIN && writes)
                check(self, byte->read[ATOMIC], address, code, did, "read");
        (writes ? byte->write : byte->read)[kind][self] =
                (struct last){.epoch = views_epoch(self), .step = search->steps, .code = code};
}

static void access_bytes(const volatile void *address, size_t bytes, const void *code, int kind,
                         bool writes)
{
        int self = (int)explore_self() - 1;

        if (self < 0 || memory != MEMORY_RA ||
            search_is_of_thread((const char *)(uintptr_t)address))
                return;
        for (size_t i = 0; i < bytes; i++)
                access_byte(self, (uintptr_t)address + i, code, kind, writes);
}

void races_atomic(const volatile void *address, size_t bytes, bool writes)
{
        access_bytes(address, bytes, NULL, ATOMIC, writes);
}

/* A plain access of the code that called. */
static void plain(const volatile void *address, size_t bytes, const void *code, bool writes)
{
        int self = (int)explore_self() - 1;

        if (self >= 0 && (uintptr_t)address - (uintptr_t)atomic_at[self] < ATOMIC_BYTES_MAX)
                return;
        access_bytes(address, bytes, code, PLAIN, writes);
}

/* ---- What the compiler calls ---------------------------------------------------------------- */

#define ACCESS_FUNCTIONS(bytes)                                                                    \
        void __tsan_read##bytes(void *address);                                                    \
        void __tsan_write##bytes(void *address);                                                   \
        void __tsan_unaligned_read##bytes(void *address);                                          \
        void __tsan_unaligned_write##bytes(void *address);                                         \
        void __tsan_read##bytes(void *address)                                                     \
        {                                                                                          \
                plain(address, bytes, __builtin_return_address(0), false);                         \
        }                                                                                          \
        void __tsan_write##bytes(void *address)                                                    \
        {                                                                                          \
                plain(address, bytes, __builtin_return_address(0), true);                          \
        }                                                                                          \
        void __tsan_unaligned_read##bytes(void *address)                                           \
        {                                                                                          \
                plain(address, bytes, __builtin_return_address(0), false);                         \
        }                                                                                          \
        void __tsan_unaligned_write##bytes(void *address)                                          \
        {                                                                                          \
                plain(address, bytes, __builtin_return_address(0), true);                          \
        }
ACCESS_FUNCTIONS(1)
ACCESS_FUNCTIONS(2)
ACCESS_FUNCTIONS(4)
ACCESS_FUNCTIONS(8)
ACCESS_FUNCTIONS(16)

void __tsan_init(void);
void __tsan_func_entry(void *caller);
void __tsan_func_exit(void);
void __tsan_read_range(void *address, unsigned long bytes);
void __tsan_write_range(void *address, unsigned long bytes);

void __tsan_init(void)
{
}

void __tsan_func_entry(void *caller)
{
        (void)caller;
}

void __tsan_func_exit(void)
{
}

void __tsan_read_range(void *address, unsigned long bytes)
{
        plain(address, bytes, __builtin_return_address(0), false);
}

void __tsan_write_range(void *address, unsigned long bytes)
{
        plain(address, bytes, __builtin_return_address(0), true);
}

/* Atomic accesses that do not go through lang/atomic.h: the public header's. */
uint32_t __tsan_atomic32_load(const volatile uint32_t *address, int order);
void __tsan_atomic_signal_fence(int order);

uint32_t __tsan_atomic32_load(const volatile uint32_t *address, int order)
{
        races_atomic(address, sizeof(*address), false);
        return __atomic_load_n(address, order);
}

void __tsan_atomic_signal_fence(int order)
{
        (void)order;
}
