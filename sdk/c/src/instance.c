/* One operator at work: the calls from the host, and what it may ask of the host. */

#include <stdarg.h>
#include <stdio.h>

#include "internal.h"

/* What the contract keeps of a message, and of a reason. */
enum { MESSAGE_MAX = 4096, REASON_MAX = 1024 };

static char failure[MESSAGE_MAX + 1];
static size_t failure_len;

/* Formats into a text of at most `size - 1` bytes, cut between two characters of UTF-8; its length. */
static size_t format_cut(char *text, size_t size, const char *format, va_list arguments)
{
    const int asked = vsnprintf(text, size, format, arguments);
    if (asked < 0) return 0;
    size_t len = (size_t)asked;
    if (len >= size) {
        len = size - 1;
        /* The last character is kept only if it is whole. */
        size_t lead = len;
        while (lead > 0 && ((uint8_t)text[lead - 1] & 0xc0) == 0x80) lead--;
        if (lead > 0 && (uint8_t)text[lead - 1] >= 0xc0) {
            const uint8_t c = (uint8_t)text[lead - 1];
            const size_t whole = c >= 0xf0 ? 4 : c >= 0xe0 ? 3 : 2;
            if (len - (lead - 1) < whole) len = lead - 1;
        }
    }
    return len;
}

weir_status weir_fail(weir_status kind, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    failure_len = format_cut(failure, sizeof failure, format, arguments);
    va_end(arguments);
    return kind;
}

weir_bytes weir_failure_message(void) { return weir_bytes_of(failure, failure_len); }

void weir_panic(const char *format, ...)
{
    static char message[MESSAGE_MAX + 1];
    va_list arguments;
    va_start(arguments, format);
    const size_t len = format_cut(message, sizeof message, format, arguments);
    va_end(arguments);
    weir_host_log(WEIR_ERROR, weir_bytes_of(message, len));
    weir_host_trap();
}

/* ---- What an operator may ask of the host --------------------------------------------------------------------------- */

void weir_emit(uint32_t port, const weir_batch *batch)
{
    if (batch->len) weir_host_emit(port, batch);
}

void weir_reject(size_t row, const char *format, ...)
{
    char reason[REASON_MAX + 1];
    va_list arguments;
    va_start(arguments, format);
    const size_t len = format_cut(reason, sizeof reason, format, arguments);
    va_end(arguments);
    weir_host_reject((uint32_t)row, weir_bytes_of(reason, len));
}

void weir_reject_batch(const weir_batch *batch, const char *format, ...)
{
    char reason[REASON_MAX + 1];
    va_list arguments;
    if (!batch->len) return;
    va_start(arguments, format);
    const size_t len = format_cut(reason, sizeof reason, format, arguments);
    va_end(arguments);
    weir_host_reject_batch(batch, weir_bytes_of(reason, len));
}

void weir_log(weir_level level, const char *format, ...)
{
    char message[MESSAGE_MAX + 1];
    va_list arguments;
    if (!weir_host_log_enabled(level)) return;
    va_start(arguments, format);
    const size_t len = format_cut(message, sizeof message, format, arguments);
    va_end(arguments);
    weir_host_log(level, weir_bytes_of(message, len));
}

bool weir_log_enabled(weir_level level) { return weir_host_log_enabled(level); }
void weir_count(const char *name, uint64_t delta) { weir_host_count(weir_text(name), delta); }
void weir_gauge(const char *name, double value) { weir_host_gauge(weir_text(name), value); }
void weir_observe(const char *name, double value) { weir_host_observe(weir_text(name), value); }
int64_t weir_now(void) { return weir_host_now(); }
void weir_wake_at(int64_t time) { weir_host_wake_at(time); }

/* ---- Calls ---------------------------------------------------------------------------------------------------------- */

static weir_status begin_call(void)
{
    failure_len = 0;
    return WEIR_DONE;
}

static weir_status end_call(weir_status status)
{
    if (status > WEIR_FATAL || (int)status < 0) weir_panic("a function of the operator returned %d, which is no weir_status", (int)status);
    if (status > WEIR_MORE && failure_len == 0) weir_fail(status, "the operator gave no reason: return what weir_fail returns");
    return status;
}

weir_status weir_instance_open(weir_instance *instance, const weir_operator *plugin, weir_bytes config, const weir_task *task)
{
    begin_call();
    instance->plugin = plugin;
    instance->self = weir_allocate(plugin->self_size);
    instance->task = *task;
    instance->task.state = weir_state_new(task);
    const weir_status status = plugin->open ? plugin->open(instance->self, config, &instance->task) : WEIR_DONE;
    instance->task.state->opening = false;
    return end_call(status);
}

weir_status weir_instance_process(weir_instance *instance, uint32_t port, const weir_batch *batch)
{
    begin_call();
    return end_call(instance->plugin->process(instance->self, port, batch));
}

weir_status weir_instance_advance(weir_instance *instance, int64_t watermark)
{
    begin_call();
    return end_call(instance->plugin->advance ? instance->plugin->advance(instance->self, watermark) : WEIR_DONE);
}

weir_status weir_instance_wake(weir_instance *instance)
{
    begin_call();
    return end_call(instance->plugin->wake ? instance->plugin->wake(instance->self) : WEIR_DONE);
}

weir_status weir_instance_finish(weir_instance *instance, uint32_t port)
{
    begin_call();
    return end_call(instance->plugin->finish ? instance->plugin->finish(instance->self, port) : WEIR_DONE);
}

weir_status weir_instance_resume(weir_instance *instance)
{
    begin_call();
    return end_call(instance->plugin->resume ? instance->plugin->resume(instance->self) : WEIR_DONE);
}

weir_status weir_instance_snapshot(weir_instance *instance, uint64_t epoch, bool full)
{
    begin_call();
    return end_call(weir_state_snapshot(instance->task.state, epoch, full));
}

weir_status weir_instance_restore(weir_instance *instance, uint32_t state_version)
{
    begin_call();
    const weir_operator *plugin = instance->plugin;
    weir_status status = weir_state_restore(instance->task.state, state_version, state_version != plugin->state_version);
    if (status == WEIR_DONE && plugin->restored) status = plugin->restored(instance->self, state_version);
    return end_call(status);
}
