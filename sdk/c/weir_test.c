/* The host of native tests, and their `main`. It keeps the contract of wit/, and ends the program where the host would trap. */

#define _POSIX_C_SOURCE 200809L

#include "weir_test.h"

#include <stdarg.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "src/internal.h"

enum { KEY_GROUPS = 128, CHUNK_BYTES_MAX = 1 << 20 };

/* All memory of the harness is kept in one list, so that it can be reached until the program ends: what a leak checker then
 * finds is the operator's. */
static struct kept {
    struct kept *next;
    void *memory;
} *all_kept;

static void *keep(size_t size)
{
    struct kept *kept = weir_allocate(sizeof *kept);
    kept->memory = weir_allocate(size);
    kept->next = all_kept;
    all_kept = kept;
    return kept->memory;
}

static weir_bytes keep_bytes(weir_bytes bytes)
{
    if (!bytes.data) return bytes;
    uint8_t *copy = keep(bytes.len + 1);
    if (bytes.len) memcpy(copy, bytes.data, bytes.len);
    return weir_bytes_of(copy, bytes.len);
}

typedef struct list {
    void **items;
    size_t len, capacity;
} list;

static void list_push(list *to, void *item)
{
    if (to->len == to->capacity) {
        void **items = keep((2 * to->len + 4) * sizeof *items);
        if (to->len) memcpy(items, to->items, to->len * sizeof *items);
        to->items = items;
        to->capacity = 2 * to->len + 4;
    }
    to->items[to->len++] = item;
}

/* ---- Tests ---------------------------------------------------------------------------------------------------------- */

static struct test {
    struct test *next;
    const char *name;
    void (*run)(void);
} *first_test, *last_test;

static unsigned failures;

void weir_test_add(const char *name, void (*run)(void))
{
    struct test *test = keep(sizeof *test);
    test->name = name;
    test->run = run;
    if (last_test) last_test->next = test;
    else first_test = test;
    last_test = test;
}

void weir_test_failed(const char *file, int line, const char *what)
{
    fprintf(stderr, "%s:%d: false: %s\n", file, line, what);
    failures++;
}

bool weir_test_dies(void (*run)(void), const char *text)
{
    int ends[2];
    fflush(NULL);
    if (pipe(ends) != 0) return false;
    const pid_t child = fork();
    if (child == 0) {
        dup2(ends[1], 2);
        close(ends[0]);
        close(ends[1]);
        run();
        _exit(0);
    }
    close(ends[1]);
    weir_buffer said = {0};
    char part[512];
    for (ssize_t len; (len = read(ends[0], part, sizeof part)) > 0;) weir_buffer_push(&said, part, (size_t)len);
    close(ends[0]);
    weir_buffer_int(&said, 0, 1);
    int status = 0;
    waitpid(child, &status, 0);
    const bool died = child > 0 && !(WIFEXITED(status) && WEXITSTATUS(status) == 0) && strstr((const char *)said.data, text);
    if (!died) fprintf(stderr, "it should have ended with \"%s\" and said: %s\n", text, (const char *)said.data);
    weir_buffer_free(&said);
    return died;
}

int main(int count, char **arguments)
{
    unsigned run = 0, bad = 0;
    for (const struct test *test = first_test; test; test = test->next) {
        bool wanted = count < 2;
        for (int i = 1; i < count; i++) wanted = wanted || strstr(test->name, arguments[i]);
        if (!wanted) continue;
        failures = 0;
        test->run();
        printf("%s %s\n", failures ? "FAILED" : "ok    ", test->name);
        fflush(stdout);
        run++;
        bad += failures > 0;
    }
    printf("%u tests, %u failed\n", run, bad);
    return run == 0 || bad > 0;
}

/* ---- The harness ---------------------------------------------------------------------------------------------------- */

typedef enum call_kind { CALL_NONE, CALL_OPEN, CALL_PROCESS, CALL_DATA, CALL_SNAPSHOT, CALL_RESTORE } call_kind;

