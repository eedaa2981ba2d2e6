/* What a plugin prints, and why it ended, has to reach the log. What it does is the value of the record. */

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>

#include "weir.h"

static weir_status noisy_open(void *self, weir_bytes config, const weir_task *task)
{
    (void)self, (void)config;
    printf("opened %s as %u of %u\n", task->node, task->subtask, task->parallelism);
    return WEIR_DONE;
}

static bool says(weir_bytes value, const char *what) { return weir_bytes_equal(value, weir_text(what)); }

static weir_status noisy_process(void *self, uint32_t port, const weir_batch *batch)
{
    (void)self, (void)port;
    for (size_t row = 0; row < batch->len; row++) {
        const weir_bytes value = weir_batch_value(batch, row);
        if (says(value, "print")) printf("printed %.2f\n", 1.5);
        if (says(value, "complain")) fprintf(stderr, "complained %d\n", 42);
        if (says(value, "log")) weir_log(WEIR_WARN, "logged %s", "this");
        if (says(value, "assert")) assert(row > 1000000);
        if (says(value, "abort")) abort();
        if (says(value, "panic")) weir_panic("panicked at row %lu", (unsigned long)row);
        if (says(value, "fail")) return weir_fail(WEIR_FATAL, "failed at row %lu", (unsigned long)row);
        if (says(value, "exhaust")) {
            weir_buffer all = {0};
            for (;;) weir_buffer_extend(&all, 1 << 20);
        }
    }
    weir_count("batches", 1);
    weir_emit(0, batch);
    return WEIR_DONE;
}

static const weir_port ports[] = {{.name = "in"}};
static const weir_port outputs[] = {{.name = "out"}};
const weir_operator weir_plugin = {.name = "noisy", .version = "0.1.0", .inputs = ports, .input_count = 1, .outputs = outputs, .output_count = 1, .open = noisy_open, .process = noisy_process};
