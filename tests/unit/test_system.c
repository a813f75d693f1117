/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * What the machine says about itself, with and without /sys and /proc.
 */
#define _GNU_SOURCE
#include "unit.h"

#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <sys/resource.h>

#include "base/bits.h"
#include "base/cpus.h"
#include "base/system.h"

static void check_list(const char *text, unsigned int count, unsigned int limit)
{
        unsigned int got_count, got_limit;

        cpus_parse_list(text, &got_count, &got_limit);
        assert_int_equal(got_count, count);
        assert_int_equal(got_limit, limit);
}

static void test_cpu_lists(void **state)
{
        (void)state;
        check_list("0\n", 1, 1);
        check_list("0-3\n", 4, 4);
        check_list("0-1,4-7,9", 7, 10);
        check_list("12", 1, 13);
        check_list("", 0, 0);
        check_list("\n", 0, 0);
        check_list("-", 0, 0);
        check_list("3-1", 0, 0);
        check_list("0-", 0, 0);
        check_list("1,", 0, 0);
        check_list("0-99999999999999999999", 0, 0);
        check_list("cpu", 0, 0);
}

static void test_quotas(void **state)
{
        (void)state;
        assert_int_equal(cpus_parse_quota("max 100000\n"), 0);
        assert_int_equal(cpus_parse_quota("100000 100000\n"), 1);
        assert_int_equal(cpus_parse_quota("150000 100000\n"), 2);
        assert_int_equal(cpus_parse_quota("1 100000\n"), 1);
        assert_int_equal(cpus_parse_quota("0 100000\n"), 0);
        assert_int_equal(cpus_parse_quota("100000 0\n"), 0);
        assert_int_equal(cpus_parse_quota("100000\n"), 0);
        assert_int_equal(cpus_parse_quota(""), 0);
        assert_int_equal(cpus_parse_quota("99999999999999999999 1"), 65536);
}

static void test_counts(void **state)
{
        cpu_set_t mask;

        (void)state;
        assert_int_equal(sched_getaffinity(0, sizeof(mask), &mask), 0);
        assert_in_range(system_cpus(CPUS_USABLE), 1, (unsigned int)CPU_COUNT(&mask));
        assert_int_equal(system_cpus(CPUS_ONLINE), sysconf(_SC_NPROCESSORS_ONLN));
        assert_true(system_cpus(CPUS_PRESENT) >= system_cpus(CPUS_ONLINE));
        assert_true(system_cpus(CPUS_POSSIBLE) >= system_cpus(CPUS_PRESENT));
}

static void test_sizes(void **state)
{
        (void)state;
        assert_int_equal(system_page_bytes(), sysconf(_SC_PAGESIZE));
        assert_true(system_memory_bytes() >= (size_t)16 << 20);
        assert_int_equal(system_process_id(), getpid());
        assert_int_equal(system_thread_id(), gettid());
        assert_true(system_current_cpu() < system_cpus(CPUS_POSSIBLE));
        assert_true(system_time_ms() > 0);
}

/* Refused calls say so by their result and leave errno alone. */
static void test_mappings(void **state)
{
        char *memory = system_map(100000);
        char *moved;

        (void)state;
        assert_non_null(memory);
        memset(memory, 5, 100000);
        moved = system_remap(memory, 100000, 900000);
        assert_non_null(moved);
        assert_int_equal(moved[99999], 5);
        assert_int_equal(moved[899999], 0);
        assert_true(system_purge(moved, round_up(900000, system_page_bytes())));
        assert_int_equal(moved[0], 0);
        system_unmap(moved, 900000);

        errno = 123;
        assert_null(system_map(0));
        assert_null(system_map(SIZE_MAX));
        assert_null(system_map(SIZE_MAX / 2));
        assert_null(system_reserve(SIZE_MAX / 2));
        if (checks_natively("mremap of unmapped pages, on which valgrind crashes"))
                assert_null(system_remap(moved, 900000, SIZE_MAX / 2));
        assert_false(system_commit(moved, system_page_bytes()));
        if (checks_natively("madvise of unmapped pages fails; it always succeeds there"))
                assert_false(system_purge(moved, system_page_bytes()));
        assert_int_equal(errno, 123);

        memory = system_reserve((size_t)1 << 30);
        assert_non_null(memory);
        assert_true(system_commit(memory, system_page_bytes()));
        memory[0] = 1;
        system_unmap(memory, (size_t)1 << 30);
}

static int child_one_cpu(void)
{
        cpu_set_t mask;
        unsigned int last = 0;

        child_check(sched_getaffinity(0, sizeof(mask), &mask) == 0);
        while (!CPU_ISSET(last, &mask))
                last++;
        CPU_ZERO(&mask);
        CPU_SET(last, &mask);
        child_check(sched_setaffinity(0, sizeof(mask), &mask) == 0);
        system_init();
        child_check(system_cpus(CPUS_USABLE) == 1);
        child_check(system_current_cpu() == last);
        return 0;
}

static void test_affinity(void **state)
{
        (void)state;
        if (emulated())
                skip_because(EMULATORS_THREAD);
        run_in_child(child_one_cpu);
}

static int child_empty_root(void)
{
        cpu_set_t mask;

        /* A folder with no "sys" and no "proc" inside. */
        if (chroot("/usr/share") != 0) {
                dprintf(STDERR_FILENO, "# chroot is not permitted here\n");
                return 77;
        }
        child_check(sched_getaffinity(0, sizeof(mask), &mask) == 0);
        system_init();
        child_check(system_cpus(CPUS_USABLE) == (unsigned int)CPU_COUNT(&mask));
        child_check(system_cpus(CPUS_ONLINE) == (unsigned int)CPU_COUNT(&mask));
        child_check(system_cpus(CPUS_PRESENT) >= 1);
        child_check(system_cpus(CPUS_POSSIBLE) >= system_cpus(CPUS_ONLINE));
        return 0;
}

static void test_without_sys_and_proc(void **state)
{
        (void)state;
        run_in_child(child_empty_root);
}

static int child_limited(void)
{
        struct rlimit limit = {.rlim_cur = 12345678, .rlim_max = RLIM_INFINITY};

        child_check(setrlimit(RLIMIT_AS, &limit) == 0);
        child_check(system_address_space_limit() == 12345678);
        return 0;
}

static void test_address_space_limit(void **state)
{
        struct rlimit limit;

        (void)state;
        assert_int_equal(getrlimit(RLIMIT_AS, &limit), 0);
        assert_int_equal(system_address_space_limit(), limit.rlim_cur);
        if (emulated())
                skip_because("the emulator ignores setrlimit(RLIMIT_AS)");
        run_in_child(child_limited);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_cpu_lists),
                cmocka_unit_test(test_quotas),
                cmocka_unit_test(test_counts),
                cmocka_unit_test(test_sizes),
                cmocka_unit_test(test_mappings),
                cmocka_unit_test(test_affinity),
                cmocka_unit_test(test_without_sys_and_proc),
                cmocka_unit_test(test_address_space_limit),
        };

        system_init();
        return cmocka_run_group_tests_name("system", tests, NULL, NULL);
}
