/* What the parts of the SDK share, and the line between them and whoever plays the host: worlds/glue.h in a component,
 * weir_test.c in a native test. Operators do not see it. */

#ifndef WEIR_INTERNAL_H
#define WEIR_INTERNAL_H

#include "../weir.h"

/* ---- What the host does for us -------------------------------------------------------------------------------------- */

/* As in wit/snapshots.wit. */
typedef enum weir_segment_scope { WEIR_SCOPE_KEY_GROUP, WEIR_SCOPE_SUBTASK, WEIR_SCOPE_SHARED, WEIR_SCOPE_ITEM } weir_segment_scope;
typedef enum weir_segment_kind { WEIR_BASE, WEIR_DELTA } weir_segment_kind;

typedef struct weir_chunk {
    weir_segment_scope scope;
    uint32_t group;
    weir_segment_kind kind;
    weir_bytes data;
} weir_chunk;

void weir_host_emit(uint32_t port, const weir_batch *batch);
void weir_host_reject(uint32_t row, weir_bytes reason);
void weir_host_reject_batch(const weir_batch *batch, weir_bytes reason);
void weir_host_log(weir_level level, weir_bytes message);
bool weir_host_log_enabled(weir_level level);
void weir_host_count(weir_bytes name, uint64_t delta);
void weir_host_gauge(weir_bytes name, double value);
void weir_host_observe(weir_bytes name, double value);
int64_t weir_host_now(void);
void weir_host_wake_at(int64_t time);
/* True: there is time for another chunk. */
bool weir_host_write(const weir_chunk *chunk);
/* The next chunk, whose bytes are valid until the next call; false when there are no more. */
bool weir_host_read(weir_chunk *chunk);
/* Ends the instance. */
WEIR_NORETURN void weir_host_trap(void);

/* ---- What we do for the host ---------------------------------------------------------------------------------------- */

typedef struct weir_instance {
    const weir_operator *plugin;
    void *self;
    weir_task task;
} weir_instance;

/* Takes over the strings of `task`. Any status but WEIR_DONE and WEIR_MORE is a failure, and weir_failure_message says why. */
weir_status weir_instance_open(weir_instance *instance, const weir_operator *plugin, weir_bytes config, const weir_task *task);
weir_status weir_instance_process(weir_instance *instance, uint32_t port, const weir_batch *batch);
weir_status weir_instance_advance(weir_instance *instance, int64_t watermark);
weir_status weir_instance_wake(weir_instance *instance);
weir_status weir_instance_finish(weir_instance *instance, uint32_t port);
weir_status weir_instance_resume(weir_instance *instance);
weir_status weir_instance_snapshot(weir_instance *instance, uint64_t epoch, bool full);
weir_status weir_instance_restore(weir_instance *instance, uint32_t state_version);

/* Why the last call failed; valid until the next. */
weir_bytes weir_failure_message(void);

/* ---- Memory --------------------------------------------------------------------------------------------------------- */

/* `size` bytes that are zero; panics when there is no memory. Given back with free. */
void *weir_allocate(size_t size);
void *weir_reallocate(void *memory, size_t size);

/* ---- Chunks: src/chunk.c -------------------------------------------------------------------------------------------- */

/* The chunks of one segment, one after the other. */
typedef struct weir_chunks {
    weir_buffer bytes;
    weir_buffer ends; /* uint32_t: where each chunk ends */
    weir_buffer item; /* the item that is being written */
    size_t body;      /* where its body begins; 0 when none is open */
    size_t start;     /* where the open chunk begins */
    weir_bytes name;
} weir_chunks;

/* What comes next belongs to this collection. */
void weir_chunks_section(weir_chunks *chunks, weir_bytes name);
/* Adds an entry. The key is `prefix` and then `key`. */
void weir_chunks_put(weir_chunks *chunks, weir_bytes prefix, weir_bytes key, weir_bytes value);
/* Ends the last chunk. */
void weir_chunks_end(weir_chunks *chunks);
void weir_chunks_free(weir_chunks *chunks);

typedef struct weir_section {
    weir_bytes name;
    bool put; /* else delete */
    weir_bytes body;
} weir_section;

