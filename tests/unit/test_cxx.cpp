/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * kmem.h as C++: both forms of kmem_cache_create by overload, kfree_rcu without a cast of C, and every
 * operator new and delete.
 */
#include "kmem.h"

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <new>
#include <string>
#include <vector>

static unsigned int failures;

#define CHECK(condition)                                                                           \
        do {                                                                                       \
                if (!(condition)) {                                                                \
                        std::fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition);       \
                        failures++;                                                                \
                }                                                                                  \
        } while (0)

static unsigned int constructed;

static void construct(void *)
{
        constructed++;
}

static void check_create()
{
        struct kmem_cache_args args = {};
        struct kmem_cache *caches[4];

        args.align = 64;
        args.ctor = construct;
        caches[0] = kmem_cache_create("five", 40, 64, 0, construct);
        caches[1] = kmem_cache_create("args", 40, &args, 0);
        caches[2] = kmem_cache_create("null", 40, nullptr, SLAB_HWCACHE_ALIGN);
        caches[3] = kmem_cache_create("no ctor", 40, 64, 0, nullptr);
        for (struct kmem_cache *cache : caches) {
                void *object = kmem_cache_alloc(cache, GFP_KERNEL);

                CHECK(object && reinterpret_cast<std::uintptr_t>(object) % 64 == 0);
                kmem_cache_free(cache, object);
                kmem_cache_destroy(cache);
        }
        CHECK(constructed > 0);
}

struct alignas(256) wide {
        char bytes[512];
};

static void check_operators()
{
        const std::align_val_t align{128};
        void *blocks[8];

        blocks[0] = ::operator new(100);
        blocks[1] = ::operator new[](100);
        blocks[2] = ::operator new(100, std::nothrow);
        blocks[3] = ::operator new[](100, std::nothrow);
        blocks[4] = ::operator new(100, align);
        blocks[5] = ::operator new[](100, align);
        blocks[6] = ::operator new(100, align, std::nothrow);
        blocks[7] = ::operator new[](100, align, std::nothrow);
        for (unsigned int i = 0; i < 8; i++) {
                CHECK(blocks[i] != nullptr);
                CHECK(reinterpret_cast<std::uintptr_t>(blocks[i]) % (i < 4 ? 16 : 128) == 0);
                CHECK(ksize(blocks[i]) >= 100); /* ours */
        }
        ::operator delete(blocks[0]);
        ::operator delete[](blocks[1]);
        ::operator delete(blocks[2], std::nothrow);
        ::operator delete[](blocks[3], std::nothrow);
        ::operator delete(blocks[4], align);
        ::operator delete[](blocks[5], align);
        ::operator delete(blocks[6], align, std::nothrow);
        ::operator delete[](blocks[7], align, std::nothrow);
        ::operator delete(::operator new(10), std::size_t(10));
        ::operator delete[](::operator new[](10), std::size_t(10));
        ::operator delete(::operator new(10, align), std::size_t(10), align);
        ::operator delete[](::operator new[](10, align), std::size_t(10), align);
        ::operator delete(nullptr);
        delete new wide;
        CHECK(reinterpret_cast<std::uintptr_t>(std::vector<wide>(3).data()) % 256 == 0);
}

static unsigned int handled;

static void handler()
{
        if (++handled == 3)
                std::set_new_handler(nullptr);
}

/* Failure calls the handler until there is none, then throws or returns a null pointer. */
static void check_failure()
{
        volatile std::size_t huge = SIZE_MAX / 4;
        bool thrown = false;

        std::set_new_handler(handler);
        try {
                ::operator delete(::operator new(huge));
        } catch (const std::bad_alloc &) {
                thrown = true;
        }
        CHECK(thrown);
        CHECK(handled == 3);
        CHECK(::operator new(huge, std::nothrow) == nullptr);
        CHECK(::operator new (huge, std::align_val_t{64}, std::nothrow) == nullptr);
        thrown = false;
        try {
                ::operator delete(::operator new (huge, std::align_val_t{64}));
        } catch (const std::bad_alloc &) {
                thrown = true;
        }
        CHECK(thrown);
}

static void check_kfree_rcu()
{
        struct item {
                char name[40];
                struct kmem_rcu_head rcu;
        };
        item *changed = static_cast<item *>(kmalloc(sizeof(item), GFP_KERNEL));
        const item *constant = static_cast<const item *>(kmalloc(sizeof(item), GFP_KERNEL));

        CHECK(changed && constant);
        kfree_rcu(changed, rcu);
        kfree_rcu(constant, rcu);
        kfree_rcu(kmalloc(100, GFP_KERNEL));
        kfree_rcu_barrier();
}

static void check_containers()
{
        std::map<std::string, std::vector<int>> map;

        for (int i = 0; i < 20000; i++)
                map["a key that is not small: " + std::to_string(i % 500)].push_back(i);
        for (const auto &entry : map)
                CHECK(entry.second.size() == 40);
}

int main()
{
        check_create();
        check_operators();
        check_failure();
        check_kfree_rcu();
        check_containers();
        return failures != 0;
}
