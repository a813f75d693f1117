/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * A line about a kmem tracepoint, as ftrace, trace-cmd report and perf script print it, from 2.6.32
 * on:
 *
 *     bash-1234    [002] d..1.  123.456789: kmalloc: call_site=... ptr=... bytes_req=...
 *     bash-1234  [002]   123.456789: kmalloc:   (f+0x1a) call_site=f+0x1a ptr=0x... bytes_req=...
 *     bash-1234    2d..1.  123.456789: kmalloc:   (f+0x1a) call_site=f+0x1a ptr=0x... bytes_req=...
 *     bash  1234/1234 [002]   123.456789:   kmem:kmalloc: call_site=... ptr=... bytes_req=...
 *     bash  1234 [002]   123.456789:   1 kmem:kmalloc: call_site=... ptr=... bytes_req=...
 *     bash-1234    2d..1. 123456us : kmalloc: call_site=... ptr=... bytes_req=...
 *
 * The task's name may have any byte, so the line is read from the event's name to the left.
 */
#include "tools/import/kernel_event.h"

#include "lang/number.h"

#include <string.h>

enum { FRACTION_DIGITS = 9 };

/* What ftrace prints between the CPU and the time is of these: interrupts, preemption and the like. */
static bool is_flag_letter(char letter)
{
        return letter == '.' || letter == '#' || (letter >= '0' && letter <= '9') ||
               (letter >= 'A' && letter <= 'Z') || (letter >= 'a' && letter <= 'z');
}

bool kernel_time(const char *text, const char *end, uint64_t *time)
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
        *time = *time * SECOND_NS + fraction;
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

        end = line_trim(line, end);
        /* "(12)": the process beside the thread. */
        if (end > line && end[-1] == ')') {
                while (end > line && *--end != '(')
                        ;
                end = line_trim(line, end);
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
        if (!kernel_time(time, stop, &now) || (*stop == 'u' && now > UINT64_MAX / 1000))
                return line_bad(import, "expected a time before the event, not \"%.*s\"",
                                (int)(stop - time > 40 ? 40 : stop - time), time);
        if (*stop == 'u')
                now *= 1000;
        end = line_trim(line, time);
        if (!read_cpu(import, line, &end, event))
                return line_bad(import, "expected a CPU below %u", import->cpus_most);
        if (!read_thread(line, end, event))
                return line_bad(import, "expected a task and its number before the time");
        import->now = now;
        return LINE_TAKEN;
}

static enum line_kind read_event(struct import *import, const char *line, const char *stop,
                                 const struct kernel_kind *kind, const char *text)
{
        struct lives_event event = {0};
        enum line_kind head = read_head(import, line, stop, &event);
        struct kernel_fields fields;

        if (head != LINE_TAKEN)
                return head;
        fields = kernel_fields(text + strspn(text, " "));
        /* The flags come last of what is read here, so without them the line may go on in the next. */
        if (!import->is_whole &&
            (!fields.pointer.text || (kind->operation == TRACE_ALLOC && !fields.flags.text)))
                return LINE_FOLDED;
        return kernel_event(import, kind, &fields, &event);
}

/* The number that ends, but for blanks, at @end; 1 without a number. */
static uint64_t number_before(const char *line, const char *end)
{
        const char *first = line_trim(line, end);
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
 * number; "PERF_RECORD_LOST lost 12" of perf, "LOST 12 events!" of perf trace; "Lost 12 events" of
 * bpftrace; "Tracer discarded 12 events" of babeltrace, or packets.
 */
static bool read_lost(struct import *import, const char *line)
{
        static const char of_bpftrace[] = "Lost ";
        static const char of_perf[] = " lost ";
        static const char of_babeltrace[] = "Tracer discarded ";
        const char *word = strstr(line, "PERF_RECORD_LOST");

        if (word) {
                word = strstr(word, of_perf);
                if (!word)
                        return false;
                import->lost += number_behind(word + sizeof(of_perf) - 1);
        } else if ((word = strstr(line, of_babeltrace))) {
                import->lost += number_behind(word + sizeof(of_babeltrace) - 1);
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

/* perf script prints the period of a sample in front of its event, if it is asked for it. */
static const char *behind_period(const char *text)
{
        const char *behind = text + strspn(text, "0123456789");

        behind += strspn(behind, " ");
        return strncmp(behind, "kmem:", 5) == 0 ? behind : text;
}

enum line_kind kernel_line(struct import *import, const char *line)
{
        const char *first = line + strspn(line, " \t");
        bool timed = false;

        for (const char *colon = strchr(line, ':'); colon; colon = strchr(colon + 1, ':')) {
                const char *text = colon + 1 + strspn(colon + 1, " \t");
                const char *stop = end_of_time(line, colon);
                const struct kernel_kind *kind;

                if (!stop || text == colon + 1)
                        continue;
                timed = true;
                text = behind_period(text);
                if (strncmp(text, "kmem:", 5) == 0)
                        text += 5;
                kind = kernel_kind(text, ':');
                if (kind)
                        return read_event(import, line, stop, kind, text + kind->length + 1);
                if (kernel_is_bulk(text)) {
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
