/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * The common part of the workload programs: arguments, random numbers, blocks that know their own
 * content, threads, and the line that each program prints.
 *
 * The arguments fix a workload's amount of work, so it is timed from outside. It uses nothing of an
 * allocator but the C or C++ standard's calls.
 *
 * Arguments, each `key=value`, in any order:
 *   threads=N   1 to 1024; the CPUs this process may use if not given
 *   scale=X     0.0001 to 1000: times the work of the default, 1
 *   seed=N      of the random numbers, 0 to 2^64 - 1, 1 if not given
 *   progress=F  keep the threads' counts (struct worker) in file F, where others can read them
 * and the words that a program defines itself (struct workload_choice). The work is divided among
 * the threads; live memory is too, unless the program says otherwise.
 *
 * Output: "NAME threads=N scale=X seed=N [KEY=WORD] blocks=N checksum=HEX".
 * Exit code 0; 1 if memory ran out or contents changed; 2 for a wrong argument.
 *
 * The line depends on the arguments only, not on the allocator nor on how the threads ran: (1)
 * every thread draws from its own numbers, and only for blocks that it makes; (2) a block carries
 * its token, and the checksum is the sum of the tokens found when blocks were freed, by any thread.
 * It must equal the sum of the tokens written, or two owners had a block at once.
 */
#ifndef KMEM_BENCH_WORKLOAD_H
#define KMEM_BENCH_WORKLOAD_H

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum {
        WORKLOAD_THREADS_MAX = 1024,
        WORKLOAD_WORDS_MAX = 10,
        BLOCK_BYTES_MIN = 16, /* a token at both ends */
        BLOCK_TOUCH_BYTES = 4096,
};

struct workload {
        const char *name;
        unsigned int threads;
        double scale;
        uint64_t seed;
        const char *progress; /* the file's name, or NULL */
};

/* A key with a value out of a few words. */
struct workload_choice {
        const char *key;
        const char *words[WORKLOAD_WORDS_MAX]; /* up to the first NULL */
        unsigned int chosen;                   /* index into words; the default before parsing */
};

/* A key with a whole number. */
struct workload_number {
        const char *key;
        uint64_t least;
        uint64_t most;
        uint64_t value; /* the default before parsing */
};

/* The state of a thread; only its thread touches it. Padded, so that no two share a line. */
struct worker {
        const struct workload *workload;
        unsigned int index; /* 0 to threads - 1 */
        uint64_t random;
        uint64_t made;    /* blocks */
        uint64_t written; /* sum of tokens written */
        uint64_t found;   /* sum of tokens found when freed */
        uint64_t gone;    /* blocks freed */
        uint64_t unused[9];
};

static inline uint64_t random_next(uint64_t *random)
{
        uint64_t x = *random += 0x9e3779b97f4a7c15u;

        x = (x ^ (x >> 32)) * 0xd6e8feb86659fd93u;
        x = (x ^ (x >> 32)) * 0xd6e8feb86659fd93u;
        return x ^ (x >> 32);
}

/* 0 to limit - 1; limit from 1 to 2^32 */
static inline size_t random_below(uint64_t *random, uint64_t limit)
{
        return (size_t)(((random_next(random) >> 32) * limit) >> 32);
}

/* 2^low to 2^high, each doubling as likely as the next. */
static inline size_t random_doublings(uint64_t *random, unsigned int low, unsigned int high)
{
        size_t base = (size_t)1 << (low + random_below(random, high - low));

        return base + random_below(random, base + 1);
}

static inline void worker_init(struct worker *worker, const struct workload *workload,
                               unsigned int index)
{
        uint64_t random = workload->seed;

        memset(worker, 0, sizeof(*worker));
        worker->workload = workload;
        worker->index = index;
        worker->random = random_next(&random) + ((uint64_t)index << 40);
}

