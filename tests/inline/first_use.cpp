// SPDX-License-Identifier: Apache-2.0 OR MIT
//
// The first thing that a program does with the library is a container in a loop: the cache is made
// there, and nothing of the library may be looked at before.
#include <kmem.hpp>

#include <cstdio>
#include <list>

int main()
{
        std::list<int, kmem::allocator<int>> numbers;
        long sum = 0;

        for (int i = 0; i < 1000; i++)
                numbers.push_back(i);
        for (const int number : numbers)
                sum += number;
        if (sum != 499500)
                return 1;
        std::puts(KMEM_INLINES ? "ok, inlined" : "ok, called");
        return 0;
}
