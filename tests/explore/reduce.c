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
 * depends on every write. Plans with too many preemptions are left out. An execution ends where everything behind
 * its choice was run already (visited.c).
 *
 * A thread does not run until it can take its lock. So the drop of a lock does not race with the step that takes
 * it then, but the step does that took the lock before. With a bound there are two more plans. A thread is planned
 * in front of the drop of a lock that it takes later: it may come as far as that lock, and wait there for nothing.
 * And a thread that waits is planned in front of the step that took the lock as soon as it waits.
 *
 * The plan lies in memory that all processes share. Each execution is run from its start, in a process
 * of its own.
 */
#define _GNU_SOURCE
#include "reduce.h"

#include "search.h"
#include "visited.h"

#include <string.h>
#include <sys/mman.h>

enum { ACCESSES_MAX = 48, CHOICES_MAX = 8192, RANGES_MAX = 1 << 20, NOTES_MAX = 1 << 20 };

struct range {
        uintptr_t first; /* of words of 8 bytes */
        uintptr_t last;
        bool writes;
};

/* What a step accesses; its ranges lie one behind the other in the plan. */
struct footprint {
        /* A bit for each word that is read or written, and for others; all bits for longer ranges. */
        uint64_t reads;
        uint64_t writes;
        uint32_t first;
        uint32_t count;
        bool all; /* more than fit: depends on everything */
};

/* A choice, and the step that follows it. Sets of threads are bits. */
struct choice {
        struct footprint footprint;
        enum access access; /* its first */
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
        uint64_t trace;               /* a sum over the steps in front of the choice */
};

/* With a bound: threads (bits) whose steps behind a choice race with a step in front of it. */
struct note {
        uint32_t early;  /* the step in front */
        uint32_t behind; /* the choice */
        uint8_t late;
        bool going_on; /* they race with no step in front, but with one that goes on where @early ends */
};

static struct plan {
        unsigned int given; /* choices that the execution must make as they are */
        unsigned int count; /* choices of the execution */
        struct choice choice[CHOICES_MAX];
        uint32_t choice_of[THREADS_MAX]
                          [CHOICES_MAX + 1];           /* of the thread's step with that number */
        struct footprint of[CHOICES_MAX][THREADS_MAX]; /* for each choice the steps of threads done
                                                          or asleep; with a bound unused */
        struct range range[RANGES_MAX];                /* of the choices, in their order */
        unsigned int notes;                            /* of the execution */
        struct note note[NOTES_MAX];
} * plan;

/* With a bound: what is known of each choice of the plan, in the process that plans. */
static struct behind {
        uint8_t late[CHOICES_MAX]; /* for each step in front, threads that race with it */
        uint8_t going_on;
} * behind;

/* What a thread's next step accesses first. */
static struct next {
        enum access access;
        struct range range;
        bool accesses; /* anything */
} next_step[THREADS_MAX];
static uint32_t made[THREADS_MAX]; /* steps of each thread */
static unsigned int at;            /* choices made */
static unsigned int bound = NO_BOUND;

