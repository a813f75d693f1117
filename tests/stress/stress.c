/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * stress: threads allocate and free checked objects of every kind, under signals all the time,
 * while a further thread shrinks, trims, forks, and creates and destroys caches. At the end all is
 * freed and the heap must say so.
 *
 *   stress [key=value...]
 *     scenario=mixed|producers|churn
 *     threads=N  pinned=0|1  ops=N  seed=N  deadline=SECONDS (without progress)  storm=MICROSECONDS
 *     chaos=shrink+trim+fork+caches (any of them, or none)
 *
 * An operation is an allocation or a free. Library options come from KMEM_OPTIONS.
 */
#define _GNU_SOURCE
#include "../exec.h"
#include "checked.h"
#include "crowd.h"

#include "heap/reclaim.h"
#include "base/options.h"
#include "introspect/totals.h"
#include "unit/walker.h"

#include <malloc.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { HELD_MAX = 128, MAILBOXES = 512, EXIT_SKIP = 77 };

enum scenario { SCENARIO_MIXED, SCENARIO_PRODUCERS, SCENARIO_CHURN };
enum chaos { CHAOS_SHRINK = 1, CHAOS_TRIM = 2, CHAOS_FORK = 4, CHAOS_CACHES = 8 };

static struct {
        enum scenario scenario;
        unsigned int threads;
        bool pinned;
        uint64_t ops;
        uint64_t seed;
        unsigned int deadline_s;
        unsigned int storm_us;
        unsigned int chaos;
} setup = {
        .threads = 4,
        .ops = 1000000,
        .seed = 1,
        .deadline_s = 120,
        .storm_us = 50,
        .chaos = CHAOS_SHRINK | CHAOS_TRIM | CHAOS_FORK | CHAOS_CACHES,
};

/* Objects on their way from thread to thread; the thread that finds an object owns it. */
static void *mailbox[MAILBOXES];
static uint64_t ops_left;
static bool workers_done;
static uint64_t forks, flushes, cache_rounds;

struct worker {
        unsigned int id;
        uint64_t random;
        unsigned int held_count;
        void *held[HELD_MAX];
};

static struct worker workers[CROWD_MAX];
static struct crowd_thread crowd[CROWD_MAX];

/* Takes up to @want operations out of the common budget. */
static unsigned int ops_claim(unsigned int want)
{
        uint64_t left = load_relaxed(&ops_left);
        uint64_t taken;

        do {
                taken = min_of(left, (uint64_t)want);
        } while (taken && !compare_swap(&ops_left, &left, left - taken));
        return (unsigned int)taken;
}

static enum kind random_kind(uint64_t random)
{
        return (enum kind)(random % (unsigned int)KINDS);
}

static void hold_new(struct worker *self)
{
        uint64_t random = random_next(&self->random);
        enum kind kind = random_kind(random >> 8);

        self->held[self->held_count++] =
                checked_alloc(kind, checked_size(kind, random_next(&self->random)), self->id);
}

static void *unhold(struct worker *self, uint64_t random)
{
        unsigned int position = (unsigned int)(random % self->held_count);
        void *object = self->held[position];

        self->held[position] = self->held[--self->held_count];
        return object;
}

/* Swaps an object of ours (or none) with whatever lies in a mailbox; false if none came. */
static bool trade(struct worker *self, void *object)
{
        uint64_t random = random_next(&self->random);
        void *found = __atomic_exchange_n(&mailbox[random % MAILBOXES], object, __ATOMIC_ACQ_REL);

        if (!found)
                return false;
        if (random >> 32 & 1)
                checked_verify(found);
        if (self->held_count < HELD_MAX && random >> 33 & 1)
                self->held[self->held_count++] = found;
        else
                checked_free(found, random >> 40);
        return true;
}

