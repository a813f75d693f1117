/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Option protect=hardened (engines/hardened/hardened.h). Each case that must end the process runs in a child, and each
 * case names the invariant that it holds to account.
 */
#define _GNU_SOURCE
#include "child.h"
#include "resident.h"
#include "skip.h"
#include "steps.h"

#include "api/owner.h"
#include "engines/hardened/large.h"
#include "engines/hardened/often.h"
#include "lang/bits.h"
#include "machine/system.h"
#include "profile/guard.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <pthread.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

void free_sized(void *block, size_t size);
void free_aligned_sized(void *block, size_t align, size_t size);

enum { MANY = 3000, LARGE = 300000 };

static const char *const options_used = "protect=hardened";
static const char *const options_of_mappings = "protect=hardened,slots=locked";
static volatile char *blocks[MANY];

static char *take(size_t size)
{
        char *block = malloc(size);

        check(block != NULL);
        return hide_address(block);
}

/* Frees by an address that the compiler does not follow. */
static void drop(void *block)
{
        free(hide_address(block));
}

static struct hardened_place place_of(const void *block)
{
        check(hardened_contains(block));
        return hardened_place_of(block);
}

/* The first record of the block's chunk. */
static const struct slab_record *records_of_chunk_of(const void *block)
{
        size_t distance = (uintptr_t)block - hardened.base;

        return (const void *)records_of_chunk(hardened.chunks[distance >> hardened.chunk_shift]);
}

/* As on a system before Linux 6.13. */
static void without_guards(void)
{
        drop(take(1));
        check(hardened_change(true));
        hardened.has_guards = false;
        check(hardened_change(false));
}

/* Enough further blocks to drive one out of the quarantine. */
static void churn(size_t size)
{
        for (unsigned int i = 0; i < 20 * HARDENED_WAITING_MAX; i++)
                drop(take(size));
}

/* ---- wrong frees (HARD-3) ---- */

static void child_twice(void)
{
        char *block = take(50);

        drop(block);
        drop(block);
}

/* Other blocks of the size have been handed out and freed since. */
static void child_twice_later(void)
{
        char *block = take(50);

        drop(block);
        churn(50);
        drop(block);
}

/* The program has written where an allocator may keep a link or a mark. */
static void child_twice_written(void)
{
        char *block = take(50);

        drop(block);
        memset(block, 0x41, 50);
        drop(block);
}

/* The program has put the canary back, so only the state tells. */
static void child_twice_forged(void)
{
        char *block = take(40);
        struct slab_record *record = place_of(block).record;

        drop(block);
        memcpy(block + 40, &record->canary, CANARY_BYTES);
        drop(block);
}

static void child_inside(void)
{
        drop(take(100) + 16);
}

static void child_misaligned(void)
{
        drop(take(100) + 1);
}

static void child_fresh(void)
{
        char *block = take(100);
        struct hardened_place place = place_of(block);

        for (uint32_t i = 0; i < place.class->objects; i++)
                if (place.record->states[i] == OBJECT_FRESH)
                        drop(place.record->start + (size_t)i * place.class->size);
}

static void child_fresh_forged(void)
{
        struct hardened_place place = place_of(take(40));

        for (uint32_t i = 0; i < place.class->objects; i++)
                if (place.record->states[i] == OBJECT_FRESH) {
                        char *object = place.record->start + (size_t)i * place.class->size;

                        memcpy(object + 40, &place.record->canary, CANARY_BYTES);
                        drop(object);
                }
}

static void child_guard(void)
{
        struct hardened_place place = place_of(take(100));

        drop(place.record->start + place.class->slab_bytes);
}

static void child_stack(void)
{
        char block[64] __attribute__((aligned(16))) = {0};

        drop(block);
}

static void child_untouched(void)
{
        drop(take(100));
        drop((char *)hardened.base + hardened.bytes - 4096);
}

static void child_large_inside(void)
{
        drop(take(LARGE) + 4096);
}

static void child_large_twice(void)
{
        char *block = take(LARGE);

        drop(block);
        drop(block);
}

static void child_realloc_freed(void)
{
        char *block = take(100);

        drop(block);
        block = realloc(hide_address(block), 5000);
        check(block != NULL);
}

static void child_usable_freed(void)
{
        char *block = take(100);

        drop(block);
        check_equal(malloc_usable_size(hide_address(block)), 0);
}

static void child_usable_inside(void)
{
        check_equal(malloc_usable_size(take(100) + 16), 0);
}

static void child_usable_stack(void)
{
        char block[64] __attribute__((aligned(16))) = {0};

        check_equal(malloc_usable_size(hide_address(block)), 0);
}

static void child_usable_large_freed(void)
{
        char *block = take(LARGE);

        drop(block);
        check_equal(malloc_usable_size(hide_address(block)), 0);
}

static void child_ksize_freed(void)
{
        void *block = kmalloc(100, GFP_KERNEL);

        kfree(block);
        check_equal(ksize(hide_address(block)), 0);
}

static void child_sensitive_twice(void)
{
        void *block = kmalloc(100, GFP_KERNEL);

        kfree_sensitive(block);
        kfree_sensitive(hide_address(block));
}

/* kmem_cache_free says so, and frees the block, as it does with another cache's object. */
static void child_of_no_cache(void)
{
        struct kmem_cache *cache = kmem_cache_create("named", 40, 0, 0, NULL);

        kmem_cache_free(cache, take(40));
        kmem_cache_free(cache, take(LARGE));
}

static void wrong_frees(void **state)
{
        static const char *const double_free = "free already (double free)";
        static const char *const start = "not the start of a block of this heap";

        child_aborts("twice", options_used, double_free);
        child_aborts("twice_later", options_used, double_free);
        child_aborts("twice_written", options_used, double_free);
        child_aborts("twice_forged", options_used, double_free);
        child_aborts("inside", options_used, "inside an object, not at its start");
        child_aborts("misaligned", options_used, "inside an object, not at its start");
        child_aborts("fresh", options_used, "it was never handed out");
        child_aborts("fresh_forged", options_used, "it was never handed out");
        child_aborts("guard", options_used, start);
        child_aborts("stack", options_used, start);
        child_aborts("untouched", options_used, start);
        child_aborts("large_inside", options_used, start);
        child_aborts("large_twice", options_used, double_free);
        child_aborts("realloc_freed", options_used, "realloc");
        child_aborts("usable_freed", options_used, "kmem: malloc_usable_size(0x");
        child_aborts("usable_freed", options_used, double_free);
        child_aborts("usable_inside", options_used, "inside an object, not at its start");
        child_aborts("usable_stack", options_used, "not the start of a block in use");
        child_aborts("usable_large_freed", options_used, "not the start of a block in use");
        child_aborts("ksize_freed", options_used, "kmem: ksize(0x");
        child_aborts("sensitive_twice", options_used, "kmem: kfree_sensitive(0x");
        child_prints("of_no_cache", options_used,
                     "wrong slab cache: the object is from malloc or kmalloc");
}

/* ---- forms and sizes ---- */

static void child_new_free(void)
{
        drop(block_alloc(CLASS_NEW, 40, false, NULL));
}

static void child_malloc_delete(void)
{
        block_free_at(take(40), "operator delete", NULL);
}

static void child_large_new_free(void)
{
        drop(block_alloc(CLASS_NEW, LARGE, false, NULL));
}

static void child_new_realloc(void)
{
        char *block = realloc(block_alloc(CLASS_NEW, 40, false, NULL), 400);

        check(block != NULL);
}

