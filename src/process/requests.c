/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Honours requests from outside, with cache_mutex. A single thread does so at a time. It only tries
 * the mutex: its holder, possibly the caller itself, may be in the middle of anything, and the next
 * slow path comes soon.
 *
 * Readers write a request's fields, then its state, then registry->asked; this file reads them in
 * the reverse order. A request is taken before it is copied, and done only if it is still taken
 * after the copy. A reader that found it pending a moment before, and changes it, clears its state
 * first. So the copy of a request that is still taken is whole, and a request that came in its
 * place is not marked as done.
 *
 * A signal handler that interrupts the work may fork (process/fork.c). The child goes on here, and
 * must not take away the mark by which its next slow path leaves its parent's registry (REG-2).
 */
#include "process/requests.h"

#include "heap/heap.h"
#include "heap/reclaim.h"
#include "base/options.h"
#include "introspect/attributes.h"
#include "introspect/counters.h"
#include "introspect/profile.h"
#include "introspect/totals.h"
#include "lang/number.h"
#include "profile/sample.h"

#include <errno.h>
#include <string.h>

static const char FREE_PARTS[] = "free_parts";

static bool change_state(struct registry_request *request, uint32_t from, uint32_t to)
{
        return compare_swap(&request->state, &from, to);
}

/*
 * Takes the oldest pending request beyond @after, which moves on to it, or returns NULL. The copy's
 * state tells whether the request was taken. It was not if a reader has come between; the reader
 * raises registry->asked once its change is done.
 */
static struct registry_request *take_request(uint64_t *after, struct registry_request *copy)
{
        struct registry_request *oldest = NULL;
        uint64_t least = UINT64_MAX;

        for (unsigned int i = 0; i < REGISTRY_REQUESTS; i++) {
                struct registry_request *request = &registry_head()->requests[i];
                uint64_t number = load_relaxed(&request->number);

                /* Acquire, with the release of the request's writer: its fields are whole. */
                if (load_acquire(&request->state) == REQUEST_PENDING && number > *after &&
                    number < least) {
                        oldest = request;
                        least = number;
                }
        }
        if (!oldest)
                return NULL;
        *after = least;
        copy->state = REQUEST_NONE;
        if (!change_state(oldest, REQUEST_PENDING, REQUEST_TAKEN))
                return oldest;
        memcpy(copy, oldest, sizeof(*copy));
        /* The copy is complete before the state is looked at again: a writer clears it first. */
        __atomic_thread_fence(__ATOMIC_ACQUIRE);
        copy->state = load_relaxed(&oldest->state);
        copy->attribute[sizeof(copy->attribute) - 1] = '\0';
        copy->value[sizeof(copy->value) - 1] = '\0';
        return oldest;
}

static struct kmem_cache *cache_born_locked(uint64_t birth)
{
        struct list *node;

        list_for_each (node, &cache_list) {
                struct kmem_cache *cache = container_of(node, struct kmem_cache, list);

                if (cache->birth == birth)
                        return cache;
        }
        return NULL;
}

/* Updates the figures that cost a walk. */
static void refresh_locked(struct kmem_cache *cache)
{
        struct registry_cache *figures = cache->figures;
        struct cpu_partial_figures partial;
        struct cache_totals totals;

        if (!figures)
                return;
        cache_total(cache, &totals);
        cpu_partial_sum(cache, &partial);
        for (unsigned int node = 0; node < system_nodes(); node++) {
                const struct engine_node_report *report = &totals.report.node[node];

                store_relaxed(&figures->node[node].listed_free, report->listed_free);
                store_relaxed(&figures->node[node].objects_partial, report->partial_inuse);
                store_relaxed(&figures->node[node].cpu_slabs, report->cpu_slabs);
        }
        store_relaxed(&figures->objects_inuse, totals.inuse);
        store_relaxed(&figures->cpu_partial_objects, partial.objects);
        store_relaxed(&figures->cpu_partial_slabs, partial.slabs);
        /* Release: a reader that sees the new number (acquire) sees these figures. */
        store_release(&figures->refreshed, figures->refreshed + 1);
}

/*
 * The answers to "free_parts": bytes that "trim" would give back out of the cache's slabs if the
 * sheaves stayed full; to "free_parts_sheaves": if they did not, as far as marks tell; and to
 * "free_parts_N": bytes of free parts of N pages, a power of two up to the largest slab's. Requests
 * of a name replace each other if their values differ, so all is a part of the name.
 */
