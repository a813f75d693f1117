/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * fstat, which glibc before 2.33 does not have: calls of it come here by the linker's --wrap
 * (src/meson.build).
 */
#define _GNU_SOURCE
#include "lang/compiler.h"

#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

KMEM_HIDDEN int __wrap_fstat64(int file, struct stat *status);

/* The kernel fills in libc's struct on all machines of 64 bits that have these programs. */
int __wrap_fstat64(int file, struct stat *status)
{
        return (int)syscall(SYS_fstat, file, status);
}