bool reduce_init(void)
{
        void *start = mmap(NULL, sizeof(*plan), PROT_READ | PROT_WRITE,
                           MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

        plan = start == MAP_FAILED ? NULL : start;
        start = mmap(NULL, CHOICES_MAX * sizeof(*behind), PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        behind = start == MAP_FAILED ? NULL : start;
        return plan && behind && visited_init();
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
        plan->notes = 0;
        visited_clear();
        madvise(behind, CHOICES_MAX * sizeof(*behind), MADV_DONTNEED);
}

/* ---- Footprints --------------------------------------------------------------------------- */

static struct range range_of(const volatile void *address, size_t bytes, bool writes)
{
        return (struct range){.first = (uintptr_t)address >> 3,
                              .last = ((uintptr_t)address + bytes - 1) >> 3,
                              .writes = writes};
}

/* To the last footprint of all. */
static void add_range(struct footprint *footprint, const struct range *added)
{
        struct range *range = &plan->range[footprint->first];
        uint64_t bit = added->first == added->last
                               ? (uint64_t)1 << (added->first * 0x9e3779b97f4a7c15 >> 58)
                               : UINT64_MAX;

        if (added->writes)
                footprint->writes |= bit;
        else
                footprint->reads |= bit;
        for (unsigned int i = 0; i < footprint->count; i++)
                if (range[i].first == added->first && range[i].last == added->last &&
                    range[i].writes == added->writes)
                        return;
        if (footprint->count == ACCESSES_MAX || footprint->first + footprint->count == RANGES_MAX)
                footprint->all = true;
        else
                range[footprint->count++] = *added;
}

static bool depend(const struct footprint *one, const struct footprint *other)
{
        if (one->all || other->all)
                return true;
        if (!(one->writes & (other->reads | other->writes)) && !(one->reads & other->writes))
                return false;
        for (unsigned int i = 0; i < one->count; i++)
                for (unsigned int j = 0; j < other->count; j++) {
                        const struct range *a = &plan->range[one->first + i];
                        const struct range *b = &plan->range[other->first + j];

                        if (a->first <= b->last && b->first <= a->last && (a->writes || b->writes))
                                return true;
                }
        return false;
}

void reduce_point(int thread, const volatile void *address, size_t bytes, enum access access)
{
        next_step[thread] = (struct next){.access = access, .accesses = bytes != 0};
        if (bytes)
                next_step[thread].range = range_of(address, bytes, access != ACCESS_READ);
}

/* The steps of an execution up to the choice that it makes otherwise are known from the last one. */
static bool is_known(unsigned int step)
{
        return step + 1 < plan->given;
}

void reduce_access(const volatile void *address, size_t bytes, bool writes)
{
        struct range range = range_of(address, bytes, writes);

        if (at && bytes && !is_known(at - 1))
                add_range(&plan->choice[at - 1].footprint, &range);
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
        uint32_t kept[THREADS_MAX] = {0}; /* numbers of their first steps among these */
        unsigned int result = 0;

        for (unsigned int i = early + 1; i <= late; i++) {
                const struct choice *step = &plan->choice[i];
                bool first = true;

                if (i < late && happens_before(&plan->choice[early], step))
                        continue;
                for (int thread = 0; thread < THREADS_MAX; thread++)
                        first &= !kept[thread] || step->before[thread] < kept[thread];
                if (first)
                        result |= 1u << step->thread;
                if (!kept[step->thread])
                        kept[step->thread] = step->number;
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

static void note(unsigned int early, unsigned int choice, int late, bool going_on)
{
        if (plan->notes == NOTES_MAX)
                explore_fail("an execution has more than %d races", NOTES_MAX);
        plan->note[plan->notes++] = (struct note){.early = early,
                                                  .behind = choice,
                                                  .late = (uint8_t)(1u << late),
                                                  .going_on = going_on};
}

/* Where a switch to the thread of the step was as dear as one to another. */
static void plan_begin(unsigned int early, int thread)
{
        int earlier = plan->choice[early].thread;

        for (unsigned int i = early + 1; i-- > 0 && plan->choice[i].thread == earlier;)
                if (plan->choice[i].stays != earlier)
                        plan_thread(&plan->choice[i], thread);
}

/* The thread has a step behind choice @behind that races with the earlier one. */
static void plan_bounded(unsigned int early, int thread, unsigned int choice)
{
        plan_thread(&plan->choice[early], thread);
        plan_begin(early, thread);
        note(early, choice, thread, false);
}

/* The last step of others than @thread behind those in @before, which it leaves out then; -1: none. */
static int latest(uint32_t *left, const uint32_t *before, int thread)
{
        int found = -1;
        int its = 0;

        for (int other = 0; other < THREADS_MAX; other++)
                if (other != thread && left[other] > before[other] &&
                    (int)plan->choice_of[other][left[other]] > found) {
                        found = (int)plan->choice_of[other][left[other]];
                        its = other;
                }
        if (found >= 0)
                left[its]--;
        return found;
}

static void join(uint32_t *before, const uint32_t *others)
{
        for (int thread = 0; thread < THREADS_MAX; thread++)
                before[thread] = max_of(before[thread], others[thread]);
}

/*
 * @early drops the lock that @late takes. No race: @late could not come earlier. The race is with the step
 * that took the lock in front of @early.
 */
static bool frees_lock(const struct choice *early, const struct choice *late)
{
        return early->access == ACCESS_DROP && late->access == ACCESS_TAKE &&
               plan->range[early->footprint.first].first ==
                       plan->range[late->footprint.first].first;
}

/* The step of the last choice is over. */
static void end_step(void)
{
        unsigned int last = at - 1;
        struct choice *step = &plan->choice[last];
        uint32_t left[THREADS_MAX];
        uint32_t ordered[THREADS_MAX]; /* @before, but for what the lock of the step orders */

        if (is_known(last))
                return;
        if (step->number > 1)
                memcpy(step->before,
                       plan->choice[plan->choice_of[step->thread][step->number - 1]].before,
                       sizeof(step->before));
        else
                memset(step->before, 0, sizeof(step->before));
        step->before[step->thread] = step->number;
        memcpy(left, made, sizeof(left));
        memcpy(ordered, step->before, sizeof(ordered));
        for (int i; (i = latest(left, ordered, step->thread)) >= 0;) {
                const struct choice *early = &plan->choice[i];

                if (!depend(&early->footprint, &step->footprint))
                        continue;
                join(step->before, early->before);
                if (frees_lock(early, step)) {
                        /* Who waits for a lock lets others run for nothing. */
                        if (reduce_is_bounded() && early->ready & 1u << step->thread)
                                plan_bounded((unsigned int)i, step->thread, last);
                        continue;
                }
                /* Those in between are joined: nothing else puts the two in order. */
                if (reduce_is_bounded())
                        plan_bounded((unsigned int)i, step->thread, last);
                else
                        plan_race((unsigned int)i, last);
                join(ordered, early->before);
        }
        if (!reduce_is_bounded())
                plan->of[last][step->thread] = step->footprint;
}

/*
 * With a bound, a thread that waits for a lock races with who has taken it from the moment on when it waits:
 * when it gets the lock at last, steps in between may have put the two in order. @from: the steps to look at.
 */
static void plan_waiter(int thread, unsigned int from)
{
        const struct range *lock = &next_step[thread].range;
        unsigned int made_last = made[thread];
        const uint32_t *before =
                made_last ? plan->choice[plan->choice_of[thread][made_last]].before : NULL;

        for (unsigned int i = at; i-- > from;) {
                const struct choice *step = &plan->choice[i];

                if (step->thread == thread || step->access < ACCESS_LOCKED ||
                    plan->range[step->footprint.first].first != lock->first)
                        continue;
                if (step->access == ACCESS_DROP || (before && before[step->thread] >= step->number))
                        break;
                plan_bounded(i, thread, at - 1);
        }
}

static void plan_waiters(unsigned int ready)
{
        if (!at || is_known(at - 1))
                return;
        for (int thread = 0; thread < THREADS_MAX; thread++)
                if (next_step[thread].access == ACCESS_TAKE && !(ready & 1u << thread))
                        plan_waiter(thread, plan->choice[at - 1].thread == thread ? 0 : at - 1);
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
                        plan->of[at][thread] = of[thread];
                }
        return sleeping;
}

/* ---- Choices that were visited ------------------------------------------------------------ */

static uint64_t sum_of(const struct choice *step)
{
        uint64_t sum = (uint64_t)step->thread + 1;

        for (int thread = 0; thread < THREADS_MAX; thread++) {
                sum = (sum ^ step->before[thread]) * 0x9e3779b97f4a7c15;
                sum ^= sum >> 32;
        }
        return sum * 0xd6e8feb86659fd93;
}

static struct visited_key key_of(unsigned int number)
{
        const struct choice *choice = &plan->choice[number];

        return (struct visited_key){.trace = choice->trace,
                                    .last = number ? choice[-1].thread : -1,
                                    .stays = choice->stays,
                                    .ready = choice->ready};
}

/* Whether everything behind the choice was run. Then its races are planned, as those of an execution are. */
static bool was_visited(unsigned int number)
{
        const struct choice *choice = &plan->choice[number];
        struct visited_key key = key_of(number);
        struct visited found;

        if (!number || !(choice->ready & (choice->ready - 1)) ||
            !visited_find(&key, choice->used, &found))
                return false;
        for (int late = 0; late < THREADS_MAX; late++) {
                for (unsigned int i = 0; i < found.count; i++)
                        if (found.race[i].late & 1u << late)
                                plan_bounded(
                                        plan->choice_of[found.race[i].thread][found.race[i].number],
                                        late, number - 1);
                if (found.going_on & 1u << late) {
                        plan_begin(number - 1, late);
                        note(number - 1, number - 1, late, true);
                }
        }
        return true;
}

/* Threads race with a step that goes on without a switch from where it began: with all its choices. */
static void note_going_on(unsigned int early, unsigned int late)
{
        for (unsigned int i = early; i && plan->choice[i - 1].thread == plan->choice[early].thread;
             i--)
                behind[i].going_on |= (uint8_t)late;
}

static void read_notes(void)
{
        for (unsigned int i = 0; i < plan->notes; i++) {
                const struct note *one = &plan->note[i];

                if (!one->going_on)
                        behind[one->behind].late[one->early] |= one->late;
                note_going_on(one->early, one->late);
        }
        plan->notes = 0;
}

/* Everything behind the last choice of the plan was run. */
static void visit(unsigned int number)
{
        static struct visited_race race[CHOICES_MAX];
        const struct choice *choice = &plan->choice[number];
        uint8_t *late = behind[number].late;
        struct visited_key key = key_of(number);
        struct visited visited = {.race = race, .going_on = behind[number].going_on};

        for (unsigned int i = 0; i < number; i++) {
                if (!late[i])
                        continue;
                race[visited.count++] =
                        (struct visited_race){.thread = (uint8_t)plan->choice[i].thread,
                                              .number = (uint16_t)plan->choice[i].number,
                                              .late = late[i]};
                behind[number - 1].late[i] |= late[i];
        }
        memset(&behind[number], 0, offsetof(struct behind, late) + number + 1);
        behind[number].going_on = 0;
        if (choice->ready & (choice->ready - 1))
                visited_add(&key, choice->used, &visited);
}

/* ---- The next execution ------------------------------------------------------------------- */

/* Behind all footprints of choices in front of it, and of threads done in its place. */
static void begin_step(struct choice *choice)
{
        const struct footprint *before = choice->done            ? &choice->footprint
                                         : choice > plan->choice ? &choice[-1].footprint
                                                                 : NULL;

        choice->footprint = (struct footprint){.first = before ? before->first + before->count : 0};
        choice->access = next_step[choice->thread].access;
        if (next_step[choice->thread].accesses)
                add_range(&choice->footprint, &next_step[choice->thread].range);
}

int reduce_choose(unsigned int ready, int usual, bool stays)
{
        struct choice *choice = &plan->choice[at];
        unsigned int awake;

        if (at)
                end_step();
        if (reduce_is_bounded())
                plan_waiters(ready);
        if (at == CHOICES_MAX)
                explore_fail("an execution has more than %d choices", CHOICES_MAX);
        if (at >= plan->given) {
                *choice = (struct choice){.ready = ready};
                choice->stays = stays ? usual : -1;
                choice->used = at ? preemptions(choice - 1, choice[-1].thread) : 0;
                choice->trace = at ? choice[-1].trace + sum_of(choice - 1) : 0;
                if (reduce_is_bounded() && was_visited(at))
                        return -1;
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
        plan->choice_of[choice->thread][choice->number] = at;
        if (!is_known(at++))
                begin_step(choice);
        return choice->thread;
}

void reduce_end(void)
{
        if (at)
                end_step();
}

bool reduce_next(void)
{
        if (reduce_is_bounded())
                read_notes();
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
                if (reduce_is_bounded())
                        visit(plan->count);
        }
        return false;
}
