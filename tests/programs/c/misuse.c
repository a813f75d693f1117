/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Misuses the heap in the way that argv[1] names. Prints the misused pointer first, and `survived`
 * after it went on to allocate and free as if nothing had happened.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <malloc.h>
#include <pthread.h>
#include <sys/mman.h>

#include "check.h"

#define LARGE_BYTES (1u << 20)
#define HUGE_BYTES (64u << 20)
#define MANY 60000

static char a_global[256] __attribute__((aligned(64)));
static void *many[MANY];

static void *announce(void *pointer)
{
        printf("%p\n", pointer);
        fflush(stdout);
        return opaque(pointer);
}

static void *block(size_t bytes)
{
        char *new_block = opaque(malloc(bytes));

        check(new_block != NULL);
        new_block[0] = 1;
        return new_block;
}

static void call_kfree(void *pointer)
{
        void (*release)(const void *) = (void (*)(const void *))dlsym(RTLD_DEFAULT, "kfree");

        check(release != NULL);
        release(pointer);
}

/* Brings the caches' objects back to the slabs, which check every object. */
static void drain(void)
{
        for (size_t i = 0; i < MANY; i++)
                free(many[i]);
        malloc_trim(0);
}

static void take_many(size_t bytes)
{
        for (size_t i = 0; i < MANY; i++)
                many[i] = block(bytes);
}

static void on_stack(void)
{
        char local[64] __attribute__((aligned(16)));

        local[0] = 0;
        free(announce(local));
}

static void global(void)
{
        free(announce(a_global));
}

static void own_mapping(void)
{
        free(announce(
                mmap(NULL, 1 << 16, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)));
}

static void unmapped(void)
{
        free(announce((void *)0x100000));
}

static void interior_small(void)
{
        take_many(128);
        free(announce((char *)many[MANY / 2] + 16));
        drain();
}

static void interior_large(void)
{
        free(announce((char *)block(LARGE_BYTES) + 16));
}

static void interior_large_page(void)
{
        free(announce((char *)block(LARGE_BYTES) + 3 * 4096));
}

static void interior_huge(void)
{
        free(announce((char *)block(HUGE_BYTES) + (1 << 20)));
}

static void double_small(void)
{
        void *pointer = block(100);

        free(announce(pointer));
        free(opaque(pointer));
}

static void double_later(void)
{
        take_many(96);
        free(announce(many[MANY / 2]));
        drain();
}

/* With the first copy where frees and takes of other blocks have moved it. */
static void double_moved(void)
{
        void *pointer = block(96);

        free(announce(pointer));
        take_many(96);
        for (size_t i = 0; i < MANY; i++)
                free(many[i]);
        free(opaque(pointer));
}

static void *free_in_thread(void *pointer)
{
        free(pointer);
        return NULL;
}

static void double_elsewhere(void)
{
        void *pointer = block(96);
        pthread_t thread;

        check(pthread_create(&thread, NULL, free_in_thread, announce(pointer)) == 0);
        check(pthread_join(thread, NULL) == 0);
        free(opaque(pointer));
}

static void double_large(void)
{
        void *pointer = block(LARGE_BYTES);

        free(announce(pointer));
        free(opaque(pointer));
}

static void double_huge(void)
{
        void *pointer = block(HUGE_BYTES);

        free(announce(pointer));
        free(opaque(pointer));
}

static void kfree_on_stack(void)
{
        char local[64] __attribute__((aligned(16)));

        local[0] = 0;
        call_kfree(announce(local));
}

static void kfree_interior_large(void)
{
        call_kfree(announce((char *)block(LARGE_BYTES) + 64));
}

static void kfree_double_small(void)
{
        void *pointer = block(100);

        call_kfree(announce(pointer));
        call_kfree(opaque(pointer));
}

static void kfree_double_large(void)
{
        void *pointer = block(LARGE_BYTES);

        call_kfree(announce(pointer));
        call_kfree(opaque(pointer));
}

static void realloc_on_stack(void)
{
        char local[64] __attribute__((aligned(16)));

        local[0] = 0;
        check(realloc(announce(local), 1000) == NULL);
}

static void realloc_interior_large(void)
{
        check(realloc(announce((char *)block(LARGE_BYTES) + 32), 1000) == NULL);
}

