#include "weir_test.h"

#define SECONDS 1000000

static weir_row at(int64_t seconds, const char *key) { return weir_row_of(seconds * SECONDS, key, ""); }

WEIR_TEST(records_within_the_gap_are_one_visit_in_whatever_order_they_come)
{
    static const int64_t times[] = {0, 30, 61, 45, 200};
    enum { TIMES = 5 };
    /* All orders of five records: 0, 30, 45 and 61 seconds belong together, by what lies between them. */
    for (unsigned order = 0; order < 120; order++) {
        unsigned rest = order;
        bool used[TIMES] = {false};
        weir_harness *visits = weir_harness_open(&weir_plugin, "{}");
        for (unsigned left = TIMES; left > 0; left--) {
            unsigned nth = rest % left, i = 0;
            rest /= left;
            while (used[i] || nth-- > 0) i++;
            used[i] = true;
            const weir_row row = at(times[i], "k");
            weir_harness_process(visits, 0, &row, 1);
        }
        weir_harness_advance(visits, 91 * SECONDS - 1);
        WEIR_EXPECT_NOTHING(visits, 0);
        weir_harness_advance(visits, 91 * SECONDS);
        WEIR_EXPECT(visits, 0, weir_row_of(61 * SECONDS, "k", "0 61000000 4 k"));
        weir_harness_advance(visits, WEIR_END_OF_TIME);
        WEIR_EXPECT(visits, 0, weir_row_of(200 * SECONDS, "k", "200000000 200000000 1 k"));
    }
}

WEIR_TEST(visits_end_by_time_then_key)
{
    weir_harness *visits = weir_harness_open(&weir_plugin, "{}");
    const weir_row rows[] = {at(2, "a"), at(1, "b"), at(1, "aa"), at(50, "b"), at(1, NULL), weir_row_of(WEIR_NO_TIME, "a", "")};
    weir_harness_process(visits, 0, rows, 6);
    weir_harness_advance(visits, WEIR_END_OF_TIME);
    WEIR_EXPECT(visits, 0, weir_row_of(1 * SECONDS, "aa", "1000000 1000000 1 aa"), weir_row_of(1 * SECONDS, "b", "1000000 1000000 1 b"),
                weir_row_of(2 * SECONDS, "a", "2000000 2000000 1 a"), weir_row_of(50 * SECONDS, "b", "50000000 50000000 1 b"));
    WEIR_CHECK(weir_harness_rejected(visits) == 2 && !strcmp(weir_harness_reason(visits, 0), "no key") && !strcmp(weir_harness_reason(visits, 1), "no time"));
}

WEIR_TEST(open_visits_survive)
{
    weir_harness *before = weir_harness_open(&weir_plugin, "{}");
    const weir_row rows[] = {at(1, "a"), at(90, "a"), at(20, "b")};
    weir_harness_process(before, 0, rows, 3);
    weir_harness *after = weir_harness_restore(&weir_plugin, "{}", weir_harness_snapshot(before, false));
    const weir_row more[] = {at(31, "a"), at(60, "a")};
    weir_harness_process(after, 0, more, 2);
    weir_harness_advance(after, WEIR_END_OF_TIME);
    WEIR_EXPECT(after, 0, weir_row_of(20 * SECONDS, "b", "20000000 20000000 1 b"), weir_row_of(90 * SECONDS, "a", "1000000 90000000 4 a"));
}

WEIR_TEST(damaged_state_is_refused)
{
    weir_harness *before = weir_harness_open(&weir_plugin, "{}");
    const weir_row row = at(1, "a");
    weir_harness_process(before, 0, &row, 1);
    const weir_checkpoint *good = weir_harness_snapshot(before, true);
    /* A value of another length: 23 bytes are no visit. */
    uint8_t copy[256];
    const weir_bytes data = weir_checkpoint_chunk(good, 0);
    memcpy(copy, data.data, data.len);
    size_t value = 0;
    while (copy[value] != 24) value++;
    copy[value] = 23;
    memmove(copy + value + 24, copy + value + 25, data.len - value - 25);
    copy[1 + 2 + 4 + 2]--;
    weir_harness *after = weir_harness_restore(&weir_plugin, "{}", weir_checkpoint_with(good, 0, weir_bytes_of(copy, data.len - 1)));
    WEIR_CHECK(weir_harness_status(after) == WEIR_INVALID && strstr(weir_harness_message(after), "\"open\": a value does not decode"));
}

WEIR_TEST(the_ends_of_time_are_times_like_any)
{
    weir_harness *visits = weir_harness_open(&weir_plugin, "{}");
    const weir_row rows[] = {weir_row_of(INT64_MIN + 1, "a", ""), weir_row_of(INT64_MIN + 2, "a", "")};
    weir_harness_process(visits, 0, rows, 2);
    weir_harness_advance(visits, WEIR_END_OF_TIME);
    WEIR_EXPECT(visits, 0, weir_row_of(INT64_MIN + 2, "a", "-9223372036854775807 -9223372036854775806 2 a"));
}
