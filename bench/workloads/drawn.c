/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * drawn: a workload that its arguments describe. `kmem bench hunt` draws them at random, and looks
 * for kinds of work that an allocator is bad at.
 *
 * Arguments besides those of workload.h, each `key=value`:
 *   sizes=WORD          constant (least), uniform, power (Pareto, shape 1), doublings (each as
 *                       likely as the next), or the sizes that a program asked for (size_tables.h)
 *   least=N, most=N     bytes of the smallest and largest block, 8 to 16 MiB
 *   live=N              bytes in all threads' blocks at a time, as far as a quarter of the blocks
 *                       are enough for it
 *   lives=WORD          stack, queue, random (a block at a random place is replaced), phases (all
 *                       are made, then all freed in order), scattered (the same in random order)
 *   burst=N             blocks that are freed, and made, in a row
 *   generations=N       threads that follow each other; each inherits its predecessor's blocks
 *   inherit=yes|no      no: a thread that ends frees its blocks, unless it is the last
 *   handover=WORD       who frees a block: none (its maker), pairs (threads 0 and 1 each other's, 2
 *                       and 3, ...), ring (the next thread), random, oneway (odd threads free what
 *                       even threads make, and make nothing)
 *   handed=N            percent of the blocks that are handed over
 *   batch=N             blocks that are handed over together
 *   touch=WORD          what is written of a block, and read at its end: first (8 bytes), pages
 *                       (both ends and a word in every 4 KiB), all
 *   reads=N             blocks at random places that are read for each block made
 *   realloc=N           blocks at random places that are resized for each 100 blocks made
 *   calloc=N            percent of the blocks that come from calloc
 *   aligned=N           percent that come from posix_memalign, at 32 to 256 bytes
 *
 * At scale 1 the threads make a million blocks, and resized blocks count as made. A thread with
 * blocks for a full inbox empties its own and tries again, so no more than INBOX_BATCHES batches
 * wait for a thread.
 */

#define _GNU_SOURCE
#include "drawn_blocks.h"
#include "inbox.h"

#include <stdbool.h>
#include <time.h>

enum {
        BLOCKS = 1000000,  /* of all threads together, at scale 1 */
        PLACES_MIN = 4,    /* of a thread */
        INBOX_BATCHES = 8, /* that wait for a thread, at most, and INBOX_BLOCKS_MIN blocks */
        INBOX_BLOCKS_MIN = 256,
        YIELDS = 16, /* before a thread that waits sleeps */
        NAP_NS = 50 * 1000,
};

/* A thread, its successors, and what they own. Only the one that runs touches it, but the inbox. */
struct lane {
        struct worker worker;
        void **blocks; /* places entries; NULL is empty */
        size_t places; /* at least PLACES_MIN */
        size_t used;   /* places below may have blocks: all, or the height of stack and phase */
        size_t next;   /* the oldest block of a queue; the next to end of an ending phase */
        bool ending;   /* a phase frees */
        uint64_t blocks_left; /* to make in this generation */
        uint64_t share;       /* blocks of a generation */
        unsigned int generations_left;
        pthread_t thread; /* the predecessor until it was joined; at last the last one */
        bool has_predecessor;
        unsigned int outgoing;
        void *out[BATCH_MAX];
        struct inbox inbox;
};

static struct workload workload;
static struct lane *lanes;
static unsigned int nr_making; /* lanes that may still hand blocks over; atomic */

static pthread_mutex_t ends_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t ends_changed = PTHREAD_COND_INITIALIZER;
static unsigned int nr_ended; /* lanes; under ends_lock */

/* ---- Hand-over ---- */

/* Lets others run: first by yields, which cost little, then by naps, which let many run. */
static void wait_a_moment(unsigned int *turns)
{
        if ((*turns)++ < YIELDS)
                sched_yield();
        else
                nanosleep(&(struct timespec){0, NAP_NS}, NULL);
}

static bool lane_empty_inbox(struct lane *lane)
{
        void **items;
        unsigned int count = inbox_take(&lane->inbox, &items);

        for (unsigned int i = 0; i < count; i++)
                drawn_free(&lane->worker, items[i]);
        return count > 0;
}

static struct lane *lane_receiver(struct lane *lane)
{
        unsigned int index = lane->worker.index;
        unsigned int threads = workload.threads;

        switch (chosen(HANDOVER)) {
        case HANDOVER_PAIRS:
        case HANDOVER_ONEWAY:
                index ^= 1;
                break;
        case HANDOVER_RING:
                index = (index + 1) % threads;
                break;
        default:
                index = (unsigned int)random_below(&lane->worker.random, threads);
        }
        /* The last of an odd number has no partner. */
        return &lanes[index < threads ? index : 0];
}

static void lane_send(struct lane *lane)
{
        struct lane *receiver;
        unsigned int turns = 0;

        if (!lane->outgoing)
                return;
        receiver = lane_receiver(lane);
        while (!inbox_put(&receiver->inbox, lane->out, lane->outgoing)) {
                if (!lane_empty_inbox(lane))
                        wait_a_moment(&turns);
        }
        lane->outgoing = 0;
}

