/* Plain native tests: no WebAssembly and no runtime, but a host that keeps the contract. */

#include "weir_test.h"

#define COUNT(rows) (sizeof(rows) / sizeof *(rows))

WEIR_TEST(hands_on_what_has_changed_enough)
{
    weir_harness *changes = weir_harness_open(&weir_plugin, "{\"least\":0.5}");
    const weir_row rows[] = {
        weir_row_of(1, "roof", "{\"value\":3.0}"),
        weir_row_of(2, "roof", "{\"value\":3.4}"),
        weir_row_of(3, "cellar", "{\"value\":3.4}"),
        weir_row_of(4, "roof", "{\"value\":3.5}"),
    };
    WEIR_CHECK(weir_harness_process(changes, 0, rows, COUNT(rows)) == WEIR_DONE);
    WEIR_EXPECT(changes, 0, rows[0], rows[2], rows[3]);
}

WEIR_TEST(puts_aside_what_it_cannot_read)
{
    weir_harness *changes = weir_harness_open(&weir_plugin, "{}");
    const weir_row rows[] = {weir_row_of(1, "roof", "wind"), weir_row_of(2, "roof", "{\"value\":1}")};
    weir_harness_process(changes, 0, rows, COUNT(rows));
    WEIR_EXPECT(changes, 0, rows[1]);
    WEIR_CHECK(weir_harness_rejected(changes) == 1);
}

WEIR_TEST(goes_on_after_a_restore_as_if_nothing_had_happened)
{
    const char *config = "{\"least\":0.5}";
    weir_harness *before = weir_harness_open(&weir_plugin, config);
    const weir_row first[] = {weir_row_of(1, "roof", "{\"value\":3.0}")};
    weir_harness_process(before, 0, first, COUNT(first));
    const weir_checkpoint *checkpoint = weir_harness_snapshot(before, false);

    weir_harness *after = weir_harness_restore(&weir_plugin, config, checkpoint);
    const weir_row next[] = {weir_row_of(2, "roof", "{\"value\":3.1}"), weir_row_of(3, "roof", "{\"value\":9.0}")};
    weir_harness_process(after, 0, next, COUNT(next));
    WEIR_EXPECT(after, 0, next[1]);
}

/* The state is written in steps while records go on coming, and dealt out to three subtasks. */
WEIR_TEST(what_comes_after_the_cut_is_not_in_the_snapshot)
{
    weir_harness *before = weir_harness_open(&weir_plugin, "{\"least\":1}");
    const weir_row first[] = {weir_row_of(1, "roof", "{\"value\":1}"), weir_row_of(2, "cellar", "{\"value\":1}"), weir_row_of(3, "attic", "{\"value\":1}")};
    weir_harness_process(before, 0, first, COUNT(first));
    weir_harness_begin_snapshot(before, false);
    const weir_row next[] = {weir_row_of(4, "roof", "{\"value\":9}"), weir_row_of(5, "cellar", "{\"value\":9}"), weir_row_of(6, "attic", "{\"value\":9}")};
    bool more = weir_harness_snapshot_step(before, 1) == WEIR_MORE;
    WEIR_CHECK(more);
    weir_harness_process(before, 0, next, COUNT(next));
    while (more) more = weir_harness_snapshot_step(before, 1) == WEIR_MORE;

    const weir_checkpoint *const checkpoints[] = {weir_harness_checkpoint(before)};
    size_t emitted = 0;
    for (uint32_t subtask = 0; subtask < 3; subtask++) {
        weir_harness *after = weir_harness_restore_subtask(&weir_plugin, "{\"least\":1}", subtask, 3, checkpoints, 1);
        for (size_t i = 0; i < COUNT(next); i++) {
            /* Only the subtask that has the key may be asked for it. */
            if (weir_key_group(weir_hash(next[i].key), 128) * 3 / 128 != subtask) continue;
            weir_harness_process(after, 0, &next[i], 1);
        }
        emitted += weir_harness_rows(after, 0);
    }
    WEIR_CHECK(emitted == 3);
}

WEIR_TEST(refuses_a_configuration_with_a_typing_error)
{
    WEIR_CHECK(weir_harness_status(weir_harness_open(&weir_plugin, "{\"laest\":0.5}")) == WEIR_INVALID);
}
