/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Checks that a test leaves out here, always with the reason printed. */
#ifndef KMEM_TESTS_SKIP_H
#define KMEM_TESTS_SKIP_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "../exec.h"

/*
 * Before version 2, cmocka has a single function that asserts ranges of all types; version 2 warns
 * of its name.
 */
#ifndef assert_int_in_range
#define assert_int_in_range assert_in_range
#endif

/* For cases that keep all threads of the process on a single CPU. */
#define EMULATORS_THREAD "the emulator has a thread of its own, which may run on every CPU"

/* Under valgrind these are false: it is slower, but its kernel is the real kernel. */
static inline bool under_qemu(void)
{
        return emulated() && strstr(getenv("MESON_EXE_WRAPPER"), "qemu");
}

#ifdef __SANITIZE_THREAD__
enum { THREAD_SANITIZER = 1 };
#else
enum { THREAD_SANITIZER = 0 };
#endif

/* Ends the case as skipped. */
static inline void skip_because(const char *reason)
{
        fprintf(stderr, "# skipped: %s\n", reason);
        skip();
}

/* For cases that limit memory, of which sanitizers take terabytes. */
static inline void skip_if_sanitized(void)
{
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
        skip_because("sanitizers take terabytes of address space");
#endif
}

/* For cases that count pages of the heap's size, of which the system purges only several at once. */
static inline void skip_on_larger_pages(void)
{
        if (sysconf(_SC_PAGESIZE) != 4096)
                skip_because("the system's pages are larger than the heap's");
}

/* For cases whose children of fork start threads. */
static inline void skip_without_threads_after_fork(void)
{
        if (THREAD_SANITIZER)
                skip_because("ThreadSanitizer ends children of fork that start threads");
}

/* False under an emulator, for an assertion of a case that otherwise holds there too. */
static inline bool checks_natively(const char *what)
{
        if (emulated())
                fprintf(stderr, "# not checked under the emulator: %s\n", what);
        return !emulated();
}

#endif
