/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * attributes: prints the table of attributes (introspect/attributes.c) as CSV, for readers in other
 * languages. python/kmem/common/attributes.csv is a copy; tests/command/test_attrs.py compares the
 * two.
 *
 *   name     of the file
 *   format   of its text (docs/attributes.md)
 *   written  nothing, by the program itself, or from outside too
 *   most     the largest number that may be written; empty if the cache decides
 */
#include "introspect/attributes.h"

#include <stdio.h>

static const char *format_of(const struct attribute *attribute)
{
        static const struct {
                void (*show)(const struct attribute *attribute, struct kmem_cache *cache,
                             struct text *text);
                const char *format;
        } formats[] = {
                {show_number, "number"},
                {show_min_partial, "number"},
                {show_aliases, "number"},
                {show_defrag_ratio, "number"},
                {show_objects_inuse, "number"},
                {show_errors, "number"},
                {show_flag, "flag"},
                {show_failslab, "flag"},
                {show_skip_kfence, "flag"},
                {show_nodes, "nodes"},
                {show_objects, "nodes"},
                {show_slabs_cpu_partial, "cpu_partial"},
                {show_counter, "counter"},
                {show_ctor, "constructor"},
                {show_engine, "word"},
                {show_nothing, "nothing"},
                {show_traces, "traces"},
        };

        for (size_t i = 0; i < array_size(formats); i++)
                if (formats[i].show == attribute->show)
                        return formats[i].format;
        return NULL;
}

int main(void)
{
        printf("name,format,written,most\n");
        for (size_t i = 0; i < attribute_count; i++) {
                const struct attribute *attribute = &attributes[i];
                const char *format = format_of(attribute);

                if (!format) {
                        fprintf(stderr, "attribute %s: its format has no name here\n",
                                attribute->name);
                        return 1;
                }
                printf("%s,%s,%s,", attribute->name, format,
                       attribute->outside ? "outside"
                       : attribute->store ? "program"
                                          : "");
                if (attribute->most)
                        printf("%lu", (unsigned long)attribute->most);
                printf("\n");
        }
        return fflush(stdout) || ferror(stdout);
}
