/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Sampled guards: each kind of fault at several sizes ends the process by SIGSEGV, or is found by the
 * free, with a report that names it; guarded objects are otherwise objects like any other. In
 * children in which every allocation is guarded. Calls of signal and sigaction are those of
 * malloc/signals.c.
 */
#define _GNU_SOURCE
#include "child.h"

#include "base/options.h"
#include "heap/heap.h"
#include "introspect/attributes.h"
#include "kmem.h"
#include "machine/fault.h"
#include "profile/guard.h"
#include "profile/sample.h"
#include "machine/system.h"
#include "unit.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#define EVERY "guard_sampling=1,sheaf_capacity=0,engine=slub,registry=off"

static const size_t sizes[] = {1, 16, 24, 100, 1000, 4096, 5000, 32768};

/* The size of the case, and what is done to the object; set by the parent in the environment. */
static size_t size_of_case(void)
{
        const char *size = getenv("GUARD_SIZE");

        return size ? strtoul(size, NULL, 10) : 100;
}

/* An object that ends where its pages end, or begins where they begin. */
static char *guarded(size_t size, bool at_start)
{
        for (int i = 0; i < 100; i++) {
                char *object = kmalloc(size, GFP_KERNEL);

                check(object && in_guard_region(object));
                if (((uintptr_t)object % system_page_bytes() == 0) == at_start ||
                    size % system_page_bytes() == 0)
                        return object;
                kfree(object);
        }
        check_failed("an object at that end", __FILE__, __LINE__);
}

static char *at_end(size_t size)
{
        return guarded(size, false);
}

static char *at_start(size_t size)
{
        return guarded(size, true);
}

/* The first byte behind the pages of an object that lies at their end. */
static volatile char *first_behind(char *object, size_t size)
{
        return (volatile char *)round_up((uintptr_t)object + size, system_page_bytes());
}

static void overflow_write_child(void)
{
        size_t size = size_of_case();

        *first_behind(at_end(size), size) = 1;
}

static void overflow_read_child(void)
{
        size_t size = size_of_case();

        (void)*first_behind(at_end(size), size);
}

static void underflow_child(void)
{
        volatile char *object = hide_address(at_start(size_of_case()));

        object[-1] = 1;
}

static void use_after_free_child(void)
{
        size_t size = size_of_case();
        volatile char *object = at_end(size);

        kfree((void *)object);
        (void)object[size - 1];
}

static void double_free_child(void)
{
        char *object = at_end(size_of_case());

        kfree(object);
        kfree(object);
}

static void inside_free_child(void)
{
        char *object = at_end(size_of_case());

        kfree(object + 1);
}

/* Size 100 with an alignment of 8 or more leaves some bytes. */
static void small_overflow_child(void)
{
        char *object = at_end(size_of_case());

        object[size_of_case()] = 1;
        kfree(object);
        check_equal(guard_figures.faults, 1);
}

static void small_underflow_child(void)
{
        char *object = at_end(size_of_case());

        object[-3] = 1;
        kfree(object);
        check_equal(guard_figures.faults, 1);
}

static void nothing_wrong_child(void)
{
        for (size_t i = 0; i < array_size(sizes); i++)
                for (int round = 0; round < 8; round++) {
                        char *object = kmalloc(sizes[i], GFP_KERNEL);
                        char *zeroed = kzalloc(sizes[i], GFP_KERNEL);

                        check(in_guard_region(object) && in_guard_region(zeroed));
                        check_equal(ksize(object), sizes[i]);
                        for (size_t at = 0; at < sizes[i]; at++)
                                check_equal(zeroed[at], 0);
                        memset(object, 0xff, sizes[i]);
                        memset(zeroed, 0xff, sizes[i]);
                        kfree(object);
                        kfree(zeroed);
                }
        check_equal(guard_figures.faults, 0);
        check_equal(guard_figures.live, 0);
        check_equal(guard_figures.made, array_size(sizes) * 16);
}

static void check_alignment_child(void)
{
        for (size_t align = 8; align <= PAGE_SIZE; align *= 2) {
                struct kmem_cache *cache =
                        kmem_cache_create("aligned", 24, (unsigned int)align, SLAB_NO_MERGE, NULL);

                check(cache);
                for (int i = 0; i < 8; i++) {
                        void *object = kmem_cache_alloc(cache, GFP_KERNEL);

                        check(in_guard_region(object));
                        check_equal((uintptr_t)object % align, 0);
                        kmem_cache_free(cache, object);
                }
                kmem_cache_destroy(cache);
        }
        for (size_t size = 1; size <= 4096; size = size * 3 / 2 + 1) {
                void *object = kmalloc(size, GFP_KERNEL);

                check_equal((uintptr_t)object % 8, 0);
                if (size >= 64 && !(size & (size - 1)))
                        check_equal((uintptr_t)object % size, 0);
                kfree(object);
        }
        check_equal(guard_figures.faults, 0);
}

