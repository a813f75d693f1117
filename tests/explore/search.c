/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * A search through all schedules of a scenario with a bounded number of preemptions (Musuvathi and
 * Qadeer, "Iterative context bounding for systematic testing of multithreaded programs", PLDI
 * 2007). Threads are coroutines. Where the schedule has a choice, the process forks: the child goes
 * one way to the end of the search below it, then the parent goes the next way. So a prefix is run
 * once, and no state must be put back.
 *
 * A preemption in front of a step whose word only one thread uses leads to the same executions as a
 * preemption in front of the thread's next step. So choices are made only in front of words that a
 * thread writes and another uses. They are learned: a search during which one became known is
 * begun anew. Steps of sequences are choices in any case when another thread has the same CPU,
 * because a preemption there has an effect of its own.
 *
 * One process of a search runs at a time. The others wait for their children.
 */
#define _GNU_SOURCE
#include "search.h"

#include "machine/state.h"
#include "memory.h"
#include "races.h"
#include "reduce.h"

#include <errno.h>
#include <link.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

enum {
        STACK_BYTES = 256 << 10,
        WORDS_SHIFT = 16,
        WORDS = 1 << WORDS_SHIFT,
        TLS_BYTES_MAX = 4096,
        EXIT_FAILED_SETUP = 1, /* of the explorer itself */
        EXIT_FAILED = 3,
        LOOP_SECONDS = 10,  /* of the processor: what an execution never takes */
        POINTS_MAX = 50000, /* of an execution; more is a loop that never ends */
};

/* Which threads read and write a word of 8 bytes. */
struct word {
        uintptr_t address;
        uint8_t readers;
        uint8_t writers;
};

enum state { STATE_NONE, STATE_READY, STATE_WAITS, STATE_SLEEPS, STATE_YIELDS, STATE_ENDED };

struct thread {
        ucontext_t context;
        enum state state;
        const uint32_t *word; /* STATE_WAITS: the lock; STATE_SLEEPS: its futex */
        bool timed;           /* the sleep also ends by time */
        uint32_t slept;       /* STATE_SLEEPS: number of the sleep */
        uint64_t yielded;     /* STATE_YIELDS: points passed by all when it began */
        bool aborted;
        unsigned int aborts; /* of the sequence that it is in, plus 1 for its begin */
        uint32_t requests;   /* for memory, so far */
        int locks;
        char tls[TLS_BYTES_MAX];
};

static const struct scenario *scenario;
static struct thread thread[THREADS_MAX];
static char stacks[THREADS_MAX][STACK_BYTES] __attribute__((aligned(4096)));
static ucontext_t main_context;
static int self = -1; /* the thread that runs */
static unsigned int preemptions_left;
static unsigned int delays_left;
static const struct schedule *replayed;   /* NULL: all schedules */
static bool reduces;                      /* one schedule of each class (reduce.c) */
static uint64_t sequence_of[THREADS_MAX]; /* for reduce.c; only the addresses matter */
static unsigned int forks_left;           /* until the last one the child sees every change */
static bool alone;                        /* the child of a fork: its steps are no choices */
bool sequences_refused;
static uint64_t deadline_ms;
static struct word *words; /* shared by all processes, as @search */
struct search *search;

static char *tls_start;
static size_t tls_bytes;

