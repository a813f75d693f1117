/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * The calling thread, by the address of its control block: no thread-local state is needed.
 */
#ifndef KMEM_MACHINE_THREAD_H
#define KMEM_MACHINE_THREAD_H

#include "lang/compiler.h"

static inline void *thread_pointer(void)
{
        void *pointer;

#if defined(__x86_64__)
        __asm__("movq %%fs:0, %0" : "=r"(pointer));
#elif defined(__aarch64__)
        __asm__("mrs %0, tpidr_el0" : "=r"(pointer));
#elif defined(__riscv)
        __asm__("mv %0, tp" : "=r"(pointer));
#else
#error "where is the thread pointer?"
#endif
        return pointer;
}

/*
 * A number below @count, for threads to spread over: each page adds a part of the golden ratio, so
 * that control blocks at even distances, like stacks, get numbers far from each other.
 */
static inline unsigned int thread_choice(unsigned int count)
{
        uint32_t page = (uint32_t)((uintptr_t)thread_pointer() >> 12);

        return (unsigned int)((uint64_t)(page * 0x9e3779b9u) * count >> 32);
}

#endif
