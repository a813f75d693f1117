/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Slabs are made, released and used again; chunks are given to classes.
 *
 * A new slab is drawn from the next few places of its class's chunk, a new chunk from a window of chunks. A guard page
 * on both sides is there before a slab's first object is handed out. Where the system has guards in mappings
 * (MADV_GUARD_INSTALL, Linux 6.13), a chunk's accessible part is a single mapping. Elsewhere each slab becomes a
 * mapping of its own until GUARDS_MOST slabs have used up a third of the mappings that a process may have; later
 * slabs of a chunk are accessible with the pages between them, and only chunks have guards.
 */
#include "engines/hardened/hardened.h"

#include "base/options.h"
#include "lang/bits.h"
#include "machine/system.h"

enum {
        COMMIT_BYTES = 256 << 10,
        GUARDS_MOST = 10000,
        EMPTY_BYTES = 4 << 20, /* of empty slabs that pools keep in any case */
        MOST_NEW = 7,          /* eighths of all slabs that may be empty, */
        MOST_OLD = 4,          /* and for longer than purge_delay */
        RELEASED_AT_ONCE = 2,
        PARTIAL_LOOKED_AT = 4,
};

/* The chunk from which a class takes its new slabs; under hardened_grow_lock. */
static KMEM_SPARSE struct growth {
        char *chunk; /* NULL: none yet */
        char *records;
        uint32_t front;          /* all places below were used */
        uint32_t used;           /* a bit for each place from front on */
        size_t accessible_bytes; /* behind the chunk's first guard */
} growths[HARDENED_CLASSES];

static struct {
        uint32_t window;      /* the first chunk that classes draw from now */
        uint32_t drawn;       /* chunks of the window that are in use */
        uint32_t chunks;      /* in use, of all windows */
        uint32_t guards;      /* mappings that slabs have made */
        size_t records_bytes; /* accessible */
} grown;

struct lock hardened_grow_lock;

static bool records_make_room(uint32_t chunks)
{
        size_t wanted = chunks * hardened.chunk_records_bytes;
        size_t bytes = round_up(wanted, COMMIT_BYTES) - grown.records_bytes;

        if (wanted <= grown.records_bytes)
                return true;
        if (!system_commit(hardened.records + grown.records_bytes, bytes))
                return false;
        grown.records_bytes += bytes;
        return true;
}

/* HARD-1: the entry of a chunk in use never changes. */
static bool chunk_take_locked(struct pool *pool, struct growth *growth, uint32_t class)
{
        uint32_t chunks = (uint32_t)(hardened.bytes >> hardened.chunk_shift);
        uint32_t number;

        if (grown.drawn == hardened.window_chunks) {
                /* Relaxed: hardened_chunks_end only bounds a walk. */
                store_relaxed(&grown.window, grown.window + hardened.window_chunks);
                grown.drawn = 0;
        }
        if (grown.window + hardened.window_chunks > chunks || !records_make_room(grown.chunks + 1))
                return false;
        number = pool_random(pool, hardened.window_chunks);
        while (hardened.chunks[grown.window + number])
                number = (number + 1) % hardened.window_chunks;
        number += grown.window;
        *growth = (struct growth){
                .chunk = (char *)hardened.base + ((size_t)number << hardened.chunk_shift),
                .records = hardened.records + grown.chunks * hardened.chunk_records_bytes,
        };
        /* Release: pairs with the acquire in hardened_place_of. */
        store_release(&hardened.chunks[number], chunk_entry(growth->records, class));
        grown.chunks++;
        grown.drawn++;
        return true;
}

/* Draws a place that was not used yet; there is one. */
static uint32_t draw_place_locked(struct pool *pool, struct growth *growth, uint32_t slabs)
{
        uint32_t places = min_of(slabs - growth->front, (uint32_t)HARDENED_PLACES);
        uint32_t place = pool_random(pool, places);

        while (growth->used >> place & 1)
                place = (place + 1) % places;
        return place;
}

