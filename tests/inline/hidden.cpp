// SPDX-License-Identifier: Apache-2.0 OR MIT
//
// Allocators of different libraries are equal, so what one made another may end, also when both are
// compiled with hidden visibility. Three parts: the library that fills a list (with FILLS), the one
// that clears it (with CLEARS), and the program that is linked with both.
#include <kmem.hpp>

#include <cstdio>
#include <list>

using list = std::list<int, kmem::allocator<int>>;

#pragma GCC visibility push(default)
std::pmr::memory_resource *fill(list &numbers);
std::pmr::memory_resource *clear(list &numbers);
#pragma GCC visibility pop

#if defined(FILLS)
std::pmr::memory_resource *fill(list &numbers)
{
        for (int i = 0; i < 1000; i++)
                numbers.push_back(i);
        return kmem::resource();
}
#elif defined(CLEARS)
std::pmr::memory_resource *clear(list &numbers)
{
        numbers.clear();
        return kmem::resource();
}
#else
int main()
{
        list numbers;
        bool same = true;

        for (int i = 0; i < 3; i++)
                same = fill(numbers)->is_equal(*clear(numbers)) && same;
        std::puts(same ? "shared" : "two resources");
        return 0;
}
#endif
