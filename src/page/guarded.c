/* SPDX-License-Identifier: Apache-2.0 OR MIT */
#include "page/guarded.h"

#include "base/options.h"
#include "lang/bits.h"
#include "machine/message.h"
#include "page/huge.h"

#include <string.h>

enum { RED = 0xcc }; /* as the red zone of an object in use (engines/debug/object.h) */

bool large_guarded;

/* The block that was freed last; under huge_lock. */
static struct {
        void *start;
        size_t bytes;
} freed;

void guarded_init(void)
{
        uint64_t letters = 0;

        /* By name only: with a mapping each, programs of many large blocks would run out of them. */
        large_guarded = options_for_cache(GUARDED_NAME, OPTION_DEBUG, &letters) > OPTION_FOR_ALL &&
                        letters & DEBUG_RED_ZONE;
}

size_t guarded_behind(void)
{
        return large_guarded ? system_page_bytes() : 0;
}

bool guarded_close_behind(void *start, size_t bytes)
{
        if (!large_guarded || system_retire((char *)start + bytes, guarded_behind()))
                return true;
        system_unmap(start, bytes + guarded_behind());
        return false;
}

void guarded_note_locked(struct huge_block *block, size_t request)
{
        debug_check(lock_is_held(&huge_lock));
        if (!large_guarded)
                return;
        block->request = request;
        memset((char *)block->start + request, RED, block->bytes - request);
}

void guarded_check_locked(const struct huge_block *block)
{
        const uint8_t *end = (const uint8_t *)block->start + block->bytes;
        const uint8_t *fault = (const uint8_t *)block->start + block->request;

        debug_check(lock_is_held(&huge_lock));
        if (!block->request)
                return;
        while (fault < end && *fault == RED)
                fault++;
        if (fault == end)
                return;
        if (options.debug_abort)
                message_fatal("BUG large block %p of %zu bytes: [Right Redzone overwritten] at %p. "
                              "First byte 0x%x instead of 0x%x",
                              (void *)block->start, block->request, (const void *)fault, *fault,
                              RED);
        message("BUG large block %p of %zu bytes: [Right Redzone overwritten] at %p. First byte "
                "0x%x instead of 0x%x",
                (void *)block->start, block->request, (const void *)fault, *fault, RED);
}

void *guarded_close_locked(void *start, size_t *bytes)
{
        void *before = freed.start;
        size_t bytes_before = freed.bytes;

        debug_check(lock_is_held(&huge_lock));
        system_retire(start, *bytes);
        freed.start = start;
        freed.bytes = *bytes;
        *bytes = bytes_before;
        return before;
}

static void check_block(const struct huge_block *block)
{
        guarded_check_locked(block);
}

void guarded_check_all(void)
{
        if (!large_guarded)
                return;
        lock_take(&huge_lock);
        huge_table_each_locked(check_block);
        lock_drop(&huge_lock);
}
