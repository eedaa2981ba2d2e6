/* Counts records by key in windows of a minute of event time. */

#include "weir.h"

static const int64_t WINDOW = 60000000;

/* The operator. What it has to remember between two calls lies in here, and nowhere else. */
typedef struct tally {
    weir_timers windows; /* by end and key: how many records so far */
    weir_map totals;     /* by key: the records of all windows that were emitted */
    int64_t watermark;   /* of the call that `resume` goes on with */
    weir_builder out;
    weir_buffer text;
} tally;

static const weir_codec count_codec = WEIR_PLAIN(uint64_t);

static weir_status tally_open(void *self, weir_bytes config, const weir_task *task)
{
    tally *op = self;
    weir_timers_init(&op->windows, task, "windows", &count_codec);
    weir_map_init(&op->totals, task, "totals", &count_codec);
    weir_config members;
    weir_config_begin(&members, config);
    return weir_config_end(&members);
}

/* The end of the window that a time belongs to. */
static int64_t window_end(int64_t time)
{
    const int64_t into = time % WINDOW;
    return time - (into < 0 ? into + WINDOW : into) + WINDOW;
}

static weir_status tally_process(void *self, uint32_t port, const weir_batch *batch)
{
    tally *op = self;
    (void)port;
    for (size_t row = 0; row < batch->len; row++) {
        const int64_t time = weir_batch_time(batch, row);
        weir_key key;
        if (!weir_batch_key(batch, row, &key)) {
            weir_reject(row, "no key");
        } else if (time == WEIR_NO_TIME) {
            weir_reject(row, "no time");
        } else {
            uint64_t *count = weir_timers_set(&op->windows, window_end(time), key);
            ++*count;
        }
    }
    return WEIR_DONE;
}

/* Emits the windows that have ended, a part of them where there are many. */
static weir_status tally_end_windows(tally *op)
{
    weir_due due;
    while (weir_timers_due(&op->windows, op->watermark, &due)) {
        const uint64_t count = *(const uint64_t *)due.value;
        uint64_t *total = weir_map_value(&op->totals, due.key);
        *total += count;
        weir_buffer_clear(&op->text);
        weir_buffer_decimal(&op->text, due.time);
        weir_buffer_push(&op->text, " ", 1);
        weir_buffer_decimal(&op->text, (int64_t)count);
        weir_buffer_push(&op->text, " ", 1);
        weir_buffer_decimal(&op->text, (int64_t)*total);
        weir_buffer_push(&op->text, " ", 1);
        weir_buffer_push(&op->text, due.key.bytes.data, due.key.bytes.len);
        weir_builder_push(&op->out, due.time, due.key.bytes, weir_buffer_view(&op->text));
        if (weir_builder_emit_large(&op->out, 0)) return WEIR_MORE;
    }
    weir_builder_emit(&op->out, 0);
    return WEIR_DONE;
}

static weir_status tally_advance(void *self, int64_t watermark)
{
    tally *op = self;
    op->watermark = watermark;
    return tally_end_windows(op);
}

static weir_status tally_resume(void *self) { return tally_end_windows(self); }

static const weir_port inputs[] = {{.name = "in", .summary = "what is counted", .keyed = true}};
static const weir_port outputs[] = {{.name = "out", .summary = "END COUNT TOTAL KEY, one for each window and key", .keyed = true}};

const weir_operator weir_plugin = {
    .name = "tally",
    .version = "0.1.0",
    .summary = "Counts records by key in windows of a minute.",
    .inputs = inputs,
    .input_count = 1,
    .outputs = outputs,
    .output_count = 1,
    .state = WEIR_KEYED,
    .state_version = 1,
    .self_size = sizeof(tally),
    .open = tally_open,
    .process = tally_process,
    .advance = tally_advance,
    .resume = tally_resume,
};
