/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Requests to the process from outside, through the registry: to change an attribute, to give
 * memory back, to compute figures that nothing keeps up to date. They are honoured at the next slow
 * path of any thread, or at the next look of the reclaim thread while there is one.
 */
#ifndef KMEM_PROCESS_REQUESTS_H
#define KMEM_PROCESS_REQUESTS_H

#include "lang/compiler.h"

KMEM_HIDDEN void requests_init(void);

#endif
