/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Lines that are written to /proc/slabinfo, and their effect in the kernel (S6-51). */
#include "api/owner.h"
#include "base/options.h"
#include "percpu/figures.h"
#include "engines/slab/slab.h"
#include "lang/number.h"

#include <ctype.h>
#include <errno.h>
#include <string.h>

enum { LINE_BYTES = 128 };

struct tunables {
        char name[CACHE_NAME_BYTES];
        long limit;
        long batchcount;
        long shared;
};

/* Reads an integer, after blanks and a sign. */
static bool parse_integer(const char **text, long *value)
{
        const char *at = *text;
        bool negative;
        int64_t number;

        while (isspace((unsigned char)*at))
                at++;
        negative = *at == '-';
        if (negative || *at == '+')
                at++;
        number = number_next(&at);
        if (number < 0)
                return false;
        *value = negative ? -number : number;
        *text = at;
        return true;
}

/* A name up to the first space, three integers, and nothing else. */
static bool parse_line(const char *line, struct tunables *tunables)
{
        size_t length = strcspn(line, " ");

        if (strnlen(line, LINE_BYTES + 1) > LINE_BYTES || length >= sizeof(tunables->name))
                return false;
        memcpy(tunables->name, line, length);
        tunables->name[length] = '\0';
        line += length;
        if (!parse_integer(&line, &tunables->limit) ||
            !parse_integer(&line, &tunables->batchcount) ||
            !parse_integer(&line, &tunables->shared))
                return false;
        while (isspace((unsigned char)*line))
                line++;
        return !*line;
}

/*
 * Applies the tunables. Impossible values are ignored silently, as in the kernel; so nothing else
 * is reported either.
 */
static int tune_locked(struct kmem_cache *cache, const struct tunables *tunables)
{
        int error;

        if (tunables->limit < 1 || tunables->batchcount < 1 ||
            tunables->batchcount > tunables->limit || tunables->shared < 0)
                return 0;
        if (tunables->limit > TUNABLE_LIMIT_MAX || tunables->shared > TUNABLE_SHARED_MAX)
                return ERANGE;
        /* REG-2 */
        figures_poll();
        error = slab_tune(cache, (uint32_t)tunables->batchcount, (uint32_t)tunables->shared);
        if (!error)
                percpu_change_capacity(cache, (uint32_t)tunables->limit);
        figures_show_cache(cache);
        return error;
}

static int tune(const struct tunables *tunables)
{
        struct kmem_cache *cache;
        int error = EINVAL;

        lock_take(&cache_mutex);
        cache = cache_named_locked(tunables->name);
        if (cache)
                error = cache->engine == &slab_engine ? tune_locked(cache, tunables) : EIO;
        lock_drop(&cache_mutex);
        return error;
}

KMEM_PUBLIC int kmem_slabinfo_write(const char *line)
{
        int saved_errno = errno;
        struct tunables tunables;
        int error = EINVAL;

        if (heap_is_foreign())
                return bound.calls->slabinfo_write(line);
        if (!heap_ready())
                error = ENOMEM;
        else if (line && parse_line(line, &tunables))
                error = tune(&tunables);
        errno = error ? error : saved_errno;
        return error ? -1 : 0;
}
