/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * The data that the kernel put onto the stack where the process began: the number of arguments, the
 * arguments and a zero, the environment and a zero, and the auxiliary vector, pairs of a type and a
 * value up to type AT_NULL.
 *
 * libc's getenv and getauxval know these data too, but another library may stand in front of them,
 * and allocate. The heap would wait for itself, because it asks while it starts. The dynamic linker
 * keeps the address of the stack's beginning in a variable, before it runs anything else. /proc
 * tells if that variable is missing, or stale (glibc before 2.34, when the linker was called by
 * name and has skipped its own arguments).
 */
#define _GNU_SOURCE
#include "machine/system.h"

#include "lang/atomic.h"
#include "machine/syscall.h"

#include <elf.h>
#include <fcntl.h>
#include <link.h>
#include <unistd.h>

/* glibc's. Points to the number of arguments. */
extern void *__libc_stack_end __attribute__((weak));

/*
 * Far above all types that there are: an address in a type's place shows that this is no auxiliary
 * vector.
 */
enum { TYPES_MAX = 4096 };

static bool is_vector(const ElfW(auxv_t) * entry)
{
        bool has_page_size = false;

        for (; entry->a_type != AT_NULL && entry->a_type < TYPES_MAX; entry++)
                has_page_size |= entry->a_type == AT_PAGESZ;
        return entry->a_type == AT_NULL && has_page_size;
}

static char **skip(char **list)
{
        while (*list)
                list++;
        return list + 1;
}

/*
 * The walk does not use the number of arguments, which may be stale. From any value in its place at
 * most two zeroes are passed, and two lie in front of the vector.
 */
static char **environment_on_stack(const ElfW(auxv_t) * *vector)
{
        char **environment;

        if (!&__libc_stack_end || !__libc_stack_end)
                return NULL;
        environment = skip((char **)__libc_stack_end + 1);
        *vector = (const void *)skip(environment);
        return is_vector(*vector) ? environment : NULL;
}

/* A copy; threads that come here at once store equal bytes. NULL if there is none. */
static const ElfW(auxv_t) * vector_of_proc(void)
{
        static ElfW(auxv_t) copy[64] KMEM_SPARSE;
        size_t room = sizeof(copy) - sizeof(copy[0]); /* the last entry stays AT_NULL */
        long file, got;

        if (system_sandbox_was_told())
                return NULL;
        file = system_call(SYS_openat, AT_FDCWD, (long)"/proc/self/auxv", O_RDONLY | O_CLOEXEC);
        if (system_call_failed(file))
                return NULL;
        got = system_call(SYS_read, file, (long)copy, (long)room);
        system_call(SYS_close, file, 0, 0);
        return got > 0 && is_vector(copy) ? copy : NULL;
}

unsigned long system_auxv(unsigned long type)
{
        static const ElfW(auxv_t) * vector; /* NULL: not looked for yet, or not found */
        const ElfW(auxv_t) *entry = load_acquire(&vector);

        if (unlikely(!entry)) {
                if (!environment_on_stack(&entry))
                        entry = vector_of_proc();
                if (!entry)
                        return 0;
                /* Release: a thread that sees the address (acquire) sees the copy. */
                store_release(&vector, entry);
        }
        for (; entry->a_type != AT_NULL; entry++)
                if (entry->a_type == type)
                        return entry->a_un.a_val;
        return 0;
}

bool system_is_privileged(void)
{
        return system_auxv(AT_SECURE) != 0 || system_auxv(AT_PAGESZ) == 0;
}

char **system_environment(void)
{
        const ElfW(auxv_t) * vector;

        return environ ? environ : environment_on_stack(&vector);
}
