/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * interleave: a call is stopped between two of its instructions, another thread makes a whole call
 * of its own meanwhile, and the first goes on. The two calls, their objects and the instruction are
 * drawn at random. At every place, no object may be handed out twice, none may be lost, and the
 * slabs must be sound. If the other call waits for a lock of the stopped call, the stopped call
 * goes on after a while.
 *
 * A stop aborts a restartable sequence, so with slots=rseq the stops are in slow paths; with
 * slots=locked they are anywhere.
 *
 *   interleave [key=value...]
 *     trials=N  seed=N  first=N (earlier trials are made without a stop, to find a fault again)
 *     groups=1  both threads are in a memory group, and half of their objects are charged to it
 */
#define _GNU_SOURCE
#include "checked.h"
#include "crowd.h"

#include "heap/reclaim.h"
#include "base/options.h"
#include "introspect/totals.h"
#include "unit/steps.h"
#include "unit/walker.h"

#include <linux/futex.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>

enum {
        HELD_MAX = 3000,
        WORKER = 1,
        WALK_EVERY = 64,    /* trials */
        PATIENCE_US = 2000, /* time for which the stopped call waits for the other */
        EXIT_SKIP = 77,
};

enum operation {
        ALLOCATE,
        FREE,
        ALLOCATE_BULK,
        FREE_BULK,
        RESIZE,
        FREE_RCU,
        SHRINK,
        FLUSH,
        TRIM,
        LOOK,
        CAPACITY,
        BRIEF_CACHE,
        FIGURES,
        OPERATIONS_TO_STOP,
        BRIEF_THREAD = OPERATIONS_TO_STOP,
        RCU_BARRIER,
        FORK,
        OPERATIONS,
};

static const char *const names[OPERATIONS] = {
        "allocate", "free",         "allocate_bulk", "free_bulk", "resize",   "free_rcu",
        "shrink",   "flush",        "trim",          "look",      "capacity", "brief_cache",
        "figures",  "brief_thread", "rcu_barrier",   "fork",
};

/* A thread's operation, drawn before, and its outcome. */
struct call {
        enum operation operation;
        unsigned int owner;
        enum kind kind;
        size_t size;
        gfp_t flags;
        struct kmem_cache *cache;
        void *object[BULK_MAX];
        unsigned int count;
        uint64_t random;
};

static struct call calls[2]; /* the stopped one's, and the worker's */
static uint64_t trials = 1500, seed = 1, first_stop, groups;
static struct kmem_group *group; /* of both threads; NULL: none */
static uint64_t trial;
static unsigned int step;
static enum kind theme; /* of most objects in this trial, so that the calls meet */
static uint64_t random_state;
static uint64_t stopped,
        waited; /* trials with a stop; of these, trials with a worker that was not over meanwhile */

static void *held[HELD_MAX];
static enum kind held_kind[HELD_MAX];
static unsigned int held_count;

static uint64_t draw(void)
{
        return random_next(&random_state) >> 16;
}

/* ---- The calls ----------------------------------------------------------------------------- */

/* A held object of that kind, if there is any. */
static unsigned int pick_held(enum kind kind)
{
        unsigned int number = (unsigned int)(draw() % held_count);

        for (unsigned int i = 0; i < held_count && held_kind[number] != kind; i++)
                number = (number + 1) % held_count;
        return number;
}

static void *drop_held(unsigned int number)
{
        void *object = held[number];

        held[number] = held[--held_count];
        held_kind[number] = held_kind[held_count];
        return object;
}

static void keep(void *object, enum kind kind, size_t size, unsigned int owner)
{
        if (!object)
                fail("no memory for %zu bytes, kind %d", size, (int)kind);
        checked_claim(object, kind, size, owner);
        held[held_count] = object;
        held_kind[held_count++] = kind;
}

static enum kind draw_kind(void)
{
        return draw() % 4 ? (enum kind)(KIND_CACHE + (int)(draw() % NAMED_CACHES)) : KIND_KMALLOC;
}

/* kmalloc's blocks are large more often than elsewhere. */
static size_t draw_size(enum kind kind)
{
        if (kind == KIND_KMALLOC && draw() % 6 == 0)
                return 8 + draw() % (CHECKED_BYTES_MAX - 8);
        return checked_size(kind, random_next(&random_state));
}

