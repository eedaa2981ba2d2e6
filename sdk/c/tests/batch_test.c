/* Batches: every mixture of what records may lack, through the builder and back. */

#include "../weir_test.h"

static weir_row row_at(const weir_batch *batch, size_t row)
{
    weir_row of;
    of.time = weir_batch_time(batch, row);
    of.key = weir_column_get(&batch->keys, row);
    of.value = weir_batch_value(batch, row);
    of.headers = weir_batch_headers(batch, row);
    return of;
}

WEIR_TEST(what_is_pushed_comes_back_whatever_records_lack)
{
    /* Each record lacks a key, a value, headers or its time by the bits of a number: all orders of two numbers, and a long run. */
    for (unsigned seed = 0; seed < 256; seed++) {
        weir_builder builder = {0};
        unsigned state = seed;
        const size_t rows = 1 + seed % 40;
        for (size_t i = 0; i < rows; i++) {
            const unsigned lacks = seed < 16 ? seed : (state = state * 1103515245u + 12345u) >> 16;
            weir_builder_push(&builder, lacks & 1 ? WEIR_NO_TIME : (int64_t)i, lacks & 2 ? weir_none() : weir_bytes_of("key", i % 4), lacks & 4 ? weir_none() : weir_bytes_of("value", i % 6));
            if (lacks & 8) weir_builder_header(&builder, weir_text("name"), weir_bytes_of("header", i % 7));
        }
        const weir_batch batch = weir_builder_view(&builder);
        WEIR_CHECK(batch.len == rows);
        state = seed;
        for (size_t i = 0; i < rows; i++) {
            const unsigned lacks = seed < 16 ? seed : (state = state * 1103515245u + 12345u) >> 16;
            const weir_row row = row_at(&batch, i);
            WEIR_CHECK(row.time == (lacks & 1 ? WEIR_NO_TIME : (int64_t)i));
            WEIR_CHECK(weir_bytes_equal(row.key, lacks & 2 ? weir_none() : weir_bytes_of("key", i % 4)));
            WEIR_CHECK(weir_bytes_equal(row.value, lacks & 4 ? weir_none() : weir_bytes_of("value", i % 6)));
            weir_bytes rest = row.headers, name, value;
            WEIR_CHECK(weir_header_next(&rest, &name, &value) == ((lacks & 8) != 0));
            if (lacks & 8) WEIR_CHECK(weir_bytes_equal(name, weir_text("name")) && weir_bytes_equal(value, weir_bytes_of("header", i % 7)));
            WEIR_CHECK(!weir_header_next(&rest, &name, &value));
        }
        /* And once more from the batch, into memory that was used before. */
        weir_builder copy = {0};
        for (int round = 0; round < 2; round++) {
            weir_builder_clear(&copy);
            for (size_t i = 0; i < rows; i++) weir_builder_push_row(&copy, &batch, i);
        }
        const weir_batch again = weir_builder_view(&copy);
        for (size_t i = 0; i < rows; i++) {
            const weir_row a = row_at(&batch, i), b = row_at(&again, i);
            WEIR_CHECK(a.time == b.time && weir_bytes_equal(a.key, b.key) && weir_bytes_equal(a.value, b.value) && weir_bytes_equal(a.headers, b.headers));
        }
        weir_builder_free(&copy);
        weir_builder_free(&builder);
    }
}

WEIR_TEST(columns_that_nobody_has_are_empty)
{
    weir_builder builder = {0};
    weir_builder_push(&builder, 1, weir_none(), weir_none());
    weir_batch batch = weir_builder_view(&builder);
    WEIR_CHECK(!batch.keys.offsets && !batch.values.offsets && !batch.headers.offsets);
    weir_builder_push(&builder, 2, weir_text(""), weir_none());
    batch = weir_builder_view(&builder);
    WEIR_CHECK(batch.keys.offsets && batch.keys.nulls && batch.keys.nulls[0] == 1 && !batch.values.offsets);
    WEIR_CHECK(!weir_column_get(&batch.keys, 0).data && weir_column_get(&batch.keys, 1).data && weir_column_get(&batch.keys, 1).len == 0);
    weir_builder_clear(&builder);
    weir_builder_push(&builder, 3, weir_text("k"), weir_none());
    batch = weir_builder_view(&builder);
    WEIR_CHECK(batch.len == 1 && !batch.keys.nulls);
    weir_builder_free(&builder);
}

WEIR_TEST(a_key_has_the_hash_of_the_host_where_there_is_one)
{
    weir_builder builder = {0};
    weir_builder_push(&builder, 1, weir_text("a"), weir_none());
    weir_builder_push(&builder, 1, weir_none(), weir_none());
    weir_batch batch = weir_builder_view(&builder);
    weir_key key;
    WEIR_CHECK(weir_batch_key(&batch, 0, &key) && key.hash == weir_hash(weir_text("a")));
    const uint64_t hashes[] = {7, 8};
    batch.hashes = hashes;
    WEIR_CHECK(weir_batch_key(&batch, 0, &key) && key.hash == 7 && weir_bytes_equal(key.bytes, weir_text("a")));
    WEIR_CHECK(!weir_batch_key(&batch, 1, &key));
    weir_builder_free(&builder);
}

WEIR_TEST(numbers_and_texts_of_a_buffer)
{
    weir_buffer buffer = {0};
    static const int64_t numbers[] = {0, 7, -1, 10, 1234567890123, INT64_MAX, INT64_MIN};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        char expected[32];
        snprintf(expected, sizeof expected, "%lld", (long long)numbers[i]);
        weir_buffer_clear(&buffer);
        weir_buffer_decimal(&buffer, numbers[i]);
        WEIR_CHECK(weir_bytes_equal(weir_buffer_view(&buffer), weir_text(expected)));
    }
    weir_buffer_clear(&buffer);
    weir_buffer_format(&buffer, "%d-%s", 5, "x");
    WEIR_CHECK(weir_bytes_equal(weir_buffer_view(&buffer), weir_text("5-x")));
    weir_buffer_clear(&buffer);
    static const uint64_t varints[] = {0, 127, 128, 300, UINT64_MAX};
    for (size_t i = 0; i < 5; i++) weir_buffer_varint(&buffer, varints[i]);
    weir_bytes rest = weir_buffer_view(&buffer);
    uint64_t number;
    for (size_t i = 0; i < 5; i++) WEIR_CHECK(weir_take_varint(&rest, &number) && number == varints[i]);
    WEIR_CHECK(!weir_take_varint(&rest, &number) && !weir_take_int(&rest, 1, &number));
    weir_buffer_free(&buffer);
}

WEIR_TEST(bytes_have_an_order)
{
    static const char *ordered[] = {"", "a", "aa", "ab", "b", "\xff"};
    for (size_t i = 0; i < 6; i++) {
        for (size_t j = 0; j < 6; j++) {
            const int order = weir_bytes_order(weir_text(ordered[i]), weir_text(ordered[j]));
            WEIR_CHECK((order < 0) == (i < j) && (order > 0) == (i > j));
        }
    }
    WEIR_CHECK(!weir_bytes_equal(weir_none(), weir_text("")) && weir_bytes_equal(weir_none(), weir_none()));
}
