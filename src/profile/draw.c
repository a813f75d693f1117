/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Poisson sampling by bytes: random gaps between samples, and the probability of a sample. */
#include "profile/draw.h"

/* In angle brackets, so that the simulator's header is found if its folder comes first. */
#include <lang/atomic.h>

#include <string.h>

enum { THREAD_SHIFT = 40 }; /* coins of a thread before it throws those of the next */

static uint64_t drawn;    /* how many numbers were drawn so far */
static uint64_t throwing; /* threads that have thrown a coin */
/* Where the thread is in its own coins; 0: not begun. */
static __thread uint64_t thrown __attribute__((tls_model("initial-exec")));

/*
 * A random number above 0, at most 1, in steps of 2^-53: two multiplications mix @number, which no other call
 * has (constants of Steele, Lea and Flood, 2014).
 */
static double uniform(uint64_t number)
{
        uint64_t bits = number * 0x9e3779b97f4a7c15u;

        bits = (bits ^ bits >> 30) * 0xbf58476d1ce4e5b9u;
        bits = (bits ^ bits >> 27) * 0x94d049bb133111ebu;
        bits ^= bits >> 31;
        return (double)((bits >> 11) + 1) / (double)((uint64_t)1 << 53);
}

/* Natural logarithm of a normal number above 0: of its exponent, and of the rest by a series. */
static double natural_log(double value)
{
        const double ln_2 = 0.693147180559945309;
        uint64_t bits;
        int64_t exponent;
        double part, square, sum = 0;

        memcpy(&bits, &value, sizeof(bits));
        exponent = (int64_t)(bits >> 52) - 1023;
        bits = (bits & 0xfffffffffffffu) | (uint64_t)1023 << 52;
        memcpy(&value, &bits, sizeof(value));
        /* From 1 up to 2: ln m = 2 atanh((m - 1) / (m + 1)), with an argument of at most 1/3. */
        part = (value - 1) / (value + 1);
        square = part * part;
        for (int power = 21; power > 0; power -= 2)
                sum = sum * square + 1.0 / power;
        return (double)exponent * ln_2 + 2 * part * sum;
}

/* exp(-x) - 1 for x of 0 or more. */
static double minus_exp_less_1(double x)
{
        unsigned int halvings = 0;
        double result = 0;

        if (x > 64)
                return -1;
        for (; x > 0.5; halvings++)
                x /= 2;
        for (int term = 14; term > 0; term--)
                result = -x / term * (1 + result);
        while (halvings--)
                result *= result + 2;
        return result;
}

uint32_t draw_gap(uint64_t bytes, uint64_t interval)
{
        double value = uniform(add_relaxed(&drawn, 1) + 1);
        double gap = -natural_log(value) * (double)interval / (double)max_of(bytes, (uint64_t)1);

        return gap < (double)UINT32_MAX ? (uint32_t)gap : UINT32_MAX;
}

double sample_probability(uint64_t bytes, uint64_t interval)
{
        return -minus_exp_less_1((double)max_of(bytes, (uint64_t)1) / (double)interval);
}

bool draw_falls(uint64_t bytes, uint64_t interval)
{
        double share = (double)max_of(bytes, (uint64_t)1) / (double)interval;
        double value;

        /* The threads' coins lie apart, so that none waits for a line that another CPU writes. */
        if (unlikely(!thrown))
                thrown = (add_relaxed(&throwing, 1) + 1) << THREAD_SHIFT;
        value = uniform(thrown++);
        /* exp(-share) is at least 1 - share, which is enough to know for most coins. */
        return value > 1 - share && value > 1 + minus_exp_less_1(share);
}
