/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * The model of the name cache: for each of a fixed set of names the inode number, or 0. A lookup of
 * every name shows which names nc_prune forgot.
 */
#include "driver.h"
#include "namecache.h"

#include <errno.h>
#include <stdio.h>

enum { NAMES = 2000, HELD = 50, INO_MARK = 0x5eed };

static uint64_t expected[NAMES];
static unsigned int expected_count;
static uint64_t next_ino;
static struct {
        struct nc_entry *entry;
        uint64_t ino;
} held[HELD];

/* Names of all lengths, so that some lie in the entry and some beside it. */
static uint64_t name_of(unsigned int number, char *name)
{
        int length = snprintf(name, 256, "name-%u", number);

        if (number % 3 == 0)
                snprintf(name + length, 256 - (size_t)length, "%0*u", (int)(number % 200), number);
        return number % 7;
}

static uint64_t look_up(unsigned int number)
{
        char name[256];
        uint64_t parent = name_of(number, name);

        return nc_lookup(parent, name);
}

static void add(unsigned int number)
{
        char name[256];
        uint64_t parent = name_of(number, name);
        uint64_t ino = ++next_ino << 16 | INO_MARK;
        int error = nc_add(parent, name, ino);

        check(error == (expected[number] ? -EEXIST : 0));
        if (!error) {
                expected[number] = ino;
                expected_count++;
        }
}

static void take_away(unsigned int number)
{
        char name[256];
        uint64_t parent = name_of(number, name);

        check(nc_remove(parent, name) == (expected[number] ? 0 : -ENOENT));
        expected_count -= expected[number] != 0;
        expected[number] = 0;
}

static void change_name(unsigned int from, unsigned int to)
{
        char name[256];
        char new_name[256];
        uint64_t parent = name_of(from, name);
        uint64_t new_parent = name_of(to, new_name);
        int error = nc_rename(parent, name, new_parent, new_name);

        if (!expected[from]) {
                check(error == -ENOENT);
        } else if (expected[to]) {
                check(error == -EEXIST);
        } else {
                check(error == 0);
                expected[to] = expected[from];
                expected[from] = 0;
        }
}

/* A held entry keeps its number, whatever happens to its name. */
static void change_hold(unsigned int place, unsigned int number)
{
        char name[256];
        uint64_t parent = name_of(number, name);

        if (held[place].entry) {
                check(nc_ino(held[place].entry) == held[place].ino);
                nc_put(held[place].entry);
        }
        held[place].entry = nc_get(parent, name);
        held[place].ino = expected[number];
        check((held[place].entry != NULL) == (expected[number] != 0));
        if (held[place].entry) {
                check(nc_ino(held[place].entry) == expected[number]);
                check(nc_is(held[place].entry, parent, name));
                nc_put(nc_hold(held[place].entry));
        }
}

static void prune(unsigned long count)
{
        unsigned long pruned = nc_prune(count);
        unsigned int found = 0;

        check(pruned <= count && pruned <= expected_count);
        check(nc_count() == expected_count - pruned);
        for (unsigned int i = 0; i < NAMES; i++) {
                uint64_t ino = look_up(i);

                check(ino == 0 || ino == expected[i]);
                expected[i] = ino;
                found += ino != 0;
        }
        check(found == expected_count - pruned);
        expected_count = found;
}

static void look(struct random *random)
{
        uint64_t ino = look_up(below(random, NAMES));

        check(ino == 0 || (ino & 0xffff) == INO_MARK);
}

static void step(struct random *random, uint64_t operation)
{
        unsigned int number = below(random, NAMES);
        unsigned int which = below(random, 100);

        if (which < 45)
                check(look_up(number) == expected[number]);
        else if (which < 70)
                add(number);
        else if (which < 83)
                take_away(number);
        else if (which < 93)
                change_name(number, below(random, NAMES));
        else
                change_hold(below(random, HELD), number);
        if (operation % 20000 == 0)
                prune(below(random, NAMES));
        if (operation % 50000 == 0) {
                prune(NAMES);
                prune(NAMES);
                nc_shrink();
        }
}

void drive_namecache(uint64_t operations, struct random *random)
{
        readers_start(look);
        for (uint64_t operation = 1; operation <= operations; operation++)
                step(random, operation);
        readers_stop();
        check(nc_count() == expected_count);
        for (unsigned int i = 0; i < HELD; i++)
                nc_put(held[i].entry);
        check(nc_entries() == expected_count);
}