/* Adds what `from` counted to `to`. */
static inline void worker_add(struct worker *to, const struct worker *from)
{
        to->made += from->made;
        to->written += from->written;
        to->found += from->found;
        to->gone += from->gone;
}

__attribute__((noreturn, cold)) static inline void workload_fail(const struct workload *workload,
                                                                 const char *what, size_t bytes)
{
        fprintf(stderr, "%s: %s (a block of %zu bytes)\n", workload->name, what, bytes);
        exit(1);
}

static inline size_t block_bytes(const void *block)
{
        uint64_t token;

        memcpy(&token, block, sizeof(token));
        return (size_t)(token & 0xffffffffu);
}

/*
 * Writes the first and last word of a fresh block and a word in every 4 KiB, as its user would. The
 * token's lower half is the size, the upper is random.
 */
static inline void *block_write(struct worker *worker, void *block, size_t bytes)
{
        uint64_t token = (random_next(&worker->random) << 32) | bytes;
        char *start = (char *)block;

        if (!block)
                workload_fail(worker->workload, "out of memory", bytes);
        for (size_t at = 0; at + BLOCK_BYTES_MIN <= bytes; at += BLOCK_TOUCH_BYTES)
                memcpy(start + at, &token, sizeof(token));
        memcpy(start + bytes - sizeof(token), &token, sizeof(token));
        worker->written += token;
        worker->made++;
        return block;
}

/* Reads back the words that block_write() wrote, and returns the block's size. */
static inline size_t block_read(struct worker *worker, const void *block)
{
        size_t bytes = block_bytes(block);
        const char *start = (const char *)block;
        uint64_t token;
        uint64_t other;

        if (bytes < BLOCK_BYTES_MIN)
                workload_fail(worker->workload, "contents changed", bytes);
        memcpy(&token, start, sizeof(token));
        memcpy(&other, start + bytes - sizeof(other), sizeof(other));
        for (size_t at = BLOCK_TOUCH_BYTES; other == token && at + BLOCK_BYTES_MIN <= bytes;
             at += BLOCK_TOUCH_BYTES)
                memcpy(&other, start + at, sizeof(other));
        if (other != token)
                workload_fail(worker->workload, "contents changed", bytes);
        worker->found += token;
        worker->gone++;
        return bytes;
}

static inline void *block_new(struct worker *worker, size_t bytes)
{
        return block_write(worker, malloc(bytes), bytes);
}

static inline void block_free(struct worker *worker, void *block)
{
        block_read(worker, block);
        free(block);
}

/* Memory for a program's own tables: zero, and not a block. */
static inline void *table_new(const struct workload *workload, size_t entries, size_t bytes)
{
        void *table = calloc(entries, bytes);

        if (!table)
                workload_fail(workload, "out of memory", entries * bytes);
        return table;
}

/* This thread's share of work that is `whole` at scale 1; at least 1. */
static inline uint64_t workload_share(const struct workload *workload, uint64_t whole)
{
        double share = (double)whole * workload->scale / workload->threads;

        return share < 1 ? 1 : (uint64_t)share;
}

/* A thread's part of a live set, which does not grow with the scale. */
static inline size_t workload_part(const struct workload *workload, size_t whole, size_t least)
{
        size_t part = whole / workload->threads;

        return part < least ? least : part;
}

/* Makes blocks with sizes from `bytes` at random places; the place's old block goes first. */
static inline void places_replace(struct worker *worker, void **blocks, size_t places,
                                  uint64_t replacements, size_t (*bytes)(uint64_t *random))
{
        while (replacements--) {
                size_t place = random_below(&worker->random, places);

                if (blocks[place])
                        block_free(worker, blocks[place]);
                blocks[place] = block_new(worker, bytes(&worker->random));
        }
}

/* Frees the blocks in the places, and the table. */
static inline void places_free(struct worker *worker, void **blocks, size_t places)
{
        for (size_t i = 0; i < places; i++) {
                if (blocks[i])
                        block_free(worker, blocks[i]);
        }
        free(blocks);
}

