/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Raw packets as stress-ng's rawpkt. Each group has a task that sends `loops` packets through the
 * loopback interface and a task that reads them from a packet socket of `capacity`.
 *
 * A packet is a head and its data (the first two objects of the column `message`). In a recorded
 * run `heard` of a thousand packets found the reader ready: two clones of the head went to its
 * socket, one on the way out and one on the way in. All other packets had a single clone, which was
 * dropped at once. The packet's own head is freed in the softirq that follows, and the data with
 * the last head.
 *
 * The parent forks a group after the other, so writers begin one after another, by chance within half
 * and one and a half of fork_ns; in step they would all want the locks of lists at once.
 *
 * A packet socket hears every packet of its interface. It drops a packet that it has no room for
 * before the packet is cloned. So with several groups each packet goes twice to every reader that
 * has room, and readers always have something to do.
 */
#include "tools/loads/loads.h"

#include <stdlib.h>

enum { HEARD_OF_1000 = 366, CLONES = 2, HEAD = 0, DATA = 1 };

struct packet {
        void *data;
        unsigned int heads;  /* number that refer to the data */
        struct packet *next; /* in the list of free packets */
};

struct clone {
        void *head;
        struct packet *packet;
};

struct reader {
        struct task task;
        struct clone *queue;
        unsigned int first;
        unsigned int count;
        bool open; /* it is in open_readers */
};

struct writer {
        struct task task;
        void *head;
        struct packet *packet;
        unsigned int sent;
};

static struct reader *readers;
static struct writer *writers;
static struct packet *free_packets;
/* Readers with room, if there are several; some may be full meanwhile. */
static struct reader **open_readers;
static unsigned int open_count;

static struct packet *new_packet(void)
{
        struct packet *packet = free_packets;

        if (packet)
                free_packets = packet->next;
        else
                packet = need(calloc(1, sizeof(*packet)));
        *packet = (struct packet){.heads = 1};
        return packet;
}

static void give_head(void *head, struct packet *packet)
{
        object_give(message_recipe.kinds[HEAD], head);
        if (--packet->heads)
                return;
        object_give(message_recipe.kinds[DATA], packet->data);
        packet->next = free_packets;
        free_packets = packet;
}

static void deliver(struct reader *reader, struct packet *packet)
{
        struct clone *clone;

        if (reader->count == settings.capacity)
                return;
        clone = &reader->queue[(reader->first + reader->count++) % settings.capacity];
        clone->head = object_take(message_recipe.kinds[HEAD]);
        clone->packet = packet;
        packet->heads++;
        machine_wake(&reader->task);
}

static void open_reader(struct reader *reader)
{
        if (reader->open)
                return;
        reader->open = true;
        open_readers[open_count++] = reader;
}

static void deliver_to_all(struct packet *packet)
{
        unsigned int kept = 0;

        for (unsigned int i = 0; i < open_count; i++) {
                struct reader *reader = open_readers[i];

                for (int clone = 0; clone < CLONES; clone++)
                        deliver(reader, packet);
                reader->open = reader->count < settings.capacity;
                if (reader->open)
                        open_readers[kept++] = reader;
        }
        open_count = kept;
}

static void spread(struct writer *writer)
{
        struct reader *own = &readers[writer - writers];

        if (settings.groups > 1) {
                deliver_to_all(writer->packet);
                return;
        }
        if (pick(1000) >= HEARD_OF_1000) {
                writer->packet->heads++;
                give_head(object_take(message_recipe.kinds[HEAD]), writer->packet);
                return;
        }
        for (int i = 0; i < CLONES; i++)
                deliver(own, writer->packet);
}

static enum task_result write_step(struct task *task)
{
        struct writer *writer = container_of(task, struct writer, task);
        bool heard;

        switch (task->phase++) {
        case 0:
                machine_spend(settings.send_ns / 2);
                writer->packet = new_packet();
                writer->head = object_take(message_recipe.kinds[HEAD]);
                return TASK_GOES_ON;
        case 1:
                writer->packet->data = object_take(message_recipe.kinds[DATA]);
                return TASK_GOES_ON;
        case 2:
                spread(writer);
                return TASK_GOES_ON;
        default:
                machine_spend(settings.send_ns - settings.send_ns / 2);
                task->phase = 0;
                heard = writer->packet->heads > 1;
                give_head(writer->head, writer->packet);
                load_count(1);
                if (++writer->sent == settings.loops)
                        return TASK_ENDS;
                /* The reader that was woken is on this CPU and comes first. */
                return heard && settings.groups == 1 ? TASK_YIELDS : TASK_GOES_ON;
        }
}

static enum task_result read_step(struct task *task)
{
        struct reader *reader = container_of(task, struct reader, task);
        struct clone clone;

        if (!reader->count)
                return TASK_SLEEPS;
        machine_spend(settings.receive_ns);
        clone = reader->queue[reader->first];
        reader->first = (reader->first + 1) % settings.capacity;
        reader->count--;
        open_reader(reader);
        give_head(clone.head, clone.packet);
        return TASK_GOES_ON;
}

static void start(void)
{
        if (message_recipe.count != 2)
                die("packets need a head and its data, two objects a message, not ",
                    settings.message);
        readers = need(calloc(settings.groups, sizeof(*readers)));
        writers = need(calloc(settings.groups, sizeof(*writers)));
        open_readers = need(calloc(settings.groups, sizeof(*open_readers)));
        for (unsigned int i = 0; i < settings.groups; i++)
                open_reader(&readers[i]);
        for (unsigned int i = 0; i < settings.groups; i++) {
                unsigned int cpu = i % settings.load_cpus;

                readers[i].queue = need(calloc(settings.capacity, sizeof(*readers[i].queue)));
                readers[i].task = (struct task){.number = 2 * i, .step = read_step};
                writers[i].task = (struct task){.number = 2 * i + 1, .step = write_step};
                machine_add(&readers[i].task, cpu);
                machine_add(&writers[i].task, cpu);
        }
        for (unsigned int i = 0; i < settings.groups; i++) {
                machine_spend(settings.fork_ns / 2 + pick(settings.fork_ns));
                machine_wake(&writers[i].task);
        }
}

static uint64_t messages(void)
{
        return (uint64_t)settings.groups * settings.loops;
}

/* The tasks end with empty queues, so nothing is left to give back. */
static void finish(void)
{
}

const struct load packets_load = {"packets", start, messages, finish};
