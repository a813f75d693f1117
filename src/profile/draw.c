/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Poisson sampling by bytes: random gaps between samples, and the probability of a sample. */
#include "profile/draw.h"

/* In angle brackets, so that the simulator's header is found if its folder comes first. */
#include <lang/atomic.h>

#include <string.h>

static uint64_t drawn; /* how many numbers were drawn so far */

/*
 * The next 64 random bits. Each caller gets a number of its own, which two multiplications mix
 * (constants of Steele, Lea and Flood, 2014).
 */
static uint64_t random_bits(void)
{
        uint64_t bits = (add_relaxed(&drawn, 1) + 1) * 0x9e3779b97f4a7c15u;

        bits = (bits ^ bits >> 30) * 0xbf58476d1ce4e5b9u;
        bits = (bits ^ bits >> 27) * 0x94d049bb133111ebu;
        return bits ^ bits >> 31;
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
        /* From 2^-53 up to 1, neither 0. */
        double uniform = (double)((random_bits() >> 11) + 1) / (double)((uint64_t)1 << 53);
        double gap = -natural_log(uniform) * (double)interval / (double)max_of(bytes, (uint64_t)1);

        return gap < (double)UINT32_MAX ? (uint32_t)gap : UINT32_MAX;
}

double sample_probability(uint64_t bytes, uint64_t interval)
{
        return -minus_exp_less_1((double)max_of(bytes, (uint64_t)1) / (double)interval);
}