static void child_wrong_size(void)
{
        free_sized(hide_address(take(40)), 100);
}

static void child_wrong_delete_size(void)
{
        block_free_sized(block_alloc(CLASS_NEW, 40, false, NULL), 100, "operator delete", NULL);
}

static void child_wrong_align(void)
{
        free_aligned_sized(hide_address(aligned_alloc(256, 256)), 4096, 256);
}

static void child_large_wrong_size(void)
{
        free_sized(hide_address(take(LARGE)), LARGE + 1);
}

static void child_right_forms(void)
{
        drop(take(1));
        block_free_at(block_alloc(CLASS_NEW, 40, false, NULL), "operator delete", NULL);
        block_free_sized(block_alloc(CLASS_NEW, 40, false, NULL), 40, "operator delete", NULL);
        block_free_sized(block_alloc(CLASS_NEW, LARGE, false, NULL), LARGE, "operator delete",
                         NULL);
        free_sized(take(40), 40);
        free_sized(take(LARGE), LARGE);
        for (size_t align = 16; align <= 2 * PAGE_SIZE; align *= 2)
                for (size_t size = align; size <= 2 * LARGE; size *= 2)
                        free_aligned_sized(hide_address(aligned_alloc(align, size)), align, size);
        free_sized(realloc(take(400), 200), 200);
        free_sized(realloc(take(LARGE), LARGE - 100000), LARGE - 100000);
        kfree(take(40));
        drop(kmalloc(40, GFP_KERNEL));
}

/* libc stands for a library with the C++ runtime inside: it takes no operator from elsewhere. */
static void child_inner_runtime(void)
{
        const void *site = dlsym(RTLD_DEFAULT, "qsort");

        check(site != NULL);
        block_free_at(block_alloc(CLASS_NEW, 40, false, NULL), "free", site);
        drop(block_alloc(CLASS_NEW, 40, false, NULL));
        block_free_at(take(40), "operator delete", NULL);
}

static void child_large_inner_runtime(void)
{
        block_free_at(take(LARGE), "operator delete", dlsym(RTLD_DEFAULT, "qsort"));
        drop(block_alloc(CLASS_NEW, LARGE, false, NULL));
}

static void child_new_free_here(void)
{
        block_free_at(block_alloc(CLASS_NEW, 40, false, NULL), "free", child_new_free_here);
}

static void forms_and_sizes(void **state)
{
        child_passes("inner_runtime", options_used);
        child_passes("large_inner_runtime", options_used);
        child_aborts("new_free_here", options_used, "from operator new");
        child_aborts("new_free", options_used, "from operator new");
        child_aborts("malloc_delete", options_used, "not from operator new");
        child_aborts("large_new_free", options_used, "from operator new");
        child_aborts("new_realloc", options_used, "from operator new, and cannot be resized");
        child_aborts("wrong_size", options_used, "freed with the size of another class");
        child_aborts("wrong_delete_size", options_used, "freed with the size of another class");
        child_aborts("wrong_align", options_used, "freed with the size of another class");
        child_aborts("large_wrong_size", options_used, "freed with another size");
        child_passes("right_forms", options_used);
}

/* ---- writes (HARD-4, HARD-5, LARGE-1) ---- */

static void write_behind(volatile char *block, size_t at)
{
        block[at] = (char)(block[at] ^ 0x55);
}

static void child_behind_freed(void)
{
        char *block = take(40);

        write_behind(block, malloc_usable_size(block));
        drop(block);
}

/* The zero at the end of a string that is a byte too long. */
static void child_behind_by_zero(void)
{
        char *block = take(40);

        block[malloc_usable_size(block)] = 0;
        drop(block);
}

static void child_behind_resized(void)
{
        char *block = take(40);

        write_behind(block, malloc_usable_size(block) + 7);
        block = realloc(hide_address(block), 39); /* it stays where it is */
        check(block != NULL);
        /* Or the sweep would find it. */
        write_behind(block, malloc_usable_size(block) + 7);
}

static void child_behind_at_exit(void)
{
        char *block = take(40);

        write_behind(block, malloc_usable_size(block));
        exit(0);
}

static void child_behind_large(void)
{
        char *block = take(LARGE);

        write_behind(block, LARGE);
        drop(block);
}

static void child_behind_large_at_exit(void)
{
        char *block = take(LARGE);

        write_behind(block, LARGE + 1);
        exit(0);
}

static void child_after_free(void)
{
        char *block = take(40);

        drop(block);
        write_behind(block, 7);
        churn(40);
}

/* Where the canary was. */
static void child_after_free_end(void)
{
        char *block = take(40);

        drop(block);
        write_behind(block, 47);
        churn(40);
}

static void child_after_free_page(void)
{
        char *block = take(8000);

        drop(block);
        write_behind(block, 5000);
        churn(8000);
}

/* An object that was never handed out, where its canary will be. */
static void child_written_fresh(void)
{
        struct hardened_place place = place_of(take(40));

        for (uint32_t i = 0; i < place.class->objects; i++)
                if (place.record->states[i] == OBJECT_FRESH)
                        write_behind(place.record->start + (size_t)i * place.class->size, 44);
        churn(40);
}

static void child_after_free_at_exit(void)
{
        char *block = take(40);

        drop(block);
        write_behind(block, 0);
        exit(0);
}

/* An object that was driven from the first part of the quarantine to the second. */
static void child_after_free_aged_at_exit(void)
{
        struct hardened_place place;
        struct pool *pool;
        char *block = NULL;

        churn(1000);
        place = place_of(take(1000));
        pool = pool_of(place.record->arena, place.record->number);
        for (uint32_t i = 0; i < place.class->aged; i++)
                if (pool->aged[i])
                        block = wait_record(pool->aged[i])->start +
                                (size_t)wait_index(pool->aged[i]) * place.class->size;
        check(block != NULL);
        write_behind(block, 0);
        exit(0);
}

/* Slabs are drawn, so a slab in use may lie behind places that no slab had yet. */
static void child_behind_at_exit_of_far_slab(void)
{
        for (unsigned int i = 0; i < MANY; i++) {
                char *block = take(1000);
                struct hardened_place place = place_of(block);
                const struct slab_record *before =
                        (const void *)((const char *)place.record - place.class->record_bytes);

                if (place.record != records_of_chunk_of(block) && !before->start) {
                        write_behind(block, malloc_usable_size(block));
                        exit(0);
                }
        }
        check(false && "a slab lies behind an unused place");
}

static char *replaced;
static size_t replaced_bytes;

static void replace(void)
{
        drop(replaced);
        replaced = take(replaced_bytes);
}

static void sweep_in_child(void)
{
        pid_t pid = fork();

        if (pid == 0) {
                hardened_sweep();
                _exit(0);
        }
        child_wait(pid);
}

/* HARD-9: wherever malloc and free are interrupted, by their frequent cases and by others. */
static void child_interrupted(void)
{
        static const size_t sizes[] = {40, 300};

        for (size_t i = 0; i < array_size(sizes); i++) {
                unsigned int count = 0;

                replaced_bytes = sizes[i];
                replaced = take(replaced_bytes);
                while (run_with_act_at(count, replace, sweep_in_child))
                        count++;
                check(count > 100); /* that many instructions it takes at least */
        }
}

static void interrupted_calls(void **state)
{
        skip_without_steps();
        child_passes("interrupted", options_used);
}

