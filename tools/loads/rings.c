/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Rings of receive buffers. Each group has a driver that fills its ring with `bulk` objects of a
 * cache by a single call, and passes as many packets on, and a task elsewhere that frees them in
 * bulk. kmem_cache_alloc_bulk and kfree_bulk were made for this load; bulks of 1 are single calls. `loops` bulks each. Setting
 * `pinned` gives each task a CPU that it stays on, the drivers in front: readers of the first
 * `remote` percent of the rings are on another node, all other readers on the driver's.
 */
#include "tools/loads/loads.h"

#include <stdlib.h>

struct ring {
        struct task driver;
        struct task reader;
        void **objects;
        unsigned int first;
        unsigned int count;
        unsigned int made; /* bulks */
};

static struct ring *rings;

static void take(void **objects)
{
        if (settings.bulk == 1)
                *objects = object_take(message_recipe.kinds[0]);
        else
                objects_take_bulk(message_recipe.kinds[0], settings.bulk, objects);
}

static void give(void **objects)
{
        if (settings.bulk == 1)
                object_give(message_recipe.kinds[0], *objects);
        else
                objects_give_bulk(message_recipe.kinds[0], settings.bulk, objects);
}

static enum task_result driver_step(struct task *task)
{
        struct ring *ring = container_of(task, struct ring, driver);

        if (ring->made == settings.loops)
                return TASK_ENDS;
        if (ring->count + settings.bulk > settings.capacity)
                return TASK_SLEEPS;
        machine_spend(settings.send_ns * settings.bulk);
        take(ring->objects + (ring->first + ring->count) % settings.capacity);
        ring->count += settings.bulk;
        ring->made++;
        machine_wake(&ring->reader);
        return TASK_GOES_ON;
}

static enum task_result reader_step(struct task *task)
{
        struct ring *ring = container_of(task, struct ring, reader);

        if (!ring->count)
                return TASK_SLEEPS;
        machine_spend(settings.receive_ns * settings.bulk);
        give(ring->objects + ring->first);
        ring->first = (ring->first + settings.bulk) % settings.capacity;
        ring->count -= settings.bulk;
        load_count(settings.bulk);
        machine_wake(&ring->driver);
        return TASK_GOES_ON;
}

/* CPUs of a node follow each other; drivers have the first half of each node. */
static void pin(struct ring *ring, unsigned int number)
{
        unsigned int node_cpus = settings.load_cpus / settings.nodes;
        unsigned int node = number % settings.nodes;
        unsigned int place = number / settings.nodes % (node_cpus / 2);
        bool away = number * 100 < settings.groups * settings.remote;
        unsigned int other = away ? (node + 1) % settings.nodes : node;

        ring->driver.pinned = ring->reader.pinned = true;
        machine_add(&ring->driver, node * node_cpus + place);
        machine_add(&ring->reader, other * node_cpus + node_cpus / 2 + place);
}

static void start(void)
{
        if (settings.pinned && settings.load_cpus < 2 * settings.nodes)
                die("expected two CPUs a node with pinned=1", "");
        if (!message_recipe.count)
                die("rings need an object a message, not ", settings.message);
        settings.capacity -= settings.capacity % settings.bulk;
        if (!settings.capacity)
                die("expected a ring (capacity) that holds a bulk", "");
        rings = need(calloc(settings.groups, sizeof(*rings)));
        for (unsigned int i = 0; i < settings.groups; i++) {
                rings[i].objects = need(calloc(settings.capacity, sizeof(void *)));
                rings[i].driver = (struct task){.number = 2 * i, .step = driver_step};
                rings[i].reader = (struct task){.number = 2 * i + 1, .step = reader_step};
                if (settings.pinned) {
                        pin(&rings[i], i);
                        continue;
                }
                machine_add(&rings[i].driver, i % settings.load_cpus);
                machine_add(&rings[i].reader, pick(settings.load_cpus));
        }
        for (unsigned int i = 0; i < settings.groups; i++)
                machine_wake(&rings[i].driver);
}

static uint64_t messages(void)
{
        return (uint64_t)settings.groups * settings.loops * settings.bulk;
}

static void finish(void)
{
}

const struct load rings_load = {"rings", start, messages, finish};
