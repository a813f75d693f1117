/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* The metadata arena: classes, clearing, reuse, and refused memory. */
#include "unit.h"

#include <pthread.h>

#include "lang/atomic.h"
#include "lang/bits.h"
#include "machine/message.h"
#include "base/metadata.h"
#include "random.h"
#include "system_wrap.h"

static bool is_filled(const unsigned char *bytes, size_t count, unsigned char value)
{
        for (size_t i = 0; i < count; i++)
                if (bytes[i] != value)
                        return false;
        return true;
}

static void test_rounding(void **state)
{
        size_t last = 0;

        (void)state;
        assert_int_equal(metadata_round(0), 16);
        for (size_t bytes = 1; bytes < (size_t)1 << 20; bytes += 1 + bytes / 200) {
                size_t rounded = metadata_round(bytes);

                assert_true(rounded >= bytes);
                assert_true(rounded >= last);
                assert_int_equal(rounded % (rounded < 64 ? 16 : 64), 0);
                assert_int_equal(metadata_round(rounded), rounded);
                /*
                 * Four classes for each doubling waste at most a quarter; small classes waste at
                 * most a step.
                 */
                assert_true(rounded - bytes < max_of(bytes / 4 + 1, (size_t)64));
                last = rounded;
        }
        assert_int_equal(metadata_round((size_t)64 << 10), (size_t)64 << 10);
}

static void test_zero_and_aligned(void **state)
{
        (void)state;
        for (size_t bytes = 1; bytes < 200000; bytes += 1 + bytes / 7) {
                void *block = metadata_alloc(bytes);

                assert_non_null(block);
                assert_int_equal((uintptr_t)block % (bytes > 48 ? 64 : 16), 0);
                assert_true(is_filled(block, metadata_round(bytes), 0));
                memset(block, 0xff, metadata_round(bytes));
                metadata_free(block, bytes);
                assert_ptr_equal(metadata_alloc(bytes), block);
                assert_true(is_filled(block, metadata_round(bytes), 0));
        }
}

/* Recycled and fresh metadata, and all of it zero. */
static void test_many(void **state)
{
        enum { MANY = 50, SIZE = 72 };
        void *blocks[MANY];
        void *chain = NULL;
        size_t used = metadata_used_bytes();

        (void)state;
        assert_int_equal(metadata_alloc_many(blocks, MANY / 2, SIZE), MANY / 2);
        for (int i = 0; i < MANY / 2; i++) {
                memset(blocks[i], 0xff, SIZE);
                *(void **)blocks[i] = chain;
                chain = blocks[i];
        }
        metadata_free_chain(chain, SIZE);
        assert_int_equal(metadata_used_bytes(), used);
        assert_int_equal(metadata_alloc_many(blocks, MANY, SIZE), MANY);
        assert_int_equal(metadata_used_bytes(), used + MANY * metadata_round(SIZE));
        for (int i = 0; i < MANY; i++) {
                assert_true(is_filled(blocks[i], metadata_round(SIZE), 0));
                for (int j = 0; j < i; j++)
                        assert_ptr_not_equal(blocks[i], blocks[j]);
        }
        for (int i = 0; i < MANY; i++)
                metadata_free(blocks[i], SIZE);
        metadata_free_chain(NULL, SIZE);
        assert_int_equal(metadata_used_bytes(), used);
}

static void test_freed_blocks_serve_their_class(void **state)
{
        size_t mapped;

        (void)state;
        for (int round = 0; round < 2; round++) {
                void *blocks[100];

                for (int i = 0; i < 100; i++)
                        assert_non_null(blocks[i] = metadata_alloc(100000));
                mapped = metadata_mapped_bytes();
                for (int i = 0; i < 100; i++)
                        metadata_free(blocks[i], 100000);
                for (int i = 0; i < 100; i++)
                        assert_non_null(blocks[i] = metadata_alloc(99000));
                assert_int_equal(metadata_mapped_bytes(), mapped);
                for (int i = 0; i < 100; i++)
                        metadata_free(blocks[i], 99000);
        }
        metadata_free(NULL, 5);
}

static void test_limits(void **state)
{
        (void)state;
        assert_null(metadata_alloc(SIZE_MAX));
        assert_null(metadata_alloc(((size_t)1 << 40) + 1));
}

