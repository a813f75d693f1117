/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Second frees of a block, with the first copy in each place where it may rest by then. Harm: two
 * blocks in use overlap.
 */
#include "misuse.h"

#include <malloc.h>
#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

static const char twice[] = "an address was handed out twice";

/* Takes blocks until the second copy must have come back too. */
static void look_for_two(size_t bytes)
{
        hold_many(bytes);
        harm_if(held_overlap(), twice);
}

static void at_once(size_t bytes)
{
        void *block = take(bytes);

        release(block);
        release(block);
        look_for_two(bytes);
}

static void with_one_between(size_t bytes)
{
        void *block = take(bytes);
        void *other = take(bytes);

        release(block);
        release(other);
        release(block);
        look_for_two(bytes);
}

static void with_some_between(size_t bytes)
{
        enum {
                BETWEEN = 9
        }; /* more than glibc's tcache has room for, where its list is searched */
        void *other[BETWEEN];
        void *block = take(bytes);

        for (int i = 0; i < BETWEEN; i++)
                other[i] = take(bytes);
        release(block);
        for (int i = 0; i < BETWEEN; i++)
                release(other[i]);
        release(block);
        look_for_two(bytes);
}

static void after_many(size_t bytes)
{
        void *block = take(bytes);

        hold_many(bytes);
        release(block);
        release_held();
        release(block);
        look_for_two(bytes);
}

static void after_churn(size_t bytes)
{
        void *block = take(bytes);

        release(block);
        churn(bytes);
        release(block);
        look_for_two(bytes);
}

static void after_other_sizes(size_t bytes)
{
        void *block = take(bytes);

        release(block);
        churn(3 * bytes);
        churn(2 * bytes);
        release(block);
        look_for_two(bytes);
}

static void after_trim(size_t bytes)
{
        void *block = take(bytes);

        hold_many(bytes);
        release(block);
        release_held();
        malloc_trim(0);
        release(block);
        look_for_two(bytes);
}

static void other_thread_first(size_t bytes)
{
        void *block = take(bytes);

        in_thread(release, block);
        release(block);
        look_for_two(bytes);
}

static void other_thread_second(size_t bytes)
{
        void *block = take(bytes);

        release(block);
        in_thread(release, block);
        look_for_two(bytes);
}

static void on_other_cpu(size_t bytes)
{
        void *block = take(bytes);

        release(block);
        to_other_cpu();
        release(block);
        look_for_two(bytes);
}

/* The block belongs to somebody else by then, who loses it. */
static void after_reuse(size_t bytes)
{
        void *block = take(bytes);
        void *owners;

        release(block);
        owners = take_again(block, bytes, 1000);
        release(block);
        if (owners && take_again(block, bytes, 1000))
                harm("a block in use was handed out again");
        look_for_two(bytes);
}

static void by_realloc(size_t bytes)
{
        void *block = take(bytes);

        release(block);
        if (hide(realloc(hide(block), 0)))
                return;
        look_for_two(bytes);
}

static void of_aligned(size_t bytes)
{
        void *block = hide(memalign(64, bytes));

        release(block);
        release(block);
        for (size_t left = many_of(bytes); left; left--)
                hold(hide(memalign(64, bytes)), bytes);
        harm_if(held_overlap(), twice);
}

static void of_calloc(size_t bytes)
{
        void *block = hide(calloc(1, bytes));

        release(block);
        release(block);
        for (size_t left = many_of(bytes); left; left--)
                hold(hide(calloc(1, bytes)), bytes);
        harm_if(held_overlap(), twice);
}

static void by_delete(size_t bytes)
{
        void *(*make)(size_t) = (void *(*)(size_t))function_named("_Znwm");
        void (*end)(void *) = (void (*)(void *))function_named("_ZdlPv");
        void *block = hide(make(bytes));

        end(block);
        end(hide(block));
        look_for_two(bytes);
}

/* A stale pointer has been written to before: all of the block, or what stands first in it. */
static void after_bytes(size_t bytes, size_t written)
{
        char *block = take(bytes);

        release(block);
        misuse_write(block, written, 'W');
        release(block);
        look_for_two(bytes);
}

static void after_write(size_t bytes)
{
        after_bytes(bytes, bytes);
}

static void after_first_word(size_t bytes)
{
        after_bytes(bytes, WORD_BYTES);
}

/* The second fclose of a file has set flags in its memory by the time it frees it. */
static void by_fclose(size_t bytes)
{
        FILE *file = fopen("/dev/null", "r");
        size_t size = file ? malloc_usable_size(file) : 0;

        if (!file)
                absent("no /dev/null");
        (void)bytes;
        fclose(file);
        /* What the file held is gone, and libc follows pointers in it. */
        misuse_begins(NULL, PAGE_OF_BYTES);
        fclose(hide(file));
        misuse_ends();
        look_for_two(size);
}

/* The child has the block from its parent, freed. */
static void in_child(size_t bytes)
{
        void *block = take(bytes);
        int status;
        pid_t child;

        release(block);
        child = fork();
        if (child == 0) {
                release(block);
                look_for_two(bytes);
                _exit(0);
        }
        if (child < 0 || waitpid(child, &status, 0) != child)
                absent("no child");
        if (WIFSIGNALED(status))
                raise(WTERMSIG(status));
}

const struct way double_free_ways[] = {
        {"double-free", "at-once", at_once, EACH_SIZE},
        {"double-free", "a-b-a", with_one_between, EACH_SIZE},
        {"double-free", "ten-between", with_some_between, EACH_SIZE},
        {"double-free", "after-many", after_many, EACH_SIZE},
        {"double-free", "after-churn", after_churn, EACH_SIZE},
        {"double-free", "after-other-sizes", after_other_sizes, EACH_SIZE},
        {"double-free", "after-trim", after_trim, EACH_SIZE},
        {"double-free", "thread-first", other_thread_first, EACH_SIZE},
        {"double-free", "thread-second", other_thread_second, EACH_SIZE},
        {"double-free", "other-cpu", on_other_cpu, EACH_SIZE},
        {"double-free", "after-reuse", after_reuse, EACH_SIZE},
        {"double-free", "by-realloc", by_realloc, EACH_SIZE},
        {"double-free", "aligned", of_aligned, EACH_SIZE},
        {"double-free", "calloc", of_calloc, EACH_SIZE},
        {"double-free", "delete", by_delete, EACH_SIZE},
        {"double-free", "after-write", after_write, EACH_SIZE},
        {"double-free", "after-first-word", after_first_word, EACH_SIZE},
        {"double-free", "fclose", by_fclose, NO_SIZE},
        {"double-free", "in-child", in_child, EACH_SIZE},
        {0},
};
