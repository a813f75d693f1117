/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * matrix: runs the stress program with the default options on every number of threads, and with
 * option values so combined that every pair of two values occurs in some run.
 *
 *   matrix STRESS ops=N [seed=N] [row=N] [list]
 *
 * The operations are shared out evenly over the runs. Writes TAP, a line for each run.
 */
#define _GNU_SOURCE
#include "../exec.h"
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { FACTORS = 19, VALUES_MAX = 3, ROWS_MAX = 64, TRIES = 200, EXIT_SKIP = 77 };

static const struct {
        const char *name;
        const char *values[VALUES_MAX]; /* "" leaves the option out; NULL: no value */
        bool argument;                  /* of the stress program, not in KMEM_OPTIONS */
} factors[FACTORS] = {
        {"threads", {"2", "16", "200"}, true},
        {"scenario", {"mixed", "producers", "churn"}, true},
        {"pinned", {"0", "1"}, true},
        {"engine", {"slub", "slab", "slob"}, false},
        {"slots", {"rseq", "locked"}, false},
        {"sheaf_capacity", {"", "0", "2"}, false},
        {"slot_cache_max", {"", "0"}, false},
        {"cpu_partial", {"", "0"}, false},
        {"cpu_partial_accounting", {"", "objects"}, false},
        {"cpu_partial_defaults", {"", "seed"}, false},
        {"freeze", {"", "eager"}, false},
        {"stats", {"", "1"}, false},
        {"min_partial", {"", "0"}, false},
        {"classes", {"", "kernel"}, false},
        {"check", {"", "sheaf"}, false},
        {"purge_delay", {"", "0"}, false},
        {"memory_limit", {"", "1T"}, false},
        {"reclaim_thread", {"on", "off"}, false},
        {"debug", {"", "FZP"}, false},
};

struct row {
        unsigned int value[FACTORS];
};

static struct row rows[ROWS_MAX];
static unsigned int row_count;
static bool covered[FACTORS][VALUES_MAX][FACTORS][VALUES_MAX];
static uint32_t random_state = 12345;

static uint32_t random_next(void)
{
        random_state = random_state * 1664525u + 1013904223u;
        return random_state >> 8;
}

static unsigned int values_of(unsigned int factor)
{
        unsigned int count = 0;

        while (count < VALUES_MAX && factors[factor].values[count])
                count++;
        return count;
}

static unsigned int new_pairs(const struct row *row)
{
        unsigned int pairs = 0;

        for (unsigned int a = 0; a < FACTORS; a++)
                for (unsigned int b = a + 1; b < FACTORS; b++)
                        pairs += !covered[a][row->value[a]][b][row->value[b]];
        return pairs;
}

static void add_row(const struct row *row)
{
        if (row_count == ROWS_MAX) {
                fprintf(stderr, "matrix: more than %d rows\n", ROWS_MAX);
                exit(1);
        }
        rows[row_count++] = *row;
        for (unsigned int a = 0; a < FACTORS; a++)
                for (unsigned int b = a + 1; b < FACTORS; b++)
                        covered[a][row->value[a]][b][row->value[b]] = true;
}

/* The defaults on every number of threads, free and pinned, with the scenarios in turn. */
static void add_defaults(void)
{
        for (unsigned int number = 0; number < 6; number++) {
                struct row row = {{number % 3, (number + number / 3) % 3, number / 3}};

                add_row(&row);
        }
}

/*
 * The best of some random rows, until no pair is left. The result is small enough, and does not
 * change.
 */
static void add_pairs(void)
{
        for (;;) {
                struct row best = {{0}};
                unsigned int best_pairs = 0;
                unsigned int left = 0;

                for (unsigned int try = 0; try < TRIES; try++) {
                        struct row row;
                        unsigned int pairs;

                        for (unsigned int factor = 0; factor < FACTORS; factor++)
                                row.value[factor] = random_next() % values_of(factor);
                        pairs = new_pairs(&row);
                        if (pairs > best_pairs) {
                                best_pairs = pairs;
                                best = row;
                        }
                }
                if (best_pairs) {
                        add_row(&best);
                        continue;
                }
                for (unsigned int a = 0; a < FACTORS; a++)
                        for (unsigned int b = a + 1; b < FACTORS; b++)
                                for (unsigned int i = 0; i < values_of(a); i++)
                                        for (unsigned int j = 0; j < values_of(b); j++)
                                                left += !covered[a][i][b][j];
                if (!left)
                        return;
        }
}

