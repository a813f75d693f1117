/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * sleeping [key=value...]: measures how much of a heap stays resident after threads that never call
 * the allocator again have freed most of it.
 *
 *   bytes=N     allocated in all, M or G may follow (1G)
 *   blocks=N    allocated in all, in place of bytes (0: as bytes says)
 *   least=N     sizes are drawn between these, each doubling as likely as any other (4096)
 *   most=N      (65536)
 *   keep=N      one block in N stays (20; 0: none does)
 *   run=N       bytes of consecutive blocks that stay or go together (0: each block by itself)
 *   threads=N   that allocate, free in random order, and then sleep; 0: the main thread does, and
 *               there is no other (2)
 *   wait=N      milliseconds of sleep (1100)
 *   later=N     milliseconds of sleep after that, before a last look (0)
 *   trim=1      calls malloc_trim(0) instead of sleeping
 *   seed=N      (1)
 *
 * Writes a line of key=value. Bytes are of the heap: memory that was resident before the first
 * allocation is subtracted. "full" is after the allocations, "freed" after the frees, "slept" after
 * the sleep and "later" after the second sleep. "pages" is the size of all pages with a live block: an allocator that
 * cannot move blocks keeps at least these. "cpu_us" is the process's time while it slept for the first time.
 *
 * The program asks the system for its own tables, and for its figures without the allocator.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <malloc.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

/* musl has none. */
extern int malloc_trim(size_t keep) __attribute__((weak));

enum { THREADS_MAX = 64 };

struct block {
        char *start;
        uint32_t bytes;
        uint32_t keep;
};

struct worker {
        struct block *blocks;
        size_t count;
        size_t most; /* number of entries there is room for */
        uint64_t random;
        pthread_t thread;
};

static struct {
        uint64_t bytes, blocks, least, most, keep, run, threads, wait, later, trim, seed;
} setup = {
        .bytes = 1 << 30,
        .least = 4096,
        .most = 65536,
        .keep = 20,
        .threads = 2,
        .wait = 1100,
        .seed = 1,
};

static struct worker workers[THREADS_MAX];
static pthread_barrier_t phase;

static uint64_t random_next(uint64_t *state)
{
        *state ^= *state << 13;
        *state ^= *state >> 7;
        *state ^= *state << 17;
        return *state * 0x2545f4914f6cdd1dull >> 16;
}

static void *map(size_t bytes)
{
        void *start = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);

        if (start == MAP_FAILED) {
                perror("sleeping: mmap");
                exit(1);
        }
        return start;
}

static uint64_t resident_bytes(void)
{
        int file = open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
        char text[128] = "";
        char *next = text;

        if (file < 0 || read(file, text, sizeof(text) - 1) <= 0) {
                perror("sleeping: /proc/self/statm");
                exit(1);
        }
        close(file);
        strtoull(next, &next, 10);
        return strtoull(next, NULL, 10) * (uint64_t)sysconf(_SC_PAGESIZE);
}

static uint64_t cpu_us(void)
{
        struct timespec used;

        clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
        return (uint64_t)used.tv_sec * 1000000 + (uint64_t)used.tv_nsec / 1000;
}

static void pause_ms(uint64_t milliseconds)
{
        struct timespec left = {(time_t)(milliseconds / 1000),
                                (long)(milliseconds % 1000) * 1000000};

        while (nanosleep(&left, &left))
                ;
}

/* Draws the whole doublings of `least` first, so that small sizes are as common as large sizes. */
static uint32_t random_size(uint64_t *random)
{
        uint64_t doublings = 0;
        uint64_t least;
        uint64_t size;

        while (setup.least << doublings < setup.most)
                doublings++;
        if (!doublings)
                return (uint32_t)setup.least;
        least = setup.least << random_next(random) % doublings;
        size = least + 1 + random_next(random) % least;
        return (uint32_t)(size < setup.most ? size : setup.most);
}

static void allocate(struct worker *worker, uint64_t bytes)
{
        uint64_t in_run = 0;
        uint32_t keep = 0;

        while (bytes && worker->count < worker->most) {
                struct block *block = &worker->blocks[worker->count++];

                block->bytes = random_size(&worker->random);
                block->start = malloc(block->bytes);
                if (!block->start) {
                        fputs("sleeping: out of memory\n", stderr);
                        exit(1);
                }
                memset(block->start, 1, block->bytes);
                if (!in_run) {
                        keep = setup.keep && random_next(&worker->random) % setup.keep == 0;
                        in_run = setup.run;
                }
                in_run -= in_run < block->bytes ? in_run : block->bytes;
                block->keep = keep;
                bytes -= bytes < block->bytes ? bytes : block->bytes;
        }
}

static void free_most(struct worker *worker)
{
        for (size_t left = worker->count; left > 1; left--) {
                size_t other = random_next(&worker->random) % left;
                struct block block = worker->blocks[left - 1];

                worker->blocks[left - 1] = worker->blocks[other];
                worker->blocks[other] = block;
        }
        for (size_t i = 0; i < worker->count; i++)
                if (!worker->blocks[i].keep)
                        free(worker->blocks[i].start);
}

static void work(struct worker *worker)
{
        uint64_t shares = setup.threads ? setup.threads : 1;

        allocate(worker, setup.blocks ? UINT64_MAX : setup.bytes / shares);
        if (setup.threads) {
                pthread_barrier_wait(&phase);
                pthread_barrier_wait(&phase);
        }
}

