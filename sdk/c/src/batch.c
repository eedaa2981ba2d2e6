/* Batches in columns: headers, and the builder. */

#include "internal.h"

weir_bytes weir_batch_headers(const weir_batch *batch, size_t row)
{
    const weir_bytes headers = weir_column_get(&batch->headers, row);
    return headers.data ? headers : weir_bytes_of(NULL, 0);
}

bool weir_header_next(weir_bytes *rest, weir_bytes *name, weir_bytes *value)
{
    uint64_t len;
    return weir_take_int(rest, 2, &len) && weir_take(rest, (size_t)len, name) && weir_take_int(rest, 4, &len)
        && weir_take(rest, (size_t)len, value);
}

/* Offsets are written for a column once some record has something in it: for the records before, then. */
static void column_begin(struct weir_builder_column *column, size_t rows)
{
    if (column->any) return;
    column->any = true;
    column->gaps = rows > 0;
    weir_buffer_clear(&column->offsets);
    weir_buffer_clear(&column->nulls);
    memset(weir_buffer_extend(&column->offsets, (rows + 1) * sizeof(uint32_t)), 0, (rows + 1) * sizeof(uint32_t));
    const size_t bytes = (rows + 7) / 8;
    if (!bytes) return;
    uint8_t *nulls = weir_buffer_extend(&column->nulls, bytes);
    memset(nulls, 0xff, bytes);
    if (rows % 8) nulls[bytes - 1] = (uint8_t)((1u << (rows % 8)) - 1);
}

static void column_push(struct weir_builder_column *column, size_t row, weir_bytes bytes)
{
    if (!bytes.data && !column->any) return;
    column_begin(column, row);
    if (bytes.len > UINT32_MAX - column->bytes.len) weir_panic("a column of a batch would take more than 4 GiB: emit earlier");
    if (bytes.len) weir_buffer_push(&column->bytes, bytes.data, bytes.len);
    const uint32_t end = (uint32_t)column->bytes.len;
    weir_buffer_push(&column->offsets, &end, sizeof end);
    if (row % 8 == 0) *weir_buffer_extend(&column->nulls, 1) = 0;
    if (!bytes.data) {
        column->nulls.data[row / 8] |= (uint8_t)(1u << (row % 8));
        column->gaps = true;
    }
}

static weir_column column_view(const struct weir_builder_column *column, bool with_nulls)
{
    weir_column view;
    memset(&view, 0, sizeof view);
    if (!column->any) return view;
    view.offsets = (const uint32_t *)(const void *)column->offsets.data;
    view.bytes = column->bytes.data ? column->bytes.data : weir_empty;
    view.bytes_len = (uint32_t)column->bytes.len;
    view.nulls = with_nulls && column->gaps ? column->nulls.data : NULL;
    return view;
}

static void column_clear(struct weir_builder_column *column)
{
    column->any = column->gaps = false;
    weir_buffer_clear(&column->offsets);
    weir_buffer_clear(&column->bytes);
    weir_buffer_clear(&column->nulls);
}

static void column_free(struct weir_builder_column *column)
{
    weir_buffer_free(&column->offsets);
    weir_buffer_free(&column->bytes);
    weir_buffer_free(&column->nulls);
    column_clear(column);
}

static void push(weir_builder *builder, int64_t time, weir_bytes key, weir_bytes value, weir_bytes headers)
{
    weir_buffer_push(&builder->timestamps, &time, sizeof time);
    column_push(&builder->keys, builder->len, key);
    column_push(&builder->values, builder->len, value);
    /* No headers are no bytes: this column has no nulls. */
    column_push(&builder->headers, builder->len, headers.len ? headers : weir_none());
    builder->len++;
}

void weir_builder_push(weir_builder *builder, int64_t time, weir_bytes key, weir_bytes value)
{
    push(builder, time, key, value, weir_none());
}

void weir_builder_push_row(weir_builder *builder, const weir_batch *batch, size_t row)
{
    push(builder, weir_batch_time(batch, row), weir_column_get(&batch->keys, row), weir_batch_value(batch, row), weir_column_get(&batch->headers, row));
}

void weir_builder_header(weir_builder *builder, weir_bytes name, weir_bytes value)
{
    if (builder->len == 0) weir_panic("a header belongs to a record: push one first");
    if (name.len > UINT16_MAX) weir_panic("the name of a header has %lu bytes, more than 65535", (unsigned long)name.len);
    if (value.len > UINT32_MAX) weir_panic("a header has %lu bytes, more than 4 GiB", (unsigned long)value.len);
    struct weir_builder_column *column = &builder->headers;
    if (!column->any) {
        column_begin(column, builder->len - 1);
        weir_buffer_int(&column->offsets, 0, sizeof(uint32_t));
        if ((builder->len - 1) % 8 == 0) *weir_buffer_extend(&column->nulls, 1) = 0;
    }
    weir_buffer_int(&column->bytes, name.len, 2);
    if (name.len) weir_buffer_push(&column->bytes, name.data, name.len);
    weir_buffer_int(&column->bytes, value.len, 4);
    if (value.len) weir_buffer_push(&column->bytes, value.data, value.len);
    const uint32_t end = (uint32_t)column->bytes.len;
    memcpy(column->offsets.data + builder->len * sizeof end, &end, sizeof end);
}

size_t weir_builder_bytes(const weir_builder *builder)
{
    const struct weir_builder_column *columns[] = {&builder->keys, &builder->values, &builder->headers};
    size_t bytes = builder->timestamps.len;
    for (size_t i = 0; i < 3; i++) {
        if (columns[i]->any) bytes += columns[i]->offsets.len + columns[i]->bytes.len + columns[i]->nulls.len;
    }
    return bytes;
}

weir_batch weir_builder_view(const weir_builder *builder)
{
    weir_batch batch;
    memset(&batch, 0, sizeof batch);
    batch.len = builder->len;
    batch.timestamps = (const int64_t *)(const void *)builder->timestamps.data;
    batch.keys = column_view(&builder->keys, true);
    batch.values = column_view(&builder->values, true);
    batch.headers = column_view(&builder->headers, false);
    return batch;
}

void weir_builder_clear(weir_builder *builder)
{
    builder->len = 0;
    weir_buffer_clear(&builder->timestamps);
    column_clear(&builder->keys);
    column_clear(&builder->values);
    column_clear(&builder->headers);
}

void weir_builder_free(weir_builder *builder)
{
    weir_buffer_free(&builder->timestamps);
    column_free(&builder->keys);
    column_free(&builder->values);
    column_free(&builder->headers);
    builder->len = 0;
}

void weir_builder_emit(weir_builder *builder, uint32_t port)
{
    const weir_batch batch = weir_builder_view(builder);
    weir_emit(port, &batch);
    weir_builder_clear(builder);
}

bool weir_builder_emit_large(weir_builder *builder, uint32_t port)
{
    if (weir_builder_bytes(builder) < (1u << 20)) return false;
    weir_builder_emit(builder, port);
    return true;
}
