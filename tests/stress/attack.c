/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * attack: a cache, tight loops, and a single protocol at a time under as much disturbance as the
 * machine can give. Every object taken is marked as held at once, so that a second owner is seen;
 * at the end the counts must be exact, shrinking must leave nothing, and all slabs are walked.
 *
 *   attack [key=value...]
 *     mode=single   allocate and free in small rings: the sequences of single objects
 *     mode=bulk     allocate and free with the bulk calls
 *     mode=cross    every object is freed by another thread: frees into others' slabs
 *     path=call|inline  by the library's calls, or by kmem-inline.h: the sequences in this program
 *     against=flush+shrink+fork+capacity+purge+look (any of them): work of a further thread
 *                   in a loop; look is the reclaim thread's, which must be off then
 *     pin=one|each|free  all threads on a single CPU, or thread n on CPU n, or none
 *     threads=N  ops=N  size=BYTES  ring=N  storm=MICROSECONDS  seed=N
 */
#define _GNU_SOURCE
#include "checked.h"
#include "crowd.h"

#include "heap/reclaim.h"
#include "base/options.h"
#include "introspect/totals.h"
#include "kmem-inline.h"
#include "unit/walker.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { RING_MAX = 200, POSTS = 64, EXIT_SKIP = 77 };
enum mode { MODE_SINGLE, MODE_BULK, MODE_CROSS };
enum against {
        AGAINST_FLUSH = 1,
        AGAINST_SHRINK = 2,
        AGAINST_FORK = 4,
        AGAINST_CAPACITY = 8,
        AGAINST_PURGE = 16,
        AGAINST_LOOK = 32,
};

static const uint64_t HELD = 0xa110ull << 48;

static struct {
        enum mode mode;
        bool inlined;
        unsigned int against;
        char pin;
        unsigned int threads;
        uint64_t ops;
        unsigned int size;
        unsigned int ring;
        unsigned int storm_us;
        uint64_t seed;
} setup = {
        .pin = 'e', .threads = 4, .ops = 1000000, .size = 64, .ring = 6, .storm_us = 50, .seed = 1};

static struct kmem_cache *cache;
static uint64_t ops_done;
static bool stopping;
static uint64_t rounds_against;
static void *post[POSTS];

struct attacker {
        unsigned int id;
        uint64_t random;
        void *ring[RING_MAX];
        unsigned int held;
};

static struct attacker attackers[CROWD_MAX];
static struct crowd_thread crowd[CROWD_MAX];

static void claim(void *object, unsigned int id)
{
        uint64_t before;

        if (!object)
                fail("no memory");
        before = __atomic_exchange_n((uint64_t *)object, HELD | id, __ATOMIC_ACQ_REL);
        if (before >> 48 == HELD >> 48)
                fail("object %p was handed out twice: held as 0x%lx", object,
                     (unsigned long)before);
}

static void release(void *object, uint64_t word)
{
        uint64_t before = __atomic_exchange_n((uint64_t *)object, 0, __ATOMIC_ACQ_REL);

        if (word ? before != word : before >> 48 != HELD >> 48)
                fail("object %p: 0x%lx where its owner left 0x%lx", object, (unsigned long)before,
                     (unsigned long)word);
}

static void *take(void)
{
        return setup.inlined ? kmem_cache_alloc_inline(cache, 0) : kmem_cache_alloc(cache, 0);
}

static void give(void *object)
{
        if (setup.inlined)
                kmem_cache_free_inline(cache, object);
        else
                kmem_cache_free(cache, object);
}

static void single_round(struct attacker *self)
{
        unsigned int count = 1 + (unsigned int)(random_next(&self->random) % setup.ring);

        for (unsigned int i = 0; i < count; i++)
                claim(self->ring[i] = take(), self->id);
        for (unsigned int i = 0; i < count; i++) {
                release(self->ring[i], HELD | self->id);
                give(self->ring[i]);
        }
}

