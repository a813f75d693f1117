/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * A program whose slabs are pinned in a known way, for `kmem explain PID`.
 *
 *   pins every|random|none
 *
 * every: allocates 300,000 objects of 200 bytes in pins_here, and frees all but one in 20. random:
 * the objects that stay are drawn. none: frees none of them. Then it prints how many it freed, and
 * goes on to take and free a large block every 10 ms, so that it answers requests, until its
 * standard input ends.
 */
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { OBJECTS = 300000, BYTES = 200, STAY = 20, LARGE = 1 << 20, PAUSE_MS = 10 };

static void *objects[OBJECTS];

static __attribute__((noinline)) void *pins_here(void)
{
        void *object = malloc(BYTES);

        if (!object)
                abort();
        memset(object, 1, BYTES);
        return object;
}

static int stays(const char *pattern, unsigned int number)
{
        static uint64_t random = 1;

        if (strcmp(pattern, "every") == 0)
                return number % STAY == 0;
        random = random * 6364136223846793005u + 1442695040888963407u;
        return (random >> 33) % STAY == 0;
}

int main(int argc, char **argv)
{
        struct pollfd input = {.fd = 0, .events = POLLIN};
        const char *pattern = argc == 2 ? argv[1] : "";
        unsigned int freed = 0;

        if (strcmp(pattern, "every") != 0 && strcmp(pattern, "random") != 0 &&
            strcmp(pattern, "none") != 0) {
                fprintf(stderr, "pins: expected every, random or none\n");
                return 2;
        }
        for (unsigned int i = 0; i < OBJECTS; i++)
                objects[i] = pins_here();
        for (unsigned int i = 0; i < OBJECTS && strcmp(pattern, "none") != 0; i++)
                if (!stays(pattern, i)) {
                        free(objects[i]);
                        objects[i] = NULL;
                        freed++;
                }
        printf("%u\n", freed);
        fflush(stdout);
        while (poll(&input, 1, PAUSE_MS) == 0) {
                void *block = malloc(LARGE);

                memset(block, 1, 1);
                free(block);
        }
        return 0;
}
