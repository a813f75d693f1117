/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Makes a trace of the text that other tools print about allocations. A line is looked at by itself,
 * whatever tool printed it: events of kernels (kernel_line.c, named_line.c), logs of a program's heap
 * (heap_line.c). Data files of heaptrack (heaptrack_line.c) and heap profiles (profile_line.c) say in
 * their first line what they are; all other lines are then theirs.
 */
#ifndef KMEM_TOOLS_IMPORT_IMPORT_H
#define KMEM_TOOLS_IMPORT_IMPORT_H

#include "tools/import/texts.h"
#include "tools/trace/lives.h"

#include <stdbool.h>
#include <stdint.h>

#define SECOND_NS UINT64_C(1000000000)

enum {
        ADDRESS_LEAST = 4096,   /* NULL and the result of kmalloc(0) are below */
        OBJECTS_MOST = 1 << 25, /* of a heap profile */
        LINE_BYTES_MOST = 1 << 16,
        CALLS_OPEN = 1024,  /* threads whose call a log may have begun and not ended */
        FOLDED_MOST = 1024, /* bytes of an event that a mail has made several lines of */
};

/* A call of malloc or its like; its end may stand on a later line of the log. */
struct open_call {
        int32_t thread;
        uint16_t cpu;      /* 0 where the log has none */
        uint64_t bytes;    /* asked for; 0 if it asks for none */
        uint64_t released; /* address that the call frees, or 0 */
        bool open;
};

struct import {
        struct lives *lives;
        struct texts sites;  /* the value of each is its number, from 1 on */
        struct texts caches; /* its id */
        struct texts flags;  /* its gfp bits */
        struct open_call calls[CALLS_OPEN];
        uint32_t reallocs;    /* open calls that free a block */
        uint64_t now;         /* ns: the time of the last event, as the text has it */
        uint64_t first_time;  /* ns: of the first event */
        uint64_t time_of_day; /* ns: of the last line with hours, to notice midnight */
        uint64_t days;        /* midnights that were noticed */

        struct heaptrack *heaptrack; /* NULL: the text is no data file of heaptrack */
        bool profile;                /* the text is a heap profile */
        bool profile_ended;          /* mappings follow */
        char stack[64];              /* beginning of the profile's last stack with its "@" */
        uint64_t sample_bytes;       /* bytes between samples of the profile; 0: it has all */
        uint64_t snapshot_objects;   /* that the profile gave so far */
        uint64_t objects_most;       /* that a profile may have */

        char folded[FOLDED_MOST]; /* the begin of an event whose other fields may follow */
        size_t folded_bytes;      /* 0: none waits */
        uint64_t folded_line;     /* the number of its first line */
        bool is_whole;            /* no further line belongs to the event that is read */

        uint64_t lines;
        uint64_t events;           /* allocations and frees */
        uint64_t failed;           /* allocations that got nothing, and frees of NULL */
        uint64_t hidden;           /* events whose address the text does not tell */
        uint64_t bulk;             /* lines about bulk calls, whose objects nobody names */
        uint64_t lost;             /* events that the other tool says it has lost */
        uint64_t others;           /* other events, comments, frames of stacks */
        uint64_t unreadable;       /* lines */
        uint64_t first_unreadable; /* the number of the first, from 1 on */
        char reason[160];          /* why that one */
        bool made_times;    /* the text has none: each event is a microsecond after the last */
        uint32_t cpus_most; /* CPUs that the machine may have */
        uint32_t cpus;      /* as the text's head says, or 0 */
};

enum line_kind {
        LINE_NOT_OURS, /* of another form */
        LINE_TAKEN,    /* read, whatever it held */
        LINE_BAD,      /* ours, and damaged: import.reason says how */
        LINE_FOLDED,   /* the begin of an event, which the next line may complete */
};

/* Each looks at a line without its newline. */
enum line_kind named_line(struct import *import, const char *line);
enum line_kind kernel_line(struct import *import, const char *line);
enum line_kind heap_line(struct import *import, const char *line);
enum line_kind heaptrack_line(struct import *import, const char *line);
enum line_kind profile_line(struct import *import, const char *line);

/* Of a line that cannot be read, by its first letter: lines behind it refer to others by number. */
void heaptrack_bad_line(struct import *import, char letter);

void heaptrack_free(struct heaptrack *heaptrack);

/* The text's end without blanks before it. */
const char *line_trim(const char *first, const char *end);

/* The time of day in ns, with a day more for each midnight: where a time falls by half a day. */
uint64_t import_time_of_day(struct import *import, uint64_t time);

/* Notes why a line cannot be read. */
enum line_kind line_bad(struct import *import, const char *format, ...)
        __attribute__((format(printf, 2, 3)));

/* Adds an event at import->now. @site may be empty. */
void import_event(struct import *import, struct lives_event *event, const char *site,
                  size_t site_bytes);

/* Adds what a call did, at import->now. @result: the address that it returned, or 0. */
void import_call(struct import *import, const struct open_call *call, uint64_t result);

/* Takes a line of @length bytes; a byte behind it is free for a zero byte. */
void import_line(struct import *import, char *line, size_t length);

/* After the last line: takes what waited for a further one. */
void import_end(struct import *import);

/*
 * Takes the lines that are whole in @have bytes, moves what is behind them to the front, and returns
 * how many bytes that are, at most LINE_BYTES_MOST. *skip: the beginning of the line was too long.
 */
size_t import_lines(struct import *import, char *bytes, size_t have, bool *skip);

#endif
