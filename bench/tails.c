/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * tails setting=NAME [key=value...]: how long single calls of malloc and free take, up to the
 * longest.
 *
 *   setting=busy     replaces a block drawn at random, all the time
 *   setting=shared   does so on several threads; every other block goes to the next thread, which
 *                    frees it
 *   setting=idle     sleeps, allocates a burst of blocks, frees them, and sleeps again
 *   setting=bursts   does so on several threads at once; every other block is freed by the next
 *   threads=N        of shared and bursts, 2 to 64 (2)
 *   calls=N          mallocs of a thread in busy and shared (500000)
 *   live=N           blocks that a thread of busy and shared has (8192)
 *   count=N          bursts (20)
 *   burst=N          blocks of a burst (4000)
 *   pause=N          milliseconds of sleep before each burst (50)
 *   seed=N           (1)
 *   show=N           also lists up to N of the longest calls, at most 64 (0)
 *
 * Sizes are drawn from 16 bytes to 64 KiB, each doubling as likely as any other; one in LARGE_ONE_IN
 * is of up to 2 MiB. The program writes to every page of a block, outside of the measured calls.
 *
 * A call is timed by the counter of cycles.h, and the median time of an empty measurement is
 * subtracted. Times are counted in a histogram of 64 buckets a doubling, so a percentile is up to
 * 1.6% too long. The line "overhead" has what was subtracted, in nanoseconds, and whether switches
 * and faults are known. Then "malloc" and "free" have the number of calls, percentiles and
 * the largest in nanoseconds, all without the calls in which the thread was preempted; the number
 * of long calls, which took over LONG_NS, and among them of those that were preempted, that waited
 * (the thread gave the CPU up, as for a lock), and that had page faults; and the largest with
 * neither of the three.
 *
 * The kernel writes the thread's switches and page faults into a ring, with their times
 * (perf_event_open). The program looks into it after a long call only, so that no system call is
 * made between measured calls. What interrupts and a hypervisor take cannot be told apart.
 *
 * A locked instruction of the allocator waits for the stores that the program made before the call;
 * this counts, as it costs a program that has just filled its block.
 *
 * Nothing here allocates while threads run: all memory is mapped at the start.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/perf_event.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "cycles.h"

enum {
        THREADS_MAX = 64,
        SIZE_DOUBLINGS_LEAST = 4,  /* 16 bytes */
        SIZE_DOUBLINGS_USUAL = 16, /* 64 KiB */
        SIZE_DOUBLINGS_LARGE = 21, /* 2 MiB */
        LARGE_ONE_IN = 512,
        PAGE_BYTES = 4096,
        LONG_NS = 20000,
        BUCKET_BITS = 6,
        BUCKETS = (64 - BUCKET_BITS + 1) << BUCKET_BITS,
        HANDED_MAX = 1024,
        RING_PAGES = 64, /* 16,000 records; a thread reads them every FEW_CALLS calls */
        FEW_CALLS = 256,
        SHOWN_MAX = 64,
        EMPTY_MEASUREMENTS = 20001,
};

enum call { CALL_MALLOC, CALL_FREE, CALLS };

static const char *const call_names[CALLS] = {"malloc", "free"};

/* The calls of a kind. Times are in cycles. */
struct times {
        uint64_t histogram[BUCKETS];
        uint64_t largest;
        uint64_t largest_clean;
        uint64_t slow, preempted, waited, faulted;
};

struct shown {
        uint64_t cycles;
        uint64_t number; /* of the thread's call */
        size_t bytes;    /* 0: a free */
        unsigned int faults;
        unsigned int waits;
};

/* Blocks on their way to a thread: one thread puts, another takes. */
struct handed {
        _Alignas(64) atomic_uint put;
        _Alignas(64) atomic_uint taken;
        void *blocks[HANDED_MAX];
};

struct worker {
        pthread_t thread;
        unsigned int index;
        uint64_t random;
        uint64_t calls;
        void **blocks;
        struct perf_event_mmap_page *ring; /* NULL: not known */
        uint64_t lost;
        struct times times[CALLS];
        struct shown shown[SHOWN_MAX];
        struct handed handed; /* to this thread */
};

static struct {
        const char *setting;
        uint64_t threads, calls, live, count, burst, pause, seed, show;
} setup = {
        .threads = 2,
        .calls = 500000,
        .live = 8192,
        .count = 20,
        .burst = 4000,
        .pause = 50,
        .seed = 1,
};

static struct worker *workers;
static unsigned int threads;
static uint64_t overhead; /* cycles */
static uint64_t long_cycles;
static double hz;
static pthread_barrier_t phase;

