/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Litmus tests of the explorer's memory models. Each fails when it sees its weak outcome; test_memory.py
 * says which models allow that. Their registers are plain, and start as UNREAD.
 */
#include "scenario.h"

#include "base/metadata.h"
#include "lang/atomic.h"
#include "machine/lock.h"

#include <stdlib.h>

#define FENCE() __atomic_thread_fence(__ATOMIC_SEQ_CST)

enum { UNREAD = 9 };

/* Each word has a line of its own. */
static struct {
        _Alignas(64) uint32_t word;
} at_x, at_y;
#define X (&at_x.word)
#define Y (&at_y.word)
static uint32_t r[4];

static void clear(void)
{
        at_x.word = at_y.word = 0;
        for (unsigned int i = 0; i < 4; i++)
                r[i] = UNREAD;
}

static void write_x(void)
{
        store_relaxed(X, 1);
}

static void write_y(void)
{
        store_relaxed(Y, 1);
}

/* ---- Message passing ---------------------------------------------------------------------- */

static void send_relaxed(void)
{
        store_relaxed(X, 1);
        store_relaxed(Y, 1);
}

static void send_release(void)
{
        store_relaxed(X, 1);
        store_release(Y, 1);
}

static void send_fence(void)
{
        store_relaxed(X, 1);
        __atomic_thread_fence(__ATOMIC_RELEASE);
        store_relaxed(Y, 1);
}

static void receive_relaxed(void)
{
        r[0] = load_relaxed(Y);
        r[1] = load_relaxed(X);
}

static void receive_acquire(void)
{
        r[0] = load_acquire(Y);
        r[1] = load_relaxed(X);
}

static void receive_fence(void)
{
        r[0] = load_relaxed(Y);
        __atomic_thread_fence(__ATOMIC_ACQUIRE);
        r[1] = load_relaxed(X);
}

static void add_to_y(void)
{
        add_relaxed(Y, 1);
}

/* The store was seen, and the message in front of it not. 2: behind a read-modify-write. */
static void check_message(void)
{
        CHECK(!(r[0] == 1 && r[1] == 0));
}

static void check_sequence(void)
{
        CHECK(!(r[0] == 2 && r[1] == 0));
}

/* ---- Store buffering ---------------------------------------------------------------------- */

static void buffer_x(void)
{
        store_release(X, 1);
        r[0] = load_acquire(Y);
}

static void buffer_y(void)
{
        store_release(Y, 1);
        r[1] = load_acquire(X);
}

static void fence_x(void)
{
        store_relaxed(X, 1);
        FENCE();
        r[0] = load_relaxed(Y);
}

static void fence_y(void)
{
        store_relaxed(Y, 1);
        FENCE();
        r[1] = load_relaxed(X);
}

/* An announcement without a fence. */
static void add_x(void)
{
        __atomic_add_fetch(X, 1, __ATOMIC_SEQ_CST);
        r[0] = load_acquire(Y);
}

static void check_buffers(void)
{
        CHECK(!(r[0] == 0 && r[1] == 0));
}

/* ---- Independent reads of independent writes, coherence ------------------------------------ */

static void read_xy(void)
{
        r[0] = load_acquire(X);
        r[1] = load_acquire(Y);
}

static void read_yx(void)
{
        r[2] = load_acquire(Y);
        r[3] = load_acquire(X);
}

static void read_xy_fenced(void)
{
        r[0] = load_relaxed(X);
        FENCE();
        r[1] = load_relaxed(Y);
}

static void read_yx_fenced(void)
{
        r[2] = load_relaxed(Y);
        FENCE();
        r[3] = load_relaxed(X);
}

static void check_iriw(void)
{
        CHECK(!(r[0] == 1 && r[1] == 0 && r[2] == 1 && r[3] == 0));
}

static void write_x_twice(void)
{
        store_relaxed(X, 1);
        store_relaxed(X, 2);
}

