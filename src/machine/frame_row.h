/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * How to get from a function's frame to its caller's: the row for a return address in the tables
 * that compilers write for exceptions (sections .eh_frame_hdr and .eh_frame).
 */
#ifndef KMEM_MACHINE_FRAME_ROW_H
#define KMEM_MACHINE_FRAME_ROW_H

#include "lang/compiler.h"

/*
 * The base of a frame is the stack pointer's value in the caller behind the call. Offsets are in
 * bytes, the last two from the base.
 */
struct frame_row {
        bool is_last;               /* nothing called this function; the rest has no meaning */
        bool is_from_frame_pointer; /* the base is frame pointer + base, else stack pointer + base */
        int64_t base;
        int64_t return_address;
        int64_t saved; /* the caller's frame pointer; 0: it is unchanged */
};

enum row_answer {
        ROW_FOUND,
        ROW_NONE,    /* the tables have nothing for this address */
        ROW_UNKNOWN, /* what they have takes an unwinder that knows all registers */
};

/* What a row is made of. It stays as long as the object. */
struct frame_description {
        const uint8_t *own; /* a function's, from its way to the common part on */
        const uint8_t *own_end;
        const uint8_t *common; /* of several functions */
        uint64_t distance;     /* from the function's start to behind the call */
};

/* Finds the description for frame_row_read; ROW_FOUND or why there is none. */
KMEM_HIDDEN enum row_answer frame_row_find(const void *header, uintptr_t address, uint32_t *hint,
                                           struct frame_description *found);
KMEM_HIDDEN enum row_answer frame_row_make(const struct frame_description *found,
                                           struct frame_row *row);
/*
 * A number of all that a row is made of, the bytes that describe it and the place in the function: descriptions
 * with equal numbers make equal rows, whatever object they are of. 0 if that takes longer than to make a row.
 */
KMEM_HIDDEN uint64_t frame_row_key(const struct frame_description *found);

/*
 * The row for the call that returns to @address. @header is section .eh_frame_hdr of the object
 * there, which stays mapped meanwhile. *@hint is an index in its table to be tried first, any number
 * will do, and becomes the index found. Takes no lock and no memory; its stack is about 300 bytes.
 */
KMEM_HIDDEN enum row_answer frame_row_read(const void *header, uintptr_t address, uint32_t *hint,
                                           struct frame_row *row);

#endif
