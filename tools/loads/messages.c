/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Message passing as hackbench does it: each group has `pairs` sockets, `pairs` senders, which send
 * `loops` messages to each receiver in turn, and a receiver for each socket. A message is a set of
 * the objects of the column `message`; with pipes it has none.
 *
 * As in Linux, a sender sleeps when the socket is full, and all its sleepers are woken when three
 * quarters of it are free again (unix_writable). A receiver sleeps when the socket is empty, and
 * the next message wakes it.
 *
 * With the setting `lives`, one parent forks all tasks before the first message and reaps each that
 * ends (lives.c); the last task of a group gives back the group's sockets. Else each group is made
 * by a CPU, and all objects go back after the run.
 */
#include "tools/loads/loads.h"

#include <stdlib.h>

struct socket {
        void **queue; /* the objects of each message */
        unsigned int first;
        unsigned int count;
        unsigned long received;
        struct task *senders; /* they sleep until there is room */
        struct task receiver;
};

struct sender {
        struct task task;
        unsigned int next; /* number of the next message; modulo the number of sockets it is the
                              socket */
};

struct group {
        struct socket *sockets;
        struct sender *senders;
        void **objects; /* of the tasks, then of the sockets */
        unsigned int ended;
};

static struct group *groups;
static unsigned int fields; /* objects of a message */

static unsigned long messages_of_sender(void)
{
        return (unsigned long)settings.loops * settings.pairs;
}

static struct group *group_of(const struct task *task)
{
        return &groups[task->number / (2 * settings.pairs)];
}

static void **objects_of(unsigned int number)
{
        size_t stride = task_recipe.count + OBJECTS_MOST;

        return groups[number / (2 * settings.pairs)].objects +
               number % (2 * settings.pairs) * stride;
}

static void **socket_objects(struct group *group, unsigned int socket)
{
        size_t stride = task_recipe.count + OBJECTS_MOST;

        return group->objects + 2 * settings.pairs * stride + (size_t)socket * socket_recipe.count;
}

static enum task_result end_task(struct task *task)
{
        struct group *group = group_of(task);

        if (!settings.lives)
                return TASK_ENDS;
        if (++group->ended == 2 * settings.pairs)
                for (unsigned int i = 0; i < 2 * settings.pairs; i++)
                        lives_give(&socket_recipe, socket_objects(group, i));
        lives_end(task);
        return TASK_ENDS;
}

/*
 * Puts the objects of a message into the socket's queue. As in sockets, room is asked for before
 * the objects are taken: each sender may add one more.
 */
static void queue_message(struct socket *socket, void *const *objects)
{
        size_t place = (socket->first + socket->count) % (settings.capacity + settings.pairs);

        for (unsigned int i = 0; i < fields; i++)
                socket->queue[place * fields + i] = objects[i];
        socket->count++;
}

static enum task_result send_step(struct task *task)
{
        struct group *group = group_of(task);
        struct sender *sender = &group->senders[task->number % (2 * settings.pairs)];
        struct socket *socket = &group->sockets[sender->next % settings.pairs];
        void **place;

        if (!task->phase) {
                if (settings.lives)
                        lives_collect();
                if (socket->count >= settings.capacity) {
                        task->next = socket->senders;
                        socket->senders = task;
                        return TASK_SLEEPS;
                }
                machine_spend(settings.send_ns);
        }
        /*
         * Other tasks may send to the socket between two objects of a message, so the objects wait
         * here.
         */
        place = &group->objects[(size_t)(task->number % (2 * settings.pairs)) *
                                        (task_recipe.count + OBJECTS_MOST) +
                                task_recipe.count];
        if (task->phase < fields) {
                place[task->phase] = object_take(message_recipe.kinds[task->phase]);
                if (++task->phase < fields)
                        return TASK_GOES_ON;
        }
        task->phase = 0;
        queue_message(socket, place);
        machine_wake(&socket->receiver);
        return ++sender->next == messages_of_sender() ? end_task(task) : TASK_GOES_ON;
}

static void wake_senders(struct socket *socket)
{
        while (socket->senders) {
                struct task *task = socket->senders;

                socket->senders = task->next;
                machine_wake(task);
        }
}

/* The receivers of all CPUs take turns, so what a step reads is in no cache without this. */
static void prefetch_next(const struct socket *socket)
{
        enum { AHEAD = 8 };
        unsigned int room = settings.capacity + settings.pairs;
        unsigned int later = socket->first + AHEAD;

        for (unsigned int i = 0; i < fields && socket->count; i++)
                object_prefetch(socket->queue[(size_t)socket->first * fields + i]);
        __builtin_prefetch(&socket->queue[(size_t)(later < room ? later : later - room) * fields]);
}

static enum task_result receive_step(struct task *task)
{
        struct group *group = group_of(task);
        struct socket *socket = &group->sockets[task->number % settings.pairs];
        unsigned int room = settings.capacity + settings.pairs;

        if (!task->phase) {
                if (settings.lives)
                        lives_collect();
                if (socket->received == messages_of_sender())
                        return end_task(task);
                if (!socket->count)
                        return TASK_SLEEPS;
                machine_spend(settings.receive_ns);
        }
        if (task->phase < fields) {
                object_give(message_recipe.kinds[task->phase],
                            socket->queue[(size_t)socket->first * fields + task->phase]);
                if (++task->phase < fields)
                        return TASK_GOES_ON;
        }
        task->phase = 0;
        socket->first = (socket->first + 1) % room;
        socket->received++;
        if (--socket->count <= settings.capacity / 4)
                wake_senders(socket);
        prefetch_next(socket);
        load_count(1);
        if (settings.lives)
                lives_message();
        return TASK_GOES_ON;
}

