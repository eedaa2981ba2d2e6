/* Memory that is there, or a panic that says how much was asked for; and bytes. */

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "internal.h"

const uint8_t weir_empty[1] = {0};

static void *checked(void *memory, size_t size)
{
    if (!memory) {
        weir_panic("no memory for %lu bytes more: raise the node's memory limit, or keep less state", (unsigned long)size);
    }
    return memory;
}

void *weir_allocate(size_t size)
{
    return checked(calloc(1, size ? size : 1), size);
}

void *weir_reallocate(void *memory, size_t size)
{
    return checked(realloc(memory, size ? size : 1), size);
}

bool weir_bytes_equal(weir_bytes a, weir_bytes b)
{
    return a.len == b.len && !a.data == !b.data && (a.len == 0 || memcmp(a.data, b.data, a.len) == 0);
}

int weir_bytes_order(weir_bytes a, weir_bytes b)
{
    const size_t common = a.len < b.len ? a.len : b.len;
    const int order = common ? memcmp(a.data, b.data, common) : 0;
    return order ? order : (a.len > b.len) - (a.len < b.len);
}

uint8_t *weir_buffer_extend(weir_buffer *buffer, size_t len)
{
    if (buffer->capacity - buffer->len < len) {
        if (len > SIZE_MAX / 2 - buffer->len) weir_panic("a buffer of %lu bytes cannot grow by %lu", (unsigned long)buffer->len, (unsigned long)len);
        size_t capacity = buffer->capacity * 2;
        if (capacity < buffer->len + len) capacity = buffer->len + len;
        if (capacity < 64) capacity = 64;
        buffer->data = weir_reallocate(buffer->data, capacity);
        buffer->capacity = capacity;
    }
    uint8_t *at = buffer->data + buffer->len;
    buffer->len += len;
    return at;
}

void weir_buffer_push(weir_buffer *buffer, const void *data, size_t len)
{
    if (len) memcpy(weir_buffer_extend(buffer, len), data, len);
}

static void buffer_vformat(weir_buffer *buffer, const char *format, va_list arguments)
{
    va_list again;
    va_copy(again, arguments);
    const int len = vsnprintf(NULL, 0, format, again);
    va_end(again);
    if (len < 0) return;
    uint8_t *at = weir_buffer_extend(buffer, (size_t)len + 1);
    vsnprintf((char *)at, (size_t)len + 1, format, arguments);
    buffer->len--;
}

void weir_buffer_format(weir_buffer *buffer, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    buffer_vformat(buffer, format, arguments);
    va_end(arguments);
}

void weir_buffer_decimal(weir_buffer *buffer, int64_t number)
{
    char digits[20];
    size_t at = sizeof digits;
    uint64_t rest = number < 0 ? 0 - (uint64_t)number : (uint64_t)number;
    do {
        digits[--at] = (char)('0' + rest % 10);
        rest /= 10;
    } while (rest);
    if (number < 0) weir_buffer_push(buffer, "-", 1);
    weir_buffer_push(buffer, digits + at, sizeof digits - at);
}

static void write_int(uint8_t *to, uint64_t number, unsigned bytes)
{
    for (unsigned i = 0; i < bytes; i++) to[i] = (uint8_t)(number >> (8 * i));
}

static uint64_t read_int(const uint8_t *from, unsigned bytes)
{
    uint64_t number = 0;
    for (unsigned i = 0; i < bytes; i++) number |= (uint64_t)from[i] << (8 * i);
    return number;
}

void weir_buffer_int(weir_buffer *buffer, uint64_t number, unsigned bytes)
{
    write_int(weir_buffer_extend(buffer, bytes), number, bytes);
}

void weir_buffer_varint(weir_buffer *buffer, uint64_t number)
{
    uint8_t bytes[10];
    size_t len = 0;
    while (number >= 0x80) {
        bytes[len++] = (uint8_t)(number | 0x80);
        number >>= 7;
    }
    bytes[len++] = (uint8_t)number;
    weir_buffer_push(buffer, bytes, len);
}

void weir_buffer_clear(weir_buffer *buffer) { buffer->len = 0; }

void weir_buffer_free(weir_buffer *buffer)
{
    free(buffer->data);
    memset(buffer, 0, sizeof *buffer);
}

weir_bytes weir_buffer_view(const weir_buffer *buffer) { return weir_bytes_of(buffer->data, buffer->len); }

bool weir_take(weir_bytes *from, size_t len, weir_bytes *taken)
{
    if (from->len < len) return false;
    *taken = weir_bytes_of(from->data, len);
    *from = weir_bytes_of(from->data ? from->data + len : NULL, from->len - len);
    return true;
}

bool weir_take_int(weir_bytes *from, unsigned bytes, uint64_t *number)
{
    weir_bytes taken;
    if (!weir_take(from, bytes, &taken)) return false;
    *number = read_int(taken.data, bytes);
    return true;
}

bool weir_take_varint(weir_bytes *from, uint64_t *number)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < 10 && i < from->len; i++) {
        sum |= (uint64_t)(from->data[i] & 0x7f) << (7 * i);
        if (!(from->data[i] & 0x80)) {
            weir_bytes taken;
            weir_take(from, i + 1, &taken);
            *number = sum;
            return true;
        }
    }
    return false;
}