static void *map(size_t bytes)
{
        void *start = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);

        if (start == MAP_FAILED) {
                perror("tails: mmap");
                exit(1);
        }
        return start;
}

/* ---- the kernel's records ------------------------------------------------------------------ */

static int open_event(uint64_t config, bool switches, int group)
{
        struct perf_event_attr wanted = {
                .type = PERF_TYPE_SOFTWARE,
                .size = sizeof(wanted),
                .config = config,
                .sample_period = switches ? 0 : 1,
                .sample_type = PERF_SAMPLE_TIME,
                .exclude_kernel = 1,
                .exclude_hv = 1,
                .context_switch = switches,
                .sample_id_all = 1,
                .use_clockid = 1,
                .clockid = CLOCK_MONOTONIC,
        };

        return (int)syscall(SYS_perf_event_open, &wanted, 0, -1, group, PERF_FLAG_FD_CLOEXEC);
}

/* The ring of the calling thread, or NULL if the kernel doesn't give it. */
static struct perf_event_mmap_page *open_ring(void)
{
        int switches = open_event(PERF_COUNT_SW_DUMMY, true, -1);
        int faults = open_event(PERF_COUNT_SW_PAGE_FAULTS, false, -1);
        void *ring;

        if (switches < 0 || faults < 0)
                return NULL;
        ring = mmap(NULL, (RING_PAGES + 1) * (size_t)PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED,
                    switches, 0);
        if (ring == MAP_FAILED || ioctl(faults, PERF_EVENT_IOC_SET_OUTPUT, switches) != 0)
                return NULL;
        return ring;
}

struct seen {
        unsigned int preempted, waits, faults;
};

/*
 * Takes all records out of the ring and counts those of a time span of CLOCK_MONOTONIC. Records
 * are a header and a time, so that none wraps around the ring's end.
 */
static struct seen read_ring(struct worker *worker, uint64_t from_ns, uint64_t to_ns)
{
        struct perf_event_mmap_page *ring = worker->ring;
        const char *data = (const char *)ring + PAGE_BYTES;
        struct seen seen = {0, 0, 0};
        uint64_t head, tail;

        /* Acquire: the kernel wrote the records before it moved the head. */
        head = __atomic_load_n(&ring->data_head, __ATOMIC_ACQUIRE);
        for (tail = ring->data_tail; tail < head;) {
                const struct perf_event_header *header =
                        (const struct perf_event_header *)(data + tail % (RING_PAGES *
                                                                          (uint64_t)PAGE_BYTES));
                uint64_t at = *(const uint64_t *)(header + 1);
                bool inside = at >= from_ns && at <= to_ns;

                if (header->type == PERF_RECORD_LOST)
                        worker->lost++;
                else if (inside && header->type == PERF_RECORD_SAMPLE)
                        seen.faults++;
                else if (inside && header->type == PERF_RECORD_SWITCH &&
                         (header->misc & PERF_RECORD_MISC_SWITCH_OUT)) {
                        if (header->misc & PERF_RECORD_MISC_SWITCH_OUT_PREEMPT)
                                seen.preempted++;
                        else
                                seen.waits++;
                }
                tail += header->size;
        }
        /* Release: the kernel may reuse the room of records that were read. */
        __atomic_store_n(&ring->data_tail, tail, __ATOMIC_RELEASE);
        return seen;
}

/* ---- times --------------------------------------------------------------------------------- */

static unsigned int bucket_of(uint64_t cycles)
{
        unsigned int doubling;

        if (cycles < 1u << BUCKET_BITS)
                return (unsigned int)cycles;
        doubling = 63 - (unsigned int)__builtin_clzll(cycles);
        return ((doubling - BUCKET_BITS + 1) << BUCKET_BITS) +
               (unsigned int)(cycles >> (doubling - BUCKET_BITS)) - (1u << BUCKET_BITS);
}

/* The longest time in a bucket. */
static uint64_t bucket_end(unsigned int bucket)
{
        unsigned int doubling = bucket >> BUCKET_BITS;
        uint64_t low = bucket & ((1u << BUCKET_BITS) - 1);

        if (!doubling)
                return low;
        return ((low + (1u << BUCKET_BITS) + 1) << (doubling - 1)) - 1;
}

static void show_call(struct worker *worker, const struct shown *call)
{
        unsigned int least = 0;

        for (unsigned int i = 1; i < setup.show; i++)
                if (worker->shown[i].cycles < worker->shown[least].cycles)
                        least = i;
        if (setup.show && call->cycles > worker->shown[least].cycles)
                worker->shown[least] = *call;
}

