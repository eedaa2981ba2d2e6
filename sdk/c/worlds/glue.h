/* Between the bindings that wit-bindgen generated and the SDK: what the host calls in a component, and how it is called.
 * Included by the two files beside it, one for each world, after their bindings.
 *
 * The arguments of a call are ours to free; what is returned is freed by the bindings when the host has read it. */

#include <stdlib.h>

#include "../src/internal.h"

/* The bindings refer to an object file that says which world this is; `weir plugin componentize --world` says it instead. */
void __component_type_object_force_link_weir_wit(void);
void __component_type_object_force_link_weir_wit(void) {}

static weir_instance instance;

/* ---- What the host does for us -------------------------------------------------------------------------------------- */

/* The bindings' types have no const; nothing is written through them. */
static weir_wit_string_t as_string(weir_bytes bytes) { return (weir_wit_string_t){(uint8_t *)(uintptr_t)bytes.data, bytes.len}; }

static void lend_column(const weir_column *column, size_t rows, weir_wit_list_u32_t *offsets, weir_wit_list_u8_t *bytes, weir_wit_list_u8_t *nulls)
{
    *offsets = (weir_wit_list_u32_t){(uint32_t *)(uintptr_t)column->offsets, column->offsets ? rows + 1 : 0};
    *bytes = (weir_wit_list_u8_t){(uint8_t *)(uintptr_t)column->bytes, column->offsets ? column->bytes_len : 0};
    *nulls = (weir_wit_list_u8_t){(uint8_t *)(uintptr_t)column->nulls, column->offsets && column->nulls ? (rows + 7) / 8 : 0};
}

static weir_plugin_types_batch_t lend(const weir_batch *batch)
{
    weir_plugin_types_batch_t lent;
    weir_wit_list_u8_t no_nulls;
    memset(&lent, 0, sizeof lent);
    lent.timestamps = (weir_plugin_types_list_timestamp_t){(int64_t *)(uintptr_t)batch->timestamps, batch->len};
    lend_column(&batch->keys, batch->len, &lent.key_offsets, &lent.keys, &lent.key_nulls);
    lend_column(&batch->values, batch->len, &lent.value_offsets, &lent.values, &lent.value_nulls);
    lend_column(&batch->headers, batch->len, &lent.header_offsets, &lent.headers, &no_nulls);
    return lent;
}

void weir_host_emit(uint32_t port, const weir_batch *batch)
{
    weir_plugin_types_batch_t lent = lend(batch);
    weir_plugin_output_emit(port, &lent);
}

void weir_host_reject(uint32_t row, weir_bytes reason)
{
    weir_wit_string_t text = as_string(reason);
    weir_plugin_output_reject(row, &text);
}

void weir_host_reject_batch(const weir_batch *batch, weir_bytes reason)
{
    weir_plugin_types_batch_t lent = lend(batch);
    weir_wit_string_t text = as_string(reason);
    weir_plugin_output_reject_batch(&lent, &text);
}

void weir_host_log(weir_level level, weir_bytes message)
{
    weir_wit_string_t text = as_string(message);
    weir_plugin_log_write((weir_plugin_log_level_t)level, &text);
}

bool weir_host_log_enabled(weir_level level) { return weir_plugin_log_enabled((weir_plugin_log_level_t)level); }

void weir_host_count(weir_bytes name, uint64_t delta)
{
    weir_wit_string_t text = as_string(name);
    weir_plugin_metrics_count(&text, delta);
}

void weir_host_gauge(weir_bytes name, double value)
{
    weir_wit_string_t text = as_string(name);
    weir_plugin_metrics_gauge(&text, value);
}

void weir_host_observe(weir_bytes name, double value)
{
    weir_wit_string_t text = as_string(name);
    weir_plugin_metrics_observe(&text, value);
}

int64_t weir_host_now(void) { return weir_plugin_timers_now(); }
void weir_host_wake_at(int64_t time) { weir_plugin_timers_wake_at(time); }
void weir_host_trap(void) { __builtin_trap(); }

/* What the C library does when an assertion fails or `abort` is called: the reason reaches the log before the trap. */
WEIR_NORETURN void __assert_fail(const char *condition, const char *file, int line, const char *function);
WEIR_NORETURN void __assert_fail(const char *condition, const char *file, int line, const char *function)
{
    weir_panic("%s:%d: %s: it does not hold that %s", file, line, function ? function : "?", condition);
}

__attribute__((weak)) WEIR_NORETURN void abort(void) { weir_panic("the operator called abort"); }

/* ---- What we do for the host ---------------------------------------------------------------------------------------- */

static weir_wit_string_t copy_of(weir_bytes bytes)
{
    weir_wit_string_t text = {NULL, bytes.len};
    if (bytes.len) {
        text.ptr = weir_allocate(bytes.len);
        memcpy(text.ptr, bytes.data, bytes.len);
    }
    return text;
}

