/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * The only parser of settings. Runs once, before the first allocation, on static memory. In the
 * tool that `kmem run` asks before it starts a program, it only checks them.
 */
#define _GNU_SOURCE
#include "base/options.h"

#include "base/kernels.h"
#include "lang/bits.h"
#include "lang/number.h"
#include "lang/text.h"
#include "machine/file.h"
#include "machine/message.h"
#include "machine/syscall.h"

#include <string.h>

struct options options = {
#ifdef KMEM_SLOTS_LOCKED
        .slots = SLOTS_LOCKED,
#endif
        .order_cpus = CPUS_USABLE,
        .slub_max_order = 3,
        .slab_max_order = SLAB_MAX_ORDER_AUTO,
        .numa_fake = 1,
        .slot_cache_max = 1 << 20,
        .purge_delay = 100,
        .huge_cache_max = 64 << 20,
        .slob_breaks = {.count = 2, .sizes = {256, 1024}},
};

enum kind {
        KIND_CHOICE,
        KIND_NUMBER,
        KIND_SIZE,
        KIND_SIZE_OR_NONE, /* 0, or a number from least to most */
        KIND_SIZE_OR_AUTO, /* also "auto", which is UINT64_MAX */
        KIND_SIZES,
        KIND_FAULTS,
        KIND_TEXT,
        KIND_LETTERS,
};

struct setting {
        const char *name;
        enum kind kind;
        const char
                *choices; /* space separated, in the order of their values; letters: each a bit */
        uint64_t least;
        uint64_t most;
        size_t offset; /* in struct options */
};

#define PLACE(field) offsetof(struct options, field)

static const struct setting settings[] = {
        {"kernel", KIND_CHOICE, KERNEL_VERSIONS, 0, 0, PLACE(kernel)},
        {"slots", KIND_CHOICE, "auto rseq locked", 0, 0, PLACE(slots)},
        {"classes", KIND_CHOICE, "auto fine kernel", 0, 0, PLACE(classes)},
        {"slab_merge", KIND_NUMBER, NULL, 0, 1, PLACE(slab_merge)},
        {"order_cpus", KIND_CHOICE, "usable online present possible", 0, 0, PLACE(order_cpus)},
        {"order_rule", KIND_CHOICE, "6.12 5.10", 0, 0, PLACE(order_rule)},
        {"slub_min_order", KIND_NUMBER, NULL, 0, 10, PLACE(slub_min_order)},
        {"slub_max_order", KIND_NUMBER, NULL, 0, 10, PLACE(slub_max_order)},
        {"slub_min_objects", KIND_NUMBER, NULL, 0, 32767, PLACE(slub_min_objects)},
        {"slab_max_order", KIND_NUMBER, NULL, 0, 10, PLACE(slab_max_order)},
        {"noaliencache", KIND_NUMBER, NULL, 0, 1, PLACE(noaliencache)},
        {"numa", KIND_CHOICE, "auto off", 0, 0, PLACE(numa)},
        {"numa_fake", KIND_NUMBER, NULL, 1, NODES_MAX, PLACE(numa_fake)},
        {"node_limit", KIND_SIZE, NULL, 0, UINT64_MAX, PLACE(node_limit)},
        {"slot_cache_max", KIND_SIZE, NULL, 0, UINT64_MAX, PLACE(slot_cache_max)},
        {"reserve", KIND_SIZE, NULL, 0, UINT64_MAX, PLACE(reserve)},
        {"purge_delay", KIND_NUMBER, NULL, 0, 3600000, PLACE(purge_delay)},
        {"thp", KIND_CHOICE, "auto always never", 0, 0, PLACE(thp)},
        {"reclaim_thread", KIND_CHOICE, "auto on off", 0, 0, PLACE(reclaim_thread)},
        {"huge_cache_max", KIND_SIZE, NULL, 0, UINT64_MAX, PLACE(huge_cache_max)},
        {"soft_limit", KIND_SIZE_OR_AUTO, NULL, SOFT_LIMIT_LEAST, UINT64_MAX - 1,
         PLACE(soft_limit)},
        {"memory_limit", KIND_SIZE, NULL, 0, UINT64_MAX, PLACE(memory_limit)},
        {"bad_free", KIND_CHOICE, "abort ignore libc", 0, 0, PLACE(bad_free)},
        {"check", KIND_CHOICE, "drain sheaf", 0, 0, PLACE(check)},
        {"protect", KIND_CHOICE, "none hardened", 0, 0, PLACE(protect)},
        {"bulk_null", KIND_CHOICE, "skip refuse", 0, 0, PLACE(bulk_null)},
        {"slob_breaks", KIND_SIZES, NULL, 1, PAGE_SIZE - 1, PLACE(slob_breaks)},
        {"failslab", KIND_FAULTS, NULL, 0, 0, PLACE(failslab)},
        {"record", KIND_TEXT, NULL, 0, 0, PLACE(record)},
        {"slob_compat", KIND_CHOICE, "none 2.6.24", 0, 0, PLACE(slob_compat)},
        {"registry", KIND_CHOICE, "auto on off", 0, 0, PLACE(registry)},
        {"profile_interval", KIND_SIZE_OR_NONE, NULL, 1024, (uint64_t)1 << 40,
         PLACE(profile_interval)},
        {"profile_slices", KIND_NUMBER, NULL, 0, 50, PLACE(profile_slices)},
        {"slabinfo", KIND_TEXT, NULL, 0, 0, PLACE(slabinfo)},
        {"slabinfo_pid", KIND_NUMBER, NULL, 0, UINT32_MAX, PLACE(slabinfo_pid)},
        {"attrs", KIND_TEXT, NULL, 0, 0, PLACE(attrs)},
        {"attrs_pid", KIND_NUMBER, NULL, 0, UINT32_MAX, PLACE(attrs_pid)},
        {"debug_abort", KIND_NUMBER, NULL, 0, 1, PLACE(debug_abort)},
};