static void bulk_round(struct attacker *self)
{
        unsigned int count = 3 + (unsigned int)(random_next(&self->random) % setup.ring);

        if (kmem_cache_alloc_bulk(cache, 0, count, self->ring) != (int)count)
                fail("no memory");
        for (unsigned int i = 0; i < count; i++)
                claim(self->ring[i], self->id);
        for (unsigned int i = 0; i < count; i++)
                release(self->ring[i], HELD | self->id);
        kmem_cache_free_bulk(cache, count, self->ring);
}

/* Swaps a fresh object with an object that another thread left, and frees the latter. */
static void cross_round(struct attacker *self)
{
        for (unsigned int i = 0; i < setup.ring; i++) {
                uint64_t random = random_next(&self->random);
                void *object = take();

                claim(object, self->id);
                object = __atomic_exchange_n(&post[random % POSTS], object, __ATOMIC_ACQ_REL);
                if (object) {
                        release(object, 0);
                        give(object);
                }
        }
}

static void *attacker_main(void *argument)
{
        struct attacker *self = argument;

        while (load_relaxed(&ops_done) < setup.ops) {
                for (unsigned int round = 0; round < 50; round++)
                        if (setup.mode == MODE_SINGLE)
                                single_round(self);
                        else if (setup.mode == MODE_BULK)
                                bulk_round(self);
                        else
                                cross_round(self);
                add_relaxed(&ops_done, 50ul * setup.ring);
        }
        return NULL;
}

/* A child needs every lock, every slot and the sheaves that its parent's threads left. */
static void child_main(uint64_t random)
{
        static struct attacker self;
        static void *objects[500];

        alarm(20);
        self = (struct attacker){.id = 9999, .random = random | 1};
        for (unsigned int i = 0; i < 500; i++)
                claim(objects[i] = take(), 9999);
        for (unsigned int i = 0; i < 500; i++) {
                release(objects[i], HELD | 9999);
                give(objects[i]);
        }
        for (unsigned int round = 0; round < 50; round++)
                single_round(&self);
        kmem_cache_shrink(cache);
        _exit(0);
}

static void against_fork(uint64_t random)
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
}

/* Sheaves of all sizes, and none. */
static void against_capacity(uint64_t random)
{
        lock_take(&cache_mutex);
        percpu_change_capacity(cache, (uint32_t)(random % (cache->sheaf_room + 1)));
        lock_drop(&cache_mutex);
}

/* Few slabs at a time, so that the list changes while its purge is under way. */
static void against_purge(void)
{
        size_t bytes = 0;

        for (unsigned int node = 0; node < system_nodes(); node++)
                while (!cache->engine->purge(cache, node, 3, &bytes) && !load_acquire(&stopping))
                        ;
}

/* Each look finds a clock that is a purge delay further. */
static void against_look(void)
{
        static uint64_t now_ms = 1;

        reclaim_step(now_ms += options.purge_delay);
}

static void *against_main(void *argument)
{
        uint64_t random = setup.seed | 1;

        (void)argument;
        while (!load_acquire(&stopping)) {
                if (setup.against & AGAINST_FLUSH)
                        percpu_flush(cache, false);
                if (setup.against & AGAINST_SHRINK)
                        cache->engine->shrink(cache);
                if (setup.against & AGAINST_FORK)
                        against_fork(random_next(&random));
                if (setup.against & AGAINST_CAPACITY)
                        against_capacity(random_next(&random));
                if (setup.against & AGAINST_PURGE)
                        against_purge();
                if (setup.against & AGAINST_LOOK)
                        against_look();
                rounds_against++;
        }
        return NULL;
}

static int cpu_of(unsigned int number)
{
        return setup.pin == 'o' ? 0 : setup.pin == 'e' ? (int)number : -1;
}

static void run(void)
{
        /* Beside the attackers: on the last CPU if they are all on the first. */
        struct crowd_thread against = {.run = against_main, .cpu = setup.pin == 'o' ? 1 : -1};

        for (unsigned int number = 0; number < setup.threads; number++) {
                attackers[number].id = number + 1;
                attackers[number].random = (setup.seed * 1000 + number) * 0x9e3779b97f4a7c15ull | 1;
                crowd[number] = (struct crowd_thread){
                        .run = attacker_main,
                        .argument = &attackers[number],
                        .cpu = cpu_of(number),
                        .storm_us = setup.storm_us,
                };
                crowd_start(&crowd[number]);
        }
        if (setup.against)
                crowd_start(&against);
        for (unsigned int number = 0; number < setup.threads; number++)
                crowd_join(&crowd[number]);
        store_release(&stopping, true);
        if (setup.against)
                crowd_join(&against);
}

