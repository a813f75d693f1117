/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * The mappings that a debugger's dump of the process would have: all mappings without the flag
 * against dumps. Of a growing heap they hold the used part, and little of the reservation. At last
 * the process may have no more mappings; there the dump may be larger.
 */
#define _GNU_SOURCE
#include "check.h"

#include <stdbool.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>

/*
 * Mappings in KiB: accessible mappings that a dump would miss, and inaccessible mappings that it
 * would have.
 */
struct wrong {
        unsigned long missing;
        unsigned long useless;
};

static struct wrong read_mappings(void)
{
        FILE *file = fopen("/proc/self/smaps", "r");
        struct wrong wrong = {0};
        unsigned long kib = 0;
        bool accessible = false;
        bool private_memory = false;
        char line[512];

        check(file);
        while (fgets(line, sizeof(line), file)) {
                unsigned long start, end, inode;
                char access[5];

                if (sscanf(line, "%lx-%lx %4s %*s %*s %lu", &start, &end, access, &inode) == 4) {
                        accessible = access[0] == 'r';
                        private_memory = access[3] == 'p' && inode == 0 && !strchr(line, '[');
                        kib = (end - start) >> 10;
                } else if (strncmp(line, "VmFlags:", 8) == 0 && private_memory) {
                        bool dumped = !strstr(line, " dd");

                        wrong.missing += accessible && !dumped ? kib : 0;
                        wrong.useless += !accessible && dumped ? kib : 0;
                }
        }
        fclose(file);
        return wrong;
}

enum { BLOCKS = 4096, BLOCK_BYTES = 20000, LARGE_BYTES = 24 << 20 };
static void *blocks[3 * BLOCKS];
static unsigned int used;

/* By some 100 MiB. */
static void grow_heap(void)
{
        for (int i = 0; i < BLOCKS; i++) {
                blocks[used] = malloc((size_t)(i % 2 ? BLOCK_BYTES : 24));
                check(blocks[used]);
                memset(blocks[used++], 1, 24);
        }
        blocks[used] = malloc(LARGE_BYTES);
        check(blocks[used++]);
}

/* Pages of a mapping get other rights by turns, each of which makes two mappings more. */
static void use_up_mappings(void)
{
        const size_t page = (size_t)sysconf(_SC_PAGESIZE);
        const size_t bytes = 200000 * page;
        char *memory =
                mmap(NULL, bytes, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

        check(memory != MAP_FAILED);
        for (size_t at = page; at < bytes; at += 2 * page)
                if (mprotect(memory + at, page, PROT_READ | PROT_WRITE))
                        return;
        puts("a process may have more mappings here than are worth a test");
        exit(77);
}

/* A child lowers its limit, takes memory that is not to be dumped, and is about to enter a sandbox. */
static void run_child_with_secret(void)
{
        const struct rlimit limit = {1 << 30, 1 << 30};
        const size_t bytes = 100 << 20;
        struct wrong before;
        char *secret;

        check(setrlimit(RLIMIT_AS, &limit) == 0);
        before = read_mappings();
        secret = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        check(secret != MAP_FAILED);
        check(madvise(secret, bytes, MADV_DONTDUMP) == 0);
        check(read_mappings().missing == before.missing + (bytes >> 10));
        check(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
        check(read_mappings().missing == before.missing + (bytes >> 10));
}

static void keep_secret(void)
{
        if (!is_forked_child())
                return;
        grow_heap();
        run_child_with_secret();
        _exit(0);
}

int main(void)
{
        struct wrong before;
        struct wrong wrong;

        keep_secret();
        grow_heap();
        wrong = read_mappings();
        check(wrong.missing == 0);
        /* Gaps that libc leaves between the parts of its libraries. */
        check(wrong.useless < 64 << 10);
        before = wrong;
        grow_heap();
        wrong = read_mappings();
        check(wrong.missing == 0);
        check(wrong.useless <= before.useless + 1024);
        use_up_mappings();
        grow_heap();
        check(read_mappings().missing == 0);
        puts("ok");
        return 0;
}
