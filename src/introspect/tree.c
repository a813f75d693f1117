/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Writes the attributes of all caches as a tree of files; tree.h has its layout. */
#define _GNU_SOURCE
#include "introspect/tree.h"

#include "base/metadata.h"
#include "machine/stack.h"
#include "introspect/attributes.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

/* An entry as getdents64(2) gives it. */
struct entry {
        uint64_t inode;
        int64_t offset;
        uint16_t bytes;
        uint8_t type;
        char name[];
};

/* Whether an open directory has entries. readdir(3) would allocate. */
static bool has_entries(int directory)
{
        char buffer[1024] __attribute__((aligned(8)));
        long got = syscall(SYS_getdents64, directory, buffer, sizeof(buffer));

        for (long at = 0; at < got;) {
                const struct entry *entry = (const void *)(buffer + at);

                if (strcmp(entry->name, ".") != 0 && strcmp(entry->name, "..") != 0)
                        return true;
                at += entry->bytes;
        }
        return false;
}

static int open_directory(const char *path, int *directory)
{
        /* A compiler at -O3 does not know that errno is not 0 after a failure, and would warn. */
        *directory = -1;
        if (mkdir(path, 0755) && errno != EEXIST)
                return errno;
        *directory = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (*directory < 0)
                return errno;
        return 0;
}

int tree_begin(const char *path, bool alone)
{
        int directory;
        int error = open_directory(path, &directory);

        (void)alone;
        if (error)
                return error;
        if (has_entries(directory))
                error = ENOTEMPTY;
        else if (faccessat(directory, ".", W_OK | X_OK, AT_EACCESS))
                error = errno;
        close(directory);
        return error;
}

/* Turns a cache's name into a file name that leads nowhere else. */
static void make_file_name(char name[CACHE_NAME_BYTES])
{
        if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0)
                name[0] = '!';
        for (; *name; name++)
                if (*name == '/')
                        *name = '!';
}

/*
 * A cache, found under the lock. Files are written without the lock, since that may block. The
 * cache may be gone by then: its place in the table tells.
 */
struct found {
        uint64_t birth; /* 0 before the first */
        uint32_t index;
        char name[CACHE_NAME_BYTES];
        char place[CACHE_NAME_BYTES];
};

/* Moves on to the next older cache; false at the end. */
static bool next_cache(struct found *found)
{
        struct kmem_cache *cache;

        lock_take(&cache_mutex);
        cache = cache_before_locked(found->birth);
        if (cache) {
                found->birth = cache->birth;
                found->index = cache_index(cache);
                memcpy(found->name, cache->name, sizeof(found->name));
                cache_place_locked(cache, found->place);
        }
        lock_drop(&cache_mutex);
        make_file_name(found->name);
        make_file_name(found->place);
        return cache != NULL;
}

/* Room for texts: traces may be long. */
enum { TEXT_BYTES = 256 << 10 };

/*
 * Takes the attribute's text, with marks; false if the cache has no attribute of that name, or has
 * gone.
 */
static bool show_found(const struct found *found, const struct attribute *attribute, char *text)
{
        struct kmem_cache *cache;
        bool exists;

        lock_take(&cache_mutex);
        cache = caches_by_index[found->index];
        exists = cache && cache->birth == found->birth && attribute_exists(attribute, cache);
        if (exists)
                attribute_show_locked(attribute, cache, text, TEXT_BYTES);
        lock_drop(&cache_mutex);
        return exists;
}

static int write_file(int directory, const struct attribute *attribute, const char *text,
                      size_t length)
{
        int file = openat(directory, attribute->name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC,
                          attribute->store ? 0600 : 0400);
        ssize_t written;
        int error = 0;

        if (file < 0)
                return errno;
        written = write(file, text, length);
        if (written < 0)
                error = errno;
        else if ((size_t)written < length)
                error = ENOSPC;
        close(file);
        return error;
}

/*
 * Writes the files of a cache. *made is false if the directory exists: then it belongs to a newer
 * cache of that name.
 */
static int write_cache(int tree, const struct found *found, char *texts[2], bool *made)
{
        int directory;
        int error = 0;

        *made = mkdirat(tree, found->place, 0755) == 0;
        if (!*made)
                return errno == EEXIST ? 0 : errno;
        directory = openat(tree, found->place, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (directory < 0)
                return errno;
        for (size_t i = 0; i < attribute_count && !error; i++)
                if (show_found(found, &attributes[i], texts[0]))
                        error = write_file(directory, &attributes[i], texts[1],
                                           symbols_resolve(texts[0], texts[1], TEXT_BYTES));
        close(directory);
        return error;
}

static int write_link(int tree, const char *target, const char *name)
{
        return symlinkat(target, tree, name) && errno != EEXIST ? errno : 0;
}

static int write_caches(int tree)
{
        char *texts[2] = {metadata_alloc(TEXT_BYTES), metadata_alloc(TEXT_BYTES)};
        struct found found = {0};
        int error = texts[0] && texts[1] ? 0 : ENOMEM;
        bool made;

        while (!error && next_cache(&found)) {
                error = write_cache(tree, &found, texts, &made);
                if (!error && made && strcmp(found.name, found.place) != 0)
                        error = write_link(tree, found.place, found.name);
        }
        metadata_free(texts[0], TEXT_BYTES);
        metadata_free(texts[1], TEXT_BYTES);
        return error;
}

/* The name and place of an alias by number; false after the last. */
static bool alias_number(size_t number, struct found *found)
{
        const struct list *node;
        bool there;

        lock_take(&cache_mutex);
        for (node = alias_list.next; node != &alias_list && number; node = node->next)
                number--;
        there = node != &alias_list;
        if (there) {
                const struct cache_alias *alias = container_of(node, struct cache_alias, list);

                memcpy(found->name, alias->name, sizeof(found->name));
                cache_place_locked(alias->cache, found->place);
        }
        lock_drop(&cache_mutex);
        make_file_name(found->name);
        make_file_name(found->place);
        return there;
}

static int write_aliases(int tree)
{
        struct found found = {0};
        int error = 0;

        for (size_t number = 0; !error && alias_number(number, &found); number++)
                error = write_link(tree, found.place, found.name);
        return error;
}

/* Removes the tree by the names that write_caches and write_aliases make. */
static void remove_all(int tree)
{
        struct found found = {0};

        for (size_t number = 0; alias_number(number, &found); number++)
                unlinkat(tree, found.name, 0);
        for (found.birth = 0; next_cache(&found);) {
                int directory =
                        openat(tree, found.place, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

                for (size_t i = 0; i < attribute_count && directory >= 0; i++)
                        unlinkat(directory, attributes[i].name, 0);
                if (directory >= 0)
                        close(directory);
                unlinkat(tree, found.name, 0);
                unlinkat(tree, found.place, AT_REMOVEDIR);
        }
}

int tree_write(const char *path)
{
        int tree;
        int error = open_directory(path, &tree);

        if (error)
                return error;
        if (has_entries(tree)) {
                close(tree);
                return ENOTEMPTY;
        }
        error = write_caches(tree);
        if (!error)
                error = write_aliases(tree);
        if (error)
                remove_all(tree);
        close(tree);
        return error;
}
