/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Request and response as netperf's TCP_RR and UDP_RR over the loopback interface, in pairs of
 * tasks: the first sends a message and sleeps until the second has answered, `loops` times.
 *
 * Different kernels free a message in different places. Since 5.19 the receiver leaves a message
 * to the CPU that allocated it (skb_attempt_defer_free). That CPU frees what was left to it in the
 * softirq of its next packet, also if the task that sent the message runs elsewhere by then. That is
 * setting capacity=2. Before, the receiver freed the message where it ran: capacity=1.
 *
 * Ends start on CPUs of their own while there are enough, as fork places tasks. Both CPUs of a pair
 * are idle in turn, so a wake-up finds an end's last CPU idle and leaves the end there, unless the
 * CPUs share no cache (machine.c).
 */
#include "tools/loads/loads.h"

#include "simulator/machine/state.h"

#include <stdlib.h>

struct message {
        struct message *next; /* left to the same CPU, or unused as well */
        void *objects[OBJECTS_MOST];
        unsigned int cpu; /* that allocated them */
};

struct end {
        struct task task;
        struct end *other;
        struct message *sent; /* in flight */
        unsigned int had;     /* messages from the other that were seen */
        unsigned int posted;  /* messages sent */
        bool asks;            /* it asks, and its partner answers */
};

static struct end *ends;
static struct message **left; /* by CPU: messages that the CPU has to free */
static struct message *unused;

static struct message *new_message(void)
{
        struct message *message = unused;

        if (message)
                unused = message->next;
        else
                message = need(calloc(1, sizeof(*message)));
        recipe_take(&message_recipe, message->objects);
        message->cpu = sim.cpu;
        return message;
}

static void free_message(struct message *message)
{
        recipe_give(&message_recipe, message->objects);
        message->next = unused;
        unused = message;
}

/* The softirq that delivers a packet frees what was left to its CPU. */
static void free_left(unsigned int cpu)
{
        while (left[cpu]) {
                struct message *message = left[cpu];

                left[cpu] = message->next;
                free_message(message);
        }
}

static void receive(struct end *end)
{
        struct message *message = end->other->sent;

        machine_spend(settings.receive_ns);
        end->had++;
        if (settings.capacity == 1) {
                free_message(message);
                return;
        }
        message->next = left[message->cpu];
        left[message->cpu] = message;
}

static void post(struct end *end)
{
        machine_spend(settings.send_ns);
        end->sent = new_message();
        end->posted++;
        free_left(sim.cpu);
        machine_wake(&end->other->task);
}

static bool may_send(const struct end *end)
{
        return end->asks ? end->had == end->posted : end->had < end->other->posted;
}

/* A message of two objects is a single step: no other task takes part. */
static enum task_result step(struct task *task)
{
        struct end *end = container_of(task, struct end, task);

        if (end->asks && end->had < end->other->posted) {
                receive(end);
                load_count(1);
        }
        if (end->asks && end->posted == settings.loops)
                return TASK_ENDS;
        if (!may_send(end))
                return TASK_SLEEPS;
        if (!end->asks)
                receive(end);
        post(end);
        return TASK_SLEEPS;
}

static void start(void)
{
        unsigned int count = 2 * settings.groups;

        ends = need(calloc(count, sizeof(*ends)));
        left = need(calloc(settings.load_cpus, sizeof(struct message *)));
        for (unsigned int i = 0; i < count; i++) {
                ends[i].other = &ends[i ^ 1];
                ends[i].asks = !(i & 1);
                ends[i].task = (struct task){.number = i, .step = step};
                machine_add(&ends[i].task, machine_fork_cpu());
        }
        for (unsigned int i = 0; i < count; i += 2)
                machine_wake(&ends[i].task);
}

static uint64_t messages(void)
{
        return (uint64_t)settings.groups * settings.loops;
}

static void finish(void)
{
        for (unsigned int cpu = 0; cpu < settings.load_cpus; cpu++) {
                sim_set_cpu(cpu);
                free_left(cpu);
        }
}

const struct load exchange_load = {"exchange", start, messages, finish};