static void read_x_twice(void)
{
        r[0] = load_relaxed(X);
        r[1] = load_relaxed(X);
}

static void check_coherence(void)
{
        CHECK(r[0] <= r[1]);
}

/* What a thread has read, and passed on, another cannot miss. */
static void pass_on(void)
{
        r[2] = load_relaxed(X);
        if (r[2])
                store_release(Y, 1);
}

/* ---- The bound on preemptions ------------------------------------------------------------- */

static void write_x_three_times(void)
{
        store_relaxed(X, 1);
        store_relaxed(X, 2);
        store_relaxed(X, 3);
}

/* One behind the first store and one behind the second: each thread gives way within its steps. */
static void check_not_in_turns(void)
{
        CHECK(!(r[0] == 1 && r[1] == 2));
}

static struct {
        _Alignas(64) uint32_t word;
} seen[3];

/* What was read is left in memory, where --compare counts it. */
static void see(unsigned int count)
{
        for (unsigned int i = 0; i < count; i++)
                store_relaxed(&seen[i].word, load_relaxed(X));
}

static void see_three(void)
{
        see(3);
}

static void see_two(void)
{
        see(2);
}

static void write_x_other(void)
{
        store_relaxed(X, 4);
        store_relaxed(X, 5);
}

static void check_nothing(void)
{
}

/* ---- Drawn programs ----------------------------------------------------------------------- */

/*
 * test_drawn.py compares searches on programs of these statements; EXPLORE_DRAW is the seed. What a
 * statement reads it leaves in memory.
 */
enum { WORDS = 3, LOCKS = 2, DRAWN_MAX = 4 };
enum statement { LOAD, STORE, ADD, SWAP, UNDER_LOCK, UNDER_BOTH, IF_FREE, STATEMENTS };

struct drawn {
        enum statement statement;
        unsigned int word;
        unsigned int lock;
        _Alignas(64) uint32_t left;
};

static struct drawn program[THREADS_MAX][DRAWN_MAX];
static unsigned int length[THREADS_MAX];
static struct {
        _Alignas(64) uint32_t word;
} drawn_word[WORDS];
static struct {
        _Alignas(64) struct lock lock;
} drawn_lock[LOCKS];
static uint64_t draw_state;

static unsigned int draw(unsigned int most)
{
        draw_state = draw_state * 6364136223846793005 + 1442695040888963407;
        return (unsigned int)(draw_state >> 33) % most;
}

static void draw_program(void)
{
        const char *seed = getenv("EXPLORE_DRAW");

        draw_state = seed ? strtoul(seed, NULL, 10) : 1;
        for (unsigned int i = 0; i < THREADS_MAX; i++) {
                length[i] = 1 + draw(i < 2 ? DRAWN_MAX : 2);
                for (unsigned int j = 0; j < length[i]; j++)
                        program[i][j] = (struct drawn){.statement = draw(STATEMENTS),
                                                       .word = draw(WORDS),
                                                       .lock = draw(LOCKS)};
        }
}

/* Not in one step: another thread's change in between would be lost. */
static void change(struct drawn *one, uint32_t value)
{
        uint32_t *word = &drawn_word[one->word].word;

        store_relaxed(&one->left, load_relaxed(word));
        store_relaxed(word, one->left * 3 + value);
}

static void run_statement(struct drawn *one, uint32_t value)
{
        uint32_t *word = &drawn_word[one->word].word;
        struct lock *lock = &drawn_lock[one->lock].lock;
        uint32_t expected = 0;

        switch (one->statement) {
        case LOAD:
                store_relaxed(&one->left, load_relaxed(word));
                break;
        case STORE:
                store_relaxed(word, value);
                break;
        case ADD:
                store_relaxed(&one->left, add_relaxed(word, value));
                break;
        case SWAP:
                store_relaxed(&one->left, compare_swap(word, &expected, value) ? value : expected);
                break;
        case UNDER_LOCK:
                lock_take(lock);
                change(one, value);
                lock_drop(lock);
                break;
        case UNDER_BOTH:
                lock_take(&drawn_lock[0].lock);
                lock_take(&drawn_lock[1].lock);
                change(one, value);
                lock_drop(lock);
                add_relaxed(word, value);
                lock_drop(&drawn_lock[!one->lock].lock);
                break;
        case IF_FREE:
                if (!lock_try(lock))
                        break;
                change(one, value);
                lock_drop(lock);
                break;
        case STATEMENTS:
                break;
        }
}

