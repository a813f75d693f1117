/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Two schedules are equal if one becomes the other by swaps of neighbouring steps that do not depend
 * on each other. Of each class of equal schedules one is run, without a bound on preemptions: source
 * sets and sleep sets (Abdulla, Aronis, Jonsson and Sagonas, "Optimal dynamic partial order
 * reduction", POPL 2014).
 *
 * A step is what a thread does from one choice of the search to its next. Steps of two threads depend
 * on each other if both access a byte and one of them writes it. search.c says what a step accesses:
 * words, ranges that the system takes or gives, the objects of the oracle's books, and for restartable
 * sequences a byte of each thread. A thread writes its byte where it begins or leaves a sequence, stores
 * in it, or finds it aborted. Each step of another thread on its CPU, and each fence, reads the byte,
 * because the kernel then aborts the sequence. Loads of a sequence do not write it: whether the abort
 * is in front of one or behind it, the sequence begins anew with nothing done.
 *
 * When a step is over, it is compared with the steps before it, the last first. One that it depends on,
 * without another in between that puts them in order, is a race: the search must also run them the
 * other way round. It does if it takes, in front of the earlier step, a thread that can begin the steps
 * which do not come behind that step (its initials). If none is planned there, one is.
 *
 * A thread that was tried in front of a step sleeps in the executions that try another there, until a
 * step depends on its own: before that its step leads to what was run already.
 *
 * A thread that gives way (cpu_relax) runs again when another has made a step. An execution in which it
 * runs earlier only looks once more at what it has seen. Where a race asks for a thread that cannot run,
 * all that can are planned.
 *
 * With a bound on preemptions, the equal schedule that was run may be one with more preemptions than the
 * bound allows. So the plan is the conservative one of Coons, Musuvathi and McKinley, "Bounded
 * partial-order reduction", OOPSLA 2013. At a race the later thread is planned in front of the earlier step,
 * and also where the earlier thread began to run: there it costs no preemption, or the one that the
 * earlier thread cost. There are no sleep sets, no choice of initials, and a thread that has given way
 * depends on every write. Plans with too many preemptions are left out.
 *
 * The plan lies in memory that all processes share. Each execution is run from its start, in a process
 * of its own.
 */
#define _GNU_SOURCE
#include "reduce.h"

#include "search.h"

#include <string.h>
#include <sys/mman.h>

enum { ACCESSES_MAX = 48, CHOICES_MAX = 8192 };

struct range {
        uintptr_t first; /* of words of 8 bytes */
        uintptr_t last;
        bool writes;
};

struct footprint {
        unsigned int count;
        bool all; /* more than fit: depends on everything */
        /* A bit for each word that is read or written, and for others; all bits for longer ranges. */
        uint64_t reads;
        uint64_t writes;
        struct range range[ACCESSES_MAX];
};

/* A choice, and the step that follows it. Sets of threads are bits. */
struct choice {
        int thread;
        int stays;         /* the thread that another one preempts here; -1: none */
        unsigned int used; /* preemptions in front of the choice */
        uint32_t number;   /* of the thread's steps, from 1 */
        unsigned int ready;
        unsigned int planned;
        unsigned int done;
        unsigned int asleep;
        uint32_t before[THREADS_MAX]; /* for each thread the number of its steps up to this one that
                                         happen before it, or are it */
        struct footprint footprint;
};

static struct plan {
        unsigned int given; /* choices that the execution must make as they are */
        unsigned int count; /* choices of the execution */
        struct choice choice[CHOICES_MAX];
        struct footprint of[CHOICES_MAX][THREADS_MAX]; /* for each choice the steps of threads done
                                                          or asleep; with a bound unused */
} * plan;

static struct footprint next_step[THREADS_MAX];
static uint32_t made[THREADS_MAX]; /* steps of each thread */
static int last_of[THREADS_MAX];   /* its last choice, -1: none */
static unsigned int at;            /* choices made */
static unsigned int bound = NO_BOUND;

bool reduce_init(void)
{
        void *start = mmap(NULL, sizeof(*plan), PROT_READ | PROT_WRITE,
                           MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

        plan = start == MAP_FAILED ? NULL : start;
        for (int i = 0; i < THREADS_MAX; i++)
                last_of[i] = -1;
        return plan != NULL;
}

bool reduce_is_bounded(void)
{
        return bound != NO_BOUND;
}

void reduce_start(unsigned int preemptions)
{
        bound = preemptions;
        plan->given = 0;
        plan->count = 0;
}

/* ---- Footprints --------------------------------------------------------------------------- */

static void add_range(struct footprint *footprint, const volatile void *address, size_t bytes,
                      bool writes)
{
        struct range added = {.first = (uintptr_t)address >> 3,
                              .last = ((uintptr_t)address + bytes - 1) >> 3,
                              .writes = writes};

        uint64_t bit;

        if (!bytes)
                return;
        bit = added.first == added.last ? (uint64_t)1 << (added.first * 0x9e3779b97f4a7c15 >> 58)
                                        : UINT64_MAX;
        if (writes)
                footprint->writes |= bit;
        else
                footprint->reads |= bit;
        for (unsigned int i = 0; i < footprint->count; i++)
                if (memcmp(&footprint->range[i], &added, sizeof(added)) == 0)
                        return;
        if (footprint->count == ACCESSES_MAX)
                footprint->all = true;
        else
                footprint->range[footprint->count++] = added;
}

static bool depend(const struct footprint *one, const struct footprint *other)
{
        if (one->all || other->all)
                return true;
        if (!(one->writes & (other->reads | other->writes)) && !(one->reads & other->writes))
                return false;
        for (unsigned int i = 0; i < one->count; i++)
                for (unsigned int j = 0; j < other->count; j++)
                        if (one->range[i].first <= other->range[j].last &&
                            other->range[j].first <= one->range[i].last &&
                            (one->range[i].writes || other->range[j].writes))
                                return true;
        return false;
}

static void copy_footprint(struct footprint *to, const struct footprint *from)
{
        memcpy(to, from, offsetof(struct footprint, range) + from->count * sizeof(from->range[0]));
}

void reduce_point(int thread, const volatile void *address, size_t bytes, bool writes)
{
        memset(&next_step[thread], 0, offsetof(struct footprint, range));
        add_range(&next_step[thread], address, bytes, writes);
}

void reduce_access(const volatile void *address, size_t bytes, bool writes)
{
        if (at)
                add_range(&plan->choice[at - 1].footprint, address, bytes, writes);
}

/* ---- Races -------------------------------------------------------------------------------- */

static bool happens_before(const struct choice *one, const struct choice *other)
{
        return other->before[one->thread] >= one->number;
}

/*
 * Threads that can begin, in front of choice @early, the steps behind it that do not happen behind it,
 * and choice @late.
 */
static unsigned int initials(unsigned int early, unsigned int late)
{
        unsigned int kept[CHOICES_MAX];
        unsigned int count = 0;
        unsigned int seen = 0;
        unsigned int result = 0;

        for (unsigned int i = early + 1; i <= late; i++) {
                const struct choice *step = &plan->choice[i];
                bool first = true;

                if (i < late && happens_before(&plan->choice[early], step))
                        continue;
                for (unsigned int j = 0; j < count && first; j++)
                        first = !happens_before(&plan->choice[kept[j]], step);
                if (first && !(seen & 1u << step->thread))
                        result |= 1u << step->thread;
                seen |= 1u << step->thread;
                kept[count++] = i;
        }
        return result;
}

static void plan_race(unsigned int early, unsigned int late)
{
        struct choice *choice = &plan->choice[early];
        unsigned int first = initials(early, late);
        unsigned int late_thread = 1u << plan->choice[late].thread;

        if (first & choice->planned)
                return;
        if (!(first & choice->ready))
                choice->planned |= choice->ready;
        else
                choice->planned |= first & choice->ready & late_thread
                                           ? late_thread
                                           : 1u << __builtin_ctz(first & choice->ready);
}

static unsigned int preemptions(const struct choice *choice, int thread)
{
        return choice->used + (choice->stays >= 0 && choice->stays != thread);
}

static void plan_thread(struct choice *choice, int thread)
{
        choice->planned |= choice->ready & 1u << thread ? 1u << thread : choice->ready;
}

/* In front of the earlier step, and where a switch to its thread was as dear as one to another. */
static void plan_bounded(unsigned int early, unsigned int late)
{
        int earlier = plan->choice[early].thread;
        int thread = plan->choice[late].thread;

        plan_thread(&plan->choice[early], thread);
        for (unsigned int i = early + 1; i-- > 0 && plan->choice[i].thread == earlier;)
                if (plan->choice[i].stays != earlier)
                        plan_thread(&plan->choice[i], thread);
}

/* The step of the last choice is over. */
static void end_step(void)
{
        unsigned int last = at - 1;
        struct choice *step = &plan->choice[last];
        int before = last_of[step->thread];

        if (before >= 0)
                memcpy(step->before, plan->choice[before].before, sizeof(step->before));
        else
                memset(step->before, 0, sizeof(step->before));
        step->before[step->thread] = step->number;
        for (unsigned int i = last; i-- > 0;) {
                const struct choice *early = &plan->choice[i];

                if (early->thread == step->thread || happens_before(early, step) ||
                    !depend(&early->footprint, &step->footprint))
                        continue;
                /* Those in between are joined: nothing else puts the two in order. */
                if (last + 1 >= plan->given)
                        (reduce_is_bounded() ? plan_bounded : plan_race)(i, last);
                for (int thread = 0; thread < THREADS_MAX; thread++)
                        step->before[thread] = max_of(step->before[thread], early->before[thread]);
        }
        last_of[step->thread] = (int)last;
        if (!reduce_is_bounded())
                copy_footprint(&plan->of[last][step->thread], &step->footprint);
}

/* ---- The execution ------------------------------------------------------------------------ */

/* Those that sleep behind the last step: tried in front of it, or asleep there, and not woken by it. */
static unsigned int sleepers(void)
{
        const struct choice *before = &plan->choice[at - 1];
        const struct footprint *of = plan->of[at - 1];
        unsigned int sleeping = 0;

        for (int thread = 0; thread < THREADS_MAX; thread++)
                if ((before->asleep | before->done) & 1u << thread && thread != before->thread &&
                    !depend(&of[thread], &before->footprint)) {
                        sleeping |= 1u << thread;
                        copy_footprint(&plan->of[at][thread], &of[thread]);
                }
        return sleeping;
}

int reduce_choose(unsigned int ready, int usual, bool stays)
{
        struct choice *choice = &plan->choice[at];
        unsigned int awake;

        if (at)
                end_step();
        if (at == CHOICES_MAX)
                explore_fail("an execution has more than %d choices", CHOICES_MAX);
        if (at >= plan->given) {
                memset(choice, 0, offsetof(struct choice, footprint));
                choice->ready = ready;
                choice->stays = stays ? usual : -1;
                choice->used = at ? preemptions(choice - 1, choice[-1].thread) : 0;
                choice->asleep = at && !reduce_is_bounded() ? sleepers() : 0;
                awake = ready & ~choice->asleep;
                if (!awake)
                        return -1;
                choice->thread = awake & 1u << usual ? usual : __builtin_ctz(awake);
                choice->planned = 1u << choice->thread;
                plan->count = at + 1;
        }
        if (!(ready & 1u << choice->thread))
                explore_fail("an execution differs from the one that it begins as");
        choice->number = ++made[choice->thread];
        copy_footprint(&choice->footprint, &next_step[choice->thread]);
        at++;
        return choice->thread;
}

void reduce_end(void)
{
        if (at)
                end_step();
}

bool reduce_next(void)
{
        while (plan->count) {
                struct choice *choice = &plan->choice[plan->count - 1];
                unsigned int open;

                choice->done |= 1u << choice->thread;
                open = choice->planned & ~choice->done & ~choice->asleep;
                for (int thread = 0; thread < THREADS_MAX; thread++)
                        if (preemptions(choice, thread) > bound)
                                open &= ~(1u << thread);
                if (open) {
                        choice->thread = __builtin_ctz(open);
                        plan->given = plan->count;
                        return true;
                }
                plan->count--;
        }
        return false;
}