static void use_place_locked(struct growth *growth, uint32_t place)
{
        growth->used |= 1u << place;
        for (; growth->used & 1; growth->used >>= 1)
                growth->front++;
}

static bool guard_page(char *page)
{
        if (system_guard(page, system_page_bytes()))
                return true;
        /* Locked memory takes no guards in mappings. */
        return grown.guards < GUARDS_MOST && ++grown.guards &&
               system_close(page, system_page_bytes());
}

static struct slab_record *record_at(const struct growth *growth,
                                     const struct hardened_class *class, uint32_t place)
{
        return (struct slab_record *)(void *)(growth->records + place * class->record_bytes);
}

/* The guard behind a place, once. Without it the process goes on: HARD-2. */
static void guard_behind(const struct growth *growth, const struct hardened_class *class,
                         uint32_t place)
{
        struct slab_record *record = record_at(growth, class, place);

        if (!record->guarded)
                record->guarded = guard_page(growth->chunk + ((size_t)place + 1) * class->stride);
}

/* All up to the end of a place becomes accessible, in steps: each doubles what there is, as a step is two calls. */
static bool open_by_steps(struct growth *growth, const struct hardened_class *class, uint32_t place)
{
        char *first = growth->chunk + system_page_bytes();
        size_t wanted = ((size_t)place + 1) * class->stride;
        size_t all = (size_t) class->slabs * class->stride;
        size_t steps = max_of(round_up(wanted, COMMIT_BYTES), 2 * growth->accessible_bytes);
        size_t bytes = min_of(steps, all);

        if (wanted > growth->accessible_bytes) {
                if (!system_commit(first + growth->accessible_bytes,
                                   bytes - growth->accessible_bytes))
                        return false;
                growth->accessible_bytes = bytes;
        }
        if (place)
                guard_behind(growth, class, place - 1);
        guard_behind(growth, class, place);
        return true;
}

static bool open_alone(struct growth *growth, const struct hardened_class *class, uint32_t place)
{
        char *start = growth->chunk + system_page_bytes() + (size_t)place * class->stride;
        bool alone = grown.guards < GUARDS_MOST;

        grown.guards += alone;
        return system_commit(start, alone ? class->slab_bytes : class->stride);
}

static void record_begin(struct slab_record *record, const struct hardened_class *class)
{
        uint8_t *loose = record_loose(record, class);

        for (uint32_t index = 0; index < class->objects; index++)
                loose[index] = (uint8_t)index;
        record->free = class->objects;
}

/*
 * Small objects are drawn from all pages of a slab, so the program soon touches each. Objects of a page or more are left
 * to it, as it may never touch all of them.
 */
static void populate(const struct slab_record *record, const struct hardened_class *class)
{
        if (class->size < hardened.page_bytes)
                system_populate(record->start, class->slab_bytes);
}

/* A slab where no slab was before. */
static struct slab_record *slab_new(struct pool *pool, uint32_t arena, uint32_t number)
{
        const struct hardened_class *class = &hardened.classes[number];
        struct growth *growth = &growths[number];
        struct slab_record *record = NULL;
        uint32_t drawn, place;
        bool opened;

        lock_take(&hardened_grow_lock);
        if ((growth->chunk && growth->front < class->slabs) ||
            chunk_take_locked(pool, growth, number)) {
                drawn = draw_place_locked(pool, growth, class->slabs);
                place = growth->front + drawn;
                /* HARD-7: class 0 never has memory. */
                opened = number == 0 || (hardened.has_guards ? open_by_steps(growth, class, place)
                                                             : open_alone(growth, class, place));
                if (opened) {
                        record = record_at(growth, class, place);
                        record_begin(record, class);
                        record->pool = pool;
                        record->arena = (uint8_t)arena;
                        record->number = (uint8_t)number;
                        /* A string that is a byte too long, with its 0, must harm the canary. */
                        record->canary = stream_word(&pool->random, hardened.key) | 1;
                        store_release(&record->start, growth->chunk + system_page_bytes() +
                                                              (size_t)place * class->stride);
                        use_place_locked(growth, drawn);
                }
        }
        lock_drop(&hardened_grow_lock);
        return record;
}

