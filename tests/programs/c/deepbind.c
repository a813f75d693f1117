/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Exchanges objects with a library (argv[1]) loaded with RTLD_DEEPBIND. The library's own lookups
 * would find libc's malloc first.
 */
#define _GNU_SOURCE
#include <dlfcn.h>

#include "check.h"

static void *symbol(void *library, const char *name)
{
        void *address = dlsym(library, name);

        check(address != NULL);
        return address;
}

int main(int argc, char **argv)
{
        char *(*duplicate)(const char *);
        void *(*allocate)(size_t);
        void *(*resize)(void *, size_t);
        void (*release)(void *);
        void *library;

        check(argc == 2);
        watchdog(60);
        library = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND);
        check(library != NULL);
        duplicate = (char *(*)(const char *))symbol(library, "library_duplicate");
        allocate = (void *(*)(size_t))symbol(library, "library_allocate");
        resize = (void *(*)(void *, size_t))symbol(library, "library_resize");
        release = (void (*)(void *))symbol(library, "library_free");

        for (size_t bytes = 1; bytes < (3u << 20); bytes += bytes / 5 + 1) {
                unsigned char *ours = opaque(malloc(bytes));
                unsigned char *theirs = allocate(bytes);

                check(ours != NULL && theirs != NULL);
                fill(ours, bytes, 1);
                fill(theirs, bytes, 2);
                ours = resize(ours, bytes * 2);
                theirs = realloc(theirs, bytes * 2);
                check(ours != NULL && theirs != NULL);
                check(intact(ours, bytes, 1) && intact(theirs, bytes, 2));
                release(ours);
                free(theirs);
        }
        for (int i = 0; i < 10000; i++) {
                char *text = duplicate("a text that is copied");

                check(strcmp(text, "a text that is copied") == 0);
                free(text);
                release(strdup("the other way round"));
        }
        check(dlclose(library) == 0);
        puts("ok");
        return 0;
}
