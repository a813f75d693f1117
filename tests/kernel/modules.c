/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * A module with a failing init. The modules before it end. It does not end, as its init has undone
 * its own steps. Compilers may lay out a file's records in either order.
 */
#include "modules.h"

#include <linux/module.h>
#include <linux/string.h>

static char steps[8];
static size_t step_count;

void modules_note(char step)
{
        if (step_count < sizeof(steps) - 1)
                steps[step_count++] = step;
}

static int failing_init(void)
{
        modules_note('F');
        return -ENOMEM;
}

static void failing_exit(void)
{
        modules_note('f');
}

module_init(failing_init);
module_exit(failing_exit);

int main(void)
{
        int error = kmem_modules_init();

        if (error == -ENOMEM && strcmp(steps, "BFb") == 0)
                return 0;
        pr_err("init returned %d, after %s; expected %d, after BFb\n", error, steps, -ENOMEM);
        return 1;
}
