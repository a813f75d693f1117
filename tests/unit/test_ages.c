/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Samples in use stand in the registry with their weight, their time and their thread, and only as
 * long as they are in use; of those that were freed the old are counted.
 */
#define _GNU_SOURCE
#include "child.h"
#include "records.h"

#include "machine/system.h"
#include "kmem.h"
#include "profile/live.h"
#include "profile/sample.h"
#include "unit.h"

#include <pthread.h>
#include <string.h>

enum { OBJECTS = 4000, THREADS_MORE = 1100 };

static void *objects[OBJECTS];
static uint64_t later_ms;

uint64_t __real_system_time_ms(void);
uint64_t __wrap_system_time_ms(void);

uint64_t __wrap_system_time_ms(void)
{
        return __real_system_time_ms() + load_relaxed(&later_ms);
}

struct sums {
        uint64_t samples;
        uint64_t objects;
        uint64_t bytes;
};

static struct sums live_of_stacks(void)
{
        const struct registry_record_head *record = NULL;
        struct sums sums = {0};

        while ((record = record_behind(record))) {
                const struct registry_stack *stack = (const void *)record;

                if (record->kind != RECORD_STACK)
                        continue;
                sums.samples += stack->samples - stack->freed_samples;
                sums.objects += stack->objects - stack->freed_objects;
                sums.bytes += stack->bytes - stack->freed_bytes;
        }
        return sums;
}

/* Of a thread; 0: of all. */
static struct sums live_of_samples(uint32_t thread)
{
        const struct registry_record_head *record = NULL;
        struct sums sums = {0};

        while ((record = record_behind(record))) {
                const struct registry_samples *samples = (const void *)record;

                if (record->kind != RECORD_SAMPLES)
                        continue;
                for (unsigned int i = 0; i < REGISTRY_SAMPLES; i++) {
                        const struct registry_sample *sample = &samples->sample[i];
                        const struct registry_record_head *stack =
                                (const void *)((const char *)registry + sample->stack * 64ul);

                        if (!sample->stack || (thread && sample->thread != thread))
                                continue;
                        check_equal(stack->kind, RECORD_STACK);
                        check(sample->time_ms <= system_time_ms());
                        sums.samples++;
                        sums.objects += sample->objects;
                        sums.bytes += sample->bytes;
                }
        }
        return sums;
}

static void check_sums_agree(void)
{
        struct sums stacks = live_of_stacks();
        struct sums samples = live_of_samples(0);

        check_equal(samples.samples, stacks.samples);
        check_equal(samples.objects, stacks.objects);
        check_equal(samples.bytes, stacks.bytes);
}

static uint64_t old_freed_samples(void)
{
        const struct registry_record_head *record = NULL;
        uint64_t sum = 0;

        while ((record = record_behind(record)))
                if (record->kind == RECORD_STACK)
                        sum += ((const struct registry_stack *)(const void *)record)
                                       ->old_freed_samples;
        return sum;
}

static unsigned int take(unsigned int begin, unsigned int end)
{
        unsigned int samples = 0;

        for (unsigned int i = begin; i < end; i++) {
                check(objects[i] = kmalloc(256, GFP_KERNEL));
                samples += in_sample_region(objects[i]);
        }
        return samples;
}

static void give(unsigned int begin, unsigned int end)
{
        for (unsigned int i = begin; i < end; i++) {
                kfree(objects[i]);
                objects[i] = NULL;
        }
}

static void shown_child(void)
{
        unsigned int samples = take(0, OBJECTS);
        void *block;

        check(samples > 100);
        check_equal(live_of_samples(0).samples, samples);
        check_sums_agree();
        give(0, OBJECTS / 2);
        check_sums_agree();
        check(live_of_samples(0).samples < samples);
        check(block = kmalloc(200000, GFP_KERNEL));
        check_sums_agree();
        kfree(block);
        give(OBJECTS / 2, OBJECTS);
        check_sums_agree();
        check_equal(live_of_samples(0).samples, 0);
}

static void old_child(void)
{
        unsigned int first = take(0, OBJECTS / 2);
        unsigned int second;

        store_relaxed(&later_ms, (uint64_t)REGISTRY_OLD_MS);
        second = take(OBJECTS / 2, OBJECTS);
        check(first && second);
        check_equal(registry->profile_old_ms, REGISTRY_OLD_MS);
        check(registry->profile_since_ms && registry->profile_since_ms <= __real_system_time_ms());
        give(OBJECTS / 2, OBJECTS);
        check_equal(old_freed_samples(), 0);
        give(0, OBJECTS / 2);
        check_equal(old_freed_samples(), first);
}

