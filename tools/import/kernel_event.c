/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Events of the kmem tracepoints, by their fields, whatever tool printed them. Kernels have added and
 * moved some fields:
 *
 *   before 5.6 to 5.11   call_site is a bare number, later a symbol (%pS)
 *   before 5.11          kmem_cache_free has no name
 *   before 6.1           _node events have a node
 *   since 6.1            kmalloc and kmem_cache_alloc have node and accounted
 *   6.12 and older       kmem_cache_alloc has no name
 *   6.18, 7.2            kmem_cache_alloc has a name; the name stands before or behind ptr
 *
 * and pointers are hashed by %p since 4.15, which keeps different ones different. An allocation of
 * an unnamed cache gets the name "?function:bytes", as a recording has it (tools/record).
 */
#include "tools/import/kernel_event.h"

#include "lang/number.h"

#include <stdio.h>
#include <string.h>

enum { NAME_BYTES = 64, FUNCTION_BYTES = 31 };

static const struct kernel_kind kinds[] = {
        {"kmalloc", 7, TRACE_ALLOC, true},
        {"kmem_cache_alloc", 16, TRACE_ALLOC, false},
        {"kfree", 5, TRACE_FREE | TRACE_KFREE, true},
        {"kmem_cache_free", 15, TRACE_FREE, false},
        {"kmalloc_node", 12, TRACE_ALLOC, true},
        {"kmem_cache_alloc_node", 21, TRACE_ALLOC, false},
};

/* Lines about many objects at once, which none of them names. */
static const char *const bulk_names[] = {"kmem_cache_alloc_bulk", "kmem_cache_free_bulk",
                                         "kfree_bulk"};

/* gfp bits of Linux 6.1, by the names that it and older kernels print. */
static const struct flag {
        const char *name;
        uint32_t bits;
} flags[] = {
        {"GFP_KERNEL", 0xcc0},
        {"GFP_KERNEL_ACCOUNT", 0x400cc0},
        {"GFP_ATOMIC", 0xa20},
        {"GFP_NOWAIT", 0x800},
        {"GFP_NOIO", 0xc00},
        {"GFP_NOFS", 0xc40},
        {"GFP_USER", 0x100cc0},
        {"GFP_TEMPORARY", 0xcd0},
        {"GFP_HIGHUSER", 0x100cc2},
        {"GFP_HIGHUSER_MOVABLE", 0x100cca},
        {"GFP_TRANSHUGE", 0x1c24ca},
        {"GFP_TRANSHUGE_LIGHT", 0x1c20ca},
        {"GFP_DMA", 0x1},
        {"GFP_DMA32", 0x4},
        {"__GFP_DMA", 0x1},
        {"__GFP_HIGHMEM", 0x2},
        {"__GFP_DMA32", 0x4},
        {"__GFP_MOVABLE", 0x8},
        {"GFP_MOVABLE", 0x8},
        {"__GFP_RECLAIMABLE", 0x10},
        {"GFP_RECLAIMABLE", 0x10},
        {"__GFP_HIGH", 0x20},
        {"GFP_HIGH", 0x20},
        {"__GFP_IO", 0x40},
        {"GFP_IO", 0x40},
        {"__GFP_FS", 0x80},
        {"GFP_FS", 0x80},
        {"__GFP_ZERO", 0x100},
        {"GFP_ZERO", 0x100},
        {"__GFP_ATOMIC", 0x200},
        {"__GFP_DIRECT_RECLAIM", 0x400},
        {"__GFP_KSWAPD_RECLAIM", 0x800},
        {"__GFP_RECLAIM", 0xc00},
        {"__GFP_WAIT", 0x400},
        {"GFP_WAIT", 0x400},
        {"__GFP_WRITE", 0x1000},
        {"__GFP_NOWARN", 0x2000},
        {"GFP_NOWARN", 0x2000},
        {"__GFP_RETRY_MAYFAIL", 0x4000},
        {"__GFP_REPEAT", 0x4000},
        {"GFP_REPEAT", 0x4000},
        {"__GFP_NOFAIL", 0x8000},
        {"GFP_NOFAIL", 0x8000},
        {"__GFP_NORETRY", 0x10000},
        {"GFP_NORETRY", 0x10000},
        {"__GFP_MEMALLOC", 0x20000},
        {"__GFP_COMP", 0x40000},
        {"GFP_COMP", 0x40000},
        {"__GFP_NOMEMALLOC", 0x80000},
        {"GFP_NOMEMALLOC", 0x80000},
        {"__GFP_HARDWALL", 0x100000},
        {"GFP_HARDWALL", 0x100000},
        {"__GFP_THISNODE", 0x200000},
        {"GFP_THISNODE", 0x200000},
        {"__GFP_ACCOUNT", 0x400000},
};

