/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * follow_rseq PROGRAM [ARGUMENT...]: runs a program and all its children under ptrace, and reports
 * each break of a rule of restartable sequences. New kernels end a process that breaks some of
 * these rules; older kernels stay silent or give a task the wrong numbers. This program sees a
 * break on any kernel.
 *
 *  R-1  No task registers an area that is another live task's in its memory.
 *  R-2  An area is unregistered with the length that it was registered with, and registered again with it.
 *  R-3  Nobody but the kernel stores to cpu_id_start, cpu_id, node_id and mm_cid of a registered area: neither
 *       its owner nor a child of vfork, which runs on the owner's thread block.
 *  R-4  Such a child begins no sequence on an area that the kernel keeps for its owner (stores to rseq_cs).
 *  R-5  A thread that has unregistered its area registers it again before it ends.
 *
 * R-3 and R-4 are held by watchpoints of the processor, which see every store of the task itself
 * and none of the kernel's: on x86-64 only, and only where the machine has them, which is tried
 * first.
 *
 * The last line on standard error counts what was seen, so that a test can tell that there was
 * something. The status is that of the program, or 1 if a rule was broken, or 77 if nobody may be
 * traced here.
 */
#define _GNU_SOURCE
#include <inttypes.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/user.h>

#include "check.h"

/* libc's header of that name and the kernel's do not go together. */
#include <linux/ptrace.h>

enum {
        TASKS_MAX = 4096,
        REPORTS_MAX = 20,
        UNREGISTER = 1,
        STACK_WORDS = 40, /* of a task that crashes */
        /* Offsets in an area. */
        CPU_ID_START = 0,
        RSEQ_CS = 8,
        NODE_ID = 20,
        MM_CID = 24,
};

static const uint64_t NO_CALL = UINT64_MAX;

struct task {
        pid_t id; /* 0: this entry is free */
        pid_t process;
        unsigned int memory; /* number of the address space */
        uint64_t area;       /* that this task has registered last; 0: none */
        uint32_t bytes;      /* of that registration */
        bool registered;     /* and not unregistered since */
        pid_t lender;  /* owner of the block that this task runs on as a child of vfork; or 0 */
        bool born;     /* its parent's system call was seen */
        bool waits;    /* it has stopped before that */
        uint64_t call; /* the system call that it is in; or NO_CALL */
        uint64_t arguments[6];
};

static struct task tasks[TASKS_MAX];
static unsigned int memories;
static struct {
        unsigned long tasks, registrations, unregistrations, borrowers, faults;
} seen;

static struct task *find(pid_t id)
{
        for (size_t i = 0; i < TASKS_MAX; i++)
                if (tasks[i].id == id)
                        return &tasks[i];
        return NULL;
}

static struct task *find_or_add(pid_t id)
{
        struct task *task = find(id);

        if (!task) {
                check((task = find(0)) != NULL);
                *task = (struct task){.id = id, .process = id};
        }
        return task;
}

/* Where that was: a file and an offset there. */
static void print_place(pid_t id, uint64_t address)
{
        char path[64], line[512], name[256];
        unsigned long start, end, offset;
        FILE *file;

        snprintf(path, sizeof(path), "/proc/%d/maps", id);
        file = fopen(path, "r");
        while (file && fgets(line, sizeof(line), file))
                if (sscanf(line, "%lx-%lx %*s %lx %*s %*s %255s", &start, &end, &offset, name) ==
                            4 &&
                    start <= address && address < end)
                        fprintf(stderr, "  before %s+%#lx\n", name, address - start + offset);
        if (file)
                fclose(file);
}

/* Where a task gets a signal that ends it, and what its area asks the kernel to abort (rseq_cs). */
static void tell_crash(const struct task *task, int number)
{
        struct ptrace_syscall_info at = {0};
        siginfo_t signal = {0};
        long words = 0;

        if (number != SIGSEGV && number != SIGBUS && number != SIGILL)
                return;
        ptrace(PTRACE_GETSIGINFO, task->id, 0, &signal);
        ptrace(PTRACE_GET_SYSCALL_INFO, task->id, sizeof(at), &at);
        if (task->area)
                words = ptrace(PTRACE_PEEKDATA, task->id, task->area + RSEQ_CS, 0);
        fprintf(stderr,
                "follow_rseq: task %d of process %d, lender %d, gets signal %d, code %d, address"
                " %p; area %#" PRIx64 "%s, rseq_cs %#lx\n",
                task->id, task->process, task->lender, number, signal.si_code, signal.si_addr,
                task->area, task->registered ? "" : " (not registered)", words);
        print_place(task->id, at.instruction_pointer);
        for (unsigned int i = 0; i < STACK_WORDS; i++)
                print_place(task->id, (uint64_t)ptrace(PTRACE_PEEKDATA, task->id,
                                                       at.stack_pointer + i * sizeof(words), 0));
}

