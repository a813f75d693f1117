/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Order selection by both rules against worked examples (S3.5, S3.6), and the invariants of every
 * order.
 */
#include "child.h"
#include "order_rows.h"

#include "lang/bits.h"
#include "engines/slub/order.h"

enum { SHIFT_4K = 12, SHIFT_64K = 16, CPUS_MAX = 4095 };

static const enum order_rule both[] = {ORDER_RULE_6_12, ORDER_RULE_5_10};

static struct order_rules with(enum order_rule rule, unsigned int page_shift, unsigned int cpus)
{
        return (struct order_rules){
                .rule = rule, .page_shift = page_shift, .cpus = cpus, .max_order = 3};
}

static size_t objects_of(uint32_t size, unsigned int order, const struct order_rules *rules)
{
        return ((size_t)1 << (rules->page_shift + order)) / size;
}

/* S3.5 */
static void table_of_kmalloc_sizes(void **state)
{
        for (size_t which = 0; which < array_size(both); which++)
                for (size_t row = 0; row < array_size(order_rows); row++)
                        for (size_t i = 0; i < ORDER_COLUMNS; i++) {
                                struct order_rules rules =
                                        with(both[which], SHIFT_4K, order_columns[i].cpus);
                                unsigned int order = slub_order(order_rows[row].size, &rules);

                                check_equal(order, order_rows[row].of[i].order);
                                check_equal(objects_of(order_rows[row].size, order, &rules),
                                            order_rows[row].of[i].objects);
                        }
}

/*
 * S3.6, A: the CPU counts that give each column of the mail's table, 64 KiB pages. Powers of two
 * were tried, and a range ends at CPUS_MAX where no end was found.
 */
static void table_of_the_mail(void **state)
{
        static const struct {
                uint32_t size;
                struct {
                        unsigned int objects, pages, from, to;
                } of[2];
        } rows[] = {
                {2432, {{53, 2, 32, CPUS_MAX}, {26, 1, 1, 31}}}, /* TCPv6 */
                {4864, {{53, 4, 32, CPUS_MAX}, {26, 2, 4, 31}}}, /* net_namespace */
                {4096, {{32, 2, 8, 127}, {16, 1, 1, 7}}},        /* dtl and two others */
                {9728, {{53, 8, 32, CPUS_MAX}, {13, 2, 1, 3}}},  /* task_struct */
                {9856, {{53, 8, 32, CPUS_MAX}, {13, 2, 1, 3}}},  /* fits it too */
                {16384, {{32, 8, 8, CPUS_MAX}, {8, 2, 1, 1}}},   /* thread_stack */
                {32768, {{16, 8, 2, CPUS_MAX}, {8, 4, 1, 1}}},   /* pgtable-2^11 */
                {8192, {{32, 4, 8, 127}, {8, 1, 1, 1}}},         /* kmalloc-8k */
        };

        for (size_t which = 0; which < array_size(both); which++)
                for (size_t row = 0; row < array_size(rows); row++)
                        for (unsigned int cpus = 1; cpus <= CPUS_MAX; cpus++) {
                                struct order_rules rules = with(both[which], SHIFT_64K, cpus);
                                unsigned int order = slub_order(rows[row].size, &rules);
                                size_t objects = objects_of(rows[row].size, order, &rules);

                                for (unsigned int i = 0; i < 2; i++) {
                                        bool expected = cpus >= rows[row].of[i].from &&
                                                        cpus <= rows[row].of[i].to;

                                        check_equal(objects == rows[row].of[i].objects &&
                                                            1u << order == rows[row].of[i].pages,
                                                    expected);
                                }
                        }
}

/* S3.6, C: the patch's intention, 16 CPUs for every cache. */
static void sixteen_cpus(void **state)
{
        static const unsigned int rows[][3] = {{2432, 26, 1}, {4864, 26, 2},  {4096, 32, 2},
                                               {9728, 26, 4}, {16384, 32, 8}, {32768, 16, 8},
                                               {8192, 32, 4}};

        for (size_t row = 0; row < array_size(rows); row++) {
                struct order_rules rules = with(ORDER_RULE_5_10, SHIFT_64K, 16);
                unsigned int order = slub_order(rows[row][0], &rules);

                check_equal(objects_of(rows[row][0], order, &rules), rows[row][1]);
                check_equal(1u << order, rows[row][2]);
        }
}

