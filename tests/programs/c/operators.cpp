// SPDX-License-Identifier: Apache-2.0 OR MIT
//
// Every form of C++ operator new and delete: plain, array, nothrow, aligned, sized; the new
// handler; bad_alloc for sizes that cannot be had; containers and exceptions in threads.
#include <malloc.h>

#include <list>
#include <map>
#include <memory>
#include <new>
#include <stdexcept>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "check.h"

namespace {

volatile std::size_t impossible = PTRDIFF_MAX;
int handler_calls;
int handler_limit;

std::size_t following(std::size_t bytes)
{
        return bytes < 1200 ? bytes + 1 : bytes + bytes / 5;
}

void use(void *pointer, std::size_t alignment, std::size_t bytes)
{
        check(pointer != nullptr);
        check(aligned(pointer, alignment));
        check(malloc_usable_size(pointer) >= bytes);
        fill(pointer, bytes, 0x5a);
}

void plain_forms()
{
        for (std::size_t bytes = 0; bytes < (40u << 20); bytes = following(bytes)) {
                void *single = ::operator new(bytes);
                void *array = ::operator new[](bytes);
                void *quiet = ::operator new(bytes, std::nothrow);
                void *quiet_array = ::operator new[](bytes, std::nothrow);

                check(single != array && array != quiet && quiet != quiet_array);
                use(single, 16, bytes);
                use(array, 16, bytes);
                use(quiet, 16, bytes);
                use(quiet_array, 16, bytes);
                ::operator delete(single);
                ::operator delete[](array);
                ::operator delete(quiet, std::nothrow);
                ::operator delete[](quiet_array, std::nothrow);
                ::operator delete(::operator new(bytes), bytes);
                ::operator delete[](::operator new[](bytes), bytes);
        }
        ::operator delete(nullptr);
        ::operator delete[](nullptr);
        ::operator delete(nullptr, std::size_t{8});
        ::operator delete[](nullptr, std::size_t{8});
}

void aligned_forms()
{
        for (std::size_t power = 1; power <= (1u << 20); power *= 2) {
                const auto alignment = static_cast<std::align_val_t>(power);

                for (std::size_t bytes = 1; bytes < (2u << 20); bytes = bytes * 3 + 1) {
                        void *single = ::operator new(bytes, alignment);
                        void *array = ::operator new[](bytes, alignment);
                        void *quiet = ::operator new(bytes, alignment, std::nothrow);
                        void *quiet_array = ::operator new[](bytes, alignment, std::nothrow);

                        use(single, power, bytes);
                        use(array, power, bytes);
                        use(quiet, power, bytes);
                        use(quiet_array, power, bytes);
                        ::operator delete(single, alignment);
                        ::operator delete[](array, alignment);
                        ::operator delete(quiet, alignment, std::nothrow);
                        ::operator delete[](quiet_array, alignment, std::nothrow);
                        ::operator delete(::operator new(bytes, alignment), bytes, alignment);
                        ::operator delete[](::operator new[](bytes, alignment), bytes, alignment);
                }
        }
        ::operator delete(nullptr, std::align_val_t{64});
        ::operator delete[](nullptr, std::align_val_t{64});
        ::operator delete(nullptr, std::size_t{8}, std::align_val_t{64});
        ::operator delete[](nullptr, std::size_t{8}, std::align_val_t{64});
}

template <typename Call> bool throws_bad_alloc(Call call)
{
        try {
                opaque(call());
        } catch (const std::bad_alloc &) {
                return true;
        }
        return false;
}

void impossible_sizes()
{
        const std::align_val_t alignment{64};

        check(throws_bad_alloc([] { return ::operator new(impossible); }));
        check(throws_bad_alloc([] { return ::operator new[](impossible); }));
        check(throws_bad_alloc([=] { return ::operator new(impossible, alignment); }));
        check(throws_bad_alloc([=] { return ::operator new[](impossible, alignment); }));
        check(throws_bad_alloc([] { return ::operator new(impossible * 2 + 1); }));
        check(opaque(::operator new(impossible, std::nothrow)) == nullptr);
        check(opaque(::operator new[](impossible, std::nothrow)) == nullptr);
        check(opaque(::operator new(impossible, alignment, std::nothrow)) == nullptr);
        check(opaque(::operator new[](impossible, alignment, std::nothrow)) == nullptr);
        check(throws_bad_alloc([] { return new char[impossible]; }));
}

/* Called until it gives up, as the standard says: each call is a chance to free something. */
void counting_handler()
{
        if (++handler_calls == handler_limit)
                std::set_new_handler(nullptr);
}

void throwing_handler()
{
        handler_calls++;
        throw std::bad_alloc();
}

struct refused : std::bad_alloc {};

void refusing_handler()
{
        throw refused();
}

void new_handlers()
{
        handler_calls = 0;
        handler_limit = 3;
        std::set_new_handler(counting_handler);
        check(throws_bad_alloc([] { return ::operator new(impossible); }));
        check(handler_calls == 3);

        handler_calls = 0;
        std::set_new_handler(counting_handler);
        check(throws_bad_alloc([] { return ::operator new(impossible, std::align_val_t{128}); }));
        check(handler_calls == 3);

        handler_calls = 0;
        std::set_new_handler(throwing_handler);
        check(opaque(::operator new(impossible, std::nothrow)) == nullptr);
        check(handler_calls == 1);

        bool passed_on = false;
        std::set_new_handler(refusing_handler);
        try {
                opaque(::operator new(impossible));
        } catch (const refused &) {
                passed_on = true;
        }
        check(passed_on);
        std::set_new_handler(nullptr);
}

struct alignas(256) wide {
        char bytes[700];
};

void objects()
{
        std::vector<std::unique_ptr<wide>> wides;

        for (int i = 0; i < 500; i++) {
                wides.push_back(std::make_unique<wide>());
                check(aligned(wides.back().get(), 256));
                fill(wides.back()->bytes, sizeof(wide::bytes), static_cast<unsigned char>(i));
        }
        for (int i = 0; i < 500; i++)
                check(intact(wides[static_cast<std::size_t>(i)]->bytes, sizeof(wide::bytes),
                             static_cast<unsigned char>(i)));
        std::unique_ptr<wide[]> array(new wide[33]);
        check(aligned(array.get(), 256));
}

void containers(unsigned int seed, long *result)
{
        std::map<std::string, std::list<int>> lists;
        std::unordered_map<int, std::vector<std::string>> texts;
        long thrown = 0;

        for (int i = 0; i < 20000; i++) {
                const std::string key = "key number " + std::to_string(i * 7919 % 997);

                lists[key].push_back(i);
                texts[i % 311].push_back(key);
                try {
                        if (i % 16 == 0)
                                throw std::runtime_error(key);
                } catch (const std::runtime_error &error) {
                        thrown += error.what() == key;
                }
        }
        long total = 0;
        for (const auto &[key, list] : lists)
                total += static_cast<long>(list.size() * key.size());
        *result = total + thrown + static_cast<long>(texts.size()) + seed - seed;
}

void threads()
{
        std::vector<std::thread> started;
        std::vector<long> results(4);

        for (unsigned int i = 0; i < results.size(); i++)
                started.emplace_back(containers, i, &results[i]);
        for (auto &thread : started)
                thread.join();
        for (const long result : results)
                check(result == results[0] && result > 250000);
}

} // namespace

int main()
{
        watchdog(240);
        plain_forms();
        aligned_forms();
        impossible_sizes();
        new_handlers();
        objects();
        threads();
        std::puts("ok");
        return 0;
}
