/* weir.h: operators for weir in C (C11 or newer) and, through weir.hpp, in C++.
 *
 * An operator is one constant, `weir_plugin`, that says what it is and which functions to call. The host makes one call at a
 * time. What an operator remembers between two calls lies in its own struct (`self`) and nowhere else.
 *
 *     weir_bytes, weir_key, weir_buffer      bytes that are borrowed, a key with its hash, bytes that are owned
 *     weir_batch, weir_builder               records in columns: what comes in, what goes out
 *     weir_emit, weir_reject, weir_log, ...  what an operator may ask of the host
 *     weir_map, weir_timers, weir_value      state that snapshots itself
 *     weir_json, weir_config                 the configuration, and records that are JSON
 *     weir_operator                          what all of it is for
 *
 * Ownership. Who calls `init`, `clear` and `free` owns the memory; the SDK's functions never free what they are given, and never
 * keep a pointer to it after they return, but for names and codecs, which have to live as long as the program (string literals and
 * constants do). What a function returns by pointer belongs to the SDK; its comment says until when it is valid. There is no
 * closing call: an instance is dropped as a whole, so nothing has to be freed for the end.
 *
 * The same calls must lead to the same results: take time from weir_now and randomness from weir_task.seed, and do not
 * let addresses or uninitialised bytes (the padding of a struct) reach output or state. */

#ifndef WEIR_H
#define WEIR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__) || defined(__clang__)
#define WEIR_PRINTF(at, first) __attribute__((format(printf, at, first)))
#define WEIR_NORETURN __attribute__((noreturn))
#else
#define WEIR_PRINTF(at, first)
#define WEIR_NORETURN
#endif

/* ---- Bytes ---------------------------------------------------------------------------------------------------------- */

/* Bytes that somebody else owns. `data` is NULL for none; empty is not none. */
typedef struct weir_bytes {
    const uint8_t *data;
    size_t len;
} weir_bytes;

/* The address of bytes that are empty and not none. */
extern const uint8_t weir_empty[1];

static inline weir_bytes weir_bytes_of(const void *data, size_t len)
{
    weir_bytes bytes;
    bytes.data = data ? (const uint8_t *)data : weir_empty;
    bytes.len = len;
    return bytes;
}

/* The bytes of a string without its end; none for NULL. */
static inline weir_bytes weir_text(const char *text)
{
    weir_bytes bytes;
    bytes.data = (const uint8_t *)text;
    bytes.len = text ? strlen(text) : 0;
    return bytes;
}

static inline weir_bytes weir_none(void)
{
    weir_bytes bytes;
    bytes.data = NULL;
    bytes.len = 0;
    return bytes;
}

/* Whether both are none, or have the same bytes. */
bool weir_bytes_equal(weir_bytes a, weir_bytes b);

/* Below, at or above 0: by bytes as unsigned numbers, the shorter first where one begins with the other. */
int weir_bytes_order(weir_bytes a, weir_bytes b);

/* Bytes that you own. All zero is an empty one. */
typedef struct weir_buffer {
    uint8_t *data;
    size_t len;
    size_t capacity;
} weir_buffer;

/* Appends bytes. Panics when there is no memory, as everything here does. */
void weir_buffer_push(weir_buffer *buffer, const void *data, size_t len);
/* Appends `len` bytes that are not set and returns where they begin: valid until the buffer changes. */
uint8_t *weir_buffer_extend(weir_buffer *buffer, size_t len);
/* Appends what printf would print, without an end. */
void weir_buffer_format(weir_buffer *buffer, const char *format, ...) WEIR_PRINTF(2, 3);
/* Appends a number in decimal digits: much faster than weir_buffer_format. */
void weir_buffer_decimal(weir_buffer *buffer, int64_t number);
/* Appends a number as 1, 2, 4 or 8 bytes, little-endian. */
void weir_buffer_int(weir_buffer *buffer, uint64_t number, unsigned bytes);
/* Appends a number as 1 to 10 bytes, 7 bits each, the lowest first. */
void weir_buffer_varint(weir_buffer *buffer, uint64_t number);
/* Forgets the bytes and keeps the memory. */
void weir_buffer_clear(weir_buffer *buffer);
/* Gives the memory back; the buffer is empty then. */
void weir_buffer_free(weir_buffer *buffer);
/* Its bytes: valid until it changes. */
weir_bytes weir_buffer_view(const weir_buffer *buffer);