static void writes(void **state)
{
        static const char *const behind = "written to behind its end";
        static const char *const after = "it was written to after it was freed";

        child_aborts("behind_freed", options_used, behind);
        child_aborts("behind_by_zero", options_used, behind);
        child_aborts("behind_resized", options_used, behind);
        child_aborts("behind_at_exit", options_used, behind);
        child_aborts("behind_at_exit_of_far_slab", options_used, behind);
        child_aborts("behind_large", options_used, behind);
        child_aborts("behind_large_at_exit", options_used, behind);
        child_aborts("behind_grown", options_used, behind);
        child_aborts("after_free", options_used, after);
        child_aborts("after_free_end", options_used, after);
        child_aborts("after_free_page", options_used, after);
        child_aborts("written_fresh", options_used, after);
        child_aborts("after_free_at_exit", options_used, after);
        child_aborts("after_free_aged_at_exit", options_used, after);
}

/* ---- memory that traps ---- */

static void trapped(int signal)
{
        (void)signal;
        _exit(3);
}

/* Addresses beside blocks too, of which compilers warn. */
static char read_byte(const volatile char *address)
{
        return *hide_address(address);
}

/* In a child of fork, so that many addresses can be tried. */
static bool traps(const volatile char *address)
{
        pid_t child = fork();
        int status;

        if (child == 0) {
                signal(SIGSEGV, trapped);
                signal(SIGBUS, trapped);
                read_byte(address);
                _exit(0);
        }
        check(child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status));
        return WEXITSTATUS(status) == 3;
}

static bool traps_on_write(volatile char *address)
{
        pid_t child = fork();
        int status;

        if (child == 0) {
                signal(SIGSEGV, trapped);
                *address = 1;
                _exit(0);
        }
        check(child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status));
        return WEXITSTATUS(status) == 3;
}

/* HARD-2 */
static void check_guards(void)
{
        static const size_t sizes[] = {10, 100, 1000, 10000, 100000};

        for (size_t i = 0; i < array_size(sizes); i++)
                for (unsigned int more = 0; more < 20; more++) {
                        struct hardened_place place = place_of(take(sizes[i]));

                        check(traps(place.record->start - 1));
                        check(traps(place.record->start + place.class->slab_bytes));
                        check(!traps(place.record->start + place.class->slab_bytes - 1));
                }
}

static void child_guards(void)
{
        check_guards();
}

static void child_guards_of_mappings(void)
{
        without_guards();
        check_guards();
}

/* Compilers warn of a block of no bytes that is to be a char, and of accesses to it. */
static void *nothing(void)
{
        return hide_address(malloc(0));
}

/* HARD-7 */
static void child_nothing(void)
{
        char *first = nothing();
        char *second = nothing();
        char *resized;

        check(first && second && first != second);
        check_equal(malloc_usable_size(first), 0);
        check(traps(first) && traps_on_write(second));
        resized = realloc(hide_address(first), 10);
        check(resized && malloc_usable_size(resized) >= 10);
        drop(resized);
        errno = 0;
        check(!realloc(second, (size_t)1 << 62));
        check_equal(errno, ENOMEM);
        drop(second);
        for (unsigned int i = 0; i < MANY; i++)
                blocks[i] = nothing();
        for (unsigned int i = 0; i < MANY; i++)
                drop((void *)blocks[i]);
}

static void child_nothing_twice(void)
{
        char *block = nothing();

        drop(block);
        drop(block);
}

static void child_large(void)
{
        char *block = take(LARGE);

        check(traps(block - 1));
        check(traps(block + round_up(LARGE, system_page_bytes())));
        check(!traps(block) && !traps(block + LARGE - 1));
        memset(block, 1, LARGE);
        drop(block);
        check(traps(block) && traps_on_write(block + LARGE - 1));
}

static size_t pages_mapped(void)
{
        FILE *file = fopen("/proc/self/statm", "r");
        size_t pages = 0;

        check(file && fscanf(file, "%zu", &pages) == 1);
        fclose(file);
        return pages;
}

/* Only guards are mapped beside a block of any alignment, not the addresses that were needed to find its place. */
static void child_large_aligned(void)
{
        size_t before = pages_mapped();

        for (unsigned int bits = 13; bits <= 34; bits++) {
                char *block = aligned_alloc((size_t)1 << bits, 100);

                check(block && (uintptr_t)block % ((size_t)1 << bits) == 0);
                check(traps(block - 1) && traps(block + system_page_bytes()) && !traps(block));
                drop(block);
        }
        check(pages_mapped() - before < 10000);
}

/* A block that has grown may grow where it is (LARGE-2): it reads as zero behind its old end, and traps behind its new. */
static void child_large_grows(void)
{
        size_t page = system_page_bytes();
        struct hardened_counts counts;
        unsigned int moves = 0;
        size_t size = LARGE;
        char *block = take(size);
        size_t closed;

        block[0] = 1;
        for (unsigned int i = 0; i < 400; i++) {
                char *old = block;
                size_t more = size + page - 100;

                block = realloc(hide_address(block), more);
                check(block && block[0] == 1);
                check_equal(malloc_usable_size(block), more);
                moves += block != old;
                for (size_t at = size; at < more; at++)
                        check_equal(block[at], 0);
                block[more - 1] = 1;
                check(traps(block - 1));
                check(traps(block + round_up(more, page)));
                /* The page there belongs to the block, so nobody else can map it. */
                check(mmap(block + round_up(more, page), page, PROT_READ,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0) == MAP_FAILED);
                block[more - 1] = 0;
                size = more;
        }
        check(moves < 10);
        hardened_count(&counts);
        closed = counts.closed_bytes;
        drop(block);
        hardened_count(&counts);
        /* Its room does not wait with it. */
        check(counts.closed_bytes - closed < size + 32 * page);
        check(traps(block) && traps(block + size - 1));
}

static void child_behind_grown(void)
{
        char *block = take(LARGE);

        for (size_t size = LARGE; size < LARGE + 10000; size += 1000)
                block = realloc(hide_address(block), size);
        write_behind(block, malloc_usable_size(block));
        drop(block);
}

/* A slab without objects whose memory went back. */
static void child_released(void)
{
        struct hardened_place place;

        for (unsigned int i = 0; i < MANY; i++)
                memset((char *)(blocks[i] = take(500)), 1, 500);
        place = place_of((char *)blocks[0]);
        for (unsigned int i = 0; i < MANY; i++)
                drop((void *)blocks[i]);
        malloc_trim(0);
        if (!hardened.has_guards) {
                printf("the system has no guards in mappings (before Linux 6.13)\n");
                exit(0);
        }
        for (unsigned int i = 0; i < MANY; i++) {
                place = place_of((char *)blocks[i]);
                if (place.record->place == SLAB_RELEASED) {
                        check(traps(blocks[i]));
                        break;
                }
                check(i < MANY - 1);
        }
        for (unsigned int i = 0; i < MANY; i++)
                memset((char *)(blocks[i] = take(500)), 1, 500);
}

static size_t resident_pages(const void *start, size_t bytes)
{
        size_t resident = resident_bytes(start, bytes);

        check(resident != SIZE_MAX);
        return resident / system_page_bytes();
}

/* Ends the process if the system gives no pages at once. */
static void need_populate(void)
{
        size_t bytes = 2 * system_page_bytes();
        void *own = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

        check(own != MAP_FAILED);
        system_populate(own, bytes);
        if (resident_pages(own, bytes) != 2) {
                printf("the system populates no memory (before Linux 5.14)\n");
                exit(0);
        }
}

