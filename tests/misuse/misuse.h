/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Cases of heap misuse. A way of misuse is a function that gets a size; a case is a way at a size.
 *
 * The program itself proves what a misuse led to. It writes lines to standard output:
 *
 *   misuse: harm TEXT      the misuse has had an effect that an attacker can use, as TEXT says
 *   misuse: trapped        the access that was the misuse ended in a fault of the processor
 *   misuse: crashed        another access did
 *   misuse: absent TEXT    the case makes no sense here
 *   misuse: end            the program went on to its end
 *
 * An allocator that notices the misuse ends the process or writes to standard error, which the
 * program leaves alone. Nothing here allocates but for the case: a line is a write(2).
 */
#ifndef MISUSE_H
#define MISUSE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

/* The sizes of a way, as bits in the order of the table in main.c. */
enum {
        TINY = 1 << 0,
        SMALL = 1 << 1,
        MEDIUM = 1 << 2,
        PAGES = 1 << 3,
        LARGE = 1 << 4,
        HUGE = 1 << 5,
        OBJECTS = TINY | SMALL | MEDIUM | PAGES,
        EACH_SIZE = OBJECTS | LARGE | HUGE,
        NO_SIZE = 1 << 6, /* the way chooses by itself, or there is no size in it */
};

struct way {
        const char *kind;
        const char *name;
        void (*run)(size_t bytes);
        unsigned int sizes;
};

/* The tables of the files; each ends with a way without a name. */
extern const struct way double_free_ways[];
extern const struct way invalid_free_ways[];
extern const struct way bounds_ways[];
extern const struct way stale_ways[];
extern const struct way content_ways[];
extern const struct way resize_ways[];
extern const struct way form_ways[];
extern const struct way metadata_ways[];
extern const struct way cache_ways[];

enum { PAGE_OF_BYTES = 4096, WORD_BYTES = 8, UNIT_BYTES = 16 };

/* Hides where a pointer comes from, so that the compiler makes no use of a misuse. */
static inline void *hide(void *pointer)
{
        __asm__ volatile("" : "+r"(pointer) : : "memory");
        return pointer;
}

/* Says what the misuse led to. Only the first harm counts. */
void harm(const char *text);
void harm_if(bool proven, const char *text);
/* Ends the process: the case makes no sense here. */
_Noreturn void absent(const char *text);

/* A block; its content is not touched. Without memory the case is absent. */
void *take(size_t bytes);
void release(void *block);
/* Writes to, or compares, the first and the last page of the block, and all between if it is small. */
void fill(void *block, size_t bytes, char with);
bool is_filled(const void *block, size_t bytes, char with);
/* The bytes of a range that have a value, as far as fill writes. */
size_t count_of(const void *block, size_t bytes, char with);

/* Accesses that are the misuse: a fault at them is a trap. */
void misuse_write(void *at, size_t bytes, char with);
size_t misuse_count(const void *at, size_t bytes, char with);
/* From here to the end of a misuse that another function makes, faults between the addresses are traps. */
void misuse_begins(const void *at, size_t bytes);
void misuse_ends(void);

/*
 * Blocks that the case holds, to find that two of them overlap. hold_many takes as many as pass all
 * that the allocator keeps of that size.
 */
void hold(void *block, size_t bytes);
void hold_many(size_t bytes);
/* How many blocks of a size hold_many takes. */
size_t many_of(size_t bytes);
bool held_overlap(void);
bool held_has(const void *from, size_t bytes);
/* Frees all held blocks, in the order they were taken. */
void release_held(void);
/* Takes and frees many blocks, so that what was freed before moves through all lists. */
void churn(size_t bytes);
/* Takes a block until it overlaps @block, at most @most times; NULL if it never did. */
void *take_again(const void *block, size_t bytes, size_t most);

/* Runs a function in a thread, and waits for its end. */
void in_thread(void (*run)(void *), void *argument);
/* Moves this thread to another CPU; absent if there is a single CPU. */
void to_other_cpu(void);

/* A function of the allocator or of the C++ runtime, by name; absent if there is none. */
void *function_named(const char *name);

#endif