bool part_is(struct part part, const char *text)
{
        return part.length == strlen(text) && memcmp(part.text, text, part.length) == 0;
}

const struct kernel_kind *kernel_kind(const char *text, char end)
{
        if (*text != 'k')
                return NULL;
        for (size_t i = 0; i < sizeof(kinds) / sizeof(*kinds); i++)
                if (strncmp(text, kinds[i].name, kinds[i].length) == 0 &&
                    text[kinds[i].length] == end)
                        return &kinds[i];
        return NULL;
}

bool kernel_is_bulk(const char *text)
{
        for (size_t i = 0; i < sizeof(bulk_names) / sizeof(*bulk_names); i++) {
                size_t length = strlen(bulk_names[i]);

                if (strncmp(text, bulk_names[i], length) == 0 && text[length] == ':')
                        return true;
        }
        return false;
}

struct part *kernel_field(struct kernel_fields *fields, struct part key)
{
        if (part_is(key, "call_site"))
                return &fields->call_site;
        if (part_is(key, "ptr"))
                return &fields->pointer;
        if (part_is(key, "bytes_req"))
                return &fields->requested;
        if (part_is(key, "bytes_alloc"))
                return &fields->given;
        if (part_is(key, "gfp_flags"))
                return &fields->flags;
        return part_is(key, "name") ? &fields->name : NULL;
}

/* Names of caches may have blanks, so a name goes to the next field, "ptr=" or another. */
static const char *end_of_name(const char *text)
{
        const char *blank = text;

        while ((blank = strchr(blank, ' '))) {
                const char *key = blank + 1 + strspn(blank + 1, "abcdefghijklmnopqrstuvwxyz_");

                if (*key == '=' && key != blank + 1)
                        return blank;
                blank++;
        }
        return line_trim(text, text + strlen(text));
}

struct kernel_fields kernel_fields(const char *text)
{
        struct kernel_fields fields = {0};

        while (*text) {
                struct part key = {.text = text};
                struct part *field;
                const char *value;
                const char *end;

                while ((*text >= 'a' && *text <= 'z') || *text == '_')
                        text++;
                if (text == key.text || *text != '=') {
                        text += strcspn(text, " ");
                        text += strspn(text, " ");
                        continue;
                }
                key.length = (size_t)(text - key.text);
                value = ++text;
                field = kernel_field(&fields, key);
                end = field == &fields.name ? end_of_name(value) : value + strcspn(value, " ");
                /* "ptr=          (null)": kernels before 4.15 fill it up to the width of a pointer. */
                if (field == &fields.pointer && end == value && value[strspn(value, " ")] == '(') {
                        value += strspn(value, " ");
                        end = value + strcspn(value, " ");
                }
                /* Some recordings of 2025 print no blank behind a number of bytes. */
                if (field == &fields.requested || field == &fields.given) {
                        const char *behind = value + strspn(value, "0123456789");

                        if (strncmp(behind, "bytes_", 6) == 0 || strncmp(behind, "gfp_", 4) == 0)
                                end = behind;
                }
                if (field)
                        *field = (struct part){value, (size_t)(end - value)};
                text = end + strspn(end, " ");
        }
        return fields;
}

bool kernel_address(struct part part, uint64_t *address)
{
        char small[20];
        const char *text = small;

        if (part.length >= sizeof(small))
                return false;
        for (size_t i = 0; i < part.length; i++) {
                bool is_large = part.text[i] >= 'A' && part.text[i] <= 'X';

                small[i] = (char)(is_large ? part.text[i] | 0x20 : part.text[i]);
        }
        small[part.length] = '\0';
        if (small[0] == '0' && small[1] == 'x')
                text += 2;
        return number_scan(&text, 16, address) == NUMBER_READ && !*text;
}

bool kernel_number(struct part part, uint64_t most, uint64_t *number)
{
        const char *text = part.text;

        return text && number_scan(&text, 10, number) == NUMBER_READ &&
               text == part.text + part.length && *number <= most;
}