static void construct(void *object)
{
        memset(object, 7, 100);
}

static void constructed_child(void)
{
        struct kmem_cache *cache =
                kmem_cache_create("constructed", 100, 0, SLAB_NO_MERGE, construct);

        for (int i = 0; i < 3; i++) {
                char *object = kmem_cache_alloc(cache, GFP_KERNEL);

                check(in_guard_region(object));
                for (int at = 0; at < 100; at++)
                        check_equal(object[at], 7);
                object[5] = 1;
                kmem_cache_free(cache, object);
        }
        kmem_cache_destroy(cache);
        check_equal(guard_figures.faults, 0);
}

static void resize_child(void)
{
        char *object = at_end(100);

        memset(object, 9, 100);
        object = krealloc(object, 300, GFP_KERNEL | __GFP_ZERO);
        check(in_guard_region(object));
        check_equal(ksize(object), 300);
        for (int at = 0; at < 300; at++)
                check_equal(object[at], at < 100 ? 9 : 0);
        object = krealloc(object, 50, GFP_KERNEL);
        kfree(object);
        check_equal(guard_figures.faults, 0);
}

/* ---- The quarantine and the limits ---------------------------------------------------------------- */

/* A freed place stays unreadable through a thousand frees (GUARD-3). */
static void quarantine_child(void)
{
        volatile char *object = at_end(100);

        kfree((void *)object);
        for (int i = 0; i < 1000; i++) {
                char *other = kmalloc(100, GFP_KERNEL);

                check((uintptr_t)other - (uintptr_t)object + 4096 > 8192);
                kfree(other);
        }
        *object = 1;
}

/*
 * Ten call stacks that differ in the caller of kmalloc: without optimization most of the frames that
 * are kept of a stack are the library's own.
 */
#define TAKER(number)                                                                              \
        static __attribute__((noinline)) void *take_##number(void)                                 \
        {                                                                                          \
                void *object = kmalloc(64, GFP_KERNEL);                                            \
                                                                                                   \
                __asm__ volatile("" : "+r"(object)); /* the call above is no jump */               \
                return object;                                                                     \
        }

TAKER(0)
TAKER(1)
TAKER(2)
TAKER(3)
TAKER(4)
TAKER(5)
TAKER(6)
TAKER(7)
TAKER(8)
TAKER(9)

/* All live guards together have a limit, of 128 pages in a small heap (GUARD-4). */
static void page_limit_child(void)
{
        enum { OBJECTS = 40 };
        static void *(*const takers[])(void) = {take_0, take_1, take_2, take_3, take_4,
                                                take_5, take_6, take_7, take_8, take_9};
        unsigned int guards = 0;

        for (unsigned int taker = 0; taker < array_size(takers); taker++)
                for (int i = 0; i < OBJECTS; i++)
                        guards += in_guard_region(takers[taker]());
        check(guards > 100 && guards <= 128);
        check_equal(guard_figures.live, guards);
}

/* Places are used again, and the live guards of a call stack have a limit (GUARD-4). */
static void limits_child(void)
{
        enum { OBJECTS = 600 };
        static void *objects[OBJECTS];
        unsigned int guards = 0;

        for (int i = 0; i < 6000; i++)
                kfree(kmalloc(64, GFP_KERNEL));
        check_equal(guard_figures.missed, 0);
        check_equal(guard_figures.made, 6000);
        for (unsigned int i = 0; i < OBJECTS; i++) {
                objects[i] = kmalloc(64, GFP_KERNEL);
                guards += in_guard_region(objects[i]);
        }
        check_equal(guards, 16);
        check_equal(guard_figures.missed, OBJECTS - guards);
        check_equal(guard_figures.live, guards);
        for (unsigned int i = 0; i < OBJECTS; i++)
                kfree(objects[i]);
        check_equal(guard_figures.live, 0);
        check_equal(guard_figures.faults, 0);
}

/* With guards that are mappings: in locked memory. */
static void mapped_child(void)
{
        if (mlockall(MCL_CURRENT) != 0) {
                fputs("memory cannot be locked here\n", stderr);
                exit(CHILD_SKIP);
        }
        nothing_wrong_child();
        use_after_free_child();
}

