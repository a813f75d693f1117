// SPDX-License-Identifier: Apache-2.0 OR MIT
/*
 * Packets in the manner of socket buffers: a small head from a cache and data that clones share.
 *
 * Heads come from a slab cache, singly or in bulk; data comes from kmalloc. Two mempools stand
 * behind both, so that writing out dirty memory over the network can always make progress: an
 * allocation that may sleep takes from them when everything else has failed.
 *
 * Data ends in its own record (as skb_shared_info): both come from a single allocation.
 */
#include <linux/atomic.h>
#include <linux/bug.h>
#include <linux/cache.h>
#include <linux/errno.h>
#include <linux/kernel.h>
#include <linux/list.h>
#include <linux/mempool.h>
#include <linux/module.h>
#include <linux/refcount.h>
#include <linux/slab.h>
#include <linux/spinlock.h>
#include <linux/string.h>

#include "packetq.h"

/* Lies behind the bytes, at the end of the allocation. */
struct packet_data {
        u8 *start;
        refcount_t users;
        u32 size;
        bool from_pool;
};

#define PACKET_DATA_BYTES(size) (ALIGN((size), (u32)sizeof(void *)) + sizeof(struct packet_data))

static struct kmem_cache *packet_cache __read_mostly;
static mempool_t *packet_pool;     /* heads */
static mempool_t packet_data_pool; /* data of PACKET_POOL_BYTES */
static atomic_long_t packets_alive = ATOMIC_LONG_INIT(0);
static bool packet_starving;

/* The pools' allocators; starving stands for a machine without memory. */
static void *packet_pool_alloc_head(gfp_t flags, void *cache)
{
        return READ_ONCE(packet_starving) ? NULL : mempool_alloc_slab(flags, cache);
}

static void *packet_pool_alloc_data(gfp_t flags, void *size)
{
        return READ_ONCE(packet_starving) ? NULL : mempool_kmalloc(flags, size);
}

void packet_starve(bool on)
{
        WRITE_ONCE(packet_starving, on);
}

unsigned int packet_pool_free(void)
{
        return (unsigned int)min(packet_pool->curr_nr, packet_data_pool.curr_nr);
}

unsigned long packet_count(void)
{
        return (unsigned long)atomic_long_read(&packets_alive);
}

/* ---- Data -------------------------------------------------------------------------------- */

static struct packet_data *packet_data_init(void *start, u32 size, bool from_pool)
{
        struct packet_data *data = start + ALIGN(size, (u32)sizeof(void *));

        data->start = start;
        data->size = size;
        data->from_pool = from_pool;
        refcount_set(&data->users, 1);
        return data;
}

static struct packet_data *packet_data_alloc(u32 size, gfp_t flags)
{
        void *start = NULL;
        bool from_pool = false;

        if (!READ_ONCE(packet_starving))
                start = kmalloc(PACKET_DATA_BYTES(size), flags | __GFP_NOWARN);
        if (!start && gfpflags_allow_blocking(flags) && size <= PACKET_POOL_BYTES) {
                start = mempool_alloc(&packet_data_pool, flags);
                from_pool = true;
        }
        return start ? packet_data_init(start, size, from_pool) : NULL;
}

static void packet_data_put(struct packet_data *data)
{
        if (!refcount_dec_and_test(&data->users))
                return;
        if (data->from_pool)
                mempool_free(data->start, &packet_data_pool);
        else
                kfree(data->start);
}

/* ---- Heads ------------------------------------------------------------------------------- */

static void packet_init(struct packet *packet, struct packet_data *data, bool from_pool)
{
        INIT_LIST_HEAD(&packet->list);
        packet->data = data;
        packet->mark = 0;
        packet->offset = 0;
        packet->length = data->size;
        packet->from_pool = from_pool;
        atomic_long_inc(&packets_alive);
}

static struct packet *packet_head_alloc(gfp_t flags, bool *from_pool)
{
        struct packet *packet = NULL;

        *from_pool = false;
        if (!READ_ONCE(packet_starving))
                packet = kmem_cache_alloc(packet_cache, flags | __GFP_NOWARN);
        if (!packet && gfpflags_allow_blocking(flags)) {
                packet = mempool_alloc(packet_pool, flags);
                *from_pool = true;
        }
        return packet;
}

static void packet_head_free(struct packet *packet)
{
        atomic_long_dec(&packets_alive);
        if (packet->from_pool)
                mempool_free(packet, packet_pool);
        else
                kmem_cache_free(packet_cache, packet);
}

struct packet *packet_alloc(u32 size, gfp_t flags)
{
        struct packet_data *data;
        struct packet *packet;
        bool from_pool;