static void mixed_step(struct worker *self)
{
        uint64_t random = random_next(&self->random);
        unsigned int choice = (unsigned int)(random & 15);

        random >>= 8;
        if (choice == 15 && random % 8 == 0)
                checked_bulk(random >> 8, self->id);
        /* Grow and shrink in long waves, so that sheaves, slabs and lists fill and empty. */
        if (self->held_count < HELD_MAX &&
            (self->held_count == 0 || choice < (self->random >> 60 & 1 ? 9u : 5u)))
                hold_new(self);
        else if (choice < 11)
                checked_free(unhold(self, random), random >> 32);
        else if (choice < 14)
                trade(self, unhold(self, random));
        else {
                unsigned int position = (unsigned int)(random % self->held_count);
                size_t size = checked_size(KIND_MALLOC, random_next(&self->random));

                self->held[position] = checked_realloc(self->held[position], size, self->id);
        }
}

static void produce_step(struct worker *self)
{
        hold_new(self);
        trade(self, unhold(self, 0));
}

static void consume_step(struct worker *self)
{
        if (!trade(self, NULL))
                sched_yield();
        if (self->held_count > HELD_MAX / 2)
                checked_free(unhold(self, 0), random_next(&self->random));
}

static void leave_held(struct worker *self)
{
        while (self->held_count) {
                uint64_t random = random_next(&self->random);
                void *object = unhold(self, random);

                object =
                        __atomic_exchange_n(&mailbox[random % MAILBOXES], object, __ATOMIC_ACQ_REL);
                if (object)
                        checked_free(object, random >> 32);
        }
}

static void *worker_main(void *argument)
{
        struct worker *self = argument;
        bool producer = self->id % 2 == 0;
        unsigned int batches = setup.scenario == SCENARIO_CHURN ? 4 : UINT32_MAX;
        unsigned int ops;

        while (batches-- && (ops = ops_claim(100)))
                for (; ops; ops--) {
                        if (setup.scenario != SCENARIO_PRODUCERS)
                                mixed_step(self);
                        else if (producer)
                                produce_step(self);
                        else
                                consume_step(self);
                }
        leave_held(self);
        return NULL;
}

static void start_worker(unsigned int number)
{
        static uint64_t started;

        workers[number].id = number;
        workers[number].random = (setup.seed + ++started) * 0x9e3779b97f4a7c15ull | 1;
        workers[number].held_count = 0;
        crowd[number] = (struct crowd_thread){
                .run = worker_main,
                .argument = &workers[number],
                .cpu = setup.pinned ? (int)number : -1,
                .storm_us = setup.storm_us * max_of(setup.threads / crowd_cpus(), 1u),
        };
        crowd_start(&crowd[number]);
}

/* The child of a fork works on its copy of the heap, with a thread of its own as well. */
static void *child_thread(void *argument)
{
        struct worker *self = argument;

        for (unsigned int step = 0; step < 300; step++)
                mixed_step(self);
        leave_held(self);
        return NULL;
}

static void child_main(uint64_t random)
{
        static struct worker self, other;
        pthread_t thread;
        bool with_thread = random & 1 && !emulated();

        alarm(60);
        memset(mailbox, 0, sizeof(mailbox));
        self = (struct worker){.id = 1000, .random = random | 1};
        other = (struct worker){.id = 1001, .random = random * 3 | 1};
        if (with_thread && pthread_create(&thread, NULL, child_thread, &other))
                fail("a forked child cannot start a thread");
        child_thread(&self);
        if (with_thread)
                pthread_join(thread, NULL);
        if (random & 2)
                malloc_trim(0);
        _exit(0);
}

static void chaos_fork(uint64_t random)
{
        pid_t child = fork();
        int status;

        if (child < 0)
                fail("fork failed");
        if (child == 0)
                child_main(random);
        while (waitpid(child, &status, 0) != child)
                ;
        if (status != 0)
                fail("a forked child ended with status 0x%x", (unsigned int)status);
        forks++;
}