static inline unsigned int workload_cpus(void)
{
        cpu_set_t set;

        /* Machines with more CPUs than the set holds refuse; the count is a default only. */
        if (sched_getaffinity(0, sizeof(set), &set))
                return 1;
        return (unsigned int)CPU_COUNT(&set);
}

__attribute__((noreturn, cold)) static inline void
workload_refuse(const struct workload *workload, const char *argument, const char *expected)
{
        fprintf(stderr, "%s: %s: expected %s\n", workload->name, argument, expected);
        exit(2);
}

/* Returns the text after "key=", or NULL if the argument has another key. */
static inline const char *workload_value(const char *argument, const char *key)
{
        size_t length = strlen(key);

        return !strncmp(argument, key, length) && argument[length] == '=' ? argument + length + 1
                                                                          : NULL;
}

static inline void workload_choose(const struct workload *workload, struct workload_choice *choice,
                                   const char *argument, const char *value)
{
        char expected[256];
        size_t used = (size_t)snprintf(expected, sizeof(expected), "%s=", choice->key);

        for (unsigned int i = 0; i < WORKLOAD_WORDS_MAX && choice->words[i]; i++) {
                if (!strcmp(value, choice->words[i])) {
                        choice->chosen = i;
                        return;
                }
                used += (size_t)snprintf(expected + used, sizeof(expected) - used, "%s%s",
                                         i ? "|" : "", choice->words[i]);
        }
        workload_refuse(workload, argument, expected);
}

static inline void workload_set(struct workload *workload, const char *argument,
                                struct workload_choice *choices, unsigned int nr_choices)
{
        const char *value;
        char *end = NULL;

        if ((value = workload_value(argument, "threads"))) {
                unsigned long threads = strtoul(value, &end, 10);

                if (*value < '0' || *value > '9' || *end || !threads ||
                    threads > WORKLOAD_THREADS_MAX)
                        workload_refuse(workload, argument, "a whole number from 1 to 1024");
                workload->threads = (unsigned int)threads;
                return;
        }
        if ((value = workload_value(argument, "scale"))) {
                workload->scale = strtod(value, &end);
                /* The form excludes a scale that is not a number. */
                if (end == value || *end || !(workload->scale >= 0.0001 && workload->scale <= 1000))
                        workload_refuse(workload, argument, "a number from 0.0001 to 1000");
                return;
        }
        if ((value = workload_value(argument, "seed"))) {
                errno = 0;
                workload->seed = strtoull(value, &end, 10);
                if (*value < '0' || *value > '9' || *end || errno)
                        workload_refuse(workload, argument, "a whole number below 2^64");
                return;
        }
        if ((value = workload_value(argument, "progress"))) {
                workload->progress = value;
                return;
        }
        for (unsigned int i = 0; i < nr_choices; i++) {
                if ((value = workload_value(argument, choices[i].key))) {
                        workload_choose(workload, &choices[i], argument, value);
                        return;
                }
        }
        workload_refuse(workload, argument,
                        "threads=, scale=, seed=, progress= or the program's own key");
}

static inline void workload_set_number(const struct workload *workload,
                                       struct workload_number *number, const char *argument,
                                       const char *value)
{
        char expected[96];
        char *end = NULL;

        errno = 0;
        number->value = strtoull(value, &end, 10);
        if (*value >= '0' && *value <= '9' && !*end && !errno && number->value >= number->least &&
            number->value <= number->most)
                return;
        snprintf(expected, sizeof(expected), "a whole number from %llu to %llu",
                 (unsigned long long)number->least, (unsigned long long)number->most);
        workload_refuse(workload, argument, expected);
}

/*
 * Reads the arguments that are numbers of the program, and moves the others up, for
 * workload_init(). Returns how many are left, with the program's name.
 */
