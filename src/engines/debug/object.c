/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * An object's red zones and poison: writes them, and checks that they are unchanged.
 */
#include "engines/debug/object.h"

#include <string.h>

void object_init(const struct kmem_cache *cache, void *object, bool active)
{
        uint8_t *bytes = object;
        uint8_t red = active ? RED_ACTIVE : RED_INACTIVE;

        if (has_flag(cache, SLAB_RED_ZONE)) {
                memset(bytes - cache->red_left_pad, red, cache->red_left_pad);
                memset(bytes + cache->object_size, red, cache->inuse - cache->object_size);
        }
        if (poisons_objects(cache)) {
                memset(bytes, POISON_FREE, cache->object_size - 1);
                bytes[cache->object_size - 1] = POISON_END;
        }
}

void track_set(const struct debug_report *report, void *object, enum track_item item)
{
        struct track *track = object_track(report->cache, object, item);

        if (!has_flag(report->cache, SLAB_STORE_USER))
                return;
        track->address = report->caller.address;
        track->stack = report->caller.stack;
        track->cpu = (int32_t)system_current_cpu();
        track->pid = (int32_t)system_thread_id_known();
        track->when_ms = system_time_ms();
}

uint8_t *first_other(uint8_t *start, uint8_t value, size_t bytes)
{
        if (!bytes || (start[0] == value && memcmp(start, start + 1, bytes - 1) == 0))
                return NULL;
        while (*start == value)
                start++;
        return start;
}

/* Checks that bytes have their value; else reports and restores them. */
static bool bytes_check(struct debug_report *report, struct page *slab, void *object,
                        const char *what, uint8_t *start, uint8_t value, size_t bytes,
                        bool show_object)
{
        uint8_t *fault = first_other(start, value, bytes);
        uint8_t *last = start + bytes - 1;

        if (likely(!fault))
                return true;
        while (*last == value)
                last--;
        report_count(report);
        report_add(report,
                   "[%s overwritten] 0x%016lx-0x%016lx @offset=%zu. First byte 0x%x instead of "
                   "0x%x\n",
                   what, (unsigned long)(uintptr_t)fault, (unsigned long)(uintptr_t)last,
                   (uintptr_t)fault - (uintptr_t)page_address(slab), *fault, value);
        if (show_object)
                report_show(report, slab, object, "Object corrupt");
        report_fix(report, "Restoring %s 0x%016lx-0x%016lx=0x%x", what,
                   (unsigned long)(uintptr_t)fault, (unsigned long)(uintptr_t)last, value);
        memset(fault, value, (size_t)(last - fault) + 1);
        return false;
}

/* The check of an object: its values, and whether all was right so far. */
struct check {
        struct debug_report *report;
        struct page *slab;
        uint8_t *object;
        bool right;
};

/* The object is shown with the first of its errors only (S10-10). */
static void check_range(struct check *check, const char *what, size_t from, size_t to,
                        uint8_t value)
{
        if (!bytes_check(check->report, check->slab, check->object, what, check->object + from,
                         value, to - from, check->right))
                check->right = false;
}

static void check_red_zones(struct check *check, bool active)
{
        const struct kmem_cache *cache = check->report->cache;
        uint8_t red = active ? RED_ACTIVE : RED_INACTIVE;

        check->object -= cache->red_left_pad;
        if (!bytes_check(check->report, check->slab, check->object + cache->red_left_pad,
                         "Left Redzone", check->object, red, cache->red_left_pad, check->right))
                check->right = false;
        check->object += cache->red_left_pad;
        check_range(check, "Right Redzone", cache->object_size, cache->inuse, red);
        if (active)
                check_range(check, "kmalloc Redzone", debug_request(cache, check->object),
                            cache->object_size, RED_ACTIVE);
}

static void check_poison(struct check *check, bool active)
{
        const struct kmem_cache *cache = check->report->cache;

        if (!active && poisons_objects(cache)) {
                check_range(check, "Poison", 0, cache->object_size - 1, POISON_FREE);
                check_range(check, "End Poison", cache->object_size - 1, cache->object_size,
                            POISON_END);
        }
        check_range(check, "Object padding", padding_offset(cache), padding_end(cache),
                    POISON_INUSE);
}

/* In an object in use, the program's own data lie in the place of an inner free pointer. */
static void check_free_pointer(struct check *check, bool active)
{
        const struct kmem_cache *cache = check->report->cache;
        void **place = free_pointer_place(cache, check->object);

        if ((active && !free_pointer_is_outside(cache)) || !*place ||
            slub_index(cache, check->slab, slab_objects(check->slab), *place) != INDEX_END)
                return;
        report_error(check->report, check->slab, check->object, "Freepointer corrupt");
        *place = NULL;
        check->right = false;
}

bool object_check(struct debug_report *report, struct page *slab, void *object, bool active)
{
        const struct kmem_cache *cache = report->cache;
        struct check check = {report, slab, object, true};

        if (has_flag(cache, SLAB_RED_ZONE))
                check_red_zones(&check, active);
        else if (has_flag(cache, SLAB_POISON))
                check_range(&check, "Alignment padding", cache->object_size, cache->inuse,
                            POISON_INUSE);
        if (has_flag(cache, SLAB_POISON))
                check_poison(&check, active);
        check_free_pointer(&check, active);
        return check.right;
}
