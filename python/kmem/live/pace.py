# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The interval between the samples of a profile, by a short look at the program before it.

A sample costs the program the walk of its stack, up to 50 microseconds where stacks are deep and
caches cold, so two hundred a second may take 1% of its time; a hundred are enough. The interval may
not change with the samples of the profile itself: an object that is a sample counts each time that
it is handed out, so a limit would cut off just those that count much
(docs/decisions/0039-pace-of-samples.md). The look has an interval of its own, which no profile has,
so objects are drawn anew behind it, whatever it has seen.
"""

FIRST = 512 << 10  # bytes between samples of a program that allocates little
MOST_A_SECOND = 100  # samples to expect
TIMES_MOST = 1 << 12  # of the first interval, that an interval may be
LOOK_SECONDS = 0.3


def look_interval(first: int) -> int:
    """Between the first interval and its double, so that it is no interval of a profile."""
    return first + first // 2


def interval_after(first: int, samples: int, seconds: float) -> int:
    """The first interval times a power of two, by the samples of the look and its length."""
    rate = samples / seconds * look_interval(first) / first
    times = 1
    while rate > MOST_A_SECOND * times and times < TIMES_MOST:
        times *= 2
    return first * times
