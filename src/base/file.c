/* SPDX-License-Identifier: Apache-2.0 OR MIT */
#define _GNU_SOURCE
#include "base/file.h"

#include "base/syscall.h"

#include <fcntl.h>

bool file_read(const char *path, char *text, size_t bytes)
{
        long descriptor = system_call(SYS_openat, AT_FDCWD, (long)path, O_RDONLY | O_CLOEXEC);
        size_t used = 0;

        if (system_call_failed(descriptor))
                return false;
        while (used < bytes - 1) {
                long got = system_call(SYS_read, descriptor, (long)(text + used),
                                       (long)(bytes - 1 - used));

                if (got <= 0)
                        break;
                used += (size_t)got;
        }
        text[used] = '\0';
        system_call(SYS_close, descriptor, 0, 0);
        return used != 0;
}

int64_t parse_number(const char **text)
{
        const char *digit = *text;
        int64_t value = 0;

        while (*digit >= '0' && *digit <= '9') {
                if (value < INT64_MAX / 16)
                        value = value * 10 + (*digit - '0');
                digit++;
        }
        if (digit == *text)
                return -1;
        *text = digit;
        return value;
}
