/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Variables that are cleaned up where their scope ends, by return, break and goto too: __free(kfree)
 * and its kind, classes, and guards, which hold a lock. kfree, kvfree and kfree_sensitive are defined
 * in slab.h, the guards of locks beside the locks, rcu in rcupdate.h. Unlike the kernel's, an unused
 * no_free_ptr is no warning, and there are no conditional guards.
 */
#ifndef KMEM_LINUX_CLEANUP_H
#define KMEM_LINUX_CLEANUP_H

#include <linux/compiler.h>

#define __cleanup(function) __attribute__((__cleanup__(function)))

/* What __free(name) does with a variable: the code finds its value, of this type, as _T. */
#define DEFINE_FREE(name, type, code)                                                              \
        static inline __maybe_unused void __free_##name(void *variable)                            \
        {                                                                                          \
                type _T;                                                                           \
                                                                                                   \
                /* The variable points to any type. */                                             \
                __builtin_memcpy(&_T, variable, sizeof(_T));                                       \
                code;                                                                              \
        }
#define __free(name) __cleanup(__free_##name)

/* The pointer, which the variable gives up: its end frees nothing any more. */
#define no_free_ptr(pointer)                                                                       \
        ({                                                                                         \
                __typeof__(pointer) kmem_given_up_ = (pointer);                                    \
                                                                                                   \
                (pointer) = NULL;                                                                  \
                kmem_given_up_;                                                                    \
        })
#define retain_and_null_ptr(pointer) ((void)no_free_ptr(pointer))
#define return_ptr(pointer) return no_free_ptr(pointer)

/* A class: a type, how a variable of it ends (_T is its value), how it begins, by which arguments. */
#define DEFINE_CLASS(name, type, end, begin, ...)                                                  \
        typedef type class_##name##_t;                                                             \
        static inline __maybe_unused void class_##name##_destructor(class_##name##_t *variable)    \
        {                                                                                          \
                class_##name##_t _T __maybe_unused = *variable;                                    \
                                                                                                   \
                end;                                                                               \
        }                                                                                          \
        static inline __maybe_unused class_##name##_t class_##name##_constructor(__VA_ARGS__)      \
        {                                                                                          \
                class_##name##_t kmem_made_ = begin;                                               \
                                                                                                   \
                return kmem_made_;                                                                 \
        }
/* CLASS(name, variable)(arguments) declares a variable of the class. */
#define CLASS(name, variable)                                                                      \
        class_##name##_t variable __cleanup(class_##name##_destructor) = class_##name##_constructor

/* A lock whose guard is a pointer to it, _T. */
#define DEFINE_GUARD(name, type, lock, unlock)                                                     \
        DEFINE_CLASS(name, type, unlock, ({                                                        \
                             lock;                                                                 \
                             _T;                                                                   \
                     }),                                                                           \
                     type _T)

/* A lock whose guard has further members; _T points to the guard, and _T->lock is the lock. */
#define DEFINE_LOCK_GUARD_1(name, type, take, drop, ...)                                           \
        typedef struct {                                                                           \
                type *lock;                                                                        \
                __VA_ARGS__;                                                                       \
        } class_##name##_t;                                                                        \
        static inline __maybe_unused void class_##name##_destructor(class_##name##_t *_T)          \
        {                                                                                          \
                drop;                                                                              \
        }                                                                                          \
        static inline __maybe_unused class_##name##_t class_##name##_constructor(type *kmem_lock_) \
        {                                                                                          \
                class_##name##_t kmem_made_ = {.lock = kmem_lock_};                                \
                class_##name##_t *_T __maybe_unused = &kmem_made_;                                 \
                                                                                                   \
                take;                                                                              \
                return kmem_made_;                                                                 \
        }
/* A guard of what has no lock of its own, as a section of RCU. */
#define DEFINE_LOCK_GUARD_0(name, take, drop)                                                      \
        DEFINE_CLASS(name, int, drop, ({                                                           \
                             take;                                                                 \
                             0;                                                                    \
                     }),                                                                           \
                     void)

#define KMEM_GUARD_NAME(number) kmem_guard_##number
#define KMEM_GUARD_NUMBERED(number) KMEM_GUARD_NAME(number)
/* guard(name)(lock): until the end of the block. */
#define guard(name) __maybe_unused CLASS(name, KMEM_GUARD_NUMBERED(__COUNTER__))
/* scoped_guard(name, lock): for the statement that follows. */
#define scoped_guard(name, ...)                                                                    \
        for (CLASS(name, kmem_scope_)(__VA_ARGS__), *kmem_done_ = NULL; !kmem_done_;               \
             kmem_done_ = &kmem_scope_)

#endif