typedef struct stored_chunk {
    weir_segment_scope scope;
    uint32_t group;
    weir_bytes data;
} stored_chunk;

struct weir_checkpoint {
    uint32_t state_version;
    list chunks; /* stored_chunk, in the order in which they are read */
};

typedef struct emitted {
    uint32_t port;
    weir_row row;
} emitted;

typedef struct rejected {
    weir_row row;
    const char *reason;
} rejected;

typedef struct logged {
    weir_level level;
    const char *text;
} logged;

typedef struct metric {
    const char *name;
    double value;
} metric;

struct weir_harness {
    const weir_operator *plugin;
    weir_instance instance;
    weir_status status;
    const char *message;
    call_kind call;
    const weir_batch *input;
    list *outputs; /* weir_row, by port */
    list pending;  /* emitted, by the call that runs */
    list pending_rejected;
    list rejected;
    list log;
    list metrics;
    size_t resumed;
    int64_t now, wake_at, asked_wake;
    const weir_checkpoint *checkpoint;
    bool snapshot_open, snapshot_full;
    uint64_t epoch;
    list written; /* stored_chunk */
    size_t budget, chunks_written, bytes_written, chunks_read;
};

static weir_harness *current;

static void refuse(const char *format, ...) WEIR_PRINTF(1, 2);

/* What the host would trap for. */
static void refuse(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    fputs("the host refuses: ", stderr);
    vfprintf(stderr, format, arguments);
    fputc('\n', stderr);
    va_end(arguments);
    abort();
}

static weir_harness *calling(const char *function, bool allowed_in_process, bool allowed_in_data, call_kind other)
{
    static const char *names[] = {"no call", "open", "process", "advance, wake, finish or resume", "snapshot", "restore"};
    if (!current) refuse("%s was called while no call runs", function);
    const call_kind call = current->call;
    const bool allowed = (allowed_in_process && call == CALL_PROCESS) || (allowed_in_data && call == CALL_DATA) || (other && call == other);
    if (!allowed) refuse("%s was called in %s", function, names[call]);
    return current;
}

static void check_column(const char *name, const weir_column *column, size_t rows)
{
    if (!column->offsets) {
        if (column->bytes_len || column->nulls) refuse("the %s of a batch have bytes or nulls and no offsets", name);
        return;
    }
    if (column->offsets[0] != 0 || column->offsets[rows] != column->bytes_len) {
        refuse("the offsets of the %s of a batch go from %u to %u, and not from 0 to %u", name, column->offsets[0], column->offsets[rows], column->bytes_len);
    }
    for (size_t row = 0; row < rows; row++) {
        if (column->offsets[row] > column->offsets[row + 1]) refuse("an offset of the %s of a batch is smaller than the one before", name);
        const bool none = column->nulls && (column->nulls[row / 8] >> (row % 8) & 1);
        if (none && column->offsets[row] != column->offsets[row + 1]) refuse("record %lu of a batch has bytes among the %s and is marked as none", (unsigned long)row, name);
    }
    if (column->nulls && rows % 8 && column->nulls[rows / 8] >> (rows % 8)) refuse("unused bits of the nulls of the %s of a batch are set", name);
}

static void check_batch(const weir_batch *batch)
{
    check_column("keys", &batch->keys, batch->len);
    check_column("values", &batch->values, batch->len);
    check_column("headers", &batch->headers, batch->len);
}

static weir_row row_of(const weir_batch *batch, size_t index)
{
    weir_row row;
    row.time = weir_batch_time(batch, index);
    row.key = keep_bytes(weir_column_get(&batch->keys, index));
    row.value = keep_bytes(weir_batch_value(batch, index));
    row.headers = keep_bytes(weir_batch_headers(batch, index));
    return row;
}