static void chaos_caches(uint64_t random)
{
        unsigned int size = 16 + (unsigned int)(random % 1500);
        bool constructed = random >> 20 & 1;
        struct kmem_cache *cache = kmem_cache_create("stress-brief", size, 0, 0,
                                                     constructed ? checked_constructor : NULL);
        static void *objects[300];

        if (!cache)
                fail("cannot create a cache");
        for (unsigned int i = 0; i < 300; i++) {
                objects[i] = kmem_cache_alloc(cache, GFP_KERNEL);
                if (!objects[i])
                        fail("no memory for a brief cache");
                if (constructed && *(uint64_t *)objects[i] != 0xc0deull << 48)
                        fail("object %p was not constructed", objects[i]);
                checked_claim(objects[i], KIND_BRIEF, size, 2000);
        }
        for (unsigned int i = 0; i < 300; i++) {
                uint64_t word = *(uint64_t *)objects[i];

                if (word >> 48 != 0xa110)
                        fail("object %p of a brief cache has another owner", objects[i]);
                *(uint64_t *)objects[i] = 0;
                kmem_cache_free(cache, objects[i]);
        }
        kmem_cache_destroy(cache);
        cache_rounds++;
}

static void chaos_step(uint64_t *state)
{
        uint64_t random = random_next(state);
        unsigned int action = 1u << (random >> 60 & 3);

        if (!(setup.chaos & action)) {
                sched_yield();
                return;
        }
        random >>= 4;
        if (action == CHAOS_SHRINK)
                kmem_cache_shrink(checked_cache((unsigned int)(random % NAMED_CACHES)));
        else if (action == CHAOS_TRIM)
                malloc_trim(random & 1 ? 0 : 1 << 20);
        else if (action == CHAOS_FORK)
                chaos_fork(random);
        else
                chaos_caches(random);
        flushes += action <= CHAOS_TRIM;
        sched_yield();
}

static void *chaos_main(void *argument)
{
        uint64_t random = setup.seed * 7919 | 1;

        (void)argument;
        while (!load_acquire(&workers_done))
                chaos_step(&random);
        return NULL;
}

/* Until the budget is used up, every thread that ends makes place for a new thread. */
static void renew_workers(void)
{
        while (load_relaxed(&ops_left))
                for (unsigned int number = 0; number < setup.threads; number++) {
                        crowd_join(&crowd[number]);
                        start_worker(number);
                }
}

static void run_workers(void)
{
        struct crowd_thread chaos = {.run = chaos_main, .cpu = -1};

        ops_left = setup.ops;
        for (unsigned int number = 0; number < setup.threads; number++)
                start_worker(number);
        crowd_start(&chaos);
        if (setup.scenario == SCENARIO_CHURN)
                renew_workers();
        for (unsigned int number = 0; number < setup.threads; number++)
                crowd_join(&crowd[number]);
        store_release(&workers_done, true);
        crowd_join(&chaos);
}

static void empty_mailboxes(void)
{
        for (unsigned int i = 0; i < MAILBOXES; i++)
                if (mailbox[i]) {
                        checked_free(mailbox[i], i);
                        mailbox[i] = NULL;
                }
}

/* After a trim every slab that is left holds an object, and pages in use are slabs or large. */
static void check_rest(uint64_t inuse_before)
{
        struct heap_totals totals;
        struct walk_counts walked;
        struct list *node;

        heap_trim(0);
        walk_heap(NULL, &walked);
        heap_total(&totals);
        if (totals.objects_inuse != inuse_before)
                fail("%lu objects are in use, %lu were at the start",
                     (unsigned long)totals.objects_inuse, (unsigned long)inuse_before);
        if (walked.inuse != totals.objects_inuse)
                fail("slabs hold %lu objects, the totals say %lu", (unsigned long)walked.inuse,
                     (unsigned long)totals.objects_inuse);
        if (walked.slab_pages + walked.large_pages + 1 != totals.pages.used_pages)
                fail("%zu pages are in use; slabs have %lu, large blocks %lu",
                     totals.pages.used_pages, (unsigned long)walked.slab_pages,
                     (unsigned long)walked.large_pages);
        list_for_each (node, &cache_list) {
                struct kmem_cache *cache = container_of(node, struct kmem_cache, list);
                struct cache_totals one;
                uint64_t inuse;

                cache_total(cache, &one);
                /* With engine slob, the objects of all caches lie in the pages of cache slob. */
                inuse = cache == cache->engine->shared ? totals.objects_inuse : one.inuse;
                if (one.nodes.slabs > inuse)
                        fail("%s keeps %lu slabs for %lu objects", cache->name,
                             (unsigned long)one.nodes.slabs, (unsigned long)inuse);
        }
}