static void test_refused_memory(void **state)
{
        size_t used = metadata_used_bytes();
        size_t mapped = metadata_mapped_bytes();
        size_t got = 0;

        (void)state;
        system_wrap.calls_left[CALL_MAP] = 0;
        while (metadata_alloc(4096))
                got++;
        assert_null(metadata_alloc((size_t)1 << 20));
        assert_int_equal(metadata_used_bytes(), used + got * 4096);
        assert_int_equal(metadata_mapped_bytes(), mapped);
        system_wrap_allow_all();
        assert_non_null(metadata_alloc(4096));
        assert_true(metadata_mapped_bytes() > mapped);

        /* Clearing on reuse does not depend on the system either. */
        system_wrap.calls_left[CALL_PURGE] = 0;
        for (int i = 0; i < 2; i++) {
                void *block = metadata_alloc(300000);

                assert_true(is_filled(block, 300000, 0));
                memset(block, 1, 300000);
                metadata_free(block, 300000);
        }
        system_wrap_allow_all();
}

/* How many blocks there are, all of them in the reserve; they read as zero. */
static size_t take_from(const char *reserve, size_t reserve_bytes)
{
        unsigned char *block;
        size_t got = 0;

        for (; (block = metadata_alloc(32768)); got++) {
                assert_true((uintptr_t)block - (uintptr_t)reserve < reserve_bytes);
                assert_true(is_filled(block, 32768, 0));
                memset(block, 1, 32768);
        }
        return got;
}

static void test_reserve(void **state)
{
        enum { BYTES = (1 << 20) + (256 << 10) };
        char *reserve = system_reserve(BYTES);
        size_t mapped = metadata_mapped_bytes();

        (void)state;
        assert_non_null(reserve);
        system_wrap.calls_left[CALL_MAP] = 0;
        while (metadata_alloc(32768)) /* the rest of the last mapping */
                ;
        metadata_set_reserve(reserve, BYTES);
        system_wrap.calls_left[CALL_COMMIT] = 0;
        assert_int_equal(take_from(reserve, BYTES), 0);
        assert_int_equal(metadata_mapped_bytes(), mapped);

        /* Metadata is not lost when the system refuses memory. */
        system_wrap.calls_left[CALL_COMMIT] = SIZE_MAX;
        assert_int_equal(take_from(reserve, BYTES), BYTES / 32768);
        assert_int_equal(metadata_mapped_bytes(), mapped + BYTES);
        assert_null(metadata_alloc(BYTES));
        system_wrap_allow_all();
        assert_non_null(metadata_alloc(BYTES));
}

struct held {
        unsigned char *block;
        size_t bytes;
        unsigned char value;
};

/* Threads share the arena; every block is filled with its own value until it is freed. */
static void *random_thread(void *argument)
{
        struct random random = {(uintptr_t)argument};
        struct held held[200] = {{0}};

        for (int i = 0; i < 60000; i++) {
                struct held *one = &held[random_below(&random, 200)];

                if (one->block) {
                        check_or_die(is_filled(one->block, one->bytes, one->value));
                        metadata_free(one->block, one->bytes);
                        one->block = NULL;
                        continue;
                }
                one->bytes = 1 + random_below(&random, (size_t)1 << random_below(&random, 15));
                one->value = (unsigned char)random_next(&random);
                one->block = metadata_alloc(one->bytes);
                check_or_die(one->block && is_filled(one->block, metadata_round(one->bytes), 0));
                memset(one->block, one->value, one->bytes);
        }
        for (int i = 0; i < 200; i++)
                metadata_free(held[i].block, held[i].bytes);
        return NULL;
}

static void test_random_threads(void **state)
{
        pthread_t threads[4];
        size_t used = metadata_used_bytes();

        (void)state;
        for (uintptr_t i = 0; i < 4; i++)
                assert_int_equal(pthread_create(&threads[i], NULL, random_thread, (void *)(i + 1)),
                                 0);
        for (int i = 0; i < 4; i++)
                pthread_join(threads[i], NULL);
        assert_int_equal(metadata_used_bytes(), used);
        assert_true(metadata_mapped_bytes() >= used);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_rounding),
                cmocka_unit_test(test_zero_and_aligned),
                cmocka_unit_test(test_many),
                cmocka_unit_test(test_freed_blocks_serve_their_class),
                cmocka_unit_test(test_limits),
                cmocka_unit_test(test_refused_memory),
                cmocka_unit_test(test_reserve),
                cmocka_unit_test(test_random_threads),
        };

        system_init();
        return cmocka_run_group_tests_name("metadata", tests, NULL, NULL);
}
