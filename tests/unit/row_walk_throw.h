/* SPDX-License-Identifier: Apache-2.0 OR MIT */
#ifndef KMEM_TESTS_ROW_WALK_THROW_H
#define KMEM_TESTS_ROW_WALK_THROW_H

#ifdef __cplusplus
extern "C" {
#endif

/* Calls @walk 9 times: in destructors, in handlers, and in a destructor inside a handler. */
void walk_while_throwing(void (*walk)(void));

#ifdef __cplusplus
}
#endif

#endif
