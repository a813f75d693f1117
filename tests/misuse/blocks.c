/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Blocks of the cases: their contents, those that are held, and the threads that free them. */
#define _GNU_SOURCE
#include "misuse.h"

#include <dlfcn.h>
#include <pthread.h>
#include <sched.h>

enum { HELD_MOST = 1 << 16 };

static struct held {
        uintptr_t from;
        uintptr_t to;
} held[HELD_MOST], sorted[HELD_MOST];
static size_t held_count;

void *take(size_t bytes)
{
        void *block = hide(malloc(bytes));

        if (!block)
                absent("no memory");
        return block;
}

void release(void *block)
{
        free(hide(block));
}

/* The part of a block in front that is looked at; as much at the end. */
static size_t part_of(size_t bytes)
{
        return bytes > 2 * PAGE_OF_BYTES ? PAGE_OF_BYTES : bytes;
}

void fill(void *block, size_t bytes, char with)
{
        volatile char *byte = hide(block);
        size_t part = part_of(bytes);

        for (size_t i = 0; i < part; i++)
                byte[i] = byte[bytes - 1 - i] = with;
}

size_t count_of(const void *block, size_t bytes, char with)
{
        const volatile char *byte = hide((void *)block);
        size_t part = part_of(bytes);
        size_t count = 0;

        for (size_t i = 0; i < part; i++)
                count += byte[i] == with;
        for (size_t i = bytes - (bytes - part < part ? bytes - part : part); i < bytes; i++)
                count += byte[i] == with;
        return count;
}

bool is_filled(const void *block, size_t bytes, char with)
{
        size_t part = part_of(bytes);

        return count_of(block, bytes, with) == (part == bytes ? bytes : 2 * part);
}

void misuse_write(void *at, size_t bytes, char with)
{
        volatile char *byte = hide(at);

        misuse_begins(at, bytes);
        for (size_t i = 0; i < bytes; i++)
                byte[i] = with;
        misuse_ends();
}

size_t misuse_count(const void *at, size_t bytes, char with)
{
        size_t count;

        misuse_begins(at, bytes);
        count = count_of(at, bytes, with);
        misuse_ends();
        return count;
}

void hold(void *block, size_t bytes)
{
        if (held_count == HELD_MOST)
                absent("too many blocks");
        held[held_count].from = (uintptr_t)block;
        held[held_count++].to = (uintptr_t)block + (bytes ? bytes : 1);
}

/* As many as may rest in front of the back end, and some slabs' more. */
size_t many_of(size_t bytes)
{
        if (bytes <= 512)
                return 20000;
        if (bytes <= 32 << 10)
                return 1500;
        if (bytes <= 256 << 10)
                return 120;
        return bytes <= 4 << 20 ? 24 : 6;
}

void hold_many(size_t bytes)
{
        for (size_t left = many_of(bytes); left; left--)
                hold(take(bytes), bytes);
}

/* Not by qsort, which takes memory: moves sorted[root] down to its place in a heap. */
static void sift_down(size_t root, size_t count)
{
        struct held moved = sorted[root];

        for (size_t child = 2 * root + 1; child < count; root = child, child = 2 * root + 1) {
                if (child + 1 < count && sorted[child + 1].from > sorted[child].from)
                        child++;
                if (sorted[child].from <= moved.from)
                        break;
                sorted[root] = sorted[child];
        }
        sorted[root] = moved;
}

static void sort_held(void)
{
        for (size_t i = 0; i < held_count; i++)
                sorted[i] = held[i];
        for (size_t i = held_count / 2; i > 0; i--)
                sift_down(i - 1, held_count);
        for (size_t last = held_count; last > 1; last--) {
                struct held largest = sorted[0];

                sorted[0] = sorted[last - 1];
                sorted[last - 1] = largest;
                sift_down(0, last - 1);
        }
}

bool held_overlap(void)
{
        sort_held();
        for (size_t i = 1; i < held_count; i++)
                if (sorted[i].from < sorted[i - 1].to)
                        return true;
        return false;
}

bool held_has(const void *from, size_t bytes)
{
        for (size_t i = 0; i < held_count; i++)
                if (held[i].from < (uintptr_t)from + bytes && held[i].to > (uintptr_t)from)
                        return true;
        return false;
}

void release_held(void)
{
        size_t count = held_count;

        held_count = 0;
        for (size_t i = 0; i < count; i++)
                release((void *)held[i].from);
}

void churn(size_t bytes)
{
        size_t count = many_of(bytes) / 4 + 2;
        static void *block[HELD_MOST];

        for (size_t i = 0; i < count; i++)
                block[i] = take(bytes);
        for (size_t i = 0; i < count; i++)
                release(block[i]);
}

void *take_again(const void *block, size_t bytes, size_t most)
{
        for (size_t i = 0; i < most; i++) {
                char *other = take(bytes);

                hold(other, bytes);
                if (other < (const char *)block + bytes && other + bytes > (const char *)block)
                        return other;
        }
        return NULL;
}

struct task {
        void (*run)(void *);
        void *argument;
};

static void *run_task(void *argument)
{
        struct task *task = argument;

        task->run(task->argument);
        return NULL;
}

void in_thread(void (*run)(void *), void *argument)
{
        struct task task = {run, argument};
        pthread_t thread;

        if (pthread_create(&thread, NULL, run_task, &task) != 0)
                absent("no thread");
        pthread_join(thread, NULL);
}

void to_other_cpu(void)
{
        size_t here = (size_t)sched_getcpu();
        cpu_set_t allowed;

        sched_getaffinity(0, sizeof(allowed), &allowed);
        for (size_t cpu = 0; cpu < CPU_SETSIZE; cpu++) {
                if (cpu == here || !CPU_ISSET(cpu, &allowed))
                        continue;
                CPU_ZERO(&allowed);
                CPU_SET(cpu, &allowed);
                if (sched_setaffinity(0, sizeof(allowed), &allowed) == 0)
                        return;
        }
        absent("a single CPU");
}

void *function_named(const char *name)
{
        void *function = dlsym(RTLD_DEFAULT, name);

        if (!function)
                absent("no such function");
        return function;
}