static inline int workload_numbers(const char *name, int argc, char **argv,
                                   struct workload_number *numbers, unsigned int nr_numbers)
{
        struct workload workload = {name, 1, 1, 1, NULL};
        int left = 1;

        for (int i = 1; i < argc; i++) {
                const char *value = NULL;

                for (unsigned int j = 0; j < nr_numbers && !value; j++) {
                        if ((value = workload_value(argv[i], numbers[j].key)))
                                workload_set_number(&workload, &numbers[j], argv[i], value);
                }
                if (!value)
                        argv[left++] = argv[i];
        }
        return left;
}

/* Reads the arguments; ends the program with code 2 at the first wrong argument. */
static inline struct workload workload_init(const char *name, int argc, char **argv,
                                            struct workload_choice *choices,
                                            unsigned int nr_choices)
{
        struct workload workload = {name, workload_cpus(), 1, 1, NULL};

        for (int i = 1; i < argc; i++)
                workload_set(&workload, argv[i], choices, nr_choices);
        return workload;
}

static inline void thread_start(const struct workload *workload, pthread_t *thread,
                                void *(*run)(void *), void *argument)
{
        int error = pthread_create(thread, NULL, run, argument);

        if (error) {
                fprintf(stderr, "%s: a thread did not start: %s\n", workload->name,
                        strerror(error));
                exit(1);
        }
}

/* For programs whose counts are not where workload_run has them. */
static inline void workload_refuse_progress(const struct workload *workload)
{
        if (workload->progress)
                workload_refuse(workload, "progress=", "another program, whose threads stay");
}

/* Room for the threads' counts in the file of that name. */
static inline struct worker *workers_in_file(const struct workload *workload)
{
        size_t bytes = workload->threads * sizeof(struct worker);
        int file = open(workload->progress, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
        void *workers = MAP_FAILED;

        if (file >= 0 && !ftruncate(file, (off_t)bytes))
                workers = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
        if (workers == MAP_FAILED) {
                fprintf(stderr, "%s: progress=%s: %s\n", workload->name, workload->progress,
                        strerror(errno));
                exit(2);
        }
        close(file);
        return (struct worker *)workers;
}

/* Runs `run(struct worker *)` in every thread and adds up what they counted. */
static inline struct worker workload_run(const struct workload *workload, void *(*run)(void *))
{
        static struct worker own[WORKLOAD_THREADS_MAX];
        static pthread_t threads[WORKLOAD_THREADS_MAX];
        struct worker *workers = workload->progress ? workers_in_file(workload) : own;
        struct worker sum;

        worker_init(&sum, workload, 0);
        for (unsigned int i = 0; i < workload->threads; i++) {
                worker_init(&workers[i], workload, i);
                thread_start(workload, &threads[i], run, &workers[i]);
        }
        for (unsigned int i = 0; i < workload->threads; i++) {
                pthread_join(threads[i], NULL);
                worker_add(&sum, &workers[i]);
        }
        return sum;
}

/* Prints the line if every block that was made came back unchanged; the exit code. */
static inline int workload_finish(const struct workload *workload, const struct worker *sum,
                                  const struct workload_choice *choices, unsigned int nr_choices)
{
        if (sum->made != sum->gone || sum->written != sum->found) {
                fprintf(stderr, "%s: %llu blocks made, %llu freed; contents changed\n",
                        workload->name, (unsigned long long)sum->made,
                        (unsigned long long)sum->gone);
                return 1;
        }
        printf("%s threads=%u scale=%g seed=%llu", workload->name, workload->threads,
               workload->scale, (unsigned long long)workload->seed);
        for (unsigned int i = 0; i < nr_choices; i++)
                printf(" %s=%s", choices[i].key, choices[i].words[choices[i].chosen]);
        printf(" blocks=%llu checksum=%016llx\n", (unsigned long long)sum->made,
               (unsigned long long)sum->found);
        return 0;
}

#endif
