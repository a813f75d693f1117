/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Checks options with the parser that the library uses; the commands that start programs ask it.
 *
 *   options TEXT   TEXT as in KMEM_OPTIONS
 *
 * Status 2, with a line that names the first wrong option and what was expected.
 */
#include "base/options.h"
#include "machine/message.h"

int main(int count, char **arguments)
{
        if (count == 2)
                return options_are_right(arguments[1]) ? 0 : 2;
        message("options: %d arguments; expected a text as in KMEM_OPTIONS", count - 1);
        return 2;
}
