/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Requests of the registry, which another process writes (process/requests.c): honoured while threads use and end
 * the caches that they are about, and while the other process puts another request in their place.
 */
#include "scenario.h"

#include "engines/caches.h"
#include "percpu/figures.h"
#include "percpu/percpu.h"
#include "process/requests.h"

#include <errno.h>
#include <string.h>

static void *held[2];
static uint64_t last; /* number of the last request */

/* As another process does, which holds the file's lock. */
static void ask(const char *attribute, const char *value)
{
        struct registry_request *request = &registry_head()->requests[0];

        store_relaxed(&request->state, (uint32_t)REQUEST_NONE);
        request->error = -1;
        request->birth = strcmp(attribute, "trim") == 0 ? 0 : cache->birth;
        strcpy(request->attribute, attribute);
        strcpy(request->value, value);
        store_relaxed(&request->number, ++last);
        store_release(&request->state, (uint32_t)REQUEST_PENDING);
        __atomic_add_fetch(&registry_head()->asked, 1u, __ATOMIC_RELEASE);
}

static void fill(void)
{
        make_cache(64);
        for (unsigned int i = 0; i < 2; i++)
                held[i] = take();
        give(take());
        requests_init();
        registry_due = true;
        figures_act();
        CHECK(registry_is_made());
}

static void fill_and_ask_trim(void)
{
        fill();
        ask("trim", "");
}

static void fill_and_ask_capacity(void)
{
        fill();
        ask("sheaf_capacity", "5");
}

static void fill_and_ask_min_partial(void)
{
        fill();
        ask("min_partial", "7");
}

/* What every slow path does. */
static void honour(void)
{
        figures_act();
}

static void ask_again(void)
{
        ask("min_partial", "9");
}

static void pop_and_push(void)
{
        give(take());
}

static void free_and_end(void)
{
        give(held[0]);
        give(held[1]);
        kmem_cache_destroy(cache);
}

/* The next slow path honours what no thread has; nothing is left then. */
static int honoured(void)
{
        const struct registry_request *request = &registry_head()->requests[0];

        if (registry_is_asked())
                figures_act();
        if (request->state != REQUEST_DONE || registry_is_asked())
                explore_fail("a request is in state %u and no slow path looks at it: expected %u",
                             request->state, REQUEST_DONE);
        return request->error;
}

static void check_done(void)
{
        CHECK(honoured() == 0);
        give(held[0]);
        give(held[1]);
        check_empty();
}

/* The newest request counts. */
static void check_newest(void)
{
        CHECK(honoured() == 0);
        if (cache->min_partial != 9)
                explore_fail("min_partial is %lu: the last request was for 9",
                             (unsigned long)cache->min_partial);
        give(held[0]);
        give(held[1]);
        check_empty();
}

static void check_ended(void)
{
        int error = honoured();

        CHECK(error == 0 || error == ENOENT);
        make_cache(64);
        check_empty();
}

const struct scenario request_scenarios[] = {
        {.name = "request_trim",
         .large = true,
         .about = "a trim that is asked for from outside against pops and pushes",
         .options = "sheaf_capacity=2",
         .setup = fill_and_ask_trim,
         .thread = {honour, pop_and_push},
         .cpu = {0, 1},
         .check = check_done},
        {.name = "request_trim_end",
         .large = true,
         .about = "a trim that is asked for from outside against the end of a cache",
         .options = "sheaf_capacity=2",
         .setup = fill_and_ask_trim,
         .thread = {honour, free_and_end},
         .cpu = {0, 1},
         .check = check_ended},
        {.name = "request_capacity_end",
         .large = true,
         .about = "an attribute is changed from outside against the end of its cache",
         .options = "sheaf_capacity=2",
         .setup = fill_and_ask_capacity,
         .thread = {honour, free_and_end},
         .cpu = {0, 1},
         .check = check_ended},
        {.name = "request_replaced",
         .about = "another request comes in the place of one that is being honoured",
         .options = "sheaf_capacity=2",
         .setup = fill_and_ask_min_partial,
         .thread = {honour, ask_again},
         .cpu = {0, 1},
         .check = check_newest},
        {.name = "request_two_threads",
         .large = true,
         .about = "two threads look for requests while another request comes",
         .options = "sheaf_capacity=2",
         .setup = fill_and_ask_min_partial,
         .thread = {honour, ask_again, honour},
         .cpu = {0, 1, 2},
         .check = check_newest},
        {0},
};
