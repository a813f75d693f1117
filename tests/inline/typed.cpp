// SPDX-License-Identifier: Apache-2.0 OR MIT
//
// kmem.hpp: typed caches, the allocator under standard containers, and the memory resource. With an
// argument an object is left in a cache that ends, which is to be reported.
#include <kmem.h>

#include <cstddef>
#include <cstdint>

namespace kmem {
namespace detail {

inline bool crooked;

// kmem.hpp calls this in place of kmalloc, which it is, unless `crooked`: then blocks that 64 bytes have
// room in are not aligned to 64.
inline void *kmalloc(std::size_t bytes, gfp_t flags)
{
        void *tried[100] = {};
        std::size_t count = 0;

        if (!crooked || bytes > 96)
                return ::kmalloc(bytes, flags);
        do {
                tried[count] = ::kmalloc(96, flags);
        } while (reinterpret_cast<std::uintptr_t>(tried[count]) % 64 == 0 && ++count < 99);
        for (std::size_t i = 0; i < count; i++)
                kfree(tried[i]);
        return tried[count];
}

} // namespace detail
} // namespace kmem

#include <kmem.hpp>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <list>
#include <map>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

static unsigned int failures;
static volatile std::size_t too_large = SIZE_MAX; // the compiler would warn of it

#define CHECK(condition)                                                                           \
        do {                                                                                       \
                if (!(condition)) {                                                                \
                        std::fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition);       \
                        failures++;                                                                \
                }                                                                                  \
        } while (0)

// Runs something that is to throw; the exception's type decides.
template <class Exception, class Call> static bool throws(Call call)
{
        try {
                call();
        } catch (const Exception &) {
                return true;
        }
        return false;
}

struct counted {
        static inline int alive = 0;
        int value;
        std::string text = "a text that is too long to be kept in the string itself";

        explicit counted(int number) : value(number)
        {
                if (number < 0)
                        throw std::invalid_argument("negative");
                alive++;
        }
        ~counted()
        {
                alive--;
        }
};

struct alignas(256) wide {
        char bytes[300];
};

static void check_objects()
{
        kmem::object_cache<counted> cache("counted");
        std::vector<counted *> objects;

        for (int i = 0; i < 1000; i++)
                objects.push_back(cache.create(i));
        CHECK(counted::alive == 1000);
        for (std::size_t i = 0; i < 1000; i++) {
                CHECK(objects[i]->value == static_cast<int>(i));
                cache.destroy(objects[i]);
        }
        cache.destroy(nullptr);
        CHECK(counted::alive == 0);
        CHECK(throws<std::invalid_argument>([&] { (void)cache.create(-1); }));
        {
                auto one = cache.make(1);
                decltype(one) other;

                CHECK(one->value == 1 && counted::alive == 1);
                other = std::move(one);
                CHECK(!one && other->value == 1 && counted::alive == 1);
        }
        CHECK(counted::alive == 0);
        CHECK(cache.shrink()); // nothing is left, not even what a constructor refused
}

static void check_view()
{
        kmem::object_cache<counted> cache("viewed");
        const auto view = cache.view();

        for (int i = 0; i < 100000; i++) {
                counted *object = view.create(i);

                CHECK(object->value == i);
                view.destroy(object);
        }
        CHECK(throws<std::invalid_argument>([&] { (void)view.create(-1); }));
        CHECK(counted::alive == 0 && cache.shrink());
}

static void check_memory()
{
        kmem::object_cache<wide> cache("wide", SLAB_HWCACHE_ALIGN);
        void *many[100];
        void *one = cache.allocate();
        void *two = cache.try_allocate();

        CHECK(one && two && one != two);
        CHECK(reinterpret_cast<std::uintptr_t>(one) % 256 == 0);
        cache.deallocate(one);
        cache.deallocate(two);
        cache.deallocate(nullptr);
        cache.allocate_bulk(many, 100);
        cache.allocate_bulk(many, 0);
        for (void *object : many)
                CHECK(reinterpret_cast<std::uintptr_t>(object) % 256 == 0);
        cache.deallocate_bulk(many, 100);
        CHECK(cache.shrink());
}

static void check_ownership()
{
        kmem::object_cache<int> first("first");
        kmem_cache *handle = first.native_handle();
        kmem::object_cache<int> second(std::move(first));
        kmem::object_cache<int> third("third");

        CHECK(first.native_handle() == nullptr && second.native_handle() == handle);
        third = std::move(second);
        CHECK(third.native_handle() == handle);
        third.destroy(third.create(3));
        try {
                kmem::object_cache<int> refused("");
                CHECK(false); // an empty name
        } catch (const std::system_error &error) {
                CHECK(error.code().value() == EINVAL);
        }
        CHECK(throws<std::system_error>([] { kmem::object_cache<int> flags("flags", 1); }));
}

template <class T> using of = kmem::allocator<T>;

static long object_size(const char *cache)
{
        char text[KMEM_ATTR_BYTES];

        return kmem_attr_read(cache, "object_size", text, sizeof(text)) > 0 ? std::atol(text) : -1;
}