__attribute__((noinline)) static void count_long(struct worker *worker, enum call kind,
                                                 size_t bytes, uint64_t start, uint64_t cycles)
{
        struct times *times = &worker->times[kind];
        struct seen seen = {0, 0, 0};

        times->slow++;
        if (worker->ring) {
                uint64_t ns = now_ns();
                double since = (double)(now_cycles() - start) * 1e9 / hz;
                uint64_t from_ns = ns - (uint64_t)since;

                seen = read_ring(worker, from_ns, from_ns + (uint64_t)((double)cycles * 1e9 / hz));
        }
        if (seen.preempted) {
                times->preempted++;
                return;
        }
        show_call(worker, &(struct shown){cycles, worker->calls, bytes, seen.faults, seen.waits});
        times->faulted += seen.faults > 0;
        times->waited += seen.waits > 0;
        if (!seen.faults && !seen.waits && cycles > times->largest_clean)
                times->largest_clean = cycles;
        if (cycles > times->largest)
                times->largest = cycles;
        times->histogram[bucket_of(cycles)]++;
}

static inline void count_call(struct worker *worker, enum call kind, size_t bytes, uint64_t start,
                              uint64_t end)
{
        struct times *times = &worker->times[kind];
        uint64_t cycles = end - start > overhead ? end - start - overhead : 0;

        worker->calls++;
        if (__builtin_expect(cycles > long_cycles, 0)) {
                count_long(worker, kind, bytes, start, cycles);
                return;
        }
        if (cycles > times->largest)
                times->largest = times->largest_clean = cycles;
        times->histogram[bucket_of(cycles)]++;
        if (worker->calls % FEW_CALLS == 0 && worker->ring)
                read_ring(worker, UINT64_MAX, 0);
}

static int compare_numbers(const void *a, const void *b)
{
        uint64_t left = *(const uint64_t *)a;
        uint64_t right = *(const uint64_t *)b;

        return (left > right) - (left < right);
}

static uint64_t measure_overhead(void)
{
        uint64_t *empty = map(EMPTY_MEASUREMENTS * sizeof(*empty));
        uint64_t median;

        for (unsigned int i = 0; i < EMPTY_MEASUREMENTS; i++) {
                uint64_t start = now_cycles();

                empty[i] = now_cycles() - start;
        }
        /* glibc's qsort may allocate. No call was measured yet. */
        qsort(empty, EMPTY_MEASUREMENTS, sizeof(*empty), compare_numbers);
        median = empty[EMPTY_MEASUREMENTS / 2];
        munmap(empty, EMPTY_MEASUREMENTS * sizeof(*empty));
        return median;
}

/* ---- the measured calls -------------------------------------------------------------------- */

static uint64_t random_next(uint64_t *state)
{
        *state ^= *state << 13;
        *state ^= *state >> 7;
        *state ^= *state << 17;
        return *state * 0x2545f4914f6cdd1dull >> 16;
}

static size_t random_size(uint64_t *random)
{
        unsigned int least = SIZE_DOUBLINGS_LEAST;
        unsigned int most = SIZE_DOUBLINGS_USUAL;
        size_t base;

        if (random_next(random) % LARGE_ONE_IN == 0) {
                least = SIZE_DOUBLINGS_USUAL;
                most = SIZE_DOUBLINGS_LARGE;
        }
        base = (size_t)1 << (least + random_next(random) % (most - least));
        return base + random_next(random) % (base + 1);
}

static void *timed_malloc(struct worker *worker)
{
        size_t bytes = random_size(&worker->random);
        uint64_t start = now_cycles();
        char *block = malloc(bytes);
        uint64_t end = now_cycles();

        if (!block) {
                fprintf(stderr, "tails: malloc of %zu bytes failed\n", bytes);
                exit(1);
        }
        count_call(worker, CALL_MALLOC, bytes, start, end);
        for (size_t i = 0; i < bytes; i += PAGE_BYTES)
                block[i] = 1;
        block[bytes - 1] = 1;
        return block;
}

static void timed_free(struct worker *worker, void *block)
{
        uint64_t start = now_cycles();
        uint64_t end;

        free(block);
        end = now_cycles();
        count_call(worker, CALL_FREE, 0, start, end);
}

static struct worker *next_worker(const struct worker *worker)
{
        return &workers[(worker->index + 1) % threads];
}