/* Takes the sections off the chunks of a segment. */
typedef struct weir_reader {
    weir_bytes rest;
    weir_buffer joined; /* of an entry that came in several chunks */
    bool joining;
} weir_reader;

/* Begins a chunk. Says what is wrong with it, or NULL. */
const char *weir_reader_begin(weir_reader *reader, weir_bytes chunk);
/* The next section; false at the end of the chunk, with `*wrong` NULL unless the chunk is damaged. Valid until the next call. */
bool weir_reader_next(weir_reader *reader, weir_section *section, const char **wrong);
/* The next entry of a section: of a delete without a value. */
bool weir_section_next(weir_section *section, weir_bytes *key, weir_bytes *value, const char **wrong);

/* ---- Tables: src/table.c -------------------------------------------------------------------------------------------- */

/* What is known under a key: this, then what the collection adds, then the value, then the bytes of the key. It stays where it is until
 * it is removed. */
typedef struct weir_entry {
    uint64_t hash;
    uint32_t key_len;
    uint32_t place; /* the collection's own */
} weir_entry;

typedef struct weir_slot {
    uint32_t tag;
    weir_entry *entry;
} weir_slot;

/* The entries of one key group. */
typedef struct weir_table {
    weir_slot *slots;
    uint32_t mask; /* slots less one; 0 where there are none */
    uint32_t len;
} weir_table;

/* ---- State: src/state.c --------------------------------------------------------------------------------------------- */

typedef struct weir_state weir_state;
typedef struct weir_part weir_part;

/* Places of a state: one for each key group of the subtask, then these. */
enum { WEIR_PLACE_SUBTASK = 0, WEIR_PLACE_SHARED = 1, WEIR_PLACES_MORE = 2 };

/* A collection, as the state sees it. */
struct weir_part {
    weir_state *state;
    weir_bytes name;
    const weir_codec *codec;
    void (*encode)(weir_part *part, uint32_t place, weir_chunks *to);
    /* Takes over an entry. NULL, or what is wrong with it. */
    const char *(*put)(weir_part *part, uint32_t place, weir_bytes key, weir_bytes value, uint32_t state_version);
    void (*remove)(weir_part *part, uint32_t place, weir_bytes key);
    size_t (*live)(const weir_part *part, uint32_t place);
};

enum { WEIR_DIRTY = 1, WEIR_PENDING = 2, WEIR_FROZEN = 4 };

struct weir_state {
    uint32_t key_groups;
    uint32_t first;
    uint32_t groups;   /* of this subtask */
    uint8_t *marks;    /* by place */
    weir_chunks **frozen; /* by place: what an open snapshot has to write of it as it was at the cut */
    weir_part **parts;
    size_t part_count;
    bool rewrite; /* the next snapshot writes everything */
    bool open;    /* a snapshot is */
    uint64_t epoch;
    uint32_t place;       /* the next to be looked at */
    weir_chunks *writing; /* of the one before */
    size_t written;       /* its chunks that have been */
    weir_buffer scratch;
    bool opening; /* collections may be declared */
};

weir_state *weir_state_new(const weir_task *task);
void weir_state_add(weir_state *state, weir_part *part, const char *name);
weir_status weir_state_snapshot(weir_state *state, uint64_t epoch, bool full);
weir_status weir_state_restore(weir_state *state, uint32_t state_version, bool rewrite);
void weir_state_keep(weir_state *state, uint32_t place);
WEIR_NORETURN void weir_state_not_ours(const weir_state *state, const weir_part *part, uint64_t hash);

/* The place of a hash's key group. */
static inline uint32_t weir_state_place(const weir_part *part, uint64_t hash)
{
    const weir_state *state = part->state;
    const uint32_t place = weir_key_group(hash, state->key_groups) - state->first;
    if (place >= state->groups) weir_state_not_ours(state, part, hash);
    return place;
}

/* To be called before something changes in a place. */
static inline void weir_state_touch(weir_state *state, uint32_t place)
{
    if (state->marks[place] & WEIR_PENDING) weir_state_keep(state, place);
    state->marks[place] |= WEIR_DIRTY;
}

#endif