static void check_containers()
{
        std::map<int, std::string, std::less<>, of<std::pair<const int, std::string>>> map;
        std::unordered_map<int, int, std::hash<int>, std::equal_to<>, of<std::pair<const int, int>>>
                hashed;
        std::list<wide, of<wide>> list;
        std::set<int, std::less<>, of<int>> set, other;
        std::vector<int, of<int>> vector;

        for (int i = 0; i < 5000; i++) {
                map.emplace(i, std::to_string(i));
                hashed.emplace(i, i);
                set.insert(i);
                vector.push_back(i);
                if (i % 10 == 0)
                        list.emplace_back();
        }
        for (int i = 0; i < 5000; i += 3) {
                map.erase(i);
                hashed.erase(i);
        }
        for (const auto &[key, text] : map)
                CHECK(text == std::to_string(key));
        for (const wide &one : list)
                CHECK(reinterpret_cast<std::uintptr_t>(&one) % 256 == 0);
        CHECK(map.size() == 3333 && hashed.size() == 3333 && vector[4999] == 4999);
        other = std::move(set);
        CHECK(other.size() == 5000);
        CHECK(of<int>() == of<long>() && !(of<int>() != of<long>()));
        // The nodes of a set of int: three pointers, a colour and the value.
        CHECK(object_size("cxx-40-8") == 40);
        CHECK(throws<std::bad_alloc>([] { (void)of<int>().allocate(too_large); }));
        CHECK(throws<std::bad_alloc>([] { (void)of<int>().allocate(too_large / 8); }));
}

// A node that is made by one thread and ended by another.
static void check_threads()
{
        std::list<int, of<int>> list;

        for (int round = 0; round < 20; round++) {
                std::thread maker([&list] {
                        for (int i = 0; i < 5000; i++)
                                list.push_back(i);
                });

                maker.join();
                list.clear();
        }
}

static void check_resource()
{
        std::pmr::memory_resource *resource = kmem::resource();
        std::pmr::map<int, std::pmr::string> map(resource);

        for (int i = 0; i < 1000; i++)
                map.emplace(i, "a text that is too long to be kept in the string itself");
        for (std::size_t align = 1; align <= 65536; align *= 2)
                for (std::size_t bytes : {std::size_t(0), std::size_t(1), std::size_t(24), align,
                                          align * 3, std::size_t(5000), std::size_t(100000)}) {
                        void *block = resource->allocate(bytes, align);

                        CHECK(block && reinterpret_cast<std::uintptr_t>(block) % align == 0);
                        std::memset(block, 1, bytes);
                        resource->deallocate(block, bytes, align);
                }
        CHECK(resource->is_equal(*kmem::resource()));
        CHECK(!resource->is_equal(*std::pmr::new_delete_resource()));
        CHECK(throws<std::bad_alloc>([&] { (void)resource->allocate(too_large - 100, 8); }));
        CHECK(throws<std::bad_alloc>([&] { (void)resource->allocate(std::size_t(1) << 62, 8); }));
        CHECK(throws<std::bad_alloc>([&] { (void)resource->allocate(too_large / 2, 8192); }));
        // What is aligned beyond a page ends at 4 MiB.
        resource->deallocate(resource->allocate(4194304, 8192), 4194304, 8192);
        CHECK(throws<std::bad_alloc>([&] { (void)resource->allocate(4194305, 8192); }));
        CHECK(throws<std::bad_alloc>([&] { (void)resource->allocate(1, 8388608); }));
}

// Many blocks at once lie at many places, some of which are right by accident.
static void check_alignment()
{
        struct block {
                void *memory;
                std::size_t bytes, align;
        };
        std::pmr::memory_resource *resource = kmem::resource();
        std::vector<block> blocks;

        for (std::size_t align = 8; align <= 8192; align *= 2)
                for (std::size_t bytes = 1; bytes < 10000; bytes += bytes < 300 ? 7 : 611)
                        blocks.push_back({resource->allocate(bytes, align), bytes, align});
        kmem::detail::crooked = true;
        for (std::size_t bytes = 1; bytes < 100; bytes++)
                blocks.push_back({resource->allocate(bytes, 64), bytes, 64});
        kmem::detail::crooked = false;
        for (const block &one : blocks) {
                CHECK(reinterpret_cast<std::uintptr_t>(one.memory) % one.align == 0);
                std::memset(one.memory, 1, one.bytes);
                resource->deallocate(one.memory, one.bytes, one.align);
        }
}

int main(int argc, char **)
{
        if (argc > 1) {
                kmem::object_cache<counted> left("left behind");

                return left.create(1)->value - 1;
        }
        check_objects();
        check_view();
        check_memory();
        check_ownership();
        check_containers();
        check_threads();
        check_resource();
        check_alignment();
        if (failures == 0)
                std::puts(KMEM_INLINES ? "ok, inlined" : "ok, called");
        return failures != 0;
}
