/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Parts that the test programs share: checks that allocate nothing, patterns that show when two
 * objects overlap, and a churn of allocations for threads.
 *
 * A program that fails prints a line that begins with its file name and exits with status 1;
 * SIGALRM ends a program that hangs (watchdog).
 */
#ifndef CHECK_H
#define CHECK_H

#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define check(condition)                                                                           \
        do {                                                                                       \
                if (!(condition))                                                                  \
                        check_failed(#condition, __FILE__, __LINE__);                              \
        } while (0)

static inline void check_failed(const char *condition, const char *file, int line)
{
        const char *name = strrchr(file, '/');

        dprintf(STDERR_FILENO, "%s:%d: failed: %s (errno %d)\n", name ? name + 1 : file, line,
                condition, errno);
        _exit(1);
}

/* Waits for the end of a child, which has to be with status 0. */
static inline void wait_for(pid_t child)
{
        int status;

        check(waitpid(child, &status, 0) == child);
        if (WIFSIGNALED(status))
                dprintf(STDERR_FILENO, "child ended by signal %d\n", WTERMSIG(status));
        check(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

/* Forks. True in the child, which has to end itself; false here, once it has ended with status 0. */
static inline int is_forked_child(void)
{
        pid_t child = fork();

        check(child >= 0);
        if (child != 0)
                wait_for(child);
        return child == 0;
}

/*
 * Ends the process, and with it the test, when it hangs. Not inherited by fork: ask again.
 * WATCHDOG_SECONDS in the environment says another time, less for runs that are known to hang, more for slow
 * machines.
 */
static inline void watchdog(unsigned int seconds)
{
        const char *other = getenv("WATCHDOG_SECONDS");

        alarm(other ? (unsigned int)atoi(other) : seconds);
}

/* If memory runs out on the whole machine, this process is to go first. */
static inline void first_victim(void)
{
        FILE *file = fopen("/proc/self/oom_score_adj", "w");

        if (file) {
                fputs("1000", file);
                fclose(file);
        }
}

/* Hides from the compiler the origin and size of a pointer, and that it was freed. */
static inline void *opaque(void *pointer)
{
        __asm__ volatile("" : "+r"(pointer));
        return pointer;
}

static inline void fill(void *object, size_t bytes, unsigned char tag)
{
        memset(object, tag, bytes);
}

static inline int intact(const void *object, size_t bytes, unsigned char tag)
{
        const unsigned char *byte = (const unsigned char *)object;

        for (size_t i = 0; i < bytes; i++)
                if (byte[i] != tag)
                        return 0;
        return 1;
}

static inline int aligned(const void *pointer, size_t alignment)
{
        return (uintptr_t)pointer % alignment == 0;
}

/* xorshift64: equal numbers on every run. */
static inline uint64_t next_random(uint64_t *state)
{
        *state ^= *state << 13;
        *state ^= *state >> 7;
        *state ^= *state << 17;
        return *state;
}

/* Mostly small, some of a few pages, now and then a large block. */
static inline size_t random_size(uint64_t *state)
{
        uint64_t number = next_random(state);

        if (number % 512 == 0)
                return (size_t)(number >> 32) % (512u << 10) + 1;
        if (number % 16 == 0)
                return (size_t)(number >> 32) % (16u << 10) + 1;
        return (size_t)(number >> 32) % 600 + 1;
}

#define CHURN_OBJECTS 128

/* Live objects of a thread, each filled with a byte of its own. */
struct churn {
        uint64_t random;
        struct {
                unsigned char *address;
                size_t bytes;
                unsigned char tag;
        } objects[CHURN_OBJECTS];
};

static inline void churn_replace(struct churn *churn, size_t index)
{
        uint64_t number = next_random(&churn->random);
        size_t bytes = random_size(&churn->random);

        if (churn->objects[index].address)
                check(intact(churn->objects[index].address, churn->objects[index].bytes,
                             churn->objects[index].tag));
        free(churn->objects[index].address);
        churn->objects[index].address = (unsigned char *)malloc(bytes);
        check(churn->objects[index].address != NULL);
        churn->objects[index].bytes = bytes;
        churn->objects[index].tag = (unsigned char)number;
        fill(churn->objects[index].address, bytes, churn->objects[index].tag);
}

/* Replaces `count` objects, chosen at random, and checks the content of each. */
static inline void churn_run(struct churn *churn, unsigned int count)
{
        while (count-- > 0)
                churn_replace(churn, next_random(&churn->random) % CHURN_OBJECTS);
}

static inline void churn_init(struct churn *churn, uint64_t seed)
{
        memset(churn, 0, sizeof(*churn));
        churn->random = seed * 0x9e3779b97f4a7c15u + 1;
}

/* Checks and frees everything. */
static inline void churn_end(struct churn *churn)
{
        for (size_t i = 0; i < CHURN_OBJECTS; i++) {
                if (churn->objects[i].address)
                        check(intact(churn->objects[i].address, churn->objects[i].bytes,
                                     churn->objects[i].tag));
                free(churn->objects[i].address);
                churn->objects[i].address = NULL;
        }
}

#endif