/* Held objects leave the list of them here, and marked as free, before any thread runs. */
static void prepare(struct call *call, unsigned int owner, enum operation operation)
{
        *call = (struct call){.operation = operation, .owner = owner, .random = draw()};
        call->kind = draw() % 4 ? theme : draw_kind();
        /* Objects of named caches do not become blocks. */
        if (operation == RESIZE)
                call->kind = KIND_KMALLOC;
        if (operation == ALLOCATE_BULK && call->kind == KIND_KMALLOC)
                call->kind = KIND_CACHE;
        call->cache = checked_cache(
                call->kind >= KIND_CACHE ? (unsigned int)(call->kind - KIND_CACHE) : 0);
        call->size = draw_size(call->kind);
        call->flags = group && draw() % 2 ? GFP_KERNEL_ACCOUNT : GFP_KERNEL;
        if (operation == ALLOCATE_BULK)
                call->count = 1 + (unsigned int)(draw() % BULK_MAX);
        if (operation != FREE && operation != FREE_BULK && operation != RESIZE &&
            operation != FREE_RCU)
                return;
        call->count = operation == FREE_BULK ? 1 + (unsigned int)(draw() % BULK_MAX) : 1;
        call->count = min_of(call->count, held_count);
        for (unsigned int i = 0; i < call->count; i++) {
                bool another = operation == FREE_BULK && draw() % 8 == 0;
                unsigned int number = pick_held(another ? draw_kind() : call->kind);

                if (operation == RESIZE && held_kind[number] != KIND_KMALLOC) {
                        call->count = 0;
                        return;
                }
                call->object[i] = drop_held(number);
                checked_release(call->object[i]);
        }
}

/* Takes and gives back a few of everything. */
static void *use_all(void *unused)
{
        void *objects[NAMED_CACHES][10];

        for (unsigned int number = 0; number < NAMED_CACHES; number++)
                for (unsigned int i = 0; i < 10; i++)
                        objects[number][i] = checked_alloc(
                                KIND_CACHE + number, checked_size(KIND_CACHE + number, 0), 99);
        for (unsigned int number = 0; number < NAMED_CACHES; number++)
                for (unsigned int i = 0; i < 10; i++)
                        checked_free(objects[number][i], 7);
        return unused;
}

/* Its slot may be the slot of an earlier thread. */
static void make_thread(void)
{
        struct crowd_thread brief = {.run = use_all, .cpu = -1};

        crowd_start(&brief);
        crowd_join(&brief);
}

/*
 * The stopped call is a call of a thread that the child does not have; all other calls must work in
 * it.
 */
static void make_child(const struct call *call)
{
        pid_t child = fork();
        int status;

        if (child < 0)
                fail("fork failed");
        if (child == 0) {
                alarm(20);
                use_all(NULL);
                kmem_cache_shrink(call->cache);
                heap_trim(0);
                _exit(0);
        }
        while (waitpid(child, &status, 0) != child)
                ;
        if (status != 0)
                fail("a forked child ended with status 0x%x", (unsigned int)status);
}

static void make_brief_cache(uint64_t random)
{
        char name[40];
        struct kmem_cache *brief;
        void *objects[20];

        snprintf(name, sizeof(name), "brief-%lu", (unsigned long)random);
        brief = kmem_cache_create(name, 8 + (unsigned int)(random % 500), 0, 0, NULL);
        if (!brief || kmem_cache_alloc_bulk(brief, GFP_KERNEL, 20, objects) != 20)
                fail("no memory for %s", name);
        kmem_cache_free_bulk(brief, 20, objects);
        kmem_cache_destroy(brief);
}

static void read_figures(struct kmem_cache *cache)
{
        struct kmem_cache_info info = {.size = sizeof(info)};
        struct kmem_stats stats = {.size = sizeof(stats)};
        uint64_t position = 0;
        char text[KMEM_ATTR_BYTES];

        if (kmem_stats_get(&stats) || kmem_cache_info(cache, &info) ||
            kmem_attr_read(info.name, "slabs_cpu_partial", text, sizeof(text)) < 0)
                fail("no figures");
        while (kmem_cache_next(&position, &info))
                ;
}

