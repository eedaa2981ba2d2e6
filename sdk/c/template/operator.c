/* Hands on a reading only when it differs by at least `least` from the last one handed on, for each key. */

#include "weir.h"

/* The operator. What it has to remember between two calls lies in here, and nowhere else. It begins as zeros. */
typedef struct changes {
    double least;
    /* The value that was handed on last, by key. This is the state: it is in every checkpoint and survives crashes. */
    weir_map last;
    /* What a call emits. It is kept only for its memory. */
    weir_builder out;
} changes;

/* How the state lies in memory and in a snapshot. Raise the state version when you change it. */
static const weir_codec reading_codec = WEIR_PLAIN(double);

static weir_status changes_open(void *self, weir_bytes config, const weir_task *task)
{
    changes *op = self;
    /* The name is how the state is found again; never change it. */
    weir_map_init(&op->last, task, "last", &reading_codec);

    weir_config members;
    weir_config_begin(&members, config);
    op->least = weir_config_double(&members, "least", 0, 0, 1e300);
    return weir_config_end(&members);
}

/* The number under `value`; NULL, or what is wrong with the record. */
static const char *read_value(weir_bytes record, double *value)
{
    weir_json json, member;
    const char *wrong = record.data ? weir_json_parse(record, &json, NULL) : "there is none";
    if (wrong) return wrong;
    if (!weir_json_member(&json, "value", &member)) return "no member \"value\"";
    return weir_json_double(&member, value) ? NULL : "its \"value\" is no number";
}

/* Called for each batch of records. What it emits takes effect when it returns WEIR_DONE: the call is a transaction. */
static weir_status changes_process(void *self, uint32_t port, const weir_batch *batch)
{
    changes *op = self;
    (void)port;
    for (size_t row = 0; row < batch->len; row++) {
        /* A record that cannot be processed is no failure: put it aside, with the reason, and go on. */
        weir_key key;
        if (!weir_batch_key(batch, row, &key)) {
            weir_reject(row, "it has no key");
            continue;
        }
        double value;
        const char *wrong = read_value(weir_batch_value(batch, row), &value);
        if (wrong) {
            weir_reject(row, "it is no reading: %s", wrong);
            continue;
        }
        const double *last = weir_map_get(&op->last, key);
        if (!last || value - *last >= op->least || *last - value >= op->least) {
            *(double *)weir_map_value(&op->last, key) = value;
            weir_builder_push_row(&op->out, batch, row);
        }
    }
    /* Once for the whole batch: that is cheaper than once a record. */
    weir_builder_emit(&op->out, 0);
    return WEIR_DONE;
}

/* Keyed: all records of a key come to the same subtask, in order, with the hash of the key. */
static const weir_port inputs[] = {{.name = "in", .summary = "readings: JSON objects with a number under `value`", .keyed = true}};
static const weir_port outputs[] = {{.name = "out", .summary = "those that have changed, as they came in", .keyed = true}};

const weir_operator weir_plugin = {
    .name = "{{name}}",
    .version = "0.1.0",
    .summary = "Hands on a reading when it has changed.",
    .inputs = inputs,
    .input_count = 1,
    .outputs = outputs,
    .output_count = 1,
    .state = WEIR_KEYED,
    .state_version = 1,
    /* For people and their tools; `open` checks the configuration in any case. */
    .config_schema = "{\"type\":\"object\",\"properties\":{\"least\":{\"type\":\"number\",\"minimum\":0}},\"additionalProperties\":false}",
    .self_size = sizeof(changes),
    .open = changes_open,
    .process = changes_process,
};