void weir_host_emit(uint32_t port, const weir_batch *batch)
{
    weir_harness *harness = calling("weir_emit", true, true, CALL_NONE);
    if (port >= harness->plugin->output_count) refuse("a batch was emitted on output port %u, and there are %lu", port, (unsigned long)harness->plugin->output_count);
    check_batch(batch);
    for (size_t i = 0; i < batch->len; i++) {
        emitted *item = keep(sizeof *item);
        item->port = port;
        item->row = row_of(batch, i);
        if (harness->plugin->outputs[port].keyed && !item->row.key.data) refuse("record %lu of a batch has no key, and output port %u is keyed", (unsigned long)i, port);
        list_push(&harness->pending, item);
    }
}

static void push_rejected(weir_harness *harness, weir_row row, weir_bytes reason)
{
    rejected *item = keep(sizeof *item);
    item->row = row;
    item->reason = (const char *)keep_bytes(reason).data;
    list_push(&harness->pending_rejected, item);
}

void weir_host_reject(uint32_t row, weir_bytes reason)
{
    weir_harness *harness = calling("weir_reject", true, false, CALL_NONE);
    if (row >= harness->input->len) refuse("record %u was rejected, and the batch has %lu", row, (unsigned long)harness->input->len);
    push_rejected(harness, row_of(harness->input, row), reason);
}

void weir_host_reject_batch(const weir_batch *batch, weir_bytes reason)
{
    weir_harness *harness = calling("weir_reject_batch", true, true, CALL_NONE);
    check_batch(batch);
    for (size_t i = 0; i < batch->len; i++) push_rejected(harness, row_of(batch, i), reason);
}

void weir_host_log(weir_level level, weir_bytes message)
{
    fprintf(stderr, "%.*s\n", (int)message.len, (const char *)message.data);
    if (!current) return;
    logged *line = keep(sizeof *line);
    line->level = level;
    line->text = (const char *)keep_bytes(message).data;
    list_push(&current->log, line);
}

bool weir_host_log_enabled(weir_level level)
{
    (void)level;
    return true;
}

static metric *metric_named(const weir_harness *harness, weir_bytes name)
{
    for (size_t i = 0; i < harness->metrics.len; i++) {
        metric *found = harness->metrics.items[i];
        if (weir_bytes_equal(weir_text(found->name), name)) return found;
    }
    return NULL;
}

static metric *metric_to_set(weir_bytes name)
{
    if (!current) refuse("a metric was set while no call runs");
    metric *found = metric_named(current, name);
    if (found) return found;
    bool good = name.len >= 1 && name.len <= 64;
    for (size_t i = 0; i < name.len && good; i++) good = strchr("abcdefghijklmnopqrstuvwxyz0123456789_", name.data[i]);
    if (!good) refuse("\"%.*s\" is no name for a metric: 1 to 64 lower-case letters, digits and underscores", (int)name.len, (const char *)name.data);
    found = keep(sizeof *found);
    found->name = (const char *)keep_bytes(name).data;
    list_push(&current->metrics, found);
    return found;
}

void weir_host_count(weir_bytes name, uint64_t delta) { metric_to_set(name)->value += (double)delta; }
void weir_host_gauge(weir_bytes name, double value) { metric_to_set(name)->value = value; }
void weir_host_observe(weir_bytes name, double value) { metric_to_set(name)->value = value; }
int64_t weir_host_now(void) { return current && current->call != CALL_OPEN ? current->now : 0; }

void weir_host_wake_at(int64_t time)
{
    weir_harness *harness = calling("weir_wake_at", true, true, CALL_NONE);
    if (time < harness->asked_wake) harness->asked_wake = time;
}

bool weir_host_write(const weir_chunk *chunk)
{
    weir_harness *harness = calling("a write of state", false, false, CALL_SNAPSHOT);
    const weir_task *task = &harness->instance.task;
    if (chunk->data.len > CHUNK_BYTES_MAX) refuse("a chunk has %lu bytes, and a host may take no more than %d", (unsigned long)chunk->data.len, CHUNK_BYTES_MAX);
    if (chunk->scope == WEIR_SCOPE_KEY_GROUP && (chunk->group < task->first_key_group || chunk->group >= task->end_key_group)) {
        refuse("key group %u is none of this subtask's", chunk->group);
    }
    if (chunk->kind != WEIR_BASE) refuse("this SDK writes bases only");
    stored_chunk *stored = keep(sizeof *stored);
    stored->scope = chunk->scope;
    stored->group = chunk->group;
    stored->data = keep_bytes(chunk->data);
    list_push(&harness->written, stored);
    harness->chunks_written++;
    harness->bytes_written += chunk->data.len;
    if (harness->budget) harness->budget--;
    return harness->budget > 0;
}

