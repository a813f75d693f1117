/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Parts that the drivers of the kernel modules share. Each driver compares every operation with a
 * model; other threads read meanwhile if the module allows that.
 */
#ifndef TESTS_KERNEL_DRIVER_H
#define TESTS_KERNEL_DRIVER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct random {
        uint64_t state; /* not 0 */
};

static inline uint64_t random_next(struct random *random)
{
        uint64_t x = random->state;

        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        random->state = x;
        return (x * 0x2545f4914f6cdd1du) >> 16;
}

/* 0 .. limit - 1 */
static inline unsigned int below(struct random *random, unsigned int limit)
{
        return (unsigned int)(random_next(random) % limit);
}

/* Prints the failure and ends the program. */
void check_failed(const char *text, const char *file, int line) __attribute__((noreturn));

#define check(condition)                                                                           \
        do {                                                                                       \
                if (!(condition))                                                                  \
                        check_failed(#condition, __FILE__, __LINE__);                              \
        } while (0)

/* Readers beside the driver: @look once and again until readers_stop. */
void readers_start(void (*look)(struct random *random));
/* Stops them; each must have looked. */
void readers_stop(void);

void drive_namecache(uint64_t operations, struct random *random);
void drive_packetq(uint64_t operations, struct random *random);
void drive_rangemap(uint64_t operations, struct random *random);
void drive_objcache(uint64_t operations, struct random *random);

#endif
