/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * where: prints the name of each call of malloc's family and the file it comes from in this
 * process, a line a call: "malloc /usr/lib/libexample.so". So it shows whether a preloaded library
 * replaces all of them. Exit code 1 if a call is missing or does not work.
 */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const calls[] = {
        "malloc",
        "calloc",
        "realloc",
        "free",
        "posix_memalign",
        "aligned_alloc",
        "malloc_usable_size",
};

/* Blocks of some sizes can be had, written, grown and freed. */
static int works(void)
{
        for (size_t bytes = 1; bytes <= (size_t)1 << 22; bytes *= 2) {
                char *block = malloc(bytes);
                char *grown;

                if (!block)
                        return 0;
                memset(block, 7, bytes);
                grown = realloc(block, bytes * 2);
                if (!grown) {
                        free(block);
                        return 0;
                }
                if (grown[0] != 7 || grown[bytes - 1] != 7)
                        return 0;
                free(grown);
        }
        return 1;
}

int main(void)
{
        for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++) {
                void *address = dlsym(RTLD_DEFAULT, calls[i]);
                Dl_info info;

                if (!address || !dladdr(address, &info)) {
                        fprintf(stderr, "where: no %s\n", calls[i]);
                        return 1;
                }
                printf("%s %s\n", calls[i], info.dli_fname);
        }
        if (!works()) {
                fprintf(stderr, "where: malloc does not work\n");
                return 1;
        }
        return 0;
}
