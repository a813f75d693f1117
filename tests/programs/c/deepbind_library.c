/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Loaded with RTLD_DEEPBIND: frees the program's objects, and the program frees this library's. */
#include <stdlib.h>
#include <string.h>

char *library_duplicate(const char *text);
void *library_allocate(size_t bytes);
void *library_resize(void *object, size_t bytes);
void library_free(void *object);

char *library_duplicate(const char *text)
{
        return strdup(text);
}

void *library_allocate(size_t bytes)
{
        return malloc(bytes);
}

void *library_resize(void *object, size_t bytes)
{
        return realloc(object, bytes);
}

void library_free(void *object)
{
        free(object);
}
