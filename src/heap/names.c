/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * The names of caches: their own names, their aliases (S4-43), and the unique ids of caches that
 * may be merged (S4-45).
 *
 * An alias is a name only. It stays until its cache ends, since a destroyed alias does not tell its
 * name, or until a cache of its own takes the name.
 */
#define _GNU_SOURCE
#include "heap/heap.h"

#include "base/metadata.h"
#include "lang/text.h"

#include <string.h>

struct list alias_list = {&alias_list, &alias_list};

static struct cache_alias *find_alias_locked(const char *name)
{
        struct list *node;

        list_for_each (node, &alias_list) {
                struct cache_alias *alias = container_of(node, struct cache_alias, list);

                if (strcmp(alias->name, name) == 0)
                        return alias;
        }
        return NULL;
}

static struct kmem_cache *find_own_name_locked(const char *name)
{
        struct list *node;

        list_for_each (node, &cache_list) {
                struct kmem_cache *cache = container_of(node, struct kmem_cache, list);

                if (strcmp(cache->name, name) == 0)
                        return cache;
        }
        return NULL;
}

static void alias_end(struct cache_alias *alias)
{
        list_remove(&alias->list);
        metadata_free(alias, sizeof(*alias));
}

bool alias_add_locked(struct kmem_cache *cache, const char *name)
{
        struct kmem_cache *other;
        struct cache_alias *alias;

        other = find_own_name_locked(name);
        if (other)
                return other == cache;
        alias = find_alias_locked(name);
        if (!alias) {
                alias = metadata_alloc(sizeof(*alias));
                if (!alias)
                        return false;
                strncpy(alias->name, name, sizeof(alias->name) - 1);
                list_add_tail(&alias->list, &alias_list);
        }
        alias->cache = cache;
        return true;
}

void alias_remove_locked(const char *name)
{
        struct cache_alias *alias = find_alias_locked(name);

        if (alias)
                alias_end(alias);
}

void alias_remove_all_locked(const struct kmem_cache *cache)
{
        struct list *node = alias_list.next;

        while (node != &alias_list) {
                struct cache_alias *alias = container_of(node, struct cache_alias, list);

                node = node->next;
                if (alias->cache == cache)
                        alias_end(alias);
        }
}

static void unique_id(const struct kmem_cache *cache, char id[CACHE_NAME_BYTES])
{
        char letters[8];
        unsigned int count = 0;

        if (cache->flags & SLAB_CACHE_DMA)
                letters[count++] = 'd';
        if (cache->flags & SLAB_CACHE_DMA32)
                letters[count++] = 'D';
        if (cache->flags & SLAB_RECLAIM_ACCOUNT)
                letters[count++] = 'a';
        if (cache->flags & SLAB_CONSISTENCY_CHECKS)
                letters[count++] = 'F';
        if (cache->flags & SLAB_ACCOUNT)
                letters[count++] = 'A';
        if (count)
                letters[count++] = '-';
        letters[count] = '\0';
        *id++ = ':';
        text_number(stpcpy(id, letters), cache->size, 7);
}

/* The newest mergeable cache of an id: there are several only if their engines differ. */
static struct kmem_cache *find_id_locked(const char *id)
{
        struct list *node;

        list_for_each (node, &cache_list) {
                struct kmem_cache *cache = container_of(node, struct kmem_cache, list);
                char own[CACHE_NAME_BYTES];

                if (!cache_is_mergeable(cache))
                        continue;
                unique_id(cache, own);
                if (strcmp(own, id) == 0)
                        return cache;
        }
        return NULL;
}

void cache_place_locked(const struct kmem_cache *cache, char place[CACHE_NAME_BYTES])
{
        if (cache_is_mergeable(cache)) {
                unique_id(cache, place);
                if (find_id_locked(place) == cache)
                        return;
        }
        memcpy(place, cache->name, CACHE_NAME_BYTES);
}

struct kmem_cache *cache_named_locked(const char *name)
{
        struct kmem_cache *cache = find_own_name_locked(name);
        const struct cache_alias *alias;

        if (cache)
                return cache;
        alias = find_alias_locked(name);
        return alias ? alias->cache : find_id_locked(name);
}
