/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * A program that shows the names of a Python interpreter, and has anything in place of its
 * structures: pointers to nowhere, rings, texts without an end. Its samples must not end it.
 *
 *   interpreter VERSION ROUNDS    VERSION: Py_Version, in hexadecimal
 *
 * Prints "end", and waits until its standard input ends.
 */
#define _GNU_SOURCE
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { WORDS = 1 << 11, PAGE = 4096 };

unsigned long Py_Version;
char PyCode_Type[8];
/* As 3.13 begins, with its offsets at the places that the library reads. */
uint64_t _PyRuntime[128];
void *PyGILState_GetThisThreadState(void);

static uintptr_t *words; /* pages without access lie before and behind */
static void *state;

void *PyGILState_GetThisThreadState(void)
{
        return state;
}

static uint64_t seed = 1;

static uint32_t chance(uint32_t below)
{
        seed = seed * 6364136223846793005ull + 1442695040888963407ull;
        return (uint32_t)((seed >> 33) % below);
}

static uintptr_t any_word(void)
{
        switch (chance(16)) {
        case 0:
                return 0;
        case 1:
                return chance(1 << 16);
        case 2:
                return (uintptr_t)words + WORDS * sizeof(*words) - chance(64);
        case 3:
                return (uintptr_t)1 << chance(64);
        case 4:
                return ~(uintptr_t)chance(1 << 16);
        case 5:
                return (uintptr_t)words - chance(64);
        case 6:
        case 7:
                return (uintptr_t)PyCode_Type;
        case 8:
                /* A text in ASCII, or an odd one, and a short length. */
                return chance(2) ? 0x64 : chance(256);
        case 9:
                return chance(300);
        default:
                return (uintptr_t)&words[chance(WORDS)];
        }
}

static void put_offsets(void)
{
        static const uint16_t offsets[][2] = {{184, 72}, {232, 8},   {240, 0},   {248, 56},
                                              {264, 70}, {280, 112}, {296, 128}, {304, 136},
                                              {312, 68}, {344, 200}, {560, 40}};

        memcpy(_PyRuntime, "xdebugpy", 8);
        _PyRuntime[1] = 0x030d00f0;
        for (size_t i = 0; i < sizeof(offsets) / sizeof(*offsets); i++)
                _PyRuntime[offsets[i][0] / 8] = offsets[i][1];
}

static void put(uintptr_t *object, size_t offset, uintptr_t value)
{
        object[offset / sizeof(*object)] = value;
}

/*
 * Frames with functions as in the interpreter: a state, then frames of 32 words, each followed by
 * its code, two texts and a table of lines.
 */
static void put_structures(void)
{
        bool is_3_11 = Py_Version >> 16 == 0x030b;
        bool is_3_13 = Py_Version >> 16 == 0x030d;
        uintptr_t *c_frame = words + 16;

        put(words, 56, (uintptr_t)c_frame);
        put(c_frame, is_3_11 ? 8 : 0, (uintptr_t)(words + 32));
        if (is_3_13)
                put(words, 72, (uintptr_t)(words + 32));
        state = words;
        for (size_t at = 32; at + 160 < WORDS; at += 160) {
                uintptr_t *frame = words + at, *code = frame + 32;
                uintptr_t *name = code + 32, *file = name + 32, *lines = file + 32;

                put(frame, is_3_11 ? 32 : 0, (uintptr_t)code);
                put(frame, is_3_11 ? 48 : 8, (uintptr_t)(frame + 160));
                put(frame, 56, (uintptr_t)code + 190 + chance(60));
                put(frame, 64, (uintptr_t)chance(4) << (is_3_11 ? 32 : 48));
                put(code, 8, (uintptr_t)PyCode_Type);
                put(code, 112, (uintptr_t)file);
                put(code, 128, (uintptr_t)name);
                put(code, 136, (uintptr_t)lines);
                put(code, is_3_11 ? 72 : 64, (uintptr_t)chance(900) << (is_3_11 ? 0 : 32));
                for (uintptr_t *text = name; text <= file; text += 32) {
                        put(text, 16, 1 + chance(150));
                        put(text, 32, chance(8) ? 0x60 | 1 << 2 : chance(256));
                        memset(text + 6, 'a' + (int)chance(26), 24);
                }
                put(lines, 16, chance(100));
                for (unsigned int byte = 32; byte < 160; byte++)
                        ((unsigned char *)lines)[byte] = (unsigned char)(0x80 | chance(256));
        }
}

int main(int argc, char **argv)
{
        long rounds = argc > 2 ? strtol(argv[2], NULL, 10) : 0;
        char *pages;

        if (rounds <= 0) {
                fprintf(stderr, "usage: interpreter VERSION ROUNDS\n");
                return 2;
        }
        Py_Version = strtoul(argv[1], NULL, 16);
        put_offsets();
        pages = mmap(NULL, WORDS * sizeof(*words) + 2 * PAGE, PROT_NONE,
                     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (pages == MAP_FAILED ||
            mprotect(pages + PAGE, WORDS * sizeof(*words), PROT_READ | PROT_WRITE))
                return 1;
        words = (uintptr_t *)(void *)(pages + PAGE);
        while (rounds--) {
                void *block;

                for (unsigned int i = 0; i < WORDS; i++)
                        words[i] = any_word();
                put_structures();
                /* None to very many are damaged. */
                for (unsigned int left = chance(2) << chance(11); left; left--)
                        words[chance(2) ? chance(WORDS) : chance(192)] = any_word();
                if (!chance(8))
                        state = chance(2) ? (void *)&words[chance(WORDS)] : (void *)any_word();
                block = malloc(100000);
                __asm__ volatile("" : : "r"(block) : "memory");
                free(block);
        }
        printf("end\n");
        fflush(stdout);
        while (getchar() != EOF)
                ;
        return 0;
}