/* Addresses up to the kernel's ZERO_SIZE_PTR, which is a block to none but kfree's family. */
static void free_at_1(void)
{
        free(announce((void *)1));
}

static void free_at_16(void)
{
        free(announce((void *)16));
}

static void realloc_at_16(void)
{
        check(realloc(announce((void *)16), 1000) == NULL);
}

static void realloc_at_16_to_none(void)
{
        check(realloc(announce((void *)16), 0) == NULL);
}

static void reallocarray_at_8(void)
{
        check(reallocarray(announce((void *)8), 10, 10) == NULL);
}

/* Functions that a header of today's libc, or C, does not declare. */
static void call_by_name(const char *name, void *pointer, size_t first, size_t second)
{
        void (*release)(void *, size_t, size_t) =
                (void (*)(void *, size_t, size_t))dlsym(RTLD_DEFAULT, name);

        check(release != NULL);
        release(announce(pointer), first, second);
}

static void cfree_at_16(void)
{
        call_by_name("cfree", (void *)16, 0, 0);
}

static void free_sized_at_16(void)
{
        call_by_name("free_sized", (void *)16, 8, 0);
}

static void free_aligned_sized_at_16(void)
{
        call_by_name("free_aligned_sized", (void *)16, 8, 8);
}

static void delete_at_16(void)
{
        call_by_name("_ZdlPv", (void *)16, 0, 0);
}

static void delete_array_at_16(void)
{
        call_by_name("_ZdaPv", (void *)16, 0, 0);
}

static void delete_sized_at_16(void)
{
        call_by_name("_ZdlPvm", (void *)16, 8, 0);
}

static void delete_array_sized_at_16(void)
{
        call_by_name("_ZdaPvm", (void *)16, 8, 0);
}

static void kfree_to_16(void)
{
        for (uintptr_t address = 0; address <= 16; address++)
                call_kfree(opaque((void *)address));
        check(malloc_usable_size(opaque((void *)16)) == 0);
}

static void libc_block(void)
{
        void *(*libc_malloc)(size_t) = (void *(*)(size_t))dlsym(RTLD_DEFAULT, "__libc_malloc");

        check(libc_malloc != NULL);
        free(announce(libc_malloc(100)));
}

static const struct {
        const char *name;
        void (*run)(void);
} misuses[] = {
        {"on-stack", on_stack},
        {"global", global},
        {"own-mapping", own_mapping},
        {"unmapped", unmapped},
        {"interior-small", interior_small},
        {"interior-large", interior_large},
        {"interior-large-page", interior_large_page},
        {"interior-huge", interior_huge},
        {"double-small", double_small},
        {"double-later", double_later},
        {"double-moved", double_moved},
        {"double-elsewhere", double_elsewhere},
        {"double-large", double_large},
        {"double-huge", double_huge},
        {"kfree-on-stack", kfree_on_stack},
        {"kfree-interior-large", kfree_interior_large},
        {"kfree-double-small", kfree_double_small},
        {"kfree-double-large", kfree_double_large},
        {"realloc-on-stack", realloc_on_stack},
        {"realloc-interior-large", realloc_interior_large},
        {"free-at-1", free_at_1},
        {"free-at-16", free_at_16},
        {"realloc-at-16", realloc_at_16},
        {"realloc-at-16-to-none", realloc_at_16_to_none},
        {"realloc-array-at-8", reallocarray_at_8},
        {"cfree-at-16", cfree_at_16},
        {"free_sized-at-16", free_sized_at_16},
        {"free_aligned_sized-at-16", free_aligned_sized_at_16},
        {"delete-at-16", delete_at_16},
        {"delete-array-at-16", delete_array_at_16},
        {"delete-sized-at-16", delete_sized_at_16},
        {"delete-array-sized-at-16", delete_array_sized_at_16},
        {"kfree-to-16", kfree_to_16},
        {"libc-block", libc_block},
};

int main(int argc, char **argv)
{
        struct churn churn;

        check(argc == 2);
        watchdog(60);
        churn_init(&churn, 5);
        churn_run(&churn, 1000);
        for (size_t i = 0; i < sizeof(misuses) / sizeof(*misuses); i++)
                if (strcmp(argv[1], misuses[i].name) == 0)
                        misuses[i].run();
        churn_run(&churn, 20000);
        churn_end(&churn);
        puts("survived");
        return 0;
}
