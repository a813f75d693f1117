/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Files that several processes write through mappings. Files are opened by name each time and
 * closed at once: many programs close all descriptors, and reuse their numbers.
 */
#ifndef KMEM_MACHINE_SHARED_FILE_H
#define KMEM_MACHINE_SHARED_FILE_H

#include "lang/compiler.h"

/* Tells a file from others that get its name later. */
struct shared_file {
        uint64_t device;
        uint64_t number;
};

/*
 * Maps a part of a file, shared, after space for all of it was taken, so that a full disk is an
 * error here and no signal later. @offset is a multiple of 64 KiB. For its first part the file is
 * made if it is not there, and *which is set; a later part is of that file, and ESTALE if another has
 * the name. NULL with an errno in *error.
 */
KMEM_HIDDEN void *shared_file_map(const char *path, uint64_t offset, size_t bytes,
                                  struct shared_file *which, int *error);

/*
 * Takes space for a part of an open file (fallocate); 0 or less than 0. A signal may interrupt the
 * call, in older kernels on tmpfs too. It is then begun anew, because a refused caller does not ask
 * again.
 */
KMEM_HIDDEN long shared_file_take_space(long file, uint64_t offset, size_t bytes);

/*
 * Makes @to a copy of what is left of the open file @from, which may be a file of the kernel. Returns 0 or an errno; then @to
 * stays as it was before, also on a full disk. Threads may copy to one place at once: the copy that
 * is ready last stays.
 */
KMEM_HIDDEN int shared_file_copy(long from, const char *to);

#endif
