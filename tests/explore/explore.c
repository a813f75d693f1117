/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * The explorer: runs a scenario in every schedule with up to a number of preemptions.
 *
 *     explore --list
 *     explore SCENARIO [--memory sc|tso|ra] [--preemptions N] [--delays N] [--seconds N]
 *     explore SCENARIO --reduced|--compare [--preemptions N] [--seconds N]
 *     explore SCENARIO --all [--seconds N]
 *     explore SCENARIO --memory ra --weaken FILE:LINE ...
 *     explore SCENARIO [--memory sc|tso|ra] --replay STEP:THREAD,STEP~QUESTION,THREAD!REQUEST,...  [--steps]
 *
 * In a scenario whose requests for memory may be refused, up to --refusals of a schedule are, usually as many as
 * the scenario says.
 *
 * --memory tso gives each thread a store buffer; up to --delays (1) accesses of a schedule do not
 * see a store that another thread has made (memory.c). --memory ra is C11's release and acquire; a delay
 * is a stale read (views.c). --all searches all schedules, one of each class of equal ones (reduce.c); --reduced those with a
 * bound on preemptions, without most of the equal ones. --weaken takes the order away from the accesses and
 * fences of a place. --compare searches in both ways and fails if the executions leave other memories in
 * one of them; with --all it compares that search with the reduced one of so many preemptions that none is left out.
 *
 * Seconds are of the processor. Prints a line of figures for each bound. When a schedule fails, the explorer prints the reason
 * and the schedule, and ends with 1; with 2 for wrong arguments, and with 3 if time was over.
 */
#define _GNU_SOURCE
#include "memory.h"
#include "reduce.h"
#include "search.h"

#include "heap/heap.h"
#include "process/start.h"
#include "simulator/machine.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { EXIT_FOUND = 1, EXIT_WRONG = 2, EXIT_LATE = 3, CPUS = 4, ENDLESS = 100 };

struct wish {
        const struct scenario *scenario;
        unsigned int preemptions;
        unsigned int delays;
        int refusals; /* -1: as the scenario says */
        unsigned int seconds;
        bool all;
        bool reduced;
        bool steps;
        bool replay;
        struct schedule schedule;
};

static int report_file;

/* No handlers around fork: the explorer's forks are not the library's. */
bool process_start_heap(void)
{
        heap_start();
        return heap_is_up();
}

static void start_machine(const struct scenario *scenario)
{
        machine.cpus_present = machine.cpus_possible = CPUS;
        machine.cpus_online = scenario->usable ? scenario->usable : CPUS;
        machine.nodes = scenario->nodes ? scenario->nodes : 1;
        machine.memory_bytes = (size_t)1 << 30;
        for (unsigned int cpu = 0; cpu < CPUS; cpu++) {
                machine.online[cpu] = machine.present[cpu] = true;
                sim.node_of[cpu] = (uint16_t)(cpu * machine.nodes / CPUS);
        }
        sim.nanoseconds = 1000000000000;
        setenv("KMEM_OPTIONS", scenario->options ? scenario->options : "", 1);
}

/* ---- Arguments --------------------------------------------------------------------------- */

static __attribute__((noreturn)) void wrong(const char *what, const char *value,
                                            const char *expected)
{
        fprintf(stderr, "explore: %s '%s': expected %s\n", what, value, expected);
        exit(EXIT_WRONG);
}

static const struct scenario *find_scenario(const char *name)
{
        for (unsigned int i = 0; scenario_tables[i]; i++)
                for (const struct scenario *one = scenario_tables[i]; one->name; one++)
                        if (strcmp(one->name, name) == 0)
                                return one;
        wrong("scenario", name, "a name that --list prints");
}

static unsigned int read_number(const char *what, const char *text, unsigned int most)
{
        char *end;
        unsigned long value;

        errno = 0;
        value = strtoul(text, &end, 10);
        if (*text < '0' || *text > '9' || *end || errno || value > most)
                wrong(what, text, "a number in range");
        return (unsigned int)value;
}

