/* SPDX-License-Identifier: Apache-2.0 OR MIT */
#define _GNU_SOURCE
#include "base/shared_file.h"

#include "base/syscall.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

static long open_file(const char *path, int flags)
{
        return system_call6(SYS_openat, AT_FDCWD, (long)path, flags | O_CLOEXEC, 0600, 0, 0);
}

/* Beyond the limit the kernel would not only refuse but send a signal that ends the program. */
static bool file_limit_allows(uint64_t bytes)
{
        struct {
                uint64_t soft;
                uint64_t hard;
        } limit;
        long result = system_call6(SYS_prlimit64, 0, RLIMIT_FSIZE, 0, (long)&limit, 0, 0);

        return system_call_failed(result) || bytes <= limit.soft;
}

/* A timer that is quicker than the call must not keep us here. */
enum { SPACE_ROUNDS = 1000 };

long shared_file_take_space(long file, uint64_t offset, size_t bytes)
{
        long result = -EINTR;

        for (int round = 0; round < SPACE_ROUNDS && result == -EINTR; round++)
                result = system_call6(SYS_fallocate, file, 0, (long)offset, (long)bytes, 0, 0);
        return result;
}

void *shared_file_map(const char *path, uint64_t offset, size_t bytes, int *error)
{
        long result = -EFBIG;
        long file;

        if (!file_limit_allows(offset + bytes))
                goto failed;
        result = file = open_file(path, O_RDWR | O_CREAT);
        if (system_call_failed(result))
                goto failed;
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

int shared_file_copy(const char *from, const char *to)
{
        char text[4096];
        long source = open_file(from, O_RDONLY);
        long target =
                system_call_failed(source) ? source : open_file(to, O_WRONLY | O_CREAT | O_TRUNC);
        long got = target;

        while (!system_call_failed(target)) {
                got = system_call(SYS_read, source, (long)text, sizeof(text));
                if (system_call_failed(got) || got == 0)
                        break;
                got = system_call(SYS_write, target, (long)text, got);
                if (system_call_failed(got))
                        break;
        }
        if (!system_call_failed(target))
                system_call(SYS_close, target, 0, 0);
        if (!system_call_failed(source))
                system_call(SYS_close, source, 0, 0);
        return system_call_failed(got) ? (int)-got : 0;
}
