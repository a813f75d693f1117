/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Records the running kernel's kmem tracepoints and makes a trace of them.
 *
 *   record-kernel TRACE FOLDER SECONDS BUFFER_KIB SOURCE [COMMAND...]
 *   record-kernel --recover TRACE FOLDER SOURCE
 *   record-kernel --held TRACE FOLDER SOURCE
 *
 * It uses an instance of its own under tracefs, so it touches nobody else's tracing. A thread for
 * each CPU moves whole pages of the ring buffer into FOLDER, and the events in them are read
 * afterwards (kernel_events.c). It runs for SECONDS, or until COMMAND or an interrupt ends it.
 * Figures are written to FOLDER/report, as JSON. If the disk is full, the events until then are
 * kept. With --recover the trace is made of a FOLDER that a killed recorder has left since the
 * machine was started. With --held it is made of what the kernel's own ring buffers hold, as those
 * of a kernel that was started with trace_event=kmem:kmalloc,... on its command line; whoever has
 * filled them has stopped tracing.
 *
 *  GUARD-1  However this program ends, its instance ends too, or the kernel would go on tracing
 *           every allocation. A child in a session of its own, which no signal to this program
 *           reaches, waits for the end of a pipe; this program alone holds the other end.
 */
#define _GNU_SOURCE
#include "tools/record/kernel.h"

#include "lang/number.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <tracefs.h>
#include <unistd.h>

enum { CPUS_MOST = 4096, NAP_NS = 10000000, HANDLED = 3, GUARD_ROUNDS = 1000, REPORT_BYTES = 4096 };

/* All tracepoints of all kernels; some of them exist in older kernels only. */
static const char *const tracepoints[] = {
        "kmalloc", "kmalloc_node",    "kmem_cache_alloc", "kmem_cache_alloc_node",
        "kfree",   "kmem_cache_free",
};

const char program_words[] = "record";

struct reader {
        pthread_t thread;
        struct tracefs_cpu *cpu;
        int file;
        int error;
};

static struct tracefs_instance *instance;
static const int handled[HANDLED] = {SIGINT, SIGTERM, SIGHUP};
static void (*limit_handler)(int);            /* of SIGXFSZ, as this program inherited it */
static volatile sig_atomic_t interrupted;     /* by this signal, or 0 */
static volatile sig_atomic_t command_process; /* 0: none runs */
static bool stopping;                         /* by the main thread, read by the readers */

/*
 * Waits for the end of the program, then removes the instance. The program's descriptors may be
 * closed after the pipe's: until then the kernel refuses to remove the instance.
 */
__attribute__((noreturn)) static void guard(int end, const char *name)
{
        static const struct timespec nap = {.tv_nsec = NAP_NS};
        struct tracefs_instance *left;
        char byte;

        setsid();
        for (unsigned int i = 0; i < HANDLED; i++)
                signal(handled[i], SIG_IGN);
        for (int stream = 0; stream <= 2; stream++)
                close(stream);
        while (read(end, &byte, 1) < 0 && errno == EINTR)
                ;
        left = tracefs_instance_alloc(NULL, name);
        for (unsigned int i = 0; left && i < GUARD_ROUNDS; i++) {
                tracefs_trace_off(left);
                if (tracefs_instance_destroy(left) == 0 || errno != EBUSY)
                        break;
                nanosleep(&nap, NULL);
        }
        _exit(0);
}

/* GUARD-1. The pipe's end stays open in this process, and in no program that it starts. */
static void start_guard(const char *name)
{
        int ends[2];
        pid_t child;

        if (pipe2(ends, O_CLOEXEC))
                die("pipe: %s", strerror(errno));
        child = fork();
        if (child < 0)
                die("fork: %s", strerror(errno));
        if (!child) {
                close(ends[1]);
                guard(ends[0], name);
        }
        close(ends[0]);
}

/* Also on the way out after an error: otherwise the instance would go on filling its buffers. */
static void remove_instance(void)
{
        if (instance) {
                tracefs_trace_off(instance);
                tracefs_instance_destroy(instance);
                tracefs_instance_free(instance);
        }
        instance = NULL;
}

/* The terminal sends Ctrl-C to the command, too; other signals are passed on and end it. */
static void on_signal(int number)
{
        interrupted = number;
        if (number != SIGINT && command_process > 0)
                kill(command_process, number);
}

static void handle(int number)
{
        struct sigaction action = {.sa_handler = on_signal};
        struct sigaction before;

        /* A signal that nohup made ignored stays ignored. */
        if (sigaction(number, NULL, &before) == 0 && before.sa_handler != SIG_IGN)
                sigaction(number, &action, NULL);
}