        packet = packet_head_alloc(flags, &from_pool);
        if (!packet)
                return NULL;
        data = packet_data_alloc(size, flags);
        if (!data) {
                if (from_pool)
                        mempool_free(packet, packet_pool);
                else
                        kmem_cache_free(packet_cache, packet);
                return NULL;
        }
        packet_init(packet, data, from_pool);
        return packet;
}
EXPORT_SYMBOL(packet_alloc);

int packet_alloc_many(struct packet **packets, unsigned int count, u32 size, gfp_t flags)
{
        unsigned int done;

        if (READ_ONCE(packet_starving) ||
            !kmem_cache_alloc_bulk(packet_cache, flags, count, (void **)packets))
                return count ? -ENOMEM : 0;
        for (done = 0; done < count; done++) {
                struct packet_data *data = packet_data_alloc(size, flags);

                if (!data)
                        goto undo;
                packet_init(packets[done], data, false);
        }
        return 0;
undo:
        /* Heads without data are not packets yet. */
        kmem_cache_free_bulk(packet_cache, count - done, (void **)packets + done);
        packet_free_many(packets, done);
        return -ENOMEM;
}
EXPORT_SYMBOL(packet_alloc_many);

struct packet *packet_clone(struct packet *packet, gfp_t flags)
{
        struct packet *clone;
        bool from_pool;

        clone = packet_head_alloc(flags, &from_pool);
        if (!clone)
                return NULL;
        refcount_inc(&packet->data->users);
        packet_init(clone, packet->data, from_pool);
        clone->offset = packet->offset;
        clone->length = packet->length;
        clone->mark = packet->mark;
        return clone;
}
EXPORT_SYMBOL(packet_clone);

void packet_free(struct packet *packet)
{
        if (!packet)
                return;
        WARN_ON_ONCE(!list_empty(&packet->list));
        packet_data_put(packet->data);
        packet_head_free(packet);
}
EXPORT_SYMBOL(packet_free);

/* Heads that do not belong to a pool go back in a single call. The array is garbage afterwards. */
void packet_free_many(struct packet **packets, unsigned int count)
{
        unsigned int heads = 0;
        unsigned int i;

        for (i = 0; i < count; i++) {
                struct packet *packet = packets[i];

                WARN_ON_ONCE(!list_empty(&packet->list));
                packet_data_put(packet->data);
                if (packet->from_pool)
                        packet_head_free(packet);
                else
                        packets[heads++] = packet;
        }
        atomic_long_sub(heads, &packets_alive);
        kmem_cache_free_bulk(packet_cache, heads, (void **)packets);
}
EXPORT_SYMBOL(packet_free_many);

/* ---- Windows ----------------------------------------------------------------------------- */

u8 *packet_bytes(struct packet *packet)
{
        return packet->data->start + packet->offset;
}

bool packet_is_shared(const struct packet *packet)
{
        return refcount_read(&packet->data->users) != 1;
}

int packet_unshare(struct packet *packet, gfp_t flags)
{
        struct packet_data *data;

        if (!packet_is_shared(packet))
                return 0;
        data = packet_data_alloc(packet->length, flags);
        if (!data)
                return -ENOMEM;
        memcpy(data->start, packet_bytes(packet), packet->length);
        packet_data_put(packet->data);
        packet->data = data;
        packet->offset = 0;
        return 0;
}
EXPORT_SYMBOL(packet_unshare);

u8 *packet_pull(struct packet *packet, u32 count)
{
        if (unlikely(count > packet->length))
                return NULL;
        packet->offset += count;
        packet->length -= count;
        return packet_bytes(packet);
}
EXPORT_SYMBOL(packet_pull);

void packet_trim(struct packet *packet, u32 length)
{
        packet->length = min(packet->length, length);
}
EXPORT_SYMBOL(packet_trim);

struct packet *packet_split(struct packet *packet, u32 length, gfp_t flags)
{
        struct packet *rest;

        if (length > packet->length)
                return NULL;
        rest = packet_clone(packet, flags);
        if (!rest)
                return NULL;
        packet_pull(rest, length);
        packet_trim(packet, length);
        return rest;
}
EXPORT_SYMBOL(packet_split);

/* ---- Queues ------------------------------------------------------------------------------ */

void packet_queue_init(struct packet_queue *queue)
{
        spin_lock_init(&queue->lock);
        INIT_LIST_HEAD(&queue->packets);
        queue->length = 0;
        queue->bytes = 0;
}

static void packet_queue_count(struct packet_queue *queue, const struct packet *packet)
{
        queue->length++;
        queue->bytes += packet->length;
}