/* Settings that each cache may have for itself. */
static const struct setting cache_settings[CACHE_OPTIONS] = {
        [OPTION_ENGINE] = {"engine", KIND_CHOICE, "slub slob slab", 0, 0, 0},
        [OPTION_SHEAF_CAPACITY] = {"sheaf_capacity", KIND_NUMBER, NULL, 0, SHEAF_CAPACITY_MAX, 0},
        [OPTION_MIN_PARTIAL] = {"min_partial", KIND_NUMBER, NULL, 0, UINT32_MAX, 0},
        [OPTION_CPU_PARTIAL] = {"cpu_partial", KIND_NUMBER, NULL, 0, 65535, 0},
        [OPTION_CPU_PARTIAL_ACCOUNTING] = {"cpu_partial_accounting", KIND_CHOICE, "slabs objects",
                                           0, 0, 0},
        [OPTION_CPU_PARTIAL_DEFAULTS] = {"cpu_partial_defaults", KIND_CHOICE, "later seed", 0, 0,
                                         0},
        [OPTION_FREEZE] = {"freeze", KIND_CHOICE, "delayed eager", 0, 0, 0},
        [OPTION_CPU_SLABS] = {"cpu_slabs", KIND_NUMBER, NULL, 0, 1, 0},
        [OPTION_SHEAF_RULE] = {"sheaf_rule", KIND_CHOICE, "stock 7.0", 0, 0, 0},
        [OPTION_BARN_FULL] = {"barn_full", KIND_NUMBER, NULL, 0, BARN_MAX, 0},
        [OPTION_BARN_EMPTY] = {"barn_empty", KIND_NUMBER, NULL, 0, BARN_MAX, 0},
        [OPTION_REMOTE_FREES] = {"remote_frees", KIND_CHOICE, "sheaf slab", 0, 0, 0},
        [OPTION_FREE_POINTER] = {"free_pointer", KIND_CHOICE, "table object", 0, 0, 0},
        [OPTION_STATS] = {"stats", KIND_NUMBER, NULL, 0, 1, 0},
        [OPTION_LIMIT] = {"limit", KIND_NUMBER, NULL, 0, TUNABLE_LIMIT_MAX, 0},
        [OPTION_BATCHCOUNT] = {"batchcount", KIND_NUMBER, NULL, 0, TUNABLE_LIMIT_MAX, 0},
        [OPTION_SHARED] = {"shared", KIND_NUMBER, NULL, 0, TUNABLE_SHARED_MAX, 0},
        [OPTION_DEBUG] = {"debug", KIND_LETTERS, "FZPUTAO", 0, 0, 0},
        [OPTION_GUARD_SAMPLING] = {"guard_sampling", KIND_NUMBER, NULL, 0, 1 << 30, 0},
};