static void read_schedule(const char *text, struct schedule *schedule)
{
        const char *at = text;

        while (*at) {
                struct turn turn = {0};
                int used = 0;
                bool delay = sscanf(at, "%u~%u%n", &turn.step, &turn.delay, &used) == 2;
                bool refused =
                        !delay && sscanf(at, "%u!%u%n", &turn.thread, &turn.refused, &used) == 2;

                if (schedule->count == TURNS_MAX ||
                    (!delay && !refused &&
                     sscanf(at, "%u:%u%n", &turn.step, &turn.thread, &used) != 2) ||
                    turn.thread >= THREADS_MAX || (delay && !turn.delay) ||
                    (refused && !turn.refused) || (at[used] && at[used] != ','))
                        wrong("--replay", text,
                              "STEP:THREAD, STEP~QUESTION or THREAD!REQUEST, ...");
                schedule->turn[schedule->count++] = turn;
                at += used + (at[used] == ',');
        }
}

static enum memory read_memory(const char *text)
{
        if (strcmp(text, "sc") == 0)
                return MEMORY_SC;
        if (strcmp(text, "tso") == 0)
                return MEMORY_TSO;
        if (strcmp(text, "ra") == 0)
                return MEMORY_RA;
        wrong("--memory", text, "sc, tso or ra");
}

static void read_weakened(char *text)
{
        char *colon = strrchr(text, ':');

        if (!colon || colon == text)
                wrong("--weaken", text, "FILE:LINE");
        *colon = '\0';
        memory_weaken(text, read_number("--weaken, line", colon + 1, 1000000));
}

static void list(void)
{
        for (unsigned int i = 0; scenario_tables[i]; i++)
                for (const struct scenario *one = scenario_tables[i]; one->name; one++)
                        if (strncmp(one->name, "litmus_", 7) != 0) /* not the library's */
                                printf("%s\t%s\t%s\n", one->name, one->large ? "large" : "small",
                                       one->about);
        exit(0);
}

static bool read_switch(const char *name, struct wish *wish)
{
        bool *const given = strcmp(name, "--steps") == 0     ? &wish->steps
                            : strcmp(name, "--all") == 0     ? &wish->all
                            : strcmp(name, "--reduced") == 0 ? &wish->reduced
                            : strcmp(name, "--compare") == 0 ? &search_notes_ends
                                                             : NULL;

        if (given)
                *given = true;
        return given != NULL;
}

static struct wish read_arguments(int count, char **arguments)
{
        struct wish wish = {.preemptions = 2, .delays = 1, .refusals = -1};

        for (int i = 1; i < count; i++) {
                const char *name = arguments[i];
                const char *value = i + 1 < count ? arguments[i + 1] : "";

                if (strcmp(name, "--list") == 0)
                        list();
                if (read_switch(name, &wish))
                        continue;
                if (name[0] != '-') {
                        wish.scenario = find_scenario(name);
                        continue;
                }
                if (strcmp(name, "--preemptions") == 0) {
                        wish.preemptions = read_number(name, value, 100);
                } else if (strcmp(name, "--memory") == 0) {
                        memory = read_memory(value);
                } else if (strcmp(name, "--delays") == 0) {
                        wish.delays = read_number(name, value, TURNS_MAX);
                } else if (strcmp(name, "--refusals") == 0) {
                        wish.refusals = (int)read_number(name, value, REFUSALS_MAX);
                } else if (strcmp(name, "--seconds") == 0) {
                        wish.seconds = read_number(name, value, 1000000);
                } else if (strcmp(name, "--weaken") == 0 && i + 1 < count) {
                        read_weakened(arguments[i + 1]);
                } else if (strcmp(name, "--replay") == 0) {
                        wish.replay = true;
                        read_schedule(value, &wish.schedule);
                } else {
                        wrong("option", name,
                              "--list, --memory, --preemptions, --delays, --refusals, --seconds, "
                              "--weaken, "
                              "--all, --reduced, --compare, --replay or --steps");
                }
                i++;
        }
        if ((wish.all || wish.reduced) && memory != MEMORY_SC)
                wrong("--memory", memory == MEMORY_TSO ? "tso" : "ra",
                      "sc with --all or --reduced");
        if (!wish.scenario)
                wrong("scenario", "", "a name that --list prints");
        return wish;
}