/* Takes something off the front of bytes. False, and nothing taken, when they are too short. What is taken borrows from `from`. */
bool weir_take(weir_bytes *from, size_t len, weir_bytes *taken);
bool weir_take_int(weir_bytes *from, unsigned bytes, uint64_t *number);
bool weir_take_varint(weir_bytes *from, uint64_t *number);

/* ---- Time and keys -------------------------------------------------------------------------------------------------- */

/* The event time of a record that has none. Times are microseconds since 1970-01-01T00:00:00Z. */
#define WEIR_NO_TIME INT64_MIN
/* The last watermark of a stream: nothing will come any more. */
#define WEIR_END_OF_TIME INT64_MAX

/* A key with its hash, XXH3-64 with seed 0. The bytes are borrowed. */
typedef struct weir_key {
    weir_bytes bytes;
    uint64_t hash;
} weir_key;

/* XXH3-64 with seed 0. */
uint64_t weir_hash(weir_bytes bytes);

/* A key, hashed here. weir_batch_key has the host's hash, which is free. */
weir_key weir_key_of(weir_bytes bytes);

/* The key group of a hash; at most 32,768 key groups. */
static inline uint32_t weir_key_group(uint64_t hash, uint32_t key_groups)
{
    return (uint32_t)((((hash >> 32) & 0xffff) * key_groups) >> 16);
}

/* ---- Batches -------------------------------------------------------------------------------------------------------- */

/* One byte string or none for each record. Empty (all zero) when no record has one. */
typedef struct weir_column {
    const uint32_t *offsets; /* one more than records, or NULL */
    const uint8_t *bytes;
    const uint8_t *nulls; /* a bit for each record, or NULL: set means none */
    uint32_t bytes_len;
} weir_column;

static inline weir_bytes weir_column_get(const weir_column *column, size_t row)
{
    if (!column->offsets || (column->nulls && (column->nulls[row / 8] >> (row % 8) & 1))) return weir_none();
    const uint32_t from = column->offsets[row];
    return weir_bytes_of(column->bytes + from, column->offsets[row + 1] - from);
}

/* Records in columns, borrowed: a batch that comes in is valid for the time of its call. It is a plain struct, so the same records with
 * other values are a copy of it with another column. Rows are sliced when asked for; nothing is copied. */
typedef struct weir_batch {
    size_t len;                /* records; at least one in a batch that comes in */
    const int64_t *timestamps; /* `len` event times */
    const uint64_t *hashes;    /* of each key on a keyed input, else NULL; ignored in what is emitted */
    weir_column keys;
    weir_column values;
    weir_column headers;
} weir_batch;

/* The event time of a record, WEIR_NO_TIME where it has none. */
static inline int64_t weir_batch_time(const weir_batch *batch, size_t row) { return batch->timestamps[row]; }

/* The value of a record. One without is a tombstone: what was known under its key is gone. */
static inline weir_bytes weir_batch_value(const weir_batch *batch, size_t row)
{
    return weir_column_get(&batch->values, row);
}

/* The key of a record with its hash, the host's where it gave one. False where it has none. An empty key is a key. */
static inline bool weir_batch_key(const weir_batch *batch, size_t row, weir_key *key)
{
    key->bytes = weir_column_get(&batch->keys, row);
    if (!key->bytes.data) return false;
    key->hash = batch->hashes ? batch->hashes[row] : weir_hash(key->bytes);
    return true;
}

/* Walks the headers of a record, in order; begin with `*rest` from weir_batch_headers. False at the end. */
weir_bytes weir_batch_headers(const weir_batch *batch, size_t row);
bool weir_header_next(weir_bytes *rest, weir_bytes *name, weir_bytes *value);

/* Makes batches. All zero is an empty one. It owns its memory and copies what it is given. */
typedef struct weir_builder {
    size_t len;
    weir_buffer timestamps;
    struct weir_builder_column {
        weir_buffer offsets;
        weir_buffer bytes;
        weir_buffer nulls;
        bool any;  /* some record has one */
        bool gaps; /* some record has none */
    } keys, values, headers;
} weir_builder;

/* Adds a record; none for a key or a value that it does not have, WEIR_NO_TIME for no time. */
void weir_builder_push(weir_builder *builder, int64_t time, weir_bytes key, weir_bytes value);
/* Adds a record of a batch as it is, headers too. */
void weir_builder_push_row(weir_builder *builder, const weir_batch *batch, size_t row);
/* Adds a header to the record that was pushed last. A name has at most 65,535 bytes. */
void weir_builder_header(weir_builder *builder, weir_bytes name, weir_bytes value);
/* The bytes of all columns, about. */
size_t weir_builder_bytes(const weir_builder *builder);
/* What was pushed, as a batch: valid until the builder changes. */
weir_batch weir_builder_view(const weir_builder *builder);
/* Forgets the records and keeps the memory. */
void weir_builder_clear(weir_builder *builder);
void weir_builder_free(weir_builder *builder);

