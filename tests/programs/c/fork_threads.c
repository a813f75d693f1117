/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * fork in a process with other threads that allocate all the time. Each child frees half of its
 * parent's objects, allocates, forks a grandchild that repeats this and runs a thread, and exits.
 */
#define _GNU_SOURCE

#include "churners.h"

#define FORKS 30
#define OBJECTS 600
#define CHILD_SECONDS 120

static struct {
        unsigned char *address;
        size_t bytes;
} objects[OBJECTS];

static unsigned char tag_of(size_t index)
{
        return (unsigned char)(index * 7 + 1);
}

static void allocate(size_t index, uint64_t *random)
{
        objects[index].bytes = random_size(random);
        objects[index].address = malloc(objects[index].bytes);
        check(objects[index].address != NULL);
        fill(objects[index].address, objects[index].bytes, tag_of(index));
}

static void check_and_free(size_t index)
{
        check(intact(objects[index].address, objects[index].bytes, tag_of(index)));
        free(objects[index].address);
        objects[index].address = NULL;
}

/* Frees every second object, of its parent's heap, and allocates it anew. */
static void work_on_inherited(uint64_t seed)
{
        uint64_t random = seed * 77 + 5;

        for (size_t i = seed % 2; i < OBJECTS; i += 2)
                check_and_free(i);
        for (size_t i = seed % 2; i < OBJECTS; i += 2)
                allocate(i, &random);
        for (size_t i = 0; i < OBJECTS; i++)
                check(intact(objects[i].address, objects[i].bytes, tag_of(i)));
}

static void grandchild(uint64_t seed)
{
        struct churners churners;
        struct churn churn;

        watchdog(CHILD_SECONDS);
        work_on_inherited(seed + 1);
        churners_start(&churners, 1);
        churn_init(&churn, seed);
        churn_run(&churn, 500);
        churn_end(&churn);
        churners_stop(&churners);
        exit(0);
}

static void child(uint64_t seed)
{
        pid_t next;

        watchdog(CHILD_SECONDS);
        work_on_inherited(seed);
        next = fork();
        check(next >= 0);
        if (next == 0)
                grandchild(seed);
        wait_for(next);
        for (size_t i = 0; i < OBJECTS; i++)
                check_and_free(i);
        exit(0);
}

int main(void)
{
        struct churners churners;
        uint64_t random = 42;

        watchdog(300);
        churners_start(&churners, 4);
        for (size_t i = 0; i < OBJECTS; i++)
                allocate(i, &random);
        for (uint64_t round = 0; round < FORKS; round++) {
                pid_t next = fork();

                check(next >= 0);
                if (next == 0)
                        child(round);
                wait_for(next);
                check_and_free(round);
                allocate(round, &random);
        }
        churners_stop(&churners);
        for (size_t i = 0; i < OBJECTS; i++)
                check_and_free(i);
        puts("ok");
        return 0;
}
