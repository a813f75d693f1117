/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Reads /proc/kallsyms and finds the symbol of an address. */
#include "tools/record/symbols.h"

#include "tools/record/record.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct symbol {
        uint64_t address;
        char *name;
};

struct symbols {
        struct symbol *symbol; /* ascending */
        size_t count;
};

static int by_address(const void *a, const void *b)
{
        uint64_t left = ((const struct symbol *)a)->address;
        uint64_t right = ((const struct symbol *)b)->address;

        return left < right ? -1 : left > right;
}

struct symbols *symbols_read(void)
{
        struct symbols *symbols = calloc(1, sizeof(*symbols));
        FILE *file = fopen("/proc/kallsyms", "re");
        char line[1024];
        char name[512];
        uint64_t address;

        if (!symbols)
                die("no memory");
        while (file && fgets(line, sizeof(line), file)) {
                if (sscanf(line, "%" SCNx64 " %*c %511s", &address, name) != 2 || !address)
                        continue;
                if (symbols->count % 4096 == 0)
                        symbols->symbol = realloc(symbols->symbol,
                                                  (symbols->count + 4096) * sizeof(struct symbol));
                if (!symbols->symbol || !(symbols->symbol[symbols->count].name = strdup(name)))
                        die("no memory");
                symbols->symbol[symbols->count++].address = address;
        }
        if (file)
                fclose(file);
        if (symbols->count)
                qsort(symbols->symbol, symbols->count, sizeof(struct symbol), by_address);
        return symbols;
}

void symbols_name(const struct symbols *symbols, uint64_t address, char *text, size_t bytes)
{
        size_t first = 0;
        size_t end = symbols->count;

        /* Finds the last symbol that does not lie behind the address. */
        while (first < end) {
                size_t middle = first + (end - first) / 2;

                if (symbols->symbol[middle].address <= address)
                        first = middle + 1;
                else
                        end = middle;
        }
        if (first)
                snprintf(text, bytes, "%s+0x%" PRIx64, symbols->symbol[first - 1].name,
                         address - symbols->symbol[first - 1].address);
        else
                snprintf(text, bytes, "0x%" PRIx64, address);
}
