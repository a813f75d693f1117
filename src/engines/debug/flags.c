/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * From option debug to the flags of a cache. As with slab_debug, letters given for a cache by name
 * replace the letters given for all caches, and flags that the program itself gives stay (S9-21).
 */
#include "engines/debug/debug.h"

#include "base/options.h"
#include "kmem.h"

static uint64_t letters_of(const char *name, uint32_t flags)
{
        uint64_t letters = 0;
        enum option_source source = OPTION_UNSET;

        if (!(flags & SLAB_NO_USER_FLAGS))
                source = options_for_cache(name, OPTION_DEBUG, &letters);
        if (source == OPTION_FOR_ALL && flags & SLAB_NOLEAKTRACE)
                letters &= ~(uint64_t)DEBUG_USER; /* U for all caches leaves out caches that are not
                                                     traced for leaks (S9-22) */
        return letters;
}

uint32_t debug_flags(const char *name, uint32_t flags)
{
        static const struct {
                uint32_t letter;
                uint32_t flag;
        } table[] = {
                {DEBUG_CHECKS, SLAB_CONSISTENCY_CHECKS},
                {DEBUG_RED_ZONE, SLAB_RED_ZONE},
                {DEBUG_POISON, SLAB_POISON},
                {DEBUG_USER, SLAB_STORE_USER},
                {DEBUG_TRACE, SLAB_TRACE},
        };
        uint64_t letters = letters_of(name, flags);

        for (size_t i = 0; i < array_size(table); i++)
                if (letters & table[i].letter)
                        flags |= table[i].flag;
        return flags;
}

bool debug_marks_failslab(const char *name, uint32_t flags)
{
        return letters_of(name, flags) & DEBUG_FAILSLAB;
}
