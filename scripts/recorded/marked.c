/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Runs a command between two marks that every recording of slab events has.
 *
 *   marked COMMAND [ARGUMENT...]
 *
 * A mark is an allocation of a size that nothing else asks for: setxattr copies the value into
 * memory of the kernel before it looks at the file, so the mark is there even where the file system
 * has no such attribute. MARK_FIRST is before the command, MARK_LAST behind it. scripts/recorded/compare.py
 * knows both sizes.
 *
 * Exit status: the command's, 128 and the signal that ended it, or 127 if it cannot be started.
 */
#define _GNU_SOURCE
#include <err.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

enum { MARK_FIRST = 3331, MARK_LAST = 3343 };

static void mark(size_t bytes)
{
        static const char value[MARK_LAST];

        /* Its result does not matter: root's file systems differ. */
        if (setxattr("/proc/self/mounts", "user.kmem-mark", value, bytes, 0) == 0)
                errx(1, "/proc/self/mounts: took an attribute");
}

int main(int argc, char **argv)
{
        int status;
        pid_t child;

        if (argc < 2)
                errx(1, "expected a command");
        mark(MARK_FIRST);
        child = fork();
        if (child < 0)
                err(1, "fork");
        if (!child) {
                execvp(argv[1], argv + 1);
                warn("%s", argv[1]);
                _exit(127);
        }
        if (waitpid(child, &status, 0) != child)
                err(1, "waitpid");
        mark(MARK_LAST);
        return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}