/* ---- Reports ----------------------------------------------------------------------------- */

static void print_place(const struct place *place)
{
        const char *file = place->file;

        while (strncmp(file, "../", 3) == 0)
                file += 3;
        printf("%s at %s:%u", place->text, file, place->line);
}

static void print_step(const struct step *step)
{
        print_place(step->place);
        if (!step->delay)
                return;
        if (!step->access) {
                printf(" %s", step->delay);
                return;
        }
        printf("\n              %s\n              ", step->delay);
        print_place(step->access);
}

/* A line for each span of steps that a thread makes without another, or for each step. */
static void print_schedule(bool steps)
{
        for (unsigned int first = 0, end; first < search->steps; first = end) {
                uint32_t thread = search->step[first].thread;

                for (end = first + 1; !steps && end < search->steps; end++)
                        if (search->step[end].thread != thread || search->step[end].delay ||
                            search->step[first].delay)
                                break;
                printf(search->step[first].access ? "  step %5u  delay:    "
                                                  : "  step %5u  thread %u  ",
                       first, thread);
                print_step(&search->step[first]);
                if (end - first > 1) {
                        printf("\n              ... %u steps, the last: ", end - first);
                        print_step(&search->step[end - 1]);
                }
                printf("\n");
        }
}

static void print_messages(void)
{
        char text[4096];
        ssize_t bytes = pread(report_file, text, sizeof(text) - 1, 0);

        if (bytes > 0)
                printf("messages of the library:\n%.*s\n", (int)bytes, text);
}

static void print_turn(const struct turn *turn, const char *between)
{
        if (turn->refused)
                printf("%s%u!%u", between, turn->thread, turn->refused);
        else if (turn->delay)
                printf("%s%u~%u", between, turn->step, turn->delay);
        else
                printf("%s%u:%u", between, turn->step, turn->thread);
}

static void print_failure(const struct scenario *scenario, bool steps)
{
        const struct schedule *schedule = &search->schedule;

        printf("%s: FAILED: %s\n", scenario->name, search->reason);
        print_schedule(steps);
        print_messages();
        printf("replay: explore %s --replay ", scenario->name);
        if (!schedule->count)
                printf("''");
        for (unsigned int i = 0; i < schedule->count; i++)
                print_turn(&schedule->turn[i], i ? "," : "");
        printf("%s\n", memory == MEMORY_TSO  ? " --memory tso"
                       : memory == MEMORY_RA ? " --memory ra"
                                             : "");
}

/* Messages of executions that fail are wanted once, not for each process of the search. */
static int keep_messages(void)
{
        int file = memfd_create("messages", 0);

        if (file < 0 || dup2(file, STDERR_FILENO) < 0)
                return -1;
        return file;
}

static void shrink(const struct scenario *scenario)
{
        struct schedule schedule = search->schedule;

        search_shrink(scenario, &schedule);
        if (ftruncate(report_file, 0) == 0 && lseek(report_file, 0, SEEK_SET) == 0)
                search_replay(scenario, &schedule);
}

/* Behind a search: the reduced one leaves the memories that it has left. */
static bool reach_equal(const struct scenario *scenario, const struct bounds *bounds)
{
        uint64_t ends = search->ends;
        uint64_t sum = search->ends_sum;
        uint64_t executions = search->executions;

        search_classes(scenario, bounds);
        printf("%s: %u preemptions: %lu executions leave %lu memories, and of the reduced search "
               "%lu leave %lu%s\n",
               scenario->name, bounds->preemptions, (unsigned long)executions, (unsigned long)ends,
               (unsigned long)search->executions, (unsigned long)search->ends,
               search->ends_sum == sum ? "" : ": OTHERS");
        return !search->failed && search->ends == ends && search->ends_sum == sum;
}

