#include "weir_test.h"

enum { ROWS = 7 };

static const weir_row *rows(void)
{
    static weir_row of[ROWS];
    of[0] = weir_row_of(59999999, "b", "");
    of[1] = weir_row_of(0, "b", NULL);
    of[2] = weir_row_of(60000000, "a", "");
    of[3] = weir_row_of(1, "a", "");
    of[4] = weir_row_of(-1, "a", "");
    of[5] = weir_row_of(5, NULL, "");
    of[6] = weir_row_of(WEIR_NO_TIME, "a", "");
    return of;
}

WEIR_TEST(windows_end_by_time_then_key_and_totals_add_up)
{
    weir_harness *tally = weir_harness_open(&weir_plugin, "{}");
    weir_harness_process(tally, 0, rows(), ROWS);
    WEIR_EXPECT_NOTHING(tally, 0);
    weir_harness_advance(tally, 59999999);
    WEIR_EXPECT(tally, 0, weir_row_of(0, "a", "0 1 1 a"));
    weir_harness_advance(tally, 60000000);
    WEIR_EXPECT(tally, 0, weir_row_of(60000000, "a", "60000000 1 2 a"), weir_row_of(60000000, "b", "60000000 2 2 b"));
    weir_harness_process(tally, 0, rows() + 3, 1);
    weir_harness_advance(tally, WEIR_END_OF_TIME);
    WEIR_EXPECT(tally, 0, weir_row_of(60000000, "a", "60000000 1 3 a"), weir_row_of(120000000, "a", "120000000 1 4 a"));
    WEIR_CHECK(weir_harness_rejected(tally) == 2 && !strcmp(weir_harness_reason(tally, 0), "no key") && !strcmp(weir_harness_reason(tally, 1), "no time"));
}

WEIR_TEST(a_restored_tally_goes_on_where_it_was)
{
    weir_harness *before = weir_harness_open(&weir_plugin, "{}");
    weir_harness_process(before, 0, rows(), ROWS);
    weir_harness_advance(before, 0);
    weir_harness *after = weir_harness_restore(&weir_plugin, "{}", weir_harness_snapshot(before, false));
    weir_harness_advance(after, 60000000);
    WEIR_EXPECT(after, 0, weir_row_of(60000000, "a", "60000000 1 2 a"), weir_row_of(60000000, "b", "60000000 2 2 b"));
}

WEIR_TEST(much_output_comes_in_parts)
{
    enum { KEYS = 40000 };
    static char names[KEYS][16];
    static weir_row many[KEYS];
    for (int i = 0; i < KEYS; i++) {
        snprintf(names[i], sizeof names[i], "%05d", i);
        many[i] = weir_row_of(1, names[i], "");
    }
    weir_harness *tally = weir_harness_open(&weir_plugin, "{}");
    weir_harness_process(tally, 0, many, KEYS);
    weir_harness_advance(tally, WEIR_END_OF_TIME);
    WEIR_CHECK(weir_harness_rows(tally, 0) == KEYS && weir_harness_resumed(tally) >= 1);
    bool ordered = true;
    for (int i = 0; i < KEYS; i++) ordered = ordered && weir_bytes_equal(weir_harness_row(tally, 0, (size_t)i)->key, weir_text(names[i]));
    WEIR_CHECK(ordered);
}
