/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Reading of small files by system calls (file.h). */
#define _GNU_SOURCE
#include "machine/file.h"

#include "lang/text.h"
#include "machine/syscall.h"

#include <fcntl.h>
#include <sys/resource.h>

static long open_to_read(const char *path)
{
        return system_call(SYS_openat, AT_FDCWD, (long)path, O_RDONLY | O_CLOEXEC);
}

long file_open_own(const char *name)
{
        char path[32];
        long file;

        text_print(path, sizeof(path), "/proc/thread-self/%s", name);
        file = open_to_read(path);
        if (!system_call_failed(file))
                return file;
        text_print(path, sizeof(path), "/proc/self/%s", name);
        return open_to_read(path);
}

long file_next(long file, char *text, size_t bytes)
{
        return system_call(SYS_read, file, (long)text, (long)bytes);
}

void file_close(long file)
{
        system_call(SYS_close, file, 0, 0);
}

int file_read_all(const char *path, char *text, size_t bytes, size_t *used)
{
        long descriptor = open_to_read(path);
        long got = descriptor;

        *used = 0;
        if (!system_call_failed(descriptor)) {
                while ((got = system_call(SYS_read, descriptor, (long)(text + *used),
                                          (long)(bytes - *used))) > 0)
                        *used += (size_t)got;
                system_call(SYS_close, descriptor, 0, 0);
        }
        text[min_of(*used, bytes - 1)] = '\0';
        return got < 0 ? (int)-got : 0;
}

bool file_read(const char *path, char *text, size_t bytes)
{
        size_t used;

        file_read_all(path, text, bytes, &used);
        return used != 0;
}

int file_status(int file, const char *path, struct stat *status)
{
        long result =
                path ? system_call6(SYS_newfstatat, AT_FDCWD, (long)path, (long)status, 0, 0, 0)
                     : system_call(SYS_fstat, file, (long)status, 0);

        return system_call_failed(result) ? (int)-result : 0;
}

bool file_limit_allows(uint64_t bytes)
{
        struct {
                uint64_t soft;
                uint64_t hard;
        } limit;
        long result = system_call6(SYS_prlimit64, 0, RLIMIT_FSIZE, 0, (long)&limit, 0, 0);

        return system_call_failed(result) || bytes <= limit.soft;
}
