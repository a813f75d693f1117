// SPDX-License-Identifier: Apache-2.0 OR MIT
//
// libkmem for C++17: typed caches, which allocate without a call on a hit; an allocator for
// containers; and a memory resource.
//
//     kmem::object_cache<session> sessions("session");
//     auto first = sessions.make(socket);            // a std::unique_ptr that knows the cache
//     session *second = sessions.create(socket);     // by hand, until sessions.destroy(second)
//     std::map<int, session, std::less<>, kmem::allocator<std::pair<const int, session>>> map;
//
// Threads: everything may be called by any thread at any time, unless it says otherwise. The head
// of kmem-inline.h, about inlined code and shared libraries, holds for this header, too.
#ifndef KMEM_HPP
#define KMEM_HPP

#if __cplusplus < 201703L
#error "kmem.hpp is for C++17 and later: compile with -std=c++17"
#endif

#include "kmem-inline.h"

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <limits>
#include <memory>
#include <memory_resource>
#include <new>
#include <system_error>
#include <type_traits>
#include <utility>

namespace kmem {

namespace detail {

// Objects of caches are aligned to 8 at least, and to a page at most.
inline constexpr std::size_t least_align = 8;
inline constexpr std::size_t page_bytes = 4096;
inline constexpr unsigned int page_order_max = 10; // of kmem_pages_alloc
// For calls that throw: the caller decides whether the failure is worth a line.
inline constexpr gfp_t quietly = GFP_KERNEL | __GFP_NOWARN;

inline std::size_t power_of_two_from(std::size_t value) noexcept
{
        std::size_t power = 1;

        while (power < value)
                power <<= 1;
        return power;
}

inline bool is_aligned(const void *address, std::size_t align) noexcept
{
        return (reinterpret_cast<std::uintptr_t>(address) & (align - 1)) == 0;
}

// A block of pages aligned to its size, for alignments beyond a page; nullptr above 4 MiB.
inline void *allocate_pages(std::size_t bytes, std::size_t align) noexcept
{
        unsigned int order = 0;

        while (order <= page_order_max &&
               ((page_bytes << order) < bytes || (page_bytes << order) < align))
                order++;
        return order <= page_order_max ? kmem_pages_alloc(quietly, order) : nullptr;
}

// Memory by size, for kfree; nullptr without memory. kmalloc aligns blocks of a power of two to
// their size, up to a page (S8-25); any other block may happen to lie right. The library may be
// older than this header, so the second block is looked at, too, and pages are the last way.
inline void *allocate_block(std::size_t bytes, std::size_t align) noexcept
{
        void *block;

        if (bytes > KMALLOC_MAX_SIZE - page_bytes)
                return nullptr;
        if (align > page_bytes)
                return allocate_pages(bytes, align);
        if (bytes == 0)
                bytes = 1;
        block = kmalloc(bytes, quietly);
        if (is_aligned(block, align)) // also nullptr
                return block;
        kfree(block);
        block = kmalloc(power_of_two_from(bytes < align ? align : bytes), quietly);
        if (is_aligned(block, align))
                return block;
        kfree(block);
        return allocate_pages(bytes, align);
}

[[noreturn]] inline void throw_errno(const char *what)
{
        if (errno == ENOMEM)
                throw std::bad_alloc();
        throw std::system_error(errno, std::generic_category(), what);
}

} // namespace detail

// object_view - the facts that inlined code needs of a cache of T, for loops
//
// A local variable of this type stays in registers (struct kmem_view); copies are as good, and any
// thread may use them. A view does not own the cache and must not outlive it.
//
// It has fewer fields if nothing is inlined (KMEM_INLINE_CALLS). It is another type then, in the
// names of its functions and of functions that return it: a program may have files of both kinds.
template <class T> class
#if !KMEM_INLINES
        [[gnu::abi_tag("calls")]]
#endif
        object_view {
public:
        explicit object_view(kmem_cache *cache) noexcept : view_(kmem_view_of(cache))
        {
        }

        // Memory for a T, without constructing one; nullptr without memory, and a message as
        // kmem_cache_alloc prints it.
        void *try_allocate() const noexcept
        {
                return kmem_view_alloc(view_, GFP_KERNEL);
        }

        // try_allocate that throws std::bad_alloc without memory, and prints nothing.
        void *allocate() const
        {
                void *memory = kmem_view_alloc(view_, detail::quietly);

                if (__builtin_expect(!memory, 0))
                        throw std::bad_alloc();
                return memory;
        }

        // Gives memory back after the T in it was destroyed; null is ignored.
        void deallocate(void *memory) const noexcept
        {
                kmem_view_free(view_, memory);
        }

        // A new T(@arguments...). Throws std::bad_alloc, or the constructor's exception; then the
        // memory is free again.
        template <class... Arguments> [[nodiscard]] T *create(Arguments &&...arguments) const
        {
                void *memory = allocate();

                if constexpr (std::is_nothrow_constructible_v<T, Arguments...>) {
                        return ::new (memory) T(std::forward<Arguments>(arguments)...);
                } else {
                        try {
                                return ::new (memory) T(std::forward<Arguments>(arguments)...);
                        } catch (...) {
                                deallocate(memory);
                                throw;
                        }
                }
        }

        // Ends an object of create() of this cache; null is ignored.
        void destroy(T *object) const noexcept
        {
                if (!object)
                        return;
                object->~T();
                deallocate(object);
        }

private:
        struct kmem_view view_;
};

// Ends an object of an object_cache; the deleter of its handles.
template <class T> class object_deleter {
public:
        object_deleter() noexcept = default;
        explicit object_deleter(kmem_cache *cache) noexcept : cache_(cache)
        {
        }

        void operator()(T *object) const noexcept
        {
                object_view<T>(cache_).destroy(object);
        }

private:
        kmem_cache *cache_ = nullptr;
};

// object_cache - a cache of objects of type T
//
// Owns the cache: it ends with this object. Objects that are left then are reported on standard
// error and their slabs stay. So late frees by kmem_cache_free do no harm, but handles of make()
// must not outlive it. Not copyable; after a move the source may only be destroyed or assigned to.
template <class T> class object_cache {
        static_assert(std::is_object_v<T> && !std::is_array_v<T>, "a cache is of single objects");
        static_assert(std::is_same_v<T, std::remove_cv_t<T>>,
                      "a cache is of objects that are neither const nor volatile");
        static_assert(alignof(T) <= detail::page_bytes, "objects are aligned to a page at most");
        static_assert(sizeof(T) <= std::numeric_limits<unsigned int>::max());

public:
        using value_type = T;
        using deleter = object_deleter<T>;
        // The result of make(): destroys its object when it goes out of scope.
        using handle = std::unique_ptr<T, deleter>;

        // @name: shown in tables; copied. @flags: SLAB_* flags (kmem.h).
        //
        // Throws std::bad_alloc without memory, and std::system_error with EINVAL (an empty name,
        // an unknown flag, a T too large for a slab) or ENOSPC (4,095 caches exist).
        explicit object_cache(const char *name, slab_flags_t flags = 0)
            : cache_(kmem_cache_create(name, static_cast<unsigned int>(sizeof(T)),
                                       static_cast<unsigned int>(alignof(T)), flags, nullptr))
        {
                if (!cache_)
                        detail::throw_errno("kmem::object_cache");
        }

        object_cache(object_cache &&other) noexcept : cache_(std::exchange(other.cache_, nullptr))
        {
        }

        object_cache &operator=(object_cache &&other) noexcept
        {
                if (this != &other) {
                        kmem_cache_destroy(cache_);
                        cache_ = std::exchange(other.cache_, nullptr);
                }
                return *this;
        }

        object_cache(const object_cache &) = delete;
        object_cache &operator=(const object_cache &) = delete;

        ~object_cache()
        {
                kmem_cache_destroy(cache_);
        }

        // For loops: a view to keep in a local variable.
        object_view<T> view() const noexcept
        {
                return object_view<T>(cache_);
        }

        // The calls of a view.
        void *try_allocate() noexcept
        {
                return view().try_allocate();
        }

        void *allocate()
        {
                return view().allocate();
        }

        void deallocate(void *memory) noexcept
        {
                view().deallocate(memory);
        }

        template <class... Arguments> [[nodiscard]] T *create(Arguments &&...arguments)
        {
                return view().create(std::forward<Arguments>(arguments)...);
        }

        void destroy(T *object) noexcept
        {
                view().destroy(object);
        }

        // create() into a handle, which ends the object.
        template <class... Arguments> [[nodiscard]] handle make(Arguments &&...arguments)
        {
                return handle(create(std::forward<Arguments>(arguments)...), deleter{cache_});
        }

        // Memory for @count objects at once, all or nothing: throws std::bad_alloc. 0 is allowed.
        void allocate_bulk(void **memory, std::size_t count)
        {
                if (kmem_cache_alloc_bulk(cache_, detail::quietly, count, memory) == 0 &&
                    count != 0)
                        throw std::bad_alloc();
        }

        // Gives several objects back; @memory holds garbage afterwards, null entries are skipped.
        void deallocate_bulk(void **memory, std::size_t count) noexcept
        {
                kmem_cache_free_bulk(cache_, count, memory);
        }

        // Gives back all slabs without objects (kmem_cache_shrink); true if no slab remains.
        bool shrink() noexcept
        {
                return kmem_cache_shrink(cache_) == 0;
        }

        // For the C interface; null after a move.
        kmem_cache *native_handle() const noexcept
        {
                return cache_;
        }

private:
        kmem_cache *cache_;
};

namespace detail {

// The cache for objects of a size and alignment in this process. It is made when it is first needed
// and never ended: static containers may outlive everything else. All libraries share it, because
// their allocators are equal. It is a struct, because g++ may hide a function template's static in
// spite of the template's own visibility, if it is told to hide symbols and inline functions by
// default.
template <std::size_t bytes, std::size_t align> struct [[gnu::visibility("default")]] shared_cache {
        // Throws as object_cache does; the next call tries again.
        static kmem_cache *get()
        {
                static kmem_cache *const cache = make();

                return cache;
        }

        static kmem_cache *make()
        {
                char name[48];

                std::snprintf(name, sizeof(name), "cxx-%zu-%zu", bytes, align);
                kmem_cache *made = kmem_cache_create(name, static_cast<unsigned int>(bytes),
                                                     static_cast<unsigned int>(align), 0, nullptr);
                if (!made)
                        throw_errno("kmem::allocator");
                return made;
        }
};

} // namespace detail

// allocator - for standard containers
//
// Single objects, as the nodes of lists, maps and sets, come from a cache for objects of their
// size, rounded up to 8, and alignment, which all types of that size and alignment share. Arrays,
// and objects of more than half a page, come from kmalloc. Blocks aligned beyond a page come from
// kmem_pages_alloc, up to 4 MiB: std::allocator is for larger blocks. All allocators are equal.
// Throws std::bad_alloc, and prints nothing then.
template <class T> class allocator {
        static constexpr bool has_cache =
                sizeof(T) <= detail::page_bytes / 2 && alignof(T) <= detail::page_bytes;

        static kmem_cache *cache()
        {
                return detail::shared_cache<
                        (sizeof(T) + detail::least_align - 1) / detail::least_align *
                                detail::least_align,
                        alignof(T) < detail::least_align ? detail::least_align : alignof(T)>::get();
        }

public:
        using value_type = T;
        using is_always_equal = std::true_type;
        using propagate_on_container_move_assignment = std::true_type;

        allocator() noexcept = default;
        template <class U> allocator(const allocator<U> &) noexcept // rebind
        {
        }

        // Memory for @count objects.
        [[nodiscard]] T *allocate(std::size_t count)
        {
                void *memory;

                if constexpr (has_cache) {
                        if (count == 1) {
                                memory = kmem_cache_alloc_inline(cache(), detail::quietly);
                                if (!memory)
                                        throw std::bad_alloc();
                                return static_cast<T *>(memory);
                        }
                }
                if (count > std::numeric_limits<std::size_t>::max() / sizeof(T))
                        throw std::bad_array_new_length();
                memory = detail::allocate_block(count * sizeof(T), alignof(T));
                if (!memory)
                        throw std::bad_alloc();
                return static_cast<T *>(memory);
        }

        // @count: as in allocate().
        void deallocate(T *memory, std::size_t count) noexcept
        {
                if constexpr (has_cache) {
                        if (count == 1) {
                                kmem_cache_free_inline(cache(), memory);
                                return;
                        }
                }
                kfree(memory);
        }
};

template <class T, class U> bool operator==(const allocator<T> &, const allocator<U> &) noexcept
{
        return true;
}

template <class T, class U> bool operator!=(const allocator<T> &, const allocator<U> &) noexcept
{
        return false;
}

namespace detail {

class block_resource final : public std::pmr::memory_resource {
        void *do_allocate(std::size_t bytes, std::size_t align) override
        {
                void *block = allocate_block(bytes, align);

                if (!block)
                        throw std::bad_alloc();
                return block;
        }

        void do_deallocate(void *block, std::size_t, std::size_t) override
        {
                kfree(block);
        }

        bool do_is_equal(const std::pmr::memory_resource &other) const noexcept override
        {
                return this == &other;
        }
};

} // namespace detail

// resource - a memory resource for std::pmr: blocks of kmalloc
//
// Never ends, as std::pmr::new_delete_resource(). Blocks aligned beyond a page, and alignments, go
// up to 4 MiB; throws std::bad_alloc, and prints nothing then.
[[gnu::visibility("default")]] inline std::pmr::memory_resource *resource() noexcept
{
        alignas(detail::block_resource) static unsigned char room[sizeof(detail::block_resource)];
        static std::pmr::memory_resource *const one = ::new (room) detail::block_resource;

        return one;
}

} // namespace kmem

#endif