/* Places of small objects that were freed in locked memory, used again for larger ones. */
static void grown_in_locked_child(void)
{
        enum { SMALL_ONES = 64, SMALL = 100, LARGER = 9000, TURNS = 6000 };
        char *small[SMALL_ONES];
        unsigned int guarded = 0;

        for (unsigned int i = 0; i < SMALL_ONES; i++)
                check(small[i] = kmalloc(SMALL, GFP_KERNEL));
        for (unsigned int i = 0; i < SMALL_ONES; i++) {
                if (in_guard_region(small[i]) && mlock(small[i], SMALL) != 0) {
                        fputs("memory cannot be locked here\n", stderr);
                        exit(CHILD_SKIP);
                }
                kfree(small[i]);
        }
        for (unsigned int i = 0; i < TURNS; i++) {
                char *larger = kmalloc(LARGER, GFP_KERNEL);

                check(larger);
                guarded += in_guard_region(larger);
                memset(larger, 1, LARGER);
                kfree(larger);
        }
        /* All places were in use, so those of the small ones were, too. */
        check(guarded > 4096);
}

static void small_address_space_child(void)
{
        nothing_wrong_child();
        overflow_write_child();
}

/* ---- The program's own handler -------------------------------------------------------------------- */

static void own_handler(int number)
{
        static const char text[] = "own handler\n";

        (void)number;
        (void)!write(STDERR_FILENO, text, sizeof(text) - 1);
        _exit(42);
}

/* A handler from before the first guard. Options start the heap first, so the attribute does it. */
static void handler_before_child(void)
{
        check(signal(SIGSEGV, own_handler) != SIG_ERR);
        check(kmalloc(64, GFP_KERNEL));
        check_equal(kmem_attr_write("kmalloc-64", "guard_sampling", "1"), 0);
        check_equal(kmem_attr_write("kmalloc-64", "sheaf_capacity", "0"), 0);
        *first_behind(at_end(64), 64) = 1;
}

static void handler_alone_child(void)
{
        struct fault_action action = {.handler.plain = own_handler};

        at_end(64);
        fault_set_action(&action);
        /* Nothing is mapped there. */
        *(volatile char *)((uintptr_t)getpagesize() / 2) = 1;
}

static void tell_stack(int number)
{
        stack_t here;

        _exit(number == SIGSEGV && sigaltstack(NULL, &here) == 0 && here.ss_flags & SS_ONSTACK ? 43
                                                                                               : 1);
}

/* A small one: the stack is not walked there. */
static void on_alternate_stack_child(void)
{
        static char stack[8192];
        stack_t here = {.ss_sp = stack, .ss_size = sizeof(stack)};
        struct fault_action action = {.handler.plain = tell_stack};

        check_equal(sigaltstack(&here, NULL), 0);
        at_end(100);
        fault_set_action(&action);
        *first_behind(at_end(100), 100) = 1;
}

static volatile sig_atomic_t caught;

static void catch_it(int number)
{
        caught += number == SIGSEGV;
}

static void set_handler(void (*handler)(int), int flags)
{
        struct sigaction action = {.sa_handler = handler, .sa_flags = flags};

        sigemptyset(&action.sa_mask);
        check_equal(sigaction(SIGSEGV, &action, NULL), 0);
}

struct sender {
        pthread_t reader;
        int to;
        int signals;
        bool came_out;
};

static void *send_signals(void *argument)
{
        struct sender *sender = argument;

        for (int i = 0; i < sender->signals; i++) {
                if (__atomic_load_n(&sender->came_out, __ATOMIC_RELAXED))
                        return NULL;
                pthread_kill(sender->reader, SIGSEGV);
                system_sleep_ns(1000000);
        }
        check_equal(write(sender->to, "x", 1), 1);
        return NULL;
}

/* Whether a read is interrupted by one of so many signals, a millisecond apart. */
static bool is_interrupted(int signals)
{
        struct sender sender = {.reader = pthread_self(), .signals = signals};
        pthread_t thread;
        int ends[2], error;
        ssize_t got;
        char byte;

        check_equal(pipe(ends), 0);
        sender.to = ends[1];
        check_equal(pthread_create(&thread, NULL, send_signals, &sender), 0);
        got = read(ends[0], &byte, 1);
        error = errno;
        __atomic_store_n(&sender.came_out, true, __ATOMIC_RELAXED);
        pthread_join(thread, NULL);
        close(ends[0]);
        close(ends[1]);
        check(got == 1 || (got == -1 && error == EINTR));
        return got == -1;
}

