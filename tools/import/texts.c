/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* An open-addressed table of texts. See texts.h. */
#include "tools/import/texts.h"

#include <stdlib.h>
#include <string.h>

enum { PLACES_FIRST = 1 << 12 };

static uint32_t hash_of(const char *text, size_t length)
{
        uint64_t hash = length;
        uint64_t word;

        for (; length >= sizeof(word); text += sizeof(word), length -= sizeof(word)) {
                memcpy(&word, text, sizeof(word));
                hash = (hash ^ word) * UINT64_C(0x9e3779b97f4a7c15);
                hash ^= hash >> 29;
        }
        word = 0;
        memcpy(&word, text, length);
        hash = (hash ^ word) * UINT64_C(0x9e3779b97f4a7c15);
        return (uint32_t)(hash >> 32);
}

/* Doubles the places, and the room for texts, of which there are half as many. */
static bool grow(struct texts *texts)
{
        uint32_t places = texts->places ? 2 * (texts->mask + 1) : PLACES_FIRST;
        uint32_t *fresh = calloc(places, sizeof(*fresh));
        struct text *more = realloc(texts->text, places / 2 * sizeof(*more));

        if (more)
                texts->text = more;
        if (!fresh || !more) {
                free(fresh);
                return false;
        }
        free(texts->places);
        texts->places = fresh;
        texts->mask = places - 1;
        for (uint32_t i = 0; i < texts->count; i++) {
                uint32_t place = texts->text[i].hash & texts->mask;

                while (fresh[place])
                        place = (place + 1) & texts->mask;
                fresh[place] = i + 1;
        }
        return true;
}

static bool make_room(struct texts *texts, size_t length)
{
        size_t room = texts->room ? texts->room : PLACES_FIRST;
        char *bytes;

        while (room - texts->used <= length)
                room *= 2;
        if (room == texts->room)
                return true;
        bytes = realloc(texts->bytes, room);
        if (!bytes)
                return false;
        texts->bytes = bytes;
        texts->room = room;
        return true;
}

struct text *texts_find(struct texts *texts, const char *text, size_t length)
{
        uint32_t hash;
        uint32_t place;
        struct text *found;

        if (length > TEXT_BYTES_MOST)
                length = TEXT_BYTES_MOST;
        hash = hash_of(text, length);
        if ((!texts->places || texts->count == (texts->mask + 1) / 2) && !grow(texts))
                return NULL;
        for (place = hash & texts->mask; texts->places[place]; place = (place + 1) & texts->mask) {
                found = &texts->text[texts->places[place] - 1];
                if (found->hash == hash && found->length == length &&
                    memcmp(texts->bytes + found->at, text, length) == 0)
                        return found;
        }
        if (texts->count == TEXTS_MOST || !make_room(texts, length))
                return NULL;
        found = &texts->text[texts->count];
        *found =
                (struct text){.hash = hash, .at = (uint32_t)texts->used, .length = (uint8_t)length};
        memcpy(texts->bytes + texts->used, text, length);
        texts->bytes[texts->used + length] = '\0';
        texts->used += length + 1;
        texts->places[place] = ++texts->count;
        return found;
}

const char *texts_name(const struct texts *texts, const struct text *text)
{
        return texts->bytes + text->at;
}

void texts_free(struct texts *texts)
{
        free(texts->places);
        free(texts->text);
        free(texts->bytes);
        *texts = (struct texts){0};
}