/* The library's calls and nothing else, which would only be more to stop in. */
static void make(struct call *call)
{
        static uint64_t now_ms = 1;

        switch (call->operation) {
        case ALLOCATE:
                call->object[0] = call->kind >= KIND_CACHE
                                          ? kmem_cache_alloc(call->cache, call->flags)
                                          : kmalloc(call->size, call->flags);
                break;
        case FREE:
                if (call->count)
                        kfree(call->object[0]);
                break;
        case ALLOCATE_BULK:
                if (kmem_cache_alloc_bulk(call->cache, call->flags, call->count, call->object) !=
                    (int)call->count)
                        fail("no memory for %u objects", call->count);
                break;
        case FREE_BULK:
                kfree_bulk(call->count, call->object);
                break;
        case RESIZE:
                if (call->count)
                        call->object[0] = krealloc(call->object[0], call->size, call->flags);
                break;
        case FREE_RCU:
                if (call->count)
                        kvfree_rcu(call->object[0]);
                break;
        case SHRINK:
                kmem_cache_shrink(call->cache);
                break;
        case FLUSH:
                percpu_flush(call->cache, false);
                break;
        case TRIM:
                heap_trim(0);
                break;
        case LOOK:
                reclaim_step(now_ms += options.purge_delay);
                break;
        case CAPACITY:
                lock_take(&cache_mutex);
                percpu_change_capacity(call->cache,
                                       (uint32_t)(call->random % (call->cache->sheaf_room + 1)));
                lock_drop(&cache_mutex);
                break;
        case BRIEF_CACHE:
                make_brief_cache(call->random);
                break;
        case FIGURES:
                read_figures(call->cache);
                break;
        case BRIEF_THREAD:
                make_thread();
                break;
        case RCU_BARRIER:
                kfree_rcu_barrier();
                break;
        case FORK:
                make_child(call);
                break;
        default:
                break;
        }
}

static void finish(struct call *call)
{
        if (call->operation == ALLOCATE || (call->operation == RESIZE && call->count))
                keep(call->object[0], call->operation == RESIZE ? KIND_KMALLOC : call->kind,
                     call->size, call->owner);
        else if (call->operation == ALLOCATE_BULK)
                for (unsigned int i = 0; i < call->count; i++)
                        keep(call->object[i], call->kind, call->size, call->owner);
}

/* ---- The two threads ----------------------------------------------------------------------- */

static uint32_t turns;      /* that the worker was given */
static uint32_t turns_over; /* of them */