/* Holds the signals back until the mask is @before again. */
static void hold_signals(sigset_t *before)
{
        sigset_t ours;

        sigemptyset(&ours);
        for (unsigned int i = 0; i < HANDLED; i++)
                sigaddset(&ours, handled[i]);
        pthread_sigmask(SIG_BLOCK, &ours, before);
}

/* Bytes of events in a page; the kernel hands out whole pages, even if they are nearly empty. */
static int used_bytes(const char *page)
{
        uint64_t commit;

        memcpy(&commit, page + sizeof(uint64_t), sizeof(commit));
        return (int)(commit & 0xfffff);
}

static bool write_page(struct reader *reader, char *page, int bytes, int page_bytes)
{
        memset(page + bytes, 0, (size_t)(page_bytes - bytes));
        for (int done = 0; done < page_bytes;) {
                ssize_t written = write(reader->file, page + done, (size_t)(page_bytes - done));

                if (written <= 0) {
                        reader->error = written ? errno : ENOSPC;
                        return false;
                }
                done += (int)written;
        }
        return true;
}

static void *read_cpu(void *argument)
{
        static const struct timespec nap = {.tv_nsec = NAP_NS};
        static const struct sched_param first = {.sched_priority = 1};
        struct reader *reader = argument;
        int page_bytes = tracefs_cpu_read_size(reader->cpu);
        char *page = malloc((size_t)page_bytes);
        int bytes;

        /*
         * The reader runs before the recorded load, or the load would keep it from reading. If the
         * kernel refuses, the count of lost events tells.
         */
        pthread_setschedparam(pthread_self(), SCHED_FIFO, &first);
        if (!page) {
                reader->error = ENOMEM;
                return NULL;
        }
        while (!__atomic_load_n(&stopping, __ATOMIC_ACQUIRE)) {
                bytes = tracefs_cpu_read(reader->cpu, page, true);
                if (bytes > 0 && !write_page(reader, page, bytes, page_bytes))
                        break;
                /*
                 * Writing is traced too: a reader that looked again at once would find its own
                 * events.
                 */
                if (bytes <= 0 || used_bytes(page) < page_bytes / 2)
                        nanosleep(&nap, NULL);
        }
        while (!reader->error && (bytes = tracefs_cpu_flush(reader->cpu, page)) > 0)
                write_page(reader, page, bytes, page_bytes);
        free(page);
        return NULL;
}

/* Keeps the kernel's own table, for comparisons; there may be none. */
static void keep_slabinfo(const char *folder, const char *name)
{
        char text[4096];
        char *path;
        FILE *from = fopen("/proc/slabinfo", "re");
        FILE *to;
        size_t got;

        if (!from)
                return;
        if (asprintf(&path, "%s/%s", folder, name) < 0)
                die("no memory");
        to = fopen(path, "we");
        free(path);
        if (!to) {
                fclose(from);
                return;
        }
        while ((got = fread(text, 1, sizeof(text), from)) > 0)
                fwrite(text, 1, got, to);
        fclose(from);
        fclose(to);
}

static void start_readers(struct reader *readers, unsigned int cpus, const char *folder)
{
        sigset_t before;

        /* Signals are for the main thread. */
        hold_signals(&before);
        for (unsigned int i = 0; i < cpus; i++) {
                char *path;

                if (asprintf(&path, "%s/cpu%u", folder, i) < 0)
                        die("no memory");
                readers[i].file = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
                if (readers[i].file < 0)
                        die("%s: %s", path, strerror(errno));
                free(path);
                readers[i].cpu = tracefs_cpu_open(instance, (int)i, true);
                if (!readers[i].cpu)
                        die("the ring buffer of CPU %u: %s", i, strerror(errno));
                if (pthread_create(&readers[i].thread, NULL, read_cpu, &readers[i]))
                        die("cannot start a thread");
        }
        pthread_sigmask(SIG_SETMASK, &before, NULL);
}

/* The events that the ring buffers had no room for, by the kernel's own count. */
static uint64_t lost_events(unsigned int cpus)
{
        static const char *const names[] = {"overrun: ", "commit overrun: ", "dropped events: "};
        uint64_t lost = 0;

        for (unsigned int i = 0; i < cpus; i++) {
                char file[64];
                char *text;

                snprintf(file, sizeof(file), "per_cpu/cpu%u/stats", i);
                text = tracefs_instance_file_read(instance, file, NULL);
                if (!text)
                        die("%s: %s", file, strerror(errno));
                for (unsigned int n = 0; n < sizeof(names) / sizeof(*names); n++) {
                        char *line = text;
                        const char *number;
                        uint64_t count;

                        /* "overrun: " is a part of "commit overrun: " too. */
                        while ((line = strstr(line, names[n])) && line != text && line[-1] != '\n')
                                line++;
                        if (!line)
                                continue;
                        number = line + strlen(names[n]);
                        number_scan(&number, 10, &count);
                        lost += count;
                }
                free(text);
        }
        return lost;
}

