/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Ids of objects and places have 32 bits: a recording that needs more leaves no trace. The counts are
 * set, since nobody waits for so many events.
 */
#include "child.h"

#include "tools/trace/lives.c"

#include <stdio.h>

static struct lives *open_lives(void)
{
        struct trace_error error;
        struct lives *lives = lives_open("/dev/null", 1, 4096, "", NULL, NULL, &error);

        assert_non_null(lives);
        return lives;
}

static bool close_lives(struct lives *lives)
{
        struct lives_counts counts;
        struct trace_error error = {.text = ""};
        bool whole = lives_close(lives, &counts, &error);

        assert_true(whole || strstr(error.text, "more objects or caches than ids"));
        return whole;
}

/* The last id is left unused: the bound of ids has 32 bits as well. */
static bool fits(uint64_t objects, uint8_t operation)
{
        struct lives *lives = open_lives();
        const struct lives_event event = {.address = 64, .requested = 8, .operation = operation};

        lives->objects = objects;
        lives_add(lives, &event);
        return close_lives(lives);
}

static void test_objects(void **state)
{
        assert_true(fits(UINT32_MAX - 1, TRACE_ALLOC));
        assert_false(fits(UINT32_MAX, TRACE_ALLOC));
}

static void test_orphans(void **state)
{
        assert_true(fits(UINT32_MAX - 1, TRACE_FREE));
        assert_false(fits(UINT32_MAX, TRACE_FREE));
}

static void name_site(void *context, uint64_t site, char *text, size_t bytes)
{
        snprintf(text, bytes, "place");
}

static void test_sites(void **state)
{
        for (uint32_t first = UINT32_MAX - 1; first; first++) {
                struct lives *lives = open_lives();
                const struct lives_event event = {
                        .address = 64, .site = 4096, .operation = TRACE_ALLOC};

                lives->name_site = name_site;
                lives->site_count = first;
                lives_add(lives, &event);
                assert_int_equal(close_lives(lives), first < UINT32_MAX);
        }
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_objects),
                cmocka_unit_test(test_orphans),
                cmocka_unit_test(test_sites),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