static uint32_t bits_of(struct part part)
{
        uint32_t bits = 0;
        uint64_t number;

        if (part.length && *part.text >= '0' && *part.text <= '9')
                return kernel_address(part, &number) ? (uint32_t)number : 0;
        while (part.length) {
                const char *bar = memchr(part.text, '|', part.length);
                struct part name = {part.text, bar ? (size_t)(bar - part.text) : part.length};

                for (size_t i = 0; i < sizeof(flags) / sizeof(*flags); i++)
                        if (part_is(name, flags[i].name))
                                bits |= flags[i].bits;
                part.text += name.length + (bar != NULL);
                part.length -= name.length + (bar != NULL);
        }
        return bits;
}

static uint32_t read_flags(struct import *import, struct part part, bool is_decimal)
{
        uint64_t number;
        uint32_t before = import->flags.count;
        struct text *known;

        if (is_decimal && kernel_number(part, UINT64_MAX, &number))
                return (uint32_t)number;
        known = texts_find(&import->flags, part.text ? part.text : "", part.length);
        if (!known)
                return bits_of(part);
        if (import->flags.count != before)
                known->value = bits_of(part);
        return (uint32_t)known->value;
}

static uint16_t cache_by_name(struct import *import, const char *name, size_t length)
{
        uint32_t before = import->caches.count;
        struct text *known;

        if (length > NAME_BYTES - 1)
                length = NAME_BYTES - 1;
        known = texts_find(&import->caches, name, length);
        if (!known)
                return TRACE_CACHE_UNKNOWN;
        if (import->caches.count != before)
                known->value = lives_cache(import->lives, texts_name(&import->caches, known));
        return (uint16_t)known->value;
}

static uint16_t cache_of(struct import *import, const struct kernel_kind *kind,
                         const struct kernel_fields *fields, struct part site, uint64_t bytes)
{
        char name[NAME_BYTES];
        int length;

        if (kind->by_size)
                return kind->operation == TRACE_ALLOC ? TRACE_CACHE_KMALLOC : TRACE_CACHE_UNKNOWN;
        if (fields->name.length)
                return cache_by_name(import, fields->name.text, fields->name.length);
        if (kind->operation != TRACE_ALLOC)
                return TRACE_CACHE_UNKNOWN;
        for (size_t i = 0; i < site.length; i++)
                if (site.text[i] == '+')
                        site.length = i;
        length = snprintf(name, sizeof(name), "?%.*s:%llu",
                          (int)(site.length > FUNCTION_BYTES ? FUNCTION_BYTES : site.length),
                          site.text ? site.text : "", (unsigned long long)bytes);
        return cache_by_name(import, name, (size_t)length);
}

/* "symbol+0x1a/0x200" without the function's size. */
static struct part site_of(struct part part)
{
        const char *slash = part.length ? memchr(part.text, '/', part.length) : NULL;

        if (slash)
                part.length = (size_t)(slash - part.text);
        return part;
}

enum line_kind kernel_event(struct import *import, const struct kernel_kind *kind,
                            const struct kernel_fields *fields, struct lives_event *event)
{
        struct part site = site_of(fields->call_site);

        event->operation |= kind->operation;
        if (!fields->pointer.text)
                return line_bad(import, "%s without ptr", kind->name);
        if (kind->operation == TRACE_ALLOC &&
            !kernel_number(fields->requested, UINT64_MAX, &event->requested))
                return line_bad(import, "%s: expected a number of bytes in bytes_req", kind->name);
        if (fields->given.text && !kernel_number(fields->given, UINT64_MAX, &event->given))
                return line_bad(import, "%s: expected a number of bytes in bytes_alloc",
                                kind->name);
        if (*fields->pointer.text == '(') {
                /* "(null)" and "(nil)", or "(____ptrval____)" of a kernel that has just started. */
                if (fields->pointer.length > 1 && fields->pointer.text[1] == '_')
                        import->hidden++;
                else
                        import->failed++;
                return LINE_TAKEN;
        }
        if (!kernel_address(fields->pointer, &event->address))
                return line_bad(import, "%s: expected an address in ptr, not \"%.*s\"", kind->name,
                                (int)(fields->pointer.length > 40 ? 40 : fields->pointer.length),
                                fields->pointer.text);
        if (event->address < ADDRESS_LEAST) {
                import->failed++;
                return LINE_TAKEN;
        }
        event->flags = read_flags(import, fields->flags, fields->decimal_flags);
        event->cache = cache_of(import, kind, fields, site, event->requested);
        import_event(import, event, site.text, site.length);
        return LINE_TAKEN;
}
