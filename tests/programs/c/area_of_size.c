/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * A libc with an area of another size: defines libc's two symbols that describe the area. Newer
 * versions of libc take the size from the kernel.
 *
 * area_of_size BYTES
 *
 * The program registers the area in each of its threads, in the first thread before any library
 * starts. It needs GLIBC_TUNABLES=glibc.pthread.rseq=0. Its children by vfork allocate.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <stddef.h>
#include <sys/syscall.h>

#include "check.h"

enum { AREA_BYTES = 512, SHORTEST = 32, SIGNATURE = 0x53053053, THREADS = 3, ROUNDS = 20 };

static __thread struct {
        uint32_t cpu_id_start;
        int32_t cpu_id;
        char other[AREA_BYTES - 8];
} area __attribute__((used, aligned(AREA_BYTES), tls_model("local-exec"))) = {.cpu_id = -1};

unsigned int __rseq_size = 20;
extern const ptrdiff_t __rseq_offset;
__asm__(".pushsection .data\n"
        ".globl __rseq_offset\n"
        ".type __rseq_offset, @object\n"
        ".balign 8\n"
        "__rseq_offset:\n"
        ".quad area@tpoff\n"
        ".size __rseq_offset, 8\n"
        ".popsection");

/* Never shorter than for the first kernels: glibc's size tells how much of the area is in use. */
static long register_area(void)
{
        unsigned int bytes = __rseq_size < SHORTEST ? SHORTEST : __rseq_size;

        return syscall(SYS_rseq, &area, bytes, 0, SIGNATURE);
}

static int refused; /* errno of the first thread */

static void register_first(int count, char **arguments, char **environment)
{
        (void)environment;
        if (count == 2)
                __rseq_size = (unsigned int)atoi(arguments[1]);
        if (register_area() != 0)
                refused = errno;
}

__attribute__((used,
               section(".preinit_array"))) static void (*const first)(int, char **,
                                                                      char **) = register_first;

static __attribute__((noinline)) void run_child(struct churn *churn)
{
        pid_t child = vfork();

        check(child >= 0);
        if (child == 0) {
                churn_run(churn, 50);
                _exit(0);
        }
        wait_for(child);
}

static void *work(void *seed)
{
        struct churn churn;

        churn_init(&churn, (uint64_t)(uintptr_t)seed);
        for (int round = 0; round < ROUNDS; round++) {
                churn_run(&churn, 50);
                run_child(&churn);
                check(area.cpu_id >= 0);
        }
        churn_end(&churn);
        return NULL;
}

static void *register_and_work(void *seed)
{
        check(register_area() == 0);
        return work(seed);
}

int main(int count, char **arguments)
{
        pthread_t threads[THREADS];

        (void)arguments;
        check(count == 2);
        watchdog(120);
        if (refused) {
                printf("no area of %u bytes here: %s\n", __rseq_size, strerror(refused));
                return 77;
        }
        for (int i = 0; i < THREADS; i++)
                check(pthread_create(&threads[i], NULL, register_and_work,
                                     (void *)(uintptr_t)(i + 1)) == 0);
        work(NULL);
        for (int i = 0; i < THREADS; i++)
                check(pthread_join(threads[i], NULL) == 0);
        puts("ok");
        return 0;
}
