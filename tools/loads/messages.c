/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Message passing as hackbench does it: each group has `pairs` sockets, `pairs` senders, which send
 * `loops` messages to each receiver in turn, and a receiver for each socket. A message is a set of
 * the objects of the column `message`; with pipes it has none.
 *
 * As in Linux, a sender sleeps when the socket is full, and all its sleepers are woken when three
 * quarters of it are free again (unix_writable). A receiver sleeps when the socket is empty, and
 * the next message wakes it.
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

static enum task_result send_step(struct task *task)
{
        struct group *group = group_of(task);
        struct sender *sender = &group->senders[task->number % (2 * settings.pairs)];
        struct socket *socket = &group->sockets[sender->next % settings.pairs];
        void **place;

        if (!task->phase) {
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
        /*
         * As in sockets, room is asked for before the objects are taken: each sender may add one
         * more.
         */
        for (unsigned int i = 0; i < fields; i++)
                socket->queue[(size_t)((socket->first + socket->count) %
                                       (settings.capacity + settings.pairs)) *
                                      fields +
                              i] = place[i];
        socket->count++;
        machine_wake(&socket->receiver);
        return ++sender->next == messages_of_sender() ? TASK_ENDS : TASK_GOES_ON;
}

static void wake_senders(struct socket *socket)
{
        while (socket->senders) {
                struct task *task = socket->senders;

                socket->senders = task->next;
                machine_wake(task);
        }
}

static enum task_result receive_step(struct task *task)
{
        struct group *group = group_of(task);
        struct socket *socket = &group->sockets[task->number % settings.pairs];
        unsigned int room = settings.capacity + settings.pairs;

        if (!task->phase) {
                if (socket->received == messages_of_sender())
                        return TASK_ENDS;
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
        load_count(1);
        return TASK_GOES_ON;
}

/* A CPU for each group makes the sockets and all tasks; then all begin. */
static void start_group(struct group *group, unsigned int number)
{
        unsigned int tasks = 2 * settings.pairs;
        size_t stride = task_recipe.count + OBJECTS_MOST;
        unsigned int cpu = pick(settings.load_cpus);

        group->sockets = need(calloc(settings.pairs, sizeof(*group->sockets)));
        group->senders = need(calloc(settings.pairs, sizeof(*group->senders)));
        group->objects =
                need(calloc(tasks * (stride + socket_recipe.count) + 1, sizeof(*group->objects)));
        sim_set_cpu(cpu);
        for (unsigned int i = 0; i < tasks; i++) {
                recipe_take(&socket_recipe,
                            group->objects + tasks * stride + (size_t)i * socket_recipe.count);
                recipe_take(&task_recipe, group->objects + i * stride);
        }
        for (unsigned int i = 0; i < settings.pairs; i++) {
                struct socket *socket = &group->sockets[i];

                socket->queue = need(
                        calloc((size_t)(settings.capacity + settings.pairs) * max_of(fields, 1u),
                               sizeof(void *)));
                socket->receiver = (struct task){.number = number * tasks + settings.pairs + i,
                                                 .step = receive_step};
                group->senders[i].task =
                        (struct task){.number = number * tasks + i, .step = send_step};
                machine_add(&socket->receiver, pick(settings.load_cpus));
                machine_add(&group->senders[i].task, pick(settings.load_cpus));
        }
}

static void start(void)
{
        fields = message_recipe.count;
        groups = need(calloc(settings.groups, sizeof(*groups)));
        for (unsigned int i = 0; i < settings.groups; i++)
                start_group(&groups[i], i);
        for (unsigned int i = 0; i < settings.groups; i++)
                for (unsigned int s = 0; s < settings.pairs; s++) {
                        machine_wake(&groups[i].senders[s].task);
                        machine_wake(&groups[i].sockets[s].receiver);
                }
}

static uint64_t messages(void)
{
        return messages_of_sender() * settings.pairs * settings.groups;
}

/*
 * Gives back each task's objects on the CPU that it ran on last, then the objects of the sockets.
 */
static void finish(void)
{
        unsigned int tasks = 2 * settings.pairs;
        size_t stride = task_recipe.count + OBJECTS_MOST;

        for (unsigned int g = 0; g < settings.groups; g++) {
                struct group *group = &groups[g];

                for (unsigned int i = 0; i < tasks; i++) {
                        sim_set_cpu(i < settings.pairs
                                            ? group->senders[i].task.cpu
                                            : group->sockets[i - settings.pairs].receiver.cpu);
                        recipe_give(&task_recipe, group->objects + i * stride);
                }
                for (unsigned int i = 0; i < tasks; i++)
                        recipe_give(&socket_recipe, group->objects + tasks * stride +
                                                            (size_t)i * socket_recipe.count);
        }
}

const struct load messages_load = {"messages", start, messages, finish};
