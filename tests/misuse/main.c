/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * misuse: runs a case of heap misuse, named "kind/way/size" (misuse.h says what it writes). Without
 * an argument it lists the names of all cases. With `addresses` it prints where blocks lie. Exit
 * code 2: there is no such case.
 */
#define _GNU_SOURCE
#include "misuse.h"

#include <malloc.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

enum { SECONDS_MOST = 150, CPU_SECONDS_MOST = 4, STACK_OF_HANDLER = 64 << 10 };

static const struct {
        const char *name;
        size_t bytes;
} sizes[] = {
        {"tiny", 24},       {"small", 400},     {"medium", 5000}, {"pages", 100000},
        {"large", 1000000}, {"huge", 40000000}, {"-", 0},
};

static const struct way *const tables[] = {
        double_free_ways, invalid_free_ways, bounds_ways,   stale_ways, content_ways,
        resize_ways,      form_ways,         metadata_ways, cache_ways,
};

static volatile uintptr_t misused_from;
static volatile uintptr_t misused_to;
static bool harm_was_said;

/* Not by stdio, which takes memory. */
static void say(const char *first, const char *second)
{
        char line[256];
        int length = snprintf(line, sizeof(line), "%s%s%s\n", first, *second ? " " : "", second);

        if (write(STDOUT_FILENO, line, (size_t)length) != length)
                _exit(3);
}

void harm(const char *text)
{
        if (!harm_was_said)
                say("misuse: harm", text);
        harm_was_said = true;
}

void harm_if(bool proven, const char *text)
{
        if (proven)
                harm(text);
}

void absent(const char *text)
{
        say("misuse: absent", text);
        _exit(0);
}

void misuse_begins(const void *at, size_t bytes)
{
        misused_from = (uintptr_t)at;
        misused_to = (uintptr_t)at + bytes;
        hide(NULL);
}

void misuse_ends(void)
{
        hide(NULL);
        misused_to = misused_from = 0;
}

static void on_fault(int number, siginfo_t *info, void *context)
{
        uintptr_t address = (uintptr_t)info->si_addr;

        (void)number;
        (void)context;
        say(address >= misused_from && address < misused_to ? "misuse: trapped" : "misuse: crashed",
            "");
        _exit(0);
}

static void catch_faults(void)
{
        static char stack[STACK_OF_HANDLER];
        stack_t other = {.ss_sp = stack, .ss_size = sizeof(stack)};
        struct sigaction action = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO | SA_ONSTACK};

        sigaltstack(&other, NULL);
        sigaction(SIGSEGV, &action, NULL);
        sigaction(SIGBUS, &action, NULL);
}

static void do_nothing(void *argument)
{
        (void)argument;
}

/*
 * A program that has been running for a while: blocks of several sizes in use, and some free. What
 * libc keeps of a thread is made once, so that it does not take the place of a block of the case.
 */
static void warm_up(size_t bytes)
{
        enum { BLOCKS = 24 };
        void *block[BLOCKS];

        for (size_t size = 16; size <= 4096; size *= 2) {
                for (size_t i = 0; i < BLOCKS; i++)
                        block[i] = take(size);
                for (size_t i = 0; i < BLOCKS; i += 2)
                        release(block[i]);
        }
        in_thread(do_nothing, NULL);
        if (bytes)
                release(take(bytes));
}

/* What a program does after a misuse, and where an allocator may still notice it. */
static void go_on(size_t bytes)
{
        release_held();
        if (bytes)
                churn(bytes);
        malloc_trim(0);
}

static void run_case(const struct way *way, size_t bytes)
{
        struct rlimit no_core = {0, 0};
        struct rlimit cpu = {CPU_SECONDS_MOST, CPU_SECONDS_MOST + 1};

        setrlimit(RLIMIT_CORE, &no_core);
        setrlimit(RLIMIT_CPU, &cpu);
        alarm(SECONDS_MOST);
        catch_faults();
        warm_up(bytes);
        way->run(bytes);
        go_on(bytes);
        say("misuse: end", "");
        _exit(0);
}

static void name_of_case(const struct way *way, size_t size, char *name, size_t room)
{
        snprintf(name, room, "%s/%s/%s", way->kind, way->name, sizes[size].name);
}

/* The first block of each size, and the distances between blocks of 64 bytes that are taken next. */
static void show_addresses(void)
{
        enum { DISTANCES = 32 };
        char number[32];
        uintptr_t last;

        for (size_t size = 0; sizes[size].bytes; size++) {
                snprintf(number, sizeof(number), "%zu", (size_t)take(sizes[size].bytes));
                say(sizes[size].name, number);
        }
        last = (uintptr_t)take(64);
        for (size_t i = 0; i < DISTANCES; i++) {
                uintptr_t next = (uintptr_t)take(64);

                snprintf(number, sizeof(number), "%td", (ptrdiff_t)(next - last));
                say("distance", number);
                last = next;
        }
}

int main(int argc, char **argv)
{
        char name[128];

        if (argc == 2 && strcmp(argv[1], "addresses") == 0) {
                show_addresses();
                return 0;
        }

        for (size_t table = 0; table < sizeof(tables) / sizeof(tables[0]); table++)
                for (const struct way *way = tables[table]; way->name; way++)
                        for (size_t size = 0; size < sizeof(sizes) / sizeof(sizes[0]); size++) {
                                if (!(way->sizes & 1u << size))
                                        continue;
                                name_of_case(way, size, name, sizeof(name));
                                if (argc == 1)
                                        say(name, "");
                                else if (strcmp(argv[1], name) == 0)
                                        run_case(way, sizes[size].bytes);
                        }
        if (argc == 1)
                return 0;
        fprintf(stderr, "misuse: %s: no such case\n", argv[1]);
        return 2;
}
