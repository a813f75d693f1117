// SPDX-License-Identifier: Apache-2.0 OR MIT
//
// A plug-in in C++ for a program in C, which opens it so that nobody else sees its C++ runtime
// (plugin_host.c): operators that find no memory call its new-handler and throw what it can catch.
#include <cstddef>
#include <cstdint>
#include <new>

#include "check.h"

namespace {

constexpr int handler_calls = 3;
int called;

} // namespace

static void count_calls()
{
        if (++called == handler_calls)
                std::set_new_handler(nullptr);
}

template <typename Allocation> static bool throws_bad_alloc(Allocation allocation)
{
        try {
                check(!allocation());
        } catch (const std::bad_alloc &) {
                return true;
        }
        return false;
}

extern "C" void plugin_runs_out_of_memory(void);

void plugin_runs_out_of_memory(void)
{
        volatile std::size_t huge = PTRDIFF_MAX / 2;

        check(throws_bad_alloc([&] { return ::operator new(huge); }));
        check(throws_bad_alloc([&] { return ::operator new[](huge); }));
        check(::operator new(huge, std::nothrow) == nullptr);
        std::set_new_handler(count_calls);
        check(throws_bad_alloc([&] { return ::operator new(huge); }));
        check(called == handler_calls);
        for (int i = 0; i < 1000; i++)
                ::operator delete(::operator new(100));
}
