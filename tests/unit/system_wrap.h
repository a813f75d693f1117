/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Stands in for the machine in unit tests of base/ and page/: a clock and a count of
 * faults that only move when they are told to, pages as large as wanted, and system calls that can be refused. Link with the --wrap options that
 * tests/meson.build lists beside this file.
 */
#ifndef KMEM_TESTS_SYSTEM_WRAP_H
#define KMEM_TESTS_SYSTEM_WRAP_H

#include "machine/system.h"

enum wrapped_call { CALL_MAP, CALL_REMAP, CALL_COMMIT, CALL_PURGE, WRAPPED_CALLS };

struct system_wrap {
        uint64_t now_ms;
        uint64_t faults;
        size_t page_bytes; /* of the system; 0: this machine's */
        /* Calls of a kind that succeed before every further call is refused. */
        size_t calls_left[WRAPPED_CALLS];
        size_t calls_made[WRAPPED_CALLS];
        void (*while_mapping)(void); /* before the system maps; NULL: nothing */
        void (*while_purging)(void); /* NULL: nothing */
};
extern struct system_wrap system_wrap;

/* Nothing is refused; the time stays. */
void system_wrap_allow_all(void);

#endif