/* Ends a block's life in the lane: its own free, or that of another. */
static void lane_drop(struct lane *lane, void *block)
{
        if (chosen(HANDOVER) == HANDOVER_NONE || !percent(&lane->worker, HANDED)) {
                drawn_free(&lane->worker, block);
                return;
        }
        lane->out[lane->outgoing++] = block;
        if (lane->outgoing == number(BATCH))
                lane_send(lane);
}

/* ---- Lifetimes: each turn frees and makes at most a burst ---- */

static void lane_put(struct lane *lane, size_t place)
{
        if (!lane->blocks_left)
                return;
        lane->blocks_left--;
        lane->blocks[place] = drawn_new(&lane->worker);
}

static void lane_take(struct lane *lane, size_t place)
{
        void *block = lane->blocks[place];

        lane->blocks[place] = NULL;
        if (block)
                lane_drop(lane, block);
}

/* Reads and resizes blocks at random places, for each of `count` blocks made. */
static void lane_visit(struct lane *lane, uint64_t count)
{
        uint64_t *random = &lane->worker.random;

        while (count-- && lane->used) {
                for (uint64_t i = 0; i < number(READS); i++) {
                        void *block = lane->blocks[random_below(random, lane->used)];

                        if (block)
                                drawn_check(&lane->worker, block, SIZE_MAX);
                }
                if (percent(&lane->worker, REALLOC)) {
                        size_t place = random_below(random, lane->used);

                        if (lane->blocks[place])
                                lane->blocks[place] =
                                        drawn_resized(&lane->worker, lane->blocks[place]);
                }
        }
}

/* The stack goes to a height near the present one, and every sixteenth time to any height. */
static void turn_stack(struct lane *lane)
{
        uint64_t *random = &lane->worker.random;
        size_t reach = number(BURST);
        size_t low = lane->used > reach ? lane->used - reach : 0;
        size_t high = lane->used + reach < lane->places ? lane->used + reach : lane->places;
        size_t height = random_below(random, 16) ? low + random_below(random, high - low + 1)
                                                 : random_below(random, lane->places + 1);

        while (lane->used > height)
                lane_take(lane, --lane->used);
        while (lane->used < height && lane->blocks_left)
                lane_put(lane, lane->used++);
}

static void turn_queue(struct lane *lane)
{
        uint64_t burst = number(BURST) < lane->places ? number(BURST) : lane->places;

        for (uint64_t i = 0; i < burst; i++)
                lane_take(lane, (lane->next + i) % lane->places);
        for (uint64_t i = 0; i < burst; i++)
                lane_put(lane, (lane->next + i) % lane->places);
        lane->next = (lane->next + burst) % lane->places;
        lane->used = lane->places;
}

/* The places are drawn twice from the same numbers, which need no memory of their own. */
static void turn_random(struct lane *lane)
{
        uint64_t burst = number(BURST) < lane->places ? number(BURST) : lane->places;
        uint64_t draw = random_next(&lane->worker.random);
        uint64_t again = draw;

        for (uint64_t i = 0; i < burst; i++)
                lane_take(lane, random_below(&draw, lane->places));
        for (uint64_t i = 0; i < burst; i++) {
                size_t place = random_below(&again, lane->places);

                if (!lane->blocks[place])
                        lane_put(lane, place);
        }
        lane->used = lane->places;
}

static void lane_scatter(struct lane *lane)
{
        for (size_t i = lane->used; i > 1; i--) {
                size_t other = random_below(&lane->worker.random, i);
                void *block = lane->blocks[i - 1];

                lane->blocks[i - 1] = lane->blocks[other];
                lane->blocks[other] = block;
        }
}

static void turn_phase(struct lane *lane)
{
        uint64_t burst = number(BURST);

        if (!lane->ending) {
                for (; burst && lane->used < lane->places && lane->blocks_left; burst--)
                        lane_put(lane, lane->used++);
                lane->ending = lane->used == lane->places;
                lane->next = 0;
                if (lane->ending && chosen(LIVES) == LIVES_SCATTERED)
                        lane_scatter(lane);
                return;
        }
        for (; burst && lane->next < lane->used; burst--)
                lane_take(lane, lane->next++);
        if (lane->next == lane->used) {
                lane->ending = false;
                lane->used = 0;
        }
}

static void lane_turn(struct lane *lane)
{
        uint64_t before = lane->blocks_left;

        switch (chosen(LIVES)) {
        case LIVES_STACK:
                turn_stack(lane);
                break;
        case LIVES_QUEUE:
                turn_queue(lane);
                break;
        case LIVES_RANDOM:
                turn_random(lane);
                break;
        default:
                turn_phase(lane);
        }
        lane_visit(lane, before - lane->blocks_left);
        lane_empty_inbox(lane);
}

