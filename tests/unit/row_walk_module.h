/* SPDX-License-Identifier: Apache-2.0 OR MIT */
#ifndef KMEM_TESTS_ROW_WALK_MODULE_H
#define KMEM_TESTS_ROW_WALK_MODULE_H

/* Calls the callback, and has a frame in between. */
__attribute__((visibility("default"))) void module_call(void (*callback)(void));

#endif