static void prepare_group(struct group *group)
{
        unsigned int tasks = 2 * settings.pairs;
        size_t stride = task_recipe.count + OBJECTS_MOST;

        group->sockets = need(calloc(settings.pairs, sizeof(*group->sockets)));
        group->senders = need(calloc(settings.pairs, sizeof(*group->senders)));
        group->objects =
                need(calloc(tasks * (stride + socket_recipe.count) + 1, sizeof(*group->objects)));
        for (unsigned int i = 0; i < settings.pairs; i++)
                group->sockets[i].queue = need(
                        calloc((size_t)(settings.capacity + settings.pairs) * max_of(fields, 1u),
                               sizeof(void *)));
}

/* Sets the tasks and the sockets to their first message. */
static void renew_group(struct group *group)
{
        unsigned int first = (unsigned int)(group - groups) * 2 * settings.pairs;

        group->ended = 0;
        for (unsigned int i = 0; i < settings.pairs; i++) {
                group->sockets[i].received = 0;
                group->sockets[i].receiver =
                        (struct task){.number = first + settings.pairs + i, .step = receive_step};
                group->senders[i] =
                        (struct sender){.task = {.number = first + i, .step = send_step}};
        }
}

static void renew(void)
{
        for (unsigned int i = 0; i < settings.groups; i++)
                renew_group(&groups[i]);
}

/* A CPU for each group makes the sockets and all tasks. */
static void start_group(struct group *group)
{
        sim_set_cpu(pick(settings.load_cpus));
        for (unsigned int i = 0; i < 2 * settings.pairs; i++) {
                recipe_take(&socket_recipe, socket_objects(group, i));
                recipe_take(&task_recipe,
                            objects_of((unsigned int)(group - groups) * 2 * settings.pairs + i));
        }
        for (unsigned int i = 0; i < settings.pairs; i++) {
                machine_add(&group->sockets[i].receiver, pick(settings.load_cpus));
                machine_add(&group->senders[i].task, pick(settings.load_cpus));
        }
}

/* As hackbench does: each receiver after its pair of sockets, then the senders. */
static void fork_task(unsigned int number)
{
        unsigned int tasks = 2 * settings.pairs;
        struct group *group = &groups[number / tasks];
        unsigned int place = number % tasks;
        bool receives = place < settings.pairs;
        struct task *task = receives ? &group->sockets[place].receiver
                                     : &group->senders[place - settings.pairs].task;

        if (receives) {
                recipe_take(&socket_recipe, socket_objects(group, 2 * place));
                recipe_take(&socket_recipe, socket_objects(group, 2 * place + 1));
        }
        recipe_take(&task_recipe, objects_of(task->number));
        machine_add(task, pick(settings.load_cpus));
}

static uint64_t messages_of_run(void)
{
        return messages_of_sender() * settings.pairs * settings.groups;
}

/*
 * Each sender sends as many messages to each socket of its group, on its CPU, before anything
 * begins.
 */
static void fill_group(struct group *group, unsigned int each)
{
        void *objects[OBJECTS_MOST];

        for (unsigned int i = 0; i < settings.pairs; i++) {
                struct sender *sender = &group->senders[i];

                sim_set_cpu(sender->task.cpu);
                while (sender->next < each * settings.pairs) {
                        recipe_take(&message_recipe, objects);
                        queue_message(&group->sockets[sender->next++ % settings.pairs], objects);
                }
        }
}

static void begin(void)
{
        unsigned int each = settings.capacity * settings.filled / 100 / settings.pairs;

        for (unsigned int i = 0; i < settings.groups && each; i++)
                fill_group(&groups[i], min_of(each, settings.loops / 2));
        for (unsigned int i = 0; i < settings.groups; i++)
                for (unsigned int s = 0; s < settings.pairs; s++) {
                        machine_wake(&groups[i].senders[s].task);
                        machine_wake(&groups[i].sockets[s].receiver);
                }
}

static void start(void)
{
        static const struct lives_of processes = {fork_task, objects_of, begin, renew};

        fields = message_recipe.count;
        groups = need(calloc(settings.groups, sizeof(*groups)));
        for (unsigned int i = 0; i < settings.groups; i++)
                prepare_group(&groups[i]);
        renew();
        for (unsigned int i = 0; i < settings.groups && !settings.lives; i++)
                start_group(&groups[i]);
        if (settings.lives)
                lives_start(&processes, 2 * settings.pairs * settings.groups, messages_of_run());
        begin();
}

static uint64_t messages(void)
{
        return messages_of_run() * settings.runs;
}

/*
 * Gives back each task's objects on the CPU that it ran on last, then the objects of the sockets.
 */
static void finish_group(struct group *group, unsigned int number)
{
        unsigned int tasks = 2 * settings.pairs;

        for (unsigned int i = 0; i < tasks; i++) {
                sim_set_cpu(i < settings.pairs ? group->senders[i].task.cpu
                                               : group->sockets[i - settings.pairs].receiver.cpu);
                recipe_give(&task_recipe, objects_of(number * tasks + i));
        }
        for (unsigned int i = 0; i < tasks; i++)
                recipe_give(&socket_recipe, socket_objects(group, i));
}

static void finish(void)
{
        if (settings.lives) {
                lives_finish();
                return;
        }
        for (unsigned int g = 0; g < settings.groups; g++)
                finish_group(&groups[g], g);
}

const struct load messages_load = {"messages", start, messages, finish};