/* Small objects come from all pages of their slab, which are there from the first object on; pages of others come by touch. */
static void child_populated(void)
{
        struct slab_record *record;
        uint32_t slab_bytes;

        need_populate();
        record = place_of(take(500)).record;
        slab_bytes = hardened.classes[record->number].slab_bytes;
        check(slab_bytes > system_page_bytes());
        check(resident_pages(record->start, slab_bytes) == slab_bytes / system_page_bytes());
        record = place_of(take(2 * system_page_bytes())).record;
        slab_bytes = hardened.classes[record->number].slab_bytes;
        check(resident_pages(record->start, slab_bytes) < slab_bytes / system_page_bytes());
}

/* Frees a block that is out and lies in a slab. */
static void free_in(struct slab_record *record, char **taken, unsigned int count)
{
        for (unsigned int i = 0; i < count; i++)
                if (taken[i] && place_of(taken[i]).record == record) {
                        drop(taken[i]);
                        taken[i] = NULL;
                        return;
                }
        check(false);
}

/* The second free in a row in a slab has the next ones' lines fetched, each after it more; another slab begins anew. */
static void child_fetched(void)
{
        static char *taken[1000];
        struct hardened_place first, last;
        const struct pool *pool;
        size_t bytes;

        for (unsigned int i = 0; i < 1000; i++)
                taken[i] = take(100);
        first = place_of(taken[100]);
        last = place_of(taken[900]);
        pool = pool_of(first.record->arena, first.record->number);
        bytes = first.class->slab_bytes;
        check(first.record != last.record && bytes % FETCHED_BYTES == 0);
        for (size_t done = 0; done < bytes + 2ul * FETCHED_BYTES; done += FETCHED_BYTES) {
                free_in(first.record, taken, 1000);
                check_equal(pool->fetched - first.record->start, min_of(done, bytes));
        }
        free_in(last.record, taken, 1000);
        check(pool->fetched == last.record->start);
        free_in(first.record, taken, 1000);
        check(pool->fetched == first.record->start);
}

static size_t pages_of_large(size_t size)
{
        char *block = take(size);
        size_t pages = resident_pages(block, round_up(size, system_page_bytes()));

        drop(block);
        return pages;
}

static void use_large(size_t size, bool filled)
{
        char *block = take(size);

        memset(block, 1, filled ? size : 1);
        block[size - 1] = 1;
        drop(block);
}

/* A large block has its pages from the start if those before it were filled; one that was not ends that. */
static void child_populated_large(void)
{
        size_t pages = round_up(LARGE, system_page_bytes()) / system_page_bytes();

        need_populate();
        for (unsigned int i = 0; i < 7; i++)
                use_large(LARGE, true);
        check_equal(pages_of_large(LARGE), 0);
        for (unsigned int i = 0; i < 8; i++)
                use_large(LARGE, true);
        check_equal(pages_of_large(LARGE), pages);
        for (unsigned int i = 0; i < 8; i++)
                use_large(LARGE, true);
        use_large(LARGE, false);
        check(pages_of_large(LARGE) <= 1);
}

/* Pages of a block that grows come with the call; those that it has stay as they are. */
static void child_populated_grown(void)
{
        size_t page = system_page_bytes();
        char *block = take(LARGE);

        need_populate();
        for (size_t size = LARGE; size < 2 * LARGE; size += 3 * page) {
                block = realloc(hide_address(block), size + 3 * page);
                check_equal(resident_pages(block + round_up(size, page), 3 * page), 3);
                check_equal(resident_pages(block, 8 * page), 0);
        }
}

/* A program may end the life of memory that it has closed by itself. */
static void child_closed_end(void)
{
        size_t page = system_page_bytes();

        for (unsigned int i = 0; i < 20; i++) {
                char *block = aligned_alloc(page, 64 * page);

                check(block);
                memset(block, 1, 63 * page);
                check(!mprotect(block + 63 * page, page, PROT_NONE));
                drop(block);
        }
}

enum { LOCKED_EACH = 5, OF_PAGE = 3000, ROUNDS = 4 };

/* All blocks are handed out, written to, freed, and their memory is given back; then anew. */
static void use_and_release(size_t size)
{
        for (unsigned int i = 0; i < MANY / 4; i++)
                memset((char *)(blocks[i] = take(size)), 1, size);
        for (unsigned int i = 0; i < MANY / 4; i++)
                drop((void *)blocks[i]);
        malloc_trim(0);
}

/*
 * The program locks some of its memory, as for secrets, and frees it locked. Pages of an empty slab that lie in front of
 * locked ones must not stay guarded.
 */
static void child_partly_locked(void)
{
        for (unsigned int i = 0; i < MANY / 4; i++) {
                blocks[i] = take(OF_PAGE);
                if (i % LOCKED_EACH == 0 && mlock((char *)blocks[i], OF_PAGE)) {
                        printf("the system lets no memory be locked\n");
                        exit(0);
                }
        }
        for (unsigned int i = 0; i < MANY / 4; i++)
                drop((void *)blocks[i]);
        malloc_trim(0);
        for (unsigned int round = 0; round < ROUNDS; round++)
                use_and_release(OF_PAGE);
}

/* A sandbox that kills the process for guards in mappings, as one does that lists the advice it allows. */
static void child_sandboxed(void)
{
        struct sock_filter filter[] = {
                BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
                BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_madvise, 0, 3),
                BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[2])),
                BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, MADV_HWPOISON, 0, 1),
                BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
                BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
        };
        struct sock_fprog program = {array_size(filter), filter};

        use_and_release(500);
        /* As the drop-in's prctl does, which this program does not call. */
        system_tell_sandbox();
        if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) ||
            prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program)) {
                printf("seccomp filters are refused\n");
                exit(0);
        }
        for (unsigned int round = 0; round < ROUNDS; round++) {
                use_and_release(500);
                use_and_release(OF_PAGE);
                drop(take(LARGE));
                drop(take(1 << 20));
        }
}

/* Without a child, in which the library opens and closes its table anew. */
static bool kernel_may_write(void *address)
{
        char byte = *(char *)address;
        int ends[2];

        check(pipe(ends) == 0 && write(ends[1], &byte, 1) == 1);
        return read(ends[0], address, 1) == 1;
}

static void child_tables(void)
{
        struct hardened_place place = place_of(take(10));

        if (system_page_bytes() <= sizeof(hardened))
                check(!kernel_may_write(&hardened));
        /* No access leads from the records to the objects, nor from the tables to the records. */
        check(traps(hardened.records - 1));
        check(traps((char *)hardened.pools - 1));
        check(traps((char *)hardened.chunks - 1));
        check((char *)place.record < (char *)hardened.base);
}

static void traps_where_it_should(void **state)
{
        child_passes("guards", options_used);
        child_passes("guards_of_mappings", options_of_mappings);
        child_passes("nothing", options_used);
        child_passes("large_aligned", options_used);
        child_aborts("nothing_twice", options_used, "free already (double free)");
        child_passes("partly_locked", options_used);
        child_passes("sandboxed", options_used);
        child_passes("large", options_used);
        child_passes("large_grows", options_used);
        child_passes("released", options_used);
        child_passes("fetched", options_used);
        child_passes("populated", options_used);
        child_passes("populated_large", options_used);
        child_passes("populated_grown", options_used);
        child_passes("closed_end", options_used);
        child_passes("tables", options_used);
}

/* ---- addresses (HARD-1, HARD-6) ---- */

