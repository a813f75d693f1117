/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * A fuzz target: reads an input, and ends the process by a signal if it finds a fault. libFuzzer
 * calls it with inputs that it makes up, driver.c with the inputs of tests/fuzz/corpus.
 */
#ifndef KMEM_TESTS_FUZZ_TARGET_H
#define KMEM_TESTS_FUZZ_TARGET_H

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

/* Always 0. */
int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

static inline void expect(int holds)
{
        if (!holds)
                abort();
}

#endif
