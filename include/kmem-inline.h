/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * kmem_cache_alloc and kmem_cache_free inlined: a hit makes no call. For C and C++; kmem.hpp has
 * typed caches on top of it.
 *
 * The instructions of a hit are the library's own (kmem-sequence.h). All other cases are the
 * library's call: no object at hand, the first use of a CPU, a full sheaf, a thread without
 * restartable sequences (option slots=locked, valgrind, old kernels), option check=sheaf, objects
 * that are charged to a memory group, engine slob. A cache that must see each of its operations has
 * an empty sheaf that is never filled, so inlined code needs no other test to leave such caches to
 * the library. Statistics, messages and checks do not differ from those of the calls.
 *
 * On other machines than x86-64 and AArch64, and with compilers before gcc 11 and clang 11, both
 * functions are the calls. They are the calls, too, if KMEM_INLINE_CALLS is defined before this
 * header is included. The text for x86-64 is of the AT&T dialect: not with -masm=intel.
 *
 * Shared libraries: code with restartable sequences must stay in memory, because the kernel reads
 * the descriptor of a thread's last sequence at a later interrupt and ends the process if it is
 * gone. A shared library that includes this header therefore asks libkmem, when it is loaded, to be
 * kept: dlclose does not unload it any more, as if it had been linked with -z nodelete. If that
 * fails, a line on standard error says so. (Compiled with -fno-pic it does not ask; such code is
 * not for shared libraries.)
 *
 * A program must run with a library of the layout that it was compiled for; otherwise it does not
 * link, or does not start: "undefined symbol: kmem_inline_layout_1".
 */
#ifndef KMEM_INLINE_H
#define KMEM_INLINE_H

#include "kmem-sequence.h"
#include "kmem.h"

#if KMEM_HAS_SEQUENCES && !defined(KMEM_INLINE_CALLS)
#define KMEM_INLINES 1
#else
#define KMEM_INLINES 0
#endif

