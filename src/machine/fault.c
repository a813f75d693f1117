/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* The handler of SIGSEGV in front of the program's (fault.h), by system calls alone. */
#define _GNU_SOURCE
#include "machine/fault.h"

#include "lang/atomic.h"
#include "lang/bits.h"
#include "machine/syscall.h"
#include "machine/system.h"

#include <errno.h>
#include <ucontext.h>

#ifndef SA_RESTORER
#define SA_RESTORER 0x04000000
#endif

/* The kernel's struct; libc's has another order and a longer mask. */
struct kernel_action {
        void *handler;
        unsigned long flags;
#ifndef __riscv
        void (*restorer)(void);
#endif
        uint64_t mask;
};

enum { ACTIONS = 8 };

/*
 * The program's action is the newest of a few places, so that a handler that reads it while another
 * thread changes it finds it whole. Eight changes would have to come within one reading.
 */
static struct fault_action actions[ACTIONS];
static uint32_t newest; /* release and acquire: its place is filled */
static uint32_t drawn;  /* places given out; relaxed */
static void (*looker)(const struct fault *fault);

#ifdef __x86_64__
/* Debuggers and unwinders know a signal's frame by these very instructions. */
__asm__(".pushsection .text.kmem_signal_return,\"ax\",@progbits\n"
        ".hidden kmem_signal_return\n"
        ".globl kmem_signal_return\n"
        ".type kmem_signal_return,@function\n"
        "\tnop\n"
        "kmem_signal_return:\n"
        "\tmovq $15, %rax\n"
        "\tsyscall\n"
        ".size kmem_signal_return, . - kmem_signal_return\n"
        ".popsection\n");
extern void kmem_signal_return(void) __attribute__((visibility("hidden")));
#endif

static bool kernel_swap(const struct kernel_action *action, struct kernel_action *old)
{
        return !system_call_failed(system_call6(SYS_rt_sigaction, SIGSEGV, (long)action, (long)old,
                                                sizeof(uint64_t), 0, 0));
}

static bool kernel_set(void *handler, unsigned long flags)
{
        struct kernel_action action = {.handler = handler, .flags = flags};

#ifdef __x86_64__
        action.flags |= SA_RESTORER;
        action.restorer = kmem_signal_return;
#endif
        return kernel_swap(&action, NULL);
}

struct fault_action fault_action(void)
{
        return actions[load_acquire(&newest)];
}

bool fault_is_watched(void)
{
        return load_acquire(&looker) != NULL;
}

bool fault_stack_has(size_t bytes)
{
        stack_t stack = {0};

        if (system_call_failed(system_call(SYS_sigaltstack, 0, (long)&stack, 0)))
                return false;
        if (!(stack.ss_flags & SS_ONSTACK))
                return true;
        return (uintptr_t)__builtin_frame_address(0) - (uintptr_t)stack.ss_sp > bytes;
}

static void describe(struct fault *fault, const siginfo_t *info, const void *context)
{
        const ucontext_t *state = context;

        *fault = (struct fault){.address = (uintptr_t)info->si_addr};
#if defined(__x86_64__)
        fault->instruction = (uintptr_t)state->uc_mcontext.gregs[REG_RIP];
        fault->access = state->uc_mcontext.gregs[REG_ERR] & 2 ? FAULT_WRITE : FAULT_READ;
#elif defined(__aarch64__)
        fault->instruction = (uintptr_t)state->uc_mcontext.pc;
#elif defined(__riscv)
        fault->instruction = (uintptr_t)state->uc_mcontext.__gregs[REG_PC];
#else
        (void)state;
#endif
}

/*
 * Leaves the rest to the kernel (FAULT-CHAIN-2). A signal that somebody has sent does not come again
 * by itself; it waits until the handler has returned.
 */
static void end_by_default(const siginfo_t *info)
{
        kernel_set((void *)SIG_DFL, 0);
        if (info->si_code <= 0)
                system_call(SYS_tgkill, (long)system_process_id(), (long)system_thread_id(),
                            SIGSEGV);
}

static void pass_on(siginfo_t *info, void *context)
{
        struct fault_action action = fault_action();
        uint64_t own = fault_mask(SIGSEGV);

        if (action.handler.plain == SIG_IGN && info->si_code <= 0)
                return;
        if (action.handler.plain == SIG_DFL || action.handler.plain == SIG_IGN) {
                end_by_default(info);
                return;
        }
        if ((unsigned int)action.flags & SA_RESETHAND)
                fault_set_action(&(struct fault_action){.handler.plain = SIG_DFL});
        system_call6(SYS_rt_sigprocmask, SIG_BLOCK, (long)&action.mask, 0, sizeof(action.mask), 0,
                     0);
        if (action.flags & SA_NODEFER && !(action.mask & own))
                system_call6(SYS_rt_sigprocmask, SIG_UNBLOCK, (long)&own, 0, sizeof(own), 0, 0);
        if (action.flags & SA_SIGINFO)
                action.handler.full(SIGSEGV, info, context);
        else
                action.handler.plain(SIGSEGV);
}

static void handle(int number, siginfo_t *info, void *context)
{
        int saved_errno = errno;
        struct fault fault;

        (void)number;
        if (info->si_code > 0) {
                describe(&fault, info, context);
                looker(&fault);
        }
        errno = saved_errno;
        pass_on(info, context);
}

/* One that the program ignores would interrupt nothing, whatever the flags that came with it. */
static bool is_restarting(const struct fault_action *action)
{
        return action->handler.plain == SIG_IGN || action->flags & SA_RESTART;
}

/* Has the kernel call ours, in the manner of the program's newest action. */
static bool install(void)
{
        struct fault_action action;
        uint32_t place;
        bool done;

        /* Another thread's change may have come between, and its call to the kernel before ours. */
        do {
                place = load_acquire(&newest);
                action = actions[place];
                done = kernel_set((void *)handle,
                                  SA_SIGINFO | SA_ONSTACK |
                                          (is_restarting(&action) ? SA_RESTART : 0));
        } while (place != load_acquire(&newest));
        return done;
}

void fault_set_action(const struct fault_action *action)
{
        uint32_t place;

        /* A program that has read ours past libc's calls gives it back: it means what was before. */
        if (action->handler.full != handle) {
                place = add_relaxed(&drawn, 1) % ACTIONS;
                actions[place] = *action;
                /* As the kernel does. */
                actions[place].mask &= ~(fault_mask(SIGKILL) | fault_mask(SIGSTOP));
                store_release(&newest, place);
        }
        install();
}

bool fault_watch(void (*look)(const struct fault *fault))
{
        struct kernel_action old = {0};

        if (fault_is_watched())
                return true;
        if (!kernel_swap(NULL, &old))
                return false;
        actions[load_relaxed(&newest)] = (struct fault_action){
                .handler.plain = (void (*)(int))old.handler,
                .flags = (int)(old.flags & ~(unsigned long)SA_RESTORER),
                .mask = old.mask,
        };
        /* Release: the action is there. Partner: fault_is_watched. */
        store_release(&looker, look);
        return install();
}
