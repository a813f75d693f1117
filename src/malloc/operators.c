/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * The C++ operators that programs call most, under their mangled names, so that the library needs
 * no C++ runtime. All other operators are left to the program's runtime: its nothrow forms call the
 * operators here, and its aligned forms call aligned_alloc and free. Failure calls the new-handler
 * and then throws std::bad_alloc through two functions of that runtime.
 *
 * A program may replace some of the operators. Then the standard says which operators call the
 * replacement: a sized delete calls the plain delete, and an array's new calls the new of a single
 * object.
 */
#define _GNU_SOURCE
#include "malloc/malloc.h"

#include "machine/message.h"
#include "record/record.h"

#include <dlfcn.h>

typedef void (*new_handler)(void);
typedef new_handler (*get_new_handler_function)(void);
typedef void (*throw_function)(void);

/*
 * std::get_new_handler() and std::__throw_bad_alloc() of libstdc++. They are weak in the shared
 * library, which C programs load, too. From the archive only C++ programs take this file, and it
 * must take both functions from their runtime.
 */
#define GET_NEW_HANDLER "_ZSt15get_new_handlerv"
#define THROW_BAD_ALLOC "_ZSt17__throw_bad_allocv"
#ifdef KMEM_ARCHIVE
#define CXX_RUNTIME
#else
#define CXX_RUNTIME __attribute__((weak))
#endif
extern new_handler cxx_get_new_handler(void) __asm__(GET_NEW_HANDLER) CXX_RUNTIME;
extern void cxx_throw_bad_alloc(void) __asm__(THROW_BAD_ALLOC) CXX_RUNTIME;

/* Declares a mangled name through its assembler name, and gives the function a readable name. */
#define OPERATOR(type, name, mangled, ...)                                                         \
        KMEM_FAST_CALL type name(__VA_ARGS__) __asm__(mangled);                                    \
        type name(__VA_ARGS__)

/*
 * Defines an operator that other operators call: it has a second name that is always this
 * library's.
 */
#define OPERATOR_CALLED(type, name, mangled, argument)                                             \
        KMEM_PUBLIC type operator_##name(argument) __asm__(mangled)                                \
                __attribute__((alias("own_" #name)));                                              \
        __attribute__((aligned(CACHE_LINE))) type own_##name(argument)

KMEM_HIDDEN void *own_plain_new(size_t size);
KMEM_HIDDEN void own_plain_delete(void *object);
KMEM_HIDDEN void own_array_delete(void *object);

/*
 * Limits for the fast paths of operators that call other operators, in place of fast.malloc_limit
 * and fast.heap_units. They are zero until the first slow path, and stay zero if an operator is
 * replaced.
 */
static struct {
        size_t malloc_limit;
        size_t heap_units;
} unless_replaced;

/*
 * Whether the program replaces an operator that others call. Slow paths ask; if it does not, the
 * fast paths hit from now on.
 */
static bool one_is_replaced(void)
{
        if (operators_used.plain_new != own_plain_new ||
            operators_used.plain_delete != own_plain_delete ||
            operators_used.array_delete != own_array_delete)
                return true;
        store_relaxed(&unless_replaced.malloc_limit, fast.malloc_limit);
        store_relaxed(&unless_replaced.heap_units, load_folded(&fast.heap_units));
        return false;
}

/*
 * A function of the C++ runtime: @linked, or, if the process began without a C++ runtime, the
 * function in the runtime that the code at @site uses. Plug-ins of C programs, as of python3, bring
 * a runtime that only they see. NULL if there is none.
 */
static KMEM_COLD void *runtime_function(void *linked, const char *name, const void *site)
{
#ifndef KMEM_ARCHIVE
        void *object;
        Dl_info caller;

        if (linked || !dladdr(site, &caller))
                return linked;
        object = dlopen(caller.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
        if (!object)
                return NULL;
        linked = dlsym(object, name);
        dlclose(object);
#else
        (void)name;
        (void)site;
#endif
        return linked;
}

/*
 * After a failed try: calls the new-handler, which may make room; false if there is none. The
 * handler may throw; no lock of the library is held then.
 */
static bool handler_called(const void *site)
{
        get_new_handler_function get_new_handler = (get_new_handler_function)runtime_function(
                (void *)cxx_get_new_handler, GET_NEW_HANDLER, site);
        new_handler handler = get_new_handler ? get_new_handler() : NULL;

        if (!handler)
                return false;
        handler();
        return true;
}

static KMEM_COLD void *throw_bad_alloc(size_t size, const void *site)
{
        throw_function throw = (throw_function)runtime_function((void *)cxx_throw_bad_alloc,
                                                                THROW_BAD_ALLOC, site);

        if (throw)
                throw();
        message_fatal("operator new(%zu): out of memory, and no C++ runtime to throw bad_alloc",
                      size);
}

static void *new_at(size_t size, const void *site)
{
        void *object;

        while (!(object = new_slow_at(size, site)))
                if (!handler_called(site))
                        return throw_bad_alloc(size, site);
        return object;
}

static KMEM_NOINLINE void *new_slow(size_t size)
{
        return new_at(size, CALL_SITE);
}

static KMEM_NOINLINE void *array_new_slow(size_t size)
{
        return one_is_replaced() ? operators_used.plain_new(size) : new_at(size, CALL_SITE);
}

OPERATOR_CALLED(void *, plain_new, "_Znwm", size_t size)
{
        void *object = malloc_fast(size, fast.malloc_limit);

        return likely(object) ? object : new_slow(size);
}

OPERATOR(void *, array_new, "_Znam", size_t size)
{
        void *object = malloc_fast(size, unless_replaced.malloc_limit);

        return likely(object) ? object : array_new_slow(size);
}

/* Reached by jumps only, so the slow half sees the program's call site. */
static KMEM_NOINLINE void delete_slow(void *object, void (*called)(void *object))
{
        if (one_is_replaced())
                called(object);
        else
                owner_block_delete_slow(object);
}

OPERATOR_CALLED(void, plain_delete, "_ZdlPv", void *object)
{
        if (unlikely(!malloc_free_fast(object, load_folded(&fast.heap_units))))
                owner_block_delete_slow(object);
}

OPERATOR_CALLED(void, array_delete, "_ZdaPv", void *object)
{
        if (unlikely(!malloc_free_fast(object, unless_replaced.heap_units)))
                delete_slow(object, operators_used.plain_delete);
}

/* As delete_slow; protect=hardened looks at the size. */
static KMEM_NOINLINE void sized_delete_slow(void *object, size_t size, void (*called)(void *object))
{
        if (one_is_replaced())
                called(object);
        else
                owner_block_free_sized(object, size, "operator delete");
}

/* The page map knows the cache, so the fast path does not need the size. */
OPERATOR(void, sized_delete, "_ZdlPvm", void *object, size_t size)
{
        if (unlikely(!malloc_free_fast(object, unless_replaced.heap_units)))
                sized_delete_slow(object, size, operators_used.plain_delete);
}

OPERATOR(void, array_sized_delete, "_ZdaPvm", void *object, size_t size)
{
        if (unlikely(!malloc_free_fast(object, unless_replaced.heap_units)))
                sized_delete_slow(object, size, operators_used.array_delete);
}
