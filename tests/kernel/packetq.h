/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Packets and queues of packets, in the manner of socket buffers.
 */
#ifndef TESTS_KERNEL_PACKETQ_H
#define TESTS_KERNEL_PACKETQ_H

#include <linux/list.h>
#include <linux/spinlock.h>
#include <linux/types.h>

/* A packet: a window into data that clones share. */
struct packet {
        struct list_head list;
        struct packet_data *data;
        u64 mark;   /* the user's */
        u32 offset; /* of the window in the data */
        u32 length;
        u32 from_pool;
};

struct packet_queue {
        spinlock_t lock;
        struct list_head packets;
        u32 length;
        u64 bytes;
};

/* Takes data of @size bytes; NULL. With GFP_KERNEL the emergency pool makes it succeed. */
struct packet *packet_alloc(u32 size, gfp_t flags);
/* @count empty packets of equal size at once: all or none (-ENOMEM). */
int packet_alloc_many(struct packet **packets, unsigned int count, u32 size, gfp_t flags);
struct packet *packet_clone(struct packet *packet, gfp_t flags);
void packet_free(struct packet *packet);
void packet_free_many(struct packet **packets, unsigned int count);

/* The bytes of the window; may be written only if nobody shares the data. */
u8 *packet_bytes(struct packet *packet);
bool packet_is_shared(const struct packet *packet);
/* Makes the data the packet's own; -ENOMEM. */
int packet_unshare(struct packet *packet, gfp_t flags);
/* Takes bytes away from the front; NULL if there are fewer. */
u8 *packet_pull(struct packet *packet, u32 count);
void packet_trim(struct packet *packet, u32 length);
/* Cuts the window in two that share the data; NULL without memory. */
struct packet *packet_split(struct packet *packet, u32 length, gfp_t flags);

void packet_queue_init(struct packet_queue *queue);
void packet_queue_tail(struct packet_queue *queue, struct packet *packet);
void packet_queue_head(struct packet_queue *queue, struct packet *packet);
struct packet *packet_dequeue(struct packet_queue *queue);
/* Takes up to @count; returns how many. */
unsigned int packet_dequeue_many(struct packet_queue *queue, struct packet **packets,
                                 unsigned int count);
void packet_queue_splice(struct packet_queue *from, struct packet_queue *to);
void packet_queue_purge(struct packet_queue *queue);

/* Makes ordinary allocation fail (for tests), so that the pools are all there is. */
void packet_starve(bool on);
unsigned int packet_pool_free(void);
unsigned long packet_count(void);

#define PACKET_POOL 16
#define PACKET_POOL_BYTES 2048

#endif
