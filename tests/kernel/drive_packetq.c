/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * The model of the packet queues: for each packet its mark, and the seed and position of the
 * bytes that it must show.
 */
#include "driver.h"
#include "packetq.h"

#include <errno.h>
#include <string.h>

enum { QUEUES = 4, QUEUE_MAX = 256, SIZE_MAX_BYTES = 3000, MANY = 40 };

struct expected {
        uint64_t mark;
        uint32_t seed;
        uint32_t start;
        uint32_t length;
};

static struct packet_queue queues[QUEUES];
static struct expected expected[QUEUES][QUEUE_MAX];
static unsigned int counts[QUEUES];
static uint64_t marks;

static uint8_t byte_at(uint32_t seed, uint32_t position)
{
        return (uint8_t)(seed + position * 7);
}

static void fill(struct packet *packet, const struct expected *is)
{
        uint8_t *bytes = packet_bytes(packet);

        check(!packet_is_shared(packet));
        for (uint32_t i = 0; i < is->length; i++)
                bytes[i] = byte_at(is->seed, is->start + i);
}

static void check_packet(struct packet *packet, const struct expected *is)
{
        const uint8_t *bytes = packet_bytes(packet);

        check(packet->mark == is->mark && packet->length == is->length);
        for (uint32_t i = 0; i < is->length; i++)
                check(bytes[i] == byte_at(is->seed, is->start + i));
}

static void check_queue(unsigned int queue)
{
        uint64_t bytes = 0;

        for (unsigned int i = 0; i < counts[queue]; i++)
                bytes += expected[queue][i].length;
        check(queues[queue].length == counts[queue] && queues[queue].bytes == bytes);
}

static void put(unsigned int queue, struct packet *packet, const struct expected *is, bool head)
{
        struct expected *list = expected[queue];

        if (head) {
                memmove(list + 1, list, counts[queue] * sizeof(*list));
                list[0] = *is;
                packet_queue_head(&queues[queue], packet);
        } else {
                list[counts[queue]] = *is;
                packet_queue_tail(&queues[queue], packet);
        }
        counts[queue]++;
}

/* Compares the first packet of a queue with the expected packet; NULL: the queue is empty. */
static struct packet *take(unsigned int queue, struct expected *is)
{
        struct packet *packet = packet_dequeue(&queues[queue]);

        check((packet != NULL) == (counts[queue] != 0));
        if (packet) {
                *is = expected[queue][0];
                counts[queue]--;
                memmove(expected[queue], expected[queue] + 1, counts[queue] * sizeof(*is));
                check_packet(packet, is);
        }
        return packet;
}

static void make(struct random *random, unsigned int queue)
{
        struct expected is = {
                .mark = ++marks,
                .seed = below(random, 1000),
                .length = below(random, below(random, 8) ? 200 : SIZE_MAX_BYTES),
        };
        struct packet *packet = packet_alloc(is.length, GFP_KERNEL);

        check(packet);
        packet->mark = is.mark;
        fill(packet, &is);
        put(queue, packet, &is, below(random, 2));
}

static void make_many(struct random *random, unsigned int queue)
{
        struct packet *packets[MANY];
        unsigned int count = below(random, MANY);
        uint32_t length = below(random, 300);

        check(packet_alloc_many(packets, count, length, GFP_KERNEL) == 0);
        for (unsigned int i = 0; i < count; i++) {
                struct expected is = {.mark = ++marks, .seed = i, .length = length};

                packets[i]->mark = is.mark;
                fill(packets[i], &is);
                put(queue, packets[i], &is, false);
        }
}

static void free_many(struct random *random, unsigned int queue)
{
        struct packet *packets[MANY];
        unsigned int wanted = below(random, MANY);
        unsigned int count = packet_dequeue_many(&queues[queue], packets, wanted);

        check(count == (wanted < counts[queue] ? wanted : counts[queue]));
        for (unsigned int i = 0; i < count; i++)
                check_packet(packets[i], &expected[queue][i]);
        counts[queue] -= count;
        memmove(expected[queue], expected[queue] + count, counts[queue] * sizeof(struct expected));
        packet_free_many(packets, count);
}

