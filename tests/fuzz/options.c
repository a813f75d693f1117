/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Settings. If an input's first byte is even, it is the text of KMEM_OPTIONS; otherwise it is the
 * content of a file that KMEM_OPTIONS names. No input names another file: reading it might never
 * end.
 */
#define _GNU_SOURCE
#include "target.h"

#include "base/options.c"

#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

static void start_anew(void)
{
        static struct options first;
        static bool known;

        if (!known)
                first = options;
        known = true;
        options = first;
        memset(cache_values, 0, sizeof(cache_values));
        cache_value_count = 0;
}

/* Every value that can be asked for is a valid value of its setting. */
static void look_at_values(void)
{
        static const char *const names[] = {"", "kmalloc-64", "a.b", "#x"};

        for (unsigned int option = 0; option < CACHE_OPTIONS; option++) {
                const struct setting *setting = &cache_settings[option];

                for (size_t i = 0; i < array_size(names); i++) {
                        uint64_t value = setting->least;

                        options_for_cache(names[i], option, &value);
                        if (setting->kind == KIND_NUMBER)
                                expect(value >= setting->least && value <= setting->most);
                }
                options_given(option);
        }
        for (size_t i = 0; i < array_size(settings); i++) {
                const char *place = (const char *)&options + settings[i].offset;
                uint64_t value;

                memcpy(&value, place, sizeof(value));
                if (settings[i].kind == KIND_NUMBER)
                        expect(value <= settings[i].most ||
                               settings[i].offset == PLACE(slab_max_order));
                if (settings[i].kind == KIND_TEXT)
                        expect(strnlen(place, sizeof(options.slabinfo)) < sizeof(options.slabinfo));
        }
        expect(options.slub_min_order <= options.slub_max_order);
        expect(options.failslab.probability <= 100);
        expect(options.failslab.interval || !options.failslab.probability);
        expect(options.slob_breaks.count <= array_size(options.slob_breaks.sizes));
}

static const char *file_of(const char *text, size_t length)
{
        static char path[64];
        static int file = -1;

        if (file < 0)
                file = memfd_create("options", MFD_CLOEXEC);
        expect(file >= 0 && !ftruncate(file, 0) &&
               pwrite(file, text, length, 0) == (ssize_t)length);
        snprintf(path, sizeof(path), "@/proc/self/fd/%d", file);
        return path;
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
        char *text;

        if (!size || size > 2 * TEXT_BYTES)
                return 0;
        text = malloc(size);
        expect(text != NULL);
        memcpy(text, bytes + 1, size - 1);
        text[size - 1] = '\0';
        for (char *at = text; !(*bytes & 1) && (at = strchr(at, '@')); at++)
                *at = 'a';
        setenv("KMEM_OPTIONS", *bytes & 1 ? file_of(text, size - 1) : text, 1);
        start_anew();
        options_init();
        look_at_values();
        free(text);
        return 0;
}
