/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * The registry where the handler of a signal forks in the middle of a call: only the process that made one
 * writes it (REG-2).
 */
#define _GNU_SOURCE
#include "child.h"
#include "skip.h"
#include "steps.h"

#include "api/heap.h"
#include "base/registry.h"
#include "unit.h"

#include <sys/wait.h>
#include <unistd.h>

static pid_t forked;

static void fork_here(void)
{
        forked = fork();
        check(forked >= 0);
}

static void check_child(pid_t child)
{
        int status;

        check_equal(waitpid(child, &status, 0), child);
        check_equal(status, 0);
}

static void honour(void)
{
        registry_honour();
}

static void make_registry(void)
{
        check(kmalloc(64, GFP_KERNEL));
        for (int i = 0; i < 10 && !registry_is_made(); i++)
                check(kmem_cache_create("registry-made", 64, 0, SLAB_NO_MERGE, NULL));
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
                        check_child(forked);
                count++;
        } while (done);
        check(count > 40); /* that many instructions it takes at least */
}

static void test_honouring_forks(void **state)
{
        skip_without_steps();
        child_passes("honouring-forks", "registry=on,reclaim_thread=off");
}

int main(int argc, char **argv)
{
        const struct child_case cases[] = {
                {"honouring-forks", honouring_forks},
        };
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_honouring_forks),
        };

        child_main(argc, argv, cases, sizeof(cases) / sizeof(cases[0]));
        return cmocka_run_group_tests(tests, NULL, NULL);
}