static uint64_t own_ns(void)
{
        struct timespec now;

        clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
        return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

static uint64_t ns_of(const struct rusage *usage)
{
        return (uint64_t)(usage->ru_utime.tv_sec + usage->ru_stime.tv_sec) * 1000000000 +
               (uint64_t)(usage->ru_utime.tv_usec + usage->ru_stime.tv_usec) * 1000;
}

static bool is_child; /* of the process that began the search */

/* A child knows the time of the processes that have ended and its own, not that of those that wait. */
static uint64_t all_ns(void)
{
        struct rusage own;
        struct rusage ended;

        if (is_child)
                return search->processor_ns + own_ns();
        getrusage(RUSAGE_SELF, &own);
        getrusage(RUSAGE_CHILDREN, &ended);
        return ns_of(&own) + ns_of(&ended);
}

uint64_t search_processor_ms(void)
{
        return all_ns() / 1000000;
}

static __attribute__((noreturn)) void end_process(int status)
{
        search->processor_ns += own_ns();
        _exit(status);
}

void explore_fail(const char *text, ...)
{
        va_list arguments;

        va_start(arguments, text);
        vsnprintf(search->reason, sizeof(search->reason), text, arguments);
        va_end(arguments);
        if (!scenario) {
                printf("FAILED: in the setup: %s\n", search->reason);
                fflush(stdout);
                _exit(EXIT_FAILED_SETUP);
        }
        search->failed = true;
        _exit(EXIT_FAILED);
}

/* ---- Words that threads share ------------------------------------------------------------ */

static struct word *word_of(const volatile void *address)
{
        uintptr_t key = (uintptr_t)address >> 3;
        size_t at = (key * 0x9e3779b97f4a7c15) >> (64 - WORDS_SHIFT);

        for (size_t tried = 0; tried < WORDS; tried++, at = (at + 1) % WORDS) {
                if (words[at].address == key)
                        return &words[at];
                if (!words[at].address) {
                        words[at].address = key;
                        return &words[at];
                }
        }
        explore_fail("the explorer's table of words is full: expected fewer than %d", WORDS);
}

/*
 * The memory that an execution leaves: a sum over the words that it has written as atomic ones, but for
 * those of stacks, as the threads have ended and their stacks hold whatever came last. To compare what two
 * searches have reached.
 */
enum { ENDS_MAX = 1 << 20 };
bool search_notes_ends;
static uint64_t *ends; /* shared; a set of sums */
static bool written[WORDS];

static uint64_t mixed(uint64_t value)
{
        value = (value ^ value >> 31) * 0x9e3779b97f4a7c15;
        return value ^ value >> 29;
}

static bool is_on_stack(const void *address)
{
        return (const char *)address >= stacks[0] && (const char *)address < stacks[THREADS_MAX];
}

static void note_end(void)
{
        uint64_t sum = 1;

        for (size_t i = 0; i < WORDS; i++)
                if (written[i] && !is_on_stack((const void *)(words[i].address << 3)))
                        sum += mixed(mixed(words[i].address) +
                                     *(const uint64_t *)(words[i].address << 3));
        for (size_t i = mixed(sum) % ENDS_MAX;; i = (i + 1) % ENDS_MAX) {
                if (ends[i] == sum)
                        return;
                if (!ends[i]) {
                        ends[i] = sum;
                        search->ends++;
                        search->ends_sum += sum;
                        return;
                }
                if (search->ends == ENDS_MAX / 2)
                        explore_fail("executions end in more than %d ways", ENDS_MAX / 2);
        }
}

static bool is_shared(const struct word *word)
{
        unsigned int users = word->readers | word->writers;

        return word->writers && users & (users - 1);
}

/* Notes the access; whether another thread may care for it. */
static bool note_access(const volatile void *address, enum access access)
{
        struct word *word = word_of(address);
        bool before = is_shared(word);
        uint8_t bit = (uint8_t)(1 << self);

        /* A word that is known already is not written: each process would have a page fault for it. */
        if (access == ACCESS_READ && !(word->readers & bit))
                word->readers |= bit;
        else if (access != ACCESS_READ && !(word->writers & bit))
                word->writers |= bit;
        if (search_notes_ends)
                written[word - words] |= access != ACCESS_READ;
        if (!before && is_shared(word))
                search->grew = true;
        return is_shared(word) || (forks_left && access != ACCESS_READ);
}

/* ---- The choice of the next thread ------------------------------------------------------- */

static bool can_run(const struct thread *t)
{
        switch (t->state) {
        case STATE_READY:
                return true;
        case STATE_WAITS:
                return *t->word == 0;
        case STATE_YIELDS:
                return search->points > t->yielded + 1;
        case STATE_NONE:
        case STATE_SLEEPS:
        case STATE_ENDED:
                break;
        }
        return false;
}

/* A thread whose wait ends by time, when nothing else can happen. */
static int first_timed(void)
{
        for (int i = 0; i < THREADS_MAX; i++)
                if (thread[i].state == STATE_YIELDS ||
                    (thread[i].state == STATE_SLEEPS && thread[i].timed))
                        return i;
        return -1;
}

static void add_turn(struct turn turn)
{
        struct schedule *schedule = &search->schedule;

        if (schedule->count == TURNS_MAX)
                explore_fail("a schedule has more than %d turns", TURNS_MAX);
        turn.step = search->steps;
        schedule->turn[schedule->count++] = turn;
}

static void add_thread(int chosen)
{
        add_turn((struct turn){.thread = (uint32_t)chosen});
}

/*
 * A process makes the steps of a single execution. A loop without scheduling points would never
 * end; then SIGVTALRM ends the process, and the schedule counts as failed.
 */
static void limit_loops(void)
{
        struct itimerval limit = {.it_value.tv_sec = LOOP_SECONDS};

        setitimer(ITIMER_VIRTUAL, &limit, NULL);
}

/* A word of its own: the sum over a memory takes whole words, and this differs from run to run. */
static _Alignas(8) int64_t own_process;

/* A search ends with the process that began it, in whatever way that is ended. */
static void begin_child(void)
{
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != own_process)
                _exit(EXIT_FAILED);
        own_process = getpid();
        limit_loops();
}