/* ---- Threads ---- */

static bool lane_makes(const struct lane *lane)
{
        return chosen(HANDOVER) != HANDOVER_ONEWAY || !(lane->worker.index & 1);
}

static void lane_free_all(struct lane *lane)
{
        for (size_t i = 0; i < lane->places; i++) {
                if (lane->blocks[i])
                        drawn_free(&lane->worker, lane->blocks[i]);
                lane->blocks[i] = NULL;
        }
        lane->used = 0;
        lane->ending = false;
}

/* Frees what others still hand over until all have made their blocks. */
static void lane_finish(struct lane *lane)
{
        unsigned int turns = 0; /* since something came */

        lane_send(lane);
        __atomic_sub_fetch(&nr_making, 1, __ATOMIC_RELEASE); /* the inboxes' locks order the rest */
        while (__atomic_load_n(&nr_making, __ATOMIC_ACQUIRE)) {
                if (lane_empty_inbox(lane))
                        turns = 0;
                else
                        wait_a_moment(&turns);
        }
        lane_empty_inbox(lane);
        lane_free_all(lane);
        pthread_mutex_lock(&ends_lock);
        nr_ended++;
        pthread_cond_signal(&ends_changed);
        pthread_mutex_unlock(&ends_lock);
}

/* A thread joins its predecessor, whose memory is then as dead as it gets, and starts the next. */
static void *lane_run(void *argument)
{
        struct lane *lane = argument;
        pthread_t successor; /* it joins this thread, whose id is in lane->thread */

        if (lane->has_predecessor)
                pthread_join(lane->thread, NULL);
        lane->has_predecessor = true;
        lane->thread = pthread_self();
        lane->blocks_left = lane_makes(lane) ? lane->share : 0;
        while (lane->blocks_left)
                lane_turn(lane);
        if (!--lane->generations_left) {
                lane_finish(lane);
                return NULL;
        }
        if (!chosen(INHERIT))
                lane_free_all(lane);
        thread_start(&workload, &successor, lane_run, lane);
        return NULL;
}

static void lane_init(struct lane *lane, unsigned int index, size_t places, uint64_t share)
{
        worker_init(&lane->worker, &workload, index);
        lane->places = places;
        lane->blocks = table_new(&workload, places, sizeof(*lane->blocks));
        lane->share = share;
        lane->generations_left = (unsigned int)number(GENERATIONS);
        if (!inbox_init(&lane->inbox,
                        INBOX_BLOCKS_MIN + INBOX_BATCHES * (unsigned int)number(BATCH)))
                workload_fail(&workload, "out of memory", 0);
}

static void lanes_start(void)
{
        unsigned int makers =
                chosen(HANDOVER) == HANDOVER_ONEWAY ? (workload.threads + 1) / 2 : workload.threads;
        size_t mean =
                sizes_draw(drawn_sizes, workload.seed, chosen(SIZES), number(LEAST), number(MOST));
        uint64_t share = workload_share(&workload, BLOCKS) * workload.threads / makers;
        size_t places = number(LIVE) / mean / makers;

        if (places > share / 4)
                places = share / 4;
        if (places < PLACES_MIN)
                places = PLACES_MIN;
        share = (share + number(GENERATIONS) - 1) / number(GENERATIONS);
        lanes = table_new(&workload, workload.threads, sizeof(*lanes));
        nr_making = workload.threads;
        for (unsigned int i = 0; i < workload.threads; i++)
                lane_init(&lanes[i], i, places, share);
        for (unsigned int i = 0; i < workload.threads; i++) {
                pthread_t first;

                thread_start(&workload, &first, lane_run, &lanes[i]);
        }
}

/* Waits for the last thread of each lane; they have joined all others. */
static struct worker lanes_join(void)
{
        struct worker sum;

        worker_init(&sum, &workload, 0);
        pthread_mutex_lock(&ends_lock);
        while (nr_ended < workload.threads)
                pthread_cond_wait(&ends_changed, &ends_lock);
        pthread_mutex_unlock(&ends_lock);
        for (unsigned int i = 0; i < workload.threads; i++) {
                pthread_join(lanes[i].thread, NULL);
                worker_add(&sum, &lanes[i].worker);
                inbox_destroy(&lanes[i].inbox);
                free(lanes[i].blocks);
        }
        free(lanes);
        return sum;
}

int main(int argc, char **argv)
{
        struct worker sum;

        argc = workload_numbers("drawn", argc, argv, numbers, NR_NUMBERS);
        workload = workload_init("drawn", argc, argv, choices, NR_CHOICES);
        workload_refuse_progress(&workload);
        if (number(MOST) < number(LEAST)) {
                fprintf(stderr, "drawn: most=%llu: expected at least least=%llu\n",
                        (unsigned long long)number(MOST), (unsigned long long)number(LEAST));
                return 2;
        }
        lanes_start();
        sum = lanes_join();
        return workload_finish(&workload, &sum, choices, NR_CHOICES);
}
