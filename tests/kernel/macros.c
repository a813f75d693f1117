/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Properties of include/linux/ that kernel code relies on: results, constness, evaluation, and ends
 * of ranges.
 */
#include <linux/kernel.h>
#include <linux/list.h>
#include <linux/mutex.h>
#include <linux/overflow.h>
#include <linux/refcount.h>
#include <linux/slab.h>
#include <linux/string.h>

static unsigned int failures;
static unsigned int evaluated;

static unsigned int once(unsigned int value)
{
        evaluated++;
        return value;
}

#define CHECK(condition)                                                                           \
        do {                                                                                       \
                if (!(condition)) {                                                                \
                        pr_err("%s:%d: %s\n", __FILE__, __LINE__, #condition);                     \
                        failures++;                                                                \
                }                                                                                  \
        } while (0)
/* And that each argument is evaluated once. */
#define CHECK_ONCE(expression, count, expected)                                                    \
        do {                                                                                       \
                evaluated = 0;                                                                     \
                CHECK((expression) == (expected));                                                 \
                CHECK(evaluated == (count));                                                       \
        } while (0)

/* Powers of constants size arrays outside of functions. */
static char up[roundup_pow_of_two(100)] __maybe_unused;
static char up_of_one[roundup_pow_of_two(1)] __maybe_unused;
static char up_of_power[roundup_pow_of_two(64)] __maybe_unused;
static char down[rounddown_pow_of_two(100)] __maybe_unused;
static char order[order_base_2(5)] __maybe_unused;
static char logarithm[ilog2(1ull << 40)] __maybe_unused;

static void check_powers(void)
{
        CHECK(sizeof(up) == 128 && sizeof(up_of_one) == 1 && sizeof(up_of_power) == 64);
        CHECK(sizeof(down) == 64 && sizeof(order) == 3 && sizeof(logarithm) == 40);
        CHECK(order_base_2(0) == 0 && order_base_2(1) == 0 && order_base_2(2) == 1);
        CHECK_ONCE(roundup_pow_of_two(once(100)), 1, 128);
        CHECK_ONCE(roundup_pow_of_two(once(1)), 1, 1);
        CHECK_ONCE(rounddown_pow_of_two(once(100)), 1, 64);
        CHECK_ONCE(order_base_2(once(5)), 1, 3);
}

static void check_division(void)
{
        u64 divided = 107;

        CHECK(DIV_ROUND_CLOSEST(7, 2) == 4);
        CHECK(DIV_ROUND_CLOSEST(-7, 2) == -4);
        CHECK(DIV_ROUND_CLOSEST(7, -2) == -4);
        CHECK(DIV_ROUND_CLOSEST(-7, -2) == 4);
        CHECK(DIV_ROUND_CLOSEST(-5, 3) == -2);
        CHECK(DIV_ROUND_CLOSEST(4000000000u, 3u) == 1333333333u);
        CHECK_ONCE(DIV_ROUND_CLOSEST(once(7), once(2)), 2, 4);
        CHECK_ONCE(roundup(once(9), once(8)), 2, 16);
        CHECK_ONCE(rounddown(once(9), once(8)), 2, 8);
        CHECK_ONCE(do_div(divided, once(10)), 1, 7);
        CHECK(divided == 10);
        CHECK(roundup(16, 8) == 16 && roundup(10, 3) == 12 && rounddown(10, 3) == 9);
}

static void check_limits(void)
{
        CHECK(S8_MIN == SCHAR_MIN && S16_MIN == SHRT_MIN && S32_MIN == INT_MIN);
        CHECK(S64_MIN == LLONG_MIN && S64_MAX == LLONG_MAX);
}

/* Sizes that were too large stay so. */
static void check_sizes(void)
{
        CHECK(size_sub(5, 2) == 3 && size_sub(2, 5) == SIZE_MAX && size_sub(5, 5) == 0);
        CHECK(size_sub(size_mul(SIZE_MAX / 2, 3), 8) == SIZE_MAX);
        CHECK(size_sub(8, size_add(SIZE_MAX, 1)) == SIZE_MAX);
}

/*
 * A literal that is shorter than its target, without a warning. The file's only call, so that gcc
 * inlines it at -O1 and sees both sizes.
 */
static void check_strings(void)
{
        char text[16];

        CHECK(strscpy(text, "short", sizeof(text)) == 5 && strcmp(text, "short") == 0);
}

static void check_formats(void)
{
        char *empty = kasprintf(GFP_KERNEL, "%s", "");
        char *name = kasprintf(GFP_KERNEL, "%s-%d:%c", "kmalloc", 96, 'x');
        char *wide = kasprintf(GFP_ATOMIC, "%5000d", 7);

        CHECK(empty && empty[0] == '\0');
        CHECK(name && strcmp(name, "kmalloc-96:x") == 0);
        CHECK(wide && strlen(wide) == 5000 && wide[4998] == ' ' && wide[4999] == '7');
        kfree(empty);
        kfree(name);
        kfree(wide);
}

/* A file system's cache of before Linux 6.9. */
static void check_cache_flags(void)
{
        struct kmem_cache *cache = KMEM_CACHE(hlist_head, SLAB_RECLAIM_ACCOUNT | SLAB_MEM_SPREAD |
                                                                  SLAB_ACCOUNT | SLAB_SKIP_KFENCE);

        CHECK(cache);
        kmem_cache_destroy(cache);
}

/* As a statement behind a label and after an if. */
static int check_build_bug(int value)
{
        switch (value) {
        case 1:
                BUILD_BUG_ON(sizeof(int) != 4);
                return 1;
        default:
                if (value)
                        BUILD_BUG_ON_MSG(sizeof(long) < 4, "no longs");
                else
                        BUILD_BUG_ON(sizeof(char) != 1);
                return 0;
        }
}

/* Also for the head of an empty list, which code that takes over all waiting work uses. */
static void check_lists(void)
{
        struct list_head entries[2];
        LIST_HEAD(old);
        LIST_HEAD(taken);

        list_replace_init(&old, &taken);
        CHECK(list_empty(&old) && list_empty(&taken) && taken.prev == &taken);
        list_add_tail(&entries[0], &old);
        list_add_tail(&entries[1], &old);
        list_replace_init(&old, &taken);
        CHECK(list_empty(&old) && list_count_nodes(&taken) == 2);
        CHECK(taken.next == &entries[0] && taken.prev == &entries[1]);
        CHECK(entries[0].prev == &taken && entries[1].next == &taken);
}

/* An atomic_long_t counts in long, also where a pointer or a format asks for the type. */
static void check_atomics(void)
{
        atomic_long_t count = ATOMIC_LONG_INIT(4);
        long old = 3;
        char text[30];

        CHECK(!atomic_long_try_cmpxchg(&count, &old, 9) && old == 4);
        CHECK(atomic_long_try_cmpxchg(&count, &old, -9) && old == 4);
        scnprintf(text, sizeof(text), "%ld", atomic_long_read(&count));
        CHECK(strcmp(text, "-9") == 0);
}

/* Each way down ends at 0; the warnings are on standard error. */
static void check_refcounts(void)
{
        refcount_t count = REFCOUNT_INIT(2);

        CHECK(refcount_dec_not_one(&count) && refcount_read(&count) == 1);
        CHECK(!refcount_dec_not_one(&count) && refcount_read(&count) == 1);
        refcount_set(&count, 0);
        CHECK(refcount_dec_not_one(&count) && refcount_read(&count) == 0);
        CHECK(!refcount_dec_if_one(&count) && refcount_read(&count) == 0);
        CHECK(!refcount_dec_and_test(&count) && refcount_read(&count) == 0);
        CHECK(!refcount_inc_not_zero(&count) && refcount_read(&count) == 0);
        /*
         * More references than can be counted: dropping a reference does not free the object any
         * more.
         */
        refcount_set(&count, INT_MAX);
        refcount_inc(&count);
        CHECK(refcount_read(&count) == (unsigned int)REFCOUNT_SATURATED);
        CHECK(refcount_inc_not_zero(&count) && !refcount_dec_and_test(&count));
        CHECK(refcount_dec_not_one(&count) && !refcount_dec_if_one(&count));
        CHECK(refcount_read(&count) == (unsigned int)REFCOUNT_SATURATED);
}

static unsigned int put;

DEFINE_FREE(put, unsigned int *, if (_T) put += *_T)
DEFINE_CLASS(counted, unsigned int, put += _T, first + second, unsigned int first,
             unsigned int second)

static char *name_or_null(bool is_kept)
{
        char *name __free(kfree) = kstrdup("name", GFP_KERNEL);
        void *refused __free(kfree) = ERR_PTR(-ENOMEM);
        void *large __free(kvfree) = kvmalloc(1 << 20, GFP_KERNEL);
        void *secret __free(kfree_sensitive) = NULL;

        CHECK(name && IS_ERR(refused) && large && !secret);
        if (!is_kept)
                return NULL;
        return_ptr(name);
}

/* Scopes end by return, by break and behind their last statement. */
static void check_cleanup(void)
{
        unsigned int one = 1, ten = 10;
        char *name;

        name = name_or_null(true);
        CHECK(name && strcmp(name, "name") == 0 && !name_or_null(false));
        kfree(name);
        while (true) {
                unsigned int *first __free(put) = &one;
                unsigned int *second __free(put) = &ten;

                CHECK(no_free_ptr(second) == &ten && !second);
                CHECK(put == 0 && first);
                break;
        }
        CHECK(put == 1);
        {
                CLASS(counted, number)(20, 3);

                CHECK(number == 23 && put == 1);
                number = 100;
        }
        CHECK(put == 101);
}

static bool trylock(struct mutex *mutex)
{
        bool is_free = mutex_trylock(mutex);

        if (is_free)
                mutex_unlock(mutex);
        return is_free;
}

static int locked_twice(struct mutex *mutex, spinlock_t *lock)
{
        guard(mutex)(mutex);
        guard(spinlock_irqsave)(lock);
        CHECK(!trylock(mutex) && spin_is_locked(lock));
        return 7;
}

static void check_guards(void)
{
        unsigned int rounds = 0;
        DEFINE_MUTEX(mutex);
        DEFINE_SPINLOCK(lock);

        CHECK(locked_twice(&mutex, &lock) == 7);
        CHECK(trylock(&mutex) && !spin_is_locked(&lock));
        scoped_guard(spinlock, &lock)
        {
                rounds++;
                CHECK(spin_is_locked(&lock));
        }
        CHECK(rounds == 1 && !spin_is_locked(&lock));
        scoped_guard(rcu)
        {
                guard(raw_spinlock)(&lock);
                CHECK(rcu_read_lock_held() && spin_is_locked(&lock));
        }
        CHECK(!rcu_read_lock_held() && !spin_is_locked(&lock));
}

int main(void)
{
        check_powers();
        check_division();
        check_limits();
        check_sizes();
        check_strings();
        check_formats();
        check_cache_flags();
        CHECK(check_build_bug(1) == 1 && check_build_bug(0) == 0);
        check_lists();
        check_atomics();
        check_refcounts();
        check_cleanup();
        check_guards();
        return failures != 0;
}
