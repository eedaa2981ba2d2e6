/* Hash tables, one for each key group of a collection: open addressing with linear probing, removal by moving back. A slot holds the lower
 * half of a hash, about which the key group says nothing, so it is seldom that an entry is looked at in vain.
 *
 * What a table does with an entry is the same in all collections but for where its key lies, and for a time that belongs to the
 * key in some: both are said by `weir_shape`. */

#include <stdlib.h>

#include "internal.h"

typedef struct weir_shape {
    uint32_t key_at; /* offset of the key's bytes in an entry */
    bool timed;      /* a timed_entry: its time is part of the key */
} weir_shape;

typedef struct timed_entry {
    weir_entry entry;
    int64_t time;
    struct weir_moment *moment;
} timed_entry;

static inline uint8_t *entry_key(const weir_shape *shape, const weir_entry *entry)
{
    return (uint8_t *)entry + shape->key_at;
}

/* The hash by which an entry is found: a time changes it, so that a key with many timers does not fill one stretch. */
static inline uint32_t tag_of(uint64_t hash, int64_t time)
{
    return time ? (uint32_t)hash ^ (uint32_t)(((uint64_t)time * 0x9E3779B97F4A7C15u) >> 32) : (uint32_t)hash;
}

/* Whether two keys of the same length are equal: by words, since memcmp goes byte by byte on wasm32. */
static inline bool same_key(const uint8_t *a, const uint8_t *b, size_t len)
{
    uint64_t x, y;
    if (len < 8) {
        for (size_t i = 0; i < len; i++) {
            if (a[i] != b[i]) return false;
        }
        return true;
    }
    for (size_t i = 0; i + 8 < len; i += 8) {
        memcpy(&x, a + i, 8);
        memcpy(&y, b + i, 8);
        if (x != y) return false;
    }
    memcpy(&x, a + len - 8, 8);
    memcpy(&y, b + len - 8, 8);
    return x == y;
}

static inline bool is_entry(const weir_shape *shape, const weir_entry *entry, const weir_key *key, int64_t time)
{
    return entry->hash == key->hash && entry->key_len == key->bytes.len
        && same_key(entry_key(shape, entry), key->bytes.data, key->bytes.len)
        && (!shape->timed || ((const timed_entry *)(const void *)entry)->time == time);
}

static inline weir_entry *table_find(const weir_table *table, const weir_shape *shape, const weir_key *key, int64_t time)
{
    if (!table->mask) return NULL;
    const uint32_t tag = tag_of(key->hash, time);
    for (uint32_t at = tag & table->mask; table->slots[at].entry; at = (at + 1) & table->mask) {
        if (table->slots[at].tag == tag && is_entry(shape, table->slots[at].entry, key, time)) return table->slots[at].entry;
    }
    return NULL;
}

static void place_slot(weir_table *table, weir_slot slot)
{
    uint32_t at = slot.tag & table->mask;
    while (table->slots[at].entry) at = (at + 1) & table->mask;
    table->slots[at] = slot;
}

static void table_grow(weir_table *table)
{
    weir_table larger = {NULL, table->mask ? table->mask * 2 + 1 : 7, table->len};
    if (larger.mask > UINT32_MAX / 2 / sizeof(weir_slot)) weir_panic("a key group has %u keys, more than a table takes: use more key groups", table->len);
    larger.slots = weir_allocate(((size_t)larger.mask + 1) * sizeof(weir_slot));
    for (uint32_t i = 0; table->mask && i <= table->mask; i++) {
        if (table->slots[i].entry) place_slot(&larger, table->slots[i]);
    }
    free(table->slots);
    *table = larger;
}

