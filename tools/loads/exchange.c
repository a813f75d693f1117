/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Request and response as netperf's TCP_RR and UDP_RR over the loopback interface, in pairs of
 * tasks: the first sends a message and sleeps until the second has answered, `loops` times.
 *
 * Different kernels free a message in different places. Since 5.19 the receiver leaves it to the
 * CPU that allocated it, which frees it in its next interrupt (skb_attempt_defer_free). That is
 * setting capacity=2, where a task frees its last message when it sends again. Before, the receiver
 * freed the message: capacity=1.
 */
#include "tools/loads/loads.h"

#include <stdlib.h>

struct end {
        struct task task;
        struct end *other;
        void *sent[OBJECTS_MOST];
        unsigned int had;    /* messages from the other that were seen */
        unsigned int posted; /* messages sent */
        bool holds;          /* `sent` has objects */
        bool asks;           /* it asks, and its partner answers */
};

static struct end *ends;

static void give_message(struct end *end)
{
        if (end->holds)
                recipe_give(&message_recipe, end->sent);
        end->holds = false;
}

static bool may_send(const struct end *end)
{
        return end->asks ? end->had == end->posted : end->had < end->other->posted;
}

/* A message of two objects is a single step: no other task takes part. */
static enum task_result step(struct task *task)
{
        struct end *end = container_of(task, struct end, task);

        if (end->had < end->other->posted && end->asks) {
                end->had++;
                machine_spend(settings.receive_ns);
                if (settings.capacity == 1)
                        give_message(end->other);
                load_count(1);
        }
        if (end->asks && end->posted == settings.loops)
                return TASK_ENDS;
        if (!may_send(end))
                return TASK_SLEEPS;
        if (!end->asks) {
                end->had++;
                machine_spend(settings.receive_ns);
                if (settings.capacity == 1)
                        give_message(end->other);
        }
        machine_spend(settings.send_ns);
        give_message(end);
        recipe_take(&message_recipe, end->sent);
        end->holds = true;
        end->posted++;
        machine_wake(&end->other->task);
        return TASK_SLEEPS;
}

static void start(void)
{
        unsigned int count = 2 * settings.groups;

        ends = need(calloc(count, sizeof(*ends)));
        for (unsigned int i = 0; i < count; i++) {
                ends[i].other = &ends[i ^ 1];
                ends[i].asks = !(i & 1);
                ends[i].task = (struct task){.number = i, .step = step};
                machine_add(&ends[i].task, pick(settings.load_cpus));
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
        for (unsigned int i = 0; i < 2 * settings.groups; i++) {
                sim_set_cpu(ends[i].task.cpu);
                give_message(&ends[i]);
        }
}

const struct load exchange_load = {"exchange", start, messages, finish};