/* A signal that is sent interrupts a system call if the program's handler is without SA_RESTART. */
static void interrupts_child(void)
{
        enum { MANY = 3000, FEW = 20 };

        set_handler(catch_it, 0);
        check(kmalloc(64, GFP_KERNEL));
        check_equal(kmem_attr_write("kmalloc-64", "guard_sampling", "1"), 0);
        check_equal(kmem_attr_write("kmalloc-64", "sheaf_capacity", "0"), 0);
        at_end(64);
        check(fault_is_watched());
        check(is_interrupted(MANY));
        set_handler(catch_it, SA_RESTART);
        caught = 0;
        check(!is_interrupted(FEW));
        check(caught > 0);
        set_handler(catch_it, 0);
        check(is_interrupted(MANY));
        /* It returns at once, but the kernel would not even call it. */
        set_handler(SIG_IGN, 0);
        check(!is_interrupted(FEW));
        check(signal(SIGSEGV, catch_it) == SIG_IGN);
        check(!is_interrupted(FEW));
}

/* The program reads back what libc and the kernel would tell it. */
static void told_child(void)
{
        struct sigaction action = {.sa_handler = catch_it}, old;

        at_end(100);
        check(signal(SIGSEGV, catch_it) == SIG_DFL);
        errno = 0;
        check(signal(SIGSEGV, SIG_ERR) == SIG_ERR);
        check_equal(errno, EINVAL);
        check_equal(sigaction(SIGSEGV, NULL, &old), 0);
        check(old.sa_handler == catch_it);
        check_equal(old.sa_flags, SA_RESTART);
        check(sigismember(&old.sa_mask, SIGSEGV) == 1 && !sigismember(&old.sa_mask, SIGBUS));
        sigfillset(&action.sa_mask);
        check_equal(sigaction(SIGSEGV, &action, NULL), 0);
        check_equal(sigaction(SIGSEGV, NULL, &old), 0);
        check(!sigismember(&old.sa_mask, SIGKILL) && !sigismember(&old.sa_mask, SIGSTOP));
        check(sigismember(&old.sa_mask, SIGSEGV) == 1 && sigismember(&old.sa_mask, SIGUSR1) == 1);
}

/* What sysv_signal says is ours, as it goes past malloc/signals.c. */
static void given_back_child(void)
{
        void (*ours)(int);

        at_end(100);
        check(signal(SIGSEGV, own_handler) == SIG_DFL);
        ours = sysv_signal(SIGSEGV, SIG_DFL);
        check(ours != own_handler);
        check(signal(SIGSEGV, ours) == own_handler);
        *first_behind(at_end(100), 100) = 1;
}

/* ---- Several threads and processes ---------------------------------------------------------------- */

static void *exchange[8];

static void *churn(void *seed)
{
        uint64_t state = (uint64_t)(uintptr_t)seed;

        for (int i = 0; i < 20000; i++) {
                void **place = &exchange[random_step(&state) % array_size(exchange)];
                char *object = kmalloc(random_step(&state) % 500 + 1, GFP_KERNEL);

                check(object);
                *object = 1;
                kfree(__atomic_exchange_n(place, object, __ATOMIC_ACQ_REL));
        }
        return NULL;
}

static void threads_child(void)
{
        pthread_t threads[4];

        for (uintptr_t i = 0; i < array_size(threads); i++)
                check_equal(pthread_create(&threads[i], NULL, churn, (void *)(i + 1)), 0);
        for (size_t i = 0; i < array_size(threads); i++)
                pthread_join(threads[i], NULL);
        for (size_t i = 0; i < array_size(exchange); i++)
                kfree(exchange[i]);
        check(guard_figures.made > 10000);
        check_equal(guard_figures.live, 0);
        check_equal(guard_figures.faults, 0);
}

static void fork_child(void)
{
        char *object = at_end(100);
        volatile char *freed = at_end(100);
        pid_t child;
        int status;

        kfree((void *)freed);
        child = fork();
        check(child >= 0);
        if (!child) {
                kfree(object);
                nothing_wrong_child();
                _exit(guard_figures.faults != 0);
        }
        child_wait(child);
        kfree(object);
        child = fork();
        check(child >= 0);
        if (!child) {
                (void)*freed;
                _exit(0);
        }
        check_equal(waitpid(child, &status, 0), child);
        check(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV);
}

/* ---- Faults beside a report ---------------------------------------------------------------------- */

static volatile char *freed_before;
static int full_pipe[2];
static int saved_error;

