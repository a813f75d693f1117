/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Reports: a line as of every wrong free, then the form of a debug cache's reports, then the callers as places in files,
 * then the end of the process. There is no content of blocks but the harmed byte, and no address of code: a report may
 * be read by strangers. The walk of the stack comes last, as the program's fault may have harmed the stack.
 */
#include "engines/hardened/hardened.h"

#include "base/options.h"
#include "lang/bits.h"
#include "lang/text.h"
#include "machine/fatal.h"
#include "machine/message.h"
#include "machine/system.h"

#include <stdlib.h>
#include <unistd.h>

enum { REPORT_BYTES = 1024 };

/* Whether an object is in a part of its pool's quarantine. Other threads may change it meanwhile. */
static bool waits_in(const uint64_t *waits, uint64_t wait)
{
        for (uint32_t i = 0; i < HARDENED_WAITING_MAX; i++)
                if (load_relaxed(&waits[i]) == wait)
                        return true;
        return false;
}

static const char *state_of(struct slab_record *record, uint32_t index)
{
        uint64_t wait = wait_of(record, index);

        if (object_is_out(record->states[index]))
                return "out";
        if (record->states[index] == OBJECT_FRESH)
                return "fresh";
        return waits_in(record->pool->drawn, wait) || waits_in(record->pool->aged, wait) ? "waiting"
                                                                                         : "free";
}

static void add_place(struct text *text, const void *address, uint32_t bad_offset)
{
        struct hardened_place place = hardened_place_of(address);
        uint32_t bytes;

        if (!place.record || !place.record->start)
                return;
        bytes = place.class->size - (place.record->number ? CANARY_BYTES : 0);
        text_add(text, "Slab %p objects=%u free=%u bytes=%u arena=%u\n", place.record->start,
                 place.class->objects, place.record->free, place.class->size, place.record->arena);
        if (place.index >= place.class->objects)
                return;
        text_add(text, "Object %p @offset=%u bytes=%u state=%s form=%s\n",
                 place.record->start + place.index * place.class->size,
                 (uint32_t)place.index * place.class->size, bytes,
                 state_of(place.record, (uint32_t)place.index),
                 place.record->states[place.index] == state_out(FORM_NEW) ? "new" : "malloc");
        if (bad_offset != UINT32_MAX)
                text_add(text, "First harmed byte @offset=%u, %s the block\n", bad_offset,
                         bad_offset < bytes ? "in" : "behind");
}

void hardened_report(const char *call, const void *address, const char *title, const char *fault,
                     uint32_t bad_offset)
{
        char name[SYSTEM_NAME_BYTES];
        char room[REPORT_BYTES];
        struct text text;

        message("%s(%p): %s", call, address, fault);
        text_begin(&text, room, sizeof(room));
        text_add(&text, "======================================================================="
                        "======\n");
        text_add(&text, "BUG hardened (Not tainted): %s\n", title);
        text_add(&text, "-----------------------------------------------------------------------"
                        "------\n\n");
        if (hardened_contains(address))
                add_place(&text, address, bad_offset);
        system_thread_name(name);
        for (char *at = name; *at; at++)
                if ((unsigned char)*at < ' ' || *at == 127)
                        *at = '?';
        text_add(&text, "CPU: %u PID: %u Comm: %s\n", system_current_cpu(), system_thread_id(),
                 name);
        message_write(STDERR_FILENO, text.start, text.used);
        print_callers();
        abort();
}