static void tell_end(int status)
{
        if (search->failed)
                return;
        search->failed = true;
        if (WIFSIGNALED(status) && WTERMSIG(status) == SIGVTALRM)
                snprintf(search->reason, sizeof(search->reason), "a loop does not end");
        else
                snprintf(search->reason, sizeof(search->reason), "the program ended by %s %d",
                         WIFSIGNALED(status) ? "signal" : "status",
                         WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
}

/* Waits for a child, and tells how it failed. Returns its status. */
static int end_of(pid_t child)
{
        int status;

        if (child < 0)
                explore_fail("fork: %s", strerror(errno));
        while (waitpid(child, &status, 0) < 0 && errno == EINTR)
                ;
        if (status)
                tell_end(status);
        return status;
}

/*
 * The rest of the search with another choice, in a child. True in the child; false in the parent,
 * when the child has searched to the end and found nothing.
 */
static bool branch(void)
{
        unsigned int steps = search->steps;
        unsigned int turns = search->schedule.count;
        pid_t child;

        if (deadline_ms && search_processor_ms() > deadline_ms) {
                search->late = true;
                end_process(0);
        }
        child = fork();
        if (child == 0) {
                begin_child();
                return true;
        }
        if (end_of(child))
                _exit(EXIT_FAILED);
        if (search->late)
                end_process(0);
        search->steps = steps;
        search->schedule.count = turns;
        return false;
}

/* One of each class of schedules. The sequences of others on the thread's CPU are aborted. */
static int reduced_choice(const int *ready, int count, bool stays)
{
        unsigned int set = 0;
        int chosen;

        for (int i = 0; i < count; i++)
                set |= 1u << ready[i];
        chosen = reduce_choose(set, ready[0], stays);
        if (chosen < 0) {
                search->cut_short++;
                end_process(0);
        }
        search->choices += count > 1;
        if (chosen != ready[0])
                add_thread(chosen);
        for (int other = 0; other < THREADS_MAX; other++)
                if (other != chosen && scenario->cpu[other] == scenario->cpu[chosen])
                        reduce_access(&sequence_of[other], 1, false);
        return chosen;
}

static int replayed_choice(int usual)
{
        for (unsigned int i = 0; i < replayed->count; i++)
                if (replayed->turn[i].step == search->steps && !replayed->turn[i].delay &&
                    !replayed->turn[i].refused && can_run(&thread[replayed->turn[i].thread])) {
                        if ((int)replayed->turn[i].thread != usual)
                                add_thread((int)replayed->turn[i].thread);
                        return (int)replayed->turn[i].thread;
                }
        return usual;
}

/* The thread that runs now; -1 if all have ended. @matters: others may care for the next step. */
static int choose(bool matters)
{
        int ready[THREADS_MAX];
        int count = 0;
        bool stays = self >= 0 && can_run(&thread[self]);
        bool alive = false;

        for (int step = 0; step < THREADS_MAX; step++) {
                int i = (max_of(self, 0) + step) % THREADS_MAX;

                alive |= thread[i].state != STATE_NONE && thread[i].state != STATE_ENDED;
                if (can_run(&thread[i]))
                        ready[count++] = i;
        }
        if (!alive)
                return -1;
        if (!count) {
                int timed = first_timed();

                if (timed >= 0 && scenario->woken && thread[timed].state == STATE_SLEEPS)
                        explore_fail("thread %d sleeps until its time is over: nobody wakes it",
                                     timed);
                if (timed < 0)
                        explore_fail("deadlock: no thread can run");
                return reduces ? reduced_choice(&timed, 1, false) : timed;
        }
        if (replayed)
                return replayed_choice(ready[0]);
        if (reduces)
                return stays && !matters ? self : reduced_choice(ready, count, stays);
        if (count == 1 || (stays && (!matters || !preemptions_left)))
                return ready[0];
        search->choices++;
        for (int i = 1; i < count; i++)
                if (branch()) {
                        preemptions_left -= stays;
                        add_thread(ready[i]);
                        return ready[i];
                }
        return ready[0];
}

/*
 * Gives the CPU to a thread. Those in a sequence on that CPU are aborted, and the kernel's switch is a
 * fence behind what they did.
 */
static void enter(int chosen)
{
        for (int i = 0; i < THREADS_MAX; i++)
                if (i != chosen && scenario->cpu[i] == scenario->cpu[chosen]) {
                        thread[i].aborted = true;
                        memory_switch(i, chosen);
                }
        self = chosen;
        thread[chosen].state = STATE_READY;
        sim.cpu = scenario->cpu[chosen];
        sim.node = sim.node_of[sim.cpu];
        memcpy(tls_start, thread[chosen].tls, tls_bytes);
}

static void hand_over(bool matters)
{
        int before = self;
        int chosen;

        if (before >= 0)
                memory_leave(before);
        chosen = choose(matters);
        if (before >= 0 && chosen == before) {
                if (thread[before].state != STATE_READY && thread[before].state != STATE_WAITS)
                        memory_give_way(before);
                thread[before].state = STATE_READY;
                memory_enter(before);
                return;
        }
        if (before >= 0)
                memory_give_way(before);
        if (before >= 0)
                memcpy(thread[before].tls, tls_start, tls_bytes);
        if (chosen < 0) {
                self = -1;
                swapcontext(&thread[before].context, &main_context);
        } else {
                enter(chosen);
                memory_enter(chosen);
                if (before < 0)
                        swapcontext(&main_context, &thread[chosen].context);
                else
                        swapcontext(&thread[before].context, &thread[chosen].context);
        }
}

/* ---- Points ------------------------------------------------------------------------------ */

static void add_step(struct step step)
{
        if (search->steps == POINTS_MAX)
                explore_fail("a schedule has more than %d steps: a loop does not end", POINTS_MAX);
        step.thread = (uint32_t)self;
        search->step[search->steps++] = step;
}

static void make_step(const struct place *place)
{
        add_step((struct step){.place = place});
        search->points++;
}

bool search_is_thread_local(const char *address)
{
        return address >= tls_start && address < tls_start + tls_bytes;
}

bool search_is_of_thread(const char *address)
{
        ptrdiff_t distance = address - (const char *)__builtin_thread_pointer();

        /* libc's variables, errno above all, lie beside the program's. */
        return search_is_thread_local(address) ||
               (distance > -TLS_BYTES_MAX && distance < TLS_BYTES_MAX) ||
               (address >= stacks[self] && address < stacks[self] + STACK_BYTES);
}

static bool replayed_delay(uint32_t question)
{
        for (unsigned int i = 0; i < replayed->count; i++)
                if (replayed->turn[i].step == search->steps && replayed->turn[i].delay == question)
                        return true;
        return false;
}

bool search_delays(const struct place *store, const char *how, const struct place *access,
                   unsigned int cost)
{
        static uint32_t step, questions; /* asked in front of the step */
        uint32_t question;

        if (step != search->steps)
                questions = 0;
        step = search->steps;
        question = ++questions;
        if (replayed ? !replayed_delay(question) : delays_left < cost)
                return false;
        if (!replayed) {
                search->choices++;
                if (!branch())
                        return false;
                delays_left -= cost;
        }
        add_turn((struct turn){.delay = question});
        add_step((struct step){.place = store, .delay = how, .access = access});
        return true;
}

/* ---- Refused requests for memory ---------------------------------------------------------- */

/*
 * Whether a thread's request is refused matters to that thread alone, and when it is refused does not matter
 * to others: they see what the thread does then. So the set of refused requests is chosen in front of a search,
 * each by its thread and its number among the requests of the thread, and the whole search is made for each
 * set, the smaller sets first. Those have shown how many requests there are.
 */
static struct {
        unsigned int count;
        uint32_t which
                [REFUSALS_MAX]; /* numbers in a row of all requests, thread by thread; ascending */
        uint32_t requests[THREADS_MAX]; /* known when the first set of so many began */
} refusals;

static void forget_refusals(void)
{
        memset(&refusals, 0, sizeof(refusals));
        memset(search->requests, 0, sizeof(search->requests));
}

/* False if there are fewer requests than a set has. */
static bool begin_refusals(void)
{
        uint32_t total = 0;

        memcpy(refusals.requests, search->requests, sizeof(refusals.requests));
        for (int i = 0; i < THREADS_MAX; i++)
                total += refusals.requests[i];
        refusals.count++;
        for (unsigned int i = 0; i < refusals.count; i++)
                refusals.which[i] = i;
        return refusals.count <= total;
}

/* The next set of up to so many; false if all were searched. */
static bool next_refusals(unsigned int most)
{
        uint32_t total = 0;

        for (int i = 0; i < THREADS_MAX; i++)
                total += refusals.requests[i];
        for (unsigned int i = refusals.count; i-- > 0;) {
                if (refusals.which[i] + refusals.count - i >= total)
                        continue;
                refusals.which[i]++;
                while (++i < refusals.count)
                        refusals.which[i] = refusals.which[i - 1] + 1;
                return true;
        }
        return refusals.count < most && begin_refusals();
}

static bool replayed_refusal(uint32_t request)
{
        for (unsigned int i = 0; i < replayed->count; i++)
                if (replayed->turn[i].refused == request && (int)replayed->turn[i].thread == self)
                        return true;
        return false;
}

static bool searched_refusal(uint32_t request)
{
        uint32_t which = request - 1;

        if (request > refusals.requests[self])
                return false;
        for (int i = 0; i < self; i++)
                which += refusals.requests[i];
        for (unsigned int i = 0; i < refusals.count; i++)
                if (refusals.which[i] == which)
                        return true;
        return false;
}

bool search_refuses(const struct place *place)
{
        uint32_t request;

        if (self < 0 || alone || !scenario->refusals)
                return false;
        request = ++thread[self].requests;
        search->requests[self] = max_of(search->requests[self], request);
        if (!(replayed ? replayed_refusal(request) : searched_refusal(request)))
                return false;
        add_turn((struct turn){.thread = (uint32_t)self, .refused = request});
        add_step((struct step){.place = place, .delay = "is refused"});
        return true;
}

static bool shares_cpu(void)
{
        for (int i = 0; i < THREADS_MAX; i++)
                if (i != self && thread[i].state != STATE_NONE &&
                    scenario->cpu[i] == scenario->cpu[self])
                        return true;
        return false;
}

/* Stands for the words that fences are about: they matter to all threads. */
static char fences;

void explore_point(const struct place *place, const volatile void *address, enum access access)
{
        bool matters;

        if (self < 0)
                return;
        if (alone) {
                make_step(place);
                return;
        }
        if (access == ACCESS_TAKE) {
                if (*(const volatile uint32_t *)address == explore_self())
                        explore_fail("%s: the thread holds the lock already (%s:%u)", place->text,
                                     place->file, place->line);
                /* The first attempt has emptied the buffer. */
                if (*(const volatile uint32_t *)address && memory_waits(self))
                        explore_fence(place, __ATOMIC_SEQ_CST);
                thread[self].word = (const uint32_t *)(uintptr_t)address;
                thread[self].state = STATE_WAITS;
        }
        races_at_atomic(address);
        matters = note_access(address, access);
        reduce_point(self, address, 1, access);
        hand_over(matters || (access >= ACCESS_LOCKED && memory_waits(self)));
        make_step(place);
        if (access >= ACCESS_LOCKED && memory == MEMORY_TSO)
                explore_flush(__ATOMIC_SEQ_CST);
}

void explore_effect(const volatile void *address, size_t bytes, bool writes)
{
        if (self >= 0 && reduces)
                reduce_access(address, bytes, writes);
}

/* The order of sequentially consistent fences matters to all threads that make them. */
void explore_fence(const struct place *place, int order)
{
        bool matters;

        if (self < 0 || memory == MEMORY_SC)
                return;
        matters = memory == MEMORY_RA && order == __ATOMIC_SEQ_CST &&
                  note_access(&fences, ACCESS_WRITE);
        hand_over(matters || memory_waits(self));
        make_step(place);
        explore_flush(memory_order(place, order));
}

void explore_fence_behind_change(const struct place *place)
{
        if (memory == MEMORY_RA)
                explore_fence(place, __ATOMIC_SEQ_CST);
}

void explore_call(const struct place *place)
{
        if (memory == MEMORY_TSO)
                explore_fence(place, __ATOMIC_SEQ_CST);
}

void explore_membarrier(const struct place *place)
{
        if (self < 0)
                return;
        note_access(&fences, ACCESS_WRITE);
        reduce_point(self, NULL, 0, ACCESS_READ);
        hand_over(true);
        make_step(place);
        explore_flush_all();
}

void explore_futex_wait(const struct place *place, uint32_t *word, uint32_t value, bool timed)
{
        static uint32_t sleeps;

        if (self < 0)
                explore_fail("%s: outside of the explored threads nobody wakes it", place->text);
        explore_point(place, word, ACCESS_LOCKED);
        explore_see_newest(place, word, sizeof(*word), __ATOMIC_RELAXED);
        if (*word != value)
                return;
        thread[self].word = word;
        thread[self].timed = timed;
        thread[self].slept = ++sleeps;
        thread[self].state = STATE_SLEEPS;
        reduce_point(self, word, sizeof(*word), ACCESS_READ);
        hand_over(true);
        make_step(THIS_PLACE("futex: awake"));
}

void explore_futex_wake(const struct place *place, uint32_t *word, unsigned int count)
{
        if (self < 0)
                return;
        explore_point(place, word, ACCESS_LOCKED);
        for (; count; count--) {
                struct thread *first = NULL;

                for (int i = 0; i < THREADS_MAX; i++)
                        if (thread[i].state == STATE_SLEEPS && thread[i].word == word &&
                            (!first || thread[i].slept < first->slept))
                                first = &thread[i];
                if (!first)
                        return;
                first->state = STATE_READY;
        }
}

void explore_yield(const struct place *place)
{
        if (self < 0)
                return;
        thread[self].yielded = search->points;
        thread[self].state = STATE_YIELDS;
        reduce_point(self, NULL, reduce_is_bounded() ? SIZE_MAX : 0, ACCESS_READ);
        hand_over(true);
        make_step(place);
}

void explore_count_lock(int change)
{
        if (self >= 0)
                thread[self].locks += change;
}

uint32_t explore_self(void)
{
        return (uint32_t)(self + 1);
}

bool sequence_begin(void)
{
        if (sequences_refused)
                return false;
        if (self < 0)
                return true;
        explore_effect(&sequence_of[self], 1, true);
        thread[self].aborted = false;
        return ++thread[self].aborts <= 2;
}

bool sequence_point(const struct place *place, const volatile void *address, enum access access)
{
        bool matters;

        if (self < 0 || alone)
                return true;
        races_at_atomic(address);
        matters = note_access(address, access);
        reduce_point(self, address, 1, access);
        hand_over(matters || shares_cpu());
        if (thread[self].aborted || access != ACCESS_READ)
                explore_effect(&sequence_of[self], 1, true);
        if (thread[self].aborted) {
                make_step(THIS_PLACE("sequence: aborted"));
                return false;
        }
        make_step(place);
        return true;
}

void sequence_end(void)
{
        if (self < 0)
                return;
        explore_effect(&sequence_of[self], 1, true);
        thread[self].aborts = 0;
}

void sequences_fence(const struct place *place)
{
        if (self < 0)
                return;
        explore_membarrier(place);
        for (int i = 0; i < THREADS_MAX; i++)
                if (i != self) {
                        thread[i].aborted = true;
                        explore_effect(&sequence_of[i], 1, false);
                }
}

/* ---- Forks ------------------------------------------------------------------------------- */

/* The child goes on in a process of its own, to its end, with what is in memory at this step. */
bool explore_fork(const struct place *place)
{
        unsigned int steps;
        unsigned int turns;
        pid_t child;

        if (self < 0 || !forks_left)
                explore_fail("%s: more forks than the scenario has said", place->text);
        if (memory_waits(self))
                explore_fence(place, __ATOMIC_SEQ_CST);
        reduce_point(self, NULL, SIZE_MAX, ACCESS_READ);
        hand_over(true);
        make_step(place);
        forks_left--;
        steps = search->steps;
        turns = search->schedule.count;
        child = fork();
        if (child == 0) {
                begin_child();
                alone = true;
                reduces = false;
                replayed = NULL;
                delays_left = 0;
                /* The fork is a fence, and nobody is left to whom orders matter. */
                memory_leave(self);
                for (int i = 0; i < THREADS_MAX; i++) {
                        memory_flush(i);
                        if (i != self && thread[i].state != STATE_NONE)
                                thread[i].state = STATE_ENDED;
                }
                memory = MEMORY_SC;
                return true;
        }
        if (end_of(child))
                _exit(EXIT_FAILED);
        search->steps = steps;
        search->schedule.count = turns;
        return false;
}

void explore_fork_end(void)
{
        end_process(0);
}

/* ---- An execution ------------------------------------------------------------------------ */

static void thread_main(void)
{
        make_step(THIS_PLACE("begins"));
        scenario->thread[self]();
        if (thread[self].locks)
                explore_fail("thread %d ended with %d locks", self, thread[self].locks);
        thread[self].state = STATE_ENDED;
        hand_over(true);
}

/* Where the program's thread-local variables are; each explored thread has a copy of its own. */
static int find_tls(struct dl_phdr_info *info, size_t bytes, void *unused)
{
        (void)bytes;
        (void)unused;
        for (int i = 0; i < info->dlpi_phnum; i++)
                if (info->dlpi_phdr[i].p_type == PT_TLS) {
                        tls_start = info->dlpi_tls_data;
                        tls_bytes = info->dlpi_phdr[i].p_memsz;
                }
        return 1; /* the first is the program */
}

static void prepare_threads(void)
{
        for (int i = 0; i < THREADS_MAX && scenario->thread[i]; i++) {
                getcontext(&thread[i].context);
                thread[i].context.uc_stack.ss_sp = stacks[i];
                thread[i].context.uc_stack.ss_size = STACK_BYTES;
                thread[i].context.uc_link = NULL;
                makecontext(&thread[i].context, thread_main, 0);
                thread[i].state = STATE_READY;
                memcpy(thread[i].tls, tls_start, tls_bytes);
        }
}

/* Runs all schedules, or the replayed one, in this process and its children; does not return. */
static __attribute__((noreturn)) void run(void)
{
        char tls[TLS_BYTES_MAX];

        forks_left = scenario->forks;
        prepare_threads();
        memcpy(tls, tls_start, tls_bytes);
        hand_over(true);
        /* Here a process is at the end of an execution. */
        if (reduces)
                reduce_end();
        for (int i = 0; i < THREADS_MAX; i++)
                memory_flush(i);
        memcpy(tls_start, tls, tls_bytes);
        if (search_notes_ends)
                note_end();
        sim.cpu = 0;
        sim.node = 0;
        (scenario->check ? scenario->check : check_empty)();
        search->executions++;
        end_process(0);
}

static void run_in_child(void)
{
        pid_t child;

        search->processor_ns = all_ns();
        own_process = getpid();
        child = fork();
        if (child == 0) {
                is_child = true;
                begin_child();
                run();
        }
        end_of(child);
}

/* ---- The search -------------------------------------------------------------------------- */

static void *map_shared(size_t bytes)
{
        void *start = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

        return start == MAP_FAILED ? NULL : start;
}

bool search_init(void)
{
        search = map_shared(sizeof(*search));
        words = map_shared(WORDS * sizeof(*words));
        dl_iterate_phdr(find_tls, NULL);
        ends = map_shared(ENDS_MAX * sizeof(*ends));
        return search && words && ends && reduce_init() && tls_start && tls_bytes <= TLS_BYTES_MAX;
}

/* The counts that sets of refusals in front of this one have left. */
static struct {
        uint64_t executions;
        uint64_t points;
        uint64_t choices;
        uint64_t cut_short;
        uint64_t ends;
        uint64_t ends_sum;
} kept;

static void keep_counts(void)
{
        kept.executions = search->executions;
        kept.points = search->points;
        kept.choices = search->choices;
        kept.cut_short = search->cut_short;
}

/* A search begins anew. What executions it has left stays, if it is not the first of all. */
static void clear_counts(void)
{
        kept.ends = search->ends;
        kept.ends_sum = search->ends_sum;
        memset(search, 0, offsetof(struct search, step));
        if (!refusals.count) {
                memset(&kept, 0, sizeof(kept));
                if (search_notes_ends)
                        memset(ends, 0, ENDS_MAX * sizeof(*ends));
        }
        search->executions = kept.executions;
        search->points = kept.points;
        search->choices = kept.choices;
        search->cut_short = kept.cut_short;
        search->ends = kept.ends;
        search->ends_sum = kept.ends_sum;
}

void search_all(const struct scenario *explored, const struct bounds *bounds)
{
        scenario = explored;
        preemptions_left = bounds->preemptions;
        delays_left = bounds->delays;
        replayed = NULL;
        deadline_ms = bounds->deadline;
        forget_refusals();
        do {
                keep_counts();
                do {
                        clear_counts();
                        run_in_child();
                } while (search->grew && !search->failed && !search->late);
        } while (!search->failed && !search->late && next_refusals(bounds->refusals));
}

static void search_classes_once(const struct bounds *bounds)
{
        clear_counts();
        reduce_start(bounds->preemptions);
        do {
                search->steps = 0;
                search->schedule.count = 0;
                search->late = bounds->deadline && search_processor_ms() > bounds->deadline;
                if (search->late)
                        break;
                run_in_child();
        } while (!search->failed && !search->grew && reduce_next());
}

void search_classes(const struct scenario *explored, const struct bounds *bounds)
{
        scenario = explored;
        replayed = NULL;
        reduces = true;
        forget_refusals();
        do {
                keep_counts();
                do
                        search_classes_once(bounds);
                while (search->grew && !search->failed && !search->late);
        } while (!search->failed && !search->late && next_refusals(bounds->refusals));
        reduces = false;
}

void search_replay(const struct scenario *explored, const struct schedule *schedule)
{
        struct schedule copy = *schedule;

        scenario = explored;
        replayed = &copy;
        deadline_ms = 0;
        clear_counts();
        run_in_child();
}

void search_shrink(const struct scenario *explored, struct schedule *schedule)
{
        for (unsigned int i = schedule->count; i-- > 0;) {
                struct schedule shorter = *schedule;

                shorter.count--;
                memmove(&shorter.turn[i], &shorter.turn[i + 1],
                        (shorter.count - i) * sizeof(shorter.turn[0]));
                search_replay(explored, &shorter);
                if (search->failed)
                        *schedule = search->schedule;
                i = min_of(i, schedule->count);
        }
        search_replay(explored, schedule);
}