/* The first faults are told, all are counted. */
static void fault(const struct task *task, const char *rule, uint64_t area, uint32_t bytes)
{
        if (seen.faults++ < REPORTS_MAX)
                fprintf(stderr,
                        "follow_rseq: task %d of process %d %s: area %#" PRIx64 ", %" PRIu32
                        " bytes\n",
                        task->id, task->process, rule, area, bytes);
}

/* ---- Watchpoints ------------------------------------------------------------------------------- */

#if defined(__x86_64__)
static void set_debug_register(pid_t id, size_t number, uint64_t value)
{
        /* The task may have been killed meanwhile. */
        if (ptrace(PTRACE_POKEUSER, id, offsetof(struct user, u_debugreg) + number * sizeof(value),
                   value) != 0)
                check(errno == ESRCH);
}

/* For stores to the kernel's fields, and, by other tasks than the owner, to rseq_cs. Area 0: no more. */
static void watch(pid_t id, uint64_t area, bool is_owner)
{
        enum { ON = 1, STORES = 1, FOUR = 3, EIGHT = 2 };
        static const struct {
                unsigned int offset, length;
        } fields[] = {{CPU_ID_START, EIGHT}, {NODE_ID, FOUR}, {MM_CID, FOUR}, {RSEQ_CS, EIGHT}};
        uint64_t control = 0;

        set_debug_register(id, 7, 0);
        for (unsigned int i = 0; area && i < (is_owner ? 3 : 4); i++) {
                set_debug_register(id, i, area + fields[i].offset);
                control |= (uint64_t)ON << (2 * i) | (uint64_t)(fields[i].length << 2 | STORES)
                                                             << (16 + 4 * i);
        }
        set_debug_register(id, 7, control);
}

/* Whether a store of a child's own is seen. */
static bool can_watch(void)
{
        static volatile uint64_t area[4] __attribute__((aligned(32)));
        pid_t child = fork();
        int status;
        bool seen_one;

        check(child >= 0);
        if (child == 0) {
                check(ptrace(PTRACE_TRACEME, 0, 0, 0) == 0);
                raise(SIGSTOP);
                area[0] = 1;
                _exit(0);
        }
        check(waitpid(child, &status, 0) == child);
        if (!WIFSTOPPED(status))
                return false;
        watch(child, (uintptr_t)area, true);
        ptrace(PTRACE_CONT, child, 0, 0);
        check(waitpid(child, &status, 0) == child);
        seen_one = WIFSTOPPED(status) && WSTOPSIG(status) == SIGTRAP;
        if (seen_one) {
                ptrace(PTRACE_CONT, child, 0, 0);
                check(waitpid(child, &status, 0) == child);
        }
        return seen_one;
}
#else
static void watch(pid_t id, uint64_t area, bool is_owner)
{
        (void)id;
        (void)area;
        (void)is_owner;
}

static bool can_watch(void)
{
        return false;
}
#endif

static void watch_task(const struct task *task)
{
        const struct task *lender = find(task->lender);

        if (task->lender && lender)
                watch(task->id, lender->registered ? lender->area : 0, false);
        else
                watch(task->id, task->registered ? task->area : 0, true);
}

/* Whether a signal came from a watchpoint, which then is a fault. */
static bool is_watched_store(struct task *task)
{
        siginfo_t signal;

        if (ptrace(PTRACE_GETSIGINFO, task->id, 0, &signal) != 0 || signal.si_signo != SIGTRAP ||
            signal.si_code != TRAP_HWBKPT)
                return false;
        if (task->lender)
                fault(task, "stores to the area of its parent", 0, 0);
        else
                fault(task, "stores to a field that is the kernel's", task->area, task->bytes);
        if (seen.faults <= REPORTS_MAX)
                print_place(task->id, (uint64_t)(uintptr_t)signal.si_addr);
        /* A single report is enough for a possible loop. */
        watch(task->id, 0, true);
        return true;
}

