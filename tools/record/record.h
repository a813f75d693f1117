/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* The common part of the programs that make traces. */
#ifndef KMEM_TOOLS_RECORD_RECORD_H
#define KMEM_TOOLS_RECORD_RECORD_H

#include "tools/trace/lives.h"

#include <stdio.h>

/* The command that the user gave, for messages; each program has its own. */
extern const char program_words[];

/* Prints a line and ends with status 1. */
void die(const char *format, ...) __attribute__((format(printf, 1, 2), noreturn, cold));

/* The figures of a trace as members of a JSON object, with a comma behind. */
void print_counts(FILE *file, const struct lives_counts *counts);

#endif