static struct slab_record *record_of(struct list *node)
{
        return container_of(node, struct slab_record, list);
}

static struct slab_record *unlink_locked(struct list *node)
{
        struct slab_record *record = record_of(node);

        list_remove(node);
        record->place = SLAB_LOOSE;
        return record;
}

/* One of the first few, drawn. */
static struct slab_record *draw_from(struct pool *pool, struct list *list)
{
        struct list *node = list->next;

        for (uint32_t steps = pool_random(pool, PARTIAL_LOOKED_AT); steps; steps--)
                node = node->next != list ? node->next : list->next;
        return unlink_locked(node);
}

/* A slab of the pool gets memory, or loses it. */
static void count_slab(struct pool *pool, const struct hardened_class *class, bool comes)
{
        uint64_t bytes = class->slab_bytes;

        add_owned(&pool->slabs, comes ? 1ul : -1ul);
        add_relaxed(&hardened_figures.slab_bytes, comes ? bytes : -bytes);
        hardened_show();
}

static void release_locked(struct pool *pool, struct slab_record *record)
{
        const struct hardened_class *class = &hardened.classes[record->number];

        record->closed = hardened.has_guards && system_guard(record->start, class->slab_bytes);
        if (!record->closed)
                system_purge(record->start, class->slab_bytes);
        record->place = SLAB_RELEASED;
        list_add_tail(&record->list, &pool->released);
        count_slab(pool, class, false);
}

static struct slab_record *use_again_locked(struct pool *pool)
{
        struct slab_record *record = draw_from(pool, &pool->released);
        uint32_t bytes = hardened.classes[record->number].slab_bytes;

        if (record->closed && !system_unguard(record->start, bytes)) {
                record->place = SLAB_RELEASED;
                list_add(&record->list, &pool->released);
                return NULL;
        }
        record->closed = false;
        return record;
}

static void pool_begin(struct pool *pool)
{
        list_init(&pool->partial);
        list_init(&pool->empty);
        list_init(&pool->released);
        pool->random.nonce = (uint64_t)(pool - hardened.pools) + 1;
}

/* An empty slab leaves its list. */
static struct slab_record *take_empty_locked(struct list *node)
{
        struct slab_record *record = unlink_locked(node);

        if (record->number)
                sub_relaxed(&hardened_figures.empty_bytes,
                            (uint64_t)hardened.classes[record->number].slab_bytes);
        return record;
}

struct slab_record *slab_get_locked(struct pool *pool, uint32_t arena, uint32_t class)
{
        struct slab_record *record = NULL;

        if (unlikely(!pool->partial.next))
                pool_begin(pool);
        if (pool->partial.next != &pool->partial)
                return draw_from(pool, &pool->partial);
        /* The newest, which is probably in a cache; its objects are drawn, too. */
        if (pool->empty.next != &pool->empty)
                return take_empty_locked(pool->empty.prev);
        if (pool->released.next != &pool->released)
                record = use_again_locked(pool);
        if (!record)
                record = slab_new(pool, arena, class);
        /* HARD-7: class 0 never has memory. */
        if (record && class) {
                populate(record, &hardened.classes[class]);
                count_slab(pool, &hardened.classes[class], true);
        }
        return record;
}

/* More than @eighths of all slabs, and than a few. */
static bool too_many_are_empty(uint64_t eighths)
{
        uint64_t all = load_relaxed(&hardened_figures.slab_bytes);
        uint64_t most = max_of(all / 8 * eighths, (uint64_t)EMPTY_BYTES);

        return load_relaxed(&hardened_figures.empty_bytes) > most;
}