static void hand_over(struct worker *worker, void *block)
{
        struct handed *handed = &next_worker(worker)->handed;
        unsigned int put = atomic_load_explicit(&handed->put, memory_order_relaxed);

        if (put - atomic_load_explicit(&handed->taken, memory_order_acquire) == HANDED_MAX) {
                timed_free(worker, block);
                return;
        }
        handed->blocks[put % HANDED_MAX] = block;
        /* Pairs with the acquire in free_handed. */
        atomic_store_explicit(&handed->put, put + 1, memory_order_release);
}

static void free_handed(struct worker *worker)
{
        struct handed *handed = &worker->handed;
        unsigned int put = atomic_load_explicit(&handed->put, memory_order_acquire);
        unsigned int taken = atomic_load_explicit(&handed->taken, memory_order_relaxed);

        while (taken != put) {
                timed_free(worker, handed->blocks[taken++ % HANDED_MAX]);
                /* Pairs with the acquire in hand_over. */
                atomic_store_explicit(&handed->taken, taken, memory_order_release);
        }
}

static void stay_busy(struct worker *worker)
{
        for (uint64_t i = 0; i < setup.calls; i++) {
                void **place = &worker->blocks[random_next(&worker->random) % setup.live];

                if (*place) {
                        if (threads > 1 && i % 2)
                                hand_over(worker, *place);
                        else
                                timed_free(worker, *place);
                }
                *place = timed_malloc(worker);
                if (threads > 1)
                        free_handed(worker);
        }
}

static void pause_ms(uint64_t milliseconds)
{
        struct timespec left = {(time_t)(milliseconds / 1000),
                                (long)(milliseconds % 1000) * 1000000};

        while (nanosleep(&left, &left))
                ;
}

static void one_burst(struct worker *worker)
{
        struct worker *next = next_worker(worker);

        for (uint64_t i = 0; i < setup.burst; i++)
                worker->blocks[i] = timed_malloc(worker);
        if (threads > 1)
                pthread_barrier_wait(&phase);
        for (uint64_t i = 0; i < setup.burst; i++)
                timed_free(worker, i % 2 ? next->blocks[i] : worker->blocks[i]);
        /* Nobody fills an array again that its neighbour still reads. */
        if (threads > 1)
                pthread_barrier_wait(&phase);
}

static void *run(void *argument)
{
        struct worker *worker = argument;
        bool busy = strcmp(setup.setting, "busy") == 0 || strcmp(setup.setting, "shared") == 0;

        worker->ring = open_ring();
        if (threads > 1)
                pthread_barrier_wait(&phase);
        if (busy) {
                stay_busy(worker);
        } else {
                for (uint64_t i = 0; i < setup.count; i++) {
                        pause_ms(setup.pause);
                        one_burst(worker);
                }
        }
        return NULL;
}

/* ---- the program --------------------------------------------------------------------------- */

static double as_ns(uint64_t cycles)
{
        return (double)cycles * 1e9 / hz;
}

static void add_times(struct times *sum, const struct times *times)
{
        for (unsigned int i = 0; i < BUCKETS; i++)
                sum->histogram[i] += times->histogram[i];
        if (times->largest > sum->largest)
                sum->largest = times->largest;
        if (times->largest_clean > sum->largest_clean)
                sum->largest_clean = times->largest_clean;
        sum->slow += times->slow;
        sum->preempted += times->preempted;
        sum->waited += times->waited;
        sum->faulted += times->faulted;
}

/* The time that a share of the calls, in 1 to 10,000 parts, does not exceed. */
static uint64_t percentile(const struct times *times, uint64_t calls, uint64_t parts)
{
        uint64_t wanted = (calls * parts + 9999) / 10000;
        uint64_t seen = 0;

        for (unsigned int i = 0; i < BUCKETS; i++) {
                seen += times->histogram[i];
                if (seen >= wanted)
                        return bucket_end(i) < times->largest ? bucket_end(i) : times->largest;
        }
        return times->largest;
}

static void print_times(enum call kind)
{
        struct times *sum = map(sizeof(*sum));
        uint64_t calls = 0;

        for (unsigned int i = 0; i < threads; i++)
                add_times(sum, &workers[i].times[kind]);
        for (unsigned int i = 0; i < BUCKETS; i++)
                calls += sum->histogram[i];
        printf("%s calls=%lu p50=%.1f p99=%.1f p99.9=%.1f p99.99=%.1f largest=%.1f long=%lu "
               "preempted=%lu waited=%lu faulted=%lu clean=%.1f\n",
               call_names[kind], (unsigned long)calls, as_ns(percentile(sum, calls, 5000)),
               as_ns(percentile(sum, calls, 9900)), as_ns(percentile(sum, calls, 9990)),
               as_ns(percentile(sum, calls, 9999)), as_ns(sum->largest), (unsigned long)sum->slow,
               (unsigned long)sum->preempted, (unsigned long)sum->waited,
               (unsigned long)sum->faulted, as_ns(sum->largest_clean));
        munmap(sum, sizeof(*sum));
}