/* The name by which the registry knows a thread, or NULL. */
static const char *name_of(uint32_t thread)
{
        const struct registry_record_head *record = NULL;

        while ((record = record_behind(record))) {
                const struct registry_thread *found = (const void *)record;

                if (record->kind == RECORD_THREAD && found->thread == thread)
                        return (const char *)found->name;
        }
        return NULL;
}

static void *named_thread(void *id)
{
        struct sums sums;

        pthread_setname_np(pthread_self(), "before");
        take(0, 100);
        pthread_setname_np(pthread_self(), "afterwards");
        take(100, OBJECTS);
        *(uint32_t *)id = system_thread_id();
        sums = live_of_samples(*(uint32_t *)id);
        check(sums.samples > 100);
        return NULL;
}

static void threads_child(void)
{
        pthread_t thread;
        uint32_t id;

        check_equal(pthread_create(&thread, NULL, named_thread, &id), 0);
        pthread_join(thread, NULL);
        /* Its bytes stay its own when it has ended, and have the name that it had last. */
        check(live_of_samples(id).samples > 100);
        check_equal(strcmp(name_of(id), "afterwards"), 0);
        give(0, OBJECTS);
        check_equal(live_of_samples(id).samples, 0);
}

static void *brief_thread(void *kept)
{
        void *block;

        do
                block = kmalloc(256, GFP_KERNEL);
        while (!in_sample_region(block));
        if (kept)
                *(void **)kept = block;
        else
                kfree(block);
        return (void *)(uintptr_t)system_thread_id();
}

static unsigned int count_threads(void)
{
        const struct registry_record_head *record = NULL;
        unsigned int threads = 0;

        while ((record = record_behind(record)))
                threads += record->kind == RECORD_THREAD;
        return threads;
}

/* More threads than the table has places: those with samples in use keep theirs. */
static void many_threads_child(void)
{
        void *kept = NULL;
        void *first = NULL;
        void *last = NULL;
        pthread_t thread;

        check_equal(pthread_create(&thread, NULL, brief_thread, &kept), 0);
        pthread_join(thread, &first);
        for (unsigned int i = 0; i < THREADS_MORE; i++) {
                check_equal(pthread_create(&thread, NULL, brief_thread, NULL), 0);
                pthread_join(thread, &last);
        }
        check(name_of((uint32_t)(uintptr_t)first));
        check(name_of((uint32_t)(uintptr_t)last));
        check_equal(live_of_samples((uint32_t)(uintptr_t)first).samples, 1);
        check(count_threads() < THREADS_MORE);
        kfree(kept);
        check_equal(live_of_samples((uint32_t)(uintptr_t)first).samples, 0);
}

/* A child shows its own samples alone, and leaves its parent's samples in the parent's registry. */
static void fork_child(void)
{
        struct sums before;
        unsigned int mine;
        pid_t child;

        take(0, OBJECTS / 2);
        before = live_of_samples(0);
        child = fork();
        check(child >= 0);
        if (child == 0) {
                give(0, OBJECTS / 2);
                mine = take(0, OBJECTS);
                check(mine);
                check_sums_agree();
                check(live_of_samples(0).samples <= mine);
                give(0, OBJECTS);
                check_equal(live_of_samples(0).samples, 0);
                _exit(0);
        }
        child_wait(child);
        check_equal(live_of_samples(0).samples, before.samples);
        check_equal(live_of_samples(0).bytes, before.bytes);
        give(0, OBJECTS / 2);
        check_equal(live_of_samples(0).samples, 0);
}

static const struct child_case children[] = {
        {"shown", shown_child},     {"old", old_child},
        {"threads", threads_child}, {"many threads", many_threads_child},
        {"fork", fork_child},
};

#define FINE "profile_interval=2048,engine=slub,registry=on"

static void test_shown(void **state)
{
        child_passes("shown", FINE);
        child_passes("shown", FINE ",slots=locked");
}

static void test_old(void **state)
{
        child_passes("old", FINE);
}

static void test_threads(void **state)
{
        child_passes("threads", FINE);
        child_passes("many threads", FINE);
}

static void test_fork(void **state)
{
        child_passes("fork", FINE);
        child_passes("fork", FINE ",slots=locked");
}

int main(int argc, char **argv)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_shown),
                cmocka_unit_test(test_old),
                cmocka_unit_test(test_threads),
                cmocka_unit_test(test_fork),
        };

        child_main(argc, argv, children, sizeof(children) / sizeof(*children));
        return cmocka_run_group_tests(tests, NULL, NULL);
}
