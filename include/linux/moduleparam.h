/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Parameters are ordinary variables with their initial values. */
#ifndef KMEM_LINUX_MODULEPARAM_H
#define KMEM_LINUX_MODULEPARAM_H

#include <linux/export.h>

#define module_param(name, type, permissions) KMEM_NOTHING_TO_DO
#define module_param_named(name, value, type, permissions) KMEM_NOTHING_TO_DO
#define MODULE_PARM_DESC(name, text) KMEM_NOTHING_TO_DO

#endif