/*
 * Empty slabs keep their memory, since most are soon needed again: for purge_delay, as pages of the heap do, up to seven
 * eighths of all slabs, and up to half of them for longer. Beyond it they go with later ones that become empty.
 */
void slab_put_empty_locked(struct pool *pool, struct slab_record *record)
{
        uint32_t now = (uint32_t)system_time_ms();

        record->place = SLAB_EMPTY;
        record->empty_ms = now;
        list_add_tail(&record->list, &pool->empty);
        /* Class 0 has no memory to give back. */
        if (!record->number)
                return;
        add_relaxed(&hardened_figures.empty_bytes,
                    (uint64_t)hardened.classes[record->number].slab_bytes);
        for (int i = 0; i < RELEASED_AT_ONCE && pool->empty.next != &pool->empty; i++) {
                struct slab_record *oldest = record_of(pool->empty.next);

                if (!too_many_are_empty(now - oldest->empty_ms < options.purge_delay ? MOST_NEW
                                                                                     : MOST_OLD))
                        return;
                release_locked(pool, take_empty_locked(pool->empty.next));
        }
}

size_t slabs_release_locked(struct pool *pool)
{
        size_t bytes = 0;

        if (!pool->partial.next)
                return 0;
        while (pool->empty.next != &pool->empty) {
                struct slab_record *record = take_empty_locked(pool->empty.next);

                bytes += hardened.classes[record->number].slab_bytes;
                release_locked(pool, record);
        }
        return bytes;
}

uint32_t hardened_chunks_end(void)
{
        return load_relaxed(&grown.window) + hardened.window_chunks;
}

void hardened_fit(size_t bytes)
{
        size_t old, used;

        lock_take(&hardened_grow_lock);
        old = hardened.bytes;
        used = (size_t)(grown.window + hardened.window_chunks) << hardened.chunk_shift;
        bytes = round_up(max_of(bytes, used), (size_t)1 << hardened.chunk_shift);
        if (bytes < old && hardened_change(true)) {
                hardened.bytes = bytes;
                hardened_change(false);
                system_unmap((char *)hardened.base + bytes, old - bytes);
                bytes = bytes >> hardened.chunk_shift;
                old = old >> hardened.chunk_shift;
                system_unmap(hardened.records +
                                     round_up(bytes * hardened.chunk_records_bytes, COMMIT_BYTES),
                             (old - bytes) * hardened.chunk_records_bytes);
        }
        lock_drop(&hardened_grow_lock);
}

static bool is_growing(const char *chunk, size_t *accessible_bytes)
{
        for (uint32_t number = 0; number < HARDENED_CLASSES; number++)
                if (growths[number].chunk == chunk) {
                        *accessible_bytes = growths[number].accessible_bytes;
                        return true;
                }
        return false;
}

void hardened_unlock(void)
{
        uint32_t chunks;

        lock_take(&hardened_grow_lock);
        chunks = grown.window + hardened.window_chunks;
        for (uint32_t number = 0; number < chunks; number++) {
                char *chunk = (char *)hardened.base + ((size_t)number << hardened.chunk_shift);
                size_t accessible = 0;
                size_t bytes = (size_t)1 << hardened.chunk_shift;

                if (hardened.chunks[number] && !is_growing(chunk, &accessible))
                        accessible = bytes - system_page_bytes();
                if (accessible + system_page_bytes() < bytes)
                        system_unlock(chunk + system_page_bytes() + accessible,
                                      bytes - system_page_bytes() - accessible);
        }
        system_unlock((char *)hardened.base + ((size_t)chunks << hardened.chunk_shift),
                      hardened.bytes - ((size_t)chunks << hardened.chunk_shift));
        system_unlock(hardened.records + grown.records_bytes,
                      (hardened.bytes >> hardened.chunk_shift) * hardened.chunk_records_bytes -
                              grown.records_bytes);
        lock_drop(&hardened_grow_lock);
}
