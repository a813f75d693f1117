/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * A small malloc with a fault built in, to show that the tests notice it. Without a fault (no
 * FAULT_* defined) it is correct, reports misuse as libkmem does, and passes these tests.
 *
 * A single lock guards blocks of powers of two with a 32-byte head, carved from one reservation and
 * kept on free lists for ever. The arena is never given back: this is for tests that end soon.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <malloc.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define CLASSES 41
#define LIVE 0x6c697665u
#define FREED 0x66726565u

struct head {
        size_t bytes;       /* usable, from the block's start */
        struct head *next;  /* on a free list */
        unsigned int class; /* the block with its head has 1 << class bytes */
        unsigned int state; /* LIVE or FREED */
        uintptr_t self;     /* its own address: a block without it has no head */
};

/* Keeps blocks aligned to 16 behind their heads. */
#define HEAD_BYTES ((sizeof(struct head) + 15) / 16 * 16)

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct head *lists[CLASSES];
static char *arena, *arena_next, *arena_end;
static bool closed;

static void report(const char *call, const void *pointer)
{
#ifndef FAULT_SILENT
        char line[128];
        int length;
#ifdef FAULT_NAMELESS
        (void)call;
        length = snprintf(line, sizeof(line), "kmem: bad pointer %p\n", pointer);
#else
        length = snprintf(line, sizeof(line), "kmem: %s(%p): not a block\n", call, pointer);
#endif
        if (write(STDERR_FILENO, line, (size_t)length) != length)
                _exit(99);
        if (!getenv("KMEM_OPTIONS") || !strstr(getenv("KMEM_OPTIONS"), "bad_free=ignore"))
                abort();
#else
        (void)call;
        (void)pointer;
#endif
}

static void before_fork(void)
{
        pthread_mutex_lock(&lock);
}

static void after_fork(void)
{
        pthread_mutex_unlock(&lock);
}

__attribute__((constructor)) static void set_up(void)
{
#ifndef FAULT_FORK
        pthread_atfork(before_fork, after_fork, after_fork);
#else
        (void)before_fork;
        (void)after_fork;
#endif
}

__attribute__((destructor)) static void tear_down(void)
{
#ifdef FAULT_LATE
        closed = true;
#endif
}

static bool reserve(void)
{
        for (size_t bytes = (size_t)1 << 40; bytes >= 1 << 20; bytes /= 2) {
                arena = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
                if (arena != MAP_FAILED) {
                        arena_next = arena;
                        arena_end = arena + bytes;
                        return true;
                }
        }
        return false;
}

static struct head *carve(unsigned int class)
{
        struct head *head = (struct head *)arena_next;

        if ((size_t)(arena_end - arena_next) < (size_t)1 << class)
                return NULL;
        arena_next += (size_t)1 << class;
        return head;
}

static unsigned int class_of(size_t bytes)
{
        unsigned int class = 6;

        while (class < CLASSES && ((size_t)1 << class) < bytes + HEAD_BYTES)
                class ++;
        return class;
}

static struct head *take(size_t bytes)
{
        unsigned int class = class_of(bytes);
        struct head *head = NULL;

        if (bytes > (size_t)1 << 40 || class >= CLASSES || closed)
                return NULL;
        pthread_mutex_lock(&lock);
        if (arena || reserve()) {
                head = lists[class];
                if (head)
                        lists[class] = head->next;
                else
                        head = carve(class);
        }
        if (head) {
                head->class = class;
                head->state = LIVE;
                head->self = (uintptr_t)head;
        }
        pthread_mutex_unlock(&lock);
        return head;
}

static void *block_of(struct head *head, size_t bytes)
{
        if (!head) {
#ifndef FAULT_NO_ERRNO
                errno = ENOMEM;
#endif
                return NULL;
        }
        head->bytes = bytes;
#ifdef FAULT_MISALIGNED
        if (bytes == 24) {
                struct head *moved = (struct head *)((char *)head + 8);

                memmove(moved, head, sizeof(*head));
                moved->self = (uintptr_t)moved;
                head = moved;
        }
#endif
        return (char *)head + HEAD_BYTES;
}

static struct head *live_head(const char *call, void *pointer)
{
        struct head *head = (struct head *)((char *)pointer - HEAD_BYTES);

        if ((char *)pointer < arena || (char *)pointer >= arena_next ||
            head->self != (uintptr_t)head || head->state != LIVE) {
                report(call, pointer);
                return NULL;
        }
        return head;
}

static void release(const char *call, void *pointer)
{
        static unsigned int count;
        int saved_errno = errno;
        struct head *head;

        if (!pointer || !(head = live_head(call, pointer)))
                return;
        /* Large blocks give their pages back; the first page holds the head. */
        if (head->class > 17)
                madvise((char *)head + 4096, ((size_t)1 << head->class) - 4096, MADV_DONTNEED);
        pthread_mutex_lock(&lock);
        head->state = FREED;
        head->next = lists[head->class];
        lists[head->class] = head;
#ifdef FAULT_TWICE
        /* Now and then the block goes on the list a second time, behind another. */
        if (++count % 500 == 0 && head->next)
                head->next = head->next->next == head ? NULL : head->next,
                lists[head->class] = head, head->next->next = head;
#else
        (void)count;
#endif
        pthread_mutex_unlock(&lock);
        errno = saved_errno;
}

