/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * C++ operator new and delete, under their mangled names, so that the library needs no C++
 * runtime. Failure calls the new-handler and then throws std::bad_alloc through two functions of
 * the program's own runtime, found as weak symbols; without a runtime there is nobody to catch,
 * and the process stops with a message.
 */
#include "malloc/malloc.h"

#include "base/message.h"
#include "record/record.h"

#include <errno.h>

typedef void (*new_handler)(void);

/* std::get_new_handler() and std::__throw_bad_alloc() of libstdc++. */
extern new_handler cxx_get_new_handler(void) __asm__("_ZSt15get_new_handlerv")
        __attribute__((weak));
extern void cxx_throw_bad_alloc(void) __asm__("_ZSt17__throw_bad_allocv") __attribute__((weak));

/*
 * After a failed try: true if the handler may have made room, false if there is none. A handler
 * may throw; nothing of ours is held then.
 */
static bool handler_called(void)
{
        new_handler handler = &cxx_get_new_handler ? cxx_get_new_handler() : NULL;

        if (!handler)
                return false;
        handler();
        return true;
}

static KMEM_COLD void *throw_bad_alloc(size_t size)
{
        if (&cxx_throw_bad_alloc)
                cxx_throw_bad_alloc();
        message_fatal("operator new(%zu): out of memory, and no C++ runtime to throw bad_alloc",
                      size);
}

static KMEM_NOINLINE void *new_slow(size_t size)
{
        const void *site = CALL_SITE;
        void *object;

        while (!(object = malloc_slow_at(size, site)))
                if (!handler_called())
                        return throw_bad_alloc(size);
        return object;
}

/*
 * A handler may throw, and a nothrow operator must turn that into NULL, which C cannot. The
 * runtime's own operator can: it calls the throwing one, which is ours, and catches. @mangled is
 * its name; without it, or without a handler, there is nothing to call or to catch.
 */
static bool runtime_operator(const char *mangled, void **found)
{
        *found = &next_symbol ? next_symbol(mangled) : NULL;
        return *found && &cxx_get_new_handler && cxx_get_new_handler();
}

static KMEM_NOINLINE void *new_nothrow_slow(size_t size, const void *tag)
{
        void *object = malloc_slow_at(size, CALL_SITE);
        union {
                void *address;
                void *(*call)(size_t, const void *);
        } runtime;

        if (likely(object) || !runtime_operator("_ZnwmRKSt9nothrow_t", &runtime.address))
                return object;
        return runtime.call(size, tag);
}

static void *new_aligned(size_t size, size_t align, const void *site)
{
        void *object;

        while (!(object = malloc_aligned(align, size, site)))
                if (!handler_called())
                        return throw_bad_alloc(size);
        return object;
}

static void *new_aligned_nothrow(size_t size, size_t align, const void *tag, const void *site)
{
        void *object = malloc_aligned(align, size, site);
        union {
                void *address;
                void *(*call)(size_t, size_t, const void *);
        } runtime;

        if (likely(object) ||
            !runtime_operator("_ZnwmSt11align_val_tRKSt9nothrow_t", &runtime.address))
                return object;
        return runtime.call(size, align, tag);
}

/* A mangled name is declared through its assembler name, the function gets a readable one. */
#define OPERATOR(type, name, mangled, ...)                                                         \
        KMEM_FAST_CALL type name(__VA_ARGS__) __asm__(mangled);                                    \
        type name(__VA_ARGS__)

#define OPERATOR_NEW(name, mangled, nothrow_mangled)                                               \
        OPERATOR(void *, name, mangled, size_t size)                                               \
        {                                                                                          \
                void *object = malloc_fast(size);                                                  \
                return likely(object) ? object : new_slow(size);                                   \
        }                                                                                          \
        OPERATOR(void *, name##_nothrow, nothrow_mangled, size_t size, const void *tag)            \
        {                                                                                          \
                void *object = malloc_fast(size);                                                  \
                return likely(object) ? object : new_nothrow_slow(size, tag);                      \
        }

#define OPERATOR_NEW_ALIGNED(name, mangled, nothrow_mangled)                                       \
        OPERATOR(void *, name, mangled, size_t size, size_t align)                                 \
        {                                                                                          \
                return new_aligned(size, align, CALL_SITE);                                        \
        }                                                                                          \
        OPERATOR(void *, name##_nothrow, nothrow_mangled, size_t size, size_t align,               \
                 const void *tag)                                                                  \
        {                                                                                          \
                return new_aligned_nothrow(size, align, tag, CALL_SITE);                           \
        }

/* Sizes and alignments of a delete are not needed: the page map knows. */
#define OPERATOR_DELETE(name, mangled)                                                             \
        OPERATOR(void, name, mangled, void *object)                                                \
        {                                                                                          \
                block_free(object, "operator delete");                                             \
        }

#define OPERATOR_DELETE_WITH(name, mangled)                                                        \
        OPERATOR(void, name, mangled, void *object, size_t ignored)                                \
        {                                                                                          \
                (void)ignored;                                                                     \
                block_free(object, "operator delete");                                             \
        }

#define OPERATOR_DELETE_WITH_TWO(name, mangled)                                                    \
        OPERATOR(void, name, mangled, void *object, size_t ignored, size_t ignored_too)            \
        {                                                                                          \
                (void)ignored;                                                                     \
                (void)ignored_too;                                                                 \
                block_free(object, "operator delete");                                             \
        }

OPERATOR_NEW(operator_new, "_Znwm", "_ZnwmRKSt9nothrow_t")
OPERATOR_NEW(operator_new_array, "_Znam", "_ZnamRKSt9nothrow_t")
OPERATOR_NEW_ALIGNED(operator_new_aligned, "_ZnwmSt11align_val_t",
                     "_ZnwmSt11align_val_tRKSt9nothrow_t")
OPERATOR_NEW_ALIGNED(operator_new_array_aligned, "_ZnamSt11align_val_t",
                     "_ZnamSt11align_val_tRKSt9nothrow_t")

OPERATOR_DELETE(operator_delete, "_ZdlPv")
OPERATOR_DELETE(operator_delete_array, "_ZdaPv")
OPERATOR_DELETE_WITH(operator_delete_sized, "_ZdlPvm")
OPERATOR_DELETE_WITH(operator_delete_array_sized, "_ZdaPvm")
OPERATOR_DELETE_WITH(operator_delete_nothrow, "_ZdlPvRKSt9nothrow_t")
OPERATOR_DELETE_WITH(operator_delete_array_nothrow, "_ZdaPvRKSt9nothrow_t")
OPERATOR_DELETE_WITH(operator_delete_aligned, "_ZdlPvSt11align_val_t")
OPERATOR_DELETE_WITH(operator_delete_array_aligned, "_ZdaPvSt11align_val_t")
OPERATOR_DELETE_WITH_TWO(operator_delete_sized_aligned, "_ZdlPvmSt11align_val_t")
OPERATOR_DELETE_WITH_TWO(operator_delete_array_sized_aligned, "_ZdaPvmSt11align_val_t")
OPERATOR_DELETE_WITH_TWO(operator_delete_aligned_nothrow, "_ZdlPvSt11align_val_tRKSt9nothrow_t")
OPERATOR_DELETE_WITH_TWO(operator_delete_array_aligned_nothrow,
                         "_ZdaPvSt11align_val_tRKSt9nothrow_t")
