/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * The callers of an operation: return addresses and their names.
 */
#ifndef KMEM_MACHINE_STACK_H
#define KMEM_MACHINE_STACK_H

#include "lang/compiler.h"

enum {
        STACK_FRAMES = 16,         /* as many as the kernel keeps (S4-10) */
        STACK_FRAMES_SAMPLE = 128, /* of a heap profile's samples, which look for the root */
};

/*
 * Loads the code that walking a stack needs, once a process, without any lock held: it may call
 * malloc and the dynamic linker. Before, no stack is captured.
 */
KMEM_HIDDEN void stack_prepare(void);

/*
 * For threads that libc does not know (machine/bare_thread.h): neither it nor the dynamic linker
 * may be asked there. No stack is captured, and addresses are written in place of names.
 */
KMEM_HIDDEN void stack_refuse_this_thread(void);
KMEM_HIDDEN bool stack_is_refused(void);

/*
 * Return addresses, the caller of the library first, without frames of the library itself (a
 * static program's are all kept, as nothing tells them apart). Returns how many, at most @room, and
 * 0 if that cannot be known here. Takes no lock of ours; none may be held, because the C library may
 * take its own.
 */
KMEM_HIDDEN unsigned int stack_capture(uintptr_t *frames, unsigned int room);

/*
 * In a signal's handler: the callers of the code that the signal interrupted at @instruction, which
 * comes first. At most STACK_FRAMES; 0 if the walk does not get there.
 */
KMEM_HIDDEN unsigned int stack_capture_from(uintptr_t instruction, uintptr_t frames[STACK_FRAMES]);

/*
 * As glibc's backtrace, but without locks and allocations, and without the first frames whose
 * addresses lie from @own to before @own_end: machine/unwind.c, of the shared libraries alone. A
 * program that the library is linked into would get a second unwinder, or a library more.
 */
KMEM_HIDDEN int stack_walk(void **frames, int room, uintptr_t own, uintptr_t own_end)
        __attribute__((weak));

/* Once, before the first walk: what both parts of it need. */
KMEM_HIDDEN void stack_walk_prepare(void) __attribute__((weak));

enum { SYMBOL_BYTES = 192 };

/*
 * For texts that are made under a lock: this mark and the sixteen digits of an address stand where
 * its name belongs.
 */
#define SYMBOL_MARK "\1"
enum { SYMBOL_MARK_BYTES = 17 };

/*
 * Writes the name of an address without a zero byte if it is shorter than @bytes; returns its length.
 * With @bytes 0, @text may be NULL.
 */
typedef size_t address_writer(void *context, uintptr_t address, char *text, size_t bytes);

/*
 * Copies a marked text with what @write writes for marks, and a zero byte. Returns the length; with
 * @text NULL that is all. Else the text is cut off in front of the part for which @bytes have no room.
 */
KMEM_HIDDEN size_t marks_replace(const char *marked, address_writer *write, void *context,
                                 char *text, size_t bytes);

/*
 * Copies a marked text with names for marks, and a zero byte. Returns the length of the named text.
 * If that is more than @bytes, @text stays as it was. If names become longer meanwhile, because
 * libraries are opened, the text ends in front of the part that does not fit.
 */
KMEM_HIDDEN size_t symbols_resolve(const char *marked, char *text, size_t bytes);

#endif
