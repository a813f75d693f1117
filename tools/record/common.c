/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Errors and reports of the programs that make traces. */
#include "tools/record/record.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

void die(const char *format, ...)
{
        va_list arguments;

        va_start(arguments, format);
        fprintf(stderr, "kmem: %s: ", program_words);
        vfprintf(stderr, format, arguments);
        fputc('\n', stderr);
        va_end(arguments);
        exit(1);
}

void print_counts(FILE *file, const struct lives_counts *counts)
{
        fprintf(file,
                "\"allocations\": %" PRIu64 ", \"frees\": %" PRIu64 ", \"implied\": %" PRIu64
                ", \"orphans\": %" PRIu64 ", \"living\": %" PRIu64 ", \"living_bytes\": %" PRIu64
                ", ",
                counts->allocations, counts->frees, counts->implied, counts->orphans,
                counts->living, counts->living_bytes);
}
