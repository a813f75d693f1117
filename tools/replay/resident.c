/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * The bits of resident pages; resident.h has their rules.
 */
#include "tools/replay/resident.h"

#include "tools/replay/steps.h"

#include <stdlib.h>

enum { WORD_PAGES = 64 };

void resident_start(struct resident *resident)
{
        size_t words = frontier.reserved / WORD_PAGES + 1;

        *resident = (struct resident){
                .words = need(calloc(words, sizeof(*resident->words))),
                .purged = zones_purged(),
        };
}

void resident_end(struct resident *resident)
{
        free(resident->words);
}

void resident_forget(struct resident *resident, size_t purged)
{
        resident->purged = purged;
        resident->pages = 0;
        for (size_t i = 0; i < frontier.pages / WORD_PAGES; i++) {
                resident->words[i] &= frontier.touched_bits[i].touched;
                resident->pages += (size_t)__builtin_popcountll(resident->words[i]);
        }
}

void resident_add(struct resident *resident, const void *first, const void *last)
{
        for (uint32_t page = address_page(first); page <= address_page(last); page++) {
                uint64_t bit = (uint64_t)1 << page % WORD_PAGES;
                uint64_t *word = &resident->words[page / WORD_PAGES];

                resident->pages += !(*word & bit);
                *word |= bit;
        }
}
