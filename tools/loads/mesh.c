/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Every CPU hands objects to others and frees those that others hand to it. `groups` tasks stand
 * fast on a CPU each. A task takes `loops` objects; `remote` percent go to a task of another node,
 * the others to another task of its own node. So that share of all frees is of another node's
 * objects, as long as every CPU takes objects of its own node.
 */
#include "tools/loads/loads.h"

#include <stdlib.h>

enum { SPIN_NS = 100 }; /* a sender waits so long for a full inbox */

struct peer {
        struct task task;
        void **inbox; /* a ring of settings.capacity objects */
        unsigned int first;
        unsigned int count;
        unsigned int sent;
        unsigned int to; /* the peer that gets the next object */
        bool gives_next; /* it takes and gives in turn while there is something to give */
};

static struct peer *peers;

static unsigned int node_of_peer(unsigned int number)
{
        return sim_node_of(peers[number].task.cpu);
}

/* Another peer, of another node for `remote` of a hundred objects. */
static unsigned int pick_peer(const struct peer *peer)
{
        unsigned int self = (unsigned int)(peer - peers);
        bool remote = settings.nodes > 1 && pick(100) < settings.remote;
        unsigned int to;

        do
                to = pick(settings.groups);
        while (to == self || (node_of_peer(to) != node_of_peer(self)) != remote);
        return to;
}

static void give_first(struct peer *peer)
{
        machine_spend(settings.receive_ns);
        object_give(message_recipe.kinds[0], peer->inbox[peer->first]);
        peer->first = (peer->first + 1) % settings.capacity;
        peer->count--;
        load_count(1);
}

static void hand_over(struct peer *peer, struct peer *to)
{
        void *object;

        machine_spend(settings.send_ns);
        object = object_take(message_recipe.kinds[0]);
        object_counts.distant_objects += object_is_distant(message_recipe.kinds[0], object);
        to->inbox[(to->first + to->count++) % settings.capacity] = object;
        machine_wake(&to->task);
        peer->sent++;
        peer->to = pick_peer(peer);
}

static enum task_result step(struct task *task)
{
        struct peer *peer = container_of(task, struct peer, task);
        struct peer *to = &peers[peer->to];
        bool may_send = peer->sent < settings.loops && to->count < settings.capacity;

        if (peer->count && (peer->gives_next || !may_send))
                give_first(peer);
        else if (may_send)
                hand_over(peer, to);
        else if (peer->sent == settings.loops)
                return TASK_SLEEPS;
        else
                machine_spend(SPIN_NS);
        peer->gives_next = !peer->gives_next;
        return TASK_GOES_ON;
}

static void start(void)
{
        if (!message_recipe.count)
                die("a mesh needs an object a message, not ", settings.message);
        if (settings.groups > settings.load_cpus || settings.groups < 2 * settings.nodes)
                die("expected groups from 2 for each node to the number of CPUs", "");
        peers = need(calloc(settings.groups, sizeof(*peers)));
        for (unsigned int i = 0; i < settings.groups; i++) {
                peers[i].inbox = need(calloc(settings.capacity, sizeof(void *)));
                peers[i].task = (struct task){.number = i, .pinned = true, .step = step};
                /* As many for each node, whose CPUs follow each other. */
                machine_add(&peers[i].task,
                            (unsigned int)((uint64_t)i * settings.load_cpus / settings.groups));
        }
        for (unsigned int i = 0; i < settings.groups; i++)
                peers[i].to = pick_peer(&peers[i]);
        for (unsigned int i = 0; i < settings.groups; i++)
                machine_wake(&peers[i].task);
}

static uint64_t messages(void)
{
        return (uint64_t)settings.groups * settings.loops;
}

/* The tasks end with empty inboxes, so nothing is left to give back. */
static void finish(void)
{
}

const struct load mesh_load = {"mesh", start, messages, finish};
