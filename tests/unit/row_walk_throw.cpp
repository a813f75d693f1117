// SPDX-License-Identifier: Apache-2.0 OR MIT
// Walks out of destructors and handlers while an exception is on its way.
#include "row_walk_throw.h"

#include <stdexcept>
#include <string>

namespace
{

struct Walker {
        void (*walk)();
        std::string text = "so that there is something to destroy";

        ~Walker()
        {
                walk();
        }
};

__attribute__((noinline)) void thrower(void (*walk)(), int depth)
{
        Walker walker{walk};

        if (!depth)
                throw std::runtime_error(walker.text);
        thrower(walk, depth - 1);
        walk();
}

} // namespace

extern "C" void walk_while_throwing(void (*walk)(void))
{
        try {
                thrower(walk, 5);
        } catch (const std::exception &) {
                walk();
                try {
                        Walker walker{walk};

                        throw;
                } catch (...) {
                        walk();
                }
        }
}
