/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * The walk by kept rows finds the frames that the compiler's unwinder finds, from functions of many
 * shapes, and hands over where it should. Each case walks twice at the least: by rows that it reads,
 * and by rows that were kept.
 */
#define _GNU_SOURCE
#include "unit.h"

#include "machine/find_object.h"
#include "machine/frame_row.h"
#include "machine/lasting.h"
#include "machine/row_walk.h"
#include "machine/stack.h"

#include <alloca.h>
#include <dlfcn.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <ucontext.h>
#include <unwind.h>

#include "row_walk_module.h"
#ifdef HAVE_THROW
#include "row_walk_throw.h"
#endif

enum { ROOM = 200, ROUNDS = 3 };

/* Not inlined, not cloned, and called as it is written. */
#ifdef __clang__
#define OPAQUE __attribute__((noinline)) /* it makes no clones */
#else
#define OPAQUE __attribute__((noinline, noclone))
#endif
/* Behind a call, which so is no jump. */
#define STAY __asm__ volatile("" ::: "memory")

/* Also in threads and handlers, where cmocka's assertions would not do. */
#define must(condition)                                                                            \
        do {                                                                                       \
                if (!(condition)) {                                                                \
                        dprintf(STDERR_FILENO, "# %s (%s:%d)\n", #condition, __FILE__, __LINE__);  \
                        abort();                                                                   \
                }                                                                                  \
        } while (0)

/* ---- Both walks -------------------------------------------------------------------------- */

struct seen {
        void *frame[ROOM];
        int count;
};

static _Unwind_Reason_Code add_frame(struct _Unwind_Context *context, void *argument)
{
        struct seen *seen = argument;
        uintptr_t address = _Unwind_GetIP(context);

        if (!address || seen->count == ROOM)
                return _URC_END_OF_STACK;
        seen->frame[seen->count++] = (void *)address;
        return _URC_NO_REASON;
}

static void print_both(const struct seen *rows, const struct seen *unwinder)
{
        for (int i = 0; i < rows->count || i < unwinder->count; i++)
                dprintf(STDERR_FILENO, "# %2d %p %p\n", i, i < rows->count ? rows->frame[i] : NULL,
                        i < unwinder->count ? unwinder->frame[i] : NULL);
}

/*
 * What the library gets, by whichever walk. It begins with frames of this function and of stack_walk,
 * which compilers may inline.
 */
static OPAQUE void check_together(const struct seen *unwinder)
{
        struct seen both;
        int common = unwinder->count - 1;

        if (!stack_walk)
                return;
        both.count = stack_walk(both.frame, ROOM, 0, 0);
        if (both.count <= common || memcmp(both.frame + both.count - common, unwinder->frame + 1,
                                           (size_t)common * sizeof(void *)) != 0) {
                print_both(&both, unwinder);
                must(false);
        }
}

/* How many frames the walk by rows finds; they are the unwinder's but for this function's own. */
static OPAQUE int walk_both(void)
{
        struct seen unwinder = {.count = 0};
        struct seen rows;

        _Unwind_Backtrace(add_frame, &unwinder);
        check_together(&unwinder);
        for (int round = 0; round < ROUNDS; round++) {
                size_t bytes;

                rows.count = row_walk(rows.frame, ROOM, 0, 0);
                if (rows.count == ROW_WALK_UNKNOWN)
                        continue;
                bytes = (size_t)(rows.count - 1) * sizeof(void *);
                if (rows.count != unwinder.count ||
                    memcmp(rows.frame + 1, unwinder.frame + 1, bytes) != 0) {
                        print_both(&rows, &unwinder);
                        must(false);
                }
        }
        return rows.count;
}

static unsigned long walks;

/* Where the walk by rows has all it needs. */
static OPAQUE void walk(void)
{
        must(walk_both() > 1);
        __atomic_add_fetch(&walks, 1, __ATOMIC_RELAXED);
        STAY;
}

/* Where it needs the unwinder. */
static OPAQUE void walk_handed_over(void)
{
        must(walk_both() == ROW_WALK_UNKNOWN);
        __atomic_add_fetch(&walks, 1, __ATOMIC_RELAXED);
        STAY;
}

/* ---- Functions of many shapes ------------------------------------------------------------ */

static OPAQUE void recurse(unsigned int depth)
{
        if (depth)
                recurse(depth - 1);
        else
                walk();
        STAY;
}

static OPAQUE void with_variable_room(size_t bytes)
{
        volatile char *room = alloca(bytes);

        room[0] = 1;
        walk();
        room[bytes - 1] = 2;
}

/* Has no room in a kept row. */
static OPAQUE void with_large_frame(void)
{
        volatile char room[200000];

        room[0] = 1;
        walk();
        room[sizeof(room) - 1] = 2;
}

/* Compilers may reach the arguments by a register of their own; then the walk hands over. */
static OPAQUE int with_aligned_room(long a, long b, long c, long d, long e, long f, long g, long h,
                                    size_t bytes)
{
        volatile char room[64] __attribute__((aligned(64)));
        volatile char *more = alloca(bytes);

        room[0] = more[0] = (char)(a + b + c + d + e + f + g + h);
        walk_both();
        return room[0] + more[0];
}

static OPAQUE long with_many_registers(long a, long b, long c, long d, long e, long f)
{
        long sum = a * b + c * d + e * f;

        walk();
        sum += a + b + c + d + e + f;
        walk();
        return sum;
}

/* The way back is another part of the function, behind a restored state. */
static OPAQUE int with_early_return(int way)
{
        volatile char room[300];

        room[0] = 1;
        if (way == 0)
                return room[0];
        walk();
        if (way == 1)
                return room[0];
        walk();
        return room[0] + way;
}

static int compare_longs(const void *left, const void *right)
{
        walk();
        return *(const long *)left > *(const long *)right;
}

/* Functions whose kept rows are in the same set, more than a set holds. */
#define FAR(name, bytes)                                                                           \
        OPAQUE __attribute__((aligned(16384))) static void name(void)                              \
        {                                                                                          \
                volatile char room[bytes];                                                         \
                                                                                                   \
                room[0] = 1;                                                                       \
                walk();                                                                            \
                room[sizeof(room) - 1] = 2;                                                        \
        }
FAR(far_first, 1024)
FAR(far_second, 2048)
FAR(far_third, 3072)

static void walk_shapes(void)
{
        long numbers[] = {5, 2, 9, 1};

        for (unsigned int depth = 0; depth < 40; depth += 13)
                recurse(depth);
        for (size_t bytes = 1; bytes < 3000; bytes = bytes * 3 + 5)
                with_variable_room(bytes);
        with_large_frame();
        with_aligned_room(1, 2, 3, 4, 5, 6, 7, 8, 100);
        with_many_registers(1, 2, 3, 4, 5, 6);
        for (int way = 0; way < 3; way++)
                with_early_return(way);
        qsort(numbers, array_size(numbers), sizeof(*numbers), compare_longs);
        for (int round = 0; round < 3; round++) {
                far_first();
                far_second();
                far_third();
        }
}

/* ---- Cases ------------------------------------------------------------------------------- */

static void test_shapes(void **state)
{
        (void)state;
        walk_shapes();
}

static void test_room_and_own_frames(void **state)
{
        struct seen all;
        struct seen some;

        (void)state;
        all.count = row_walk(all.frame, ROOM, 0, 0);
        assert_true(all.count > 2);
        for (int room = 0; room <= all.count; room++) {
                memset(&some, 0, sizeof(some));
                some.count = row_walk(some.frame, room, 0, 0);
                assert_int_equal(some.count, room);
                if (room > 1)
                        assert_memory_equal(some.frame + 1, all.frame + 1,
                                            (size_t)(room - 1) * sizeof(void *));
                assert_null(some.frame[room]);
        }
        /* The first frame is left out, as it lies in this function; later ones never are. */
        some.count = row_walk(some.frame, ROOM, (uintptr_t)all.frame[0] - 4096,
                              (uintptr_t)all.frame[0] + 4096);
        assert_true(some.count < all.count);
        assert_ptr_equal(some.frame[some.count - 1], all.frame[all.count - 1]);
        some.count =
                row_walk(some.frame, ROOM, (uintptr_t)all.frame[1], (uintptr_t)all.frame[1] + 1);
        assert_int_equal(some.count, all.count);
}

enum { CODE_BYTES = 4096 };

/* A mapping with these instructions, of which no table knows. */
static void *make_code(const void *instructions, size_t bytes)
{
        void *page =
                mmap(NULL, CODE_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

        assert_true(page != MAP_FAILED);
        memcpy(page, instructions, bytes);
        if (mprotect(page, CODE_BYTES, PROT_READ | PROT_EXEC) != 0)
                skip_because("the system lets no program make code");
        __builtin___clear_cache(page, (char *)page + bytes);
        return page;
}

static void handle(int signal)
{
        (void)signal;
        walk_handed_over();
}

static void test_signal_handlers(void **state)
{
        static char other_stack[65536];
        const stack_t stack = {.ss_sp = other_stack, .ss_size = sizeof(other_stack)};
        const stack_t none = {.ss_flags = SS_DISABLE};
        struct sigaction action = {.sa_handler = handle};
        unsigned long before = walks;

        (void)state;
        assert_int_equal(sigaction(SIGUSR1, &action, NULL), 0);
        raise(SIGUSR1);
        action.sa_flags = SA_ONSTACK;
        assert_int_equal(sigaction(SIGUSR1, &action, NULL), 0);
        assert_int_equal(sigaltstack(&stack, NULL), 0);
        raise(SIGUSR1);
        assert_int_equal(sigaltstack(&none, NULL), 0);
        assert_int_equal(walks, before + 2);
}

#ifdef __x86_64__
/* The way back from a handler that libc had before it had rows: the unwinder knows its bytes. */
static void test_signal_return_without_rows(void **state)
{
        static const uint8_t signal_return[] = {0x48, 0xc7, 0xc0, 0x0f, 0x00,
                                                0x00, 0x00, 0x0f, 0x05};
        struct {
                void (*handler)(int signal);
                unsigned long flags;
                void *restorer;
                unsigned long mask;
        } action = {.handler = handle, .flags = 0x04000000 /* there is a restorer */};
        void *page = make_code(signal_return, sizeof(signal_return));
        unsigned long before = walks;

        (void)state;
        action.restorer = page;
        assert_int_equal(syscall(SYS_rt_sigaction, SIGUSR2, &action, NULL, 8), 0);
        raise(SIGUSR2);
        assert_int_equal(walks, before + 1);
        signal(SIGUSR2, SIG_DFL);
        munmap(page, CODE_BYTES);
}
#endif

/* Keeps rows while a thread does; the unwinder does not get past each instruction it may stop at. */
static void handle_often(int signal)
{
        void *frames[ROOM];

        (void)signal;
        /* ThreadSanitizer calls handlers later, from its own functions. */
        must(row_walk(frames, ROOM, 0, 0) == ROW_WALK_UNKNOWN || THREAD_SANITIZER);
        STAY;
}

static void *run_shapes(void *argument)
{
        for (int round = 0; round < 200; round++)
                walk_shapes();
        return argument;
}

/* Signals interrupt threads in the middle of keeping a row, and keep rows themselves. */
static void test_threads_and_signals(void **state)
{
        const struct itimerval often = {{0, 1000}, {0, 1000}};
        const struct itimerval never = {{0, 0}, {0, 0}};
        const struct sigaction action = {.sa_handler = handle_often, .sa_flags = SA_RESTART};
        pthread_t threads[3];

        (void)state;
        assert_int_equal(sigaction(SIGALRM, &action, NULL), 0);
        assert_int_equal(setitimer(ITIMER_REAL, &often, NULL), 0);
        for (size_t i = 0; i < array_size(threads); i++)
                assert_int_equal(pthread_create(&threads[i], NULL, run_shapes, NULL), 0);
        for (size_t i = 0; i < array_size(threads); i++)
                assert_int_equal(pthread_join(threads[i], NULL), 0);
        assert_int_equal(setitimer(ITIMER_REAL, &never, NULL), 0);
}

static void walk_at_cleanup(void *unused)
{
        (void)unused;
        walk();
}

static void *end_thread(void *argument)
{
        pthread_cleanup_push(walk_at_cleanup, NULL);
        pthread_exit(argument);
        pthread_cleanup_pop(0);
        return NULL;
}

static void test_ending_threads(void **state)
{
        unsigned long before = walks;
        pthread_t thread;

        (void)state;
        assert_int_equal(pthread_create(&thread, NULL, end_thread, NULL), 0);
        assert_int_equal(pthread_join(thread, NULL), 0);
        assert_int_equal(walks, before + 1);
}

static ucontext_t here;
static ucontext_t coroutine;

static void run_coroutine(void)
{
        recurse(3);
        assert_int_equal(swapcontext(&coroutine, &here), 0);
        recurse(5);
}

static void test_coroutines(void **state)
{
        static char stack[262144];
        unsigned long before = walks;

        (void)state;
        assert_int_equal(getcontext(&coroutine), 0);
        coroutine.uc_stack = (stack_t){.ss_sp = stack, .ss_size = sizeof(stack)};
        coroutine.uc_link = &here;
        makecontext(&coroutine, run_coroutine, 0);
        assert_int_equal(swapcontext(&here, &coroutine), 0);
        walk();
        assert_int_equal(swapcontext(&here, &coroutine), 0);
        assert_int_equal(walks, before + 3);
}

static int run_child(void *argument)
{
        (void)argument;
        walk_shapes();
        return 0;
}

static void expect_child(pid_t pid)
{
        int status;

        assert_true(pid > 0);
        assert_int_equal(waitpid(pid, &status, __WALL), pid);
        assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static OPAQUE void vfork_once(void)
{
        pid_t pid = vfork();

        if (pid == 0) {
                recurse(4);
                _exit(0);
        }
        expect_child(pid);
}

static void test_children(void **state)
{
        pid_t pid = fork();

        (void)state;
        if (pid == 0)
                _exit(run_child(NULL));
        expect_child(pid);
        vfork_once();
}

/* The child of clone shares the kept rows, as that of vfork does. */
static void test_clones(void **state)
{
        static char stack[524288];

        (void)state;
        if (emulated())
                skip_because("emulators do not have each kind of clone");
        if (THREAD_SANITIZER)
                skip_because("ThreadSanitizer does not know threads that are made by clone");
        expect_child(clone(run_child, stack + sizeof(stack), CLONE_VM | SIGCHLD, NULL));
}

/*
 * Functions that call their first argument, without rows: with a frame pointer, with the second
 * argument in its place, and with the caller's.
 */
#ifdef __aarch64__
static const uint32_t framed[] = {
        0xa9bf7bfd, /* stp x29, x30, [sp, #-16]! */
        0x910003fd, /* mov x29, sp */
        0xd63f0000, /* blr x0 */
        0xa8c17bfd, /* ldp x29, x30, [sp], #16 */
        0xd65f03c0, /* ret */
};
static const uint32_t pointed[] = {
        0xa9bf7bfd, /* stp x29, x30, [sp, #-16]! */
        0xaa0103fd, /* mov x29, x1 */
        0xd63f0000, /* blr x0 */
        0xa8c17bfd, /* ldp x29, x30, [sp], #16 */
        0xd65f03c0, /* ret */
};
static const uint32_t frameless[] = {
        0xa9bf7bfd, /* stp x29, x30, [sp, #-16]! */
        0xd63f0000, /* blr x0 */
        0xa8c17bfd, /* ldp x29, x30, [sp], #16 */
        0xd65f03c0, /* ret */
};
#else
static const uint8_t framed[] = {
        0x55,             /* push %rbp */
        0x48, 0x89, 0xe5, /* mov %rsp, %rbp */
        0xff, 0xd7,       /* call *%rdi */
        0x5d,             /* pop %rbp */
        0xc3,             /* ret */
};
static const uint8_t pointed[] = {
        0x55,             /* push %rbp */
        0x48, 0x89, 0xf5, /* mov %rsi, %rbp */
        0xff, 0xd7,       /* call *%rdi */
        0x5d,             /* pop %rbp */
        0xc3,             /* ret */
};
static const uint8_t frameless[] = {
        0x48, 0x83, 0xec, 0x08, /* sub $8, %rsp */
        0xff, 0xd7,             /* call *%rdi */
        0x48, 0x83, 0xc4, 0x08, /* add $8, %rsp */
        0xc3,                   /* ret */
};
#endif

static struct seen past;    /* from code without rows on */
static struct seen outside; /* from the caller of that code on */
static int unwound;         /* frames that the unwinder finds */

static OPAQUE void walk_past(void)
{
        struct seen unwinder = {.count = 0};

        _Unwind_Backtrace(add_frame, &unwinder);
        past.count = row_walk(past.frame, ROOM, 0, 0);
        unwound = unwinder.count;
        must(past.count >= unwound);
        must(memcmp(past.frame + 1, unwinder.frame + 1, (size_t)(unwound - 1) * sizeof(void *)) ==
             0);
        STAY;
}

/* Of made code at @page. */
static OPAQUE void call_code(void *page, void (*callback)(void), const void *pointer)
{
        outside.count = row_walk(outside.frame, ROOM, 0, 0);
        ((void (*)(void (*)(void), const void *))page)(callback, pointer);
        STAY;
}

static void call_made(const void *instructions, size_t bytes, const void *pointer)
{
        void *page = make_code(instructions, bytes);

        call_code(page, walk_past, pointer);
        munmap(page, CODE_BYTES);
}

static void test_code_with_frame_pointers(void **state)
{
        (void)state;
        call_made(framed, sizeof(framed), NULL);
        /* One frame is another place of call_code; then follow its callers. */
        assert_int_equal(past.count, unwound + outside.count);
        assert_memory_equal(past.frame + unwound + 1, outside.frame + 1,
                            (size_t)(outside.count - 1) * sizeof(void *));
}

/* Whatever the register has, no frame is made up: some are left out. */
static void test_code_without_frame_pointers(void **state)
{
        int at = 1;

        (void)state;
        call_made(frameless, sizeof(frameless), NULL);
        for (int i = unwound; i < past.count; i++) {
                bool is_in_caller = i == unwound && past.frame[i] > outside.frame[0] &&
                                    (char *)past.frame[i] < (char *)outside.frame[0] + 1000;

                while (!is_in_caller && at < outside.count && outside.frame[at] != past.frame[i])
                        at++;
                assert_true(is_in_caller || at < outside.count);
        }
}

static void *closed;
static size_t closed_bytes;

/* The unwinder would read what is closed. */
static OPAQUE void walk_past_closed(void)
{
        must(mprotect(closed, closed_bytes, PROT_NONE) == 0);
        past.count = row_walk(past.frame, ROOM, 0, 0);
        must(mprotect(closed, closed_bytes, PROT_READ | PROT_EXEC) == 0);
        STAY;
}

/* A program may unmap code that a call of its own will never return to. */
static void test_code_that_is_gone(void **state)
{
        (void)state;
        closed_bytes = CODE_BYTES;
        closed = make_code(framed, sizeof(framed));
        call_code(closed, walk_past_closed, NULL);
        /* The callback, the code, and call_code at another place; then its callers. */
        assert_int_equal(past.count, 2 + outside.count);
        assert_memory_equal(past.frame + 3, outside.frame + 1,
                            (size_t)(outside.count - 1) * sizeof(void *));
        munmap(closed, closed_bytes);
        closed = make_code(pointed, sizeof(pointed));
        call_code(closed, walk_past_closed, NULL);
        assert_int_equal(past.count, 2);
        munmap(closed, closed_bytes);
}

/* Its call returns to the last instructions of a page, and the next page cannot be read. */
static void test_code_at_the_end_of_a_page(void **state)
{
        size_t bytes = (size_t)sysconf(_SC_PAGESIZE);
        char *pages =
                mmap(NULL, 2 * bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        char *code = pages + bytes - sizeof(framed);

        (void)state;
        assert_true(pages != MAP_FAILED);
        memcpy(code, framed, sizeof(framed));
        if (mprotect(pages, 2 * bytes, PROT_READ | PROT_EXEC) != 0)
                skip_because("the system lets no program make code");
        __builtin___clear_cache(code, code + sizeof(framed));
        closed = pages + bytes;
        closed_bytes = bytes;
        call_code(code, walk_past_closed, NULL);
        assert_int_equal(past.count, 2 + outside.count);
        munmap(pages, 2 * bytes);
}

/*
 * A call at the end of a page, and behind it a page that cannot be read. A place that was looked at before is
 * not looked at again.
 */
static void test_frame_pointer_to_the_end_of_code(void **state)
{
#ifdef __aarch64__
        static const uint32_t call = 0xd63f0000; /* blr x0 */
#else
        static const uint8_t call[] = {0xff, 0xd7}; /* call *%rdi */
#endif
        size_t bytes = (size_t)sysconf(_SC_PAGESIZE);
        char *pages =
                mmap(NULL, 4 * bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        uintptr_t known[] = {0, (uintptr_t)(pages + bytes)};
        uintptr_t other[] = {0, (uintptr_t)(pages + 3 * bytes)};

        (void)state;
        assert_true(pages != MAP_FAILED);
        memcpy(pages + bytes - sizeof(call), &call, sizeof(call));
        memcpy(pages + 3 * bytes - sizeof(call), &call, sizeof(call));
        call_made(pointed, sizeof(pointed), known);
        assert_true(past.count > unwound);
        assert_int_equal(mprotect(pages + bytes, bytes, PROT_NONE), 0);
        call_made(pointed, sizeof(pointed), known);
        assert_true(past.count > unwound);
        assert_int_equal(mprotect(pages + 3 * bytes, bytes, PROT_NONE), 0);
        call_made(pointed, sizeof(pointed), other);
        assert_int_equal(past.count, unwound);
        munmap(pages, 4 * bytes);
}

/* Whatever is known of another address: with as many, some share its place. */
static void test_frame_pointers_to_many_places_without_calls(void **state)
{
        enum { PLACES = 5000 };
        static char data[64 + PLACES + 64];

        (void)state;
        call_made(framed, sizeof(framed), NULL);
        for (size_t i = 0; i < PLACES; i++) {
                uintptr_t record[] = {0, (uintptr_t)(data + 64 + i)};

                call_made(pointed, sizeof(pointed), record);
                assert_int_equal(past.count, unwound);
        }
}

static void test_frame_pointers_to_nowhere(void **state)
{
        static uintptr_t elsewhere[2];
        static char data[64];
        uintptr_t wrong_address[] = {0, (uintptr_t)(data + 32)};
        uintptr_t no_address[] = {0, 1};
        uintptr_t unreadable[] = {0, (uintptr_t)1 << 46};
        const void *const nowhere[] = {
                NULL,
                (void *)1,
                (char *)wrong_address + 1,
                wrong_address,
                no_address,
                unreadable,
                elsewhere,
                (void *)(UINTPTR_MAX - 7),
                data,
                (void *)((uintptr_t)wrong_address + ((uintptr_t)1 << 40)),
        };

        (void)state;
        /* A true return address, but not on the stack. */
        call_made(framed, sizeof(framed), NULL);
        elsewhere[1] = (uintptr_t)outside.frame[1];
        for (size_t i = 0; i < array_size(nowhere); i++) {
                call_made(pointed, sizeof(pointed), nowhere[i]);
                assert_int_equal(past.count, unwound);
        }
}

#ifdef HAVE_THROW
static void test_exceptions(void **state)
{
        unsigned long before = walks;

        (void)state;
        for (int round = 0; round < 3; round++)
                walk_while_throwing(walk);
        assert_int_equal(walks, before + 3 * 9);
}
#endif

/* ---- Libraries that are closed ----------------------------------------------------------- */

static const void *returned_to;

static OPAQUE void walk_from_module(void)
{
        returned_to = __builtin_return_address(0);
        walk();
        STAY;
}

/* Beside this program. */
static void *open_module(const char *name)
{
        char path[4096];
        ssize_t length = readlink("/proc/self/exe", path, sizeof(path) - 64);
        char *slash;
        void *module;

        must(length > 0);
        path[length] = 0;
        slash = strrchr(path, '/');
        strcpy(slash + 1, name);
        module = dlopen(path, RTLD_NOW | RTLD_LOCAL);
        if (!module)
                dprintf(STDERR_FILENO, "# %s\n", dlerror());
        must(module);
        return module;
}

static const void *walk_through(const char *name)
{
        void *module = open_module(name);
        void (*call)(void (*callback)(void)) =
                (void (*)(void (*)(void)))dlsym(module, "module_call");

        must(call);
        call(walk_from_module);
        must(dlclose(module) == 0);
        return returned_to;
}

/* The first case: the library is open when the objects that last are found. */
static void test_what_lasts(void **state)
{
        void *module = open_module("row_walk_small.so");

        (void)state;
        assert_false(is_lasting((uintptr_t)walk_both));
        lasting_find();
        row_walk_prepare();
        row_walk_prepare();
        assert_true(is_lasting((uintptr_t)walk_both));
        assert_true(is_lasting((uintptr_t)dlsym(RTLD_DEFAULT, "qsort")));
        assert_true(is_lasting((uintptr_t)dlsym(RTLD_DEFAULT, "_cmocka_run_group_tests")));
        assert_false(is_lasting((uintptr_t)dlsym(module, "module_call")));
        assert_int_equal(dlclose(module), 0);
}

/* Rows of a library that was closed must not be used for the next at the same address. */
static void test_closed_libraries(void **state)
{
        unsigned int equal = 0;

        (void)state;
        for (int round = 0; round < 100; round++)
                equal += walk_through("row_walk_small.so") == walk_through("row_walk_large.so");
        if (!equal)
                skip_because("both libraries never had the same address");
}

static void *close_libraries(void *argument)
{
        for (int round = 0; round < 100; round++) {
                walk_through("row_walk_small.so");
                walk_through("row_walk_large.so");
        }
        return argument;
}

static void test_closed_beside_threads(void **state)
{
        pthread_t closer;
        pthread_t walker;

        (void)state;
        assert_int_equal(pthread_create(&closer, NULL, close_libraries, NULL), 0);
        assert_int_equal(pthread_create(&walker, NULL, run_shapes, NULL), 0);
        assert_int_equal(pthread_join(closer, NULL), 0);
        assert_int_equal(pthread_join(walker, NULL), 0);
}

/* ---- Rows -------------------------------------------------------------------------------- */

/* A hint saves time and changes no answer, for functions of the program and of libc. */
static void test_any_hint_will_do(void **state)
{
        const uintptr_t addresses[] = {(uintptr_t)recurse + 5, (uintptr_t)far_second + 8,
                                       (uintptr_t)qsort + 5, (uintptr_t)printf + 1};

        (void)state;
        for (size_t i = 0; i < array_size(addresses); i++) {
                struct found_object object;
                struct frame_row row = {0};
                uint32_t found = UINT32_MAX;
                enum row_answer answer;

                assert_int_equal(find_object((void *)addresses[i], &object), 0);
                answer = frame_row_read(object.frames, addresses[i], &found, &row);
                assert_int_not_equal(answer, ROW_NONE);
                for (uint32_t hint = 0; hint < found + 3; hint++) {
                        struct frame_row other = {0};
                        uint32_t index = hint;

                        assert_int_equal(
                                frame_row_read(object.frames, addresses[i], &index, &other),
                                answer);
                        assert_int_equal(index, found);
                        assert_memory_equal(&other, &row, sizeof(row));
                }
        }
}

/* A description of @own and @common words behind their lengths. */
struct described {
        uint32_t common[8];
        uint32_t own[72];
        struct frame_description found;
};

static uint64_t key_of(struct described *all, unsigned int common, unsigned int own,
                       uint64_t distance)
{
        all->common[0] = (uint32_t)(common * sizeof(uint32_t));
        all->found = (struct frame_description){
                .common = (const uint8_t *)all->common,
                .own = (const uint8_t *)all->own,
                .own_end = (const uint8_t *)(all->own + own),
                .distance = distance,
        };
        return frame_row_key(&all->found);
}

/* A key has all that a row is made of in it: each byte, both lengths, and the distance. */
static void test_keys(void **state)
{
        struct described all = {0};
        uint64_t key = key_of(&all, 6, 13, 100);

        (void)state;
        assert_true(key != 0);
        assert_true(key == key_of(&all, 6, 13, 100));
        assert_true(key != key_of(&all, 6, 13, 101));
        assert_true(key != key_of(&all, 5, 13, 100));
        assert_true(key != key_of(&all, 6, 12, 100));
        assert_true(key_of(&all, 5, 13, 100) != key_of(&all, 6, 12, 100));
        for (unsigned int byte = 4; byte < 7 * 4; byte++) {
                ((uint8_t *)all.common)[byte] ^= 0x40;
                assert_true(key != key_of(&all, 6, 13, 100));
                ((uint8_t *)all.common)[byte] ^= 0x40;
        }
        for (unsigned int byte = 0; byte < 13 * 4; byte++) {
                ((uint8_t *)all.own)[byte] ^= 0x40;
                assert_true(key != key_of(&all, 6, 13, 100));
                ((uint8_t *)all.own)[byte] ^= 0x40;
        }
        assert_true(key_of(&all, 6, 64, 100) != 0);
        assert_true(key_of(&all, 6, 65, 100) == 0);
        /* Lengths that are no whole words, as nobody writes them. */
        all.found.own_end = (const uint8_t *)all.own + 51;
        all.found.distance = 100;
        assert_true(frame_row_key(&all.found) != key);
}

static int skip_elsewhere(void **state)
{
        (void)state;
#if !defined(__x86_64__) && !defined(__aarch64__)
        skip_because("rows are read on x86-64 and AArch64");
#endif
        if (!find_object)
                skip_because("this libc does not tell objects by their addresses");
        return 0;
}

#define CASE(name) cmocka_unit_test_setup(name, skip_elsewhere)

int main(void)
{
        const struct CMUnitTest tests[] = {
                CASE(test_what_lasts),
                CASE(test_shapes),
                CASE(test_room_and_own_frames),
                CASE(test_signal_handlers),
#ifdef __x86_64__
                CASE(test_signal_return_without_rows),
#endif
                CASE(test_threads_and_signals),
                CASE(test_ending_threads),
                CASE(test_coroutines),
                CASE(test_children),
                CASE(test_clones),
                CASE(test_code_with_frame_pointers),
                CASE(test_code_without_frame_pointers),
                CASE(test_code_that_is_gone),
                CASE(test_code_at_the_end_of_a_page),
                CASE(test_frame_pointers_to_nowhere),
                CASE(test_frame_pointer_to_the_end_of_code),
                CASE(test_frame_pointers_to_many_places_without_calls),
#ifdef HAVE_THROW
                CASE(test_exceptions),
#endif
                CASE(test_keys),
                CASE(test_closed_libraries),
                CASE(test_closed_beside_threads),
                CASE(test_any_hint_will_do),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
