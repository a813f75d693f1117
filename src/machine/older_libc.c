/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * glibc from 2.28 on, for the shared libraries: a build on a newer glibc runs there as well. The
 * linker turns calls of the functions below into calls of __wrap_NAME, and __real_NAME is libc's own
 * (src/meson.build); newer_names.c takes the versions away.
 *
 * Before 2.34 threads are in libpthread and the dynamic linker's functions in libdl, and a process
 * has these two only if the program or one of its libraries names them. Without libpthread there are
 * no threads, and no keys. libdl is loaded when it is needed, which happens in reports and failures.
 * libpthread is not: a program that gets it later, by dlopen, has no keys of ours, so records of its
 * ended threads in RCU stay (base/rcu.c).
 *
 * Before 2.35 libc has no _dl_find_object, for which the compiler's unwinder asks. musl has none
 * either, and Debian's compiler for musl has glibc's unwinder: all else here is for glibc.
 */
#define _GNU_SOURCE
#include "lang/compiler.h"
#include "machine/find_object.h"

#include <dlfcn.h>
#include <errno.h>
#include <link.h>
#include <pthread.h>

#ifdef __GLIBC__

#define WRAPPED(name)                                                                              \
        extern __typeof__(name) __real_##name __attribute__((weak));                               \
        KMEM_HIDDEN __typeof__(name) __wrap_##name

WRAPPED(pthread_create);
WRAPPED(pthread_key_create);
WRAPPED(pthread_key_delete);
WRAPPED(pthread_setspecific);
WRAPPED(dlsym);
WRAPPED(dladdr);
WRAPPED(dladdr1);
WRAPPED(dlclose);

/* glibc's own, up to 2.33. */
extern void *__libc_dlopen_mode(const char *file, int mode) __attribute__((weak));
extern void *__libc_dlsym(void *library, const char *name) __attribute__((weak));

/* Of the mode: the call comes from a program. */
static const int OF_PROGRAM = (int)0x80000000;

/* ---- libpthread -------------------------------------------------------------------------- */

int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attributes,
                          void *(*run)(void *argument), void *argument)
{
        return __real_pthread_create ? __real_pthread_create(thread, attributes, run, argument)
                                     : EAGAIN;
}

int __wrap_pthread_key_create(pthread_key_t *key, void (*end)(void *value))
{
        return __real_pthread_key_create ? __real_pthread_key_create(key, end) : EAGAIN;
}

/* The two that follow are called for a key that was made. */
int __wrap_pthread_key_delete(pthread_key_t key)
{
        return __real_pthread_key_delete ? __real_pthread_key_delete(key) : EINVAL;
}

int __wrap_pthread_setspecific(pthread_key_t key, const void *value)
{
        return __real_pthread_setspecific ? __real_pthread_setspecific(key, value) : EINVAL;
}

/* ---- libdl ------------------------------------------------------------------------------- */

static void *of_libdl(const char *name)
{
        void *libdl = NULL;

        if (__libc_dlopen_mode && __libc_dlsym)
                libdl = __libc_dlopen_mode("libdl.so.2", RTLD_NOW | OF_PROGRAM);
        return libdl ? __libc_dlsym(libdl, name) : NULL;
}

/* With RTLD_NEXT: behind this library, in which the callers are as well. */
void *__wrap_dlsym(void *restrict library, const char *restrict name)
{
        __typeof__(dlsym) *real =
                __real_dlsym ? __real_dlsym : (__typeof__(dlsym) *)of_libdl("dlsym");

        return real ? real(library, name) : NULL;
}

int __wrap_dladdr(const void *address, Dl_info *info)
{
        __typeof__(dladdr) *real =
                __real_dladdr ? __real_dladdr : (__typeof__(dladdr) *)of_libdl("dladdr");

        return real ? real(address, info) : 0;
}

int __wrap_dladdr1(const void *address, Dl_info *info, void **extra, int flags)
{
        __typeof__(dladdr1) *real =
                __real_dladdr1 ? __real_dladdr1 : (__typeof__(dladdr1) *)of_libdl("dladdr1");

        return real ? real(address, info, extra, flags) : 0;
}

int __wrap_dlclose(void *library)
{
        __typeof__(dlclose) *real =
                __real_dlclose ? __real_dlclose : (__typeof__(dlclose) *)of_libdl("dlclose");

        return real ? real(library) : -1;
}

#endif

/* ---- The unwinder ------------------------------------------------------------------------ */

extern int __real__dl_find_object(void *address, struct found_object *found) __attribute__((weak));
KMEM_HIDDEN int __wrap__dl_find_object(void *address, struct found_object *found);

struct search {
        uintptr_t address;
        struct found_object *found;
};

/* 1 ends the search. */
static int look_into(struct dl_phdr_info *info, size_t bytes, void *argument)
{
        struct search *search = argument;
        struct found_object found = {0};
        bool inside = false;

        for (unsigned int i = 0; i < info->dlpi_phnum; i++) {
                const ElfW(Phdr) *segment = &info->dlpi_phdr[i];
                uintptr_t start = info->dlpi_addr + segment->p_vaddr;

                if (segment->p_type == PT_GNU_EH_FRAME)
                        found.frames = (void *)start;
                if (segment->p_type != PT_LOAD)
                        continue;
                inside |= search->address - start < segment->p_memsz;
                if (!found.begin)
                        found.begin = (void *)start;
                found.end = (void *)(start + segment->p_memsz);
        }
        if (!inside || !found.frames)
                return 0;
        *search->found = found;
        return 1;
}

/* By a walk over the libraries, under the dynamic linker's lock. */
int __wrap__dl_find_object(void *address, struct found_object *found)
{
        struct search search = {(uintptr_t)address, found};

        if (__real__dl_find_object)
                return __real__dl_find_object(address, found);
        return dl_iterate_phdr(look_into, &search) ? 0 : -1;
}