/* ---- The host ------------------------------------------------------------------------------------------------------- */

/* How a call went. Every kind of failure but these two is made by weir_fail. */
typedef enum weir_status {
    WEIR_DONE = 0, /* it has finished what it was called for */
    WEIR_MORE,     /* it has not: the host passes on what there is and calls `resume` */
    WEIR_RETRY,    /* the same call, later: only if nothing has changed in `self` */
    WEIR_INVALID,  /* the configuration or the state is not acceptable: a person has to change something */
    WEIR_FATAL     /* start over from the last checkpoint */
} weir_status;

/* Says why a call fails, for the person who reads the log: `return weir_fail(WEIR_INVALID, "size is %d, ...", size);`. Returns `kind`. A message is cut
 * after 4 KiB. */
weir_status weir_fail(weir_status kind, const char *format, ...) WEIR_PRINTF(2, 3);

/* Logs at level error and ends the instance, as a trap does: the host starts over from the last checkpoint. */
WEIR_NORETURN void weir_panic(const char *format, ...) WEIR_PRINTF(1, 2);

/* Hands a batch on through an output port when the call returns WEIR_DONE or WEIR_MORE. An empty one is dropped. Within process, advance, wake, finish and
 * resume only. Emit once for each batch that came in, not once for each record. What a call may emit is limited, to 64 MiB unless
 * the node's limits say otherwise: see weir_builder_emit_large. The batch is still yours. */
void weir_emit(uint32_t port, const weir_batch *batch);

/* Emits what a builder holds and clears it. */
void weir_builder_emit(weir_builder *builder, uint32_t port);

/* As weir_builder_emit, but only if it holds 1 MiB or more; says whether it did. For calls with much to say: where it says true, note where you are in
 * `self` and return WEIR_MORE; `resume` goes on from there. */
bool weir_builder_emit_large(weir_builder *builder, uint32_t port);

/* Puts a record of the batch that is being processed aside, with the reason. Within process only. A record that cannot be processed
 * is no failure. Reasons are cut after 1,024 bytes. */
void weir_reject(size_t row, const char *format, ...) WEIR_PRINTF(2, 3);
/* Puts records aside that came in an earlier call. */
void weir_reject_batch(const weir_batch *batch, const char *format, ...) WEIR_PRINTF(2, 3);

typedef enum weir_level { WEIR_TRACE, WEIR_DEBUG, WEIR_INFO, WEIR_WARN, WEIR_ERROR } weir_level;

/* Logs a line; it is only made where it would be kept. printf and stderr reach the log, too. */
void weir_log(weir_level level, const char *format, ...) WEIR_PRINTF(2, 3);
/* Whether a message of this level would be kept. The answer must not change anything else. */
bool weir_log_enabled(weir_level level);

/* Numbers for people. A name is 1 to 64 lower-case letters, digits and underscores. Call once a batch, not once a record. */
void weir_count(const char *name, uint64_t delta);
void weir_gauge(const char *name, double value);
void weir_observe(const char *name, double value);

/* Processing time, when the host began this call; in `open` it is 0. */
int64_t weir_now(void);
/* Asks for a call of `wake` at that time. The host keeps one such time, the earliest, and forgets it when it calls. */
void weir_wake_at(int64_t time);

/* ---- State ---------------------------------------------------------------------------------------------------------- */

/* Which part of which job an instance works on. Strings are valid for the life of the instance. */
typedef struct weir_task {
    const char *job;
    const char *node;
    uint32_t subtask;
    uint32_t parallelism;
    uint32_t key_groups;
    uint32_t first_key_group;
    uint32_t end_key_group;
    uint64_t seed;
    struct weir_state *state; /* the SDK's own */
} weir_task;

/* How a value lies in memory and in a snapshot. A constant: it has to live as long as the program. Values are aligned to 8
 * bytes and begin as zeros.
 *
 * Without `encode` and `decode` the bytes of the value are written as they are: then it has no pointers and no padding,
 * and must not be changed without raising the state version. */
typedef struct weir_codec {
    size_t size;
    /* Appends the value to `to`. */
    void (*encode)(const void *value, weir_buffer *to);
    /* Fills a value that is all zeros from what `encode` wrote in a plugin of that state version. False: it cannot be read. What it
     * has allocated until then is given to `drop`. */
    bool (*decode)(void *value, weir_bytes from, uint32_t state_version);
    /* Frees what the value owns, not the value; NULL where it owns nothing. */
    void (*drop)(void *value);
} weir_codec;

