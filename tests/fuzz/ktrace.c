/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Trace files of version 1. If an input's first byte is even, the input is the file. Otherwise it
 * is the content of frames, each behind two bytes of length, so that the fuzzer reaches content
 * behind checksums.
 */
#include "traces.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
        static uint8_t file[1 << 20];
        size_t at = 0;

        if (!size)
                return 0;
        if (!(*bytes & 1)) {
                read_as_trace(bytes + 1, size - 1);
                return 0;
        }
        for (size_t from = 1; from + 2 <= size;) {
                size_t length = bytes[from] | (size_t)bytes[from + 1] << 8;

                from += 2;
                length = least(length, size - from);
                if (!append_frame(file, sizeof(file), &at, bytes + from, length))
                        break;
                from += length;
        }
        read_as_trace(file, at);
        return 0;
}
