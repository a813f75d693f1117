/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* glibc's calls to look at and tune malloc: of the process's heap, which may be another library's. */
#define _GNU_SOURCE
#include "malloc/malloc.h"

#include "heap/soft_limit.h"
#include "machine/message.h"
#include "introspect/totals.h"
#include "lang/text.h"
#include "profile/guard.h"

#include <errno.h>
#include <malloc.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* glibc's, for programs that were built with it; musl has none of these calls. */
#ifndef __GLIBC__
struct mallinfo {
        int arena, ordblks, smblks, hblks, hblkhd, usmblks, fsmblks, uordblks, fordblks, keepcost;
};
#define LACKS_MALLINFO2
#elif !__GLIBC_PREREQ(2, 33)
#define LACKS_MALLINFO2
#endif
#ifdef LACKS_MALLINFO2
struct mallinfo2 {
        size_t arena, ordblks, smblks, hblks, hblkhd, usmblks, fsmblks, uordblks, fordblks,
                keepcost;
};
KMEM_PUBLIC struct mallinfo2 mallinfo2(void);
#endif
#ifndef __GLIBC__
KMEM_PUBLIC int malloc_trim(size_t keep);
KMEM_PUBLIC struct mallinfo mallinfo(void);
KMEM_PUBLIC int malloc_info(int flags, FILE *stream);
KMEM_PUBLIC void malloc_stats(void);
KMEM_PUBLIC int mallopt(int parameter, int value);
#endif

enum {
        TRIM_REST = 19, /* a pause after each trim of that many times its duration */
        TRIM_REST_MAX_NS = 10000000,
};

/*
 * Empties all sheaves, frees empty slabs and gives free pages back, but keeps @keep bytes of them.
 * Returns 1 if memory went back to the system, else 0.
 *
 * The pause keeps trims to a twentieth of the time of a program that calls this all the time: after
 * a trim the function does nothing and returns 0 for 19 times as long as the trim took, but 10 ms at
 * most (decisions/0019).
 */
KMEM_PUBLIC int malloc_trim(size_t keep)
{
        static uint64_t due; /* relaxed; two at once both trim, and either sets the next time */
        uint64_t begin;
        uint64_t end;
        size_t bytes;

        if (!heap_ready() && !heap_is_foreign())
                return 0;
        begin = system_time_ns();
        if (begin < load_relaxed(&due))
                return 0;
        bytes = bound.calls->trim(keep);
        end = system_time_ns();
        store_relaxed(&due, end + min_of(TRIM_REST * (end - begin), (uint64_t)TRIM_REST_MAX_NS));
        return bytes > 0;
}

/* Hardened blocks (protect=hardened) have memory of their own beside the heap's pages. */
static size_t hardened_system_bytes(const struct heap_totals *totals)
{
        return totals->hardened.slab_bytes + totals->hardened.large_bytes;
}

/* Bounds each part by the whole: threads that work meanwhile could make it larger. */
static struct mallinfo2 info_of(const struct heap_totals *totals)
{
        size_t pages = totals->pages.used_pages + totals->pages.free_touched_pages;
        struct mallinfo2 info = {
                .arena = pages * PAGE_SIZE + hardened_system_bytes(totals),
                .ordblks = totals->objects_free,
                .hblks = totals->large.huge_blocks,
                .hblkhd = totals->large.huge_bytes,
                .keepcost = totals->pages.free_touched_pages * PAGE_SIZE,
        };

        info.uordblks =
                min_of((size_t)(totals->object_bytes_inuse + totals->large.bytes), info.arena);
        info.fordblks = info.arena - info.uordblks;
        return info;
}

/*
 * The meaning of the fields: arena: bytes of the heap in use or free but touched; uordblks: bytes
 * that the program has, by the size of objects; fordblks: all other bytes, in slabs, sheaves and
 * pages, so that the two add up to the arena, as with glibc; keepcost: free touched pages, a part
 * of fordblks; ordblks: free objects in slabs and sheaves; hblks, hblkhd: huge mappings and their
 * bytes, which are in none of the others. smblks, usmblks and fsmblks are 0.
 *
 * With protect=hardened the slabs and the large blocks of its back end are a part of the arena: its
 * blocks of any size of uordblks, the rest of the slabs of fordblks. Its free objects are in no count.
 */
KMEM_PUBLIC struct mallinfo2 mallinfo2(void)
{
        struct heap_totals totals;

        if (!bound.calls->total(&totals))
                return (struct mallinfo2){0};
        return info_of(&totals);
}

