/* weir_map: a value for each key. */

#include <stdlib.h>

#include "internal.h"

typedef struct map_part {
    weir_part part;
    weir_shape shape;
    weir_table *tables; /* by place */
} map_part;

static void *map_entry_value(weir_entry *entry) { return entry + 1; }

typedef struct map_encoding {
    map_part *map;
    weir_chunks *to;
} map_encoding;

static void map_encode_entry(void *context, weir_entry *entry)
{
    map_encoding *encoding = context;
    const weir_bytes key = weir_bytes_of(entry_key(&encoding->map->shape, entry), entry->key_len);
    weir_chunks_put(encoding->to, weir_bytes_of(NULL, 0), key, encoded(&encoding->map->part, map_entry_value(entry)));
}

static void map_encode(weir_part *part, uint32_t place, weir_chunks *to)
{
    map_part *map = (map_part *)(void *)part;
    if (place >= part->state->groups) return;
    map_encoding encoding = {map, to};
    weir_chunks_section(to, part->name);
    table_each(&map->tables[place], &map->shape, map_encode_entry, &encoding);
}

static void map_drop_entry(map_part *map, weir_entry *entry)
{
    drop_value(&map->part, map_entry_value(entry));
    free(entry);
}

static const char *map_put(weir_part *part, uint32_t place, weir_bytes bytes, weir_bytes value, uint32_t state_version)
{
    map_part *map = (map_part *)(void *)part;
    const weir_key key = weir_key_of(bytes);
    const char *wrong = check_group(part, place, key.hash);
    if (wrong) return wrong;
    weir_table *table = &map->tables[place];
    weir_entry *old = table_find(table, &map->shape, &key, 0);
    if (old) {
        table_remove(table, old, 0);
        map_drop_entry(map, old);
    }
    return decoded(part, map_entry_value(table_add(table, &map->shape, &key, 0)), value, state_version);
}

static void map_remove(weir_part *part, uint32_t place, weir_bytes bytes)
{
    map_part *map = (map_part *)(void *)part;
    const weir_key key = weir_key_of(bytes);
    if (place >= part->state->groups) return;
    weir_entry *entry = table_find(&map->tables[place], &map->shape, &key, 0);
    if (!entry) return;
    table_remove(&map->tables[place], entry, 0);
    map_drop_entry(map, entry);
}

static size_t map_live(const weir_part *part, uint32_t place)
{
    return place < part->state->groups ? ((const map_part *)(const void *)part)->tables[place].len : 0;
}

void weir_map_init(weir_map *map, const weir_task *task, const char *name, const weir_codec *codec)
{
    map_part *part = weir_allocate(sizeof *part);
    part->part.codec = codec;
    part->part.encode = map_encode;
    part->part.put = map_put;
    part->part.remove = map_remove;
    part->part.live = map_live;
    weir_state_add(task->state, &part->part, name);
    part->shape.key_at = (uint32_t)(sizeof(weir_entry) + value_size(codec));
    part->tables = weir_allocate(task->state->groups * sizeof *part->tables);
    map->part = &part->part;
}

static map_part *map_of(const weir_map *map) { return (map_part *)(void *)map->part; }

const void *weir_map_get(const weir_map *map, weir_key key)
{
    map_part *part = map_of(map);
    weir_entry *entry = table_find(&part->tables[weir_state_place(&part->part, key.hash)], &part->shape, &key, 0);
    return entry ? map_entry_value(entry) : NULL;
}

void *weir_map_change(weir_map *map, weir_key key)
{
    map_part *part = map_of(map);
    const uint32_t place = weir_state_place(&part->part, key.hash);
    weir_entry *entry = table_find(&part->tables[place], &part->shape, &key, 0);
    if (!entry) return NULL;
    weir_state_touch(part->part.state, place);
    return map_entry_value(entry);
}

void *weir_map_value(weir_map *map, weir_key key)
{
    map_part *part = map_of(map);
    const uint32_t place = weir_state_place(&part->part, key.hash);
    weir_state_touch(part->part.state, place);
    weir_entry *entry = table_find(&part->tables[place], &part->shape, &key, 0);
    if (!entry) entry = table_add(&part->tables[place], &part->shape, &key, 0);
    return map_entry_value(entry);
}

bool weir_map_remove(weir_map *map, weir_key key)
{
    map_part *part = map_of(map);
    const uint32_t place = weir_state_place(&part->part, key.hash);
    weir_entry *entry = table_find(&part->tables[place], &part->shape, &key, 0);
    if (!entry) return false;
    weir_state_touch(part->part.state, place);
    table_remove(&part->tables[place], entry, 0);
    map_drop_entry(part, entry);
    return true;
}

size_t weir_map_len(const weir_map *map)
{
    size_t len = 0;
    for (uint32_t place = 0; place < map->part->state->groups; place++) len += map_of(map)->tables[place].len;
    return len;
}

typedef struct map_walk {
    const map_part *map;
    void (*each)(void *context, weir_key key, const void *value);
    void *context;
} map_walk;

static void map_each_entry(void *context, weir_entry *entry)
{
    const map_walk *walk = context;
    const weir_key key = {weir_bytes_of(entry_key(&walk->map->shape, entry), entry->key_len), entry->hash};
    walk->each(walk->context, key, map_entry_value(entry));
}

void weir_map_each(const weir_map *map, void (*each)(void *context, weir_key key, const void *value), void *context)
{
    map_walk walk = {map_of(map), each, context};
    for (uint32_t place = 0; place < map->part->state->groups; place++) {
        table_each(&walk.map->tables[place], &walk.map->shape, map_each_entry, &walk);
    }
}