/* ---- Actions of tasks ------------------------------------------------------------------------ */

static void check_registration(const struct task *task, uint64_t area, uint32_t bytes)
{
        for (size_t i = 0; i < TASKS_MAX; i++) {
                const struct task *other = &tasks[i];

                if (other->id && other != task && other->memory == task->memory && other->area &&
                    area < other->area + other->bytes && other->area < area + bytes)
                        fault(task, "registers the area of another task", area, bytes);
        }
        if (!task->registered && task->area == area && task->bytes != bytes)
                fault(task, "registers again with another length", area, bytes);
}

static void enter_call(struct task *task, const struct ptrace_syscall_info *info)
{
        uint64_t area = info->entry.args[0];
        uint32_t bytes = (uint32_t)info->entry.args[1];

        task->call = info->entry.nr;
        memcpy(task->arguments, info->entry.args, sizeof(task->arguments));
        if (task->call != SYS_rseq)
                return;
        if (!(task->arguments[2] & UNREGISTER))
                check_registration(task, area, bytes);
        else if (!task->registered || area != task->area || bytes != task->bytes)
                fault(task, "unregisters what it has not registered", area, bytes);
}

static void leave_call(struct task *task, const struct ptrace_syscall_info *info)
{
        if (task->call == SYS_rseq && !info->exit.is_error) {
                task->registered = !(task->arguments[2] & UNREGISTER);
                if (task->registered) {
                        task->area = task->arguments[0];
                        task->bytes = (uint32_t)task->arguments[1];
                        seen.registrations++;
                } else {
                        seen.unregistrations++;
                }
                watch_task(task);
        }
        task->call = NO_CALL;
}

static void see_call(struct task *task)
{
        struct ptrace_syscall_info info;

        if (ptrace(PTRACE_GET_SYSCALL_INFO, task->id, sizeof(info), &info) <= 0)
                return;
        if (info.op == PTRACE_SYSCALL_INFO_ENTRY)
                enter_call(task, &info);
        else if (info.op == PTRACE_SYSCALL_INFO_EXIT)
                leave_call(task, &info);
}

static uint64_t clone_flags(const struct task *task)
{
        uint64_t flags = 0;
        struct iovec here = {&flags, sizeof(flags)};
        struct iovec there = {(void *)(uintptr_t)task->arguments[0], sizeof(flags)};

        switch (task->call) {
        case SYS_clone:
                return task->arguments[0];
        case SYS_clone3:
                check(process_vm_readv(task->id, &here, 1, &there, 1, 0) == sizeof(flags));
                return flags;
#ifdef SYS_vfork
        case SYS_vfork:
                return CLONE_VM | CLONE_VFORK;
#endif
        default:
                return 0;
        }
}

static void resume(pid_t id, int signal)
{
        ptrace(PTRACE_SYSCALL, id, 0, signal);
}

/* The kernel's handling of the parent's registration, and the owner of the child's thread block. */
static void see_birth(const struct task *parent, pid_t id)
{
        struct task *child = find_or_add(id);
        uint64_t flags = clone_flags(parent);

        seen.tasks++;
        child->born = true;
        child->call = NO_CALL;
        child->process = flags & CLONE_THREAD ? parent->process : id;
        if (!(flags & CLONE_VM)) {
                child->memory = ++memories;
                child->area = parent->area;
                child->bytes = parent->bytes;
                child->registered = parent->registered;
        } else {
                child->memory = parent->memory;
                if (!(flags & CLONE_SETTLS))
                        child->lender = parent->lender ? parent->lender : parent->id;
        }
        seen.borrowers += child->lender != 0;
        if (child->waits) {
                watch_task(child);
                resume(id, 0);
        }
}