static void *nothing(void *argument)
{
        return argument;
}

/* Whatever libc allocates once, it has allocated after this. */
static uint64_t warm_up(void)
{
        struct crowd_thread one = {.run = nothing, .cpu = -1, .storm_us = 1000};
        struct heap_totals totals;

        crowd_start(&one);
        crowd_join(&one);
        heap_total(&totals);
        return totals.objects_inuse;
}

static unsigned int parse_chaos(const char *text)
{
        return (strstr(text, "shrink") ? CHAOS_SHRINK : 0u) |
               (strstr(text, "trim") ? CHAOS_TRIM : 0u) | (strstr(text, "fork") ? CHAOS_FORK : 0u) |
               (strstr(text, "caches") ? CHAOS_CACHES : 0u);
}

static enum scenario parse_scenario(const char *text)
{
        if (strcmp(text, "producers") == 0)
                return SCENARIO_PRODUCERS;
        if (strcmp(text, "churn") == 0)
                return SCENARIO_CHURN;
        if (strcmp(text, "mixed") != 0)
                fail("scenario=%s: expected mixed, producers or churn", text);
        return SCENARIO_MIXED;
}

static void parse_argument(const char *argument)
{
        const char *value = strchr(argument, '=');
        size_t length = value ? (size_t)(value++ - argument) : 0;
        uint64_t number = value ? strtoull(value, NULL, 10) : 0;

#define IS(name) (length == sizeof(name) - 1 && memcmp(argument, name, length) == 0)
        if (IS("scenario"))
                setup.scenario = parse_scenario(value);
        else if (IS("threads"))
                setup.threads = (unsigned int)number;
        else if (IS("pinned"))
                setup.pinned = number != 0;
        else if (IS("ops"))
                setup.ops = number;
        else if (IS("seed"))
                setup.seed = number;
        else if (IS("deadline"))
                setup.deadline_s = (unsigned int)number;
        else if (IS("storm"))
                setup.storm_us = (unsigned int)number;
        else if (IS("chaos"))
                setup.chaos = parse_chaos(value);
        else
                fail("%s: expected scenario, threads, pinned, ops, seed, deadline, storm or chaos",
                     argument);
#undef IS
}

int main(int argc, char **argv)
{
        uint64_t inuse_before;

        for (int i = 1; i < argc; i++)
                parse_argument(argv[i]);
        checked_caches_create();
        if (options.slots == SLOTS_RSEQ && !slots_are_rseq()) {
                puts("skipped: no restartable sequences here");
                return EXIT_SKIP;
        }
        /*
         * The emulator holds a lock of its own while a thread starts, and fork copies it held:
         * then the child waits for it without end at its first thread.
         */
        if (emulated() && setup.chaos & CHAOS_FORK)
                puts("# under the emulator forked children start no threads");
        crowd_init(&ops_left, setup.deadline_s);
        inuse_before = warm_up();
        run_workers();
        empty_mailboxes();
        check_rest(inuse_before);
        checked_caches_destroy();
        dprintf(STDOUT_FILENO,
                "ok: %lu operations, %lu signals, %lu flushes, %lu forks, %lu caches\n",
                (unsigned long)setup.ops, (unsigned long)crowd_storm_count(),
                (unsigned long)flushes, (unsigned long)forks, (unsigned long)cache_rounds);
        return 0;
}