/* The next report waits until somebody reads the pipe. */
static void fill_standard_error(void)
{
        static const char filling[4096];

        saved_error = dup(STDERR_FILENO);
        check(saved_error >= 0);
        check_equal(pipe(full_pipe), 0);
        check_equal(fcntl(full_pipe[1], F_SETFL, O_NONBLOCK), 0);
        while (write(full_pipe[1], filling, sizeof(filling)) > 0)
                ;
        check_equal(fcntl(full_pipe[1], F_SETFL, 0), 0);
        check(dup2(full_pipe[1], STDERR_FILENO) >= 0);
}

/* Until the reports so far are in the pipe. */
static void await_report(void)
{
        while (!load_relaxed(&guard_figures.faults))
                usleep(1000);
        usleep(200000);
}

/* The fault ends the process. */
static void touch_freed(int number)
{
        (void)number;
        signal(SIGALRM, SIG_DFL);
        alarm(20);
        dup2(saved_error, STDERR_FILENO);
        *freed_before = 1;
        _exit(0);
}

static void *free_twice(void *object)
{
        kfree(object);
        return NULL;
}

/* The thread that writes a report is not in the child, whose own fault is reported with its places. */
static void fork_beside_report_child(void)
{
        char *object = at_end(100);
        pthread_t thread;
        pid_t child;
        int status;

        freed_before = at_end(100);
        kfree((void *)freed_before);
        kfree(object);
        fill_standard_error();
        check_equal(pthread_create(&thread, NULL, free_twice, object), 0);
        await_report();
        child = fork();
        check(child >= 0);
        if (!child)
                touch_freed(0);
        check_equal(waitpid(child, &status, 0), child);
        _exit(!WIFSIGNALED(status) || WTERMSIG(status) != SIGSEGV);
}

static void fork_and_touch(int number)
{
        pid_t child = fork();
        int status;

        if (!child)
                touch_freed(number);
        _exit(waitpid(child, &status, 0) != child || !WIFSIGNALED(status) ||
              WTERMSIG(status) != SIGSEGV);
}

/* The handler comes while its own thread writes a report. */
static void interrupt_report(void (*handler)(int))
{
        struct sigaction action = {.sa_handler = handler, .sa_flags = SA_NODEFER};
        char *object = at_end(100);

        freed_before = at_end(100);
        kfree((void *)freed_before);
        kfree(object);
        fill_standard_error();
        check_equal(sigaction(SIGALRM, &action, NULL), 0);
        alarm(1);
        kfree(object);
        check_failed("the handler ends the process", __FILE__, __LINE__);
}

static void handler_in_report_child(void)
{
        interrupt_report(touch_freed);
}

static void fork_in_report_child(void)
{
        interrupt_report(fork_and_touch);
}

static bool storm_ends;

static void *churn_on(void *seed)
{
        while (!__atomic_load_n(&storm_ends, __ATOMIC_RELAXED))
                kfree(kmalloc(100, GFP_KERNEL));
        return seed;
}

/* Each child finds the locks of guards free. */
static void fork_storm_child(void)
{
        pthread_t threads[3];

        for (size_t i = 0; i < array_size(threads); i++)
                check_equal(pthread_create(&threads[i], NULL, churn_on, NULL), 0);
        for (int round = 0; round < 200; round++) {
                pid_t child = fork();

                check(child >= 0);
                if (!child) {
                        alarm(20);
                        for (int i = 0; i < 10; i++)
                                kfree(kmalloc(100, GFP_KERNEL));
                        _exit(guard_figures.faults != 0);
                }
                child_wait(child);
        }
        __atomic_store_n(&storm_ends, true, __ATOMIC_RELAXED);
        for (size_t i = 0; i < array_size(threads); i++)
                pthread_join(threads[i], NULL);
        check_equal(guard_figures.faults, 0);
}

/* ---- Rates ---------------------------------------------------------------------------------------- */

/* A program that takes objects and keeps them: one in 50 is guarded, whatever the sheaves. */
static void rate_child(void)
{
        enum { ROUNDS = 200, OBJECTS = 500, RATE = 50 };
        static void *objects[OBJECTS];
        double expected = (double)(ROUNDS * OBJECTS) / (double)RATE;

        for (int round = 0; round < ROUNDS; round++) {
                for (int i = 0; i < OBJECTS; i++)
                        check(objects[i] = kmalloc(64, GFP_KERNEL));
                for (int i = 0; i < OBJECTS; i++)
                        kfree(objects[i]);
        }
        fprintf(stderr, "# %lu guards, %lu missed, %.0f expected\n",
                (unsigned long)guard_figures.made, (unsigned long)guard_figures.missed, expected);
        check((double)guard_figures.made > expected * 0.7);
        check((double)guard_figures.made < expected * 1.3);
        check_equal(guard_figures.faults, 0);
}

