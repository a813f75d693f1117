/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * The back end that serves new caches. The calls behave alike on all back ends, except where a back
 * end cannot by its nature. Cases ask here, so that a single program tests each back end.
 */
#ifndef TESTS_UNIT_ENGINES_H
#define TESTS_UNIT_ENGINES_H

#include "child.h"
#include "skip.h"

#include "base/options.h"
#include "process/start.h"

static inline const struct engine *chosen_engine(void)
{
        uint64_t number = 0;

        check(heap_ready());
        options_for_cache("", OPTION_ENGINE, &number);
        return engine_by_number(number);
}

/*
 * Its blocks have exact sizes and share their pages: it has no slabs to count or shrink, nothing
 * rests in front of it, and only kmem_cache_free takes objects of its caches (S5-32).
 */
static inline bool is_slob(void)
{
        return chosen_engine() == &slob_engine;
}

#define skip_on_slob(reason)                                                                       \
        do {                                                                                       \
                if (is_slob())                                                                     \
                        skip_because("engine slob " reason);                                       \
        } while (0)

/* For cases of a single back end; the other back ends have tests of theirs. */
#define skip_unless_engine(engine_record)                                                          \
        do {                                                                                       \
                if (chosen_engine() != &(engine_record))                                           \
                        skip_because("this is about " #engine_record);                             \
        } while (0)

#endif
