/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Names of glibc that are newer than 2.28, or have a newer version there. The shared libraries and
 * the command's programs are linked with this file in front of libc, so that they ask for these names
 * without a version: the dynamic linker finds them in whichever library of libc has them, or nowhere
 * if the reference is weak. It becomes a library that is never loaded, because it calls itself by the name of the dynamic
 * linker, which every process has. So the linker does not look into the true one, and the names that
 * come from there are here too.
 */

/* clang-format off */
#define FUNCTION(name) void name(void); void name(void) {}
#define VARIABLE(name) extern long name; long name = 1;
/* clang-format on */

/* 2.34 moved these from libpthread and libdl into libc. */
FUNCTION(pthread_create)
FUNCTION(pthread_key_create)
FUNCTION(__pthread_key_create)
FUNCTION(pthread_key_delete)
FUNCTION(pthread_once)
FUNCTION(pthread_setspecific)
FUNCTION(pthread_barrier_init)
FUNCTION(pthread_barrier_wait)
FUNCTION(pthread_join)
FUNCTION(dladdr)
FUNCTION(dladdr1)
FUNCTION(dlclose)
FUNCTION(dlsym)

/* New versions in 2.32 and 2.34, for programs (tools/older_start.c). */
FUNCTION(pthread_attr_setaffinity_np)
FUNCTION(__libc_start_main)

/* New in 2.32 and 2.35. */
VARIABLE(__libc_single_threaded)
VARIABLE(__rseq_offset)
VARIABLE(__rseq_size)
FUNCTION(_dl_find_object)

/* Of the dynamic linker, in all releases. */
FUNCTION(__tls_get_addr)
VARIABLE(__libc_stack_end)

/* Before 2.34 only. */
FUNCTION(__libc_dlopen_mode)
FUNCTION(__libc_dlsym)
