/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Threads made by clone(2) itself, with a thread block of their own that libc never registered for
 * restartable sequences (cpu_id is -1, as before libc's start_thread), allocate and free through
 * malloc while ordinary threads do the same, and free what ordinary threads allocated.
 *
 * The thread block comes from the dynamic loader's own _dl_allocate_tls, the only way to get
 * dynamic TLS right; exit status 77 where that does not exist.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <linux/futex.h>
#include <sched.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#include "churners.h"

#define RAW_THREADS 4
#define STACK_BYTES (256u << 10)
#define ROUNDS 300
#define RSEQ_CPU_ID_UNINITIALIZED ((uint32_t)-1)

/* The start of glibc's thread block on x86-64; fs points to it. */
struct thread_head {
        void *tcb;
        void *dtv;
        void *self;
        int multiple_threads;
        int gscope;
        uintptr_t sysinfo;
        uintptr_t stack_guard;
        uintptr_t pointer_guard;
};

struct raw_thread {
        _Atomic uint32_t alive; /* the kernel clears it and wakes the futex at the thread's end */
        atomic_bool done;
        unsigned int number;
        void *gift;     /* allocated by main, freed by the thread */
        void *souvenir; /* allocated by the thread, freed by main */
};

extern const ptrdiff_t __rseq_offset __attribute__((weak));

static struct thread_head *own_head(void)
{
        struct thread_head *head;

        __asm__("movq %%fs:16, %0" : "=r"(head));
        return head;
}

static struct thread_head *new_thread_block(void)
{
        void *(*allocate_tls)(void *) = (void *(*)(void *))dlsym(RTLD_DEFAULT, "_dl_allocate_tls");
        struct thread_head *head;

        if (!allocate_tls || !&__rseq_offset) {
                puts("no _dl_allocate_tls or no __rseq_offset in this libc");
                exit(77);
        }
        head = allocate_tls(NULL);
        check(head != NULL);
        head->tcb = head;
        head->self = head;
        head->multiple_threads = 1;
        head->stack_guard = own_head()->stack_guard;
        head->pointer_guard = own_head()->pointer_guard;
        /* struct rseq begins with cpu_id_start and cpu_id. */
        ((uint32_t *)((char *)head + __rseq_offset))[0] = 0;
        ((uint32_t *)((char *)head + __rseq_offset))[1] = RSEQ_CPU_ID_UNINITIALIZED;
        return head;
}

static int raw_main(void *argument)
{
        struct raw_thread *thread = argument;
        struct churn churn;

        check(intact(thread->gift, 100, 0x5c));
        free(thread->gift);
        churn_init(&churn, 50 + thread->number);
        for (int round = 0; round < ROUNDS; round++)
                churn_run(&churn, 100);
        churn_end(&churn);
        thread->souvenir = malloc(200);
        check(thread->souvenir != NULL);
        fill(thread->souvenir, 200, 0x77);
        atomic_store(&thread->done, 1);
        /* Not return: the wrapper of clone would end in _exit of the process's only thread. */
        syscall(SYS_exit, 0);
        return 0;
}

static void start_raw(struct raw_thread *thread)
{
        const int flags = CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD |
                          CLONE_SYSVSEM | CLONE_SETTLS | CLONE_CHILD_CLEARTID;
        char *stack = mmap(NULL, STACK_BYTES, PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);

        check(stack != MAP_FAILED);
        thread->gift = malloc(100);
        check(thread->gift != NULL);
        fill(thread->gift, 100, 0x5c);
        atomic_store(&thread->alive, 1);
        check(clone(raw_main, stack + STACK_BYTES, flags, thread, NULL, new_thread_block(),
                    &thread->alive) > 0);
}

static void join_raw(struct raw_thread *thread)
{
        while (atomic_load(&thread->alive) == 1)
                syscall(SYS_futex, &thread->alive, FUTEX_WAIT, 1, NULL, NULL, 0);
        check(atomic_load(&thread->done));
        check(intact(thread->souvenir, 200, 0x77));
        free(thread->souvenir);
}

int main(void)
{
        static struct raw_thread threads[RAW_THREADS];
        struct churners churners;
        struct churn churn;

        watchdog(300);
        churners_start(&churners, 2);
        for (unsigned int i = 0; i < RAW_THREADS; i++) {
                threads[i].number = i;
                start_raw(&threads[i]);
        }
        churn_init(&churn, 9);
        churn_run(&churn, 10000);
        churn_end(&churn);
        for (unsigned int i = 0; i < RAW_THREADS; i++)
                join_raw(&threads[i]);
        churners_stop(&churners);
        puts("ok");
        return 0;
}
