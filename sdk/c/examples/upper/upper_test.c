#include "weir_test.h"

WEIR_TEST(letters_become_capitals_and_nothing_else_changes)
{
    weir_harness *upper = weir_harness_open(&weir_plugin, "{}");
    const weir_row rows[] = {weir_row_of(1, "k", "az{`AZ \xc3\xa9"), weir_row_of(WEIR_NO_TIME, NULL, ""), weir_row_of(3, "gone", NULL)};
    WEIR_CHECK(weir_harness_process(upper, 0, rows, 3) == WEIR_DONE);
    WEIR_EXPECT(upper, 0, weir_row_of(1, "k", "AZ{`AZ \xc3\xa9"), rows[1], rows[2]);
}

WEIR_TEST(a_value_that_is_too_long_is_rejected)
{
    char longest[82];
    memset(longest, 'x', 81);
    longest[80] = longest[81] = 0;
    weir_harness *upper = weir_harness_open(&weir_plugin, "{}");
    const weir_row fits = weir_row_of(1, "k", longest);
    WEIR_CHECK(weir_harness_process(upper, 0, &fits, 1) == WEIR_DONE && weir_harness_rows(upper, 0) == 1);
    longest[80] = 'x';
    const weir_row too_long = weir_row_of(1, "k", longest);
    WEIR_CHECK(weir_harness_process(upper, 0, &too_long, 1) == WEIR_DONE && weir_harness_rows(upper, 0) == 1);
    WEIR_CHECK(weir_harness_rejected(upper) == 1 && !strcmp(weir_harness_reason(upper, 0), "the value has 81 bytes, more than 80"));
}

WEIR_TEST(there_is_nothing_to_configure)
{
    WEIR_CHECK(weir_harness_status(weir_harness_open(&weir_plugin, "{\"size\":1}")) == WEIR_INVALID);
}