/* A codec for plain values: `static const weir_codec count_codec = WEIR_PLAIN(uint64_t);` */
#ifdef __cplusplus
#define WEIR_PLAIN(type) { sizeof(type), nullptr, nullptr, nullptr }
#else
#define WEIR_PLAIN(type) { .size = sizeof(type) }
#endif

/* All collections below are declared in `open`, each with a name by which it is found again in a snapshot: 1 to 255 bytes, never change it. They
 * are part of every snapshot from then on: only key groups that have changed are written, in steps, while the stream goes on. Keys
 * belong to key groups by the hash that the host gives; a key of a group that this subtask does not have is a mistake in the plugin
 * (its input port is not declared as keyed) and panics.
 *
 * A pointer to a value that may be changed counts as a change and is for this call: ask for it anew in the next. Any pointer to a value is
 * valid until that value is removed. */

struct weir_part; /* the SDK's own */

/* A value for each key. */
typedef struct weir_map {
    struct weir_part *part;
} weir_map;

void weir_map_init(weir_map *map, const weir_task *task, const char *name, const weir_codec *codec);
/* The value of a key, NULL where there is none. */
const void *weir_map_get(const weir_map *map, weir_key key);
/* The same, to be changed. */
void *weir_map_change(weir_map *map, weir_key key);
/* The value of a key, to be changed; all zeros where there was none. */
void *weir_map_value(weir_map *map, weir_key key);
/* Removes a key with its value. False where there was none. */
bool weir_map_remove(weir_map *map, weir_key key);
size_t weir_map_len(const weir_map *map);
/* Calls `each` with all keys by key group, then by their bytes: an order that depends on the content alone. `each` must not change the map. */
void weir_map_each(const weir_map *map, void (*each)(void *context, weir_key key, const void *value), void *context);

/* Times in event time, each with a key and, if you like, a value: timers, or windows with what was gathered in them. The same time and key is there
 * once. They come due in `advance`, by time, then by the bytes of the key. */
typedef struct weir_timers {
    struct weir_part *part;
} weir_timers;

/* `codec` is NULL for timers without a value. */
void weir_timers_init(weir_timers *timers, const weir_task *task, const char *name, const weir_codec *codec);
/* Sets a timer if it is not set, and returns its value, to be changed (for timers without one a pointer that is not NULL and not to be used). */
void *weir_timers_set(weir_timers *timers, int64_t time, weir_key key);
/* The value of a timer; NULL if it is not set. */
const void *weir_timers_get(const weir_timers *timers, int64_t time, weir_key key);
/* Takes a timer back. False if it was not set. */
bool weir_timers_cancel(weir_timers *timers, int64_t time, weir_key key);
/* The time of the earliest timer. False if none is set. */
bool weir_timers_earliest(const weir_timers *timers, int64_t *time);
size_t weir_timers_len(const weir_timers *timers);

/* A timer that is due. */
typedef struct weir_due {
    int64_t time;
    weir_key key;
    void *value;
} weir_due;

/* Takes the earliest timer that is due at a watermark. False when none is. What `due` points to is valid until the next call for these timers. */
bool weir_timers_due(weir_timers *timers, int64_t watermark, weir_due *due);

/* Where a value without a key belongs. */
typedef enum weir_scope {
    WEIR_SUBTASK, /* to this subtask alone: the job refuses another parallelism */
    WEIR_SHARED   /* to every subtask alike: any one copy goes to all, so all must have come to the same */
} weir_scope;

/* One value of the operator as a whole. */
typedef struct weir_value {
    struct weir_part *part;
} weir_value;

void weir_value_init(weir_value *value, const weir_task *task, const char *name, weir_scope scope, const weir_codec *codec);
/* It; all zeros at first. */
const void *weir_value_get(const weir_value *value);
/* It, to be changed. */
void *weir_value_change(weir_value *value);

/* ---- JSON ----------------------------------------------------------------------------------------------------------- */

typedef enum weir_json_kind {
    WEIR_JSON_NULL,
    WEIR_JSON_BOOL,
    WEIR_JSON_NUMBER,
    WEIR_JSON_STRING,
    WEIR_JSON_ARRAY,
    WEIR_JSON_OBJECT
} weir_json_kind;

