/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * For every n until a run has no failure any more, the n-th allocation of a page, a sheaf, a table
 * or a descriptor fails (failure_wrap.h), once alone and once with all later allocations. Each call
 * either succeeds or fails cleanly (failure_script.c). Afterwards the calls all succeed, and the
 * counted memory in use equals the memory in use of a run without a failure.
 *
 * Every run is a child of its own, forked off a heap that has only libc's caches yet. So n has a
 * fixed meaning in all runs, and a crash is a result like any other.
 */
#define _GNU_SOURCE
#include "child.h"
#include "failure_script.h"
#include "failure_wrap.h"
#include "record_bytes.h"
#include "skip.h"

#include "heap/heap.h"
#include "base/metadata.h"
#include "heap/reclaim.h"
#include "introspect/totals.h"
#include "page/extra.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { POINTS_MAX = 20000, RUN_SECONDS = 60, TAIL_BYTES = 2000 };

/* Memory in use when no object is. */
struct rest {
        size_t pages;
        size_t large_blocks;
        size_t huge_blocks;
        uint64_t objects;
        size_t metadata_bytes;
        size_t mapped_bytes; /* from the operating system, beside the metadata arena */
};

/* Results of a run, in memory shared with the child. */
static struct report {
        size_t points;
        size_t injected;
        size_t metadata_bytes; /* that a run adds for good: caches of size classes and the like */
        size_t mapped_bytes;
        unsigned int slots;
} * report;

static int output; /* standard error of a run */

/*
 * Slots and their records of caches are made when first needed and then kept; which are needed
 * depends on where the threads run. So they are left out.
 */
static size_t slot_bytes(void)
{
        size_t bytes = slots_made_count() * metadata_round(sizeof(struct slot));

        for (unsigned int number = 0; number <= slots_made_count(); number++) {
                const struct slot *slot = number ? slot_made(number - 1) : &shared_slot;

                for (uint32_t index = 0; index < CACHES_MAX; index++)
                        if (slot_peek(slot, index))
                                bytes += metadata_round(slot_record_bytes(caches_by_index[index]));
        }
        return bytes;
}

/*
 * A page of a slab keeps its vector of owners as long as it lives, and the number of vectors
 * depends on the slabs that once held an owned object.
 */
static size_t owner_vector_bytes(void)
{
        size_t bytes = 0;

        for (uint32_t number = 0; number < extra_pages; number++) {
                const uint64_t *vector = (void *)*page_extra(number);

                if (vector && !((uintptr_t)vector & 1))
                        bytes += metadata_round(*vector);
        }
        return bytes;
}

static struct rest rest_now(void)
{
        struct heap_totals totals;

        kfree_rcu_barrier();
        kmem_rcu_barrier();
        kmem_synchronize_rcu();
        heap_trim(0);
        kmem_synchronize_rcu();
        heap_total(&totals);
        return (struct rest){
                .pages = totals.pages.used_pages,
                .large_blocks = totals.large.blocks,
                .huge_blocks = totals.large.huge_blocks,
                .objects = totals.objects_inuse,
                .metadata_bytes = record_bytes() - slot_bytes() - owner_vector_bytes(),
                .mapped_bytes = failure_mapped_bytes() - metadata_mapped_bytes(),
        };
}

static void rest_is(const struct rest *now, const struct rest *expected)
{
        check_equal(now->pages, expected->pages);
        check_equal(now->large_blocks, expected->large_blocks);
        check_equal(now->huge_blocks, expected->huge_blocks);
        check_equal(now->objects, expected->objects);
}

/* A run in which the n-th point fails, 0: none; and then a run without failures. */
static void run(size_t n, bool rest)
{
        struct rest start;
        struct rest after;
        bool complete;

        alarm(RUN_SECONDS);
        dup2(output, STDERR_FILENO);
        failure_script_prepare();
        /* It would stand in for a mapping that fails. */
        metadata_set_reserve(NULL, 0);
        start = rest_now();
        failure_arm(n, rest);
        complete = failure_script_run();
        report->points = failure_points();
        report->injected = failures_injected();
        failure_disarm();
        check(complete || report->injected);
        after = rest_now();
        rest_is(&after, &start);
        check(failure_script_run());
        after = rest_now();
        rest_is(&after, &start);
        report->metadata_bytes = after.metadata_bytes - start.metadata_bytes;
        report->mapped_bytes = after.mapped_bytes - start.mapped_bytes;
        report->slots = slots_made_count();
        _exit(0);
}

/* Messages that the library must not print, however little memory there was. */
static const char *const unwanted[] = {"lost", "leak", "BUG", "internal check"};

static const char *tail(void)
{
        static char text[TAIL_BYTES + 1];
        off_t end = lseek(output, 0, SEEK_END);
        ssize_t got = pread(output, text, TAIL_BYTES, max_of(end - TAIL_BYTES, (off_t)0));

        text[got > 0 ? got : 0] = '\0';
        return text;
}

