/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Makes a trace of what another tool printed.
 *
 *   import-trace TRACE CPUS PAGE_BYTES SOURCE < TEXT
 *
 * CPUS is the number of the machine's CPUs, or 0: as the text's head says, or as many as have
 * events. The text is read once and in pieces, so it may come from a pipe and be of any length; what
 * is kept grows with the objects that live at once, and with different names. Figures go to
 * standard output, as JSON.
 */
#include "tools/import/import.h"
#include "tools/record/record.h"

#include "lang/number.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PIECE_BYTES = 1 << 20 };

const char program_words[] = "import";

static void name_site(void *context, uint64_t site, char *text, size_t bytes)
{
        const struct import *import = context;

        snprintf(text, bytes, "%s", texts_name(&import->sites, &import->sites.text[site - 1]));
}

static void read_text(struct import *import)
{
        /* With room for a zero byte behind the last line. */
        char *bytes = malloc(LINE_BYTES_MOST + PIECE_BYTES + 1);
        size_t have = 0;
        bool skip = false;
        ssize_t got;

        if (!bytes)
                die("no memory");
        while ((got = read(STDIN_FILENO, bytes + have, PIECE_BYTES)) != 0) {
                if (got < 0 && errno == EINTR)
                        continue;
                if (got < 0)
                        die("standard input: %s", strerror(errno));
                have = import_lines(import, bytes, have + (size_t)got, &skip);
        }
        if (have && !skip)
                import_line(import, bytes, have);
        import_end(import);
        free(bytes);
}

static uint32_t number_or_die(const char *text, const char *what, uint64_t most)
{
        uint64_t number;

        if (!number_whole(text, &number) || number > most)
                die("%s %s: expected a number of at most %" PRIu64, what, text, most);
        return (uint32_t)number;
}

static void put_reason(const char *text)
{
        putchar('"');
        for (; *text; text++) {
                if (*text == '"' || *text == '\\')
                        printf("\\%c", *text);
                else if ((unsigned char)*text < 0x20 || (unsigned char)*text >= 0x7f)
                        printf("\\u%04x", (unsigned char)*text);
                else
                        putchar(*text);
        }
        putchar('"');
}

int main(int count, char **words)
{
        struct import *import = calloc(1, sizeof(*import));
        struct lives_counts counts;
        struct trace_error error;
        uint32_t cpus;

        if (count != 5)
                die("expected TRACE CPUS PAGE_BYTES SOURCE");
        if (!import)
                die("no memory");
        cpus = number_or_die(words[2], "CPUs", TRACE_CPUS_MAX);
        import->cpus_most = cpus ? cpus : TRACE_CPUS_MAX;
        import->objects_most = OBJECTS_MOST;
        import->lives = lives_open(words[1], cpus, number_or_die(words[3], "page bytes", 1 << 20),
                                   words[4], name_site, import, &error);
        if (!import->lives)
                die("%s: %s", words[1], error.text);
        read_text(import);
        if (!cpus && import->cpus)
                lives_cpus(import->lives, import->cpus);
        if (!lives_close(import->lives, &counts, &error))
                die("%s: %s", words[1], error.text);
        printf("{");
        print_counts(stdout, &counts);
        printf("\"lines\": %" PRIu64 ", \"events\": %" PRIu64 ", \"failed\": %" PRIu64
               ", \"hidden\": %" PRIu64 ", \"bulk\": %" PRIu64 ", \"lost\": %" PRIu64
               ", \"others\": %" PRIu64 ", \"unreadable\": %" PRIu64
               ", \"first_unreadable\": %" PRIu64 ", \"made_times\": %s, \"reason\": ",
               import->lines, import->events, import->failed, import->hidden, import->bulk,
               import->lost, import->others, import->unreadable, import->first_unreadable,
               import->made_times ? "true" : "false");
        put_reason(import->reason);
        printf("}\n");
        if (fflush(stdout))
                die("standard output: %s", strerror(errno));
        heaptrack_free(import->heaptrack);
        texts_free(&import->sites);
        texts_free(&import->caches);
        texts_free(&import->flags);
        free(import);
        return 0;
}
