/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Texts (lang/text.h): the printed text, and the handling of text without room. */
#include "unit.h"

#include "lang/text.h"

#include <stdio.h>

/* Of all conversions, with libc's to compare. */
static void test_print(void **state)
{
        char text[128], expected[128];
        size_t length;

        length = text_print(text, sizeof(text), "%s|%c|%d|%u|%x|%ld|%zu|%5s|%-5s|%05d|%016lx|%%",
                            "word", 'c', -7, 7u, 0xabcu, -123456789012l, sizeof(text), "r", "l",
                            -12, 0xfedcul);
        snprintf(expected, sizeof(expected), "%s|%c|%d|%u|%x|%ld|%zu|%5s|%-5s|%05d|%016lx|%%",
                 "word", 'c', -7, 7u, 0xabcu, -123456789012l, sizeof(text), "r", "l", -12,
                 0xfedcul);
        assert_string_equal(text, expected);
        assert_int_equal(length, strlen(expected));
        text_print(text, sizeof(text), "%p", NULL);
        assert_string_equal(text, "0x0");
}

static void test_print_cuts(void **state)
{
        char text[8] = "xxxxxxx";

        assert_int_equal(text_print(text, 4, "%s", "longer"), 6);
        assert_string_equal(text, "lon");
        assert_int_equal(text[4], 'x');
        assert_int_equal(text_print(text, 0, "%s", "longer"), 6);
        assert_string_equal(text, "lon");
}

/* TEXT-1, TEXT-2, TEXT-3 */
static void test_pieces(void **state)
{
        struct text text;
        char room[8];

        memset(room, 'x', sizeof(room));
        text_begin(&text, room, 6);
        assert_string_equal(room, "");
        text_add(&text, "%s", "ab");
        text_add(&text, "%d", 345);
        assert_string_equal(room, "ab345");
        assert_false(text.full);
        text_add(&text, "%s", "");
        assert_false(text.full);
        text_add(&text, "%c", 'c');
        assert_true(text.full);
        assert_string_equal(room, "ab345");
        assert_int_equal(room[6], 'x');
}

static void test_no_gaps(void **state)
{
        struct text text;
        char room[6];

        text_begin(&text, room, sizeof(room));
        text_add(&text, "%s", "ab");
        text_add(&text, "%s", "cdef");
        assert_string_equal(room, "ab");
        text_add(&text, "%s", "c");
        assert_string_equal(room, "ab");
        assert_int_equal(text.used, 2);
        assert_true(text.full);
}

static void test_no_room(void **state)
{
        struct text text;
        char room[1] = {'x'};

        text_begin(&text, room, sizeof(room));
        text_add(&text, "%s", "");
        assert_false(text.full);
        text_add(&text, "%s", "a");
        assert_true(text.full);
        assert_string_equal(room, "");
}

static void test_cut(void **state)
{
        struct text text;
        char room[8];

        text_begin(&text, room, sizeof(room));
        text_add(&text, "%s", "abcd");
        text_cut(&text, 1);
        assert_string_equal(room, "a");
        text_add(&text, "%s", "xyz");
        assert_string_equal(room, "axyz");
        text_add(&text, "%s", "too long");
        text_cut(&text, 1);
        assert_true(text.full);
        text_add(&text, "%s", "b");
        assert_string_equal(room, "a");
}

/* Text without room is added again after a move, by the owner of the piece. */
static void test_move(void **state)
{
        char small[4], large[16];
        struct text text;

        text_begin(&text, small, sizeof(small));
        text_add(&text, "%s", "abc");
        text_add(&text, "%s", "def");
        assert_true(text.full);
        text_move(&text, large, sizeof(large));
        assert_false(text.full);
        assert_string_equal(large, "abc");
        text_add(&text, "%s", "def");
        assert_string_equal(large, "abcdef");
        assert_string_equal(small, "abc");
}

static void test_number(void **state)
{
        char text[TEXT_NUMBER_BYTES];

        assert_true(text_number(text, 0, 0) == text + 1);
        assert_string_equal(text, "0");
        text_number(text, 64, 7);
        assert_string_equal(text, "0000064");
        assert_true(text_number(text, UINT64_MAX, 3) == text + 20);
        assert_string_equal(text, "18446744073709551615");
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_print),   cmocka_unit_test(test_print_cuts),
                cmocka_unit_test(test_pieces),  cmocka_unit_test(test_no_gaps),
                cmocka_unit_test(test_no_room), cmocka_unit_test(test_cut),
                cmocka_unit_test(test_move),    cmocka_unit_test(test_number),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