bool weir_host_read(weir_chunk *chunk)
{
    weir_harness *harness = calling("a read of state", false, false, CALL_RESTORE);
    if (harness->chunks_read == harness->checkpoint->chunks.len) return false;
    const stored_chunk *stored = harness->checkpoint->chunks.items[harness->chunks_read++];
    chunk->scope = stored->scope;
    chunk->group = stored->group;
    chunk->kind = WEIR_BASE;
    chunk->data = stored->data;
    return true;
}

void weir_host_trap(void) { abort(); }

/* ---- Calls ---------------------------------------------------------------------------------------------------------- */

static void begin(weir_harness *harness, call_kind call)
{
    current = harness;
    harness->call = call;
    harness->asked_wake = WEIR_END_OF_TIME;
    harness->pending.len = 0;
    harness->pending_rejected.len = 0;
}

/* What the call said takes effect if it went well. */
static weir_status end(weir_harness *harness, weir_status status)
{
    harness->call = CALL_NONE;
    harness->status = status;
    harness->message = status > WEIR_MORE ? (const char *)keep_bytes(weir_failure_message()).data : "";
    if (status > WEIR_MORE) return status;
    for (size_t i = 0; i < harness->pending.len; i++) {
        emitted *item = harness->pending.items[i];
        list_push(&harness->outputs[item->port], &item->row);
    }
    for (size_t i = 0; i < harness->pending_rejected.len; i++) list_push(&harness->rejected, harness->pending_rejected.items[i]);
    if (harness->asked_wake < harness->wake_at) harness->wake_at = harness->asked_wake;
    return status;
}

static weir_status resume(weir_harness *harness, weir_status status)
{
    while (end(harness, status) == WEIR_MORE) {
        begin(harness, CALL_DATA);
        harness->resumed++;
        status = weir_instance_resume(&harness->instance);
    }
    return status;
}

static uint32_t first_group(uint32_t subtask, uint32_t parallelism) { return (subtask * KEY_GROUPS + parallelism - 1) / parallelism; }

weir_harness *weir_harness_open_subtask(const weir_operator *plugin, const char *config, uint32_t subtask, uint32_t parallelism)
{
    weir_harness *harness = keep(sizeof *harness);
    weir_task task;
    memset(&task, 0, sizeof task);
    task.job = "test";
    task.node = "operator";
    task.subtask = subtask;
    task.parallelism = parallelism;
    task.key_groups = KEY_GROUPS;
    task.first_key_group = first_group(subtask, parallelism);
    task.end_key_group = first_group(subtask + 1, parallelism);
    task.seed = 0x5eed + subtask;
    harness->plugin = plugin;
    harness->outputs = keep((plugin->output_count + 1) * sizeof *harness->outputs);
    harness->wake_at = WEIR_END_OF_TIME;
    begin(harness, CALL_OPEN);
    end(harness, weir_instance_open(&harness->instance, plugin, weir_text(config), &task));
    return harness;
}

weir_harness *weir_harness_open(const weir_operator *plugin, const char *config) { return weir_harness_open_subtask(plugin, config, 0, 1); }

weir_status weir_harness_status(const weir_harness *harness) { return harness->status; }
const char *weir_harness_message(const weir_harness *harness) { return harness->message; }
void *weir_harness_self(const weir_harness *harness) { return harness->instance.self; }

weir_status weir_harness_process_batch(weir_harness *harness, uint32_t port, const weir_batch *batch)
{
    if (port >= harness->plugin->input_count) refuse("there is no input port %u", port);
    if (!batch->len) refuse("a batch that comes in has at least one record");
    check_batch(batch);
    begin(harness, CALL_PROCESS);
    harness->input = batch;
    return resume(harness, weir_instance_process(&harness->instance, port, batch));
}