/* Main and spare take turns, and no other sheaf comes: their objects are decided about all the same. */
static void turns_child(void)
{
        enum { ROUNDS = 2000, OBJECTS = 45, RATE = 50 };
        void *objects[OBJECTS];
        double expected = (double)(ROUNDS * OBJECTS) / (double)RATE;

        for (int round = 0; round < ROUNDS; round++) {
                for (int i = 0; i < OBJECTS; i++)
                        check(objects[i] = kmalloc(64, GFP_KERNEL));
                for (int i = 0; i < OBJECTS; i++)
                        kfree(objects[i]);
        }
        fprintf(stderr, "# %lu guards, %.0f expected\n", (unsigned long)guard_figures.made,
                expected);
        check((double)guard_figures.made > expected * 0.6);
        check((double)guard_figures.made < expected * 1.4);
}

/*
 * A program that frees each object before it takes the next: its sheaf passes no slow path, so the
 * gate has to let it have guards, at slow paths of another class.
 */
static void gate_child(void)
{
        for (int i = 0; i < 2000 && guard_figures.made < 10; i++) {
                for (int turn = 0; turn < 1000; turn++) {
                        void *object = kmalloc(64, GFP_KERNEL);

                        check(object);
                        kfree(object);
                }
                kfree(kmalloc(512, GFP_KERNEL));
                check_equal(kmem_attr_write("kmalloc-512", "shrink", "1"), 0);
                system_sleep_ns(1000000);
        }
        check(guard_figures.made >= 10);
}

/* The free of a guard leaves a mark, so the next call is guarded, but not for ever. */
static void marks_child(void)
{
        enum { ROUNDS = 60 };
        void *plain = kmalloc(64, GFP_KERNEL);
        struct kmem_cache *cache = cache_of(plain);
        unsigned int again = 0;

        kfree(plain);
        for (int round = 0; round < ROUNDS; round++) {
                void *object = guard_alloc(cache);

                check(object);
                while (in_guard_region(object)) {
                        kfree(object);
                        object = kmalloc(64, GFP_KERNEL);
                        again += in_guard_region(object);
                        check(again < 20 * ROUNDS);
                }
                kfree(object);
        }
        /* Three of four frees: 180 are expected. */
        check(again > 90 && again < 360);
}

static void switched_child(void)
{
        char value[KMEM_ATTR_BYTES];

        check(!in_guard_region(kmalloc(64, GFP_KERNEL)));
        check_equal(kmem_attr_write("kmalloc-64", "sheaf_capacity", "0"), 0);
        check_equal(kmem_attr_write("kmalloc-64", "guard_sampling", "1"), 0);
        check(kmem_attr_read("kmalloc-64", "guard_sampling", value, sizeof(value)) > 0);
        check_equal(strcmp(value, "1\n"), 0);
        check(in_guard_region(kmalloc(64, GFP_KERNEL)));
        check_equal(kmem_attr_write("kmalloc-64", "guard_sampling", "0"), 0);
        check(!in_guard_region(kmalloc(64, GFP_KERNEL)));
        check_equal(kmem_attr_write("kmalloc-64", "guard_sampling", "1073741825"), -1);
        check_equal(errno, ERANGE);
}

/* All caches at once, and a cache that comes later. */
static void all_caches_child(void)
{
        struct kmem_cache *cache;

        check(kmalloc(64, GFP_KERNEL));
        lock_take(&cache_mutex);
        check_equal(guards_set_locked("1"), 0);
        check_equal(guards_set_locked("many"), EINVAL);
        lock_drop(&cache_mutex);
        cache = kmem_cache_create("later", 64, 0, SLAB_NO_MERGE, NULL);
        check_equal(kmem_attr_write("later", "sheaf_capacity", "0"), 0);
        check(in_guard_region(kmem_cache_alloc(cache, GFP_KERNEL)));
}

/* Also an object that lies among the guards has a cache, and is freed as such. */
static void stranger_child(void)
{
        struct kmem_cache *own = kmem_cache_create("own", 64, 0, SLAB_NO_MERGE, NULL);
        struct kmem_cache *other = kmem_cache_create("other", 64, 0, SLAB_NO_MERGE, NULL);
        void *object = kmem_cache_alloc(own, GFP_KERNEL);

        check(in_guard_region(object));
        kmem_cache_free(own, object);
        object = kmem_cache_alloc(own, GFP_KERNEL);
        check(in_guard_region(object));
        kmem_cache_free(other, object);
}

