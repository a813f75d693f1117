/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Children of vfork allocate while other threads do, and while other threads have children of
 * vfork, too. No block may have two owners, no child may find an area that sequences run on, and
 * every parent has its own area again afterwards (AREA-1 to AREA-3 of percpu/area.h).
 *
 *     vfork [parents=N] [churners=N] [rounds=N] [told=1] [storm=US] [own=1] [forks=1]
 *           [seed=N]
 *
 * parents: threads that call vfork; churners: threads that only allocate; rounds: children of each
 * parent; told: as in a sandbox, which may kill for rseq(2); storm: a signal every so many
 * microseconds, whose handler calls vfork as well; own: libc registers no areas, so we do; forks:
 * the first thread forks meanwhile.
 */
#define _GNU_SOURCE
#include "heap/heap.h"
#include "percpu/area.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define check(condition)                                                                           \
        do {                                                                                       \
                if (!(condition))                                                                  \
                        check_failed(#condition, __LINE__);                                        \
        } while (0)

enum { BLOCKS = 24, THREADS_MAX = 16, SKIPPED = 77 };

static unsigned long parents = 2, churners = 2, rounds = 1000, told, storm, own, forks, seed = 1;
static pthread_t threads[THREADS_MAX];
static uint32_t stop;
static uint32_t parents_left;
static pthread_barrier_t told_all; /* threads have their areas before a sandbox is told */

static void check_failed(const char *condition, int line)
{
        dprintf(STDERR_FILENO, "vfork.c:%d: failed: %s (errno %d)\n", line, condition, errno);
        _exit(1);
}

static void read_arguments(int count, char **arguments)
{
        static const struct {
                const char *name;
                unsigned long *value;
        } known[] = {{"parents=", &parents}, {"churners=", &churners}, {"rounds=", &rounds},
                     {"told=", &told},       {"storm=", &storm},       {"own=", &own},
                     {"forks=", &forks},     {"seed=", &seed}};

        for (int i = 1; i < count; i++)
                for (size_t k = 0; k < array_size(known); k++)
                        if (!strncmp(arguments[i], known[k].name, strlen(known[k].name)))
                                *known[k].value =
                                        strtoul(arguments[i] + strlen(known[k].name), NULL, 10);
        check(parents + churners <= THREADS_MAX);
}

/* Each block has words that nobody else writes. */
static void use_blocks(unsigned long mark, unsigned int times)
{
        for (unsigned int time = 0; time < times; time++) {
                unsigned long *blocks[BLOCKS];

                for (unsigned long i = 0; i < BLOCKS; i++) {
                        check((blocks[i] = malloc(32 + (i + mark) % 7 * 40)) != NULL);
                        blocks[i][0] = blocks[i][3] = mark + i;
                }
                for (unsigned long i = 0; i < BLOCKS; i++) {
                        check(blocks[i][0] == mark + i && blocks[i][3] == mark + i);
                        free(blocks[i]);
                }
        }
}

/*
 * The kernel refuses a second area at the place of a thread's first, with EINVAL if the length
 * differs, as with a libc that registers more. A thread without an area would be given these 32
 * bytes.
 */
static bool kernel_has_area(void)
{
        struct rseq_area *area = (struct rseq_area *)((char *)thread_pointer() + area_offset());

        return syscall(SYS_rseq, area, 32, 0, RSEQ_SIGNATURE_VALUE) != 0 &&
               (errno == EBUSY || errno == EINVAL);
}

static struct rseq_area read_area(void)
{
        struct rseq_area area;

        memcpy(&area, (char *)thread_pointer() + area_offset(), sizeof(area));
        return area;
}

static __attribute__((noinline)) void child_work(unsigned long mark)
{
        struct rseq_area before = read_area();
        struct rseq_area after;

        check(slot_current() == &shared_slot);
        use_blocks(mark, 20);
        after = read_area();
        /* It belongs to nobody, or to the parent, which is stopped. */
        check(before.cpu_id == after.cpu_id && before.mm_cid == after.mm_cid);
        check(told || before.cpu_id < 0);
        check(slot_current() == &shared_slot);
}

/* A process of its own, in a copy of the memory: there the area may be had. */
static void grandchild_work(unsigned long mark)
{
        check(told || slot_current() != &shared_slot);
        use_blocks(mark, 5);
}

static void wait_for(pid_t child)
{
        int status = -1;

        while (waitpid(child, &status, 0) != child)
                check(errno == EINTR);
        check(status == 0);
}

static __attribute__((noinline)) void one_child(unsigned long mark, unsigned long round)
{
        pid_t child = vfork();

        check(child >= 0);
        if (child == 0) {
                child_work(mark + round * 1000);
                /* Beside other threads a fork could wait for locks that another thread holds. */
                if (round % 16 == 0 && parents + churners == 1) {
                        pid_t grandchild = fork();

                        if (grandchild == 0) {
                                grandchild_work(mark);
                                _exit(0);
                        }
                        wait_for(grandchild);
                }
                _exit(0);
        }
        wait_for(child);
}

/* Where libc registers no area the first slow path does, but in no sandbox. */
static void begin_thread(unsigned long mark)
{
        use_blocks(mark, 1);
        pthread_barrier_wait(&told_all);
        pthread_barrier_wait(&told_all);
}

static void *parent_run(void *argument)
{
        unsigned long mark = (uintptr_t)argument * 1000000000 + seed * 10000000;

        begin_thread(mark);
        for (unsigned long round = 0; round < rounds; round++) {
                one_child(mark, round);
                use_blocks(mark, 3);
                if (parents == 1)
                        check(slot_current() != &shared_slot);
                if (round % 32 == 0)
                        check(kernel_has_area());
        }
        __atomic_sub_fetch(&parents_left, 1, __ATOMIC_SEQ_CST);
        return NULL;
}

static void *churner_run(void *argument)
{
        unsigned long mark = (uintptr_t)argument * 1000000000;

        begin_thread(mark);
        while (!load_relaxed(&stop))
                use_blocks(mark, 10);
        return NULL;
}

static void on_signal(int number)
{
        int saved_errno = errno;
        pid_t child = vfork();

        (void)number;
        if (child == 0)
                _exit(0);
        check(child > 0);
        wait_for(child);
        errno = saved_errno;
}

static void start_storm(void)
{
        struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};

        check(sigaction(SIGUSR1, &action, NULL) == 0);
        while (load_acquire(&parents_left)) {
                for (unsigned long i = 0; i < parents; i++)
                        pthread_kill(threads[i], SIGUSR1);
                usleep((useconds_t)storm);
        }
}