weir_status weir_harness_process(weir_harness *harness, uint32_t port, const weir_row *rows, size_t count)
{
    weir_builder builder;
    weir_buffer hashes = {0};
    memset(&builder, 0, sizeof builder);
    for (size_t i = 0; i < count; i++) {
        weir_builder_push(&builder, rows[i].time, rows[i].key, rows[i].value);
        weir_bytes rest = rows[i].headers, name, value;
        while (weir_header_next(&rest, &name, &value)) weir_builder_header(&builder, name, value);
        weir_buffer_int(&hashes, weir_key_of(rows[i].key).hash, 8);
    }
    weir_batch batch = weir_builder_view(&builder);
    if (port < harness->plugin->input_count && harness->plugin->inputs[port].keyed) batch.hashes = (const uint64_t *)(const void *)hashes.data;
    const weir_status status = weir_harness_process_batch(harness, port, &batch);
    weir_builder_free(&builder);
    weir_buffer_free(&hashes);
    return status;
}

weir_status weir_harness_advance(weir_harness *harness, int64_t watermark)
{
    begin(harness, CALL_DATA);
    return resume(harness, weir_instance_advance(&harness->instance, watermark));
}

weir_status weir_harness_finish(weir_harness *harness, uint32_t port)
{
    begin(harness, CALL_DATA);
    return resume(harness, weir_instance_finish(&harness->instance, port));
}

weir_status weir_harness_set_time(weir_harness *harness, int64_t now)
{
    if (now > harness->now) harness->now = now;
    if (harness->wake_at > harness->now) return harness->status = WEIR_DONE;
    harness->wake_at = WEIR_END_OF_TIME;
    begin(harness, CALL_DATA);
    return resume(harness, weir_instance_wake(&harness->instance));
}

int64_t weir_harness_wake_time(const weir_harness *harness) { return harness->wake_at; }

/* ---- What came out -------------------------------------------------------------------------------------------------- */

size_t weir_harness_rows(const weir_harness *harness, uint32_t port) { return harness->outputs[port].len; }

const weir_row *weir_harness_row(const weir_harness *harness, uint32_t port, size_t index)
{
    if (index >= harness->outputs[port].len) refuse("output port %u has %lu records, and record %lu was asked for", port, (unsigned long)harness->outputs[port].len, (unsigned long)index);
    return harness->outputs[port].items[index];
}

static bool headers_equal(weir_bytes a, weir_bytes b) { return (!a.len && !b.len) || weir_bytes_equal(a, b); }

static void show(const char *before, const weir_row *row)
{
    fprintf(stderr, "  %s %lld ", before, (long long)row->time);
    const weir_bytes parts[] = {row->key, row->value};
    for (int i = 0; i < 2; i++) {
        if (!parts[i].data) fputs("none", stderr);
        else fprintf(stderr, "\"%.*s\"", (int)parts[i].len, (const char *)parts[i].data);
        fputs(i ? "\n" : " = ", stderr);
    }
}

bool weir_harness_takes(weir_harness *harness, uint32_t port, const weir_row *rows, size_t count)
{
    if (port >= harness->plugin->output_count) refuse("there is no output port %u", port);
    list *output = &harness->outputs[port];
    bool same = output->len == count;
    for (size_t i = 0; i < count && same; i++) {
        const weir_row *row = output->items[i];
        same = row->time == rows[i].time && weir_bytes_equal(row->key, rows[i].key) && weir_bytes_equal(row->value, rows[i].value) && headers_equal(row->headers, rows[i].headers);
    }
    if (!same) {
        fprintf(stderr, "output port %u:\n", port);
        for (size_t i = 0; i < count; i++) show("expected", &rows[i]);
        for (size_t i = 0; i < output->len; i++) show("emitted ", output->items[i]);
    }
    output->len = 0;
    return same;
}