static const size_t class_sizes_tried[] = {8,    24,   40,   100,   200,  500,
                                           1000, 2000, 5000, 20000, 90000};

/* The class of each page that blocks were ever on; pages are few. */
static struct {
        uintptr_t page;
        uint32_t number;
} pages[1 << 16];

static void note_page(uintptr_t page, uint32_t number)
{
        size_t i = (page * 0x9e3779b97f4a7c15u) >> 48;

        while (pages[i].page && pages[i].page != page)
                i = (i + 1) % array_size(pages);
        if (!pages[i].page) {
                pages[i].page = page;
                pages[i].number = number;
        }
        check_equal(pages[i].number, number);
}

static void child_own_addresses(void)
{
        uint64_t random = 1;

        for (unsigned int round = 0; round < 30; round++) {
                for (unsigned int i = 0; i < 1000; i++) {
                        size_t size = class_sizes_tried[random_step(&random) %
                                                        array_size(class_sizes_tried)];
                        char *block = take(size);
                        uint32_t number = place_of(block).record->number;

                        blocks[i] = block;
                        check_equal(number, hardened_class_for(size, 1));
                        note_page((uintptr_t)block >> 12, number);
                        note_page(((uintptr_t)block + size - 1) >> 12, number);
                }
                for (unsigned int i = 0; i < 1000; i++)
                        drop((void *)blocks[i]);
                malloc_trim(0);
        }
}

/* Freed blocks are not handed out again for a while, which is not the same each time. */
static void child_quarantine(void)
{
        unsigned int least = UINT32_MAX;
        unsigned int most = 0;
        struct hardened_counts counts;

        churn(40);
        for (unsigned int round = 0; round < 200; round++) {
                char *block = take(40);
                unsigned int between = 0;
                char *next;

                drop(block);
                do {
                        next = take(40);
                        drop(next);
                } while (next != block && ++between < 100000);
                least = min_of(least, between);
                most = max_of(most, between);
        }
        /* It was drawn, and then was older than the other half of the quarantine. */
        check(least >= HARDENED_WAITING_MAX);
        check(most > 2 * least);
        hardened_count(&counts);
        check(counts.waiting_bytes <= counts.waiting_bytes_max);
        check(counts.waiting_bytes_max <= (uint64_t)hardened.arenas << 22);
        check_equal(counts.waiting >= 2 * HARDENED_WAITING_MAX, 1);
}

/* Blocks that are handed out in turn seldom lie side by side, and each process has another order. */
static void child_order(void)
{
        unsigned int neighbours = 0;
        uint64_t sum = 0;

        for (unsigned int i = 0; i < MANY; i++) {
                blocks[i] = take(40);
                sum = sum * 31 + (((uintptr_t)blocks[i] - hardened.base) >> 4);
                neighbours += i && llabs(blocks[i] - blocks[i - 1]) == 48;
        }
        check(neighbours < MANY / 10);
        printf("order %lx\n", (unsigned long)sum);
        fflush(stdout);
}

/* A slab of which few blocks came back is left alone: what is drawn from few is no secret. */
static void child_few(void)
{
        enum { SIZE = 100, SLABS = 120 };
        uint32_t objects = hardened.classes[hardened_class_for(SIZE, 1)].objects;
        static char *freed[SLABS];
        unsigned int count = 0;
        struct slab_record *last = NULL;

        /* A slab is used up in front of the next one, as none comes back meanwhile. */
        for (uint32_t i = 0; i < (SLABS + 2) * objects; i++) {
                char *block = take(SIZE);
                struct slab_record *record = place_of(block).record;

                if (record != last && count < SLABS)
                        freed[count++] = block;
                last = record;
        }
        check_equal(count, SLABS);
        /* Blocks of a slab that is in use drive them out of the quarantine. */
        for (unsigned int i = 0; i < SLABS; i++)
                drop(freed[i]);
        churn(SIZE);
        for (unsigned int i = 0; i < 4 * objects; i++) {
                const char *block = take(SIZE);

                for (unsigned int at = 0; at < SLABS; at++)
                        check(block != freed[at]);
        }
}

/* The first two blocks of ChaCha8 for a key of zeroes; the second is computed beside the first. */
static void child_numbers(void)
{
        static const uint32_t key[RANDOM_KEY_WORDS];
        static const unsigned char expected[2][16] = {
                {0x3e, 0x00, 0xef, 0x2f, 0x89, 0x5f, 0x40, 0xd6, 0x7f, 0x5b, 0xb8, 0xe8, 0x1f, 0x09,
                 0xa5, 0xa1},
                {0xd2, 0xae, 0xfa, 0x0d, 0xea, 0xa5, 0xc1, 0x51, 0xbf, 0x0a, 0xdb, 0x6c, 0x01, 0xf2,
                 0xa5, 0xad}};
        struct random_stream stream = {0};

        stream_refill(&stream, key);
        check_equal(stream.left, RANDOM_DRAWS);
        for (unsigned int block = 0; block < RANDOM_BLOCKS; block++)
                check(memcmp(&stream.draws[block * 32], expected[block], sizeof(expected[block])) ==
                      0);
        check_equal(stream.block, RANDOM_BLOCKS);
}

static void child_large_order(void)
{
        unsigned int near = 0;

        for (unsigned int i = 0; i < 50; i++) {
                blocks[i] = take(LARGE);
                near += i && llabs(blocks[i] - blocks[i - 1]) < 64 * LARGE;
        }
        check(near < 5);
}

static void child_fork_order(void)
{
        int ends[2];
        char *of_child;
        unsigned int same = 0;
        char *theirs[256];

        drop(take(40));
        check(pipe(ends) == 0);
        if (fork() == 0) {
                for (unsigned int i = 0; i < 256; i++)
                        theirs[i] = take(40);
                check(write(ends[1], theirs, sizeof(theirs)) == sizeof(theirs));
                _exit(0);
        }
        check(read(ends[0], theirs, sizeof(theirs)) == sizeof(theirs));
        for (unsigned int i = 0; i < 256; i++) {
                of_child = theirs[i];
                same += of_child == take(40);
        }
        /* The numbers that were drawn ahead, and what is alike by chance. */
        check(same < RANDOM_DRAWS + 16);
}

static void addresses(void **state)
{
        static struct child_result first, second;

        child_passes("own_addresses", options_used);
        child_passes("quarantine", options_used);
        child_run("order", options_used, &first);
        child_run("order", options_used, &second);
        assert_int_equal(first.status, 0);
        assert_int_equal(second.status, 0);
        assert_string_not_equal(strstr(first.output, "order "), strstr(second.output, "order "));
        child_passes("few", options_used);
        child_passes("numbers", options_used);
        child_passes("large_order", options_used);
        child_passes("fork_order", options_used);
}

/* ---- contents, sizes and alignment ---- */

static void check_zero(const char *block, size_t bytes)
{
        for (size_t i = 0; i < bytes; i++)
                check_equal(block[i], 0);
}

/* HARD-4: what the program had in a block is gone when it is freed. */
static void child_zeroes(void)
{
        char *block = take(100);
        struct hardened_place place = place_of(block);

        memset(block, 0x41, 100);
        drop(block);
        check_zero(block, place.class->size);
        for (unsigned int i = 0; i < MANY; i++) {
                size_t size = class_sizes_tried[i % array_size(class_sizes_tried)];

                block = take(size);
                check_zero(block, size);
                memset(block, 0x41, malloc_usable_size(block));
                drop(block);
        }
}

