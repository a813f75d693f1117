/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * A process that allocates nothing has no heap, and gets it with its first allocation. The test
 * sees this in the reserved address space.
 */
#include <fcntl.h>

#include "check.h"

#define RESERVED_LEAST (1ul << 30)

static int has_reservation(void)
{
        static char maps[1 << 16];
        int file = open("/proc/self/maps", O_RDONLY);
        size_t used = 0;
        ssize_t got;

        check(file >= 0);
        while ((got = read(file, maps + used, sizeof(maps) - 1 - used)) > 0)
                used += (size_t)got;
        check(got == 0 && used < sizeof(maps) - 1);
        maps[used] = '\0';
        close(file);
        for (char *line = maps; *line; line = strchr(line, '\n') + 1) {
                char *rest;
                unsigned long start = strtoul(line, &rest, 16);
                unsigned long end = strtoul(rest + 1, &rest, 16);

                if (strncmp(rest, " ---p ", 6) == 0 && end - start >= RESERVED_LEAST)
                        return 1;
        }
        return 0;
}

int main(void)
{
        char *volatile block;

        check(!has_reservation());
        block = malloc(10);
        check(block && has_reservation());
        free(block);
        puts("ok");
        return 0;
}