static const struct child_case cases[] = {
        {"overflow_write", overflow_write_child},
        {"overflow_read", overflow_read_child},
        {"underflow", underflow_child},
        {"use_after_free", use_after_free_child},
        {"double_free", double_free_child},
        {"inside_free", inside_free_child},
        {"stranger", stranger_child},
        {"small_overflow", small_overflow_child},
        {"small_underflow", small_underflow_child},
        {"nothing_wrong", nothing_wrong_child},
        {"alignment", check_alignment_child},
        {"constructed", constructed_child},
        {"resize", resize_child},
        {"quarantine", quarantine_child},
        {"limits", limits_child},
        {"page_limit", page_limit_child},
        {"mapped", mapped_child},
        {"grown_in_locked", grown_in_locked_child},
        {"small_address_space", small_address_space_child},
        {"handler_before", handler_before_child},
        {"handler_alone", handler_alone_child},
        {"on_alternate_stack", on_alternate_stack_child},
        {"interrupts", interrupts_child},
        {"told", told_child},
        {"given_back", given_back_child},
        {"threads", threads_child},
        {"fork", fork_child},
        {"fork_storm", fork_storm_child},
        {"fork_beside_report", fork_beside_report_child},
        {"handler_in_report", handler_in_report_child},
        {"fork_in_report", fork_in_report_child},
        {"rate", rate_child},
        {"turns", turns_child},
        {"gate", gate_child},
        {"marks", marks_child},
        {"switched", switched_child},
        {"all_caches", all_caches_child},
};

static struct child_result result;

static void explain(const char *name, const char *expected)
{
        fprintf(stderr, "child %s with size %s: wait status 0x%x, expected %s, output:\n%s\n", name,
                getenv("GUARD_SIZE"), (unsigned int)result.status, expected, result.output);
        fail();
}

static void reports(const char *name, const char *text)
{
        if (!strstr(result.output, text))
                explain(name, text);
}

/* Ends by SIGSEGV after a report. */
static void faults(const char *name, const char *settings, const char *text)
{
        child_run(name, settings, &result);
        if (!WIFSIGNALED(result.status) || WTERMSIG(result.status) != SIGSEGV)
                explain(name, "SIGSEGV");
        reports(name, text);
        reports(name, "allocated by thread");
        reports(name, "here by thread");
}

static void set_size(size_t size)
{
        char text[24];

        snprintf(text, sizeof(text), "%zu", size);
        setenv("GUARD_SIZE", text, 1);
}

static void test_overflow(void **state)
{
        char text[100];

        (void)state;
        for (size_t i = 0; i < array_size(sizes); i++) {
                set_size(sizes[i]);
                snprintf(text, sizeof(text), "of an object of %zu bytes", sizes[i]);
                faults("overflow_write", EVERY, "kmem: overflow: a");
                reports("overflow_write", text);
                reports("overflow_write", "bytes behind the end, of an object of");
                faults("overflow_read", EVERY, "kmem: overflow: a");
        }
}

static void test_underflow(void **state)
{
        (void)state;
        for (size_t i = 0; i < array_size(sizes); i++) {
                set_size(sizes[i]);
                faults("underflow", EVERY, "kmem: underflow: a");
                reports("underflow", "1 bytes in front of the start, of an object");
        }
}

static void test_use_after_free(void **state)
{
        char text[100];

        (void)state;
        for (size_t i = 0; i < array_size(sizes); i++) {
                set_size(sizes[i]);
                snprintf(text, sizeof(text), ", %zu bytes into it, of an object of %zu bytes",
                         sizes[i] - 1, sizes[i]);
                faults("use_after_free", EVERY, "kmem: use after free: a");
                reports("use_after_free", text);
                reports("use_after_free", "freed by thread");
        }
}

static void test_wrong_frees(void **state)
{
        (void)state;
        for (size_t i = 0; i < array_size(sizes); i++) {
                set_size(sizes[i]);
                child_aborts("double_free", EVERY, "kmem: double free: a free at");
                child_run("double_free", EVERY, &result);
                reports("double_free", "freed by thread");
                child_aborts("inside_free", EVERY, "kmem: wrong free: a free at");
        }
}

static void test_stranger(void **state)
{
        (void)state;
        child_prints("stranger", EVERY, "kmem: kmem_cache_free(other, 0x");
        child_prints("stranger", EVERY, "wrong slab cache: the object is from own\n");
}

/* The bytes that the alignment leaves: the program goes on. */
static void test_small_overflow(void **state)
{
        (void)state;
        set_size(100);
        child_prints("small_overflow", EVERY, "overflow: an earlier write, found by the free, at");
        child_prints("small_overflow", EVERY, ", 1 bytes behind the end, of an object of 100");
        child_prints("small_underflow", EVERY, ", 3 bytes in front of the start, of an object of");
}