static void child_sizes(void)
{
        for (size_t size = 1; size < 300000; size += size < 2000 ? 1 : 997) {
                char *block = take(size);

                check(malloc_usable_size(block) >= size);
                check_equal(malloc_usable_size(block), hardened_round(size, 1));
                check_equal((uintptr_t)block % 16, 0);
                memset(block, 0x41, malloc_usable_size(block));
                drop(block);
        }
        for (size_t align = 16; align <= (1 << 20); align *= 2)
                for (size_t size = 0; size < 20000; size += 77) {
                        void *block = memalign(align, size);

                        check(block && (uintptr_t)block % align == 0);
                        drop(block);
                }
}

static void child_resizes(void)
{
        uint64_t random = 1;
        char *block = take(1);
        size_t old = 1;

        block[0] = 0;
        for (unsigned int i = 0; i < 5000; i++) {
                size_t size = 1 + random_step(&random) % (i % 10 ? 3000 : 400000);

                block = realloc(block, size);
                check(block != NULL);
                for (size_t at = 0; at < min_of(old, size); at += 61)
                        check_equal((unsigned char)block[at], (i + at) % 251);
                for (size_t at = 0; at < size; at++)
                        block[at] = (char)((i + 1 + at) % 251);
                old = size;
        }
        drop(block);
}

static void child_named_caches(void)
{
        struct kmem_cache *cache = kmem_cache_create("named", 100, 0, 0, NULL);
        void *objects[10];

        check_equal(kmem_cache_alloc_bulk(cache, GFP_KERNEL, 10, objects), 10);
        for (unsigned int i = 0; i < 5; i++)
                kmem_cache_free(cache, objects[i]);
        kmem_cache_free_bulk(cache, 5, objects + 5);
        check_equal(kmem_cache_shrink(cache), 0);
        kmem_cache_destroy(cache);
        for (unsigned int i = 0; i < 10; i++)
                objects[i] = kmalloc((size_t)100 << i, GFP_KERNEL);
        kfree_bulk(10, objects);
        kvfree(kvmalloc(10, GFP_KERNEL));
        check(ksize(objects[0] = kzalloc(50, GFP_KERNEL)) >= 50);
        objects[0] = krealloc(objects[0], 500, GFP_KERNEL);
        check(objects[0] != NULL);
        kfree_sensitive(objects[0]);
        check_equal(kmalloc_size_roundup(100), hardened_round(100, 1));
}

/* S8-25 */
static void check_kmalloc_aligned(const void *block, size_t size)
{
        check(block && (uintptr_t)block % min_of(size, PAGE_SIZE) == 0);
        check_equal(ksize(block), kmalloc_size_roundup(size));
}

static void child_kmalloc_aligned(void)
{
        enum { EACH = 40, CALLS = 6 };
        static void *taken[EACH * CALLS];

        for (size_t size = 8; size <= 1 << 18; size *= 2) {
                size_t count = 0;

                while (count < array_size(taken)) {
                        taken[count++] = kmalloc(size, GFP_KERNEL);
                        taken[count++] = kmalloc(size, GFP_KERNEL | __GFP_ACCOUNT);
                        taken[count++] = kcalloc(size / 8, 8, GFP_KERNEL);
                        taken[count++] = kmalloc_node(size, GFP_KERNEL, NUMA_NO_NODE);
                        taken[count++] =
                                krealloc(kmalloc(size - size / 4, GFP_KERNEL), size, GFP_KERNEL);
                        taken[count++] = krealloc(kmalloc(size - size / 4, GFP_KERNEL), size,
                                                  GFP_KERNEL | __GFP_ACCOUNT);
                }
                for (size_t i = 0; i < count; i++)
                        check_kmalloc_aligned(taken[i], size);
                kfree_bulk(count, taken);
        }
        /* Other sizes have malloc's classes. */
        check_equal(kmalloc_size_roundup(4095), hardened_round(4095, 1));
}

static void child_named_twice(void)
{
        struct kmem_cache *cache = kmem_cache_create("named", 100, 0, 0, NULL);
        void *object = kmem_cache_alloc(cache, GFP_KERNEL);

        kmem_cache_free(cache, object);
        kmem_cache_free(cache, object);
}

static void contents(void **state)
{
        child_passes("zeroes", options_used);
        child_passes("sizes", options_used);
        child_passes("resizes", options_used);
        child_passes("named_caches", options_used);
        child_passes("kmalloc_aligned", options_used);
        child_aborts("named_twice", options_used, "free already (double free)");
}

/* ---- threads and processes ---- */

static void *volatile exchange[256];

static void *churn_shared(void *seed)
{
        uint64_t random = (uintptr_t)seed;

        for (unsigned int i = 0; i < 60000; i++) {
                size_t size = 1 + random_step(&random) % (i % 100 ? 700 : 200000);
                char *block = take(size);
                char *old;

                check_zero(block, min_of(size, (size_t)64));
                memset(block, 0x41, size);
                old = __atomic_exchange_n(&exchange[random_step(&random) % array_size(exchange)],
                                          block, __ATOMIC_ACQ_REL);
                if (old)
                        check_equal(*old, 0x41);
                drop(old);
        }
        return NULL;
}

static void child_threads(void)
{
        pthread_t threads[4];

        for (uintptr_t i = 0; i < array_size(threads); i++)
                check(pthread_create(&threads[i], NULL, churn_shared, (void *)(i + 1)) == 0);
        for (unsigned int i = 0; i < 50; i++) {
                pid_t child = fork();

                if (child == 0) {
                        churn(40);
                        drop(realloc(take(10), 200000));
                        _exit(0);
                }
                child_wait(child);
        }
        for (uintptr_t i = 0; i < array_size(threads); i++)
                pthread_join(threads[i], NULL);
}

static pthread_barrier_t begun;

/* Takes an object of each class for the first time. */
static void *open_pools(void *unused)
{
        pthread_barrier_wait(&begun);
        for (size_t size = 1; size < LARGE; size += 1 + size / 16)
                drop(take(size));
        return NULL;
}

/* HARD-8: pools whose first object is on its way while the process forks. */
static void child_first_objects(void)
{
        pthread_t threads[4];

        /* A child that waits for a lock for ever ends the test with a signal. */
        alarm(60);
        pthread_barrier_init(&begun, NULL, array_size(threads) + 1);
        for (unsigned int i = 0; i < array_size(threads); i++)
                check(pthread_create(&threads[i], NULL, open_pools, NULL) == 0);
        pthread_barrier_wait(&begun);
        for (unsigned int i = 0; i < 20; i++) {
                pid_t child = fork();

                if (child == 0) {
                        alarm(10);
                        pthread_barrier_init(&begun, NULL, 1);
                        open_pools(NULL);
                        _exit(0);
                }
                child_wait(child);
        }
        for (unsigned int i = 0; i < array_size(threads); i++)
                pthread_join(threads[i], NULL);
}

static const struct lock *looked_for;
static unsigned int times_met;

static void meet(struct lock *lock)
{
        times_met += lock == looked_for;
}

/* HARD-8: fork takes the lock of a pool whose first object is on its way, as its thread may hold it. */
static void child_fork_takes_opened(void)
{
        struct pool *pool = pool_of(0, hardened_class_for(900, 1));

        looked_for = &pool->lock;
        hardened_each_lock(meet, meet);
        check_equal(times_met, 0);
        pool_open(pool);
        check_equal(pool->taken, 0);
        hardened_each_lock(meet, meet);
        check_equal(times_met, 1);
}

static uint32_t may_take, has_taken;

