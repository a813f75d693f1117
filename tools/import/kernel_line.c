/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * A line about a kmem tracepoint, as ftrace, trace-cmd report and perf script print it, from 2.6.32
 * on:
 *
 *     bash-1234    [002] d..1.  123.456789: kmalloc: call_site=... ptr=... bytes_req=...
 *     bash-1234  [002]   123.456789: kmalloc:   (f+0x1a) call_site=f+0x1a ptr=0x... bytes_req=...
 *     bash-1234    2d..1.  123.456789: kmalloc:   (f+0x1a) call_site=f+0x1a ptr=0x... bytes_req=...
 *     bash  1234/1234 [002]   123.456789:   kmem:kmalloc: call_site=... ptr=... bytes_req=...
 *     bash-1234    2d..1. 123456us : kmalloc: call_site=... ptr=... bytes_req=...
 *
 * The task's name may have any byte, so the line is read from the event's name to the left. Fields
 * are found by name, because kernels have added and moved some:
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
#include "tools/import/import.h"

#include "lang/number.h"

#include <stdio.h>
#include <string.h>

enum { NAME_BYTES = 64, FUNCTION_BYTES = 31, FRACTION_DIGITS = 9 };

static const struct kind {
        const char *name;
        size_t length;
        uint8_t operation;
        bool by_size;
} kinds[] = {
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

/* A part of the line. */
struct part {
        const char *text;
        size_t length;
};

struct fields {
        struct part call_site, pointer, requested, given, flags, name;
};

static bool is(struct part part, const char *text)
{
        return part.length == strlen(text) && memcmp(part.text, text, part.length) == 0;
}

/* The kind of event whose name and colon begin at @text. */
static const struct kind *kind_at(const char *text)
{
        if (*text != 'k')
                return NULL;
        for (size_t i = 0; i < sizeof(kinds) / sizeof(*kinds); i++)
                if (strncmp(text, kinds[i].name, kinds[i].length) == 0 &&
                    text[kinds[i].length] == ':')
                        return &kinds[i];
        return NULL;
}

static bool is_bulk(const char *text)
{
        for (size_t i = 0; i < sizeof(bulk_names) / sizeof(*bulk_names); i++) {
                size_t length = strlen(bulk_names[i]);

                if (strncmp(text, bulk_names[i], length) == 0 && text[length] == ':')
                        return true;
        }
        return false;
}

/* What ftrace prints between the CPU and the time is of these: interrupts, preemption and the like. */
static bool is_flag_letter(char letter)
{
        return letter == '.' || letter == '#' || (letter >= '0' && letter <= '9') ||
               (letter >= 'A' && letter <= 'Z') || (letter >= 'a' && letter <= 'z');
}

/* Seconds with a fraction, in ns, or a number of ticks of a clock that counts none. */
static bool read_time(const char *text, const char *end, uint64_t *time)
{
        uint64_t fraction;
        const char *point;

        if (number_scan(&text, 10, time) != NUMBER_READ)
                return false;
        if (text == end)
                return true;
        if (*text != '.' || *time > UINT64_MAX / UINT64_C(2000000000))
                return false;
        point = ++text;
        if (number_scan(&text, 10, &fraction) != NUMBER_READ || text != end ||
            text - point > FRACTION_DIGITS)
                return false;
        for (long digits = text - point; digits < FRACTION_DIGITS; digits++)
                fraction *= 10;
        *time = *time * UINT64_C(1000000000) + fraction;
        return true;
}

/* Bits for the third letter of ftrace's "d.h1.": the interrupt that the task was in. */
static uint8_t interrupt_bits(const char *letters, const char *end)
{
        if (end - letters < 4)
                return 0;
        switch (letters[2]) {
        case 's':
                return TRACE_SOFTIRQ;
        case 'h':
        case 'z':
                return TRACE_HARDIRQ;
        case 'H':
        case 'Z':
                return TRACE_SOFTIRQ | TRACE_HARDIRQ;
        default:
                return 0;
        }
}

static const char *trim(const char *first, const char *end)
{
        while (end > first && (end[-1] == ' ' || end[-1] == '\t'))
                end--;
        return end;
}

/*
 * A CPU with ftrace's letters right behind it, "12d.s1.", as the word before *end: trace-cmd report
 * -l. False if the word is another.
 */
static bool read_joined_cpu(const char *line, const char **end, struct lives_event *event,
                            uint64_t *cpu)
{
        const char *word = *end;
        const char *at;

        while (word > line && word[-1] != ' ')
                word--;
        at = word;
        if (word == line || number_scan(&at, 10, cpu) != NUMBER_READ || *end - at < 4)
                return false;
        for (const char *letter = at; letter < *end; letter++)
                if (!is_flag_letter(*letter))
                        return false;
        event->operation |= interrupt_bits(at, *end);
        *end = word;
        return true;
}

/*
 * The CPU in brackets, the last before @end, or the CPU with letters; the line's part before it then
 * ends at *end.
 */
static bool read_cpu(const struct import *import, const char *line, const char **end,
                     struct lives_event *event)
{
        uint64_t cpu;

        if (read_joined_cpu(line, end, event, &cpu)) {
                event->cpu = (uint16_t)cpu;
                return cpu < import->cpus_most;
        }
        for (const char *open = *end; open-- > line;) {
                const char *at = open + 1;

                if (*open != '[' || number_scan(&at, 10, &cpu) == NUMBER_NONE || *at != ']')
                        continue;
                if (cpu >= import->cpus_most)
                        return false;
                event->cpu = (uint16_t)cpu;
                for (at++; at < *end && *at == ' '; at++)
                        ;
                event->operation |= interrupt_bits(at, *end);
                *end = open;
                return true;
        }
        return true; /* perf prints none without -a */
}

/*
 * The number of the task, the last in the line's part before @end: "name-12", "name 12", "12/13". perf
 * has ":-1 -1/-1" for a task that is already gone.
 */
static bool read_thread(const char *line, const char *end, struct lives_event *event)
{
        const char *first;
        uint64_t number;
        bool gone;

        end = trim(line, end);
        /* "(12)": the process beside the thread. */
        if (end > line && end[-1] == ')') {
                while (end > line && *--end != '(')
                        ;
                end = trim(line, end);
        }
        for (first = end; first > line && first[-1] >= '0' && first[-1] <= '9'; first--)
                ;
        gone = end - first == 1 && *first == '1' && first > line + 1 && first[-1] == '-' &&
               (first[-2] == '/' || first[-2] == ' ');
        if (first == end || number_scan(&first, 10, &number) != NUMBER_READ || number > INT32_MAX)
                return false;
        event->thread = gone ? -1 : (int32_t)number;
        return true;
}

/*
 * Where the time in front of @colon ends, or NULL without one. The kernel that ends, or that traces
 * latencies, prints "12us :", with a mark of the delay in place of the blank.
 */
static const char *end_of_time(const char *line, const char *colon)
{
        const char *end = colon;

        if (end > line && end[-1] >= '0' && end[-1] <= '9')
                return end;
        if (end > line && strchr(" !+#*@$", end[-1]))
                end--;
        if (end - line < 3 || end[-1] != 's' || end[-2] != 'u' || end[-3] < '0' || end[-3] > '9')
                return NULL;
        return end - 2;
}

/* Everything in front of the event's name; @stop is behind the figures of the time. */
static enum line_kind read_head(struct import *import, const char *line, const char *stop,
                                struct lives_event *event)
{
        const char *time = stop;
        const char *end;
        uint64_t now;

        while (time > line && time[-1] != ' ' && time[-1] != '\t')
                time--;
        if (!read_time(time, stop, &now) || (*stop == 'u' && now > UINT64_MAX / 1000))
                return line_bad(import, "expected a time before the event, not \"%.*s\"",
                                (int)(stop - time > 40 ? 40 : stop - time), time);
        if (*stop == 'u')
                now *= 1000;
        end = trim(line, time);
        if (!read_cpu(import, line, &end, event))
                return line_bad(import, "expected a CPU below %u", import->cpus_most);
        if (!read_thread(line, end, event))
                return line_bad(import, "expected a task and its number before the time");
        import->now = now;
        return LINE_TAKEN;
}

static struct part *field_of(struct fields *fields, struct part key)
{
        if (is(key, "call_site"))
                return &fields->call_site;
        if (is(key, "ptr"))
                return &fields->pointer;
        if (is(key, "bytes_req"))
                return &fields->requested;
        if (is(key, "bytes_alloc"))
                return &fields->given;
        if (is(key, "gfp_flags"))
                return &fields->flags;
        return is(key, "name") ? &fields->name : NULL;
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
        return trim(text, text + strlen(text));
}

static struct fields read_fields(const char *text)
{
        struct fields fields = {0};

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
                field = field_of(&fields, key);
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

/* A hexadecimal number with or without 0x, to the end of the part. */
static bool read_address(struct part part, uint64_t *address)
{
        const char *text = part.text;

        if (part.length > 2 && text[0] == '0' && text[1] == 'x')
                text += 2;
        return number_scan(&text, 16, address) == NUMBER_READ && text == part.text + part.length;
}

static bool read_bytes(struct part part, uint64_t *bytes)
{
        const char *text = part.text;

        return part.text && number_scan(&text, 10, bytes) == NUMBER_READ &&
               text == part.text + part.length;
}

static uint32_t bits_of(struct part part)
{
        uint32_t bits = 0;
        uint64_t number;

        if (part.length && *part.text >= '0' && *part.text <= '9')
                return read_address(part, &number) ? (uint32_t)number : 0;
        while (part.length) {
                const char *bar = memchr(part.text, '|', part.length);
                struct part name = {part.text, bar ? (size_t)(bar - part.text) : part.length};

                for (size_t i = 0; i < sizeof(flags) / sizeof(*flags); i++)
                        if (is(name, flags[i].name))
                                bits |= flags[i].bits;
                part.text += name.length + (bar != NULL);
                part.length -= name.length + (bar != NULL);
        }
        return bits;
}

static uint32_t read_flags(struct import *import, struct part part)
{
        uint32_t before = import->flags.count;
        struct text *known = texts_find(&import->flags, part.text ? part.text : "", part.length);

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

static uint16_t cache_of(struct import *import, const struct kind *kind,
                         const struct fields *fields, struct part site, uint64_t bytes)
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

static enum line_kind read_event(struct import *import, const char *line, const char *stop,
                                 const struct kind *kind, const char *text)
{
        struct lives_event event = {.operation = kind->operation};
        enum line_kind head = read_head(import, line, stop, &event);
        struct fields fields;
        struct part site;

        if (head != LINE_TAKEN)
                return head;
        fields = read_fields(text + strspn(text, " "));
        /* The flags come last of what is read here, so without them the line may go on in the next. */
        if (!import->is_whole &&
            (!fields.pointer.text || (kind->operation == TRACE_ALLOC && !fields.flags.text)))
                return LINE_FOLDED;
        if (!fields.pointer.text)
                return line_bad(import, "%s without ptr", kind->name);
        if (kind->operation == TRACE_ALLOC && !read_bytes(fields.requested, &event.requested))
                return line_bad(import, "%s: expected a number of bytes in bytes_req", kind->name);
        if (fields.given.text && !read_bytes(fields.given, &event.given))
                return line_bad(import, "%s: expected a number of bytes in bytes_alloc",
                                kind->name);
        if (*fields.pointer.text == '(') {
                /* "(null)" and "(nil)", or "(____ptrval____)" of a kernel that has just started. */
                if (fields.pointer.length > 1 && fields.pointer.text[1] == '_')
                        import->hidden++;
                else
                        import->failed++;
                return LINE_TAKEN;
        }
        if (!read_address(fields.pointer, &event.address))
                return line_bad(import, "%s: expected an address in ptr, not \"%.*s\"", kind->name,
                                (int)(fields.pointer.length > 40 ? 40 : fields.pointer.length),
                                fields.pointer.text);
        if (event.address < ADDRESS_LEAST) {
                import->failed++;
                return LINE_TAKEN;
        }
        event.flags = read_flags(import, fields.flags);
        site = site_of(fields.call_site);
        event.cache = cache_of(import, kind, &fields, site, event.requested);
        import_event(import, &event, site.text, site.length);
        return LINE_TAKEN;
}

/* The number that ends, but for blanks, at @end; 1 without a number. */
static uint64_t number_before(const char *line, const char *end)
{
        const char *first = trim(line, end);
        uint64_t number;

        while (first > line && first[-1] >= '0' && first[-1] <= '9')
                first--;
        return number_scan(&first, 10, &number) == NUMBER_READ ? number : 1;
}

/* The number behind @text and blanks; 1 without a number. */
static uint64_t number_behind(const char *text)
{
        uint64_t number;

        text += strspn(text, " ");
        return number_scan(&text, 10, &number) == NUMBER_READ ? number : 1;
}

/*
 * What ftrace's head says: "# entries-in-buffer/entries-written: 12/20   #P:4". A full buffer has
 * written over its oldest events.
 */
static void read_overwritten(struct import *import, const char *line)
{
        static const char words[] = "entries-in-buffer/entries-written: ";
        const char *text = strstr(line, words);
        uint64_t held;
        uint64_t written;

        if (*line != '#' || !text)
                return;
        text += sizeof(words) - 1;
        if (number_scan(&text, 10, &held) == NUMBER_READ && *text++ == '/' &&
            number_scan(&text, 10, &written) == NUMBER_READ && written > held)
                import->lost += written - held;
}

/*
 * "CPU:2 [LOST 12 EVENTS]" of ftrace, "CPU:2 [12 EVENTS DROPPED]" of trace-cmd, both also without a
 * number; "PERF_RECORD_LOST lost 12" of perf; "Lost 12 events" of bpftrace.
 */
static bool read_lost(struct import *import, const char *line)
{
        static const char of_bpftrace[] = "Lost ";
        static const char of_perf[] = " lost ";
        const char *word = strstr(line, "PERF_RECORD_LOST");

        if (word) {
                word = strstr(word, of_perf);
                if (!word)
                        return false;
                import->lost += number_behind(word + sizeof(of_perf) - 1);
        } else if ((word = strstr(line, "EVENTS DROPPED"))) {
                import->lost += number_before(line, word);
        } else if ((word = strstr(line, "LOST "))) {
                import->lost += number_behind(word + strlen("LOST "));
        } else if (strncmp(line, of_bpftrace, sizeof(of_bpftrace) - 1) == 0 &&
                   strstr(line, " events")) {
                import->lost += number_behind(line + sizeof(of_bpftrace) - 1);
        } else {
                return false;
        }
        return true;
}

/* "#P:4" in ftrace's head, "cpus=4" in trace-cmd's, "# nrcpus online : 4" in perf's. */
static void read_cpus(struct import *import, const char *line)
{
        static const char *const words[] = {"#P:", "cpus=", "nrcpus avail : ", "nrcpus online : "};

        for (size_t i = 0; i < sizeof(words) / sizeof(*words); i++) {
                const char *at = strstr(line, words[i]);
                uint64_t cpus;

                if (!at)
                        continue;
                at += strlen(words[i]);
                if (number_scan(&at, 10, &cpus) == NUMBER_READ && cpus && cpus <= TRACE_CPUS_MAX &&
                    cpus > import->cpus)
                        import->cpus = (uint32_t)cpus;
        }
}

/* A frame of a stack: blanks, an address or an arrow of ftrace's. */
static bool is_frame(const char *line)
{
        const char *text = line + strspn(line, " \t");
        uint64_t address;

        if (text == line)
                return strncmp(line, "=> ", 3) == 0;
        if (strncmp(text, "=> ", 3) == 0)
                return true;
        return number_scan(&text, 16, &address) != NUMBER_NONE && *text == ' ';
}

/* "@count[12]: 3": what bpftrace prints of its maps at the end. */
static bool is_map(const char *line)
{
        return line[0] == '@' && line[1] >= 'a' && line[1] <= 'z';
}

/* The rest of an event that a mail has folded, of which nothing is read; the marks of code. */
static bool is_around(const char *line)
{
        static const char *const words[] = {"node=", "accounted=", "name=", "gfp_flags=", "```"};

        line += strspn(line, " \t");
        for (size_t i = 0; i < sizeof(words) / sizeof(*words); i++)
                if (strncmp(line, words[i], strlen(words[i])) == 0)
                        return true;
        return false;
}

enum line_kind kernel_line(struct import *import, const char *line)
{
        const char *first = line + strspn(line, " \t");
        bool timed = false;

        for (const char *colon = strchr(line, ':'); colon; colon = strchr(colon + 1, ':')) {
                const char *text = colon + 1 + strspn(colon + 1, " \t");
                const char *stop = end_of_time(line, colon);
                const struct kind *kind;

                if (!stop || text == colon + 1)
                        continue;
                timed = true;
                if (strncmp(text, "kmem:", 5) == 0)
                        text += 5;
                kind = kind_at(text);
                if (kind)
                        return read_event(import, line, stop, kind, text + kind->length + 1);
                if (is_bulk(text)) {
                        import->bulk++;
                        return LINE_TAKEN;
                }
        }
        if (read_lost(import, line))
                return LINE_TAKEN;
        read_overwritten(import, first);
        if (*first == '#' || strncmp(line, "cpus=", 5) == 0 || strncmp(line, "version = ", 10) == 0)
                read_cpus(import, line);
        else if (!timed && !is_frame(line) && line[strspn(line, " \t\r")] &&
                 strncmp(line, "CPU ", 4) != 0 && !is_map(line) && !is_around(line))
                return LINE_NOT_OURS;
        import->others++;
        return LINE_TAKEN;
}
