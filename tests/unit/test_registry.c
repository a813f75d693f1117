/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * The registry where a signal handler forks in the middle of a call: only the process that made a
 * registry writes it (REG-2). And its figures of large blocks, some of them free and kept.
 */
#define _GNU_SOURCE
#include "child.h"
#include "records.h"
#include "skip.h"
#include "steps.h"

#include "heap/heap.h"
#include "machine/file.h"
#include "registry/registry.h"
#include "page/large.h"
#include "unit.h"

#include <string.h>
#include <unistd.h>

static pid_t forked;

static void fork_here(void)
{
        forked = fork();
        check(forked >= 0);
}

static void honour(void)
{
        registry_honour();
}

static void take_slow_paths(void)
{
        struct kmem_cache *cache = kmem_cache_create("registry", 64, 0, SLAB_NO_MERGE, NULL);

        check(cache);
        for (int i = 0; i < 1000; i++)
                check(kmem_cache_alloc(cache, GFP_KERNEL));
}

static void make_registry(void)
{
        take_slow_paths();
        check(registry_is_made());
}

/* The call that was interrupted goes on in the child, too. */
static void honouring_forks(void)
{
        unsigned int count = 0;
        bool done;

        make_registry();
        do {
                registry->asked++;
                done = run_with_act_at(count, honour, fork_here);
                if (done && forked == 0)
                        _exit(registry_head_shown() ? 1 : 0);
                check(registry_head_shown());
                check_equal(*registry_seen, registry->asked);
                if (done)
                        child_wait(forked);
                count++;
        } while (done);
        check(count > 40); /* that many instructions it takes at least */
}

static void test_honouring_forks(void **state)
{
        skip_without_steps();
        child_passes("honouring-forks", "registry=on,reclaim_thread=off");
}

/* A return address in a record that is being made is no length of it (REG-3). */
static void passing_unfinished_records(void)
{
        const struct registry_record_head *record = NULL;
        uint64_t *unfinished;
        void *later;

        make_registry();
        unfinished = registry_alloc(256);
        later = registry_alloc(64);
        check(unfinished && later);
        for (size_t i = 1; i < 256 / sizeof(*unfinished); i++)
                unfinished[i] = 0x7f4012345678;
        registry_publish(later, RECORD_THREAD, 64);
        while ((record = record_behind(record)) && record != later)
                ;
        check(record == later);
}

static void test_passing_unfinished_records(void **state)
{
        child_passes("passing-unfinished-records", "registry=on,reclaim_thread=off");
}

static bool interrupts; /* the making of the next registry */

extern __typeof__(file_read) __real_file_read;
extern __typeof__(file_read) __wrap_file_read;

/* The start of the process is read once the file is mapped, and before its head is whole. */
bool __wrap_file_read(const char *path, char *text, size_t bytes)
{
        if (interrupts && strcmp(path, "/proc/self/stat") == 0) {
                interrupts = false;
                raise(SIGUSR1);
        }
        return __real_file_read(path, text, bytes);
}

static void handle(int number)
{
        fork_here();
}

static void making_forks(void)
{
        check(signal(SIGUSR1, handle) != SIG_ERR);
        interrupts = true;
        forked = -1;
        take_slow_paths();
        check(forked >= 0);
        take_slow_paths();
        check(registry_head_shown());
        check_equal(registry->process, getpid());
        if (forked == 0)
                _exit(0);
        child_wait(forked);
}

static void test_making_forks(void **state)
{
        if (under_qemu())
                skip_because("qemu clears no page in children, which tells them of their fork");
        child_passes("making-forks", "registry=on,reclaim_thread=off");
}

/* Pages in large blocks, as others see them. */
static uint64_t shown_pages(void)
{
        uint64_t pages = registry->zone[0].large_pages;

        for (size_t i = 0; i < array_size(registry->kept); i++)
                pages -= registry->kept[i].block >> 32;
        return pages;
}

/* A block is in use to its zone while it is kept, and until the zone frees it, which counting makes it do. */
static void showing_kept_blocks(void)
{
        struct page_counts counts;
        uint64_t before, used;
        void *block;

        make_registry();
        before = shown_pages();
        used = registry->zone[0].used_pages;
        block = large_alloc(10 * PAGE_SIZE, 1, false);
        check_equal(shown_pages(), before + 10);
        check(large_free(block));
        check_equal(shown_pages(), before);
        check(registry->zone[0].large_pages > before);
        pages_count(&counts);
        check_equal(shown_pages(), before);
        check_equal(registry->zone[0].large_pages, before);
        check_equal(registry->zone[0].used_pages, used);
}

static void test_showing_kept_blocks(void **state)
{
        child_passes("showing-kept-blocks", "registry=on,reclaim_thread=off");
}

int main(int argc, char **argv)
{
        const struct child_case cases[] = {
                {"honouring-forks", honouring_forks},
                {"passing-unfinished-records", passing_unfinished_records},
                {"making-forks", making_forks},
                {"showing-kept-blocks", showing_kept_blocks},
        };
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_honouring_forks),
                cmocka_unit_test(test_passing_unfinished_records),
                cmocka_unit_test(test_making_forks),
                cmocka_unit_test(test_showing_kept_blocks),
        };

        child_main(argc, argv, cases, sizeof(cases) / sizeof(cases[0]));
        return cmocka_run_group_tests(tests, NULL, NULL);
}
