/* Sessions by key: records that are at most half a minute apart belong together. */

#include <stdlib.h>

#include "weir.h"

static const int64_t GAP = 30000000;

typedef struct visit {
    int64_t start;
    int64_t end;
    uint64_t count;
} visit;

/* The open visits of a key, by start. They are more than GAP apart. */
typedef struct visits_of_key {
    visit *visits;
    size_t len;
} visits_of_key;

static void encode(const void *value, weir_buffer *to)
{
    const visits_of_key *of = value;
    for (size_t i = 0; i < of->len; i++) {
        weir_buffer_int(to, (uint64_t)of->visits[i].start, 8);
        weir_buffer_int(to, (uint64_t)of->visits[i].end, 8);
        weir_buffer_int(to, of->visits[i].count, 8);
    }
}

static bool decode(void *value, weir_bytes from, uint32_t state_version)
{
    visits_of_key *of = value;
    (void)state_version;
    of->visits = calloc(from.len / 24 + 1, sizeof *of->visits);
    if (!of->visits) weir_panic("no memory for %lu visits", (unsigned long)(from.len / 24));
    while (from.len) {
        uint64_t start, end, count;
        if (!weir_take_int(&from, 8, &start) || !weir_take_int(&from, 8, &end) || !weir_take_int(&from, 8, &count)) return false;
        of->visits[of->len++] = (visit){(int64_t)start, (int64_t)end, count};
    }
    return true;
}

static void drop(void *value) { free(((visits_of_key *)value)->visits); }

static const weir_codec visits_codec = {.size = sizeof(visits_of_key), .encode = encode, .decode = decode, .drop = drop};

typedef struct visits {
    weir_map open;    /* by key: its open visits */
    weir_timers ends; /* by end and key: when a visit is over, but for the gap */
    int64_t watermark;
    weir_builder out;
    weir_buffer text;
} visits;

static weir_status visits_open(void *self, weir_bytes config, const weir_task *task)
{
    visits *op = self;
    weir_map_init(&op->open, task, "open", &visits_codec);
    weir_timers_init(&op->ends, task, "ends", NULL);
    weir_config members;
    weir_config_begin(&members, config);
    return weir_config_end(&members);
}

/* The time at `by` from `time`; the last or first one where there is none. */
static int64_t shifted(int64_t time, int64_t by)
{
    if (by > 0 && time > INT64_MAX - by) return INT64_MAX;
    if (by < 0 && time < INT64_MIN - by) return INT64_MIN;
    return time + by;
}

/* Adds a record: opens a visit, or extends one, or joins all that it brings together. */
static void add(visits *op, weir_key key, int64_t time)
{
    visits_of_key *of = weir_map_value(&op->open, key);
    visit added = {time, time, 1};
    size_t first = 0;
    while (first < of->len && of->visits[first].end < shifted(time, -GAP)) first++;
    size_t after = first;
    for (; after < of->len && of->visits[after].start <= shifted(time, GAP); after++) {
        const visit *joined = &of->visits[after];
        if (joined->start < added.start) added.start = joined->start;
        if (joined->end > added.end) added.end = joined->end;
        added.count += joined->count;
        weir_timers_cancel(&op->ends, joined->end, key);
    }
    if (after == first) {
        visit *larger = realloc(of->visits, (of->len + 1) * sizeof *larger);
        if (!larger) weir_panic("no memory for %lu visits", (unsigned long)of->len + 1);
        of->visits = larger;
    }
    memmove(of->visits + first + 1, of->visits + after, (of->len - after) * sizeof added);
    of->visits[first] = added;
    of->len = of->len - (after - first) + 1;
    weir_timers_set(&op->ends, added.end, key);
}

static weir_status visits_process(void *self, uint32_t port, const weir_batch *batch)
{
    visits *op = self;
    (void)port;
    for (size_t row = 0; row < batch->len; row++) {
        const int64_t time = weir_batch_time(batch, row);
        weir_key key;
        if (!weir_batch_key(batch, row, &key)) {
            weir_reject(row, "no key");
        } else if (time == WEIR_NO_TIME) {
            weir_reject(row, "no time");
        } else {
            add(op, key, time);
        }
    }
    return WEIR_DONE;
}

static void emit(visits *op, weir_key key, const visit *over)
{
    weir_buffer_clear(&op->text);
    weir_buffer_decimal(&op->text, over->start);
    weir_buffer_push(&op->text, " ", 1);
    weir_buffer_decimal(&op->text, over->end);
    weir_buffer_push(&op->text, " ", 1);
    weir_buffer_decimal(&op->text, (int64_t)over->count);
    weir_buffer_push(&op->text, " ", 1);
    weir_buffer_push(&op->text, key.bytes.data, key.bytes.len);
    weir_builder_push(&op->out, over->end, key.bytes, weir_buffer_view(&op->text));
}

/* Emits the visits that are over, a part of them where there are many. */
static weir_status end_visits(visits *op)
{
    const int64_t last = op->watermark == WEIR_END_OF_TIME ? WEIR_END_OF_TIME : shifted(op->watermark, -GAP);
    weir_due due;
    while (weir_timers_due(&op->ends, last, &due)) {
        visits_of_key *of = weir_map_change(&op->open, due.key);
        size_t i = 0;
        while (of->visits[i].end != due.time) i++;
        emit(op, due.key, &of->visits[i]);
        memmove(of->visits + i, of->visits + i + 1, (--of->len - i) * sizeof *of->visits);
        if (!of->len) weir_map_remove(&op->open, due.key);
        if (weir_builder_emit_large(&op->out, 0)) return WEIR_MORE;
    }
    weir_builder_emit(&op->out, 0);
    return WEIR_DONE;
}

static weir_status visits_advance(void *self, int64_t watermark)
{
    visits *op = self;
    op->watermark = watermark;
    return end_visits(op);
}

static weir_status visits_resume(void *self) { return end_visits(self); }

static const weir_port inputs[] = {{.name = "in", .summary = "what somebody did, by key", .keyed = true}};
static const weir_port outputs[] = {{.name = "out", .summary = "START END COUNT KEY, one for each visit", .keyed = true}};

const weir_operator weir_plugin = {
    .name = "visits",
    .version = "0.1.0",
    .summary = "Joins records of a key that are at most 30 seconds apart.",
    .inputs = inputs,
    .input_count = 1,
    .outputs = outputs,
    .output_count = 1,
    .state = WEIR_KEYED,
    .state_version = 1,
    .self_size = sizeof(visits),
    .open = visits_open,
    .process = visits_process,
    .advance = visits_advance,
    .resume = visits_resume,
};
