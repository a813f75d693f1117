/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Processes that fork, exec and exit, as a shell or make has them. Each of `groups` parents forks
 * `pairs` children, waits for all, and does so again, `loops` times: it takes the objects of each
 * child (the column of setting `task`) and wakes it. A child execs, which gives back the objects of
 * its address space and takes new ones, runs for send_ns, and gives back all as it exits. Linux puts
 * a new process on any CPU that has little to do; here the CPU is chosen by chance, and kept.
 */
#include "tools/loads/loads.h"

#include <stdlib.h>
#include <string.h>

/* What a child does next. */
enum phase { PHASE_EXEC, PHASE_RUN, PHASE_EXIT };

struct child {
        struct task task;
        struct family *family;
        void **objects;
        unsigned int place; /* of the next object */
};

struct family {
        struct task parent;
        struct child *children;
        unsigned int forked; /* of the children, this time */
        unsigned int ended;
        unsigned int times;
};

static struct family *families;
static bool *of_address_space; /* by place in the recipe */

static void find_address_space(void)
{
        static const char *const names[] = {"mm_struct", "maple_node", "vm_area_struct", "anon_vma",
                                            "anon_vma_chain"};

        of_address_space = need(calloc(task_recipe.count, sizeof(bool)));
        for (unsigned int i = 0; i < task_recipe.count; i++)
                for (size_t name = 0; name < array_size(names); name++)
                        of_address_space[i] |=
                                !strcmp(kinds[task_recipe.kinds[i]].name, names[name]);
}

/* Goes to the next place that counts: with @exec those of the address space. False behind the last. */
static bool seek(struct child *child, bool exec)
{
        while (exec && child->place < task_recipe.count && !of_address_space[child->place])
                child->place++;
        if (child->place < task_recipe.count)
                return true;
        child->place = 0;
        return false;
}

/* Takes an object, or gives it back; false if none is left. */
static bool take_next(struct child *child, bool exec)
{
        if (!seek(child, exec))
                return false;
        child->objects[child->place] = object_take(task_recipe.kinds[child->place]);
        child->place++;
        return true;
}

static bool give_next(struct child *child, bool exec)
{
        if (!seek(child, exec))
                return false;
        object_give(task_recipe.kinds[child->place], child->objects[child->place]);
        child->place++;
        return true;
}

/* The CPU that runs makes the objects of a child, and another goes on with it. */
static enum task_result fork_step(struct family *family)
{
        struct child *child = &family->children[family->forked];

        if (!child->place)
                machine_spend(settings.fork_ns);
        if (take_next(child, false))
                return TASK_GOES_ON;
        family->forked++;
        machine_add(&child->task, pick(settings.load_cpus));
        machine_wake(&child->task);
        return TASK_GOES_ON;
}

static enum task_result parent_step(struct task *task)
{
        struct family *family = container_of(task, struct family, parent);

        if (family->forked < settings.pairs)
                return fork_step(family);
        if (family->ended < settings.pairs)
                return TASK_SLEEPS;
        family->forked = family->ended = 0;
        return ++family->times == settings.loops ? TASK_ENDS : TASK_GOES_ON;
}

static enum task_result end_child(struct child *child)
{
        child->task.phase = PHASE_EXEC;
        load_count(1);
        if (++child->family->ended == settings.pairs)
                machine_wake(&child->family->parent);
        return TASK_SLEEPS;
}

static enum task_result child_step(struct task *task)
{
        struct child *child = container_of(task, struct child, task);

        switch (task->phase) {
        case PHASE_EXEC:
                if (give_next(child, true))
                        return TASK_GOES_ON;
                break;
        case PHASE_RUN:
                if (take_next(child, true))
                        return TASK_GOES_ON;
                machine_spend(settings.send_ns);
                break;
        default:
                if (give_next(child, false))
                        return TASK_GOES_ON;
                machine_spend(settings.exit_ns);
                return end_child(child);
        }
        task->phase++;
        return TASK_GOES_ON;
}

static void make_family(struct family *family, unsigned int number)
{
        unsigned int first = number * (settings.pairs + 1);

        family->parent = (struct task){.number = first, .step = parent_step};
        family->children = need(calloc(settings.pairs, sizeof(*family->children)));
        for (unsigned int i = 0; i < settings.pairs; i++)
                family->children[i] = (struct child){
                        .task = {.number = first + 1 + i, .pinned = true, .step = child_step},
                        .family = family,
                        .objects = need(calloc(task_recipe.count, sizeof(void *))),
                };
        machine_add(&family->parent, pick(settings.load_cpus));
}

static void start(void)
{
        if (!task_recipe.count)
                die("forks need the column of a task's objects, not ", settings.task);
        find_address_space();
        families = need(calloc(settings.groups, sizeof(*families)));
        for (unsigned int i = 0; i < settings.groups; i++)
                make_family(&families[i], i);
        for (unsigned int i = 0; i < settings.groups; i++)
                machine_wake(&families[i].parent);
}

static uint64_t messages(void)
{
        return (uint64_t)settings.groups * settings.pairs * settings.loops;
}

/* Every child has ended. */
static void finish(void)
{
}

const struct load forks_load = {"forks", start, messages, finish};
