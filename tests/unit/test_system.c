/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* The machine's facts about itself, with and without /sys and /proc. */
#define _GNU_SOURCE
#include "unit.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <limits.h>
#include <pthread.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lang/bits.h"
#include "machine/cpus.h"
#include "machine/group_memory.h"
#include "machine/nodes.h"
#include "base/options.h"
#include "machine/system.h"

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

static void test_group_memory(void **state)
{
        (void)state;
        assert_int_equal(group_stat_parse("anon 5\nfile 7\ninactive_file 9\n", "inactive_file"), 9);
        assert_int_equal(group_stat_parse("total_inactive_file 9\n", "inactive_file"), 0);
        assert_int_equal(group_stat_parse("inactive_file_x 9\n", "inactive_file"), 0);
        assert_int_equal(group_stat_parse("inactive_file", "inactive_file"), 0);
        assert_int_equal(group_stat_parse("", "inactive_file"), 0);
        assert_int_equal(group_pressure_parse("some avg10=12.34 avg60=99.00\n"), 12);
        assert_int_equal(group_pressure_parse("some avg10=12345.34\n"), 100);
        assert_int_equal(group_pressure_parse("full avg10=12.34\n"), 0);
        assert_int_equal(group_pressure_parse("some avg10="), 0);
        assert_int_equal(group_pressure_parse(""), 0);
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
        assert_int_in_range(system_cpus(CPUS_USABLE), 1, (unsigned int)CPU_COUNT(&mask));
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

/* Pages of the system that were touched count, as far as they lie in the range. */
static void test_resident(void **state)
{
        size_t page = system_page_bytes();
        size_t bytes = RESIDENT_MOST - page;
        volatile char *memory = system_reserve(bytes);
        char *start = (char *)(uintptr_t)memory;

        (void)state;
        assert_non_null(memory);
        assert_true(system_commit(start, bytes));
        assert_int_equal(system_resident(start, bytes), 0);
        memory[0] = memory[3 * page] = memory[bytes - 1] = 1;
        assert_int_equal(system_resident(start, bytes), 3 * page);
        assert_int_equal(system_resident(start + page, bytes - page), 2 * page);
        assert_int_equal(system_resident(start + 3 * page, 100), 100);
        system_unmap(start, bytes);
        /* What the system does not say is taken to be there. */
        assert_int_equal(system_resident(start, bytes), bytes);
}

/* At the limit of mappings a mapping cannot be cut for a hole, but the hole's pages go back. */
static int child_too_many_mappings(void)
{
        enum { MOST = 200000 };
        size_t page = system_page_bytes();
        char *memory = system_map(3 * page);
        char *fence = system_reserve(2 * MOST * page);
        size_t mappings = 0;

        child_check(memory && fence);
        memset(memory, 5, 3 * page);
        while (mappings < MOST && system_commit(fence + 2 * mappings * page, page))
                mappings++;
        if (mappings == MOST) {
                dprintf(STDERR_FILENO, "# skipped: a process may have more than %d mappings\n",
                        2 * MOST);
                return 77;
        }
        system_unmap(memory + page, page);
        child_check(memory[0] == 5 && memory[2 * page] == 5);
        child_check(memory[page] == 0);
        return 0;
}

static void test_too_many_mappings(void **state)
{
        (void)state;
        skip_if_sanitized();
        if (checks_natively("the limit of mappings"))
                run_in_child(child_too_many_mappings);
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

static void *own_number(void *unused)
{
        (void)unused;
        assert_int_equal(system_thread_id_known(), gettid());
        return NULL;
}

static int child_number(void)
{
        /* As a child of vfork, which has its parent's variables. */
        system_lend_process(true);
        child_check(system_thread_id_known() == (uint32_t)gettid());
        system_lend_process(false);
        /* As the handler of fork. */
        system_claim_process(true);
        child_check(system_thread_id_known() == (uint32_t)gettid());
        return 0;
}

static void test_thread_numbers(void **state)
{
        pthread_t thread;

        (void)state;
        assert_int_equal(system_thread_id_known(), gettid());
        assert_int_equal(pthread_create(&thread, NULL, own_number, NULL), 0);
        pthread_join(thread, NULL);
        run_in_child(child_number);
        assert_int_equal(system_thread_id_known(), gettid());
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

/* ---- NUMA nodes --------------------------------------------------------------------------- */

/* A folder like /sys/devices/system/node, made of the files that are given. */
struct node_file {
        const char *name;
        const char *text;
};

static char node_folder[64];

static void make_folder(const struct node_file *files, size_t count)
{
        strcpy(node_folder, "/tmp/kmem-nodes-XXXXXX");
        assert_non_null(mkdtemp(node_folder));
        for (size_t i = 0; i < count; i++) {
                char path[128];
                char *slash;
                FILE *file;

                snprintf(path, sizeof(path), "%s/%s", node_folder, files[i].name);
                slash = strrchr(path, '/');
                *slash = '\0';
                mkdir(path, 0700);
                *slash = '/';
                assert_non_null(file = fopen(path, "w"));
                assert_true(fputs(files[i].text, file) >= 0);
                fclose(file);
        }
}

static void remove_folder(const struct node_file *files, size_t count)
{
        for (size_t i = count; i-- > 0;) {
                char path[128];
                char *slash;

                snprintf(path, sizeof(path), "%s/%s", node_folder, files[i].name);
                assert_int_equal(unlink(path), 0);
                slash = strrchr(path, '/');
                *slash = '\0';
                if (strcmp(path, node_folder) != 0)
                        rmdir(path); /* its last file was the last file in the folder */
        }
        assert_int_equal(rmdir(node_folder), 0);
}

static struct nodes read_nodes(const struct node_file *files, size_t count, uint64_t allowed)
{
        uint64_t mask[NODE_MASK_WORDS] = {allowed};
        struct nodes nodes;

        make_folder(files, count);
        nodes_read_folder(&nodes, node_folder, mask);
        remove_folder(files, count);
        return nodes;
}

#define READ_NODES(files, allowed) read_nodes(files, array_size(files), allowed)

/* Two sockets, two nodes each: near nodes first, then the others from the next node on. */
static void test_nodes_four(void **state)
{
        static const struct node_file files[] = {
                {"online", "0-3\n"},
                {"has_memory", "0-3\n"},
                {"node0/distance", "10 12 21 21\n"},
                {"node0/cpulist", "0-3\n"},
                {"node1/distance", "12 10 21 21\n"},
                {"node1/cpulist", "4-7\n"},
                {"node2/distance", "21 21 10 12\n"},
                {"node2/cpulist", "8-9\n"},
                {"node3/distance", "21 21 12 10\n"},
                {"node3/cpulist", "\n"},
        };
        static const uint8_t near[4][4] = {{0, 1, 2, 3}, {1, 0, 2, 3}, {2, 3, 0, 1}, {3, 2, 0, 1}};
        static const unsigned int cpus[4] = {4, 4, 2, 0};
        struct nodes nodes = READ_NODES(files, ~0ull);

        (void)state;
        assert_int_equal(nodes.count, 4);
        for (unsigned int node = 0; node < 4; node++) {
                assert_int_equal(nodes.number[node], node);
                assert_int_equal(nodes.of[node], node);
                assert_int_equal(nodes.cpus[node], cpus[node]);
                for (unsigned int step = 0; step < 4; step++)
                        assert_int_equal(nodes.near[node][step], near[node][step]);
        }

        /* The cpuset leaves two nodes, or one. */
        nodes = READ_NODES(files, 0x6);
        assert_int_equal(nodes.count, 2);
        assert_int_equal(nodes.number[0], 1);
        assert_int_equal(nodes.number[1], 2);
        assert_int_equal(nodes.of[0], 0);
        assert_int_equal(nodes.of[3], 1);
        assert_int_equal(nodes.cpus[0], 8);
        nodes = READ_NODES(files, 0x4);
        assert_int_equal(nodes.count, 1);
        nodes = READ_NODES(files, 0);
        assert_int_equal(nodes.count, 1);
}

/* Numbers with holes, a node without memory, a node without CPUs, and a node without distances. */
static void test_nodes_sparse(void **state)
{
        static const struct node_file files[] = {
                {"online", "0,8,250,1023\n"},          {"has_memory", "0,250,1023\n"},
                {"node0/distance", "10 40 80 80\n"},   {"node0/cpulist", "0-79\n"},
                {"node8/distance", "40 10 30 80\n"},   {"node8/cpulist", "80-159\n"},
                {"node250/distance", "80 30 10 80\n"}, {"node250/cpulist", "\n"},
                {"node1023/cpulist", "160\n"},
        };
        struct nodes nodes = READ_NODES(files, ~0ull);
        uint64_t all[NODE_MASK_WORDS];

        (void)state;
        /* The mask above allows numbers below 64 only. */
        assert_int_equal(nodes.count, 1);
        memset(all, 0xff, sizeof(all));
        make_folder(files, array_size(files));
        nodes_read_folder(&nodes, node_folder, all);
        remove_folder(files, array_size(files));
        assert_int_equal(nodes.count, 3);
        assert_int_equal(nodes.number[1], 250);
        assert_int_equal(nodes.number[2], 1023);
        assert_int_equal(nodes.of[0], 0);
        assert_int_equal(nodes.of[8], 1);
        assert_int_equal(nodes.of[250], 1);
        assert_int_equal(nodes.of[1023], 2);
        assert_int_equal(nodes.cpus[0], 80);
        assert_int_equal(nodes.cpus[1], 80);
        assert_int_equal(nodes.cpus[2], 1);
        assert_int_equal(nodes.near[2][0], 2);
        assert_int_equal(nodes.near[2][1], 0);
        assert_int_equal(nodes.near[2][2], 1);
}

/* More than NODES_MAX: the first have zones, the others the nearest of them. */
static void test_nodes_many(void **state)
{
        static const struct node_file files[] = {
                {"online", "0-9\n"}, /* no has_memory: all have */
                {"node8/distance", "50 50 50 11 50 50 50 50 10 50\n"},
                {"node8/cpulist", "5\n"},
        };
        struct nodes nodes = READ_NODES(files, ~0ull);

        (void)state;
        assert_int_equal(nodes.count, NODES_MAX);
        assert_int_equal(nodes.of[8], 3);
        assert_int_equal(nodes.cpus[3], 1);
        assert_true(nodes.of[9] < NODES_MAX);
        for (unsigned int node = 0; node < NODES_MAX; node++)
                for (unsigned int step = 0; step < NODES_MAX; step++)
                        assert_int_equal(nodes.near[node][step], (node + step) % NODES_MAX);
}

/* Whatever is wrong with the files, there is at least a node, and no number is too large. */
static void test_nodes_nonsense(void **state)
{
        static const char *const texts[] = {"",  "\n",   "0",      "-",    "0-",    "1-0",     "0,",
                                            "a", "0-1 ", "0-1024", "5000", "0--1,", "99999999"};

        (void)state;
        for (size_t i = 0; i < array_size(texts); i++) {
                const struct node_file files[] = {
                        {"online", texts[i]},
                        {"node0/distance", texts[(i + 3) % array_size(texts)]},
                        {"node1/cpulist", texts[(i + 5) % array_size(texts)]},
                };
                struct nodes nodes = READ_NODES(files, ~0ull);

                assert_int_equal(nodes.count, strcmp(texts[i], "0-1 ") == 0 ? 2 : 1);
        }
}

/* The facts of this machine; on several nodes the CPUs of all of them are counted. */
static void test_nodes_here(void **state)
{
        unsigned int cpus = 0;

        (void)state;
        system_nodes_init(false, 1);
        assert_int_equal(system_nodes(), 1);
        system_nodes_init(true, 1);
        assert_true(system_nodes() >= 1 && system_nodes() <= NODES_MAX);
        for (unsigned int node = 0; node < system_nodes(); node++) {
                cpus += system_node_cpus(node);
                assert_int_equal(system_find_node((int)system_node_number(node)), node);
                assert_int_equal(system_near_node(node, 0), node);
        }
        assert_int_equal(cpus, system_cpus(CPUS_ONLINE));
        assert_true(system_current_node() < system_nodes());
        assert_int_equal(system_find_node(-1), NODE_ANY);
        assert_int_equal(system_find_node(INT_MAX), NODE_ANY);
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

static bool signal_waits(int number)
{
        sigset_t waiting;

        return sigpending(&waiting) == 0 && sigismember(&waiting, number);
}

/* Lines of ours that cannot be written are no end of the program. */
static int child_writes(void)
{
        const struct rlimit limit = {0, RLIM_INFINITY};
        char path[] = "/tmp/kmem-system-XXXXXX";
        int file = mkstemp(path);
        sigset_t set;
        int ends[2];

        child_check(file >= 0 && unlink(path) == 0 && pipe(ends) == 0 && close(ends[0]) == 0);
        signal(SIGPIPE, SIG_DFL);
        signal(SIGXFSZ, SIG_DFL);
        child_check(system_write(file, "x", 1) == 1);
        child_check(system_write(ends[1], "x", 1) == -EPIPE);
        child_check(setrlimit(RLIMIT_FSIZE, &limit) == 0);
        child_check(system_write(file, "x", 1) == -EFBIG);
        child_check(sigprocmask(SIG_BLOCK, NULL, &set) == 0 && !sigismember(&set, SIGPIPE));
        /* One that waited before is the program's own. */
        sigemptyset(&set);
        sigaddset(&set, SIGPIPE);
        sigaddset(&set, SIGXFSZ);
        child_check(sigprocmask(SIG_BLOCK, &set, NULL) == 0);
        child_check(system_write(ends[1], "x", 1) == -EPIPE && !signal_waits(SIGPIPE));
        raise(SIGPIPE);
        child_check(system_write(ends[1], "x", 1) == -EPIPE && signal_waits(SIGPIPE));
        child_check(system_write(file, "x", 1) == -EFBIG && !signal_waits(SIGXFSZ));
        return 0;
}

static void test_failed_writes(void **state)
{
        (void)state;
        run_in_child(child_writes);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_cpu_lists),
                cmocka_unit_test(test_quotas),
                cmocka_unit_test(test_group_memory),
                cmocka_unit_test(test_counts),
                cmocka_unit_test(test_sizes),
                cmocka_unit_test(test_mappings),
                cmocka_unit_test(test_resident),
                cmocka_unit_test(test_too_many_mappings),
                cmocka_unit_test(test_affinity),
                cmocka_unit_test(test_thread_numbers),
                cmocka_unit_test(test_without_sys_and_proc),
                cmocka_unit_test(test_address_space_limit),
                cmocka_unit_test(test_failed_writes),
                cmocka_unit_test(test_nodes_four),
                cmocka_unit_test(test_nodes_sparse),
                cmocka_unit_test(test_nodes_many),
                cmocka_unit_test(test_nodes_nonsense),
                cmocka_unit_test(test_nodes_here),
        };

        system_init();
        return cmocka_run_group_tests_name("system", tests, NULL, NULL);
}
