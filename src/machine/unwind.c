/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * The walk of the stack in the shared libraries: by rows that are kept (row_walk.h), and where these
 * do not suffice by the compiler's unwinder, which is inside.
 *
 * The unwinder of the program is not asked: it allocates and frees under its own lock if the
 * program has registered frames of code it made (__register_frame), and a walk from there would
 * wait for that lock for ever. glibc's backtrace also loads it first, which may end the program if
 * that is in the middle of a dlopen. The price: a walk ends at registered frames.
 *
 * Threads: any, with the program's locks held, also the unwinder's and the dynamic linker's.
 */
#include "machine/lasting.h"
#include "machine/row_walk.h"
#include "machine/stack.h"

#include <unwind.h>

struct walk {
        void **frames;
        int count;
        int room;
        uintptr_t own; /* frames from here to before own_end are left out, up to the first other */
        uintptr_t own_end;
};

/* Behind the last there may be an address of 0. */
static _Unwind_Reason_Code add_frame(struct _Unwind_Context *context, void *argument)
{
        struct walk *walk = argument;
        uintptr_t address = _Unwind_GetIP(context);

        if (!address || walk->count == walk->room)
                return _URC_END_OF_STACK;
        if (!walk->count && address >= walk->own && address < walk->own_end)
                return _URC_NO_REASON;
        walk->frames[walk->count++] = (void *)address;
        return _URC_NO_REASON;
}

void stack_walk_prepare(void)
{
        void *frame;

        lasting_find();
        row_walk_prepare();
        /* The unwinder's own beginning, which it makes once. */
        _Unwind_Backtrace(add_frame, &(struct walk){.frames = &frame, .room = 1});
}

int stack_walk(void **frames, int room, uintptr_t own, uintptr_t own_end)
{
        struct walk walk = {.frames = frames, .room = room, .own = own, .own_end = own_end};
        int count = row_walk(frames, room, own, own_end);

        if (count != ROW_WALK_UNKNOWN)
                return count;
        _Unwind_Backtrace(add_frame, &walk);
        return walk.count;
}
