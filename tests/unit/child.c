/* SPDX-License-Identifier: Apache-2.0 OR MIT */
#define _GNU_SOURCE
#include "../exec.h"
#include "child.h"
#include "filter.h"
#include "skip.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/*
 * Ends tests that hang. Emulators and ThreadSanitizer take tens of times as long, and more on a loaded
 * machine.
 */
enum { DEADLINE_S = 120, SLOW_DEADLINE_S = 600 };

static bool in_child;
static long refused_call = -1;

void check_failed(const char *text, const char *file, int line)
{
        fprintf(stderr, "%s:%d: check failed: %s\n", file, line, text);
        if (in_child)
                _exit(1);
        _fail(file, line);
        abort();
}

void check_numbers(uint64_t a, uint64_t b, const char *text, const char *file, int line)
{
        char message[400];

        if (a == b)
                return;
        snprintf(message, sizeof(message), "%s: %lu, %lu", text, (unsigned long)a,
                 (unsigned long)b);
        check_failed(message, file, line);
}

void child_main(int argc, char **argv, const struct child_case *cases, size_t count)
{
        if (argc != 3 || strcmp(argv[1], "--child") != 0)
                return;
        in_child = true;
        alarm(emulated() || THREAD_SANITIZER ? SLOW_DEADLINE_S : DEADLINE_S);
        for (size_t i = 0; i < count; i++)
                if (strcmp(cases[i].name, argv[2]) == 0) {
                        cases[i].run();
                        exit(0);
                }
        fprintf(stderr, "no case %s\n", argv[2]);
        _exit(2);
}

void child_refuse_system_call(long number)
{
        refused_call = number;
}

/* Before exec, so that the library meets it from the start. */
static void install_filter(void)
{
        if (filter_calls(refused_call, ANY_ARGUMENT, SECCOMP_RET_ERRNO | EPERM) < 0) {
                dprintf(STDERR_FILENO, "# skipped: no seccomp filter can be set here\n");
                _exit(CHILD_SKIP);
        }
}

/* Adds the setting of this name from the list, if there is any. */
static void keep(char *kept, const char *list, const char *name)
{
        size_t length = strlen(name);

        for (const char *at = list; at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL)
                if (strncmp(at, name, length) == 0 && at[length] == '=')
                        sprintf(kept + strlen(kept), "%.*s,", (int)strcspn(at, ","), at);
}

const char *child_settings(const char *options)
{
        static char all[8192];
        const char *own = getenv("KMEM_OPTIONS");

        if ((own ? strlen(own) : 0) + strlen(options) + 3 > sizeof(all))
                check_failed("KMEM_OPTIONS is short enough", __FILE__, __LINE__);
        all[0] = '\0';
        if (own) {
                keep(all, own, "engine");
                keep(all, own, "slots");
                keep(all, own,
                     "reclaim_thread"); /* off under ThreadSanitizer, which knows no bare thread */
        }
        return strcat(all, options);
}

void child_restart_with(char **argv, const char *options)
{
        static char all[1024];
        const char *own = getenv("KMEM_OPTIONS");
        size_t length = own ? strlen(own) : 0;
        const char *end = length >= strlen(options) ? own + length - strlen(options) : NULL;

        if (end && strcmp(end, options) == 0 && (end == own || end[-1] == ','))
                return;
        if (length + strlen(options) + 2 > sizeof(all))
                check_failed("KMEM_OPTIONS is short enough", __FILE__, __LINE__);
        snprintf(all, sizeof(all), "%s%s%s", own ? own : "", length ? "," : "", options);
        setenv("KMEM_OPTIONS", all, 1);
        exec_program("/proc/self/exe", argv);
        check_failed("exec of this program", __FILE__, __LINE__);
}

static void become(const char *name, const char *options, int output)
{
        char *arguments[] = {(char *)"/proc/self/exe", (char *)"--child", (char *)name, NULL};

        dup2(output, STDOUT_FILENO);
        dup2(output, STDERR_FILENO);
        if (options)
                setenv("KMEM_OPTIONS", child_settings(options), 1);
        if (refused_call >= 0)
                install_filter();
        exec_program("/proc/self/exe", arguments);
        _exit(126);
}

/* More than fits is read and dropped, so that the child does not wait for room. */
static void read_all(int input, char *text, size_t bytes)
{
        char rest[512];
        size_t used = 0;
        ssize_t got;

        do {
                bool room = used + 1 < bytes;

                got = read(input, room ? text + used : rest,
                           room ? bytes - 1 - used : sizeof(rest));
                if (room && got > 0)
                        used += (size_t)got;
        } while (got > 0 || (got < 0 && errno == EINTR));
        text[used] = '\0';
}

void child_run(const char *name, const char *options, struct child_result *result)
{
        int ends[2];
        pid_t child;

        assert_int_equal(pipe(ends), 0);
        fflush(NULL);
        child = fork();
        assert_true(child >= 0);
        if (child == 0)
                become(name, options, ends[1]);
        close(ends[1]);
        read_all(ends[0], result->output, sizeof(result->output));
        close(ends[0]);
        assert_int_equal(waitpid(child, &result->status, 0), child);
        if (WIFEXITED(result->status) && WEXITSTATUS(result->status) == CHILD_SKIP) {
                refused_call = -1; /* the case does not get to its end */
                fputs(result->output, stderr);
                skip();
        }
}

void child_wait(pid_t child)
{
        int status = 0;

        while (waitpid(child, &status, 0) != child)
                check(errno == EINTR);
        check_equal(status, 0);
}

static void explain(const char *name, const char *options, const struct child_result *result)
{
        fprintf(stderr, "child %s with KMEM_OPTIONS=%s: wait status 0x%x, output:\n%s\n", name,
                options ? options : "(inherited)", (unsigned int)result->status, result->output);
}

static bool ended_well(const char *name, const char *options, struct child_result *result)
{
        child_run(name, options, result);
        if (result->status == 0)
                return true;
        explain(name, options, result);
        return false;
}

void child_passes(const char *name, const char *options)
{
        static struct child_result result;

        assert_true(ended_well(name, options, &result));
}

void child_prints(const char *name, const char *options, const char *text)
{
        static struct child_result result;
        bool well = ended_well(name, options, &result);

        if (well && strstr(result.output, text))
                return;
        explain(name, options, &result);
        fprintf(stderr, "expected: %s\n", text);
        fail();
}

void child_aborts(const char *name, const char *options, const char *text)
{
        static struct child_result result;

        child_run(name, options, &result);
        if (WIFSIGNALED(result.status) && WTERMSIG(result.status) == SIGABRT &&
            strstr(result.output, text))
                return;
        explain(name, options, &result);
        fprintf(stderr, "expected: SIGABRT and %s\n", text);
        fail();
}
