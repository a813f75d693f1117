/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Computes orders of slabs with the code that the library uses for its caches; used by
 * `kmem lab order`.
 *
 * Reads cases from standard input, a line each: RULE SIZE CPUS PAGE_SIZE SLUB_MIN_ORDER
 * SLUB_MAX_ORDER SLUB_MIN_OBJECTS and prints a line "OBJECTS PAGES ORDER" for each. A bad line ends
 * it with status 2 and a message with the value and the expected range.
 */
#include "engines/slub/order.h"

#include "lang/bits.h"
#include "lang/number.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { RULE, SIZE, CPUS, PAGE_BYTES, MIN_ORDER, MAX_ORDER, MIN_OBJECTS, FIELDS };

static const struct {
        const char *name;
        unsigned long least;
        unsigned long most;
} numbers[FIELDS] = {
        [SIZE] = {"size", 8, UINT32_MAX},
        [CPUS] = {"cpus", 1, 8192}, /* the largest NR_CPUS of any kernel configuration */
        [PAGE_BYTES] = {"page-size", 4096, 65536},
        [MIN_ORDER] = {"slub-min-order", 0, ORDER_NONE - 1},
        [MAX_ORDER] = {"slub-max-order", 0, ORDER_NONE - 1},
        [MIN_OBJECTS] = {"slub-min-objects", 0, 32767},
};

static bool number(unsigned int field, const char *text, uint64_t *value)
{
        if (number_whole(text, value) && *value >= numbers[field].least &&
            *value <= numbers[field].most)
                return true;
        fprintf(stderr, "%s %s: expected a number from %lu to %lu\n", numbers[field].name, text,
                numbers[field].least, numbers[field].most);
        return false;
}

static bool rule(const char *text, enum order_rule *value)
{
        *value = strcmp(text, "5.10") == 0 ? ORDER_RULE_5_10 : ORDER_RULE_6_12;
        if (*value == ORDER_RULE_5_10 || strcmp(text, "6.12") == 0)
                return true;
        fprintf(stderr, "rule %s: expected 6.12 or 5.10\n", text);
        return false;
}

/* Parses @line, and changes it. False after a message. */
static bool parse(char *line, uint32_t *size, struct order_rules *rules)
{
        uint64_t values[FIELDS];
        unsigned int field = 0;

        for (char *text = strtok(line, " \n"); text; text = strtok(NULL, " \n"), field++) {
                if (field >= FIELDS)
                        continue;
                if (field == RULE ? !rule(text, &rules->rule)
                                  : !number(field, text, &values[field]))
                        return false;
        }
        if (field != FIELDS) {
                fprintf(stderr, "a line of %u words: expected %d\n", field, FIELDS);
                return false;
        }
        if (!is_power_of_two(values[PAGE_BYTES])) {
                fprintf(stderr, "page-size %lu: expected a power of two\n", values[PAGE_BYTES]);
                return false;
        }
        *size = (uint32_t)values[SIZE];
        rules->cpus = (unsigned int)values[CPUS];
        rules->page_shift = fls(values[PAGE_BYTES]) - 1;
        rules->min_order = (unsigned int)values[MIN_ORDER];
        /* The maximum is at least the minimum (S3-02). */
        rules->max_order = max_of((unsigned int)values[MAX_ORDER], rules->min_order);
        rules->min_objects = (uint32_t)values[MIN_OBJECTS];
        return true;
}

enum { WRONG_INPUT = 2 };

int main(void)
{
        char line[256];

        while (fgets(line, sizeof(line), stdin)) {
                struct order_rules rules;
                unsigned int order;
                uint32_t size;

                if (!parse(line, &size, &rules))
                        return WRONG_INPUT;
                order = slub_order(size, &rules);
                if (order == ORDER_NONE) {
                        fprintf(stderr, "size %u: expected at most %lu, the largest slab\n", size,
                                1ul << (rules.page_shift + ORDER_NONE - 1));
                        return WRONG_INPUT;
                }
                printf("%lu %u %u\n", (1ul << (rules.page_shift + order)) / size, 1u << order,
                       order);
        }
        return fflush(stdout) == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