/* mallinfo2 in int, cut off at its limit. */
KMEM_PUBLIC struct mallinfo mallinfo(void)
{
        struct mallinfo2 wide = mallinfo2();
        struct mallinfo info = {
                .arena = (int)min_of(wide.arena, (size_t)INT32_MAX),
                .ordblks = (int)min_of(wide.ordblks, (size_t)INT32_MAX),
                .hblks = (int)min_of(wide.hblks, (size_t)INT32_MAX),
                .hblkhd = (int)min_of(wide.hblkhd, (size_t)INT32_MAX),
                .uordblks = (int)min_of(wide.uordblks, (size_t)INT32_MAX),
                .fordblks = (int)min_of(wide.fordblks, (size_t)INT32_MAX),
                .keepcost = (int)min_of(wide.keepcost, (size_t)INT32_MAX),
        };

        return info;
}

/*
 * Bytes of the UTF-8 character beyond ASCII that @text begins with. 0 if it is no character of XML,
 * as when a long name was cut off inside a character.
 */
static size_t wide_character(const char *text)
{
        static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
        const unsigned char *byte = (const unsigned char *)text;
        size_t bytes = byte[0] < 0xe0 ? 2 : byte[0] < 0xf0 ? 3 : 4;
        uint32_t number = byte[0] & (0x7fu >> bytes);

        if (byte[0] < 0xc0 || byte[0] >= 0xf8)
                return 0;
        for (size_t i = 1; i < bytes; i++) {
                if ((byte[i] & 0xc0) != 0x80)
                        return 0;
                number = number << 6 | (byte[i] & 0x3f);
        }
        if (number < least[bytes] || number > 0x10ffff || (number >= 0xd800 && number < 0xe000) ||
            number == 0xfffe || number == 0xffff)
                return 0;
        return bytes;
}

/*
 * Escapes a name, which may be any text, for XML. XML lacks most control characters; they become
 * '!', as in the slab table, and so do bytes that are no character.
 */
static void escape(const char *name, char *escaped)
{
        size_t wide;

        for (; *name; name++) {
                wide = wide_character(name);
                if (wide) {
                        escaped = mempcpy(escaped, name, wide);
                        name += wide - 1;
                        continue;
                }
                if (*name == '<')
                        escaped = stpcpy(escaped, "&lt;");
                else if (*name == '>')
                        escaped = stpcpy(escaped, "&gt;");
                else if (*name == '&')
                        escaped = stpcpy(escaped, "&amp;");
                else if (*name == '"')
                        escaped = stpcpy(escaped, "&quot;");
                else
                        *escaped++ = *name >= ' ' && *name <= '~' ? *name : '!';
        }
        *escaped = '\0';
}

static void print_sizes(FILE *stream)
{
        struct kmem_cache_info info = {.size = sizeof(info)};
        uint64_t position = 0;

        /* Printing may allocate: the walk holds no lock between its steps. */
        while (kmem_cache_next(&position, &info) == 1) {
                char escaped[sizeof("&quot;") * KMEM_NAME_BYTES];

                escape(info.name, escaped);
                fprintf(stream, "  <size name=\"%s\" bytes=\"%u\" inuse=\"%lu\" total=\"%lu\"/>\n",
                        escaped, info.slab_size, (unsigned long)info.objects_inuse,
                        (unsigned long)info.num_objs);
                info.size = sizeof(info);
        }
}

/* Blocks of size classes and large blocks, and the freed blocks that wait. */
static void print_hardened(FILE *stream, const struct hardened_counts *counts)
{
        fprintf(stream,
                "  <protect level=\"hardened\" inuse=\"%lu\" bytes=\"%lu\" large=\"%lu\" "
                "slabs=\"%lu\" waiting=\"%lu\" waitingmax=\"%lu\" closed=\"%lu\"/>\n",
                (unsigned long)counts->blocks, (unsigned long)counts->bytes,
                (unsigned long)counts->large_bytes, (unsigned long)counts->slab_bytes,
                (unsigned long)counts->waiting_bytes, (unsigned long)counts->waiting_bytes_max,
                (unsigned long)counts->closed_bytes);
}

/* Sampled guards; only where there were any. */
static void print_guards(FILE *stream)
{
        fprintf(stream, "<guards made=\"%lu\" live=\"%lu\" missed=\"%lu\" faults=\"%lu\"/>\n",
                (unsigned long)load_relaxed(&guard_figures.made),
                (unsigned long)load_relaxed(&guard_figures.live),
                (unsigned long)load_relaxed(&guard_figures.missed),
                (unsigned long)load_relaxed(&guard_figures.faults));
}