enum { CACHE_VALUES_MAX = 64, PATTERN_BYTES = 48, TEXT_BYTES = 4096 };

/* Values given for caches, in the order given; an empty pattern stands for all caches. */
static struct cache_value {
        char pattern[PATTERN_BYTES];
        enum cache_option option;
        uint64_t value;
} cache_values[CACHE_VALUES_MAX] KMEM_SPARSE;
static unsigned int cache_value_count;

/* Where settings are only checked, a single line says what is wrong, and nothing of defaults. */
static bool checking;
static unsigned int faults;

#define FAULT(outcome, format, ...)                                                                \
        do {                                                                                       \
                if (!faults++ || !checking)                                                        \
                        message(format "%s", ##__VA_ARGS__, checking ? "" : outcome);              \
        } while (0)

/* Position of a word in a space-separated list, or -1. */
static int choice_position(const char *choices, const char *word)
{
        size_t length = strlen(word);
        int position = 0;

        for (const char *choice = choices; *choice; position++) {
                size_t choice_length = strcspn(choice, " ");

                if (choice_length == length && memcmp(choice, word, length) == 0)
                        return position;
                choice += choice_length + (choice[choice_length] == ' ');
        }
        return -1;
}

/*
 * Letters of either case; '-' takes back the letters in front of it, and no letter at all means
 * FZPU (S9-20).
 */
static bool parse_letters(const struct setting *setting, const char *text, uint64_t *value)
{
        *value = *text ? 0 : DEBUG_ALL;
        for (; *text; text++) {
                char letter = *text >= 'a' && *text <= 'z' ? (char)(*text - 'a' + 'A') : *text;
                const char *place = strchr(setting->choices, letter);

                if (*text == '-')
                        *value = 0;
                else if (place)
                        *value |= (uint64_t)1 << (place - setting->choices);
                else
                        return false;
        }
        return true;
}

/* Parses the value that was given for @name; a failure reports the values that were expected. */
static bool parse_value(const struct setting *setting, const char *name, const char *text,
                        uint64_t *value)
{
        bool or_auto = setting->kind == KIND_SIZE_OR_AUTO;
        bool or_none = setting->kind == KIND_SIZE_OR_NONE || or_auto;
        bool size = setting->kind == KIND_SIZE || or_none;

        if (or_auto && strcmp(text, "auto") == 0) {
                *value = UINT64_MAX;
                return true;
        }
        if (setting->kind == KIND_LETTERS) {
                if (parse_letters(setting, text, value))
                        return true;
                FAULT("; the default stays", "option %s=%s: expected letters of %s, or - for none",
                      name, text, setting->choices);
                return false;
        }
        if (setting->kind == KIND_CHOICE) {
                int position = choice_position(setting->choices, text);

                if (position >= 0) {
                        *value = (uint64_t)position;
                        return true;
                }
                FAULT("; the default stays", "option %s=%s: expected one of: %s", name, text,
                      setting->choices);
                return false;
        }
        if ((size ? number_bytes : number_whole)(text, value) && *value <= setting->most &&
            (*value >= setting->least || (or_none && !*value)))
                return true;
        if (size)
                FAULT("; the default stays",
                      "option %s=%s: expected %s%s%lu to %lu bytes, with K, M, G or T if wanted",
                      name, text, or_auto ? "auto, " : "", or_none ? "0, or " : "",
                      (unsigned long)setting->least, (unsigned long)setting->most);
        else
                FAULT("; the default stays", "option %s=%s: expected a number from %lu to %lu",
                      name, text, (unsigned long)setting->least, (unsigned long)setting->most);
        return false;
}

/*
 * Sizes in ascending order with ':' between, because ',' ends an entry; an empty text is an empty
 * list.
 */
static bool parse_sizes(const struct setting *setting, const char *text, struct size_list *list)
{
        list->count = 0;
        while (*text) {
                size_t length = strcspn(text, ":");
                uint64_t least = list->count ? list->sizes[list->count - 1] + 1u : setting->least;
                char number[16];
                uint64_t value;

                if (length >= sizeof(number) || list->count == array_size(list->sizes))
                        return false;
                memcpy(number, text, length);
                number[length] = '\0';
                if (!number_whole(number, &value) || value < least || value > setting->most)
                        return false;
                list->sizes[list->count++] = (uint32_t)value;
                text += length;
                /* A ':' at the end is not between two sizes. */
                if (text[0] == ':' && *++text == '\0')
                        return false;
        }
        return true;
}

/* INTERVAL:PROBABILITY, and behind them :SPACE and :TIMES if wanted. */
static bool parse_faults(const char *text, struct failslab_rule *rule)
{
        uint64_t values[4] = {0, 0, 0, UINT64_MAX};
        size_t count = 0;

        while (number_scan(&text, 10, &values[count++]) == NUMBER_READ && *text == ':' &&
               count < array_size(values))
                text++;
        *rule = (struct failslab_rule){values[0], values[1], values[2], values[3]};
        return !*text && text[-1] != ':' && count >= 2 && rule->interval &&
               rule->probability <= 100;
}

static bool set_faults(const char *text, struct failslab_rule *place)
{
        struct failslab_rule rule;

        if (*text && parse_faults(text, &rule)) {
                *place = rule;
                return true;
        }
        FAULT("; the default stays",
              "option failslab=%s: expected INTERVAL:PROBABILITY, 1 or more and 0 to 100, "
              "with :SPACE or :SPACE:TIMES behind if wanted",
              text);
        return false;
}

static bool set_sizes(const struct setting *setting, const char *text, struct size_list *place)
{
        struct size_list list;

        if (parse_sizes(setting, text, &list)) {
                *place = list;
                return true;
        }
        FAULT("; the default stays",
              "option %s=%s: expected at most %zu numbers from %lu to %lu, ascending, "
              "with ':' between them",
              setting->name, text, array_size(list.sizes), (unsigned long)setting->least,
              (unsigned long)setting->most);
        return false;
}

/* If two bounds contradict each other, the bound given last counts (S3-02). */
static void agree_on_orders(size_t offset)
{
        if (options.slub_min_order <= options.slub_max_order)
                return;
        if (offset == PLACE(slub_max_order))
                options.slub_min_order = options.slub_max_order;
        else
                options.slub_max_order = options.slub_min_order;
}

/* False if the text is no value of the setting, which then keeps the value that it had. */
static bool set_global(const struct setting *setting, const char *text)
{
        char *place = (char *)&options + setting->offset;
        uint64_t value;

        if (setting->kind == KIND_SIZES)
                return set_sizes(setting, text, (struct size_list *)(void *)place);
        if (setting->kind == KIND_FAULTS)
                return set_faults(text, (struct failslab_rule *)(void *)place);
        if (setting->kind == KIND_TEXT) {
                if (strlen(text) >= sizeof(options.slabinfo)) {
                        FAULT("; ignored", "option %s: expected at most %zu characters",
                              setting->name, sizeof(options.slabinfo) - 1);
                        return false;
                }
                strcpy(place, text);
                return true;
        }
        if (!parse_value(setting, setting->name, text, &value))
                return false;
        memcpy(place, &value, sizeof(value));
        agree_on_orders(setting->offset);
        return true;
}

/* @name: "pattern.option", or the option alone, for all caches: a pattern of length 0. */
static void set_for_cache(const char *name, size_t pattern_length, enum cache_option option,
                          const char *text)
{
        struct cache_value *entry = &cache_values[cache_value_count];
        uint64_t value;

        if (!parse_value(&cache_settings[option], name, text, &value))
                return;
        if (strcspn(name, "*") + 1 < pattern_length) {
                FAULT("; ignored",
                      "option %s: expected * at the end of the caches' names only, as in "
                      "kmalloc-*.%s",
                      name, cache_settings[option].name);
                return;
        }
        if (cache_value_count == CACHE_VALUES_MAX || pattern_length >= PATTERN_BYTES) {
                FAULT("; ignored",
                      "option %s: expected at most %d settings of caches, names under %d "
                      "characters",
                      name, CACHE_VALUES_MAX, PATTERN_BYTES);
                return;
        }
        memcpy(entry->pattern, name, pattern_length);
        entry->pattern[pattern_length] = '\0';
        entry->option = option;
        entry->value = value;
        cache_value_count++;
}

static void report_unknown(const char *name)
{
        static KMEM_SPARSE char known[1000]; /* not on the stack, which may be small */
        struct text text;

        text_begin(&text, known, sizeof(known));
        for (size_t i = 0; i < array_size(settings); i++)
                text_add(&text, "%s ", settings[i].name);
        for (size_t i = 0; i < array_size(cache_settings); i++)
                text_add(&text, "%s[CACHE.]%s", i ? " " : "", cache_settings[i].name);
        FAULT("", "unknown option \"%s\"; there are: %s", name, known);
}

/*
 * The policies of option kernel come after all other entries, and leave alone every setting that an
 * entry has given a value.
 */
static bool of_kernel;
static uint64_t
        settings_given; /* a bit for each of the settings; those of caches are in cache_values */
_Static_assert(array_size(settings) <= 64, "a bit of a word for each setting");

/* Parses a "name=value"; @entry is changed. */
static void parse_entry(char *entry)
{
        char *value = strchr(entry, '=');
        uint64_t ignored;
        char *dot;

        if (!value) {
                FAULT("", "option \"%s\": expected name=value", entry);
                return;
        }
        *value++ = '\0';
        for (size_t i = 0; i < array_size(settings); i++)
                if (strcmp(settings[i].name, entry) == 0) {
                        if (!(of_kernel && settings_given >> i & 1) &&
                            set_global(&settings[i], value))
                                settings_given |= (uint64_t)1 << i;
                        return;
                }
        /* Cache names may hold dots, option names do not. */
        dot = strrchr(entry, '.');
        for (unsigned int option = 0; option < CACHE_OPTIONS; option++)
                if (dot != entry &&
                    strcmp(cache_settings[option].name, dot ? dot + 1 : entry) == 0) {
                        if (of_kernel && options_for_cache("", option, &ignored))
                                return;
                        set_for_cache(entry, dot ? (size_t)(dot - entry) : 0,
                                      (enum cache_option)option, value);
                        return;
                }
        report_unknown(entry);
}

/*
 * Calls @parse for each part of a text that is not empty; the characters of @separators part them.
 */
static void parse_parts(char *text, const char *separators, void (*parse)(char *part))
{
        while (*text) {
                size_t length = strcspn(text, separators);
                bool last = !text[length];

                text[length] = '\0';
                if (*text)
                        parse(text);
                if (last)
                        return;
                text += length + 1;
        }
}

/* Only in a file is # a comment: elsewhere entries may begin with a #, as names of caches do. */
static void parse_line(char *line)
{
        if (*line != '#')
                parse_parts(line, ",", parse_entry);
}

/* The variable's text; NULL if it is not set. */
static const char *find_variable(void)
{
        static const char name[] = "KMEM_OPTIONS=";
        char **entry = system_environment();

        for (; entry && *entry; entry++)
                if (strncmp(*entry, name, sizeof(name) - 1) == 0)
                        return *entry + sizeof(name) - 1;
        return NULL;
}

bool options_are_given(void)
{
        return find_variable() != NULL;
}

/* False if @given is NULL or too long. */
static bool take_text(const char *given, char *text)
{
        if (!given)
                return false;
        if (strlen(given) >= TEXT_BYTES) {
                FAULT("; ignored", "KMEM_OPTIONS: expected at most %d characters", TEXT_BYTES - 1);
                return false;
        }
        strcpy(text, given);
        return true;
}

/* All or nothing: a file that was cut off might end inside a value. */
static void read_options_file(const char *path, char *text)
{
        size_t used;
        int error = file_read_all(path, text, TEXT_BYTES, &used);

        if (error)
                FAULT("", "KMEM_OPTIONS=@%s: cannot read this file: %s", path,
                      message_error(error));
        else if (used == TEXT_BYTES)
                FAULT("; ignored", "KMEM_OPTIONS=@%s: expected at most %d characters in this file",
                      path, TEXT_BYTES - 1);
        else
                return;
        text[0] = '\0';
}

/*
 * An entry of the variable. @FILE stands for the entries of a file, and may have other entries
 * beside it: our commands add theirs to the user's.
 */
static void parse_entry_or_file(char *entry)
{
        static KMEM_SPARSE char text[TEXT_BYTES];

        if (*entry != '@') {
                parse_entry(entry);
                return;
        }
        read_options_file(entry + 1, text);
        parse_parts(text, "\n", parse_line);
}

/*
 * Options that protect=hardened takes the sense from. Its blocks pass no sheaves, so there are no samples; they have no
 * owners; and a fault that was found ends the process.
 */
static void agree_on_protection(void)
{
        static const char *const no_effect =
                "option %s: no effect with protect=hardened, whose blocks %s";

        if (options.protect != PROTECT_HARDENED)
                return;
        options.check = CHECK_SHEAF;
        if (options.profile_interval)
                message(no_effect, "profile_interval", "are not sampled");
        if (options.memory_limit)
                message(no_effect, "memory_limit", "are in no memory group");
        if (options.classes != CLASSES_AUTO)
                message(no_effect, "classes", "have classes of their own");
        if (options.bad_free == BAD_FREE_IGNORE)
                message("option bad_free=ignore: with protect=hardened a bad free ends the "
                        "process");
        options.profile_interval = 0;
        options.memory_limit = 0;
        if (options.bad_free == BAD_FREE_IGNORE)
                options.bad_free = BAD_FREE_ABORT;
}

static KMEM_SPARSE char entries[TEXT_BYTES];

/* The text as KMEM_OPTIONS would have it; false if there is none to take. */
static bool parse_text(const char *given)
{
        if (!take_text(given, entries))
                return false;
        parse_parts(entries, ",\n", parse_entry_or_file);
        return true;
}

bool options_are_right(const char *given)
{
        checking = true;
        parse_text(given);
        return !faults;
}

/*
 * A relative path counts from the folder in which the program starts: a recording goes on after the program has
 * changed to another, and reports are written at the end. It stays as it is without room for the folder, or if
 * the folder's own name has a mark of reports' paths.
 */
static void fix_path(char path[sizeof(options.slabinfo)])
{
        char folder[sizeof(options.slabinfo)];
        long bytes;

        if (!*path || *path == '/' || strcmp(path, "-") == 0)
                return;
        bytes = system_call(SYS_getcwd, (long)folder, sizeof(folder), 0);
        if (system_call_failed(bytes) || *folder != '/' || strstr(folder, "%p") ||
            (size_t)bytes + strlen(path) >= sizeof(folder))
                return;
        folder[bytes - 1] = '/';
        strcpy(folder + bytes, path);
        strcpy(path, folder);
}

void options_init(void)
{
        /* A program with more rights than its caller ignores the caller's settings. */
        if (system_is_privileged() || !parse_text(find_variable()))
                return;
        fix_path(options.slabinfo);
        fix_path(options.attrs);
        fix_path(options.record);
        of_kernel = true;
        strcpy(entries, kernel_options(options.kernel));
        parse_parts(entries, ",", parse_entry);
        agree_on_protection();
}

static enum option_source match(const char *pattern, const char *name)
{
        size_t prefix = strcspn(pattern, "*");

        if (!*pattern)
                return OPTION_FOR_ALL;
        if (pattern[prefix])
                return strncmp(pattern, name, prefix) == 0 ? OPTION_FOR_PREFIX : OPTION_UNSET;
        return strcmp(pattern, name) == 0 ? OPTION_FOR_NAME : OPTION_UNSET;
}

enum option_source options_for_cache(const char *cache_name, enum cache_option option,
                                     uint64_t *value)
{
        enum option_source best = OPTION_UNSET;

        for (unsigned int i = 0; i < cache_value_count; i++) {
                enum option_source source = match(cache_values[i].pattern, cache_name);

                /* Among equal patterns the value given last counts, so that additions override. */
                if (cache_values[i].option == option && source && source >= best) {
                        best = source;
                        *value = cache_values[i].value;
                }
        }
        return best;
}

uint64_t options_given(enum cache_option option)
{
        uint64_t given = 0;

        for (unsigned int i = 0; i < cache_value_count; i++)
                if (cache_values[i].option == option)
                        given |= cache_values[i].value;
        return given;
}

uint64_t options_for_cache_or(const char *cache_name, enum cache_option option, uint64_t otherwise)
{
        uint64_t value = otherwise;

        options_for_cache(cache_name, option, &value);
        return value;
}
