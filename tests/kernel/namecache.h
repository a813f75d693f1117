/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * A cache of names: (directory, name) to inode number, looked up without locks.
 */
#ifndef TESTS_KERNEL_NAMECACHE_H
#define TESTS_KERNEL_NAMECACHE_H

#include <linux/types.h>

struct nc_entry;

/* Adds a name; -EEXIST, -ENAMETOOLONG, -ENOMEM. */
int nc_add(u64 parent, const char *name, u64 ino);
/* Forgets a name; -ENOENT. Whoever holds a reference keeps the entry. */
int nc_remove(u64 parent, const char *name);
/* Gives an entry another name; -ENOENT, -EEXIST, -ENAMETOOLONG, -ENOMEM. */
int nc_rename(u64 parent, const char *name, u64 new_parent, const char *new_name);

/* Finds a name without any lock of the table, and takes a reference; NULL: not cached. */
struct nc_entry *nc_get(u64 parent, const char *name);
struct nc_entry *nc_hold(struct nc_entry *entry);
void nc_put(struct nc_entry *entry);
u64 nc_ino(const struct nc_entry *entry);
/* Whether the entry still has this name. */
bool nc_is(struct nc_entry *entry, u64 parent, const char *name);
/* nc_get, nc_ino and nc_put in a single call; 0: not cached. */
u64 nc_lookup(u64 parent, const char *name);

/* Forgets up to @count names that have not been looked up lately; returns how many. */
unsigned long nc_prune(unsigned long count);
/* Gives empty slabs back. */
void nc_shrink(void);
unsigned long nc_count(void);
/* Entries that exist, including entries that are only referenced. */
unsigned long nc_entries(void);

#endif
