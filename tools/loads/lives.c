/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * The lives of a load's processes. A single parent forks all of them, then waits for them; each ends
 * where it ran last. The parent does so `runs` times over. The column `freed` of the table of caches says when an object of a process goes
 * back:
 *
 *   exit      as the process ends, on its CPU
 *   exit-rcu  a grace period later, on that CPU
 *   reap      as the parent reaps the process, on the parent's CPU
 *   reap-rcu  a grace period later, on that CPU
 *
 * A CPU gives back what its grace periods let go before it does anything else: Linux does so in a
 * soft interrupt. All samples of the memory are kept, from the first fork to the last reap.
 */
#include "tools/loads/loads.h"

#include "simulator/machine/state.h"

#include <stdio.h>
#include <stdlib.h>

enum {
        POINTS = 100, /* samples of each of fork, messages and exits */
        PS_PER_NS = 1000,
};

struct waiting_object {
        struct waiting_object *next;
        uint64_t due_ps;
        void *object;
        unsigned int kind;
};

/* Objects that wait for a grace period, first in first out. */
struct grace {
        struct waiting_object *first;
        struct waiting_object **last;
};

struct point {
        uint64_t ns; /* of the CPU that does it; clocks of CPUs differ by a step */
        unsigned int run;
        unsigned int forked;
        unsigned int ended;
        unsigned int reaped;
        uint64_t messages;
        uint64_t slab_kib;
        uint64_t live_kib;
};

static struct lives {
        const struct lives_of *of;
        struct task parent;
        struct grace *grace;    /* by CPU */
        unsigned int *unreaped; /* numbers of the tasks that ended, a stack */
        unsigned int run;       /* from 0 */
        unsigned int count;     /* of all tasks; this and the next four are of a run */
        unsigned int forked;
        unsigned int ended;
        unsigned int reaped;
        uint64_t messages;
        uint64_t messages_all;
        uint64_t start_ps;
        struct point *points;
        unsigned int point_count;
} lives;

/* ---- Samples ----------------------------------------------------------------------------- */

static void note_point(void)
{
        lives.points[lives.point_count++] = (struct point){
                .ns = (sim.clock - lives.start_ps) / PS_PER_NS,
                .run = lives.run,
                .forked = lives.forked,
                .ended = lives.ended,
                .reaped = lives.reaped,
                .messages = lives.messages,
                .slab_kib = load_slab_kib(),
                .live_kib = object_counts.live_bytes / 1024,
        };
}

/* One more of @all things was done: a sample at each hundredth. */
static void note_progress(uint64_t done, uint64_t all)
{
        if (done * POINTS / all != (done - 1) * POINTS / all)
                note_point();
}

void lives_message(void)
{
        note_progress(++lives.messages, lives.messages_all);
}

void lives_print(void)
{
        printf(" \"curve\": [");
        for (unsigned int i = 0; i < lives.point_count; i++) {
                const struct point *point = &lives.points[i];

                printf("%s\n  {\"ns\": %lu, \"run\": %u, \"forked\": %u, \"ended\": %u, "
                       "\"reaped\": %u,"
                       " \"messages\": %lu, \"slab_kib\": %lu, \"live_kib\": %lu}",
                       i ? "," : "", (unsigned long)point->ns, point->run, point->forked,
                       point->ended, point->reaped, (unsigned long)point->messages,
                       (unsigned long)point->slab_kib, (unsigned long)point->live_kib);
        }
        printf("],\n");
}

/* ---- Grace periods ----------------------------------------------------------------------- */

static void wait_for_grace(unsigned int kind, void *object)
{
        struct grace *grace = &lives.grace[sim.cpu];
        struct waiting_object *waiting = need(malloc(sizeof(*waiting)));

        *waiting = (struct waiting_object){
                .due_ps = sim.clock + (uint64_t)settings.grace_ns * PS_PER_NS,
                .object = object,
                .kind = kind,
        };
        *grace->last = waiting;
        grace->last = &waiting->next;
}

static void end_grace(struct grace *grace)
{
        struct waiting_object *waiting = grace->first;

        grace->first = waiting->next;
        if (!grace->first)
                grace->last = &grace->first;
        object_give(waiting->kind, waiting->object);
        free(waiting);
}

void lives_collect(void)
{
        struct grace *grace = &lives.grace[sim.cpu];

        while (grace->first && grace->first->due_ps <= sim.clock)
                end_grace(grace);
}

/* Idle CPUs give back as well: all that waits on any CPU. */
static void end_all_grace(void)
{
        unsigned int cpu_before = sim.cpu;

        for (unsigned int cpu = 0; cpu < settings.load_cpus; cpu++) {
                sim_set_cpu(cpu);
                while (lives.grace[cpu].first)
                        end_grace(&lives.grace[cpu]);
        }
        sim_set_cpu(cpu_before);
}

