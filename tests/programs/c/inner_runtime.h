// SPDX-License-Identifier: Apache-2.0 OR MIT
// What inner_runtime.cpp shares with the program that is linked to it.
#ifndef INNER_RUNTIME_H
#define INNER_RUNTIME_H

#include <vector>

// Exported by name, as all else of the library is hidden.
#define EXPORTED __attribute__((visibility("default")))

struct thing {
        explicit thing(int length) : numbers(static_cast<unsigned>(length), 7)
        {
        }
        std::vector<int> numbers;
};

EXPORTED thing *make_inside(int length);
EXPORTED void end_inside(thing *object);

#endif
