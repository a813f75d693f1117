/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * A library that test_row_walk opens and closes. Built with two sizes of a frame, whose code has
 * equal lengths, so that calls return to equal addresses if both are loaded at the same.
 */
#include "row_walk_module.h"

void module_call(void (*callback)(void))
{
        volatile char room[MODULE_FRAME_BYTES];

        room[0] = 1;
        callback();
        room[sizeof(room) - 1] = 2;
}
