/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Corrupts the heap in the way that argv[1] names, in functions with names that reports can show.
 * Prints the corrupted pointer first, and `survived` at the end.
 */
#include "check.h"

enum { BYTES = 100, MANY = 1000 };

char *take_it(void);
void give_it_back(char *pointer);

__attribute__((noinline)) char *take_it(void)
{
        char *block = opaque(malloc(BYTES));

        check(block != NULL);
        printf("%p\n", (void *)block);
        fflush(stdout);
        /* Not a tail call of anything. */
        __asm__ volatile("" : : : "memory");
        return block;
}

__attribute__((noinline)) void give_it_back(char *pointer)
{
        free(opaque(pointer));
        __asm__ volatile("" : : : "memory");
}

static void overflow(void)
{
        char *block = take_it();

        block[BYTES] = 'x';
        give_it_back(block);
}

static void underflow(void)
{
        char *block = take_it();

        block[-1] = 'x';
        give_it_back(block);
}

static void use_after_free(void)
{
        char *block = take_it();

        give_it_back(block);
        block[10] = 'x';
}

static void double_free(void)
{
        char *block = take_it();

        give_it_back(block);
        give_it_back(block);
}

static void interior_free(void)
{
        give_it_back(take_it() + 16);
}

int main(int argc, char **argv)
{
        static const struct {
                const char *name;
                void (*act)(void);
        } ways[] = {
                {"overflow", overflow},
                {"underflow", underflow},
                {"use-after-free", use_after_free},
                {"double-free", double_free},
                {"interior-free", interior_free},
        };
        void *blocks[MANY];

        check(argc == 2);
        for (size_t i = 0; i < sizeof(ways) / sizeof(ways[0]); i++)
                if (strcmp(argv[1], ways[i].name) == 0)
                        ways[i].act();
        for (size_t i = 0; i < MANY; i++)
                memset(blocks[i] = opaque(malloc(BYTES)), 1, BYTES);
        for (size_t i = 0; i < MANY; i++)
                free(blocks[i]);
        puts("survived");
        return 0;
}