/* S3-13: the CPU count acts as the wish for objects of the table. */
static void wishes(void **state)
{
        static const unsigned int table[][2] = {
                {1, 8},     {2, 12},    {3, 12},    {4, 16},   {7, 16},    {8, 20},    {15, 20},
                {16, 24},   {31, 24},   {32, 28},   {63, 28},  {64, 32},   {127, 32},  {128, 36},
                {255, 36},  {256, 40},  {511, 40},  {512, 44}, {1023, 44}, {1024, 48}, {2047, 48},
                {2048, 52}, {4095, 52}, {4096, 56}, {8191, 56}};

        for (size_t which = 0; which < array_size(both); which++)
                for (size_t row = 0; row < array_size(table); row++)
                        for (uint32_t size = 8; size <= 32768; size += 8) {
                                struct order_rules by_cpus =
                                        with(both[which], SHIFT_4K, table[row][0]);
                                struct order_rules by_objects = with(both[which], SHIFT_4K, 1);

                                by_objects.min_objects = table[row][1];
                                check_equal(slub_order(size, &by_cpus),
                                            slub_order(size, &by_objects));
                        }
}

/* S3-23: the only sizes up to four pages for which the rules differ, and how. */
static void differences(void **state)
{
        for (unsigned int shift = SHIFT_4K; shift <= SHIFT_64K; shift += 4)
                for (unsigned int cpus = 1; cpus <= 1024; cpus *= 2)
                        for (uint32_t size = 8; size <= 4u << shift; size += 8) {
                                struct order_rules old = with(ORDER_RULE_5_10, shift, cpus);
                                struct order_rules new = with(ORDER_RULE_6_12, shift, cpus);
                                bool differ = shift == SHIFT_4K ? size >= 10928 && size <= 12280
                                                                : size >= 174768 && size <= 196600;

                                if (differ) {
                                        check_equal(slub_order(size, &old), 2);
                                        check_equal(slub_order(size, &new), 3);
                                } else {
                                        check_equal(slub_order(size, &old), slub_order(size, &new));
                                }
                        }
}

/*
 * Properties of every order: an object fits; the objects are not more than a slab's state can
 * count; the order is within the bounds where an object fits within them; and no order in the
 * bounds is left out that holds the wish for objects and wastes at most a sixteenth.
 */
static void check_order(uint32_t size, const struct order_rules *rules)
{
        unsigned int order = slub_order(size, rules);
        size_t bytes = (size_t)1 << (rules->page_shift + order);
        size_t objects = bytes / size;

        check(order <= 10);
        check(objects >= 1 && objects * size <= bytes);
        if (objects_of(size, rules->min_order, rules) > 32767) {
                check(objects <= 32767 && 2 * objects >= 32767);
                return;
        }
        if (objects_of(size, rules->max_order, rules) < 1) {
                check_equal(objects_of(size, order - 1, rules), 0);
                return;
        }
        check(order <= rules->max_order);
        check(order >= rules->min_order || objects_of(size, rules->min_order, rules) > 16383);
        for (unsigned int less = rules->min_order; less < order; less++) {
                size_t of_less = (size_t)1 << (rules->page_shift + less);

                check(of_less / size < rules->min_objects || of_less % size > of_less / 16);
        }
}

static void properties(void **state)
{
        uint64_t random = 88172645463325252ull;

        for (unsigned int step = 0; step < 400000; step++) {
                struct order_rules rules = with(both[step & 1], 12 + 2 * (step >> 1) % 3, 1);
                unsigned int bits = 3 + (unsigned int)(random_step(&random) % 20);
                uint32_t size = (1u << bits) + (uint32_t)(random_step(&random) % (1u << bits));

                rules.max_order = (unsigned int)(random_step(&random) % 11);
                rules.min_order = (unsigned int)(random_step(&random) % (rules.max_order + 1));
                rules.min_objects = 1 + (uint32_t)(random_step(&random) % 60);
                if (size > (size_t)1 << (rules.page_shift + 10))
                        check_equal(slub_order(size, &rules), ORDER_NONE);
                else
                        check_order(size, &rules);
        }
}

/* S3-02, S3.2: the guard for 32767 objects, and the last resort. */
static void limits(void **state)
{
        for (size_t which = 0; which < array_size(both); which++) {
                struct order_rules rules = with(both[which], SHIFT_4K, 1);

                check_equal(slub_order(1 << 15, &rules), 3);
                check_equal(slub_order((1 << 15) + 8, &rules), 4);
                check_equal(slub_order(1 << 22, &rules), 10);
                check_equal(slub_order((1 << 22) + 8, &rules), ORDER_NONE);
                check_equal(slub_order(UINT32_MAX, &rules), ORDER_NONE);
                rules.min_order = rules.max_order = 10;
                check_equal(slub_order(8, &rules), 5);   /* 16384 objects */
                check_equal(slub_order(128, &rules), 9); /* 32768 at order 10 are too many */
                check_equal(slub_order(136, &rules), 10);
        }
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(table_of_kmalloc_sizes),
                cmocka_unit_test(table_of_the_mail),
                cmocka_unit_test(sixteen_cpus),
                cmocka_unit_test(wishes),
                cmocka_unit_test(differences),
                cmocka_unit_test(properties),
                cmocka_unit_test(limits),
        };

        return cmocka_run_group_tests_name("slub order", tests, NULL, NULL);
}
