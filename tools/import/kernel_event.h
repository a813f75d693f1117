/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Events of the kmem tracepoints: their kinds by name, and their fields. Lines of one tool or another
 * give both (kernel_line.c, named_line.c).
 */
#ifndef KMEM_TOOLS_IMPORT_KERNEL_EVENT_H
#define KMEM_TOOLS_IMPORT_KERNEL_EVENT_H

#include "tools/import/import.h"

/* A part of the line. */
struct part {
        const char *text;
        size_t length;
};

bool part_is(struct part part, const char *text);

struct kernel_fields {
        struct part call_site, pointer, requested, given, flags, name;
        bool decimal_flags; /* bits in a decimal number, not in a hexadecimal one */
};

struct kernel_kind {
        const char *name;
        size_t length;
        uint8_t operation;
        bool by_size;
};

/* The kind of event whose name and @end begin at @text, or NULL. */
const struct kernel_kind *kernel_kind(const char *text, char end);

/* Whether a line about many objects at once begins at @text. */
bool kernel_is_bulk(const char *text);

/* Where the field of this name belongs, or NULL if it is not read. */
struct part *kernel_field(struct kernel_fields *fields, struct part key);

/* Fields as the kernel prints them, "call_site=f+0x1a ptr=0x... bytes_req=8", to the line's end. */
struct kernel_fields kernel_fields(const char *text);

/* A number in hexadecimal, in small or large letters, with or without 0x. */
bool kernel_address(struct part part, uint64_t *address);

/* A decimal number of at most @most; false if the part is anything else, or there is none. */
bool kernel_number(struct part part, uint64_t most, uint64_t *number);

/* Seconds with a fraction, in ns, or a number of ticks of a clock that counts none, up to @end. */
bool kernel_time(const char *text, const char *end, uint64_t *time);

/* Adds the event, whose time and place @event and @import have. */
enum line_kind kernel_event(struct import *import, const struct kernel_kind *kind,
                            const struct kernel_fields *fields, struct lives_event *event);

#endif
