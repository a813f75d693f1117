/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * The kernel maps a small library into every process, the vDSO; its functions read clocks and the
 * CPU's number without a system call.
 */
#ifndef KMEM_MACHINE_VDSO_H
#define KMEM_MACHINE_VDSO_H

#include "lang/compiler.h"

/* The function of that name; NULL where there is none, as under valgrind. */
KMEM_HIDDEN const void *vdso_find(const char *name);

#endif
