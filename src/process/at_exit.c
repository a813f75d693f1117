/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * When the process ends: checks what options debug and protect ask to check, writes the reports of
 * options slabinfo and attrs and the mapped files of a recording, and removes the registry's file.
 */
#define _GNU_SOURCE
#include "process/at_exit.h"

#include "engines/hardened/hardened.h"
#include "heap/heap.h"
#include "machine/message.h"
#include "base/options.h"
#include "lang/text.h"
#include "introspect/slabinfo.h"
#include "introspect/tree.h"
#include "machine/system.h"
#include "page/guarded.h"
#include "process/fork.h"
#include "record/record.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <time.h>

/* A report that an option asks for. */
static const struct exit_report {
        const char *option;
        char *path;              /* the option's path; empty: not wanted */
        const uint64_t *process; /* the only process that writes, by id; 0: every process writes */
        /* Both return 0 or an errno. @alone: no other process writes there. */
        int (*begin)(const char *path, bool alone);
        int (*write)(const char *path);
        const char *expected;
} reports[] = {
        {"slabinfo", options.slabinfo, &options.slabinfo_pid, slabinfo_begin, slabinfo_end,
         "expected a file that may be written"},
        {"attrs", options.attrs, &options.attrs_pid, tree_begin, tree_write,
         "expected an empty directory, or one that can be made"},
};

/* Copies a path with %p replaced by the process id; false if it does not fit. */
static bool expand_path(const char *path, char *expanded, size_t bytes)
{
        struct text text;

        text_begin(&text, expanded, bytes);
        for (; *path; path++)
                if (path[0] == '%' && path[1] == 'p') {
                        text_add(&text, "%u", system_process_id());
                        path++;
                } else {
                        text_add(&text, "%c", *path);
                }
        return !text.full;
}

static bool is_ours(const struct exit_report *report)
{
        return *report->path && (!*report->process || *report->process == system_process_id());
}

static void say_why(const struct exit_report *report, const char *path, int error)
{
        message("%s: cannot write %s: %s (error %d); %s", report->option, path,
                message_error(error), error, report->expected);
}

/*
 * Reports at the start that a path cannot be written: at the end nobody may be listening, as many
 * programs close standard error before. So a full disk is not reported in words: an empty file or
 * directory stays where a report could not be written whole.
 */
static void begin(const struct exit_report *report)
{
        int error = report->begin(report->path, *report->process != 0);

        if (!error)
                return;
        say_why(report, report->path, error);
        report->path[0] = '\0';
}

void at_exit_init(void)
{
        int saved_errno = errno;

        for (size_t i = 0; i < array_size(reports); i++)
                if (is_ours(&reports[i]) && !strstr(reports[i].path, "%p"))
                        begin(&reports[i]);
        errno = saved_errno;
}

bool at_exit_is_wanted(void)
{
        return load_acquire(&heap_state) == HEAP_READY &&
               (options.slabinfo[0] || options.attrs[0] || is_recording());
}

static void end(const struct exit_report *report)
{
        char path[sizeof(options.slabinfo) + 16];
        int error;

        if (!expand_path(report->path, path, sizeof(path))) {
                say_why(report, report->path, ENAMETOOLONG);
                return;
        }
        error = report->write(path);
        if (error)
                say_why(report, path, error);
}

static void write_reports(void)
{
        for (size_t i = 0; i < array_size(reports); i++)
                if (is_ours(&reports[i]))
                        end(&reports[i]);
        if (is_recording())
                record_maps();
}

/*
 * A failed write must not change how the program ends, so the signals of a file size limit and of a
 * closed pipe are blocked. A sandbox may refuse that; then there is nothing to set back.
 */
static void write_without_signals(void)
{
        const struct timespec at_once = {0};
        sigset_t ours, before, pending;
        bool blocked;

        sigemptyset(&ours);
        sigaddset(&ours, SIGXFSZ);
        sigaddset(&ours, SIGPIPE);
        /* A sandbox may refuse the answer. */
        sigemptyset(&pending);
        sigpending(&pending);
        if (sigismember(&pending, SIGXFSZ))
                sigdelset(&ours, SIGXFSZ);
        if (sigismember(&pending, SIGPIPE))
                sigdelset(&ours, SIGPIPE);
        blocked = sigprocmask(SIG_BLOCK, &ours, &before) == 0;
        write_reports();
        if (!blocked)
                return;
        while (sigtimedwait(&ours, NULL, &at_once) > 0)
                ;
        sigprocmask(SIG_SETMASK, &before, NULL);
}

void at_exit_write(void)
{
        static uint32_t done;
        int saved_errno = errno;

        /* A child of vfork must not report in its parent's place. */
        if (!at_exit_is_wanted() || !system_is_own_process() || add_relaxed(&done, 1) > 1)
                return;
        write_without_signals();
        errno = saved_errno;
}

/*
 * Whether the heap's locks can be taken. A handler of a signal that calls exit may have interrupted a call that holds some
 * and never goes on, so the only thread of a process would wait for itself. Other threads drop theirs.
 */
static bool locks_can_be_taken(void)
{
        return system_threads() == THREADS_MANY || heap_await(heap_locks_free);
}

/* What letter F checks at each call, everywhere, and the red zones of large blocks. */
static void check_all(void)
{
        struct kmem_cache *cache;
        uint64_t birth = 0;

        if (!(options_given(OPTION_DEBUG) & (DEBUG_CHECKS | DEBUG_RED_ZONE)) ||
            !system_is_own_process() || !locks_can_be_taken())
                return;
        lock_take(&cache_mutex);
        while ((cache = cache_before_locked(birth))) {
                birth = cache->birth;
                if (cache->engine->validate && cache->flags & SLAB_CONSISTENCY_CHECKS)
                        cache->engine->validate(cache);
        }
        lock_drop(&cache_mutex);
        guarded_check_all();
}

void at_exit_sweep(void)
{
        static uint32_t done;

        if (load_acquire(&heap_state) == HEAP_READY && hardened_is_on() &&
            system_is_own_process() && add_relaxed(&done, 1) == 1)
                hardened_sweep();
}

__attribute__((destructor)) static void at_exit(void)
{
        /*
         * Without a heap there is neither report nor registry, and the library's pages for them are
         * not read.
         */
        if (load_acquire(&heap_state) != HEAP_READY)
                return;
        check_all();
        if (at_exit_is_wanted() && locks_can_be_taken())
                at_exit_write();
        at_exit_sweep();
        registry_close();
}
