/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * guard-faults CASE [SIZE]: a fault in an object of malloc, or the handlers of a program around it.
 * Every object of malloc is guarded if the options say so.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <malloc.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

static size_t size = 100;
static volatile char *object;
static sigjmp_buf again;

__attribute__((noinline)) static void allocate_here(void)
{
        object = malloc(size);
        /* One object of four begins where its pages begin. */
        while (((uintptr_t)object + size + 15) / 4096 == (uintptr_t)object / 4096)
                object = malloc(size);
        memset((void *)object, 1, size);
}

__attribute__((noinline)) static void free_here(void)
{
        free((void *)object);
}

static volatile char *behind(void)
{
        return (volatile char *)(((uintptr_t)object + size + 4095) / 4096 * 4096);
}

static void *free_in_thread(void *unused)
{
        free_here();
        return unused;
}

static void use_after_free(void)
{
        pthread_t thread;

        allocate_here();
        pthread_create(&thread, NULL, free_in_thread, NULL);
        pthread_join(thread, NULL);
        object[size / 2] = 1;
}

static void overflow(void)
{
        allocate_here();
        *behind() = 1;
}

static void double_free(void)
{
        allocate_here();
        free_here();
        free_here();
}

static void small_overflow(void)
{
        allocate_here();
        object[size] = 1;
        free_here();
        puts("goes on");
}

/* As a server that gives up writing files. */
static void small_overflow_without_files(void)
{
        const struct rlimit none = {0, 0};

        small_overflow();
        if (setrlimit(RLIMIT_FSIZE, &none) == 0)
                small_overflow();
}

/* The folder of its file is full for a while; the last fault is at another byte. */
static void small_overflows_on_full_disk(void)
{
        static const char page[4096];
        int filler = open("/dev/shm/filler", O_WRONLY | O_CREAT, 0600);

        small_overflow();
        while (write(filler, page, sizeof(page)) > 0)
                ;
        for (int i = 0; i < 20; i++)
                small_overflow();
        if (ftruncate(filler, 0))
                _exit(1);
        allocate_here();
        object[size + 1] = 1;
        free_here();
}

static void handler(int number, siginfo_t *info, void *context)
{
        (void)context;
        dprintf(STDERR_FILENO, "handler of the program: %d %d\n", number,
                (char *)info->si_addr == (char *)behind());
        _exit(3);
}

/* Set while guards watch: the program reads back what it has set, and its handler runs. */
static void handler_later(void)
{
        struct sigaction action = {.sa_sigaction = handler, .sa_flags = SA_SIGINFO};
        struct sigaction old;

        allocate_here();
        if (sigaction(SIGSEGV, &action, &old) || old.sa_handler != SIG_DFL)
                _exit(1);
        /* A child of vfork, in the parent's memory, changes its own action only. */
        if (vfork() == 0) {
                signal(SIGSEGV, SIG_DFL);
                _exit(0);
        }
        if (sigaction(SIGSEGV, NULL, &old) || old.sa_sigaction != handler)
                _exit(1);
        *behind() = 1;
}

static void jump(int number)
{
        (void)number;
        siglongjmp(again, 1);
}

/* A handler that jumps out, set by signal, taken back, and the default of the system. */
static void handler_jumps(void)
{
        allocate_here();
        if (signal(SIGSEGV, jump) != SIG_DFL)
                _exit(1);
        if (!sigsetjmp(again, 1))
                *behind() = 1;
        if (!sigsetjmp(again, 1))
                *(volatile int *)16 = 1;
        if (signal(SIGSEGV, SIG_DFL) != jump)
                _exit(1);
        puts("jumped twice");
        fflush(stdout);
        allocate_here();
        *behind() = 1;
}

static void sent(void)
{
        allocate_here();
        raise(SIGSEGV);
}

/* Its figures are right, and others find nothing wrong. */
static void clean(void)
{
        for (size_t bytes = 1; bytes < 40000; bytes += bytes / 3 + 1) {
                char *block = malloc(bytes);
                char *zeroed = calloc(1, bytes);
                void *aligned = NULL;

                if (malloc_usable_size(block) != bytes && bytes <= 32768)
                        _exit(1);
                memset(block, 2, malloc_usable_size(block));
                for (size_t i = 0; i < bytes; i++)
                        if (zeroed[i])
                                _exit(1);
                block = realloc(block, bytes * 2);
                for (size_t i = 0; i < bytes; i++)
                        if (block[i] != 2)
                                _exit(1);
                if (posix_memalign(&aligned, 256, bytes) || (uintptr_t)aligned % 256)
                        _exit(1);
                memset(aligned, 3, bytes);
                free(aligned);
                free(block);
                free(zeroed);
        }
        malloc_info(0, stdout);
}

int main(int argc, char **argv)
{
        static const struct {
                const char *name;
                void (*run)(void);
        } cases[] = {
                {"use_after_free", use_after_free},
                {"overflow", overflow},
                {"double_free", double_free},
                {"small_overflow", small_overflow},
                {"small_overflow_without_files", small_overflow_without_files},
                {"small_overflows_on_full_disk", small_overflows_on_full_disk},
                {"handler_later", handler_later},
                {"handler_jumps", handler_jumps},
                {"sent", sent},
                {"clean", clean},
        };

        if (argc > 2)
                size = strtoul(argv[2], NULL, 10);
        for (size_t i = 0; argc > 1 && i < sizeof(cases) / sizeof(cases[0]); i++)
                if (strcmp(argv[1], cases[i].name) == 0) {
                        cases[i].run();
                        return 0;
                }
        return 2;
}