static void row_texts(const struct row *row, char *options, char **arguments)
{
        unsigned int count = 0;

        options[0] = '\0';
        for (unsigned int factor = 0; factor < FACTORS; factor++) {
                const char *value = factors[factor].values[row->value[factor]];
                char text[64];

                snprintf(text, sizeof(text), "%s=%s", factors[factor].name, value);
                if (factors[factor].argument) {
                        arguments[count++] = strdup(text);
                } else if (*value) {
                        if (*options)
                                strcat(options, ",");
                        strcat(options, text);
                }
        }
        arguments[count] = NULL;
}

static int run_row(const char *program, const struct row *row, uint64_t ops, uint64_t seed,
                   char *label)
{
        char options[512];
        char ops_text[64], seed_text[64];
        char *arguments[FACTORS + 4] = {(char *)program};
        unsigned int count = 1;
        int status;
        pid_t child;

        row_texts(row, options, &arguments[1]);
        /* The emulator ends forked children that start a thread, so ours must not. */
        if (emulated())
                strcat(options, ",reclaim_thread=off");
        sprintf(label, "[%s]", options);
        for (; arguments[count]; count++)
                sprintf(label + strlen(label), " %s", arguments[count]);
        snprintf(ops_text, sizeof(ops_text), "ops=%lu", (unsigned long)ops);
        snprintf(seed_text, sizeof(seed_text), "seed=%lu", (unsigned long)seed);
        arguments[count++] = ops_text;
        arguments[count++] = seed_text;
        arguments[count] = NULL;
        fflush(stdout);
        child = fork();
        if (child == 0) {
                setenv("KMEM_OPTIONS", options, 1);
                dup2(STDERR_FILENO, STDOUT_FILENO);
                exec_program(program, arguments);
                _exit(126);
        }
        if (child < 0 || waitpid(child, &status, 0) != child)
                return -1;
        return status;
}

static uint64_t argument_number(int argc, char **argv, const char *name, uint64_t otherwise)
{
        size_t length = strlen(name);

        for (int i = 2; i < argc; i++)
                if (strncmp(argv[i], name, length) == 0 && argv[i][length] == '=')
                        return strtoull(argv[i] + length + 1, NULL, 10);
        return otherwise;
}

int main(int argc, char **argv)
{
        uint64_t ops = argument_number(argc, argv, "ops", 10000000);
        uint64_t seed = argument_number(argc, argv, "seed", 1);
        uint64_t only = argument_number(argc, argv, "row", 0);
        bool list = argc > 2 && strcmp(argv[argc - 1], "list") == 0;
        unsigned int failures = 0;

        if (argc < 2) {
                fprintf(stderr, "usage: matrix STRESS [ops=N] [seed=N] [row=N] [list]\n");
                return 2;
        }
        add_defaults();
        add_pairs();
        printf("1..%u\n", only ? 1 : row_count);
        for (unsigned int row = 0; row < row_count; row++) {
                char label[1024] = "";
                int status;

                if (only && only != row + 1)
                        continue;
                status =
                        list ? 0
                             : run_row(argv[1], &rows[row], ops / row_count + 1, seed + row, label);
                if (WIFEXITED(status) && WEXITSTATUS(status) == EXIT_SKIP)
                        printf("not ok %u # SKIP %s: no restartable sequences here\n", row + 1,
                               label);
                else
                        printf("%s %u - %s\n", status ? "not ok" : "ok", row + 1, label);
                if (status && !(WIFEXITED(status) && WEXITSTATUS(status) == EXIT_SKIP)) {
                        printf("# wait status 0x%x; again with: matrix %s ops=%lu seed=%lu "
                               "row=%u\n",
                               (unsigned int)status, argv[1], (unsigned long)ops,
                               (unsigned long)seed, row + 1);
                        failures++;
                }
        }
        return failures != 0;
}
