/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Trace files of the form SLTR0001. The two lowest bits of an input's first byte choose the meaning
 * of the rest: the file; the file behind its magic; the content of its frame; or that content
 * behind its magic.
 */
#include "traces.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
        static uint8_t plain[1 << 18] = SLT_MAGIC;
        static uint8_t file[1 << 19];
        size_t magic;
        size_t at = 0;

        if (!size || size > sizeof(plain) - MAGIC_BYTES)
                return 0;
        magic = *bytes & 1 ? MAGIC_BYTES : 0;
        memcpy(plain, SLT_MAGIC, MAGIC_BYTES);
        memcpy(plain + magic, bytes + 1, size - 1);
        if (!(*bytes & 2))
                read_as_trace(plain, magic + size - 1);
        else if (append_frame(file, sizeof(file), &at, plain, magic + size - 1))
                read_as_trace(file, at);
        return 0;
}