static void stop_readers(struct reader *readers, unsigned int cpus)
{
        __atomic_store_n(&stopping, true, __ATOMIC_RELEASE);
        for (unsigned int i = 0; i < cpus; i++) {
                pthread_join(readers[i].thread, NULL);
                tracefs_cpu_close(readers[i].cpu);
                if (close(readers[i].file) && !readers[i].error)
                        readers[i].error = errno;
                if (readers[i].error)
                        fprintf(stderr, "kmem: record: later events of CPU %u cannot be kept: %s\n",
                                i, strerror(readers[i].error));
        }
}

static void set(const char *file, const char *value)
{
        if (tracefs_instance_file_write(instance, file, value) < 0)
                die("tracefs: %s: the kernel does not take \"%s\": %s", file, value,
                    strerror(errno));
}

static void prepare(const char *buffer_kib)
{
        const char *folder;
        unsigned int enabled = 0;
        char name[32];

        if (geteuid() != 0)
                die("only root may read tracefs");
        if (tracefs_tracing_dir_is_mounted(true, &folder) < 0)
                die("no tracefs, and it cannot be mounted: %s", strerror(errno));
        snprintf(name, sizeof(name), "kmem-record-%d", (int)getpid());
        start_guard(name);
        instance = tracefs_instance_create(name);
        if (!instance)
                die("%s/instances/%s: %s", folder, name, strerror(errno));
        atexit(remove_instance);
        tracefs_trace_off(instance);
        /* A clock that all CPUs share, so that their events can be put in order. */
        set("trace_clock", "mono");
        set("buffer_size_kb", buffer_kib);
        for (unsigned int i = 0; i < sizeof(tracepoints) / sizeof(*tracepoints); i++)
                enabled += tracefs_event_enable(instance, "kmem", tracepoints[i]) == 0;
        if (!enabled)
                die("this kernel has no kmem tracepoints in %s/events/kmem", folder);
}