void *malloc(size_t bytes)
{
#ifdef FAULT_ZERO_IS_NULL
        if (bytes == 0)
                return NULL;
#endif
        return block_of(take(bytes), bytes);
}

void free(void *pointer)
{
        release("free", pointer);
}

void kfree(const void *pointer);
void kfree(const void *pointer)
{
        release("kfree", (void *)pointer);
}

void *calloc(size_t count, size_t size)
{
        size_t bytes;
        void *pointer;

#ifdef FAULT_OVERFLOW
        bytes = count * size;
#else
        if (__builtin_mul_overflow(count, size, &bytes))
                bytes = SIZE_MAX;
#endif
        pointer = block_of(take(bytes), bytes);
#ifndef FAULT_DIRTY
        if (pointer)
                memset(pointer, 0, bytes);
#endif
        return pointer;
}

void *realloc(void *old, size_t bytes)
{
        struct head *head = NULL;
        void *pointer;

        if (old && !(head = live_head("realloc", old)))
                return NULL;
        if (old && bytes == 0) {
                free(old);
                return NULL;
        }
        pointer = malloc(bytes);
        if (pointer && old) {
#ifdef FAULT_REALLOC
                memcpy(pointer, old, (head->bytes < bytes ? head->bytes : bytes) / 2);
#else
                memcpy(pointer, old, head->bytes < bytes ? head->bytes : bytes);
#endif
                free(old);
        }
        return pointer;
}

void *reallocarray(void *old, size_t count, size_t size)
{
        size_t bytes;

        if (__builtin_mul_overflow(count, size, &bytes))
                bytes = SIZE_MAX;
        return realloc(old, bytes);
}

/* Takes more, and puts a second head in front of the aligned block. */
static void *take_aligned(size_t alignment, size_t bytes)
{
        struct head *head, *moved;

        if (alignment <= 16 || bytes > PTRDIFF_MAX)
                return malloc(bytes);
        head = take(bytes + alignment + HEAD_BYTES);
        if (!head)
                return block_of(NULL, 0);
        moved = (struct head *)((((uintptr_t)head + 2 * HEAD_BYTES + alignment - 1) &
                                 ~(alignment - 1)) -
                                HEAD_BYTES);
        /* The block behind the second head is freed into its own, smaller class: it just leaks. */
        moved->class = 6;
        moved->state = LIVE;
        moved->self = (uintptr_t)moved;
        return block_of(moved, bytes);
}

static bool bad_alignment(size_t alignment)
{
#ifdef FAULT_ALIGNMENTS
        return alignment == 0;
#else
        return alignment == 0 || (alignment & (alignment - 1)) != 0;
#endif
}

void *memalign(size_t alignment, size_t bytes)
{
        size_t power = 16;

        while (power < alignment && power <= SIZE_MAX / 4)
                power *= 2;
        return take_aligned(power, bytes);
}

void *aligned_alloc(size_t alignment, size_t bytes)
{
        if (bad_alignment(alignment)) {
                errno = EINVAL;
                return NULL;
        }
        return take_aligned(alignment, bytes);
}

int posix_memalign(void **result, size_t alignment, size_t bytes)
{
        int saved_errno = errno;
        void *pointer;

        if (bad_alignment(alignment) || alignment % sizeof(void *) != 0)
                return EINVAL;
        pointer = take_aligned(alignment, bytes);
        errno = saved_errno;
        if (!pointer)
                return ENOMEM;
        *result = pointer;
        return 0;
}

void *valloc(size_t bytes)
{
        return memalign(4096, bytes);
}

void *pvalloc(size_t bytes)
{
        return memalign(4096, bytes > PTRDIFF_MAX ? bytes : (bytes + 4095) / 4096 * 4096);
}

size_t malloc_usable_size(void *pointer)
{
        struct head *head = pointer ? live_head("malloc_usable_size", pointer) : NULL;

#ifdef FAULT_USABLE
        return head ? head->bytes + 64 : 0;
#else
        return head ? head->bytes : 0;
#endif
}

void cfree(void *pointer);
void cfree(void *pointer)
{
        free(pointer);
}

void free_sized(void *pointer, size_t bytes);
void free_sized(void *pointer, size_t bytes)
{
        (void)bytes;
        free(pointer);
}

void free_aligned_sized(void *pointer, size_t alignment, size_t bytes);
void free_aligned_sized(void *pointer, size_t alignment, size_t bytes)
{
        (void)alignment;
        (void)bytes;
        free(pointer);
}

struct mallinfo2 mallinfo2(void)
{
        return (struct mallinfo2){.uordblks = (size_t)(arena_next - arena)};
}

int malloc_trim(size_t pad)
{
        (void)pad;
        return 0;
}