static void *run(void *argument)
{
        struct worker *worker = argument;

        work(worker);
        free_most(worker);
        pthread_barrier_wait(&phase);
        for (;;)
                pause();
        return NULL;
}

static int compare_numbers(const void *a, const void *b)
{
        uint64_t left = *(const uint64_t *)a;
        uint64_t right = *(const uint64_t *)b;

        return (left > right) - (left < right);
}

/* Bytes of live blocks, and of the pages they lie in. */
static void count_live(uint64_t *live, uint64_t *pages)
{
        uint64_t page_bytes = (uint64_t)sysconf(_SC_PAGESIZE);
        uint64_t shares = setup.threads ? setup.threads : 1;
        uint64_t count = 0;
        uint64_t *numbers;
        uint64_t length = 0;

        *live = 0;
        for (uint64_t i = 0; i < shares; i++)
                for (size_t j = 0; j < workers[i].count; j++)
                        if (workers[i].blocks[j].keep)
                                count += 2 + workers[i].blocks[j].bytes / page_bytes;
        numbers = map((count + 1) * sizeof(*numbers));
        for (uint64_t i = 0; i < shares; i++)
                for (size_t j = 0; j < workers[i].count; j++) {
                        const struct block *block = &workers[i].blocks[j];
                        uint64_t page = (uintptr_t)block->start / page_bytes;

                        if (!block->keep)
                                continue;
                        *live += block->bytes;
                        while (page * page_bytes < (uintptr_t)block->start + block->bytes)
                                numbers[length++] = page++;
                }
        qsort(numbers, length, sizeof(*numbers), compare_numbers);
        *pages = 0;
        for (uint64_t i = 0; i < length; i++)
                *pages += i == 0 || numbers[i] != numbers[i - 1] ? page_bytes : 0;
        munmap(numbers, (count + 1) * sizeof(*numbers));
}

static void parse(const char *argument)
{
        static const struct {
                const char *name;
                uint64_t *place;
        } keys[] = {
                {"bytes", &setup.bytes},     {"blocks", &setup.blocks}, {"least", &setup.least},
                {"most", &setup.most},       {"keep", &setup.keep},     {"run", &setup.run},
                {"threads", &setup.threads}, {"wait", &setup.wait},     {"later", &setup.later},
                {"trim", &setup.trim},       {"seed", &setup.seed},
        };
        const char *value = strchr(argument, '=');

        for (size_t i = 0; value && i < sizeof(keys) / sizeof(*keys); i++)
                if (strlen(keys[i].name) == (size_t)(value - argument) &&
                    memcmp(keys[i].name, argument, (size_t)(value - argument)) == 0) {
                        char *end;

                        *keys[i].place = strtoull(value + 1, &end, 10);
                        if (*end == 'G' || *end == 'M')
                                *keys[i].place <<= *end == 'G' ? 30 : 20;
                        return;
                }
        fprintf(stderr,
                "sleeping: %s: expected bytes, blocks, least, most, keep, run, threads, wait, "
                "later, trim or seed, with = and a number\n",
                argument);
        exit(2);
}

int main(int argc, char **argv)
{
        uint64_t before, full, freed, after, later, used, shares, live, pages;

        for (int i = 1; i < argc; i++)
                parse(argv[i]);
        if (setup.threads > THREADS_MAX || setup.least < 1 || setup.most < setup.least ||
            setup.most > UINT32_MAX) {
                fprintf(stderr, "sleeping: expected at most %d threads, and 1 <= least <= most\n",
                        THREADS_MAX);
                return 2;
        }
        shares = setup.threads ? setup.threads : 1;
        for (uint64_t i = 0; i < shares; i++) {
                workers[i].most = setup.blocks ? setup.blocks / shares
                                               : setup.bytes / shares / setup.least * 2 + 16;
                workers[i].blocks = map(workers[i].most * sizeof(struct block));
                workers[i].random = (setup.seed * THREADS_MAX + i + 1) * 0x9e3779b97f4a7c15ull;
        }
        before = resident_bytes();
        if (setup.threads) {
                pthread_barrier_init(&phase, NULL, (unsigned int)setup.threads + 1);
                for (uint64_t i = 0; i < shares; i++)
                        pthread_create(&workers[i].thread, NULL, run, &workers[i]);
                pthread_barrier_wait(&phase);
                full = resident_bytes();
                pthread_barrier_wait(&phase);
                pthread_barrier_wait(&phase);
        } else {
                work(&workers[0]);
                full = resident_bytes();
                free_most(&workers[0]);
        }
        freed = resident_bytes();
        used = cpu_us();
        if (setup.trim && malloc_trim)
                malloc_trim(0);
        else
                pause_ms(setup.wait);
        after = resident_bytes();
        used = cpu_us() - used;
        pause_ms(setup.later);
        later = resident_bytes();
        count_live(&live, &pages);
        dprintf(STDOUT_FILENO,
                "live=%lu pages=%lu full=%lu freed=%lu slept=%lu later=%lu cpu_us=%lu\n",
                (unsigned long)live, (unsigned long)pages, (unsigned long)(full - before),
                (unsigned long)(freed - before), (unsigned long)(after - before),
                (unsigned long)(later - before), (unsigned long)used);
        return 0;
}