/* Adds an entry for a key that is not there. */
static weir_entry *table_add(weir_table *table, const weir_shape *shape, const weir_key *key, int64_t time)
{
    if (key->bytes.len > UINT32_MAX - shape->key_at) weir_panic("a key of %lu bytes is too long", (unsigned long)key->bytes.len);
    if (table->len >= table->mask - table->mask / 4) table_grow(table);
    weir_entry *entry = weir_reallocate(NULL, shape->key_at + key->bytes.len);
    memset(entry, 0, shape->key_at);
    entry->hash = key->hash;
    entry->key_len = (uint32_t)key->bytes.len;
    if (key->bytes.len) memcpy(entry_key(shape, entry), key->bytes.data, key->bytes.len);
    place_slot(table, (weir_slot){tag_of(key->hash, time), entry});
    table->len++;
    return entry;
}

/* Takes an entry out; it is not freed. */
static void table_remove(weir_table *table, const weir_entry *entry, int64_t time)
{
    uint32_t at = tag_of(entry->hash, time) & table->mask;
    while (table->slots[at].entry != entry) at = (at + 1) & table->mask;
    /* What comes after and would not be found any more moves into the gap. */
    for (uint32_t next = (at + 1) & table->mask; table->slots[next].entry; next = (next + 1) & table->mask) {
        const uint32_t home = table->slots[next].tag & table->mask;
        if (((next - home) & table->mask) >= ((next - at) & table->mask)) {
            table->slots[at] = table->slots[next];
            at = next;
        }
    }
    table->slots[at].entry = NULL;
    table->len--;
}

/* ---- Order ---------------------------------------------------------------------------------------------------------- */

/* An entry with what decides most comparisons: its time, and the first eight bytes of its key. */
typedef struct ordered {
    int64_t time;
    uint64_t prefix;
    weir_entry *entry;
} ordered;

static bool comes_before(const weir_shape *shape, const ordered *a, const ordered *b)
{
    if (a->time != b->time) return a->time < b->time;
    if (a->prefix != b->prefix) return a->prefix < b->prefix;
    return weir_bytes_order(weir_bytes_of(entry_key(shape, a->entry), a->entry->key_len), weir_bytes_of(entry_key(shape, b->entry), b->entry->key_len)) < 0;
}

static ordered ordered_of(const weir_shape *shape, weir_entry *entry)
{
    ordered item = {shape->timed ? ((timed_entry *)(void *)entry)->time : 0, 0, entry};
    const uint8_t *key = entry_key(shape, entry);
    for (uint32_t i = 0; i < 8; i++) item.prefix = item.prefix << 8 | (i < entry->key_len ? key[i] : 0);
    return item;
}

/* Merges runs of one, two, four, ...: no recursion, no bad case. Returns the sorted ones, in `items` or in `spare`. */
static ordered *sort(const weir_shape *shape, ordered *items, ordered *spare, size_t len)
{
    for (size_t run = 1; run < len; run *= 2) {
        for (size_t from = 0; from < len; from += 2 * run) {
            const size_t middle = from + run < len ? from + run : len, end = from + 2 * run < len ? from + 2 * run : len;
            size_t a = from, b = middle;
            for (size_t to = from; to < end; to++) {
                const bool take_b = a == middle || (b < end && comes_before(shape, &items[b], &items[a]));
                spare[to] = take_b ? items[b++] : items[a++];
            }
        }
        ordered *swap = items;
        items = spare;
        spare = swap;
    }
    return items;
}

/* Calls `each` with the entries of a table in order. */
static void table_each(const weir_table *table, const weir_shape *shape, void (*each)(void *context, weir_entry *entry), void *context)
{
    if (!table->len) return;
    ordered *items = weir_reallocate(NULL, 2 * (size_t)table->len * sizeof *items);
    size_t len = 0;
    for (uint32_t i = 0; i <= table->mask; i++) {
        if (table->slots[i].entry) items[len++] = ordered_of(shape, table->slots[i].entry);
    }
    const ordered *sorted = sort(shape, items, items + len, len);
    for (size_t i = 0; i < len; i++) each(context, sorted[i].entry);
    free(items);
}
