/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * driver MODULE OPERATIONS [SEED]: the four kernel modules, unchanged kernel code, are linked into
 * this program. It starts them, drives MODULE, and ends them. Any text that a module or libkmem
 * prints on the way (a WARN, objects left in a cache that is destroyed) is a failure.
 */
#define _GNU_SOURCE
#include "driver.h"

#include <linux/module.h>

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { READERS = 2 };

static int real_stderr;
static int printed;

/* Standard error goes to a file in memory. */
static void printed_catch(void)
{
        real_stderr = dup(STDERR_FILENO);
        printed = memfd_create("printed", MFD_CLOEXEC);
        if (printed < 0 || dup2(printed, STDERR_FILENO) < 0)
                abort();
        setvbuf(stderr, NULL, _IONBF, 0);
}

/* Shows the printed text; returns its length. */
static size_t printed_show(void)
{
        static char text[1 << 16];
        ssize_t length = pread(printed, text, sizeof(text), 0);

        if (length > 0 && write(real_stderr, text, (size_t)length) != length)
                abort();
        return length > 0 ? (size_t)length : 0;
}

void check_failed(const char *text, const char *file, int line)
{
        printed_show();
        dprintf(real_stderr, "%s:%d: check failed: %s\n", file, line, text);
        _exit(1);
}

static struct reader {
        pthread_t thread;
        struct random random;
        uint64_t looks;
} readers[READERS];
static bool readers_end;
static void (*reader_look)(struct random *random);

static void *read_on(void *argument)
{
        struct reader *reader = argument;

        do {
                for (int i = 0; i < 100; i++)
                        reader_look(&reader->random);
                reader->looks += 100;
        } while (!__atomic_load_n(&readers_end, __ATOMIC_ACQUIRE));
        return NULL;
}

void readers_start(void (*look)(struct random *random))
{
        reader_look = look;
        readers_end = false;
        for (int i = 0; i < READERS; i++) {
                readers[i] = (struct reader){.random = {.state = 77 + (uint64_t)i}};
                check(pthread_create(&readers[i].thread, NULL, read_on, &readers[i]) == 0);
        }
}

void readers_stop(void)
{
        __atomic_store_n(&readers_end, true, __ATOMIC_RELEASE);
        for (int i = 0; i < READERS; i++) {
                check(pthread_join(readers[i].thread, NULL) == 0);
                check(readers[i].looks > 0);
        }
}

static const struct {
        const char *name;
        void (*drive)(uint64_t operations, struct random *random);
} modules[] = {
        {"namecache", drive_namecache},
        {"packetq", drive_packetq},
        {"rangemap", drive_rangemap},
        {"objcache", drive_objcache},
};

int main(int argc, char **argv)
{
        struct random random = {.state = 1};
        bool found = false;
        uint64_t operations;

        if (argc < 3 || argc > 4) {
                fprintf(stderr, "usage: driver MODULE OPERATIONS [SEED]\n");
                return 2;
        }
        operations = strtoull(argv[2], NULL, 10);
        if (argc == 4)
                random.state = strtoull(argv[3], NULL, 10) + 1;
        printed_catch();
        check(kmem_modules_init() == 0);
        for (size_t i = 0; i < ARRAY_SIZE(modules); i++)
                if (strcmp(modules[i].name, argv[1]) == 0) {
                        modules[i].drive(operations, &random);
                        found = true;
                }
        check(found);
        kmem_modules_exit();
        if (printed_show()) {
                dprintf(real_stderr, "driver: expected nothing on standard error\n");
                return 1;
        }
        printf("%s: %lu operations as the model says, no object left\n", argv[1],
               (unsigned long)operations);
        return 0;
}
