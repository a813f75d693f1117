/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Everything that is not static is visible to the program; nothing is to be done. */
#ifndef KMEM_LINUX_EXPORT_H
#define KMEM_LINUX_EXPORT_H

#include <linux/compiler.h>

#define KMEM_NOTHING_TO_DO _Static_assert(1, "")

#define EXPORT_SYMBOL(name) KMEM_NOTHING_TO_DO
#define EXPORT_SYMBOL_GPL(name) KMEM_NOTHING_TO_DO
#define EXPORT_SYMBOL_NS(name, space) KMEM_NOTHING_TO_DO
#define EXPORT_SYMBOL_NS_GPL(name, space) KMEM_NOTHING_TO_DO
#define THIS_MODULE ((struct module *)0)

struct module;

#endif
