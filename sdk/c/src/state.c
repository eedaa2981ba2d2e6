/* The state of an operator: its collections together, because they share one segment for each key group.
 *
 * A snapshot writes each place (a key group, the subtask's values, the shared values) that has changed since the last one whole, as a base. At
 * the cut nothing is copied: a place that is still to be written is encoded when its turn comes, or just before it changes for the
 * first time. So later steps write the state of the cut, and the stream goes on meanwhile. */

#include <stdlib.h>

#include "internal.h"

static uint32_t place_count(const weir_state *state) { return state->groups + WEIR_PLACES_MORE; }

weir_state *weir_state_new(const weir_task *task)
{
    weir_state *state = weir_allocate(sizeof *state);
    state->key_groups = task->key_groups;
    state->first = task->first_key_group;
    state->groups = task->end_key_group - task->first_key_group;
    state->marks = weir_allocate(place_count(state));
    state->frozen = weir_allocate(place_count(state) * sizeof *state->frozen);
    state->opening = true;
    return state;
}

void weir_state_add(weir_state *state, weir_part *part, const char *name)
{
    if (!state->opening) weir_panic("the collection \"%s\" is declared after open: declare all state in open", name);
    part->state = state;
    part->name = weir_text(name);
    if (part->name.len < 1 || part->name.len > 255) weir_panic("the name of a collection has %lu bytes, not 1 to 255: \"%s\"", (unsigned long)part->name.len, name);
    for (size_t i = 0; i < state->part_count; i++) {
        if (weir_bytes_equal(state->parts[i]->name, part->name)) weir_panic("two collections are named \"%s\": give each its own name", name);
    }
    if (part->codec && !part->codec->encode != !part->codec->decode) weir_panic("the codec of \"%s\" has only one of encode and decode", name);
    state->parts = weir_reallocate(state->parts, (state->part_count + 1) * sizeof *state->parts);
    state->parts[state->part_count++] = part;
}

void weir_state_not_ours(const weir_state *state, const weir_part *part, uint64_t hash)
{
    weir_panic("\"%.*s\" was asked for a key of key group %u, and this subtask has %u to %u: declare the input port as keyed", (int)part->name.len,
               (const char *)part->name.data, weir_key_group(hash, state->key_groups), state->first, state->first + state->groups - 1);
}

static weir_chunks *encode(weir_state *state, uint32_t place)
{
    weir_chunks *chunks = weir_allocate(sizeof *chunks);
    for (size_t i = 0; i < state->part_count; i++) state->parts[i]->encode(state->parts[i], place, chunks);
    weir_chunks_end(chunks);
    return chunks;
}

static void drop(weir_chunks **chunks)
{
    if (!*chunks) return;
    weir_chunks_free(*chunks);
    free(*chunks);
    *chunks = NULL;
}

void weir_state_keep(weir_state *state, uint32_t place)
{
    state->frozen[place] = encode(state, place);
    state->marks[place] = (uint8_t)((state->marks[place] & ~WEIR_PENDING) | WEIR_FROZEN);
}

static bool is_live(const weir_state *state, uint32_t place)
{
    for (size_t i = 0; i < state->part_count; i++) {
        if (state->parts[i]->live(state->parts[i], place)) return true;
    }
    return false;
}

static void begin(weir_state *state, uint64_t epoch, bool asked_full)
{
    const bool full = asked_full || state->open || state->rewrite;
    /* Where less was asked for, the host keeps what is not written: what has become empty must be said, too. */
    const bool say_empty = full && !asked_full;
    for (uint32_t place = 0; place < place_count(state); place++) {
        drop(&state->frozen[place]);
        const bool write = full ? say_empty || is_live(state, place) : (state->marks[place] & WEIR_DIRTY) != 0;
        state->marks[place] = write ? WEIR_PENDING : 0;
    }
    drop(&state->writing);
    state->rewrite = false;
    state->open = true;
    state->epoch = epoch;
    state->place = 0;
}

/* Writes the next chunk. False: the host asks to stop soon. */
static bool write_chunk(weir_state *state)
{
    const uint32_t place = state->place - 1;
    weir_chunk chunk = {WEIR_SCOPE_KEY_GROUP, state->first + place, WEIR_BASE, weir_bytes_of(NULL, 0)};
    if (place >= state->groups) {
        chunk.scope = place - state->groups == WEIR_PLACE_SUBTASK ? WEIR_SCOPE_SUBTASK : WEIR_SCOPE_SHARED;
        chunk.group = 0;
    }
    const weir_buffer *ends = &state->writing->ends;
    const size_t chunks = ends->len / sizeof(uint32_t);
    if (chunks) { /* else it has become empty, which an empty base says */
        uint32_t from = 0, to;
        memcpy(&to, ends->data + state->written * sizeof to, sizeof to);
        if (state->written) memcpy(&from, ends->data + (state->written - 1) * sizeof from, sizeof from);
        chunk.data = weir_bytes_of(state->writing->bytes.data + from, to - from);
    }
    const bool go_on = weir_host_write(&chunk);
    if (++state->written >= chunks) drop(&state->writing);
    return go_on;
}

/* Whether there is another chunk; finds it. */
static bool find_chunk(weir_state *state)
{
    while (!state->writing) {
        if (state->place == place_count(state)) return false;
        const uint32_t place = state->place++;
        if (state->marks[place] & WEIR_PENDING) {
            state->writing = encode(state, place);
        } else if (state->marks[place] & WEIR_FROZEN) {
            state->writing = state->frozen[place];
            state->frozen[place] = NULL;
        }
        state->marks[place] &= WEIR_DIRTY;
        state->written = 0;
    }
    return true;
}

