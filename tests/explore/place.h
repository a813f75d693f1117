/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Scheduling points: places in the library's sources where the explorer may let another thread run.
 * The headers in this folder that stand in front of the library's own make them.
 */
#ifndef KMEM_EXPLORE_PLACE_H
#define KMEM_EXPLORE_PLACE_H

#include "lang/compiler.h"

/* A step of the library as its sources name it. */
struct place {
        const char *text;
        const char *file;
        unsigned int line;
};

#define THIS_PLACE(text_)                                                                          \
        ({                                                                                         \
                static const struct place place_ = {                                               \
                        .text = (text_), .file = __FILE__, .line = __LINE__};                      \
                                                                                                   \
                &place_;                                                                           \
        })

/*
 * Locked: a read and a write in one, before which all earlier stores of the thread are seen. Take and drop
 * are of a lock, a word that is 0 when nobody holds it: a thread does not run until it can take it.
 */
enum access { ACCESS_READ, ACCESS_WRITE, ACCESS_LOCKED, ACCESS_TAKE, ACCESS_DROP };

/*
 * The calling thread is about to access a word. Returns when it is the thread's turn; until the
 * next point no other thread runs. Does nothing outside of explored threads.
 */
void explore_point(const struct place *place, const volatile void *address, enum access access);

/*
 * Behind a point: the access itself, in its memory order (__ATOMIC_RELAXED and others). A thread loads
 * what it may see (memory.h). A read-modify-write sees the newest value, and tells when it has
 * changed it.
 */
void explore_load_bytes(const struct place *place, const volatile void *address, void *value,
                        size_t bytes, int order);
/* A relaxed load that is no point: of the newest value. */
void explore_load_folded(const volatile void *address, void *value, size_t bytes);
void explore_store_bytes(const struct place *place, volatile void *address, const void *value,
                         size_t bytes, int order);
void explore_see_newest(const struct place *place, const volatile void *address, size_t bytes,
                        int order);
void explore_changed(const struct place *place, const volatile void *address, size_t bytes,
                     int order);
/*
 * A fence of the calling thread, or of all threads: under TSO all their earlier stores are seen. No
 * points.
 */
void explore_flush(int order);
void explore_flush_all(void);
/*
 * Points: a fence of the calling thread; a system call, which is a fence on x86 and promises none;
 * and a fence of all threads.
 */
void explore_fence(const struct place *place, int order);
void explore_call(const struct place *place);
/* A fence where a read-modify-write is none: under RA. */
void explore_fence_behind_change(const struct place *place);
void explore_membarrier(const struct place *place);

/*
 * No point: the step under way also accesses these bytes. For what accesses cannot show: ranges that the
 * system takes or gives, and the oracle's books.
 */
void explore_effect(const volatile void *address, size_t bytes, bool writes);

/*
 * Restartable sequences. The first function begins one, or begins it anew after an abort; it
 * returns false after the second abort. The second is a step of it; false if the kernel has aborted
 * the sequence meanwhile: another thread ran on its CPU, or there was a fence. The third ends it.
 */
bool sequence_begin(void);
/* There are none: each leaves by its slow path. */
extern bool sequences_refused;
bool sequence_point(const struct place *place, const volatile void *address, enum access access);
void sequence_end(void);
/* Aborts the sequences of all threads. */
void sequences_fence(const struct place *place);

/*
 * The kernel's futex: the thread sleeps if the word has that value, until it is woken. Threads that have
 * slept longest are woken first.
 */
void explore_futex_wait(const struct place *place, uint32_t *word, uint32_t value, bool timed);
void explore_futex_wake(const struct place *place, uint32_t *word, unsigned int count);
/*
 * The process forks; scenarios with forks only. True in the child, which has this thread alone, and
 * ends by explore_fork_end().
 */
bool explore_fork(const struct place *place);
void explore_fork_end(void) __attribute__((noreturn));
/* The thread gives way until another has made a step. */
void explore_yield(const struct place *place);
/* Locks held by the thread: at its end there must be none. */
void explore_count_lock(int change);
/* The number of the running thread plus 1; 0 outside of explored threads. */
uint32_t explore_self(void);

/* Ends the execution: the oracle does not hold. */
void explore_fail(const char *text, ...) __attribute__((noreturn, cold, format(printf, 1, 2)));

#endif