static weir_plugin_types_list_port_t copy_of_ports(const weir_port *ports, size_t count)
{
    weir_plugin_types_list_port_t list = {NULL, count};
    if (count) list.ptr = weir_allocate(count * sizeof *list.ptr);
    for (size_t i = 0; i < count; i++) {
        list.ptr[i].name = copy_of(weir_text(ports[i].name));
        list.ptr[i].summary = copy_of(weir_text(ports[i].summary));
        list.ptr[i].keyed = ports[i].keyed;
    }
    return list;
}

void exports_weir_plugin_processor_describe(weir_plugin_types_descriptor_t *to)
{
    const weir_operator *plugin = &weir_plugin;
    memset(to, 0, sizeof *to);
    to->name = copy_of(weir_text(plugin->name));
    to->version = copy_of(weir_text(plugin->version));
    to->summary = copy_of(weir_text(plugin->summary));
    to->inputs = copy_of_ports(plugin->inputs, plugin->input_count);
    to->outputs = copy_of_ports(plugin->outputs, plugin->output_count);
    to->state = (weir_plugin_types_state_kind_t)plugin->state;
    to->state_version = plugin->state_version;
    to->oldest_state_version = plugin->oldest_state_version ? plugin->oldest_state_version : plugin->state_version;
    to->config_schema.is_some = plugin->config_schema != NULL;
    to->config_schema.val = copy_of(weir_text(plugin->config_schema));
}

/* True where it went well. */
static bool answer(weir_status status, weir_plugin_types_progress_t *progress, weir_plugin_types_failure_t *failure)
{
    if (status <= WEIR_MORE) {
        if (progress) *progress = status == WEIR_MORE ? WEIR_PLUGIN_TYPES_PROGRESS_MORE : WEIR_PLUGIN_TYPES_PROGRESS_DONE;
        return true;
    }
    failure->kind = (weir_plugin_types_failure_kind_t)(status - WEIR_RETRY);
    failure->message = copy_of(weir_failure_message());
    return false;
}

static char *as_text(weir_wit_string_t string)
{
    char *text = weir_allocate(string.len + 1);
    if (string.len) memcpy(text, string.ptr, string.len);
    return text;
}

bool exports_weir_plugin_processor_open(weir_wit_string_t *config, weir_plugin_types_task_info_t *info, weir_plugin_types_failure_t *failure)
{
    weir_task task;
    memset(&task, 0, sizeof task);
    task.job = as_text(info->job);
    task.node = as_text(info->node);
    task.subtask = info->subtask;
    task.parallelism = info->parallelism;
    task.key_groups = info->key_groups;
    task.first_key_group = info->first_key_group;
    task.end_key_group = info->end_key_group;
    task.seed = info->seed;
    const weir_status status = weir_instance_open(&instance, &weir_plugin, weir_bytes_of(config->ptr, config->len), &task);
    weir_plugin_types_task_info_free(info);
    weir_wit_string_free(config);
    return answer(status, NULL, failure);
}

static weir_column borrow_column(weir_wit_list_u32_t offsets, weir_wit_list_u8_t bytes, weir_wit_list_u8_t nulls)
{
    weir_column column = {offsets.len ? offsets.ptr : NULL, bytes.len ? bytes.ptr : weir_empty, nulls.len ? nulls.ptr : NULL, (uint32_t)bytes.len};
    return column;
}

bool exports_weir_plugin_processor_process(uint32_t port, weir_plugin_types_batch_t *input, weir_plugin_types_progress_t *progress,
                                           weir_plugin_types_failure_t *failure)
{
    const weir_batch batch = {
        .len = input->timestamps.len,
        .timestamps = input->timestamps.ptr,
        .hashes = input->hashes.len ? input->hashes.ptr : NULL,
        .keys = borrow_column(input->key_offsets, input->keys, input->key_nulls),
        .values = borrow_column(input->value_offsets, input->values, input->value_nulls),
        .headers = borrow_column(input->header_offsets, input->headers, (weir_wit_list_u8_t){NULL, 0}),
    };
    const weir_status status = weir_instance_process(&instance, port, &batch);
    weir_plugin_types_batch_free(input);
    return answer(status, progress, failure);
}

bool exports_weir_plugin_processor_advance(weir_plugin_types_timestamp_t watermark, weir_plugin_types_progress_t *progress, weir_plugin_types_failure_t *failure)
{
    return answer(weir_instance_advance(&instance, watermark), progress, failure);
}

bool exports_weir_plugin_processor_wake(weir_plugin_types_progress_t *progress, weir_plugin_types_failure_t *failure)
{
    return answer(weir_instance_wake(&instance), progress, failure);
}

bool exports_weir_plugin_processor_finish(uint32_t port, weir_plugin_types_progress_t *progress, weir_plugin_types_failure_t *failure)
{
    return answer(weir_instance_finish(&instance, port), progress, failure);
}

bool exports_weir_plugin_processor_resume(weir_plugin_types_progress_t *progress, weir_plugin_types_failure_t *failure)
{
    return answer(weir_instance_resume(&instance), progress, failure);
}
