/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* A module that begins before the module of modules.c. */
#include "modules.h"

#include <linux/module.h>

static int before_init(void)
{
        modules_note('B');
        return 0;
}

static void before_exit(void)
{
        modules_note('b');
}

module_init(before_init);
module_exit(before_exit);