static void run_drawn(void)
{
        unsigned int thread = explore_self() - 1;

        for (unsigned int i = 0; i < length[thread]; i++)
                run_statement(&program[thread][i], 1 + thread * DRAWN_MAX + i);
}

/* Both threads get no memory: two requests were refused. */
enum { ASKED_BYTES = 64 };
static void *answer[2];

static void ask_first(void)
{
        metadata_free(metadata_alloc(ASKED_BYTES), ASKED_BYTES);
        answer[0] = metadata_alloc(ASKED_BYTES);
}

static void ask_second(void)
{
        answer[1] = metadata_alloc(ASKED_BYTES);
}

static void check_answered(void)
{
        if (!answer[0] && !answer[1])
                explore_fail("two requests were refused");
}

#define TEST(name_, check_, ...)                                                                   \
        {                                                                                          \
                .name = "litmus_" name_, .about = "a test of the explorer", .setup = clear,        \
                .thread = {__VA_ARGS__}, .cpu = {0, 1, 2, 3}, .check = check_                      \
        }
/* The second thread is on the first one's CPU or on another. */
#define DRAWN(name_, second_, ...)                                                                 \
        {                                                                                          \
                .name = "litmus_" name_, .about = "a test of the explorer", .setup = draw_program, \
                .thread = {__VA_ARGS__}, .cpu = {0, second_, 2}, .check = check_nothing            \
        }
const struct scenario litmus_scenarios[] = {
        TEST("mp_relaxed", check_message, send_relaxed, receive_relaxed),
        TEST("mp_release_acquire", check_message, send_release, receive_acquire),
        TEST("mp_no_acquire", check_message, send_release, receive_relaxed),
        TEST("mp_no_release", check_message, send_relaxed, receive_acquire),
        TEST("mp_fences", check_message, send_fence, receive_fence),
        TEST("mp_sequence", check_sequence, send_release, add_to_y, receive_acquire),
        TEST("mp_no_sequence", check_sequence, send_relaxed, add_to_y, receive_acquire),
        TEST("sb_release_acquire", check_buffers, buffer_x, buffer_y),
        TEST("sb_fences", check_buffers, fence_x, fence_y),
        TEST("sb_add", check_buffers, add_x, fence_y),
        TEST("iriw_acquire", check_iriw, write_x, write_y, read_xy, read_yx),
        TEST("iriw_fences", check_iriw, write_x, write_y, read_xy_fenced, read_yx_fenced),
        TEST("coherence", check_coherence, write_x_twice, read_x_twice),
        TEST("passed_on", check_message, write_x, pass_on, receive_acquire),
        TEST("three_preemptions", check_not_in_turns, write_x_three_times, read_x_twice),
        TEST("outcomes_of_two", check_nothing, write_x_three_times, see_three),
        TEST("outcomes_of_three", check_nothing, write_x_three_times, see_two, write_x_other),
        {.name = "litmus_refusals",
         .about = "a test of the explorer",
         .refusals = 1,
         .setup = clear,
         .thread = {ask_first, ask_second},
         .cpu = {0, 1},
         .check = check_answered},
        DRAWN("drawn_two", 1, run_drawn, run_drawn),
        DRAWN("drawn_three", 1, run_drawn, run_drawn, run_drawn),
        DRAWN("drawn_same_cpu", 0, run_drawn, run_drawn, run_drawn),
        {0},
};
