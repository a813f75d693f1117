/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Store buffers, MEMORY_TSO. Each thread has one, a queue. An atomic store goes into it; the oldest store leaves
 * it first and is seen by all from then on. A thread's own loads see its buffer. Locked
 * instructions, fences, system calls and a switch of the CPU to another thread empty it; a
 * membarrier empties all.
 *
 * When a store leaves matters only to an access of another thread to the same bytes. So stores stay
 * until their thread must empty its buffer, or until another accesses their bytes. Then there is a
 * choice, and no other moment need be tried. Usually the store is seen, as under sequential
 * consistency; that it stays is a delay, of which a schedule has a bounded number. A delay lasts
 * until the thread that did not see the store gives way, or sees it at last. Of two buffered
 * stores to the same bytes the one made first leaves first, or, as a delay, last.
 *
 * While a thread runs, memory has its buffered stores, so that its plain loads see them too; while
 * the search chooses, memory is as all see it. A plain store is seen at once, though stores made
 * before it may be in the buffer still: no thread may look at it yet, as plain accesses do not race
 * (ThreadSanitizer's to find). A plain store over bytes that are in the buffer joins the queue.
 */
#include "memory.h"

#include "races.h"
#include "search.h"
#include "views.h"

#include <string.h>

enum {
        STORES_USUAL = 32,             /* the oldest leaves a buffer that has so many */
        STORES_MAX = 2 * STORES_USUAL, /* plain stores may join each of them */
        STORE_BYTES_MAX = 16,
};

struct store {
        char *address;
        const struct place *place;
        uint64_t number; /* of all stores, in the order they were made */
        uint32_t bytes;
        uint32_t unseen; /* a bit for each thread that did not see it since it was last chosen */
        char value[STORE_BYTES_MAX];
        char below[STORE_BYTES_MAX]; /* what all see; valid while the thread runs */
};

/* Oldest first. */
struct buffer {
        unsigned int count;
        bool leaving; /* its stores are becoming seen */
        struct store store[STORES_MAX];
};

enum memory memory;
static struct buffer buffers[THREADS_MAX];
static uint64_t stores;
static const char *weakened_file; /* NULL: no place is weakened */
static unsigned int weakened_line;
static const struct place plain = {.text = "plain store", .file = "", .line = 0};

static bool overlap(const struct store *store, const char *address, size_t bytes)
{
        return store->address < address + bytes && address < store->address + store->bytes;
}

/* ---- What the running thread sees --------------------------------------------------------- */

void memory_enter(int thread)
{
        struct buffer *buffer = &buffers[thread];

        for (unsigned int i = 0; i < buffer->count; i++) {
                struct store *store = &buffer->store[i];

                memcpy(store->below, store->address, store->bytes);
                memcpy(store->address, store->value, store->bytes);
        }
}

static void append(int thread, const struct place *place, char *address, const void *value,
                   size_t bytes)
{
        struct buffer *buffer = &buffers[thread];
        struct store *store = &buffer->store[buffer->count];

        if (buffer->count == STORES_MAX)
                explore_fail("a thread has more than %d stores in its buffer", STORES_MAX);
        if (bytes > STORE_BYTES_MAX)
                explore_fail("a store of %zu bytes: expected at most %d", bytes, STORE_BYTES_MAX);
        *store = (struct store){
                .address = address, .place = place, .number = ++stores, .bytes = (uint32_t)bytes};
        memcpy(store->value, value, bytes);
        memcpy(store->below, address, bytes);
        buffer->count++;
}

static bool is_newest(const struct buffer *buffer, unsigned int number)
{
        const struct store *store = &buffer->store[number];

        for (unsigned int i = number + 1; i < buffer->count; i++)
                if (overlap(&buffer->store[i], store->address, store->bytes))
                        return false;
        return true;
}

void memory_leave(int thread)
{
        struct buffer *buffer = &buffers[thread];
        unsigned int count = buffer->count;

        for (unsigned int i = 0; i < count; i++) {
                struct store *store = &buffer->store[i];

                if (is_newest(buffer, i) && memcmp(store->address, store->value, store->bytes))
                        append(thread, &plain, store->address, store->address, store->bytes);
        }
        for (unsigned int i = count; i-- > 0;)
                memcpy(buffer->store[i].address, buffer->store[i].below, buffer->store[i].bytes);
}

/* ---- Stores become seen ------------------------------------------------------------------- */

static void leave_buffer(int thread, uint64_t last);

/*
 * A store of the thread becomes seen. What becomes of stores of others to these bytes? Those made
 * before it become seen before it, or, as a delay, after it. Those made after it are the other way
 * round.
 */
static void order_others(int thread, const struct store *store)
{
        for (int other = 0; other < THREADS_MAX; other++) {
                const struct buffer *buffer = &buffers[other];

                if (other == thread || buffer->leaving)
                        continue;
                for (unsigned int i = buffer->count; i-- > 0;) {
                        const struct store *theirs = &buffer->store[i];
                        bool before = theirs->number < store->number;

                        if (!overlap(theirs, store->address, store->bytes))
                                continue;
                        if (search_delays(theirs->place, before ? "comes behind" : "comes before",
                                          store->place, 1) == before)
                                continue;
                        leave_buffer(other, theirs->number);
                        break;
                }
        }
}

/* The thread's stores up to one become seen. Memory is as all see it. */
static void leave_buffer(int thread, uint64_t last)
{
        struct buffer *buffer = &buffers[thread];

        buffer->leaving = true;
        while (buffer->count && buffer->store[0].number <= last) {
                struct store store = buffer->store[0];

                order_others(thread, &store);
                memcpy(store.address, store.value, store.bytes);
                buffer->count--;
                memmove(&buffer->store[0], &buffer->store[1],
                        buffer->count * sizeof(buffer->store[0]));
        }
        buffer->leaving = false;
}

void memory_flush(int thread)
{
        leave_buffer(thread, UINT64_MAX);
}

void memory_switch(int before, int thread)
{
        memory_flush(before);
        if (memory == MEMORY_RA)
                views_follow(thread, before);
}

bool memory_waits(int thread)
{
        return buffers[thread].count != 0;
}

void memory_weaken(const char *file, unsigned int line)
{
        weakened_file = file;
        weakened_line = line;
}

int memory_order(const struct place *place, int order)
{
        const char *end;

        if (!weakened_file || place->line != weakened_line)
                return order;
        end = strstr(place->file, weakened_file);
        return end && !end[strlen(weakened_file)] ? __ATOMIC_RELAXED : order;
}

/* ---- Accesses ----------------------------------------------------------------------------- */

/*
 * Whether the running thread does not see a store that it accesses. When it has not seen it, it does
 * not see it, nor a later one of that buffer, until it gives way, or sees it at last: both are tried.
 */
static bool stays_unseen(int self, struct buffer *buffer, struct store *store,
                         const struct place *place)
{
        uint32_t bit = UINT32_C(1) << self;
        uint32_t unseen = 0;

        for (const struct store *older = buffer->store; older <= store; older++)
                unseen |= older->unseen;
        if (unseen & bit)
                return !search_delays(store->place, "is seen at last by", place, 0);
        if (!search_delays(store->place, "is not seen by", place, 1))
                return false;
        store->unseen |= bit;
        return true;
}

void memory_give_way(int thread)
{
        views_give_way(thread);
        for (int other = 0; other < THREADS_MAX; other++)
                for (unsigned int i = 0; i < buffers[other].count; i++)
                        buffers[other].store[i].unseen &= ~(UINT32_C(1) << thread);
}

/* The running thread accesses the bytes: it sees the stores of others to them, or, as a delay, not. */
static void see(int self, const struct place *place, const char *address, size_t bytes)
{
        for (int other = 0; other < THREADS_MAX; other++) {
                struct buffer *buffer = &buffers[other];

                for (unsigned int i = other == self ? 0 : buffer->count; i-- > 0;) {
                        struct store *store = &buffer->store[i];

                        if (!overlap(store, address, bytes) ||
                            stays_unseen(self, buffer, store, place))
                                continue;
                        leave_buffer(other, store->number);
                        break;
                }
        }
}

/* TSO: the calling thread is about to access the bytes. */
static void see_buffers(int self, const struct place *place, const volatile void *address,
                        size_t bytes)
{
        memory_leave(self);
        see(self, place, (const char *)(uintptr_t)address, bytes);
        memory_enter(self);
}

static void store_in_buffer(int self, const struct place *place, char *address, const void *value,
                            size_t bytes)
{
        if (buffers[self].count == STORES_USUAL) {
                memory_leave(self);
                leave_buffer(self, buffers[self].store[0].number);
                memory_enter(self);
        }
        append(self, place, address, value, bytes);
        memcpy(address, value, bytes);
}

/*
 * The memory model of an access: sequentially consistent outside of explored threads, and for a
 * thread's own variables, which are at one address for all explored threads (search.c).
 */
static enum memory memory_of(int self, const volatile void *address)
{
        return self < 0 || search_is_thread_local((const char *)(uintptr_t)address) ? MEMORY_SC
                                                                                    : memory;
}

void explore_load_folded(const volatile void *address, void *value, size_t bytes)
{
        races_atomic(address, bytes, false);
        memcpy(value, (const char *)(uintptr_t)address, bytes);
}

void explore_load_bytes(const struct place *place, const volatile void *address, void *value,
                        size_t bytes, int order)
{
        int self = (int)explore_self() - 1;
        enum memory model = memory_of(self, address);

        if (model == MEMORY_RA) {
                races_atomic(address, bytes, false);
                views_load(self, place, address, value, bytes, memory_order(place, order));
                return;
        }
        if (model == MEMORY_TSO)
                see_buffers(self, place, address, bytes);
        memcpy(value, (const char *)(uintptr_t)address, bytes);
}

void explore_store_bytes(const struct place *place, volatile void *address, const void *value,
                         size_t bytes, int order)
{
        int self = (int)explore_self() - 1;
        enum memory model = memory_of(self, address);

        if (bytes > sizeof(uint64_t))
                explore_effect(address, bytes, true);
        if (model == MEMORY_RA) {
                races_atomic(address, bytes, true);
                views_store(self, place, address, value, bytes, memory_order(place, order));
        } else if (model == MEMORY_TSO)
                store_in_buffer(self, place, (char *)(uintptr_t)address, value, bytes);
        else
                memcpy((char *)(uintptr_t)address, value, bytes);
}

void explore_see_newest(const struct place *place, const volatile void *address, size_t bytes,
                        int order)
{
        int self = (int)explore_self() - 1;
        enum memory model = memory_of(self, address);

        if (model == MEMORY_RA) {
                races_atomic(address, bytes, false);
                views_read_newest(self, address, bytes, memory_order(place, order));
        } else if (model == MEMORY_TSO)
                see_buffers(self, place, address, bytes);
}

void explore_changed(const struct place *place, const volatile void *address, size_t bytes,
                     int order)
{
        int self = (int)explore_self() - 1;

        if (memory_of(self, address) != MEMORY_RA)
                return;
        races_atomic(address, bytes, true);
        views_changed(self, place, address, bytes, memory_order(place, order));
}

void explore_flush(int order)
{
        int self = (int)explore_self() - 1;

        if (self < 0 || memory == MEMORY_SC)
                return;
        memory_leave(self);
        memory_flush(self);
        if (memory == MEMORY_RA)
                views_fence(self, order);
}

void explore_flush_all(void)
{
        int self = (int)explore_self() - 1;

        if (self < 0 || memory == MEMORY_SC)
                return;
        memory_leave(self);
        for (int thread = 0; thread < THREADS_MAX; thread++)
                memory_flush(thread);
        if (memory == MEMORY_RA)
                views_fence_all();
}