static void print_shown(void)
{
        for (unsigned int i = 0; i < threads; i++)
                for (unsigned int j = 0; j < setup.show; j++) {
                        const struct shown *call = &workers[i].shown[j];

                        if (call->cycles)
                                printf("shown thread=%u call=%lu ns=%.0f bytes=%zu faults=%u "
                                       "waits=%u\n",
                                       i, (unsigned long)call->number, as_ns(call->cycles),
                                       call->bytes, call->faults, call->waits);
                }
}

static void fail(const char *argument)
{
        fprintf(stderr,
                "tails: %s: expected setting=busy, shared, idle or bursts; or threads (2 to %d), "
                "calls, live, count, burst, pause, seed or show (0 to %d), with = and a number\n",
                argument, THREADS_MAX, SHOWN_MAX);
        exit(2);
}

static void parse(const char *argument)
{
        static const struct {
                const char *name;
                uint64_t *place;
                uint64_t least, most;
        } keys[] = {
                {"threads", &setup.threads, 2, THREADS_MAX}, {"calls", &setup.calls, 1, 1u << 31},
                {"live", &setup.live, 1, 1u << 24},          {"count", &setup.count, 1, 1u << 20},
                {"burst", &setup.burst, 1, 1u << 24},        {"pause", &setup.pause, 0, 100000},
                {"seed", &setup.seed, 0, UINT64_MAX},        {"show", &setup.show, 0, SHOWN_MAX},
        };
        static const char *const settings[] = {"busy", "shared", "idle", "bursts"};
        const char *value = strchr(argument, '=');
        char *end;

        if (!value)
                fail(argument);
        value++;
        if (strncmp(argument, "setting=", 8) == 0) {
                for (size_t i = 0; i < sizeof(settings) / sizeof(*settings); i++)
                        if (strcmp(value, settings[i]) == 0)
                                setup.setting = settings[i];
                if (!setup.setting)
                        fail(argument);
                return;
        }
        for (size_t i = 0; i < sizeof(keys) / sizeof(*keys); i++) {
                uint64_t number;

                if (strlen(keys[i].name) + 1 != (size_t)(value - argument) ||
                    strncmp(keys[i].name, argument, strlen(keys[i].name)) != 0)
                        continue;
                errno = 0;
                number = strtoull(value, &end, 10);
                if (errno || *end || end == value || *value == '-' || number < keys[i].least ||
                    number > keys[i].most)
                        fail(argument);
                *keys[i].place = number;
                return;
        }
        fail(argument);
}

int main(int argc, char **argv)
{
        uint64_t most;
        bool known = true;

        for (int i = 1; i < argc; i++)
                parse(argv[i]);
        if (!setup.setting)
                fail("no setting");
        threads = strcmp(setup.setting, "shared") == 0 || strcmp(setup.setting, "bursts") == 0
                          ? (unsigned int)setup.threads
                          : 1;
        hz = cycles_per_second();
        overhead = measure_overhead();
        long_cycles = (uint64_t)(LONG_NS * hz / 1e9);
        workers = map(threads * sizeof(*workers));
        most = setup.live > setup.burst ? setup.live : setup.burst;
        pthread_barrier_init(&phase, NULL, threads);
        for (unsigned int i = 0; i < threads; i++) {
                workers[i].index = i;
                workers[i].random = (setup.seed * THREADS_MAX + i + 1) * 0x9e3779b97f4a7c15ull;
                workers[i].blocks = map(most * sizeof(void *));
        }
        /* A single thread is the main thread, so that the program has no other. */
        for (unsigned int i = 1; i < threads; i++)
                if (pthread_create(&workers[i].thread, NULL, run, &workers[i])) {
                        fprintf(stderr, "tails: no thread\n");
                        return 1;
                }
        run(&workers[0]);
        for (unsigned int i = 1; i < threads; i++)
                pthread_join(workers[i].thread, NULL);
        for (unsigned int i = 0; i < threads; i++)
                known = known && workers[i].ring && !workers[i].lost;
        printf("overhead ns=%.1f known=%d\n", as_ns(overhead), known);
        print_times(CALL_MALLOC);
        print_times(CALL_FREE);
        print_shown();
        return 0;
}