size_t weir_harness_resumed(const weir_harness *harness) { return harness->resumed; }
size_t weir_harness_rejected(const weir_harness *harness) { return harness->rejected.len; }

const weir_row *weir_harness_rejected_row(const weir_harness *harness, size_t index)
{
    if (index >= harness->rejected.len) refuse("%lu records were rejected, and number %lu was asked for", (unsigned long)harness->rejected.len, (unsigned long)index);
    return &((rejected *)harness->rejected.items[index])->row;
}

const char *weir_harness_reason(const weir_harness *harness, size_t index)
{
    return index < harness->rejected.len ? ((rejected *)harness->rejected.items[index])->reason : "(not so many records were rejected)";
}

bool weir_harness_logged(const weir_harness *harness, weir_level level, const char *text)
{
    for (size_t i = 0; i < harness->log.len; i++) {
        const logged *line = harness->log.items[i];
        if (line->level == level && strstr(line->text, text)) return true;
    }
    return false;
}

double weir_harness_metric(const weir_harness *harness, const char *name)
{
    const metric *found = metric_named(harness, weir_text(name));
    return found ? found->value : 0;
}

/* ---- Checkpoints ---------------------------------------------------------------------------------------------------- */

static bool same_segment(const stored_chunk *a, const stored_chunk *b) { return a->scope == b->scope && a->group == b->group; }

static bool is_before(const stored_chunk *a, const stored_chunk *b) { return a->scope != b->scope ? a->scope < b->scope : a->group < b->group; }

static void insert(list *chunks, stored_chunk *chunk)
{
    size_t at = chunks->len;
    list_push(chunks, chunk);
    for (; at > 0 && is_before(chunk, chunks->items[at - 1]); at--) chunks->items[at] = chunks->items[at - 1];
    chunks->items[at] = chunk;
}

static bool was_written(const weir_harness *harness, const stored_chunk *chunk)
{
    for (size_t i = 0; i < harness->written.len; i++) {
        if (same_segment(harness->written.items[i], chunk)) return true;
    }
    return false;
}

void weir_harness_begin_snapshot(weir_harness *harness, bool full)
{
    harness->snapshot_full = full || harness->snapshot_open || !harness->checkpoint;
    harness->snapshot_open = true;
    harness->epoch++;
    harness->written.len = 0;
    harness->chunks_written = harness->bytes_written = 0;
}

weir_status weir_harness_snapshot_step(weir_harness *harness, size_t chunks)
{
    if (!harness->snapshot_open) refuse("weir_harness_begin_snapshot comes before weir_harness_snapshot_step");
    begin(harness, CALL_SNAPSHOT);
    harness->budget = chunks;
    const weir_status status = end(harness, weir_instance_snapshot(&harness->instance, harness->epoch, harness->snapshot_full));
    if (status != WEIR_DONE) return status;
    harness->snapshot_open = false;
    weir_checkpoint *checkpoint = keep(sizeof *checkpoint);
    checkpoint->state_version = harness->plugin->state_version;
    for (size_t i = 0; !harness->snapshot_full && i < harness->checkpoint->chunks.len; i++) {
        stored_chunk *chunk = harness->checkpoint->chunks.items[i];
        if (!was_written(harness, chunk)) insert(&checkpoint->chunks, chunk);
    }
    for (size_t i = 0; i < harness->written.len; i++) {
        stored_chunk *chunk = harness->written.items[i];
        if (chunk->data.len) insert(&checkpoint->chunks, chunk);
    }
    harness->checkpoint = checkpoint;
    return status;
}

const weir_checkpoint *weir_harness_snapshot(weir_harness *harness, bool full)
{
    weir_harness_begin_snapshot(harness, full);
    while (weir_harness_snapshot_step(harness, SIZE_MAX) == WEIR_MORE) {}
    return harness->checkpoint;
}

const weir_checkpoint *weir_harness_checkpoint(const weir_harness *harness) { return harness->checkpoint; }
size_t weir_harness_chunks_written(const weir_harness *harness) { return harness->chunks_written; }
size_t weir_harness_bytes_written(const weir_harness *harness) { return harness->bytes_written; }

