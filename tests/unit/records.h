/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* The figures of this process that others see: the records in its registry. */
#ifndef TESTS_UNIT_RECORDS_H
#define TESTS_UNIT_RECORDS_H

#include "lang/bits.h"
#include "registry/registry.h"

/* The record behind @record, or the first record for NULL; NULL if there is none. */
static inline const struct registry_record_head *
record_behind(const struct registry_record_head *record)
{
        const char *next = (const char *)registry + REGISTRY_HEAD_BYTES;

        /* In a child there is room of its parent's records, which is zero. */
        if (record)
                next = (const char *)record + max_of(record->bytes, 64u);
        return next < (const char *)registry + registry->used_bytes ? (const void *)next : NULL;
}

#endif