static unsigned int refusals_of(const struct wish *wish)
{
        return wish->refusals < 0 ? wish->scenario->refusals : (unsigned int)wish->refusals;
}

/* Words that threads share are learned cheaply by one preemption. */
static int explore_all(const struct wish *wish)
{
        uint64_t begin = search_processor_ms();
        struct bounds bounds = {
                .preemptions = 1,
                .refusals = refusals_of(wish),
                .deadline = wish->seconds ? begin + wish->seconds * (uint64_t)1000 : 0,
        };

        search_all(wish->scenario, &bounds);
        bounds.preemptions = NO_BOUND;
        if (!search->failed && !search->late)
                search_classes(wish->scenario, &bounds);
        printf("%s: all: %lu executions, %lu points, %lu choices, %lu cut short, %.1f s%s\n",
               wish->scenario->name, (unsigned long)search->executions,
               (unsigned long)search->points, (unsigned long)search->choices,
               (unsigned long)search->cut_short, (double)(search_processor_ms() - begin) / 1000,
               search->late ? ", NOT exhausted" : "");
        fflush(stdout);
        if (search->failed) {
                shrink(wish->scenario);
                print_failure(wish->scenario, wish->steps);
                return EXIT_FOUND;
        }
        if (search->late)
                return EXIT_LATE;
        bounds.preemptions = ENDLESS;
        return search_notes_ends && !reach_equal(wish->scenario, &bounds) ? EXIT_FOUND : 0;
}

static int explore(const struct wish *wish)
{
        uint64_t begin = search_processor_ms();
        struct bounds bounds = {
                .delays = memory == MEMORY_SC ? 0 : wish->delays,
                .refusals = refusals_of(wish),
                .deadline = wish->seconds ? begin + wish->seconds * (uint64_t)1000 : 0,
        };

        for (; bounds.preemptions <= wish->preemptions; bounds.preemptions++) {
                if (wish->reduced)
                        search_classes(wish->scenario, &bounds);
                else
                        search_all(wish->scenario, &bounds);
                printf("%s: %u preemptions: %lu executions, %lu points, %lu choices, %lu cut "
                       "short, "
                       "%.1f s%s\n",
                       wish->scenario->name, bounds.preemptions, (unsigned long)search->executions,
                       (unsigned long)search->points, (unsigned long)search->choices,
                       (unsigned long)search->cut_short,
                       (double)(search_processor_ms() - begin) / 1000,
                       search->late ? ", NOT exhausted" : "");
                fflush(stdout);
                if (search->failed) {
                        shrink(wish->scenario);
                        print_failure(wish->scenario, wish->steps);
                        return EXIT_FOUND;
                }
                if (search->late)
                        return EXIT_LATE;
                if (search_notes_ends && !reach_equal(wish->scenario, &bounds))
                        return EXIT_FOUND;
        }
        return 0;
}

static int replay(const struct wish *wish)
{
        search_replay(wish->scenario, &wish->schedule);
        if (search->failed) {
                print_failure(wish->scenario, wish->steps);
                return EXIT_FOUND;
        }
        print_schedule(wish->steps);
        printf("%s: the schedule passes\n", wish->scenario->name);
        return 0;
}

int main(int count, char **arguments)
{
        struct wish wish = read_arguments(count, arguments);
        int status;

        start_machine(wish.scenario);
        if (!search_init()) {
                fprintf(stderr, "explore: no memory for the search\n");
                return EXIT_WRONG;
        }
        if (!wish.scenario->cold && !heap_ready()) {
                fprintf(stderr, "explore: the heap does not start\n");
                return EXIT_WRONG;
        }
        if (!wish.scenario->cold)
                wish.scenario->setup();
        report_file = keep_messages();
        status = wish.replay ? replay(&wish) : wish.all ? explore_all(&wish) : explore(&wish);
        fflush(stdout);
        _exit(status);
}