static void see_exec(struct task *task)
{
        unsigned long former = 0;

        ptrace(PTRACE_GETEVENTMSG, task->id, 0, &former);
        for (size_t i = 0; i < TASKS_MAX; i++)
                if (tasks[i].id && tasks[i].id != task->id &&
                    (tasks[i].id == (pid_t)former || tasks[i].process == task->process))
                        tasks[i].id = 0;
        *task = (struct task){.id = task->id,
                              .process = task->id,
                              .memory = ++memories,
                              .born = true,
                              .call = NO_CALL};
}

static void see_end(struct task *task)
{
        unsigned long status = 0;

        ptrace(PTRACE_GETEVENTMSG, task->id, 0, &status);
        if (task->area && !task->registered && !WTERMSIG(status))
                fault(task, "ends without its registration", task->area, task->bytes);
        /* The task's area has no owner now. */
        task->area = 0;
}

/* Returns the signal that the task is to get. */
static int see_stop(struct task *task, int status)
{
        unsigned long child;

        switch (status >> 16) {
        case PTRACE_EVENT_FORK:
        case PTRACE_EVENT_VFORK:
        case PTRACE_EVENT_CLONE:
                if (ptrace(PTRACE_GETEVENTMSG, task->id, 0, &child) == 0)
                        see_birth(task, (pid_t)child);
                return 0;
        case PTRACE_EVENT_EXEC:
                see_exec(task);
                return 0;
        case PTRACE_EVENT_EXIT:
                see_end(task);
                return 0;
        case PTRACE_EVENT_STOP:
                return 0;
        default:
                break;
        }
        if (WSTOPSIG(status) == (SIGTRAP | 0x80)) {
                see_call(task);
                return 0;
        }
        if (is_watched_store(task))
                return 0;
        tell_crash(task, WSTOPSIG(status));
        return WSTOPSIG(status);
}

/*
 * Follows the first task and all its descendants until they have ended; returns the first task's
 * status.
 */
static int follow(pid_t first)
{
        int status, result = 0;
        pid_t id;

        while ((id = waitpid(-1, &status, __WALL)) > 0) {
                struct task *task = find_or_add(id);

                if (WIFEXITED(status) || WIFSIGNALED(status)) {
                        task->id = 0;
                        if (id == first)
                                result = status;
                        if (WIFSIGNALED(status))
                                fprintf(stderr, "follow_rseq: process %d ended by signal %d\n", id,
                                        WTERMSIG(status));
                        continue;
                }
                if (status >> 16 == PTRACE_EVENT_STOP && !task->waits && !task->born) {
                        task->waits = true;
                        continue;
                }
                if (status >> 16 == PTRACE_EVENT_STOP)
                        watch_task(task);
                resume(id, see_stop(task, status));
        }
        check(errno == ECHILD);
        return result;
}

/* A child that waits until it is followed, then becomes the program. */
static pid_t start(char *const arguments[])
{
        int ready[2];
        char byte;
        pid_t child;

        check(pipe(ready) == 0);
        child = fork();
        check(child >= 0);
        if (child == 0) {
                close(ready[1]);
                check(read(ready[0], &byte, 1) == 1);
                close(ready[0]);
                execvp(arguments[0], arguments);
                check_failed(arguments[0], __FILE__, __LINE__);
        }
        if (ptrace(PTRACE_SEIZE, child, 0,
                   PTRACE_O_TRACESYSGOOD | PTRACE_O_TRACEFORK | PTRACE_O_TRACEVFORK |
                           PTRACE_O_TRACECLONE | PTRACE_O_TRACEEXEC | PTRACE_O_TRACEEXIT |
                           PTRACE_O_EXITKILL) != 0) {
                printf("no process may be traced here (errno %d)\n", errno);
                exit(77);
        }
        find_or_add(child)->born = true;
        close(ready[0]);
        check(write(ready[1], "", 1) == 1);
        close(ready[1]);
        return child;
}

int main(int count, char **arguments)
{
        bool watched;
        int status;

        check(count > 1);
        watched = can_watch();
        status = follow(start(arguments + 1));
        fprintf(stderr,
                "follow_rseq: tasks %lu, registrations %lu, unregistrations %lu, borrowers %lu, "
                "faults %lu, stores %s\n",
                seen.tasks, seen.registrations, seen.unregistrations, seen.borrowers, seen.faults,
                watched ? "seen" : "unseen");
        if (seen.faults)
                return 1;
        return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}
