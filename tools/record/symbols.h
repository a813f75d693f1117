/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Names of places in the running kernel, of /proc/kallsyms. */
#ifndef KMEM_TOOLS_RECORD_SYMBOLS_H
#define KMEM_TOOLS_RECORD_SYMBOLS_H

#include <stddef.h>
#include <stdint.h>

struct symbols;

/*
 * Reads the names. If the file is missing or hides addresses, places have no names. Dies without
 * memory.
 */
struct symbols *symbols_read(void);
/* "symbol+0xoffset", or the address. */
void symbols_name(const struct symbols *symbols, uint64_t address, char *text, size_t bytes);

#endif
