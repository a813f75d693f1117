/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Takes memory until none is left, several sizes in turn: malloc returns NULL with ENOMEM, blocks
 * handed out stay intact, and after all are freed a block of the first size succeeds again. Usage:
 *
 *   exhaust none|data|space|call MIB
 *
 * `none`: limits were set by who started us; no more than MIB are taken in any case. `data` and
 * `space` lower RLIMIT_DATA or RLIMIT_AS to MIB first, when the heap already exists; `call`
 * RLIMIT_AS by a system call, which the library does not see.
 */
#include <sys/resource.h>
#include <sys/syscall.h>

#include "check.h"

struct block {
        struct block *next;
        size_t bytes;
};

static struct block *take_all(size_t bytes, size_t most_bytes)
{
        struct block *list = NULL;

        for (size_t taken = 0; taken < most_bytes; taken += bytes) {
                struct block *block;

                errno = 0;
                block = malloc(bytes);
                if (!block) {
                        check(errno == ENOMEM);
                        break;
                }
                block->bytes = bytes;
                block->next = list;
                ((unsigned char *)block)[bytes - 1] = 0x42;
                list = block;
        }
        return list;
}

/* How many blocks there were. */
static size_t free_all(struct block *list, size_t bytes)
{
        size_t count = 0;

        while (list) {
                struct block *next = list->next;

                check(list->bytes == bytes);
                check(bytes == sizeof(*list) || ((unsigned char *)list)[bytes - 1] == 0x42);
                free(list);
                list = next;
                count++;
        }
        return count;
}

static void lower(const char *what, size_t bytes)
{
        struct rlimit limit = {bytes, bytes};

        if (strcmp(what, "data") == 0)
                check(setrlimit(RLIMIT_DATA, &limit) == 0);
        else if (strcmp(what, "space") == 0)
                check(setrlimit(RLIMIT_AS, &limit) == 0);
        else if (strcmp(what, "call") == 0)
                check(syscall(SYS_prlimit64, 0, RLIMIT_AS, &limit, NULL) == 0);
        else
                check(strcmp(what, "none") == 0);
}

/* Other calls when nothing is left: NULL and ENOMEM too, and the old block survives realloc. */
static void check_others(void)
{
        unsigned char *small = malloc(40);
        void *aligned_block = NULL;

        if (!small)
                return;
        fill(small, 40, 9);
        errno = 0;
        check(realloc(small, (size_t)1 << 46) == NULL && errno == ENOMEM);
        check(intact(small, 40, 9));
        errno = 0;
        check(opaque(calloc(1u << 23, 1u << 23)) == NULL && errno == ENOMEM);
        check(posix_memalign(&aligned_block, 1u << 12, (size_t)1 << 46) == ENOMEM);
        free(small);
}

int main(int argc, char **argv)
{
        static const size_t sizes[] = {32, 200, 1000, 5000, 70000, 1 << 20, 48 << 20, 32};
        size_t most_bytes;

        check(argc == 3);
        watchdog(240);
        first_victim();
        most_bytes = (size_t)atol(argv[2]) << 20;
        free(opaque(malloc(1)));
        lower(argv[1], most_bytes);
        for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
                struct block *all = take_all(sizes[i], most_bytes);
                size_t count;

                check_others();
                count = free_all(all, sizes[i]);
                printf("%zu bytes: %zu MiB\n", sizes[i], count * sizes[i] >> 20);
        }
        puts("ok");
        return 0;
}
