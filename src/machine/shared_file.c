/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Files that several processes map, and copies of files, by system calls (shared_file.h). */
#define _GNU_SOURCE
#include "machine/shared_file.h"

#include "lang/text.h"
#include "machine/file.h"
#include "machine/syscall.h"
#include "machine/system.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

static long open_file(const char *path, int flags)
{
        return system_call6(SYS_openat, AT_FDCWD, (long)path, flags | O_CLOEXEC, 0600, 0, 0);
}

/* A timer that fires before the call ends must not keep us here for ever. */
enum { SPACE_ROUNDS = 1000 };

long shared_file_take_space(long file, uint64_t offset, size_t bytes)
{
        long result = -EINTR;

        for (int round = 0; round < SPACE_ROUNDS && result == -EINTR; round++)
                result = system_call6(SYS_fallocate, file, 0, (long)offset, (long)bytes, 0, 0);
        return result;
}

/* Notes which file the first part is of; a later part's is to be the same. 0, or less than 0. */
static long know_file(long descriptor, bool first, struct shared_file *which)
{
        struct stat status;
        int error = file_status((int)descriptor, NULL, &status);

        if (error)
                return -error;
        if (first)
                *which = (struct shared_file){.device = status.st_dev, .number = status.st_ino};
        return which->device == status.st_dev && which->number == status.st_ino ? 0 : -ESTALE;
}

void *shared_file_map(const char *path, uint64_t offset, size_t bytes, struct shared_file *which,
                      int *error)
{
        long result = -EFBIG;
        long file;

        if (!file_limit_allows(offset + bytes))
                goto failed;
        /*
         * A later part belongs to the file that was made: behind chroot the name may be free, or
         * another file's, as after a rename. Nothing of that file may change.
         */
        result = file = open_file(path, O_RDWR | (offset ? 0 : O_CREAT));
        if (system_call_failed(result))
                goto failed;
        result = know_file(file, !offset, which);
        if (!system_call_failed(result))
                result = shared_file_take_space(file, offset, bytes);
        if (!system_call_failed(result))
                result = system_call6(SYS_mmap, 0, (long)bytes, PROT_READ | PROT_WRITE, MAP_SHARED,
                                      file, (long)offset);
        system_call(SYS_close, file, 0, 0);
        if (!system_call_failed(result)) {
                /* All pages at once; MAP_POPULATE would make them readable only. 5.14, or later. */
                system_call(SYS_madvise, result, (long)bytes, MADV_POPULATE_WRITE);
                return (void *)result;
        }
failed:
        *error = (int)-result;
        return NULL;
}

/* Copies all data of @source; 0 or an errno. */
static long copy_into(long source, long target)
{
        char text[512];
        uint64_t written = 0;

        for (;;) {
                long got = system_call(SYS_read, source, (long)text, sizeof(text));

                if (system_call_failed(got) || got == 0)
                        return -got;
                if (!file_limit_allows(written + (uint64_t)got))
                        return EFBIG;
                for (long done = 0; done < got;) {
                        long put = system_call(SYS_write, target, (long)text + done, got - done);

                        if (system_call_failed(put) || put == 0)
                                return put ? -put : ENOSPC;
                        done += put;
                }
                written += (uint64_t)got;
        }
}

/* The error of a call, or 0. */
static long error_of(long result)
{
        return system_call_failed(result) ? -result : 0;
}

/* Copies a file to a path; on an error the copy ends where writing stopped. Its buffer is for no other call's stack. */
static KMEM_NOINLINE long copy(long from, const char *to)
{
        /* O_NONBLOCK: opening a FIFO that lies there would wait for a reader. */
        long target = open_file(to, O_WRONLY | O_CREAT | O_TRUNC | O_NONBLOCK);
        long error = error_of(target);

        if (error)
                return error;
        error = copy_into(from, target);
        system_call(SYS_close, target, 0, 0);
        return error;
}

int shared_file_copy(long from, const char *to)
{
        char beside[512];
        long error;

        /* A name of its own: another thread may be writing its copy, and puts it in place. */
        if (text_print(beside, sizeof(beside), "%s.new.%u", to, system_thread_id()) >=
            sizeof(beside))
                return ENAMETOOLONG;
        error = copy(from, beside);
        if (!error)
                error = error_of(system_call6(SYS_renameat2, AT_FDCWD, (long)beside, AT_FDCWD,
                                              (long)to, 0, 0));
        if (error)
                system_call(SYS_unlinkat, AT_FDCWD, (long)beside, 0);
        return (int)error;
}
