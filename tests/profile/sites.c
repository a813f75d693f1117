/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * A program with known allocations, kept objects and frees at each of its sites. It prints the true
 * figures on standard output, a line a site: NAME LIVE-OBJECTS LIVE-BYTES ALLOCATIONS, then "end",
 * and then waits until its standard input ends.
 *
 *   sites ROUNDS [wait]    wait: for a line on standard input before it begins
 *   sites paced ROUNDS
 *   sites hoard MEGABYTES    keeps MEGABYTES of each of two sites, and does nothing else
 *   sites deep FRAMES    keeps bulky objects that it gets FRAMES calls of deep_call deep
 *
 * Sites take turns in ways that mislead a profiler that samples refills of a cache: pairs between
 * the allocations of lasting objects, bursts that leave little behind, and tables with entries that
 * are replaced at random. The paced program does nothing but two sites' pairs, three of site_small
 * to one of site_wide, a few every 700 us: they never leave a sheaf.
 */
#define _GNU_SOURCE
#include <sched.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { TABLE = 200000, BURST = 300, STAY = 10, LARGE = 64, PACE_NS = 700000 };

struct site {
        const char *name;
        size_t bytes;
        long live;
        long allocations;
};

static struct site keeper = {"site_keep", 48, 0, 0};
static struct site pair = {"site_pair", 48, 0, 0};
static struct site burst = {"site_burst", 256, 0, 0};
static struct site table = {"site_table", 512, 0, 0};
static struct site mixed = {"site_mixed", 512, 0, 0};
static struct site bulky = {"site_bulky", 4096, 0, 0};
static struct site large = {"site_large", 100 << 12, 0, 0};

static uint64_t state = 12345;

static uint32_t chance(uint32_t below)
{
        state = state * 6364136223846793005ull + 1442695040888963407ull;
        return (uint32_t)((state >> 33) % below);
}

static void *note(struct site *site, void *block)
{
        if (!block)
                abort();
        memset(block, 1, site->bytes < 64 ? site->bytes : 64);
        site->live++;
        site->allocations++;
        return block;
}

static void release(struct site *site, void *block)
{
        free(block);
        site->live--;
}

/* Each a function of its own, and not the last thing that it does, so that it is in the stack. */
#define SITE(function, site)                                                                       \
        void *function(void);                                                                      \
        __attribute__((noinline)) void *function(void)                                             \
        {                                                                                          \
                void *block = note(&site, malloc(site.bytes));                                     \
                                                                                                   \
                __asm__ volatile("" : : "r"(block) : "memory");                                    \
                return block;                                                                      \
        }
SITE(site_keep, keeper)
SITE(site_pair, pair)
SITE(site_burst, burst)
SITE(site_table, table)
SITE(site_mixed, mixed)
SITE(site_bulky, bulky)
SITE(site_large, large)

static void *entries[TABLE];
static struct site *owners[TABLE];
static void *larges[LARGE];
static void *kept; /* a list through the objects, so that nothing is said to be lost */

static void keep(void *block)
{
        *(void **)block = kept;
        kept = block;
}

static void one_round(void)
{
        void *blocks[BURST];
        unsigned int place = chance(TABLE);

        /*
         * A pair stands between two lasting objects: each of them gets the object that the pair
         * had.
         */
        for (unsigned int i = 0; i < 20; i++) {
                keep(site_keep());
                for (unsigned int again = chance(4); again; again--)
                        release(&pair, site_pair());
        }
        for (unsigned int i = 0; i < BURST; i++)
                blocks[i] = site_burst();
        for (unsigned int i = 0; i < BURST; i++)
                if (i % (BURST / STAY) == 7)
                        keep(blocks[i]);
                else
                        release(&burst, blocks[i]);
        for (unsigned int i = 0; i < 20; i++, place = chance(TABLE)) {
                if (entries[place])
                        release(owners[place], entries[place]);
                owners[place] = chance(3) ? &table : &mixed;
                entries[place] = owners[place] == &table ? site_table() : site_mixed();
        }
        if (chance(4) == 0)
                keep(site_bulky());
        place = chance(LARGE);
        if (larges[place])
                release(&large, larges[place]);
        larges[place] = site_large();
}

static struct site small = {"site_small", 64, 0, 0};
static struct site wide = {"site_wide", 256, 0, 0};
SITE(site_small, small)
SITE(site_wide, wide)

static void paced(long rounds)
{
        const struct timespec pause = {.tv_nsec = PACE_NS};

        while (rounds--) {
                for (int i = 0; i < 14; i++) {
                        for (int again = 0; again < 3; again++)
                                release(&small, site_small());
                        release(&wide, site_wide());
                }
                nanosleep(&pause, NULL);
        }
}

static void hoard(long megabytes)
{
        for (long bytes = 0; bytes < megabytes << 20; bytes += 4096) {
                for (unsigned int i = 0; i < 16; i++)
                        keep(site_burst());
                keep(site_bulky());
        }
}

void *deep_call(long frames);
__attribute__((noinline)) void *deep_call(long frames)
{
        void *block = frames > 1 ? deep_call(frames - 1) : site_bulky();

        __asm__ volatile("" : : "r"(block) : "memory");
        return block;
}

static void deep(long frames)
{
        for (unsigned int i = 0; i < 20000; i++)
                keep(deep_call(frames));
}

int main(int argc, char **argv)
{
        const struct site *sites[] = {&keeper, &pair,  &burst, &table, &mixed,
                                      &bulky,  &large, &small, &wide};
        bool pace = argc > 2 && strcmp(argv[1], "paced") == 0;
        bool hoards = argc > 2 && strcmp(argv[1], "hoard") == 0;
        bool dives = argc > 2 && strcmp(argv[1], "deep") == 0;
        bool has_mode = pace || hoards || dives;
        long rounds = argc > 1 ? strtol(argv[1 + has_mode], NULL, 10) : 0;
        cpu_set_t cpus;

        if (rounds <= 0) {
                fprintf(stderr, "usage: sites ROUNDS [wait] | sites paced ROUNDS | "
                                "sites hoard MEGABYTES | sites deep FRAMES\n");
                return 2;
        }
        /* On a single CPU all runs are equal. */
        CPU_ZERO(&cpus);
        CPU_SET((size_t)sched_getcpu(), &cpus);
        sched_setaffinity(0, sizeof(cpus), &cpus);
        if (argc > 2 && !has_mode) {
                printf("ready\n");
                fflush(stdout);
                getchar();
        }
        if (pace)
                paced(rounds);
        if (hoards)
                hoard(rounds);
        if (dives)
                deep(rounds);
        while (!has_mode && rounds--)
                one_round();
        for (size_t i = 0; i < sizeof(sites) / sizeof(*sites); i++)
                printf("%s %ld %ld %ld\n", sites[i]->name, sites[i]->live,
                       sites[i]->live * (long)sites[i]->bytes, sites[i]->allocations);
        printf("end\n");
        fflush(stdout);
        while (getchar() != EOF)
                ;
        return 0;
}