/* Changes a packet that was taken; the packet and its clones go to a queue. */
static void change(struct random *random, struct packet *packet, struct expected *is,
                   unsigned int queue)
{
        struct packet *other = NULL;
        struct expected rest = *is;
        uint32_t cut = is->length ? below(random, is->length + 1) : 0;

        switch (below(random, 5)) {
        case 0:
                other = packet_clone(packet, GFP_KERNEL);
                check(other);
                break;
        case 1:
                other = packet_split(packet, cut, GFP_KERNEL);
                check(other);
                is->length = cut;
                rest.start += cut;
                rest.length -= cut;
                break;
        case 2:
                check(packet_pull(packet, cut));
                check(!packet_pull(packet, is->length + 1));
                is->start += cut;
                is->length -= cut;
                break;
        case 3:
                packet_trim(packet, cut);
                is->length = cut;
                break;
        default:
                check(packet_unshare(packet, GFP_KERNEL) == 0);
                check_packet(packet, is);
                is->seed = below(random, 1000);
                fill(packet, is);
        }
        put(queue, packet, is, false);
        if (other)
                put(queue, other, &rest, true);
}

static void splice(unsigned int from, unsigned int to)
{
        if (from == to || counts[from] + counts[to] > QUEUE_MAX)
                return;
        memcpy(expected[to] + counts[to], expected[from], counts[from] * sizeof(struct expected));
        packet_queue_splice(&queues[from], &queues[to]);
        counts[to] += counts[from];
        counts[from] = 0;
        check_queue(from);
        check_queue(to);
}

/* Without memory the pools give exactly the promised number of packets, and take them back. */
static void starve(void)
{
        struct packet *packets[PACKET_POOL];

        check(packet_pool_free() == PACKET_POOL);
        packet_starve(true);
        check(!packet_alloc(100, GFP_ATOMIC));
        for (unsigned int i = 0; i < PACKET_POOL; i++) {
                struct expected is = {.mark = i, .seed = i, .length = PACKET_POOL_BYTES};

                packets[i] = packet_alloc(PACKET_POOL_BYTES, GFP_KERNEL);
                check(packets[i]);
                packets[i]->mark = i;
                fill(packets[i], &is);
        }
        check(packet_pool_free() == 0);
        check(packet_alloc_many(packets, 1, 10, GFP_KERNEL) == -ENOMEM);
        for (unsigned int i = 0; i < PACKET_POOL; i++) {
                struct expected is = {.mark = i, .seed = i, .length = PACKET_POOL_BYTES};

                check_packet(packets[i], &is);
                packet_free(packets[i]);
        }
        check(packet_pool_free() == PACKET_POOL);
        packet_starve(false);
}

static void step(struct random *random, uint64_t operation)
{
        unsigned int queue = below(random, QUEUES);
        unsigned int which = below(random, 100);
        struct expected is;
        struct packet *packet;

        if (counts[queue] > QUEUE_MAX - MANY)
                free_many(random, queue);
        else if (which < 30)
                make(random, queue);
        else if (which < 34)
                make_many(random, queue);
        else if (which < 40)
                free_many(random, queue);
        else if (which == 99)
                splice(queue, below(random, QUEUES));
        else {
                packet = take(queue, &is);
                if (packet && which < 70)
                        packet_free(packet);
                else if (packet)
                        change(random, packet, &is, queue);
        }
        if (operation % 5000 == 0)
                starve();
        if (operation % 1000 == 0)
                check_queue(queue);
}

void drive_packetq(uint64_t operations, struct random *random)
{
        for (unsigned int queue = 0; queue < QUEUES; queue++)
                packet_queue_init(&queues[queue]);
        for (uint64_t operation = 1; operation <= operations; operation++)
                step(random, operation);
        for (unsigned int queue = 0; queue < QUEUES; queue++) {
                check_queue(queue);
                packet_queue_purge(&queues[queue]);
        }
        check(packet_count() == 0);
}
