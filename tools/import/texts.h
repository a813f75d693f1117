/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Texts by number, each once, with a value beside it: names of caches, places in the code. */
#ifndef KMEM_TOOLS_IMPORT_TEXTS_H
#define KMEM_TOOLS_IMPORT_TEXTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { TEXTS_MOST = 1 << 20, TEXT_BYTES_MOST = 255 };

struct text {
        uint64_t value;
        uint32_t hash;
        uint32_t at; /* first byte in `bytes` */
        uint8_t length;
};

struct texts {
        uint32_t count;
        uint32_t *places; /* number of a text and 1, by hash; 0: free */
        uint32_t mask;    /* places, less 1 */
        struct text *text;
        char *bytes; /* each with a zero byte */
        size_t used;
        size_t room;
};

/*
 * The text, which is added with value 0 if it is new; longer ones are cut. NULL if there are
 * TEXTS_MOST already, or without memory. The pointer holds until the next call.
 */
struct text *texts_find(struct texts *texts, const char *text, size_t length);

/* The text with a zero byte. */
const char *texts_name(const struct texts *texts, const struct text *text);

void texts_free(struct texts *texts);

#endif
