// SPDX-License-Identifier: Apache-2.0 OR MIT
// A shared library with the C++ runtime inside: its operators are its own, and call malloc and free.
#include "inner_runtime.h"

thing *make_inside(int length)
{
        return new thing(length);
}

void end_inside(thing *object)
{
        delete object;
}
