/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* The reader of numbers (lang/number.h): valid numbers, their ends, and numbers that do not fit. */
#include "unit.h"

#include "lang/number.h"

#define LARGEST "18446744073709551615"
#define BEYOND "18446744073709551616"

/* How many characters are read, of which sort. */
static long scan(const char *text, unsigned int base, enum number_found expected, uint64_t number)
{
        const char *at = text;
        uint64_t read = 1;

        assert_int_equal(number_scan(&at, base, &read), expected);
        assert_true(read == number);
        return at - text;
}

/* NUM-1, NUM-2, NUM-3 */
static void test_scan(void **state)
{
        assert_int_equal(scan("", 10, NUMBER_NONE, 0), 0);
        assert_int_equal(scan("x", 10, NUMBER_NONE, 0), 0);
        assert_int_equal(scan(" 1", 10, NUMBER_NONE, 0), 0);
        assert_int_equal(scan("-1", 10, NUMBER_NONE, 0), 0);
        assert_int_equal(scan("+1", 10, NUMBER_NONE, 0), 0);
        assert_int_equal(scan("0", 10, NUMBER_READ, 0), 1);
        assert_int_equal(scan("00012,", 10, NUMBER_READ, 12), 5);
        assert_int_equal(scan("1 2", 10, NUMBER_READ, 1), 1);
        assert_int_equal(scan("12a", 10, NUMBER_READ, 12), 2);
        assert_int_equal(scan(LARGEST "-", 10, NUMBER_READ, UINT64_MAX), sizeof(LARGEST) - 1);
        assert_int_equal(scan(BEYOND "-", 10, NUMBER_TOO_LARGE, UINT64_MAX), sizeof(BEYOND) - 1);
        assert_int_equal(scan(BEYOND "00000", 10, NUMBER_TOO_LARGE, UINT64_MAX),
                         sizeof(BEYOND) - 1 + 5);
}

static void test_scan_bases(void **state)
{
        assert_int_equal(scan("1012", 2, NUMBER_READ, 5), 3);
        assert_int_equal(scan("778", 8, NUMBER_READ, 63), 2);
        assert_int_equal(scan("00ffg", 16, NUMBER_READ, 255), 4);
        assert_int_equal(scan("0x10", 16, NUMBER_READ, 0), 1);
        assert_int_equal(scan("aF", 16, NUMBER_READ, 10), 1);
        assert_int_equal(scan("ffffffffffffffff", 16, NUMBER_READ, UINT64_MAX), 16);
        assert_int_equal(scan("10000000000000000", 16, NUMBER_TOO_LARGE, UINT64_MAX), 17);
}

static void test_next(void **state)
{
        const char *text = "7-9223372036854775807," BEYOND " max";

        assert_true(number_next(&text) == 7);
        assert_true(number_next(&text) == -1);
        assert_int_equal(*text++, '-');
        assert_true(number_next(&text) == INT64_MAX);
        assert_int_equal(*text++, ',');
        assert_true(number_next(&text) == INT64_MAX);
        assert_string_equal(text, " max");
}

static void test_range(void **state)
{
        static const char *const refused[] = {"",    "x", "-3",  "3-",  "3-x",
                                              "7-3", "8", "3-8", BEYOND};
        const char *text = "3,0-7\n";
        int64_t first, last;

        assert_true(number_range(&text, 8, &first, &last));
        assert_true(first == 3 && last == 3);
        assert_int_equal(*text++, ',');
        assert_true(number_range(&text, 8, &first, &last));
        assert_true(first == 0 && last == 7);
        assert_string_equal(text, "\n");
        for (size_t i = 0; i < sizeof(refused) / sizeof(*refused); i++) {
                text = refused[i];
                assert_false(number_range(&text, 8, &first, &last));
        }
}

static void test_whole(void **state)
{
        static const char *const refused[] = {"",   " 1", "1 ",  "1\n", "+1",
                                              "-1", "1K", "0x1", BEYOND};
        uint64_t number;

        assert_true(number_whole("007", &number));
        assert_true(number == 7);
        assert_true(number_whole(LARGEST, &number));
        assert_true(number == UINT64_MAX);
        for (size_t i = 0; i < sizeof(refused) / sizeof(*refused); i++)
                assert_false(number_whole(refused[i], &number));
}

static void test_bytes(void **state)
{
        static const struct {
                const char *text;
                uint64_t bytes;
        } taken[] = {
                {"0", 0},
                {"4096", 4096},
                {"1k", 1024},
                {"3K", 3072},
                {"2m", 2 << 20},
                {"1G", 1 << 30},
                {"5t", (uint64_t)5 << 40},
                {"0T", 0},
                {"16777215T", (uint64_t)16777215 << 40},
                {LARGEST, UINT64_MAX},
        };
        static const char *const refused[] = {"",   "K",  "1B",        "1KB",
                                              "1 ", "1+", "16777216T", LARGEST "K"};
        uint64_t bytes;

        for (size_t i = 0; i < sizeof(taken) / sizeof(*taken); i++) {
                assert_true(number_bytes(taken[i].text, &bytes));
                assert_true(bytes == taken[i].bytes);
        }
        for (size_t i = 0; i < sizeof(refused) / sizeof(*refused); i++)
                assert_false(number_bytes(refused[i], &bytes));
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_scan),  cmocka_unit_test(test_scan_bases),
                cmocka_unit_test(test_next),  cmocka_unit_test(test_range),
                cmocka_unit_test(test_whole), cmocka_unit_test(test_bytes),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
