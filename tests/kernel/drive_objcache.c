/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * The model of the object cache: a medium with the size of each object, the size that it must
 * show (newer than the medium's while it is dirty), and attributes, which live as long as it
 * stays cached: the medium sees when it is read in anew.
 */
#include "driver.h"
#include "objcache.h"

#include <linux/err.h>

#include <errno.h>
#include <stdio.h>
#include <string.h>

enum { NUMBERS = 1500, HELD = 200, ATTRIBUTES = 3, BYTES_MAX = 300, BAD_NUMBER = 97 };

struct attribute {
        bool set;
        uint32_t bytes;
        uint8_t seed;
};

static uint64_t medium[NUMBERS];
static uint64_t sizes[NUMBERS];
static struct attribute attributes[NUMBERS][ATTRIBUTES];
static unsigned int references[NUMBERS];
static struct obj *held[HELD];
static uint64_t reads;
static uint64_t given_up;

static int medium_read(unsigned long long number, unsigned long long *size)
{
        if (number % BAD_NUMBER == BAD_NUMBER - 1)
                return -EIO;
        check(references[number] == 0);
        *size = medium[number];
        memset(attributes[number], 0, sizeof(attributes[number]));
        reads++;
        return 0;
}

static void medium_write(unsigned long long number, unsigned long long size)
{
        check(size == sizes[number]);
        medium[number] = size;
}

static const struct obj_store store = {.read = medium_read, .write = medium_write};

static void name_of(unsigned int attribute, char *name)
{
        snprintf(name, 32, "user.attribute-%u", attribute);
}

static void check_attribute(struct obj *obj, unsigned int which)
{
        const struct attribute *is = &attributes[obj_number(obj)][which];
        uint32_t bytes = 0;
        uint8_t *value;
        char name[32];

        name_of(which, name);
        value = obj_attribute(obj, name, &bytes);
        check((value != NULL) == is->set && obj_has_attribute(obj, name) == is->set);
        if (value) {
                check(bytes == is->bytes);
                for (uint32_t i = 0; i < bytes; i++)
                        check(value[i] == (uint8_t)(is->seed + i));
        }
        kfree(value);
}

static void check_object(struct obj *obj)
{
        unsigned int count = 0;

        check(obj_size(obj) == sizes[obj_number(obj)]);
        for (unsigned int i = 0; i < ATTRIBUTES; i++) {
                check_attribute(obj, i);
                count += attributes[obj_number(obj)][i].set;
        }
        check(obj_attributes(obj) == count);
}

static void set_attribute(struct random *random, struct obj *obj)
{
        unsigned int which = below(random, ATTRIBUTES);
        struct attribute *is = &attributes[obj_number(obj)][which];
        uint8_t value[BYTES_MAX];
        char name[32];

        name_of(which, name);
        if (below(random, 4) == 0) {
                check(obj_set_attribute(obj, name, NULL, 0) == (is->set ? 0 : -ENODATA));
                is->set = false;
                return;
        }
        *is = (struct attribute){true, below(random, BYTES_MAX), (uint8_t)below(random, 256)};
        for (uint32_t i = 0; i < is->bytes; i++)
                value[i] = (uint8_t)(is->seed + i);
        check(obj_set_attribute(obj, name, value, is->bytes) == 0);
}

static void let_go(unsigned int place)
{
        if (!held[place])
                return;
        references[obj_number(held[place])]--;
        obj_put(held[place]);
        held[place] = NULL;
}

static void take(struct random *random, unsigned int place, unsigned int number)
{
        struct obj *obj = below(random, 4) ? obj_get(number) : obj_find(number);

        if (number % BAD_NUMBER == BAD_NUMBER - 1) {
                check(!obj || PTR_ERR(obj) == -EIO);
                return;
        }
        if (!obj) {
                check(references[number] == 0);
                return;
        }
        check(!IS_ERR(obj) && obj_number(obj) == number);
        references[number]++;
        check_object(obj);
        let_go(place);
        held[place] = obj;
}

static unsigned int held_count(void)
{
        unsigned int count = 0;

        for (unsigned int i = 0; i < NUMBERS; i++)
                count += references[i] != 0;
        return count;
}

static void shrink(unsigned long count)
{
        unsigned long unused = obj_unused();
        unsigned long freed = obj_shrink(count);

        check(freed == (count < unused ? count : unused));
        given_up += freed;
        check(obj_cached() == reads - given_up);
        check(obj_cached() >= held_count());
}

static void step(struct random *random, uint64_t operation)
{
        unsigned int place = below(random, HELD);
        unsigned int which = below(random, 100);
        struct obj *obj = held[place];

        if (which < 40 || !obj) {
                take(random, place, below(random, NUMBERS));
        } else if (which < 60) {
                let_go(place);
        } else if (which < 75) {
                sizes[obj_number(obj)] = random_next(random);
                obj_resize(obj, sizes[obj_number(obj)]);
        } else if (which < 90) {
                set_attribute(random, obj);
        } else if (which < 95) {
                obj_put(obj_hold(obj));
                check_object(obj);
        } else if (which < 98) {
                unsigned long dirty = obj_dirty();
                unsigned int count = below(random, 50);

                check(obj_write_back(count) == (count < dirty ? count : dirty));
        } else {
                shrink(below(random, 40));
        }
        if (operation % 30000 == 0) {
                obj_write_back(NUMBERS);
                check(obj_dirty() == 0);
                shrink(NUMBERS);
                check(obj_cached() == held_count());
        }
}

void drive_objcache(uint64_t operations, struct random *random)
{
        obj_set_store(&store);
        for (uint64_t operation = 1; operation <= operations; operation++)
                step(random, operation);
        for (unsigned int i = 0; i < HELD; i++)
                let_go(i);
        obj_write_back(NUMBERS);
        check(memcmp(medium, sizes, sizeof(sizes)) == 0);
}
