/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Five ways in which CPUs use a cache, with a task for each CPU that never sleeps and never moves:
 *
 *   pairs    takes an object and gives it back
 *   bursts   takes `capacity` objects, then gives them back, oldest first
 *   handed   the CPUs of the lower half take, and each hands over to a CPU of the upper half by a
 *            ring of `capacity` objects; on an even number of nodes the two are of different nodes
 *   random   takes an object and hands it to any other CPU, which gives it back
 *   births   takes the objects of a process for another CPU by chance, where the process takes the
 *            later half of them anew (exec) and gives all but the first back (exit); the first goes
 *            back where it was taken (wait)
 *
 * A step is a single object and `send_ns` of other work, or `receive_ns` without anything to do. A
 * message is an object that was given back, in births a process; `loops` for each CPU on average.
 */
#include "tools/loads/loads.h"

#include <stdlib.h>

enum stage { STAGE_IDLE, STAGE_FORK, STAGE_EXEC_GIVE, STAGE_EXEC_TAKE, STAGE_EXIT, STAGE_WAIT };

/* A process of births; each CPU has one at a time. */
struct birth {
        struct birth *next; /* in an inbox */
        void **objects;
        unsigned int parent; /* CPU */
        unsigned int at;     /* the object of the next step */
        enum stage stage;
};

struct place {
        struct task task;
        void **objects; /* a ring: a burst, or what other CPUs handed over */
        unsigned int first;
        unsigned int count;
        bool gives; /* what the next step does */
        bool has_child;
        struct birth own;
        struct birth *works_on;
        struct birth *inbox;
};

static struct place *places;
static uint64_t given;

static uint64_t messages(void)
{
        return (uint64_t)settings.load_cpus * settings.loops;
}

static unsigned int kind(void)
{
        return message_recipe.kinds[0];
}

static void count_message(void)
{
        given++;
        load_count(1);
}

static void put(struct place *place, void *object)
{
        place->objects[(place->first + place->count++) % settings.capacity] = object;
}

static void give_oldest(struct place *place)
{
        void *object = place->objects[place->first];

        place->first = (place->first + 1) % settings.capacity;
        place->count--;
        object_give(kind(), object);
        count_message();
}

/* A step without anything to do takes time all the same, or no other CPU would come to its turn. */
static void idle(void)
{
        machine_spend(max_of(settings.receive_ns, 1u));
}

static unsigned int other_cpu(unsigned int cpu)
{
        return (cpu + 1 + pick(settings.load_cpus - 1)) % settings.load_cpus;
}

/* Each step asks before it does anything, so that the last message is given back once. */
static bool is_over(void)
{
        return given == messages();
}

/* ---- Patterns of single objects ---------------------------------------------------------- */

/*
 * Gives the oldest object of @from, or puts a new one into @to. Where that cannot be done, time passes.
 */
static enum task_result give_or_put(bool gives, struct place *from, struct place *to)
{
        if (is_over())
                return TASK_ENDS;
        if (gives ? !from->count : to->count == settings.capacity) {
                idle();
                return TASK_GOES_ON;
        }
        machine_spend(settings.send_ns);
        if (gives)
                give_oldest(from);
        else
                put(to, object_take(kind()));
        return TASK_GOES_ON;
}

static enum task_result pairs_step(struct task *task)
{
        struct place *place = &places[task->number];

        return give_or_put(place->count, place, place);
}

static enum task_result bursts_step(struct task *task)
{
        struct place *place = &places[task->number];
        enum task_result result = give_or_put(place->gives, place, place);

        if (!place->count || place->count == settings.capacity)
                place->gives = place->count;
        return result;
}

static enum task_result handed_step(struct task *task)
{
        unsigned int half = settings.load_cpus / 2;
        bool gives = task->number >= half;
        struct place *ring = &places[gives ? task->number : task->number + half];

        return give_or_put(gives, ring, ring);
}

static enum task_result random_step(struct task *task)
{
        struct place *place = &places[task->number];
        struct place *other = &places[other_cpu(task->number)];

        place->gives = !place->gives;
        return give_or_put(place->gives, place, other);
}

/* ---- Births ------------------------------------------------------------------------------ */

static void send_birth(struct birth *birth, unsigned int cpu, enum stage stage)
{
        struct birth **end = &places[cpu].inbox;

        while (*end)
                end = &(*end)->next;
        birth->next = NULL;
        birth->stage = stage;
        *end = birth;
}

