/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * How much stack a call takes: handlers on alternate stacks and coroutines have little of it. The
 * test makes each call on a painted stack, and then looks for the deepest changed byte. The first
 * call is the process's first allocation. Prints each kind of call that took more than the limit in
 * argument 1, in bytes, and then ends with status 1; prints "ok" if no call did. Argument 2:
 * seconds to sleep in between.
 *
 * The program is linked with -z now, because stack of the dynamic linker does not count.
 */
#define _GNU_SOURCE
#include "check.h"

#include <dlfcn.h>
#include <malloc.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/mman.h>
#include <ucontext.h>

enum { STACK_BYTES = 64 << 10, PAINT = 0xa5, BLOCKS = 4096 };

static ucontext_t caller, side;
static unsigned char *stack;
static void *blocks[BLOCKS];
static size_t own_bytes; /* stack of a call that does nothing */
static size_t limit;
static int failed;

static void nothing(void)
{
}

static size_t stack_of(void (*call)(void))
{
        size_t untouched = 0;

        memset(stack, PAINT, STACK_BYTES);
        check(getcontext(&side) == 0);
        side.uc_stack = (stack_t){.ss_sp = stack, .ss_size = STACK_BYTES};
        side.uc_link = &caller;
        makecontext(&side, call, 0);
        check(swapcontext(&caller, &side) == 0);
        while (stack[untouched] == PAINT)
                untouched++;
        return STACK_BYTES - untouched;
}

static void measure(const char *name, void (*call)(void), size_t most)
{
        size_t bytes = stack_of(call) - own_bytes;

        if (getenv("SHOW_STACK"))
                dprintf(STDERR_FILENO, "%s %zu\n", name, bytes);
        if (bytes <= most)
                return;
        dprintf(STDERR_FILENO, "%s took %zu bytes of stack, expected at most %zu\n", name, bytes,
                most);
        failed = 1;
}

static void *volatile block;

static void allocate(void)
{
        block = opaque(malloc(64));
        check(block);
}

static void release(void)
{
        free(block);
}

static size_t size_of(int i)
{
        return 1 + (size_t)i * 7919 % (i % 64 ? 3000 : 70000);
}

static void allocate_many(void)
{
        for (int i = 0; i < BLOCKS; i++) {
                blocks[i] = opaque(malloc(size_of(i)));
                check(blocks[i]);
        }
}

static void resize_many(void)
{
        for (int i = 0; i < BLOCKS; i++) {
                blocks[i] = opaque(realloc(blocks[i], size_of(i * 3 + 1)));
                check(blocks[i]);
        }
}

static void release_many(void)
{
        for (int i = 0; i < BLOCKS; i++)
                free(blocks[i * 1237 % BLOCKS]);
}

static void clear_many(void)
{
        for (int i = 0; i < BLOCKS; i++) {
                blocks[i] = opaque(calloc(1, size_of(i)));
                check(blocks[i]);
        }
}

static void align_many(void)
{
        for (int i = 0; i < BLOCKS; i++) {
                blocks[i] = opaque(memalign((size_t)16 << i % 10, size_of(i)));
                check(blocks[i]);
        }
}

/* Large and huge blocks, of which some grow, shrink, and are kept for others. */
static void use_large(void)
{
        for (int round = 0; round < 3; round++) {
                for (int i = 0; i < 12; i++) {
                        size_t bytes = (size_t)8192 << i;
                        void *large = opaque(i % 2 ? malloc(bytes) : calloc(1, bytes));

                        check(large);
                        large = opaque(realloc(large, bytes * 3));
                        check(large);
                        large = opaque(realloc(large, bytes / 3));
                        check(large);
                        free(large);
                        large = opaque(aligned_alloc((size_t)1 << 22, bytes));
                        check(large);
                        free(large);
                }
        }
}

static void trim(void)
{
        malloc_trim(0);
}

/* ---- Calls that make texts have limits of their own (docs/limits.md) ------------------------ */

static FILE *nowhere;
static int (*attr_read)(const char *cache, const char *name, char *text, size_t bytes);

static void write_figures(void)
{
        check(malloc_info(0, nowhere) == 0);
}

static void read_attributes(void)
{
        static const char *const names[] = {"slabs", "objects", "alloc_calls", "alloc_fastpath"};
        static char text[4096];

        for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
                attr_read("kmalloc-64", names[i], text, sizeof(text));
}

static void measure_texts(void)
{
        nowhere = fopen("/dev/null", "w");
        attr_read = (int (*)(const char *, const char *, char *, size_t))dlsym(RTLD_DEFAULT,
                                                                               "kmem_attr_read");
        check(nowhere && attr_read);
        measure("malloc_info", write_figures, 6144);
        measure("kmem_attr_read", read_attributes, 6144);
}

/* With these it counts as a process with threads, so its frees start the reclaim thread. */
static void *work(void *unused)
{
        static void *taken[BLOCKS];
        static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

        (void)unused;
        pthread_mutex_lock(&lock);
        for (int i = 0; i < BLOCKS; i++)
                taken[i] = opaque(malloc(size_of(i)));
        for (int i = 0; i < BLOCKS; i++)
                free(taken[i]);
        pthread_mutex_unlock(&lock);
        return NULL;
}

static void run_threads(void)
{
        pthread_t threads[4];

        for (int i = 0; i < 4; i++)
                check(pthread_create(&threads[i], NULL, work, NULL) == 0);
        for (int i = 0; i < 4; i++)
                check(pthread_join(threads[i], NULL) == 0);
}

static const struct {
        const char *name;
        void (*call)(void);
} calls[] = {
        {"malloc, the first time", allocate},
        {"free, the first time", release},
        {"malloc", allocate_many},
        {"realloc", resize_many},
        {"free", release_many},
        {"calloc", clear_many},
        {"free of what calloc gave", release_many},
        {"memalign", align_many},
        {"free of what memalign gave", release_many},
        {"large blocks", use_large},
        {"malloc_trim", trim},
        {"malloc after malloc_trim", allocate_many},
        {"free after malloc_trim", release_many},
};

int main(int argc, char **argv)
{
        check(argc == 2 || argc == 3);
        limit = strtoul(argv[1], NULL, 10);
        watchdog(120);
        stack = mmap(NULL, STACK_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        check(stack != MAP_FAILED);
        own_bytes = stack_of(nothing);
        for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++)
                measure(calls[i].name, calls[i].call, limit);
        measure_texts();
        run_threads();
        /* Engine slab looks every two seconds for unused objects. */
        if (argc == 3)
                sleep((unsigned int)atoi(argv[2]));
        /* The first two calls have been made. */
        for (size_t i = 2; i < sizeof(calls) / sizeof(calls[0]); i++)
                measure(calls[i].name, calls[i].call, limit);
        if (failed)
                return 1;
        if (is_forked_child()) {
                for (size_t i = 2; i < sizeof(calls) / sizeof(calls[0]); i++)
                        measure(calls[i].name, calls[i].call, limit);
                _exit(failed);
        }
        puts("ok");
        return 0;
}