static bool well(int status, const struct report *baseline)
{
        const char *said = tail();

        if (status)
                return false;
        for (size_t i = 0; i < array_size(unwanted); i++)
                if (strstr(said, unwanted[i]))
                        return false;
        return !baseline || (report->metadata_bytes == baseline->metadata_bytes &&
                             report->mapped_bytes == baseline->mapped_bytes);
}

static void explain(size_t n, bool rest, int status, const struct report *expected)
{
        fprintf(stderr,
                "point %zu fails%s: wait status 0x%x, slots %u; %zu bytes of metadata and %zu "
                "mapped were added, expected %zu and %zu; the run said:\n%s\n",
                n, rest ? " and all behind it" : "", (unsigned int)status, report->slots,
                report->metadata_bytes, report->mapped_bytes, expected->metadata_bytes,
                expected->mapped_bytes, tail());
}

static bool one_run(size_t n, bool rest, const struct report *baseline)
{
        int status;
        pid_t child;

        *report = (struct report){0};
        check(ftruncate(output, 0) == 0);
        child = fork();
        check(child >= 0);
        if (child == 0)
                run(n, rest);
        check(waitpid(child, &status, 0) == child);
        if (well(status, baseline))
                return true;
        explain(n, rest, status, baseline ? baseline : report);
        return false;
}

/* Goes on after a failure, so that a single run shows all failures; gives up after a few. */
static void every_point(bool rest)
{
        struct report baseline;
        size_t n = 0;
        int wrong = 0;

        check(one_run(0, false, NULL));
        baseline = *report;
        check(baseline.points > 100);
        do {
                check(++n < POINTS_MAX);
                wrong += !one_run(n, rest, &baseline);
        } while ((report->injected || !report->points) && wrong < 5);
        printf("%zu points fail in turn%s; %zu without a failure, in %u slots\n", n - 1,
               rest ? " with all behind them" : "", baseline.points, report->slots);
        check(!wrong);
        check(n > baseline.points / 2);
}

static void set_up(void)
{
        report = mmap(NULL, sizeof(*report), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
                      0);
        output = memfd_create("messages", MFD_CLOEXEC | 0);
        check(report != MAP_FAILED && output >= 0);
        setvbuf(stdout, NULL, _IONBF, 0);
}

static void one_point_child(void)
{
        set_up();
        every_point(false);
}

static void all_behind_child(void)
{
        set_up();
        every_point(true);
}

/* Hundreds of runs, each of all calls. */
#define MANY_RUNS "the emulator takes many minutes for it"

static void one_point_fails(void **state)
{
        if (under_qemu())
                skip_because(MANY_RUNS);
        child_prints("one point", NULL, "points fail in turn");
}

static void all_behind_fail(void **state)
{
        if (under_qemu())
                skip_because(MANY_RUNS);
        child_prints("all behind", NULL, "points fail in turn");
}

/* ---- The start of the heap ------------------------------------------------------------------- */

/*
 * The first call that finds memory starts the heap, maybe with a smaller reservation; memory of
 * failed starts is given back.
 */
static void start_child(void)
{
        size_t injected = failures_injected();
        size_t mapped;

        failure_disarm();
        failure_script_prepare();
        check(failure_script_run());
        rest_now();
        mapped = failure_mapped_bytes() - metadata_mapped_bytes();
        printf("start: %zu failed, %zu bytes mapped\n", injected, mapped);
}

static size_t number_behind(const char *text, const char *words)
{
        const char *found = strstr(text, words);

        assert_non_null(found);
        return strtoul(found + strlen(words), NULL, 10);
}

static void start_fails(void **state)
{
        static struct child_result result;
        size_t expected;

        child_run("start", NULL, &result);
        assert_int_equal(result.status, 0);
        expected = number_behind(result.output, "failed, ");
        for (int rest = 0; rest < 2; rest++) {
                char number[24];
                size_t n = 0;

                do {
                        snprintf(number, sizeof(number), "%zu", ++n);
                        setenv("FAIL_START", number, 1);
                        if (rest)
                                setenv("FAIL_START_REST", "1", 1);
                        child_run("start", NULL, &result);
                        unsetenv("FAIL_START");
                        unsetenv("FAIL_START_REST");
                        if (result.status || number_behind(result.output, "failed, ") > expected)
                                fail_msg("point %zu of the start: wait status 0x%x, expected %zu "
                                         "bytes mapped or less\n%s",
                                         n, (unsigned int)result.status, expected, result.output);
                } while (number_behind(result.output, "start: ") && n < 100);
                assert_int_in_range(n, 3, 99);
        }
}

int main(int argc, char **argv)
{
        const struct child_case children[] = {
                {"one point", one_point_child},
                {"all behind", all_behind_child},
                {"start", start_child},
        };
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(start_fails),
                cmocka_unit_test(one_point_fails),
                cmocka_unit_test(all_behind_fail),
        };

        child_main(argc, argv, children, array_size(children));
        return cmocka_run_group_tests(tests, NULL, NULL);
}