/* Option soft_limit; only where a limit was found. */
static void print_soft_limit(FILE *stream)
{
        fprintf(stream, "<softlimit bytes=\"%lu\" trims=\"%lu\" given=\"%lu\"/>\n",
                (unsigned long)load_relaxed(&soft_limit_figures.bytes),
                (unsigned long)load_relaxed(&soft_limit_figures.trims),
                (unsigned long)load_relaxed(&soft_limit_figures.given_back_bytes));
}

/*
 * Writes XML like glibc's, with a <size> for each cache, and bytes in use besides glibc's figures.
 * The figures are mallinfo2's; the maximum from the system is the size that the heap has grown to, and
 * what hardened blocks have now.
 * @flags must be 0, else EINVAL. Returns 0, or -1 with errno.
 */
KMEM_PUBLIC int malloc_info(int flags, FILE *stream)
{
        struct heap_totals totals;
        struct mallinfo2 info;
        char whole[400];
        size_t grown;

        if (flags != 0) {
                errno = EINVAL;
                return -1;
        }
        if (!bound.calls->total(&totals)) {
                errno = ENOMEM;
                return -1;
        }
        info = info_of(&totals);
        grown = totals.pages.accessible_pages * PAGE_SIZE + hardened_system_bytes(&totals);
        text_print(whole, sizeof(whole),
                   "<system type=\"current\" size=\"%zu\"/>\n"
                   "<system type=\"max\" size=\"%zu\"/>\n"
                   "<aspace type=\"total\" size=\"%zu\"/>\n"
                   "<aspace type=\"mprotect\" size=\"%zu\"/>\n",
                   info.arena, grown, grown, grown);
        fprintf(stream, "<malloc version=\"1\" allocator=\"libkmem\">\n<heap nr=\"0\">\n<sizes>\n");
        print_sizes(stream);
        if (totals.hardened.waiting_bytes_max)
                print_hardened(stream, &totals.hardened);
        fprintf(stream,
                "</sizes>\n<total type=\"inuse\" size=\"%zu\"/>\n"
                "<total type=\"fast\" count=\"0\" size=\"0\"/>\n"
                "<total type=\"rest\" count=\"%zu\" size=\"%zu\"/>\n%s</heap>\n",
                info.uordblks, info.ordblks, info.fordblks, whole);
        if (load_relaxed(&guard_region_bytes))
                print_guards(stream);
        if (load_relaxed(&soft_limit_figures.bytes))
                print_soft_limit(stream);
        fprintf(stream,
                "<total type=\"fast\" count=\"0\" size=\"0\"/>\n"
                "<total type=\"rest\" count=\"%zu\" size=\"%zu\"/>\n"
                "<total type=\"mmap\" count=\"%zu\" size=\"%zu\"/>\n%s</malloc>\n",
                info.ordblks, info.fordblks, info.hblks, info.hblkhd, whole);
        return 0;
}

static void print_arena(const char *title, size_t system_bytes, size_t bytes_in_use)
{
        message_print(STDERR_FILENO, "%s:\nsystem bytes     = %10zu\nin use bytes     = %10zu\n",
                      title, system_bytes, bytes_in_use);
}

/*
 * Prints on standard error the lines that programs which read glibc's look for, in glibc's form and
 * by mallinfo2's figures: the heap as the single arena, and huge blocks as mmap. The slab table
 * follows.
 */
KMEM_PUBLIC void malloc_stats(void)
{
        struct heap_totals totals;
        struct mallinfo2 info;

        if (!bound.calls->total(&totals))
                return;
        info = info_of(&totals);
        print_arena("Arena 0", info.arena, info.uordblks);
        print_arena("Total (incl. mmap)", info.arena + info.hblkhd, info.uordblks + info.hblkhd);
        message_print(STDERR_FILENO, "max mmap regions = %10zu\nmax mmap bytes   = %10zu\n",
                      totals.large.huge_peak_blocks, totals.large.huge_peak_bytes);
        bound.calls->print_slabs(STDERR_FILENO);
}

/*
 * Accepts every parameter of glibc's and ignores it: arenas, thresholds and trimming have no
 * counterpart here; purge_delay, reserve and bad_free are set by KMEM_OPTIONS. Returns 1, or 0
 * for a parameter that glibc does not know.
 */
KMEM_PUBLIC int mallopt(int parameter, int value)
{
        const int last = -8; /* M_ARENA_MAX */
        const int first = 4; /* M_KEEP */

        (void)value;
        return parameter >= last && parameter <= first && parameter != 0;
}
