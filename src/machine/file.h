/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Small files of the kernel (/proc, /sys), read with system calls only.
 */
#ifndef KMEM_MACHINE_FILE_H
#define KMEM_MACHINE_FILE_H

#include "lang/compiler.h"

#include <sys/stat.h>

/*
 * Reads a file up to its end or @bytes, whichever is less, and stores the number of bytes in *used.
 * The text ends in a zero byte, which replaces the last byte if all of @bytes were used. Returns 0,
 * or the error if it cannot be read.
 */
KMEM_HIDDEN int file_read_all(const char *path, char *text, size_t bytes, size_t *used);
/* Reads a small file whole; the text ends in a zero byte. False if there is none. */
KMEM_HIDDEN bool file_read(const char *path, char *text, size_t bytes);

/*
 * A file of the process in /proc, to be read piece by piece: a descriptor, or less than 0. It is opened
 * through the calling thread, because the process's own folder is its first thread's, whose maps, mem
 * and statm are empty once that has ended. A sandbox may have a rule for the process's folder alone, which
 * serves then.
 */
KMEM_HIDDEN long file_open_own(const char *name);
/* Bytes read, or less than 0. */
KMEM_HIDDEN long file_next(long file, char *text, size_t bytes);
KMEM_HIDDEN void file_close(long file);

/*
 * As stat(2), or with @path NULL as fstat(2) of an open file. Returns 0 or the error. libc's functions
 * have other names before glibc 2.33.
 */
KMEM_HIDDEN int file_status(int file, const char *path, struct stat *status);

/*
 * Whether a file may become as long as that. Beyond the limit the kernel would not only refuse but
 * send a signal that ends the program.
 */
KMEM_HIDDEN bool file_limit_allows(uint64_t bytes);

#endif
