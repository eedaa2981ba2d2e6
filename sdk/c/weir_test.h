/* weir_test.h: runs an operator natively, as the host would: no WebAssembly, no runtime.
 *
 *     WEIR_TEST(hands_on_what_is_large)
 *     {
 *         weir_harness *harness = weir_harness_open(&weir_plugin, "{}");
 *         weir_row rows[] = {weir_row_of(5, "roof", "3.0")};
 *         WEIR_CHECK(weir_harness_process(harness, 0, rows, 1) == WEIR_DONE);
 *         WEIR_EXPECT(harness, 0, weir_row_of(5, "roof", "3.0"));
 *     }
 *
 * Compile it with weir.c, weir_test.c (which has `main`) and the operator. Each argument of the program is a part of the names of the tests to run.
 *
 * What the host refuses ends the program here, with the reason: an emit outside of a call, a port that does not exist, a record without
 * a key on a keyed port, a chunk that is too large.
 *
 * Ownership: harnesses, checkpoints, rows and texts that these functions return belong to them and live until the program ends.
 * What is given to them is copied. */

#ifndef WEIR_TEST_H
#define WEIR_TEST_H

#include <stdio.h>

#include "weir.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Tests ---------------------------------------------------------------------------------------------------------- */

void weir_test_add(const char *name, void (*run)(void));
void weir_test_failed(const char *file, int line, const char *what);

#define WEIR_TEST(name) \
    static void name(void); \
    __attribute__((constructor)) static void weir_add_##name(void) { weir_test_add(#name, name); } \
    static void name(void)

/* The test goes on, and has failed, where it is false. */
#define WEIR_CHECK(condition) ((condition) ? (void)0 : weir_test_failed(__FILE__, __LINE__, #condition))

/* That `run` ends the program, and `text` is in what it says before: in a process of its own. */
bool weir_test_dies(void (*run)(void), const char *text);

/* ---- Records -------------------------------------------------------------------------------------------------------- */

typedef struct weir_row {
    int64_t time;
    weir_bytes key;
    weir_bytes value;
    weir_bytes headers; /* as in the batch; none or empty where there are none */
} weir_row;

/* A record of texts; NULL for none. */
static inline weir_row weir_row_of(int64_t time, const char *key, const char *value)
{
    weir_row row;
    row.time = time;
    row.key = weir_text(key);
    row.value = weir_text(value);
    row.headers = weir_none();
    return row;
}

/* ---- An operator with a host around it ------------------------------------------------------------------------------ */

typedef struct weir_harness weir_harness;
typedef struct weir_checkpoint weir_checkpoint;

/* Opens an operator that has all of 128 key groups; `config` is a JSON object. */
weir_harness *weir_harness_open(const weir_operator *plugin, const char *config);
/* Opens one of several subtasks. */
weir_harness *weir_harness_open_subtask(const weir_operator *plugin, const char *config, uint32_t subtask, uint32_t parallelism);
/* Opens an operator and lets it take over a checkpoint. */
weir_harness *weir_harness_restore(const weir_operator *plugin, const char *config, const weir_checkpoint *checkpoint);
/* Opens one subtask and lets it take over its part of the checkpoints of all subtasks of an earlier run, which may have been more or fewer. */
weir_harness *weir_harness_restore_subtask(const weir_operator *plugin, const char *config, uint32_t subtask, uint32_t parallelism,
                                           const weir_checkpoint *const *checkpoints, size_t count);

/* How the last call went, `open` and `restore` among them, and the failure's message. */
weir_status weir_harness_status(const weir_harness *harness);
const char *weir_harness_message(const weir_harness *harness);
/* The operator's own struct. */
void *weir_harness_self(const weir_harness *harness);

/* Calls. `resume` is called until the operator has no more to say. Where one fails, what it emitted is dropped. */
weir_status weir_harness_process(weir_harness *harness, uint32_t port, const weir_row *rows, size_t count);
weir_status weir_harness_process_batch(weir_harness *harness, uint32_t port, const weir_batch *batch);
weir_status weir_harness_advance(weir_harness *harness, int64_t watermark);
weir_status weir_harness_finish(weir_harness *harness, uint32_t port);
/* Processing time moves; if it comes to what the operator asked for, it is woken. */
weir_status weir_harness_set_time(weir_harness *harness, int64_t now);
/* When it has asked to be woken; WEIR_END_OF_TIME if it has not. */
int64_t weir_harness_wake_time(const weir_harness *harness);

/* What was emitted on a port and not yet taken. */
size_t weir_harness_rows(const weir_harness *harness, uint32_t port);
const weir_row *weir_harness_row(const weir_harness *harness, uint32_t port, size_t index);
/* Takes all of it; true if it is this. Shows the difference where it is not. */
bool weir_harness_takes(weir_harness *harness, uint32_t port, const weir_row *rows, size_t count);
#define WEIR_EXPECT(harness, port, ...) \
    do { \
        const weir_row weir_expected[] = {__VA_ARGS__}; \
        WEIR_CHECK(weir_harness_takes(harness, port, weir_expected, sizeof weir_expected / sizeof *weir_expected)); \
    } while (0)
#define WEIR_EXPECT_NOTHING(harness, port) WEIR_CHECK(weir_harness_takes(harness, port, NULL, 0))

/* How many calls of `resume` there were. */
size_t weir_harness_resumed(const weir_harness *harness);
/* The records that were rejected so far, and why. */
size_t weir_harness_rejected(const weir_harness *harness);
const weir_row *weir_harness_rejected_row(const weir_harness *harness, size_t index);
const char *weir_harness_reason(const weir_harness *harness, size_t index);
/* Whether a line that was logged has this text in it. */
bool weir_harness_logged(const weir_harness *harness, weir_level level, const char *text);
/* A counter or gauge, or the last observation; 0 where there is none. */
double weir_harness_metric(const weir_harness *harness, const char *name);

/* ---- Checkpoints ---------------------------------------------------------------------------------------------------- */

/* Takes a whole snapshot at once, of everything or of what has changed, and returns the checkpoint after it. */
const weir_checkpoint *weir_harness_snapshot(weir_harness *harness, bool full);
/* Begins one that is taken in steps. One that is open is abandoned; then, and the first time, this one is full. */
void weir_harness_begin_snapshot(weir_harness *harness, bool full);
/* One step: after `chunks` chunks the operator is asked to stop. WEIR_DONE when nothing is left. */
weir_status weir_harness_snapshot_step(weir_harness *harness, size_t chunks);
/* The last snapshot that was done, as it would be restored. */
const weir_checkpoint *weir_harness_checkpoint(const weir_harness *harness);
/* The chunks and bytes that the last snapshot wrote. */
size_t weir_harness_chunks_written(const weir_harness *harness);
size_t weir_harness_bytes_written(const weir_harness *harness);

/* Whether both hold the same bytes in the same segments. */
bool weir_checkpoint_equal(const weir_checkpoint *a, const weir_checkpoint *b);
size_t weir_checkpoint_chunks(const weir_checkpoint *checkpoint);
/* The bytes of a chunk, to be looked at. */
weir_bytes weir_checkpoint_chunk(const weir_checkpoint *checkpoint, size_t index);
/* The same checkpoint with other bytes in one chunk, or as if a plugin of another state version had written it. */
const weir_checkpoint *weir_checkpoint_with(const weir_checkpoint *checkpoint, size_t index, weir_bytes data);
const weir_checkpoint *weir_checkpoint_of_version(const weir_checkpoint *checkpoint, uint32_t state_version);

#ifdef __cplusplus
}
#endif

#endif