weir_status weir_state_snapshot(weir_state *state, uint64_t epoch, bool full)
{
    if (!state->open || state->epoch != epoch) begin(state, epoch, full);
    bool go_on = true;
    while (find_chunk(state)) {
        if (!go_on) return WEIR_MORE;
        go_on = write_chunk(state);
    }
    state->open = false;
    return WEIR_DONE;
}

static weir_status damaged(const weir_chunk *chunk, const char *wrong, weir_bytes name)
{
    static const char *scopes[] = {"key group", "scope subtask", "scope shared", "scope item"};
    weir_buffer where = {0};
    weir_buffer_format(&where, "%s", scopes[chunk->scope]);
    if (chunk->scope == WEIR_SCOPE_KEY_GROUP) weir_buffer_format(&where, " %u", chunk->group);
    if (name.data) weir_buffer_format(&where, ", collection \"%.*s\"", (int)name.len, (const char *)name.data);
    const weir_status status = weir_fail(WEIR_INVALID, "state cannot be read: %.*s: %s", (int)where.len, (const char *)where.data, wrong);
    weir_buffer_free(&where);
    return status;
}

static weir_part *part_named(weir_state *state, weir_bytes name)
{
    for (size_t i = 0; i < state->part_count; i++) {
        if (weir_bytes_equal(state->parts[i]->name, name)) return state->parts[i];
    }
    return NULL;
}

static const char *take_over(weir_state *state, uint32_t place, weir_section *section, uint32_t state_version)
{
    weir_part *part = part_named(state, section->name);
    if (!part) return "this plugin has no such collection: declare it in open, or start without this state";
    weir_bytes key, value;
    const char *wrong;
    while (weir_section_next(section, &key, &value, &wrong)) {
        if (section->put) {
            wrong = part->put(part, place, key, value, state_version);
            if (wrong) return wrong;
        } else {
            part->remove(part, place, key);
        }
    }
    return wrong;
}

weir_status weir_state_restore(weir_state *state, uint32_t state_version, bool rewrite)
{
    weir_reader reader = {{NULL, 0}, {NULL, 0, 0}, false};
    weir_status status = WEIR_DONE;
    weir_chunk chunk = {WEIR_SCOPE_KEY_GROUP, 0, WEIR_BASE, {NULL, 0}};
    while (status == WEIR_DONE && weir_host_read(&chunk)) {
        uint32_t place = chunk.group - state->first;
        if (chunk.scope == WEIR_SCOPE_KEY_GROUP && place >= state->groups) {
            status = damaged(&chunk, "it is none of this subtask's", weir_none());
            break;
        }
        if (chunk.scope == WEIR_SCOPE_ITEM) {
            status = damaged(&chunk, "this SDK writes no segment of that scope", weir_none());
            break;
        }
        if (chunk.scope != WEIR_SCOPE_KEY_GROUP) {
            place = state->groups + (chunk.scope == WEIR_SCOPE_SUBTASK ? WEIR_PLACE_SUBTASK : WEIR_PLACE_SHARED);
        }
        weir_section section;
        const char *wrong = weir_reader_begin(&reader, chunk.data);
        if (wrong) status = damaged(&chunk, wrong, weir_none());
        while (status == WEIR_DONE && weir_reader_next(&reader, &section, &wrong)) {
            wrong = take_over(state, place, &section, state_version);
            if (wrong) status = damaged(&chunk, wrong, section.name);
        }
        if (status == WEIR_DONE && wrong) status = damaged(&chunk, wrong, weir_none());
    }
    if (status == WEIR_DONE && reader.joining) status = damaged(&chunk, "the last part of an entry is missing", weir_none());
    weir_buffer_free(&reader.joined);
    /* It counts as stored as it was read. */
    memset(state->marks, 0, place_count(state));
    state->rewrite = rewrite;
    return status;
}

/* ---- Values --------------------------------------------------------------------------------------------------------- */

/* What is written for a value; valid until the next call. */
static weir_bytes encoded(weir_part *part, const void *value)
{
    const weir_codec *codec = part->codec;
    if (!codec) return weir_bytes_of(NULL, 0);
    if (!codec->encode) return weir_bytes_of(value, codec->size);
    weir_buffer_clear(&part->state->scratch);
    codec->encode(value, &part->state->scratch);
    return weir_buffer_view(&part->state->scratch);
}

static const char *decoded(const weir_part *part, void *value, weir_bytes from, uint32_t state_version)
{
    const weir_codec *codec = part->codec;
    if (!codec) return from.len ? "a timer has a value, and timers of this name have none" : NULL;
    if (codec->decode) return codec->decode(value, from, state_version) ? NULL : "a value does not decode: has its format changed, and the state version not?";
    if (from.len != codec->size) return "a value has another size than its type: has the type changed, and the state version not?";
    memcpy(value, from.data, from.len);
    return NULL;
}

static void drop_value(const weir_part *part, void *value)
{
    if (part->codec && part->codec->drop) part->codec->drop(value);
}

static size_t value_size(const weir_codec *codec) { return codec ? (codec->size + 7) / 8 * 8 : 0; }

/* A key that is in the wrong key group is one whose bytes were damaged. */
static const char *check_group(const weir_part *part, uint32_t place, uint64_t hash)
{
    const weir_state *state = part->state;
    if (place >= state->groups) return "it holds keys, and is no key group";
    return weir_key_group(hash, state->key_groups) == state->first + place ? NULL : "it holds a key of another key group";
}
