// SPDX-License-Identifier: Apache-2.0 OR MIT
// Hands objects to a library that has the C++ runtime inside, and takes objects from it, small and large.
#include "inner_runtime.h"

#include <cstdio>

int main()
{
        for (int length : {10, 100000}) {
                end_inside(new thing(length));
                thing *object = make_inside(length);
                object->numbers.resize(2 * object->numbers.size());
                delete object;
        }
        puts("ok");
}