static void test_nothing_wrong(void **state)
{
        (void)state;
        child_passes("nothing_wrong", EVERY);
        child_passes("alignment", EVERY);
        child_passes("constructed", EVERY);
        child_passes("resize", EVERY);
}

static void test_quarantine(void **state)
{
        (void)state;
        faults("quarantine", EVERY, "kmem: use after free: a");
        child_passes("limits", EVERY);
        child_passes("page_limit", EVERY);
}

static void test_surroundings(void **state)
{
        struct rlimit before, limit;

        (void)state;
        set_size(100);
        faults("mapped", EVERY, "kmem: use after free: a");
        child_passes("grown_in_locked", EVERY);
        assert_int_equal(getrlimit(RLIMIT_AS, &before), 0);
        limit = (struct rlimit){.rlim_cur = 256 << 20, .rlim_max = before.rlim_max};
        assert_int_equal(setrlimit(RLIMIT_AS, &limit), 0);
        child_run("small_address_space", EVERY, &result);
        assert_int_equal(setrlimit(RLIMIT_AS, &before), 0);
        reports("small_address_space", "kmem: overflow: a");
}

static void test_handlers(void **state)
{
        (void)state;
        child_run("handler_before", "engine=slub,registry=off,classes=kernel", &result);
        if (!WIFEXITED(result.status) || WEXITSTATUS(result.status) != 42)
                explain("handler_before", "exit status 42");
        reports("handler_before", "kmem: overflow: a");
        reports("handler_before", "own handler");
        child_run("handler_alone", EVERY, &result);
        if (!WIFEXITED(result.status) || WEXITSTATUS(result.status) != 42)
                explain("handler_alone", "exit status 42");
        if (strstr(result.output, "kmem: "))
                explain("handler_alone", "no report");
        child_run("on_alternate_stack", EVERY, &result);
        if (!WIFEXITED(result.status) || WEXITSTATUS(result.status) != 43)
                explain("on_alternate_stack", "exit status 43");
        reports("on_alternate_stack", "kmem: overflow: a");
        child_passes("interrupts", "engine=slub,registry=off,classes=kernel");
        child_passes("told", EVERY);
        child_run("given_back", EVERY, &result);
        if (!WIFEXITED(result.status) || WEXITSTATUS(result.status) != 42)
                explain("given_back", "exit status 42");
        reports("given_back", "kmem: overflow: a");
}

static void test_threads(void **state)
{
        (void)state;
        child_passes("threads", EVERY);
        child_passes("fork", EVERY);
        child_passes("fork_storm", EVERY);
}

static void test_beside_report(void **state)
{
        const char within[] = ", in a signal handler while another fault was reported";

        (void)state;
        child_run("fork_beside_report", EVERY, &result);
        if (!WIFEXITED(result.status) || WEXITSTATUS(result.status) != 0)
                explain("fork_beside_report", "exit status 0");
        reports("fork_beside_report", "kmem: use after free: a");
        reports("fork_beside_report", "/test_guards+0x");
        child_run("handler_in_report", EVERY, &result);
        if (!WIFSIGNALED(result.status) || WTERMSIG(result.status) != SIGSEGV)
                explain("handler_in_report", "SIGSEGV");
        reports("handler_in_report", within);
        child_prints("fork_in_report", EVERY, within);
}

static void test_rates(void **state)
{
        (void)state;
        child_passes("rate", "guard_sampling=50,engine=slub,registry=off");
        child_passes("turns", "guard_sampling=50,sheaf_capacity=30,engine=slub,registry=off");
        child_passes("gate", "guard_sampling=1000,engine=slub,registry=off,classes=kernel");
        child_passes("marks", "guard_sampling=1000000000,engine=slub,registry=off");
        child_passes("switched", "engine=slub,registry=off,classes=kernel");
        child_passes("all_caches", "engine=slub,registry=off");
}

int main(int argc, char **argv)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_overflow),       cmocka_unit_test(test_underflow),
                cmocka_unit_test(test_use_after_free), cmocka_unit_test(test_wrong_frees),
                cmocka_unit_test(test_stranger),       cmocka_unit_test(test_small_overflow),
                cmocka_unit_test(test_nothing_wrong),  cmocka_unit_test(test_quarantine),
                cmocka_unit_test(test_surroundings),   cmocka_unit_test(test_handlers),
                cmocka_unit_test(test_threads),        cmocka_unit_test(test_beside_report),
                cmocka_unit_test(test_rates),
        };

        child_main(argc, argv, cases, array_size(cases));
        return cmocka_run_group_tests(tests, NULL, NULL);
}