static double now_seconds(void)
{
        struct timespec now;

        clock_gettime(CLOCK_MONOTONIC, &now);
        return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

__attribute__((noreturn)) static void become(char **command, const sigset_t *mask)
{
        struct sigaction action;

        /* A signal that comes before the command's first instruction is for the command. */
        for (unsigned int i = 0; i < HANDLED; i++)
                if (sigaction(handled[i], NULL, &action) == 0 && action.sa_handler == on_signal)
                        signal(handled[i], SIG_DFL);
        signal(SIGXFSZ, limit_handler);
        pthread_sigmask(SIG_SETMASK, mask, NULL);
        execvp(*command, command);
        fprintf(stderr, "%s: %s\n", *command, strerror(errno));
        _exit(errno == ENOENT ? 127 : 126);
}

/* Starts the command. Its process, or 0 if a signal has ended the recording before. */
static pid_t start_command(char **command)
{
        sigset_t before;
        pid_t child = 0;

        hold_signals(&before);
        if (!interrupted && (child = fork()) == 0)
                become(command, &before);
        if (child < 0)
                die("fork: %s", strerror(errno));
        command_process = child;
        pthread_sigmask(SIG_SETMASK, &before, NULL);
        return child;
}

/* Returns the command's exit status as a shell has it. */
static int run_command(char **command)
{
        int status = 0;
        pid_t child = start_command(command);

        if (!child)
                return 128 + interrupted;
        while (waitpid(child, &status, 0) < 0 && errno == EINTR)
                ;
        command_process = 0;
        return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static void wait_seconds(double seconds)
{
        double end = now_seconds() + seconds;

        while (!interrupted && now_seconds() < end) {
                double rest = end - now_seconds();
                struct timespec nap = {.tv_sec = (time_t)rest};

                nap.tv_nsec = (long)((rest - (double)nap.tv_sec) * 1e9);
                if (rest > 0)
                        nanosleep(&nap, NULL);
        }
}

/*
 * Makes the report with room for its text, as the disk may be full when there is something to
 * report.
 */
static void make_report(const char *folder)
{
        char spaces[REPORT_BYTES];
        char *path;
        int file;

        if (asprintf(&path, "%s/report", folder) < 0)
                die("no memory");
        memset(spaces, ' ', sizeof(spaces));
        file = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
        if (file < 0 || write(file, spaces, sizeof(spaces)) != sizeof(spaces) || close(file))
                die("%s: %s; expected room for events", path, strerror(errno));
        free(path);
}

/* Makes the trace of a killed recorder. Figures that it could not count are 0 in the report. */
static int recover(char **words)
{
        struct kernel_source source = {
                .path = words[0],
                .folder = words[1],
                .text = words[2],
                .page_bytes = (size_t)sysconf(_SC_PAGESIZE),
        };
        char *path;

        /* The CPUs are the files that exist: they are made in order. */
        for (;; source.cpus++) {
                if (asprintf(&path, "%s/cpu%u", source.folder, source.cpus) < 0)
                        die("no memory");
                if (access(path, F_OK))
                        break;
                free(path);
        }
        free(path);
        if (!source.cpus)
                die("%s: nothing was recorded", source.folder);
        make_report(source.folder);
        kernel_convert(&source);
        return 0;
}

/* Moves the pages that the ring buffer of a CPU still holds. */
static void take_cpu(unsigned int cpu, struct kernel_source *source)
{
        struct reader reader = {.cpu = tracefs_cpu_open(NULL, (int)cpu, true)};
        int bytes;
        char *path;
        char *page;

        if (!reader.cpu)
                die("the ring buffer of CPU %u: %s", cpu, strerror(errno));
        source->page_bytes = (size_t)tracefs_cpu_read_size(reader.cpu);
        page = malloc(source->page_bytes);
        if (!page || asprintf(&path, "%s/cpu%u", source->folder, cpu) < 0)
                die("no memory");
        reader.file = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
        if (reader.file < 0)
                die("%s: %s", path, strerror(errno));
        while ((bytes = tracefs_cpu_flush(reader.cpu, page)) > 0)
                if (!write_page(&reader, page, bytes, (int)source->page_bytes))
                        die("%s: %s", path, strerror(reader.error));
        tracefs_cpu_close(reader.cpu);
        if (close(reader.file))
                die("%s: %s", path, strerror(errno));
        free(page);
        free(path);
}

/* Makes the trace of what the kernel's own ring buffers hold. */
static int take_held(char **words, unsigned int cpus)
{
        struct kernel_source source = {
                .path = words[0],
                .folder = words[1],
                .text = words[2],
                .cpus = cpus,
        };
        const char *folder;

        if (tracefs_tracing_dir_is_mounted(true, &folder) < 0)
                die("no tracefs, and it cannot be mounted: %s", strerror(errno));
        make_report(source.folder);
        source.lost = lost_events(cpus);
        for (unsigned int i = 0; i < cpus; i++)
                take_cpu(i, &source);
        kernel_convert(&source);
        return 0;
}

int main(int argc, char **argv)
{
        long found = sysconf(_SC_NPROCESSORS_CONF);
        unsigned int cpus = found < 1 ? 1 : (unsigned int)found;
        struct reader *readers = calloc(cpus, sizeof(*readers));
        struct kernel_source source = {.cpus = cpus};
        double started;
        int status = 0;

        limit_handler = signal(SIGXFSZ, SIG_IGN);
        if (argc == 5 && strcmp(argv[1], "--recover") == 0)
                return recover(argv + 2);
        if (argc == 5 && strcmp(argv[1], "--held") == 0)
                return take_held(argv + 2, cpus);
        if (argc < 6)
                die("expected a trace, a folder, seconds, KiB of buffer, a text, a command");
        if (!readers || cpus > CPUS_MOST)
                die("%u CPUs: more than expected", cpus);
        source.path = argv[1];
        source.folder = argv[2];
        source.text = argv[5];
        for (unsigned int i = 0; i < HANDLED; i++)
                handle(handled[i]);
        /*
         * If the kmem command dies, nobody would read the recording, so this program ends with it.
         */
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        make_report(source.folder);
        prepare(argv[4]);
        start_readers(readers, cpus, source.folder);
        source.page_bytes = (size_t)tracefs_cpu_read_size(readers[0].cpu);
        keep_slabinfo(source.folder, "slabinfo.before");
        started = now_seconds();
        if (tracefs_trace_on(instance))
                die("tracing cannot be turned on: %s", strerror(errno));
        if (argc > 6)
                status = run_command(argv + 6);
        else
                wait_seconds(strtod(argv[3], NULL));
        tracefs_trace_off(instance);
        source.seconds = now_seconds() - started;
        keep_slabinfo(source.folder, "slabinfo.after");
        stop_readers(readers, cpus);
        source.lost = lost_events(cpus);
        source.status = status;
        kernel_convert(&source);
        free(readers);
        return 0;
}