static void *take_first(void *unused)
{
        while (!load_acquire(&may_take))
                cpu_relax();
        drop(take(900));
        store_release(&has_taken, 1);
        return NULL;
}

/* HARD-8: no pool is opened while fork holds its lock, so none is locked that fork does not know. */
static void child_opens_behind_fork(void)
{
        uint32_t class = hardened_class_for(900, 1);
        pthread_t thread;

        /* A thread that neither waits nor goes on ends the test with a signal. */
        alarm(60);
        drop(take(40));
        check(pthread_create(&thread, NULL, take_first, NULL) == 0);
        for (uint32_t arena = 0; arena < hardened.arenas; arena++)
                check(!load_relaxed(&pool_of(arena, class)->opened));
        lock_take(&hardened_open_lock);
        store_release(&may_take, 1);
        /* 2: the thread sleeps on the lock. */
        while (load_acquire(&hardened_open_lock.word) != 2 && !load_acquire(&has_taken))
                cpu_relax();
        check(!load_acquire(&has_taken));
        for (uint32_t arena = 0; arena < hardened.arenas; arena++)
                check(!load_relaxed(&pool_of(arena, class)->opened));
        lock_drop(&hardened_open_lock);
        pthread_join(thread, NULL);
        check(load_relaxed(&has_taken));
}

static void child_threads_of_mappings(void)
{
        without_guards();
        child_threads();
}

static void child_limited(void)
{
        static const size_t limits[] = {(size_t)4 << 30, (size_t)2 << 30, (size_t)1 << 30};

        drop(take(10));
        for (size_t i = 0; i < array_size(limits); i++) {
                struct rlimit limit = {limits[i], limits[i]};

                /* As the drop-in does in front of libc's call (malloc/preload.c). */
                pages_fit_limit(limits[i] / 2);
                hardened_fit(limits[i] / 4);
                check(setrlimit(RLIMIT_AS, &limit) == 0);
                churn(1000);
                drop(take(1 << 20));
        }
        /* All that is left can be had, and then there is an error, and no report. */
        for (unsigned int i = 0;; i++) {
                char *block = malloc(1 << 20);

                if (!block)
                        break;
                check(i < 1024);
        }
        drop(malloc(100));
}

/* By system calls, as nothing can be allocated. */
static size_t mapped_pages(void)
{
        char text[64] = "";
        int file = open("/proc/self/statm", O_RDONLY);

        check(file >= 0 && read(file, text, sizeof(text) - 1) > 0);
        close(file);
        return strtoul(text, NULL, 10);
}

enum { NO_ROOM = 30 << 20 }; /* for the least that hardened blocks reserve */

/* The heap has its reservation and takes no other, though there is room for one, as long as hardened blocks have none. */
static void child_refused(void)
{
        size_t mapped = mapped_pages();
        struct rlimit limit = {mapped * system_page_bytes() + NO_ROOM, RLIM_INFINITY};

        check(setrlimit(RLIMIT_AS, &limit) == 0);
        errno = 0;
        check(!hide_address(malloc(100)) && errno == ENOMEM);
        errno = 0;
        check(malloc_info(0, stderr) == -1 && errno == ENOMEM);
        for (unsigned int i = 0; i < 100; i++)
                check(!hide_address(malloc(100)));
        check(mapped_pages() == mapped);
}

/* The heap starts in front of main, so the limit has to be there before. */
static void child_no_room(void)
{
        struct rlimit limit = {NO_ROOM, RLIM_INFINITY};

        check(setrlimit(RLIMIT_AS, &limit) == 0);
        execl("/proc/self/exe", "test_hardened", "--child", "refused", NULL);
}

static void child_locked(void)
{
        drop(take(10));
        if (mlockall(MCL_CURRENT | MCL_FUTURE) != 0)
                exit(CHILD_SKIP);
        churn(1000);
        drop(take(LARGE));
        check_guards();
}

static void failed_start(void **state)
{
        skip_if_sanitized();
        if (emulated())
                skip_because("the emulator and valgrind take address space of their own");
        child_prints("no_room", options_used, "there is no address space for its blocks");
}

static void processes(void **state)
{
        child_passes("threads", options_used);
        for (unsigned int i = 0; i < 20; i++)
                child_passes("fork_takes_opened", options_used);
        child_passes("opens_behind_fork", options_used);
        child_passes("first_objects", options_used);
        child_passes("threads_of_mappings", options_of_mappings);
        child_passes("limited", options_used);
        child_passes("locked", options_used);
}

/* ---- figures ---- */

static void child_figures(void)
{
        static char text[1 << 16];
        struct hardened_counts before, after;
        FILE *stream;
        char *large;

        drop(take(100));
        large = take(LARGE);
        hardened_count(&before);
        for (unsigned int i = 0; i < MANY; i++)
                blocks[i] = take(100);
        hardened_count(&after);
        check_equal(after.blocks - before.blocks, MANY);
        check_equal(after.bytes - before.bytes, MANY * place_of((char *)blocks[0]).class->size);
        check_equal(after.large_bytes, LARGE);
        check(after.slab_bytes >= after.bytes - after.large_bytes);
        check_equal(after.slab_bytes, hardened_figures.slab_bytes);
        for (unsigned int i = 0; i < MANY; i++)
                drop((void *)blocks[i]);
        drop(large);
        hardened_count(&after);
        check_equal(after.waiting_bytes, hardened_figures.waiting_bytes);
        check(after.waiting >= 2 * place_of((char *)blocks[0]).class->aged);
        check_equal(after.large_bytes, 0);
        check(after.closed_bytes > LARGE);
        stream = fmemopen(text, sizeof(text), "w");
        check(stream && malloc_info(0, stream) == 0);
        fclose(stream);
        check(strstr(text, "<protect level=\"hardened\" ") != NULL);
        check(malloc_trim(0) == 1);
        hardened_count(&after);
        check_equal(after.closed_bytes, 0);
}

/* The number behind the text, which must be there. */
static size_t number_behind(const char *all, const char *text)
{
        const char *found = strstr(all, text);

        check(found != NULL);
        return strtoul(found + strlen(text), NULL, 10);
}

/* glibc's figures have slabs and large blocks in the arena, and what is out in uordblks. */
static void check_mallinfo(struct mallinfo2 before, size_t bytes)
{
        static char text[1 << 16];
        struct kmem_stats stats = {.size = sizeof(stats)};
        struct hardened_counts counts;
        struct mallinfo2 info = mallinfo2();
        FILE *stream;
        size_t rest;

        check_equal(info.uordblks - before.uordblks, bytes);
        check_equal(info.uordblks + info.fordblks, info.arena);
        check_equal(info.hblkhd, before.hblkhd);
        hardened_count(&counts);
        rest = counts.slab_bytes - (counts.bytes - counts.large_bytes);
        check(info.uordblks >= counts.bytes);
        check(info.fordblks >= rest);
        check_equal(kmem_stats_get(&stats), 0);
        check(stats.object_bytes_free >= rest);
        check(stats.object_bytes_inuse >= counts.bytes);
        stream = fmemopen(text, sizeof(text), "w");
        check(stream && malloc_info(0, stream) == 0);
        fclose(stream);
        check(number_behind(text, "<total type=\"inuse\" size=\"") >= counts.bytes);
        check(number_behind(text, "<system type=\"current\" size=\"") >=
              counts.slab_bytes + counts.large_bytes);
        check(number_behind(text, "<system type=\"max\" size=\"") >=
              number_behind(text, "<system type=\"current\" size=\""));
}

