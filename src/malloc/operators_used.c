/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * The operators that the process uses under these names: the program's own if it has any, else this
 * library's. As in api/bound.c they are not defined here, so that no compiler sees the definitions.
 */
#include "malloc/malloc.h"

extern KMEM_PUBLIC void *plain_new(size_t size) __asm__("_Znwm");
extern KMEM_PUBLIC void plain_delete(void *object) __asm__("_ZdlPv");
extern KMEM_PUBLIC void array_delete(void *object) __asm__("_ZdaPv");

const struct operators operators_used = {
        .plain_new = plain_new,
        .plain_delete = plain_delete,
        .array_delete = array_delete,
};