static void give_turn(void)
{
        add_relaxed(&turns, 1);
        /* The system call orders it. */
        syscall(SYS_futex, &turns, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}

static bool turn_is_over(void)
{
        return load_acquire(&turns_over) == load_relaxed(&turns);
}

static void *work(void *unused)
{
        kmem_group_set(group);
        for (;;) {
                while (load_acquire(&turns) == load_relaxed(&turns_over))
                        syscall(SYS_futex, &turns, FUTEX_WAIT_PRIVATE, turns_over, NULL, NULL, 0);
                if (trial == trials)
                        return unused;
                make(&calls[WORKER]);
                store_release(&turns_over, turns_over + 1);
        }
}

static uint64_t now_us(void)
{
        struct timespec now;

        clock_gettime(CLOCK_MONOTONIC, &now);
        return (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000;
}

static void let_worker_go(void)
{
        uint64_t begun = now_us();

        stopped++;
        give_turn();
        while (!turn_is_over() && now_us() - begun < PATIENCE_US)
                sched_yield();
        waited += !turn_is_over();
}

static void make_stopped(void)
{
        make(&calls[0]);
}

/* ---- Trials -------------------------------------------------------------------------------- */

static void check_rest(void)
{
        struct walk_counts counts;

        for (unsigned int i = 0; i < held_count; i++)
                checked_verify(held[i]);
        lock_take(&cache_mutex);
        walk_heap(NULL, &counts);
        lock_drop(&cache_mutex);
}

static void check_group(void)
{
        struct kmem_group_stats stats;

        if (!group)
                return;
        if (kmem_group_stats(group, &stats) || stats.bytes || stats.objects || !stats.peak)
                fail("%zu bytes of %zu objects are charged after all were freed", stats.bytes,
                     stats.objects);
        kmem_group_destroy(group);
}

/* As many allocations as frees when half of the list is full. */
static enum operation draw_operation(unsigned int limit)
{
        enum operation operation = (enum operation)(draw() % limit);
        bool much = held_count > draw() % (HELD_MAX - 2 * BULK_MAX);

        if (draw() % 2 == 0)
                operation = (enum operation)(draw() % (FREE_RCU + 1));
        if (operation == ALLOCATE || operation == FREE)
                return much ? FREE : ALLOCATE;
        if (operation == ALLOCATE_BULK || operation == FREE_BULK)
                return much ? FREE_BULK : ALLOCATE_BULK;
        return operation;
}

static void try_once(void)
{
        unsigned int exponent = (unsigned int)(draw() % 13);

        theme = draw_kind();
        prepare(&calls[0], 1, draw_operation(OPERATIONS_TO_STOP));
        prepare(&calls[WORKER], 2, draw_operation(OPERATIONS));
        /* Only one thread looks at a time, as the reclaim thread does. */
        if (calls[0].operation == LOOK && calls[WORKER].operation == LOOK)
                calls[WORKER].operation = TRIM;
        step = (unsigned int)(draw() % (1u << exponent));
        if (trial < first_stop)
                make_stopped();
        if (trial < first_stop || !run_with_act_at(step, make_stopped, let_worker_go))
                give_turn();
        while (!turn_is_over())
                sched_yield();
        finish(&calls[0]);
        finish(&calls[WORKER]);
}

static void say_where(int number)
{
        dprintf(STDERR_FILENO, "seed=%lu trial %lu: %s, and behind instruction %u of it %s\n",
                (unsigned long)seed, (unsigned long)trial, names[calls[0].operation], step,
                names[calls[WORKER].operation]);
        signal(number, SIG_DFL);
        raise(number);
}

static void parse_argument(const char *argument)
{
        const char *value = strchr(argument, '=');
        size_t length = value ? (size_t)(value - argument) : 0;
        uint64_t *place = NULL;

        if (length == 6 && !memcmp(argument, "trials", length))
                place = &trials;
        else if (length == 4 && !memcmp(argument, "seed", length))
                place = &seed;
        else if (length == 5 && !memcmp(argument, "first", length))
                place = &first_stop;
        else if (length == 6 && !memcmp(argument, "groups", length))
                place = &groups;
        else
                fail("%s: not known", argument);
        *place = strtoull(value + 1, NULL, 10);
}

int main(int argc, char **argv)
{
        struct crowd_thread worker = {.run = work, .cpu = -1};

        for (int i = 1; i < argc; i++)
                parse_argument(argv[i]);
        if (why_no_steps()) {
                printf("skipped: %s\n", why_no_steps());
                return EXIT_SKIP;
        }
        checked_caches_create();
        /* The thread's looks are ours to make; its start, and that of the registry, block the traps. */
        if (options.reclaim_thread != RECLAIM_OFF || options.registry != REGISTRY_ON)
                fail("expected options reclaim_thread=off,registry=on");
        use_all(NULL); /* makes it, if it can be made */
        signal(SIGABRT, say_where);
        signal(SIGSEGV, say_where);
        random_state = seed * 0x9e3779b97f4a7c15ull | 1;
        if (groups && !(group = kmem_group_create("interleave", NULL, 0)))
                fail("cannot make a group");
        kmem_group_set(group);
        crowd_init(&trial, 60);
        crowd_start(&worker);
        for (; trial < trials; trial++) {
                try_once();
                if (trial % WALK_EVERY == 0)
                        check_rest();
        }
        give_turn();
        crowd_join(&worker);
        while (held_count)
                checked_free(drop_held(held_count - 1), 7);
        kfree_rcu_barrier();
        check_rest();
        check_group();
        checked_caches_destroy();
        dprintf(STDOUT_FILENO, "ok: %lu trials, %lu with a stop, %lu of those not over in it\n",
                (unsigned long)trials, (unsigned long)stopped, (unsigned long)waited);
        return 0;
}