/* What a CPU without work does next; false if there is nothing. */
static bool find_birth(struct place *place)
{
        place->works_on = place->inbox;
        if (place->inbox) {
                place->inbox = place->inbox->next;
                return true;
        }
        if (place->has_child)
                return false;
        place->has_child = true;
        place->works_on = &place->own;
        place->own.stage = STAGE_FORK;
        place->own.at = 0;
        return true;
}

static void take_of(struct birth *birth)
{
        birth->objects[birth->at] = object_take(task_recipe.kinds[birth->at]);
}

static void give_of(struct birth *birth)
{
        object_give(task_recipe.kinds[birth->at], birth->objects[birth->at]);
        birth->objects[birth->at] = NULL;
}

/* The work of a single object; false if another CPU goes on, or nobody. */
static bool work_on(struct place *place, struct birth *birth)
{
        switch (birth->stage) {
        case STAGE_FORK:
                take_of(birth);
                if (++birth->at < task_recipe.count)
                        return true;
                birth->at = task_recipe.count / 2;
                send_birth(birth, other_cpu(birth->parent), STAGE_EXEC_GIVE);
                return false;
        case STAGE_EXEC_GIVE:
                give_of(birth);
                birth->stage = STAGE_EXEC_TAKE;
                return true;
        case STAGE_EXEC_TAKE:
                take_of(birth);
                birth->stage = ++birth->at < task_recipe.count ? STAGE_EXEC_GIVE : STAGE_EXIT;
                return true;
        case STAGE_EXIT:
                birth->at--;
                if (birth->at) {
                        give_of(birth);
                        return true;
                }
                send_birth(birth, birth->parent, STAGE_WAIT);
                return false;
        default:
                give_of(birth);
                place->has_child = false;
                count_message();
                return false;
        }
}

static enum task_result births_step(struct task *task)
{
        struct place *place = &places[task->number];

        if (is_over())
                return TASK_ENDS;
        if (!place->works_on && !find_birth(place)) {
                idle();
                return TASK_GOES_ON;
        }
        machine_spend(settings.send_ns);
        if (!work_on(place, place->works_on))
                place->works_on = NULL;
        return TASK_GOES_ON;
}

/* ---- Start and end ----------------------------------------------------------------------- */

static void start(enum task_result (*step)(struct task *task))
{
        places = need(calloc(settings.load_cpus, sizeof(*places)));
        for (unsigned int cpu = 0; cpu < settings.load_cpus; cpu++) {
                struct place *place = &places[cpu];

                place->objects = need(calloc(settings.capacity, sizeof(void *)));
                place->own.objects = need(calloc(task_recipe.count + 1, sizeof(void *)));
                place->own.parent = cpu;
                place->task = (struct task){.number = cpu, .step = step};
                machine_add(&place->task, cpu);
        }
        /* A task that its own CPU wakes stays there. */
        for (unsigned int cpu = 0; cpu < settings.load_cpus; cpu++) {
                sim_set_cpu(cpu);
                machine_wake(&places[cpu].task);
        }
}

static void need_objects(const struct recipe *recipe, const char *what)
{
        if (!recipe->count)
                die("the load needs an object of each ", what);
}

static void need_two_cpus(const char *load)
{
        if (settings.load_cpus < 2)
                die("expected two CPUs or more (load_cpus) with load ", load);
}

static void start_pairs(void)
{
        need_objects(&message_recipe, "message");
        start(pairs_step);
}

static void start_bursts(void)
{
        need_objects(&message_recipe, "message");
        start(bursts_step);
}

static void start_handed(void)
{
        need_objects(&message_recipe, "message");
        if (settings.load_cpus % 2)
                die("expected an even number of CPUs (load_cpus) with load handed", "");
        start(handed_step);
}

static void start_random(void)
{
        need_objects(&message_recipe, "message");
        need_two_cpus("random");
        start(random_step);
}

static void start_births(void)
{
        need_objects(&task_recipe, "task");
        need_two_cpus("births");
        start(births_step);
}

static void finish(void)
{
        for (unsigned int cpu = 0; cpu < settings.load_cpus; cpu++) {
                struct place *place = &places[cpu];

                sim_set_cpu(cpu);
                for (; place->count; place->count--, place->first++)
                        object_give(kind(), place->objects[place->first % settings.capacity]);
                for (unsigned int i = 0; i < task_recipe.count; i++)
                        if (place->own.objects[i])
                                object_give(task_recipe.kinds[i], place->own.objects[i]);
        }
}

const struct load pairs_load = {"pairs", start_pairs, messages, finish};
const struct load bursts_load = {"bursts", start_bursts, messages, finish};
const struct load handed_load = {"handed", start_handed, messages, finish};
const struct load random_load = {"random", start_random, messages, finish};
const struct load births_load = {"births", start_births, messages, finish};