/* ---- Ends -------------------------------------------------------------------------------- */

/* Gives back those objects of a recipe that go with @now, at once or a grace period later. */
static void give_part(const struct recipe *recipe, void **objects, enum freed now, enum freed later)
{
        for (unsigned int i = 0; i < recipe->count; i++) {
                unsigned int kind = recipe->kinds[i];

                if (kinds[kind].freed == now)
                        object_give(kind, objects[i]);
                else if (kinds[kind].freed == later)
                        wait_for_grace(kind, objects[i]);
        }
}

void lives_give(const struct recipe *recipe, void **objects)
{
        give_part(recipe, objects, FREED_EXIT, FREED_EXIT_RCU);
        give_part(recipe, objects, FREED_REAP, FREED_REAP_RCU);
}

void lives_end(const struct task *task)
{
        machine_spend(settings.exit_ns);
        give_part(&task_recipe, lives.of->objects(task->number), FREED_EXIT, FREED_EXIT_RCU);
        lives.unreaped[lives.ended - lives.reaped] = task->number;
        lives.ended++;
        machine_wake(&lives.parent);
        note_progress(lives.ended, lives.count);
}

static void reap(void)
{
        unsigned int number = lives.unreaped[lives.ended - ++lives.reaped];

        give_part(&task_recipe, lives.of->objects(number), FREED_REAP, FREED_REAP_RCU);
        if (lives.reaped == lives.count)
                note_point();
}

/* ---- The boot ---------------------------------------------------------------------------- */

/* A process of the boot ends on a CPU, and its parent reaps it on another. */
static void end_boot_task(void **objects)
{
        sim_set_cpu(pick(settings.boot_cpus));
        give_part(&task_recipe, objects, FREED_EXIT, FREED_EXIT);
        give_part(&task_recipe, objects, FREED_EXIT_RCU, FREED_EXIT_RCU);
        sim_set_cpu(pick(settings.boot_cpus));
        give_part(&task_recipe, objects, FREED_REAP, FREED_REAP);
        give_part(&task_recipe, objects, FREED_REAP_RCU, FREED_REAP_RCU);
}

void lives_boot(void)
{
        size_t stride = task_recipe.count;
        void **objects = need(calloc(settings.boot_tasks * stride + 1, sizeof(*objects)));

        for (unsigned int i = 0; i < settings.boot_tasks; i++) {
                sim_set_cpu(pick(settings.boot_cpus));
                recipe_take(&task_recipe, objects + i * stride);
        }
        for (unsigned int i = 0; i < settings.boot_tasks; i++)
                end_boot_task(objects + i * stride);
        free(objects);
}

/* ---- The parent -------------------------------------------------------------------------- */

/* The first messages of the first run are a mark of the measurement, so the load begins that run. */
static enum task_result fork_step(void)
{
        machine_spend(settings.fork_ns);
        lives.of->fork(lives.forked++);
        note_progress(lives.forked, lives.count);
        if (lives.forked < lives.count)
                return TASK_GOES_ON;
        if (lives.run)
                lives.of->begin();
        return TASK_SLEEPS;
}

/* The next run begins after more than a grace period. */
static enum task_result end_run(void)
{
        end_all_grace();
        if (++lives.run == settings.runs)
                return TASK_ENDS;
        lives.forked = lives.ended = lives.reaped = 0;
        lives.messages = 0;
        lives.of->renew();
        note_point();
        return TASK_GOES_ON;
}

static enum task_result parent_step(struct task *task)
{
        (void)task;
        lives_collect();
        if (lives.forked < lives.count)
                return fork_step();
        if (lives.reaped == lives.ended)
                return TASK_SLEEPS;
        reap();
        return lives.reaped < lives.count ? TASK_GOES_ON : end_run();
}

void lives_start(const struct lives_of *of, unsigned int count, uint64_t messages)
{
        lives = (struct lives){
                .of = of,
                .parent = {.number = count, .step = parent_step},
                .grace = need(calloc(settings.load_cpus, sizeof(*lives.grace))),
                .unreaped = need(calloc(count, sizeof(*lives.unreaped))),
                .count = count,
                .messages_all = messages,
                .start_ps = sim.clock,
                .points = need(
                        calloc((size_t)settings.runs * (3 * POINTS + 2), sizeof(*lives.points))),
        };
        for (unsigned int cpu = 0; cpu < settings.load_cpus; cpu++)
                lives.grace[cpu].last = &lives.grace[cpu].first;
        note_point();
        machine_add(&lives.parent, pick(settings.load_cpus));
        machine_wake(&lives.parent);
        machine_run();
        /*
         * Linux's queues move on with a task that runs alone, so the forks do not count against the
         * parent once the others run. Here they would.
         */
        machine_add(&lives.parent, lives.parent.cpu);
}

void lives_finish(void)
{
        end_all_grace();
        free(lives.grace);
        free(lives.unreaped);
}