static void check_rest(void)
{
        struct walk_counts counts;
        struct cache_totals totals;

        for (unsigned int i = 0; i < POSTS; i++)
                if (post[i]) {
                        release(post[i], 0);
                        kmem_cache_free(cache, post[i]);
                }
        /* The reclaim thread, which slices need, empties sheaves otherwise while we look. */
        lock_take(&cache_mutex);
        walk_heap(cache, &counts);
        cache_total(cache, &totals);
        lock_drop(&cache_mutex);
        if (totals.inuse)
                fail("%lu objects are lost", (unsigned long)totals.inuse);
        if (totals.resting != counts.inuse)
                fail("slabs miss %lu objects, sheaves hold %lu", (unsigned long)counts.inuse,
                     (unsigned long)totals.resting);
        if (kmem_cache_shrink(cache))
                fail("slabs remain after all is free");
        lock_take(&cache_mutex);
        walk_heap(cache, &counts);
        lock_drop(&cache_mutex);
        kmem_cache_destroy(cache);
}

static unsigned int parse_against(const char *text)
{
        return (strstr(text, "flush") ? AGAINST_FLUSH : 0u) |
               (strstr(text, "shrink") ? AGAINST_SHRINK : 0u) |
               (strstr(text, "fork") ? AGAINST_FORK : 0u) |
               (strstr(text, "capacity") ? AGAINST_CAPACITY : 0u) |
               (strstr(text, "purge") ? AGAINST_PURGE : 0u) |
               (strstr(text, "look") ? AGAINST_LOOK : 0u);
}

static void parse_argument(const char *argument)
{
        const char *value = strchr(argument, '=');
        size_t length = value ? (size_t)(value++ - argument) : 0;
        uint64_t number = value ? strtoull(value, NULL, 10) : 0;

#define IS(name) (length == sizeof(name) - 1 && memcmp(argument, name, length) == 0)
        if (IS("mode"))
                setup.mode = *value == 's' ? MODE_SINGLE : *value == 'b' ? MODE_BULK : MODE_CROSS;
        else if (IS("path"))
                setup.inlined = *value == 'i';
        else if (IS("against"))
                setup.against = parse_against(value);
        else if (IS("pin"))
                setup.pin = *value;
        else if (IS("threads"))
                setup.threads = (unsigned int)number;
        else if (IS("ops"))
                setup.ops = number;
        else if (IS("size"))
                setup.size = (unsigned int)number;
        else if (IS("ring"))
                setup.ring = (unsigned int)min_of(number, (uint64_t)RING_MAX - 4);
        else if (IS("storm"))
                setup.storm_us = (unsigned int)number;
        else if (IS("seed"))
                setup.seed = number;
        else
                fail("%s: not known", argument);
#undef IS
}

int main(int argc, char **argv)
{
        for (int i = 1; i < argc; i++)
                parse_argument(argv[i]);
        cache = kmem_cache_create("attack", setup.size, 0, 0, NULL);
        if (!cache)
                fail("cannot create a cache");
        if (options.slots == SLOTS_RSEQ && !slots_are_rseq()) {
                puts("skipped: no restartable sequences here");
                return EXIT_SKIP;
        }
        if (setup.inlined && !KMEM_INLINES) {
                puts("skipped: nothing is inlined on this machine, or by this compiler");
                return EXIT_SKIP;
        }
        crowd_init(&ops_done, 60);
        run();
        check_rest();
        dprintf(STDOUT_FILENO, "ok: %lu operations, %lu signals, %lu rounds against them\n",
                (unsigned long)ops_done, (unsigned long)crowd_storm_count(),
                (unsigned long)rounds_against);
        return 0;
}