void packet_queue_tail(struct packet_queue *queue, struct packet *packet)
{
        unsigned long flags;

        spin_lock_irqsave(&queue->lock, flags);
        list_add_tail(&packet->list, &queue->packets);
        packet_queue_count(queue, packet);
        spin_unlock_irqrestore(&queue->lock, flags);
}
EXPORT_SYMBOL(packet_queue_tail);

void packet_queue_head(struct packet_queue *queue, struct packet *packet)
{
        unsigned long flags;

        spin_lock_irqsave(&queue->lock, flags);
        list_add(&packet->list, &queue->packets);
        packet_queue_count(queue, packet);
        spin_unlock_irqrestore(&queue->lock, flags);
}
EXPORT_SYMBOL(packet_queue_head);

static struct packet *packet_dequeue_locked(struct packet_queue *queue)
{
        struct packet *packet;

        lockdep_assert_held(&queue->lock);
        packet = list_first_entry_or_null(&queue->packets, struct packet, list);
        if (packet) {
                list_del_init(&packet->list);
                queue->length--;
                queue->bytes -= packet->length;
        }
        return packet;
}

struct packet *packet_dequeue(struct packet_queue *queue)
{
        struct packet *packet;
        unsigned long flags;

        spin_lock_irqsave(&queue->lock, flags);
        packet = packet_dequeue_locked(queue);
        spin_unlock_irqrestore(&queue->lock, flags);
        return packet;
}
EXPORT_SYMBOL(packet_dequeue);

unsigned int packet_dequeue_many(struct packet_queue *queue, struct packet **packets,
                                 unsigned int count)
{
        unsigned int taken = 0;
        unsigned long flags;

        spin_lock_irqsave(&queue->lock, flags);
        while (taken < count) {
                packets[taken] = packet_dequeue_locked(queue);
                if (!packets[taken])
                        break;
                taken++;
        }
        spin_unlock_irqrestore(&queue->lock, flags);
        return taken;
}
EXPORT_SYMBOL(packet_dequeue_many);

/* Two queues are never locked at once: the packets wait in a list of their own in between. */
void packet_queue_splice(struct packet_queue *from, struct packet_queue *to)
{
        LIST_HEAD(moving);
        u32 length;
        u64 bytes;

        spin_lock_bh(&from->lock);
        list_splice_init(&from->packets, &moving);
        length = from->length;
        bytes = from->bytes;
        from->length = 0;
        from->bytes = 0;
        spin_unlock_bh(&from->lock);

        spin_lock_bh(&to->lock);
        list_splice_tail(&moving, &to->packets);
        to->length += length;
        to->bytes += bytes;
        spin_unlock_bh(&to->lock);
}
EXPORT_SYMBOL(packet_queue_splice);

void packet_queue_purge(struct packet_queue *queue)
{
        struct packet *batch[32];
        unsigned int count;

        while ((count = packet_dequeue_many(queue, batch, ARRAY_SIZE(batch))))
                packet_free_many(batch, count);
}
EXPORT_SYMBOL(packet_queue_purge);

/* ---- Module ------------------------------------------------------------------------------ */

static int __init packet_module_init(void)
{
        struct kmem_cache_args args = {
                .align = L1_CACHE_BYTES,
                .useroffset = offsetof(struct packet, mark),
                .usersize = sizeof_field(struct packet, mark),
        };
        int error;

        BUILD_BUG_ON(PACKET_POOL_BYTES % sizeof(void *));
        packet_cache = kmem_cache_create("packet_head", sizeof(struct packet), &args,
                                         SLAB_HWCACHE_ALIGN | SLAB_PANIC);
        packet_pool = mempool_create(PACKET_POOL, packet_pool_alloc_head, mempool_free_slab,
                                     packet_cache);
        if (!packet_pool)
                goto no_pool;
        error = mempool_init(&packet_data_pool, PACKET_POOL, packet_pool_alloc_data, mempool_kfree,
                             (void *)PACKET_DATA_BYTES(PACKET_POOL_BYTES));
        if (!error)
                return 0;
        mempool_destroy(packet_pool);
no_pool:
        kmem_cache_destroy(packet_cache);
        return -ENOMEM;
}

static void __exit packet_module_exit(void)
{
        WARN(packet_count(), "%lu packets are left\n", packet_count());
        mempool_exit(&packet_data_pool);
        mempool_destroy(packet_pool);
        kmem_cache_destroy(packet_cache);
}

module_init(packet_module_init);
module_exit(packet_module_exit);

MODULE_DESCRIPTION("packets that share their data");
MODULE_LICENSE("Dual MIT/GPL");