static void child_mallinfo(void)
{
        struct mallinfo2 before;
        size_t bytes;
        char *large;

        blocks[0] = take(100);
        bytes = MANY * place_of((char *)blocks[0]).class->size;
        drop((char *)blocks[0]);
        before = mallinfo2();
        for (unsigned int i = 0; i < MANY; i++)
                blocks[i] = take(100);
        large = take(LARGE);
        check_mallinfo(before, bytes + LARGE);
        drop(large);
        check_mallinfo(before, bytes);
        for (unsigned int i = 0; i < MANY; i++)
                drop((char *)blocks[i]);
        check_equal(mallinfo2().uordblks, before.uordblks);
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
        check_equal(mallinfo().fordblks + mallinfo().uordblks, mallinfo().arena);
#pragma GCC diagnostic pop
}

static void figures(void **state)
{
        child_passes("figures", options_used);
        child_passes("mallinfo", options_used);
}

/* ---- options that make no sense beside it ---- */

static void child_nothing_done(void)
{
        drop(take(10));
}

/* Objects of named caches are no hardened blocks, and every call that takes an object takes guarded ones. */
static void child_guarded_objects(void)
{
        struct kmem_cache *cache = kmem_cache_create("named", 100, 0, SLAB_NO_MERGE, NULL);
        void *objects[4];
        char *moved;

        for (int i = 0; i < 4; i++) {
                objects[i] = kmem_cache_alloc(cache, GFP_KERNEL);
                check(in_guard_region(objects[i]));
        }
        check_equal(ksize(objects[0]), 100);
        memset(objects[0], 'k', 100);
        moved = krealloc(objects[0], 500, GFP_KERNEL);
        check(hardened_contains(moved) && moved[99] == 'k');
        kfree(moved);
        kmem_cache_free(cache, objects[1]);
        kfree(objects[2]);
        kfree_bulk(1, &objects[3]);
        kmem_cache_destroy(cache);
}

/* A named cache's object that grows becomes a hardened block, also a large one, and can grow again. */
static void child_named_grows(void)
{
        struct kmem_cache *cache = kmem_cache_create("named", 4000, 0, 0, NULL);
        char *block = kmem_cache_alloc(cache, GFP_KERNEL);
        struct hardened_counts counts;
        bool known;

        memset(block, 'k', 4000);
        block = krealloc(block, LARGE, GFP_KERNEL);
        check(block != NULL && !heap_contains(block));
        check_equal(hardened_large_bytes(block, &known), LARGE);
        block = krealloc(block, 10 * LARGE, GFP_KERNEL);
        check(block != NULL && block[0] == 'k' && block[3999] == 'k');
        kfree(block);
        hardened_count(&counts);
        check_equal(counts.large_blocks, 0);
        kmem_cache_destroy(cache);
}

static void child_node_wishes(void)
{
        for (int node = -2; node <= 2; node++) {
                void *block = kmalloc_node(100, GFP_KERNEL, node);

                check(hardened_contains(block));
                kfree(block);
        }
}

static void combinations(void **state)
{
        child_passes("named_grows", options_used);
        child_passes("node_wishes", "protect=hardened,numa_fake=2");
        child_passes("guarded_objects",
                     "protect=hardened,guard_sampling=1,sheaf_capacity=0,engine=slub,registry=off");
        child_prints("nothing_done", "protect=hardened,profile_interval=4096",
                     "option profile_interval: no effect with protect=hardened");
        child_prints("nothing_done", "protect=hardened,memory_limit=1G",
                     "option memory_limit: no effect with protect=hardened");
        child_prints("nothing_done", "protect=hardened,classes=kernel",
                     "option classes: no effect with protect=hardened");
        child_prints("nothing_done", "protect=hardened,bad_free=ignore",
                     "option bad_free=ignore: with protect=hardened");
        child_prints("nothing_done", "protect=yes", "expected one of: none hardened");
}

#define CASE(name)                                                                                 \
        {                                                                                          \
#name, child_##name                                                                \
        }

int main(int argc, char **argv)
{
        static const struct child_case children[] = {
                CASE(twice),
                CASE(twice_later),
                CASE(twice_written),
                CASE(twice_forged),
                CASE(fresh_forged),
                CASE(inside),
                CASE(misaligned),
                CASE(fresh),
                CASE(guard),
                CASE(stack),
                CASE(untouched),
                CASE(large_inside),
                CASE(large_twice),
                CASE(realloc_freed),
                CASE(usable_freed),
                CASE(usable_inside),
                CASE(usable_stack),
                CASE(usable_large_freed),
                CASE(ksize_freed),
                CASE(sensitive_twice),
                CASE(of_no_cache),
                CASE(new_free),
                CASE(malloc_delete),
                CASE(large_new_free),
                CASE(new_realloc),
                CASE(wrong_size),
                CASE(wrong_delete_size),
                CASE(wrong_align),
                CASE(large_wrong_size),
                CASE(right_forms),
                CASE(inner_runtime),
                CASE(large_inner_runtime),
                CASE(new_free_here),
                CASE(behind_freed),
                CASE(behind_by_zero),
                CASE(behind_resized),
                CASE(behind_at_exit),
                CASE(behind_at_exit_of_far_slab),
                CASE(interrupted),
                CASE(behind_large),
                CASE(behind_large_at_exit),
                CASE(after_free),
                CASE(after_free_end),
                CASE(after_free_page),
                CASE(written_fresh),
                CASE(after_free_at_exit),
                CASE(after_free_aged_at_exit),
                CASE(guards),
                CASE(guards_of_mappings),
                CASE(nothing),
                CASE(nothing_twice),
                CASE(large_aligned),
                CASE(partly_locked),
                CASE(sandboxed),
                CASE(large),
                CASE(large_grows),
                CASE(behind_grown),
                CASE(released),
                CASE(fetched),
                CASE(populated),
                CASE(populated_large),
                CASE(populated_grown),
                CASE(closed_end),
                CASE(tables),
                CASE(own_addresses),
                CASE(quarantine),
                CASE(order),
                CASE(few),
                CASE(numbers),
                CASE(large_order),
                CASE(fork_order),
                CASE(zeroes),
                CASE(sizes),
                CASE(resizes),
                CASE(named_caches),
                CASE(named_grows),
                CASE(node_wishes),
                CASE(kmalloc_aligned),
                CASE(named_twice),
                CASE(threads),
                CASE(fork_takes_opened),
                CASE(opens_behind_fork),
                CASE(first_objects),
                CASE(threads_of_mappings),
                CASE(limited),
                CASE(locked),
                CASE(no_room),
                CASE(refused),
                CASE(figures),
                CASE(mallinfo),
                CASE(nothing_done),
                CASE(guarded_objects),
        };
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(wrong_frees),
                cmocka_unit_test(forms_and_sizes),
                cmocka_unit_test(writes),
                cmocka_unit_test(traps_where_it_should),
                cmocka_unit_test(interrupted_calls),
                cmocka_unit_test(addresses),
                cmocka_unit_test(contents),
                cmocka_unit_test(processes),
                cmocka_unit_test(failed_start),
                cmocka_unit_test(figures),
                cmocka_unit_test(combinations),
        };

        child_main(argc, argv, children, array_size(children));
        /* A single test by its name: for mutants, which break a single part each. */
        if (argc > 1)
                cmocka_set_test_filter(argv[1]);
        return cmocka_run_group_tests(tests, NULL, NULL);
}
