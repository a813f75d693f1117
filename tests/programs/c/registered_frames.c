/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Registers frames as compilers of code in memory do. The unwinder takes memory for a sorted table
 * at the first question, and frees it when the frames leave, both under its lock. An allocator that
 * walks the stack there with this unwinder waits for ever.
 */
#include <execinfo.h>

#include "check.h"

#define FUNCTIONS 2000
#define ROUNDS 20

extern void __register_frame(void *frames);
extern void __deregister_frame(void *frames);

static char code[FUNCTIONS * 16];

/* As in .eh_frame; the pointers are absolute. */
struct common {
        uint32_t length;
        uint32_t zero;
        uint8_t version;
        char augmentation;
        uint8_t code_step;
        uint8_t data_step; /* -8 */
        uint8_t return_column;
        uint8_t nothing[3];
} __attribute__((packed));

struct function {
        uint32_t length;
        uint32_t to_common; /* bytes back from here */
        uint64_t address;
        uint64_t bytes;
} __attribute__((packed));

struct frames {
        struct common common;
        struct function functions[FUNCTIONS];
        uint32_t end;
} __attribute__((packed));

static struct frames frames = {
        .common = {.length = sizeof(struct common) - 4,
                   .version = 1,
                   .code_step = 1,
                   .data_step = 0x78,
                   .return_column = 16},
};

int main(void)
{
        void *found[8];

        watchdog(30);
        for (uint32_t i = 0; i < FUNCTIONS; i++) {
                struct function *function = &frames.functions[i];

                function->length = sizeof(*function) - 4;
                function->to_common = (uint32_t)((char *)&function->to_common - (char *)&frames);
                function->address = (uintptr_t)&code[(size_t)i * 16];
                function->bytes = 16;
        }
        for (int round = 0; round < ROUNDS; round++) {
                __register_frame(&frames);
                check(backtrace(found, 8) > 1);
                __deregister_frame(&frames);
        }
        puts("ok");
        return 0;
}