weir_harness *weir_harness_restore_subtask(const weir_operator *plugin, const char *config, uint32_t subtask, uint32_t parallelism,
                                           const weir_checkpoint *const *checkpoints, size_t count)
{
    weir_harness *harness = weir_harness_open_subtask(plugin, config, subtask, parallelism);
    if (harness->status != WEIR_DONE) return harness;
    const weir_task *task = &harness->instance.task;
    weir_checkpoint *mine = keep(sizeof *mine);
    mine->state_version = count ? checkpoints[0]->state_version : plugin->state_version;
    bool shared = false;
    for (size_t i = 0; i < count; i++) {
        bool shared_here = false;
        for (size_t j = 0; j < checkpoints[i]->chunks.len; j++) {
            stored_chunk *chunk = checkpoints[i]->chunks.items[j];
            bool take = false;
            switch (chunk->scope) {
            case WEIR_SCOPE_KEY_GROUP: take = chunk->group >= task->first_key_group && chunk->group < task->end_key_group; break;
            case WEIR_SCOPE_SUBTASK:
                if (count != parallelism) refuse("a value of the subtask refuses another parallelism: %lu before, %u now", (unsigned long)count, parallelism);
                take = i == subtask;
                break;
            case WEIR_SCOPE_SHARED:
                take = !shared;
                shared_here = true;
                break;
            case WEIR_SCOPE_ITEM: break;
            }
            if (take) insert(&mine->chunks, chunk);
        }
        shared = shared || shared_here;
    }
    harness->checkpoint = mine;
    begin(harness, CALL_RESTORE);
    const weir_status status = end(harness, weir_instance_restore(&harness->instance, mine->state_version));
    if (status == WEIR_DONE && harness->chunks_read < mine->chunks.len) refuse("restore left %lu chunks unread", (unsigned long)(mine->chunks.len - harness->chunks_read));
    return harness;
}

weir_harness *weir_harness_restore(const weir_operator *plugin, const char *config, const weir_checkpoint *checkpoint)
{
    return weir_harness_restore_subtask(plugin, config, 0, 1, &checkpoint, 1);
}

bool weir_checkpoint_equal(const weir_checkpoint *a, const weir_checkpoint *b)
{
    if (a->chunks.len != b->chunks.len) return false;
    for (size_t i = 0; i < a->chunks.len; i++) {
        const stored_chunk *x = a->chunks.items[i], *y = b->chunks.items[i];
        if (!same_segment(x, y) || !weir_bytes_equal(x->data, y->data)) return false;
    }
    return true;
}

size_t weir_checkpoint_chunks(const weir_checkpoint *checkpoint) { return checkpoint->chunks.len; }

weir_bytes weir_checkpoint_chunk(const weir_checkpoint *checkpoint, size_t index)
{
    if (index >= checkpoint->chunks.len) refuse("a checkpoint has %lu chunks, and chunk %lu was asked for", (unsigned long)checkpoint->chunks.len, (unsigned long)index);
    return ((stored_chunk *)checkpoint->chunks.items[index])->data;
}

const weir_checkpoint *weir_checkpoint_with(const weir_checkpoint *checkpoint, size_t index, weir_bytes data)
{
    weir_checkpoint *copy = keep(sizeof *copy);
    copy->state_version = checkpoint->state_version;
    for (size_t i = 0; i < checkpoint->chunks.len; i++) {
        stored_chunk *chunk = keep(sizeof *chunk);
        *chunk = *(stored_chunk *)checkpoint->chunks.items[i];
        if (i == index) chunk->data = keep_bytes(data);
        list_push(&copy->chunks, chunk);
    }
    return copy;
}

const weir_checkpoint *weir_checkpoint_of_version(const weir_checkpoint *checkpoint, uint32_t state_version)
{
    weir_checkpoint *copy = keep(sizeof *copy);
    *copy = *checkpoint;
    copy->state_version = state_version;
    return copy;
}
