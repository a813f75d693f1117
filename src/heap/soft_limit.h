/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Option soft_limit: the heap gives back what the program does not use before a limit is met, so that
 * the kernel need not end the process.
 */
#ifndef KMEM_HEAP_SOFT_LIMIT_H
#define KMEM_HEAP_SOFT_LIMIT_H

#include "lang/compiler.h"

#include <stdint.h>

struct soft_limit_figures {
        uint64_t bytes; /* the limit; 0: none, or none was found yet */
        uint64_t trims; /* times that memory went back because of it */
        uint64_t given_back_bytes;
};
/* Written under cache_mutex; others read it relaxed. */
extern KMEM_HIDDEN struct soft_limit_figures soft_limit_figures;

/* Begins to watch if the option is set; once, after the options. */
KMEM_HIDDEN void soft_limit_init(void);

#endif
