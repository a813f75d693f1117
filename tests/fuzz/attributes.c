/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Writes to attributes of caches and to the slab table. An input is lines: "cache attribute value"
 * is written and read again, "!text" goes to the slab table, and a number takes or gives an object
 * of that cache, so that slabs have all states.
 */
#include "target.h"

#include "kmem.h"

#include <stdio.h>
#include <string.h>

enum { CACHES = 4, OBJECTS = 64, OBJECT_BYTES = 72, READ_BYTES = 512 };

static const struct {
        const char *name;
        slab_flags_t flags;
} kinds[CACHES] = {
        {"slub", 0},
        {"slab", SLAB_ENGINE_SLAB},
        {"slob", SLAB_ENGINE_SLOB},
        {"debug", SLAB_RED_ZONE | SLAB_POISON | SLAB_CONSISTENCY_CHECKS},
};
static struct kmem_cache *caches[CACHES];
static void *objects[CACHES][OBJECTS];

static void make_caches(void)
{
        for (int i = 0; i < CACHES && !caches[i]; i++) {
                caches[i] = kmem_cache_create(kinds[i].name, OBJECT_BYTES, 0, kinds[i].flags, NULL);
                expect(caches[i] != NULL);
        }
}

/* Each object holds its place's number until it is given back. */
static void take_or_give(unsigned int number)
{
        unsigned int cache = number % CACHES;
        void **object = &objects[cache][number / CACHES % OBJECTS];

        if (*object) {
                expect(*(unsigned char *)*object == (unsigned char)number);
                kmem_cache_free(caches[cache], *object);
                *object = NULL;
        } else if ((*object = kmem_cache_alloc(caches[cache], 0))) {
                memset(*object, (int)(unsigned char)number, OBJECT_BYTES);
        }
}

static void read_again(const char *cache, const char *name, unsigned int room)
{
        char *text = malloc(room + 1);

        expect(text != NULL);
        text[room] = '~';
        kmem_attr_read(cache, name, text, room);
        expect(text[room] == '~');
        free(text);
}

static void run_line(char *line)
{
        char *name = strchr(line, ' ');
        char *value = name ? strchr(name + 1, ' ') : NULL;

        if (*line == '!') {
                kmem_slabinfo_write(line + 1);
        } else if (*line >= '0' && *line <= '9') {
                take_or_give((unsigned int)strtoul(line, NULL, 10) % (CACHES * OBJECTS));
        } else if (name) {
                *name++ = '\0';
                if (value)
                        *value++ = '\0';
                kmem_attr_write(line, name, value);
                read_again(line, name, (unsigned int)strlen(line) % READ_BYTES);
        }
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
        char *text = malloc(size + 1);

        expect(text != NULL);
        if (size)
                memcpy(text, bytes, size);
        text[size] = '\0';
        make_caches();
        for (char *line = text; line;) {
                char *next = strchr(line, '\n');

                if (next)
                        *next++ = '\0';
                run_line(line);
                line = next;
        }
        for (unsigned int i = 0; i < CACHES * OBJECTS; i++)
                if (objects[i % CACHES][i / CACHES])
                        take_or_give(i);
        free(text);
        return 0;
}