static void tell(void)
{
        pthread_barrier_wait(&told_all);
        if (told)
                system_tell_sandbox();
        pthread_barrier_wait(&told_all);
}

/* The new process has no children of vfork. */
static void fork_meanwhile(void)
{
        while (load_acquire(&parents_left)) {
                pid_t child = fork();

                check(child >= 0);
                if (child == 0) {
                        check(slot_current() != &shared_slot);
                        _exit(0);
                }
                wait_for(child);
        }
}

static void run_threads(void)
{
        parents_left = (uint32_t)parents;
        pthread_barrier_init(&told_all, NULL, (unsigned int)(parents + churners) + 1);
        for (unsigned long i = 0; i < parents + churners; i++)
                check(pthread_create(&threads[i], NULL, i < parents ? parent_run : churner_run,
                                     (void *)(i + 1)) == 0);
        tell();
        if (storm)
                start_storm();
        if (forks)
                fork_meanwhile();
        for (unsigned long i = 0; i < parents; i++)
                check(pthread_join(threads[i], NULL) == 0);
        store_relaxed(&stop, 1);
        for (unsigned long i = 0; i < churners; i++)
                check(pthread_join(threads[parents + i], NULL) == 0);
}

/* libc reads its tunables when it starts. */
static void have_own_areas(char **arguments)
{
        static const char tunable[] = "glibc.pthread.rseq=0";
        const char *set = getenv("GLIBC_TUNABLES");

        if (set && strstr(set, tunable))
                return;
        check(setenv("GLIBC_TUNABLES", tunable, 1) == 0);
        execv("/proc/self/exe", arguments);
        check(!"executed");
}

int main(int count, char **arguments)
{
        read_arguments(count, arguments);
        if (own)
                have_own_areas(arguments);
        alarm(240);
        use_blocks(0, 1);
        if (!slots_are_rseq()) {
                puts("no restartable sequences here");
                return SKIPPED;
        }
        run_threads();
        check(slot_current() != &shared_slot);
        check(kernel_has_area());
        return 0;
}