/* A JSON value where it stands in its text, which it borrows. Nothing is allocated. */
typedef struct weir_json {
    weir_json_kind kind;
    weir_bytes text;
} weir_json;

/* Reads a text that is one JSON value, nested at most 64 deep. Returns NULL, or what is wrong with it; `*at` is where. */
const char *weir_json_parse(weir_bytes text, weir_json *json, size_t *at);
/* The member of an object; the last where a name repeats. False if it is none, or no object. */
bool weir_json_member(const weir_json *object, const char *name, weir_json *member);
/* Walks an array or an object; begin with a `*rest` that is all zero. `name` is the member's as a JSON string, and may be NULL. False at the end. */
bool weir_json_next(const weir_json *container, weir_bytes *rest, weir_json *name, weir_json *value);
/* Its value; false if it is of another kind, or not to be held by the type. */
bool weir_json_bool(const weir_json *json, bool *value);
bool weir_json_double(const weir_json *json, double *value);
bool weir_json_int(const weir_json *json, int64_t *value);
/* Appends the text of a string, without quotes and escapes, in UTF-8. */
bool weir_json_text(const weir_json *json, weir_buffer *to);

/* Reads a configuration: begin, one call a member, end. The first thing that is wrong becomes the failure that `end` returns; then the values that
 * were read are their defaults. A member that was not asked for is wrong, too. */
typedef struct weir_config {
    weir_json json;
    const char *names[32];
    unsigned count;
    bool failed;
} weir_config;

void weir_config_begin(weir_config *config, weir_bytes json);
/* A number from `min` to `max`. */
double weir_config_double(weir_config *config, const char *name, double otherwise, double min, double max);
int64_t weir_config_int(weir_config *config, const char *name, int64_t otherwise, int64_t min, int64_t max);
bool weir_config_bool(weir_config *config, const char *name, bool otherwise);
/* Appends a text to a buffer; `otherwise`, which may be NULL for nothing, where there is none. */
void weir_config_text(weir_config *config, const char *name, const char *otherwise, weir_buffer *to);
weir_status weir_config_end(weir_config *config);

/* ---- The operator --------------------------------------------------------------------------------------------------- */

typedef struct weir_port {
    const char *name;    /* 1 to 63 lower-case letters, digits and hyphens */
    const char *summary; /* one line for people, or NULL */
    bool keyed;          /* of an input: records come partitioned by key, with hashes; of an output: every record has a key */
} weir_port;

typedef enum weir_state_kind {
    WEIR_STATELESS,
    WEIR_WHOLE, /* state of the subtask as a whole */
    WEIR_KEYED  /* state by key */
} weir_state_kind;

/* A plugin: what it says about itself, and what it does. Functions but for `open` and `process` may be NULL. Define exactly one, called
 * `weir_plugin`. */
typedef struct weir_operator {
    const char *name;    /* 1 to 63 lower-case letters, digits and hyphens */
    const char *version; /* semantic */
    const char *summary; /* one line for people, or NULL */
    const weir_port *inputs;
    size_t input_count;
    const weir_port *outputs;
    size_t output_count;
    weir_state_kind state;
    uint32_t state_version;        /* raise it when what the state looks like changes; 0 without state */
    uint32_t oldest_state_version; /* the oldest that is still read; 0 for state_version */
    const char *config_schema;     /* a JSON Schema, or NULL */

    size_t self_size; /* what the SDK allocates for `self`, all zeros */
    /* Prepares for work: declares the state, reads the configuration, a JSON object. `task` is valid for the life of the instance, `config` for the call. */
    weir_status (*open)(void *self, weir_bytes config, const weir_task *task);
    /* Takes a batch. Records may be out of order in event time, and late. */
    weir_status (*process)(void *self, uint32_t port, const weir_batch *batch);
    /* Event time has moved: all records at or before `watermark` have come, but for late ones. After a restore the first may repeat
     * one that the state has seen. */
    weir_status (*advance)(void *self, int64_t watermark);
    /* Processing time has come to what weir_wake_at asked for; also when nothing is due. */
    weir_status (*wake)(void *self);
    /* An input port has ended. */
    weir_status (*finish)(void *self, uint32_t port);
    /* Goes on with a call that returned WEIR_MORE. */
    weir_status (*resume)(void *self);
    /* The state has been restored; it was written by a plugin of `state_version`. For derived values, and for what an older version lacks. Not
     * called where there was nothing to restore. */
    weir_status (*restored)(void *self, uint32_t state_version);
} weir_operator;

extern const weir_operator weir_plugin;

#ifdef __cplusplus
}
#endif

#endif
