/* SPDX-License-Identifier: Apache-2.0 OR MIT */
#define _GNU_SOURCE
#include "crowd.h"

#include "../exec.h"
#include "checked.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef sigev_notify_thread_id
#define sigev_notify_thread_id _sigev_un._tid
#endif

enum { STACK_BYTES = 128 << 10 };

static char *stacks;
static bool stack_taken[CROWD_MAX];
static pthread_mutex_t stacks_mutex = PTHREAD_MUTEX_INITIALIZER;
static uint64_t storms;

static void on_storm(int number)
{
        int saved_errno = errno;

        (void)number;
        if (__atomic_add_fetch(&storms, 1, __ATOMIC_RELAXED) & 1)
                syscall(SYS_sched_yield);
        errno = saved_errno;
}

static const uint64_t *progress;

static void on_deadline(int number)
{
        static const char text[] = "stress: no progress until the deadline; threads are stuck\n";
        static uint64_t last = UINT64_MAX;
        uint64_t now = __atomic_load_n(progress, __ATOMIC_RELAXED);

        (void)number;
        if (now == last) {
                ssize_t ignored = write(STDERR_FILENO, text, sizeof(text) - 1);

                (void)ignored;
                syscall(SYS_exit_group, 124);
        }
        last = now;
}

void crowd_init(const uint64_t *counter, unsigned int deadline_s)
{
        struct sigaction storm = {.sa_handler = on_storm, .sa_flags = SA_RESTART};
        struct sigaction deadline = {.sa_handler = on_deadline, .sa_flags = SA_RESTART};
        struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGUSR2};
        struct itimerspec when = {.it_value = {.tv_sec = deadline_s},
                                  .it_interval = {.tv_sec = deadline_s}};
        timer_t timer;

        progress = counter;
        sigaction(SIGUSR1, &storm, NULL);
        sigaction(SIGUSR2, &deadline, NULL);
        stacks = mmap(NULL, (size_t)CROWD_MAX * STACK_BYTES, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (stacks == MAP_FAILED || timer_create(CLOCK_MONOTONIC, &event, &timer) ||
            timer_settime(timer, 0, &when, NULL))
                fail("cannot set up: %s", strerror(errno));
}

unsigned int crowd_cpus(void)
{
        cpu_set_t set;

        sched_getaffinity(getpid(), sizeof(set), &set);
        return (unsigned int)CPU_COUNT(&set);
}

static int nth_cpu(unsigned int n)
{
        cpu_set_t set;

        sched_getaffinity(getpid(), sizeof(set), &set);
        n %= (unsigned int)CPU_COUNT(&set);
        for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
                if (CPU_ISSET((size_t)cpu, &set) && n-- == 0)
                        return cpu;
        return 0;
}

void crowd_pin_self(int cpu)
{
        cpu_set_t set;

        CPU_ZERO(&set);
        CPU_SET((size_t)nth_cpu((unsigned int)cpu), &set);
        sched_setaffinity(0, sizeof(set), &set);
}

static void *crowd_main(void *pointer)
{
        struct crowd_thread *self = pointer;
        struct sigevent event = {.sigev_notify = SIGEV_THREAD_ID, .sigev_signo = SIGUSR1};
        long nanoseconds = (long)self->storm_us * 1000;
        struct itimerspec often = {.it_value = {.tv_nsec = nanoseconds},
                                   .it_interval = {.tv_nsec = nanoseconds}};
        bool storm = self->storm_us != 0;
        timer_t timer;
        void *result;

        if (self->cpu >= 0)
                crowd_pin_self(self->cpu);
        event.sigev_notify_thread_id = (pid_t)syscall(SYS_gettid);
        if (storm && timer_create(CLOCK_MONOTONIC, &event, &timer)) {
                /* The emulator has 32 of them. */
                if (errno != EAGAIN || !emulated())
                        fail("timer: %s", strerror(errno));
                storm = false;
        }
        if (storm && timer_settime(timer, 0, &often, NULL))
                fail("timer: %s", strerror(errno));
        result = self->run(self->argument);
        if (storm)
                timer_delete(timer);
        return result;
}

static unsigned int take_stack(void)
{
        unsigned int stack = 0;

        pthread_mutex_lock(&stacks_mutex);
        while (stack < CROWD_MAX && stack_taken[stack])
                stack++;
        if (stack == CROWD_MAX)
                fail("more than %d threads", (int)CROWD_MAX);
        stack_taken[stack] = true;
        pthread_mutex_unlock(&stacks_mutex);
        return stack;
}

void crowd_start(struct crowd_thread *thread)
{
        pthread_attr_t attributes;
        int error;

        thread->stack = take_stack();
        pthread_attr_init(&attributes);
        pthread_attr_setstack(&attributes, stacks + (size_t)thread->stack * STACK_BYTES,
                              STACK_BYTES);
        error = pthread_create(&thread->thread, &attributes, crowd_main, thread);
        if (error)
                fail("pthread_create: %s", strerror(error));
        pthread_attr_destroy(&attributes);
        thread->running = true;
}

void crowd_join(struct crowd_thread *thread)
{
        pthread_join(thread->thread, NULL);
        thread->running = false;
        pthread_mutex_lock(&stacks_mutex);
        stack_taken[thread->stack] = false;
        pthread_mutex_unlock(&stacks_mutex);
}

uint64_t crowd_storm_count(void)
{
        return __atomic_load_n(&storms, __ATOMIC_RELAXED);
}
