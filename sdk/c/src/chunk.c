/* The bytes of keyed state in a snapshot: chunks, each of which can be decoded alone. The same format as the Rust SDK's:
 *
 *     chunk    = format (1)  section*
 *     section  = operation, name length, name, namespace (zigzag varint), hint (varint), body length (4 bytes), body
 *     body     = (key length (varint), key, value length (varint), value)*     without values for DELETE
 *
 * An entry that is too large for one chunk goes as FRAGMENTs, which are joined before they are read. */

#include <stdlib.h>

#include "internal.h"

enum { FORMAT = 1, PUT = 0, DELETE = 1, FRAGMENT = 4, LAST_OF_PUT = 5, LAST_OF_DELETE = 6, LENGTH_BYTES = 4 };

/* No chunk that holds more than one entry, or a part of one, is longer. */
enum { CHUNK_BYTES_MAX = 256 << 10 };

static void begin_section(weir_chunks *chunks, uint8_t operation)
{
    weir_buffer *to = &chunks->bytes;
    if (to->len == chunks->start) weir_buffer_int(to, FORMAT, 1);
    weir_buffer_int(to, operation, 1);
    weir_buffer_int(to, chunks->name.len, 1);
    weir_buffer_push(to, chunks->name.data, chunks->name.len);
    weir_buffer_int(to, 0, 2); /* namespace and hint */
    weir_buffer_int(to, 0, LENGTH_BYTES);
    chunks->body = to->len;
}

static void end_section(weir_chunks *chunks)
{
    if (!chunks->body) return;
    uint32_t len = (uint32_t)(chunks->bytes.len - chunks->body);
    uint8_t *at = chunks->bytes.data + chunks->body - LENGTH_BYTES;
    for (int i = 0; i < LENGTH_BYTES; i++, len >>= 8) at[i] = (uint8_t)len;
    chunks->body = 0;
}

void weir_chunks_end(weir_chunks *chunks)
{
    end_section(chunks);
    if (chunks->bytes.len == chunks->start) return;
    chunks->start = chunks->bytes.len;
    const uint32_t end = (uint32_t)chunks->start;
    weir_buffer_push(&chunks->ends, &end, sizeof end);
}

void weir_chunks_section(weir_chunks *chunks, weir_bytes name)
{
    end_section(chunks);
    chunks->name = name;
}

void weir_chunks_put(weir_chunks *chunks, weir_bytes prefix, weir_bytes key, weir_bytes value)
{
    weir_buffer *item = &chunks->item;
    weir_buffer_clear(item);
    weir_buffer_varint(item, prefix.len + key.len);
    weir_buffer_push(item, prefix.data, prefix.len);
    weir_buffer_push(item, key.data, key.len);
    weir_buffer_varint(item, value.len);
    weir_buffer_push(item, value.data, value.len);

    const size_t around = 1 + 2 + chunks->name.len + 2 + LENGTH_BYTES;
    if (chunks->bytes.len - chunks->start + around + item->len > CHUNK_BYTES_MAX) weir_chunks_end(chunks);
    if (around + item->len <= CHUNK_BYTES_MAX) {
        if (!chunks->body) begin_section(chunks, PUT);
        weir_buffer_push(&chunks->bytes, item->data, item->len);
        return;
    }
    const size_t part = CHUNK_BYTES_MAX - around;
    for (size_t at = 0; at < item->len; at += part) {
        const size_t left = item->len - at;
        begin_section(chunks, left > part ? FRAGMENT : LAST_OF_PUT);
        weir_buffer_push(&chunks->bytes, item->data + at, left > part ? part : left);
        weir_chunks_end(chunks);
    }
}

void weir_chunks_free(weir_chunks *chunks)
{
    weir_buffer_free(&chunks->bytes);
    weir_buffer_free(&chunks->ends);
    weir_buffer_free(&chunks->item);
}

const char *weir_reader_begin(weir_reader *reader, weir_bytes chunk)
{
    reader->rest = chunk;
    uint64_t format;
    if (!weir_take_int(&reader->rest, 1, &format)) return NULL; /* an empty chunk has nothing */
    return format == FORMAT ? NULL : "a chunk is not in format 1, the only one that this SDK reads: build the plugin with a newer SDK";
}

bool weir_reader_next(weir_reader *reader, weir_section *section, const char **wrong)
{
    if (!reader->joining) weir_buffer_clear(&reader->joined);
    *wrong = NULL;
    while (reader->rest.len) {
        uint64_t operation, len, namespace, hint;
        *wrong = "a section is cut short";
        if (!weir_take_int(&reader->rest, 1, &operation) || !weir_take_int(&reader->rest, 1, &len)
            || !weir_take(&reader->rest, (size_t)len, &section->name) || !weir_take_varint(&reader->rest, &namespace)
            || !weir_take_varint(&reader->rest, &hint) || !weir_take_int(&reader->rest, LENGTH_BYTES, &len)
            || !weir_take(&reader->rest, (size_t)len, &section->body)) {
            return false;
        }
        *wrong = "a section holds windows, which this SDK keeps as timers";
        if (namespace) return false;
        *wrong = "a section has an operation that this SDK does not know";
        if (operation != PUT && operation != DELETE && (operation < FRAGMENT || operation > LAST_OF_DELETE)) return false;
        const bool is_part = operation >= FRAGMENT;
        *wrong = "the parts of an entry are not together";
        if (reader->joining && !is_part) return false;
        *wrong = NULL;
        section->put = operation == PUT || operation == LAST_OF_PUT;
        if (!is_part) return true;
        reader->joining = operation == FRAGMENT;
        weir_buffer_push(&reader->joined, section->body.data, section->body.len);
        section->body = weir_buffer_view(&reader->joined);
        if (!reader->joining) return true;
    }
    return false;
}

bool weir_section_next(weir_section *section, weir_bytes *key, weir_bytes *value, const char **wrong)
{
    *wrong = NULL;
    if (!section->body.len) return false;
    uint64_t len;
    *wrong = "an entry is cut short";
    if (!weir_take_varint(&section->body, &len) || len > section->body.len || !weir_take(&section->body, (size_t)len, key)) return false;
    *value = weir_bytes_of(NULL, 0);
    if (section->put && (!weir_take_varint(&section->body, &len) || len > section->body.len || !weir_take(&section->body, (size_t)len, value))) {
        return false;
    }
    *wrong = NULL;
    return true;
}