#ifdef __cplusplus
extern "C" {
/* As in kmem.h: to clang++ the casts of C are old. */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wold-style-cast"
#endif

/*
 * kmem_inline_keep_loaded - keep a shared library in memory until the process ends
 * @address: anything in it
 *
 * This header calls it, unless KMEM_INLINE_NODELETE is defined, for libraries linked with
 * -z nodelete. The program itself stays anyway, and the call returns at once.
 */
void kmem_inline_keep_loaded(const void *address);

#if KMEM_INLINES && defined(__PIC__) && !defined(KMEM_INLINE_NODELETE)
/*
 * Each library or program has one such object; every file that includes this header has a
 * constructor, and the first acts. Code that is compiled with -fPIE, as compilers do by default,
 * has it too: it can be linked with -shared.
 */
__attribute__((weak, visibility("hidden"))) char kmem_inline_kept_;

__attribute__((constructor, used)) static void kmem_inline_keep_(void)
{
        if (!kmem_inline_kept_) {
                kmem_inline_kept_ = 1;
                kmem_inline_keep_loaded(&kmem_inline_kept_);
        }
}
#endif

/*
 * The facts about a cache that inlined code needs, for loops: a local variable of this type stays
 * in registers, and a hit reads nothing but the sheaf and the pointers to it. Valid as long as the
 * cache is; it may be copied and used by any thread. The fields belong to this header.
 */
struct kmem_view {
        struct kmem_cache *cache;
#if KMEM_INLINES
        uint64_t pair_offset;
        const uint16_t *map;
        intptr_t rseq;
        intptr_t slot_field;
        uintptr_t heap_base;
        size_t heap_bytes; /* room when the view was made: newer objects of a grown heap take the
                              call */
#endif
};

#if KMEM_INLINES
/*
 * Loads a field of the layout, or of the cache, which may be kept in a register once there is a
 * cache. The statements are not volatile and have no memory as an operand, so the compiler may keep
 * the loaded value. It may not load the value before there is a cache, when all is zero: so the
 * layout's address has the cache as an operand.
 */
#define KMEM_LOAD_LAYOUT_(member)                                                                  \
        __asm__(KMEM_TEXT_LOAD                                                                     \
                : [to] "=r"(view.member)                                                           \
                : [base] "r"(layout), [at] "i"(offsetof(struct kmem_inline_layout, member)))
#endif

/*
 * kmem_view_of - a view of a cache
 * @cache: of kmem_cache_create; not NULL
 *
 * A view knows the end of the heap at the time of the last free by a call. So a view from before
 * the first such free frees all objects by the call, and every view frees objects beyond that end
 * by the call. A loop that runs long should make its view anew now and then, which takes seven
 * loads. A child of vfork, in a program that has called prctl with PR_SET_NO_NEW_PRIVS or
 * PR_SET_SECCOMP, must not use a view of its parent's, nor the inlined calls.
 */
static inline __attribute__((always_inline)) struct kmem_view kmem_view_of(struct kmem_cache *cache)
{
        struct kmem_view view;

        view.cache = cache;
#if KMEM_INLINES
        {
                const struct kmem_inline_layout *layout;

                /* By the table of addresses: an executable must not have a copy of the object. */
                __asm__(KMEM_TEXT_LAYOUT : [to] "=r"(layout) : "r"(cache));
                KMEM_LOAD_LAYOUT_(map);
                KMEM_LOAD_LAYOUT_(rseq);
                KMEM_LOAD_LAYOUT_(slot_field);
                view.pair_offset = *(const uint32_t *)(const void *)cache;
                view.heap_base = layout->heap_base;
                view.heap_bytes = layout->heap_bytes;
        }
#endif
        return view;
}

/*
 * kmem_view_alloc - kmem_cache_alloc without a call on a hit
 * @flags: GFP_*; best a constant. With __GFP_ZERO or __GFP_ACCOUNT it is the call.
 *
 * Returns as kmem_cache_alloc does: the object, or NULL with errno ENOMEM and a line on standard
 * error (S8-46).
 */
static inline __attribute__((always_inline)) void *kmem_view_alloc(struct kmem_view view,
                                                                   gfp_t flags)
{
#if KMEM_INLINES
        if (__builtin_expect(!(flags & (__GFP_ZERO | __GFP_ACCOUNT)), 1)) {
                void *object =
                        kmem_sequence_pop(view.map, view.rseq, view.slot_field, view.pair_offset);

                if (__builtin_expect(object != NULL, 1))
                        return object;
        }
#endif
        return kmem_cache_alloc(view.cache, flags);
}

/*
 * kmem_view_free - kmem_cache_free without a call on a hit
 * @object: of the view's cache, or NULL, which is ignored
 *
 * A pointer outside the heap and an object that was freed just before are handed to
 * kmem_cache_free, which reports them. An object of another cache is found when it leaves the
 * sheaf, and goes back to its own cache (S8-42).
 */
static inline __attribute__((always_inline)) void kmem_view_free(struct kmem_view view,
                                                                 void *object)
{
#if KMEM_INLINES
        if (__builtin_expect((uintptr_t)object - view.heap_base < view.heap_bytes, 1) &&
            __builtin_expect(kmem_sequence_push(view.map, view.rseq, view.slot_field,
                                                view.pair_offset, object) == KMEM_PUSH_DONE,
                             1))
                return;
#endif
        kmem_cache_free(view.cache, object);
}

/* kmem_view_alloc of a cache (not NULL), for single calls. */
static inline __attribute__((always_inline)) void *kmem_cache_alloc_inline(struct kmem_cache *cache,
                                                                           gfp_t flags)
{
        return kmem_view_alloc(kmem_view_of(cache), flags);
}

/* kmem_view_free of a cache (not NULL), for single calls. */
static inline __attribute__((always_inline)) void kmem_cache_free_inline(struct kmem_cache *cache,
                                                                         void *object)
{
        kmem_view_free(kmem_view_of(cache), object);
}

#ifdef __cplusplus
#pragma GCC diagnostic pop
}
#endif

#endif
