/* weir_value: a value without a key, of the subtask or shared by all. */

#include "internal.h"

typedef struct value_part {
    weir_part part;
    weir_scope scope;
    bool set; /* it was asked for to be changed, or restored */
    void *value;
} value_part;

static uint32_t value_place(const value_part *value)
{
    return value->part.state->groups + (value->scope == WEIR_SUBTASK ? WEIR_PLACE_SUBTASK : WEIR_PLACE_SHARED);
}

static size_t value_live(const weir_part *part, uint32_t place)
{
    const value_part *value = (const value_part *)(const void *)part;
    return value->set && place == value_place(value);
}

static void value_encode(weir_part *part, uint32_t place, weir_chunks *to)
{
    if (!value_live(part, place)) return;
    weir_chunks_section(to, part->name);
    weir_chunks_put(to, weir_bytes_of(NULL, 0), weir_bytes_of(NULL, 0), encoded(part, ((value_part *)(void *)part)->value));
}

static const char *value_put(weir_part *part, uint32_t place, weir_bytes key, weir_bytes bytes, uint32_t state_version)
{
    value_part *value = (value_part *)(void *)part;
    (void)key;
    if (place != value_place(value)) return "it holds a value that belongs to another scope";
    drop_value(part, value->value);
    memset(value->value, 0, part->codec->size);
    value->set = true;
    return decoded(part, value->value, bytes, state_version);
}

static void value_remove(weir_part *part, uint32_t place, weir_bytes key)
{
    (void)part, (void)place, (void)key; /* a value is never written as gone */
}

void weir_value_init(weir_value *value, const weir_task *task, const char *name, weir_scope scope, const weir_codec *codec)
{
    value_part *part = weir_allocate(sizeof *part);
    part->part.codec = codec;
    part->part.encode = value_encode;
    part->part.put = value_put;
    part->part.remove = value_remove;
    part->part.live = value_live;
    part->scope = scope;
    weir_state_add(task->state, &part->part, name);
    part->value = weir_allocate(value_size(codec));
    value->part = &part->part;
}

const void *weir_value_get(const weir_value *value) { return ((const value_part *)(const void *)value->part)->value; }

void *weir_value_change(weir_value *value)
{
    value_part *part = (value_part *)(void *)value->part;
    weir_state_touch(part->part.state, value_place(part));
    part->set = true;
    return part->value;
}
