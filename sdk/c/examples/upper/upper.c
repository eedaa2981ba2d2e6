/* Hands records on with the ASCII letters of their values as capitals. */

#include "weir.h"

enum { VALUE_BYTES_MAX = 80 };

typedef struct upper {
    weir_builder out; /* what a call emits; kept for its memory */
    weir_buffer text;
} upper;

static weir_status upper_open(void *self, weir_bytes config, const weir_task *task)
{
    (void)self, (void)task;
    weir_config members;
    weir_config_begin(&members, config);
    return weir_config_end(&members);
}

static weir_status upper_process(void *self, uint32_t port, const weir_batch *batch)
{
    upper *op = self;
    (void)port;
    for (size_t row = 0; row < batch->len; row++) {
        const weir_bytes value = weir_batch_value(batch, row);
        if (!value.data) {
            weir_builder_push_row(&op->out, batch, row);
            continue;
        }
        if (value.len > VALUE_BYTES_MAX) {
            weir_reject(row, "the value has %lu bytes, more than %d", (unsigned long)value.len, VALUE_BYTES_MAX);
            continue;
        }
        weir_buffer_clear(&op->text);
        uint8_t *to = weir_buffer_extend(&op->text, value.len);
        for (size_t i = 0; i < value.len; i++) {
            const uint8_t c = value.data[i];
            to[i] = c >= 'a' && c <= 'z' ? (uint8_t)(c - 'a' + 'A') : c;
        }
        weir_builder_push(&op->out, weir_batch_time(batch, row), weir_column_get(&batch->keys, row), weir_buffer_view(&op->text));
    }
    weir_builder_emit(&op->out, 0);
    return WEIR_DONE;
}

static const weir_port inputs[] = {{.name = "in", .summary = "any records"}};
static const weir_port outputs[] = {{.name = "out", .summary = "the same in capitals"}};

const weir_operator weir_plugin = {
    .name = "upper",
    .version = "0.1.0",
    .summary = "Hands records on with the ASCII letters of their values as capitals.",
    .inputs = inputs,
    .input_count = 1,
    .outputs = outputs,
    .output_count = 1,
    .state = WEIR_STATELESS,
    .self_size = sizeof(upper),
    .open = upper_open,
    .process = upper_process,
};