static int honour_free_parts_locked(struct registry_request *request, const char *which)
{
        struct kmem_cache *cache = cache_born_locked(request->birth);
        bool in_sheaves = strcmp(which, "_sheaves") == 0;
        bool due_only = !*which || in_sheaves;
        uint64_t pages = 1;

        if (!cache || (!due_only && (*which != '_' || !number_whole(which + 1, &pages))))
                return ENOENT;
        if (!cache->engine->free_parts || pages == 0 || pages > CHUNK_PAGES || pages & (pages - 1))
                return EINVAL;
        request->result = cache_free_parts(
                cache, max_of((size_t)pages << PAGE_SHIFT, (size_t)system_page_bytes()), due_only,
                in_sheaves);
        return 0;
}

static int honour_attribute_locked(const struct registry_request *request)
{
        const struct attribute *attribute = find_attribute(request->attribute);
        struct kmem_cache *cache = cache_born_locked(request->birth);

        if (!request->birth && attribute && attribute->store == store_guard_sampling)
                return guards_set_locked(request->value);
        if (!cache)
                return ENOENT;
        if (strcmp(request->attribute, "refresh") == 0) {
                refresh_locked(cache);
                return 0;
        }
        if (!attribute || !attribute_exists(attribute, cache))
                return ENOENT;
        /*
         * Only the program itself may set this attribute: its checks may end the program, and it
         * counts for the program.
         */
        if (!attribute->outside)
                return EIO;
        return attribute_store_locked(attribute, cache, request->value);
}

/* Sets a profile's value; an empty request restores the program's @own. */
static int honour_profile_locked(const struct registry_request *request, uint64_t own,
                                 int (*set_locked)(uint64_t value))
{
        uint64_t value = own;
        int error;

        if (request->value[0] && !number_whole(request->value, &value))
                return EINVAL;
        error = set_locked(value);
        if (!error)
                profile_renew_locked();
        return error;
}

/*
 * Honours all pending requests. The reclaim thread may be the caller, so only the simplest
 * functions of libc may be called.
 */
static void honour(void)
{
        static KMEM_SPARSE struct registry_request
                copy; /* under cache_mutex; a stack may be small */
        struct registry_request *request;
        int saved_errno = errno;
        uint32_t *place = load_relaxed(&registry_seen);
        uint32_t seen = load_relaxed(place);
        uint64_t number = 0;
        uint32_t asked;

        if (!seen || load_acquire(&heap_state) != HEAP_READY || !lock_try(&cache_mutex))
                return;
        /*
         * Loaded before the search, so the next slow path finds a request that comes during it.
         * Acquire, with the release of the request's writer.
         */
        asked = load_acquire(&registry_head()->asked);
        /*
         * At most as many requests as there are places: a writer without end must not keep a slow
         * path here.
         */
        for (unsigned int i = 0; i < REGISTRY_REQUESTS; i++) {
                request = take_request(&number, &copy);
                if (!request)
                        break;
                if (copy.state != REQUEST_TAKEN)
                        continue;
                copy.result = 0;
                if (strcmp(copy.attribute, "trim") == 0) {
                        copy.result = heap_trim_locked();
                        copy.error = 0;
                } else if (strcmp(copy.attribute, "profile_interval") == 0) {
                        copy.error = honour_profile_locked(&copy, options.profile_interval,
                                                           profile_set_locked);
                } else if (strcmp(copy.attribute, "profile_slices") == 0) {
                        copy.error = honour_profile_locked(&copy, options.profile_slices,
                                                           profile_slices_set_locked);
                } else if (strncmp(copy.attribute, FREE_PARTS, strlen(FREE_PARTS)) == 0) {
                        copy.error = honour_free_parts_locked(&copy,
                                                              copy.attribute + strlen(FREE_PARTS));
                } else {
                        copy.error = honour_attribute_locked(&copy);
                }
                store_relaxed(&request->error, copy.error);
                store_relaxed(&request->result, copy.result);
                change_state(request, REQUEST_TAKEN, REQUEST_DONE);
        }
        /*
         * 0 marks a child. A single step, so no fork comes between the look for the mark and the
         * store.
         */
        if (compare_swap(place, &seen, asked ? asked : 1) && !asked)
                store_relaxed(&registry_head()->asked, 1u);
        lock_drop(&cache_mutex);
        errno = saved_errno;
}

void requests_init(void)
{
        registry_honour = honour;
        profile_end_lease = profile_lease_over;
}
