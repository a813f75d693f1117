// SPDX-License-Identifier: Apache-2.0 OR MIT
//
// A program that replaces some C++ operators, with a header in front of each object: those that it
// does not replace must call its own, as [new.delete] says, or they free what malloc never returned.
// REPLACE_SINGLE: those of one object, which all others call at last.
// REPLACE_ARRAY: those of arrays, which the sized and nothrow forms of arrays call.
#include <cstdio>
#include <cstdlib>
#include <new>

#include "check.h"

// That sized forms are left out is the point.
#pragma GCC diagnostic ignored "-Wsized-deallocation"

namespace {

constexpr std::size_t header_bytes = 32;
constexpr std::size_t magic = 0x6b6d656d;
int taken;
int given;

} // namespace

static void *take(std::size_t bytes)
{
        auto *header = static_cast<std::size_t *>(std::malloc(header_bytes + bytes));

        check(header);
        *header = magic;
        taken++;
        return header + header_bytes / sizeof(*header);
}

static void give(void *object)
{
        if (!object)
                return;
        auto *header = static_cast<std::size_t *>(object) - header_bytes / sizeof(std::size_t);

        check(*header == magic);
        *header = 0;
        given++;
        std::free(header);
}

#if defined(REPLACE_SINGLE)
void *operator new(std::size_t bytes)
{
        return take(bytes);
}

void operator delete(void *object) noexcept
{
        give(object);
}
#elif defined(REPLACE_ARRAY)
void *operator new[](std::size_t bytes)
{
        return take(bytes);
}

void operator delete[](void *object) noexcept
{
        give(object);
}
#endif

#if defined(REPLACE_SINGLE)
constexpr int single_forms = 3;
constexpr int array_forms = 3;
#elif defined(REPLACE_ARRAY)
constexpr int single_forms = 0;
constexpr int array_forms = 3;
#endif

/* Both kinds of every form, so that each taken object is given by the form under test. */
static void every_form(std::size_t bytes)
{
        taken = given = 0;
        ::operator delete(opaque(::operator new(bytes)));
        ::operator delete(opaque(::operator new(bytes)), bytes);
        ::operator delete(opaque(::operator new(bytes, std::nothrow)), std::nothrow);
        check(taken == single_forms && given == single_forms);
        taken = given = 0;
        ::operator delete[](opaque(::operator new[](bytes)));
        ::operator delete[](opaque(::operator new[](bytes)), bytes);
        ::operator delete[](opaque(::operator new[](bytes, std::nothrow)), std::nothrow);
        check(taken == array_forms && given == array_forms);
        taken = given = 0;
        ::operator delete(opaque(::operator new(bytes, std::align_val_t{64})), bytes,
                          std::align_val_t{64});
        ::operator delete[](opaque(::operator new[](bytes, std::align_val_t{64})), bytes,
                            std::align_val_t{64});
        check(taken == 0 && given == 0);
}

int main()
{
        watchdog(120);
        for (int round = 0; round < 3; round++)
                for (std::size_t bytes = 0; bytes < 20000; bytes += 1 + bytes / 16)
                        every_form(bytes);
        ::operator delete(nullptr, std::size_t{8});
        ::operator delete[](nullptr, std::size_t{8});
        std::puts("ok");
        return 0;
}
