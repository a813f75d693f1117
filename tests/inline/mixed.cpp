// SPDX-License-Identifier: Apache-2.0 OR MIT
//
// A program and a library that share a typed cache, one of which inlines while the other makes the
// calls (KMEM_INLINE_CALLS): a view has fields of its own in each.
#include <kmem.hpp>

#include <cstdio>

bool library_uses(kmem::object_cache<long> &cache);

static bool uses(kmem::object_cache<long> &cache)
{
        const auto view = cache.view();
        bool right = true;

        for (long i = 0; i < 1000; i++) {
                long *one = view.create(i);
                auto two = cache.make(-i);

                right = right && *one == i && *two == -i;
                view.destroy(one);
        }
        return right;
}

#ifdef LIBRARY
bool library_uses(kmem::object_cache<long> &cache)
{
        return uses(cache);
}
#else
int main()
{
        kmem::object_cache<long> cache("long");

        std::puts(uses(cache) && library_uses(cache) && cache.shrink() ? "mixed" : "wrong");
        return 0;
}
#endif
