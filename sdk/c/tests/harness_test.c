/* The calls: what takes effect and what does not, and what the harness refuses as the host does. */

#include "../src/internal.h"
#include "../weir_test.h"

typedef struct calls {
    weir_builder out;
    int left; /* calls of `resume` to come */
} calls;

static const char *what = "";
static bool does(const char *this) { return !strcmp(what, this); }

static weir_status calls_open(void *self, weir_bytes config, const weir_task *task)
{
    (void)self, (void)config, (void)task;
    if (does("emit in open")) {
        const int64_t time = 0;
        const weir_batch batch = {.len = 1, .timestamps = &time};
        weir_emit(0, &batch);
    }
    return does("fail without a reason") ? WEIR_INVALID : WEIR_DONE;
}

static weir_status calls_process(void *self, uint32_t port, const weir_batch *batch)
{
    calls *op = self;
    (void)port;
    weir_emit(does("no such port") ? 7 : 0, batch);
    if (does("no key")) {
        weir_builder_push(&op->out, 0, weir_none(), weir_none());
        weir_builder_emit(&op->out, 0);
    }
    if (does("no such row")) weir_reject(batch->len, "why");
    if (does("bad metric")) weir_count("Bad Name", 1);
    if (does("strange status")) return (weir_status)99;
    if (does("bad column")) {
        weir_batch bad = *batch;
        bad.values.bytes_len++;
        weir_emit(0, &bad);
    }
    weir_reject(0, "rejected %d", 5);
    weir_reject_batch(batch, "all of them");
    weir_wake_at(50);
    weir_count("seen", batch->len);
    weir_count("seen", 1);
    weir_gauge("level", 0.5);
    weir_observe("size", 3);
    weir_log(WEIR_INFO, "processed %lu", (unsigned long)batch->len);
    if (does("retry")) return weir_fail(WEIR_RETRY, "not now, but after %d", 3);
    op->left = 2;
    return WEIR_MORE;
}

static weir_status calls_resume(void *self)
{
    calls *op = self;
    weir_builder_push(&op->out, op->left, weir_text("resumed"), weir_none());
    weir_builder_emit(&op->out, 0);
    return --op->left ? WEIR_MORE : WEIR_DONE;
}

static weir_status calls_wake(void *self)
{
    (void)self;
    weir_gauge("woken", (double)weir_now());
    return WEIR_DONE;
}

static const weir_port inputs[] = {{.name = "in"}};
static const weir_port outputs[] = {{.name = "out", .keyed = true}};
static const weir_operator plugin = {.name = "calls", .version = "1.0.0", .inputs = inputs, .input_count = 1, .outputs = outputs, .output_count = 1, .self_size = sizeof(calls),
                                     .open = calls_open, .process = calls_process, .resume = calls_resume, .wake = calls_wake};

static weir_harness *run(void)
{
    weir_harness *harness = weir_harness_open(&plugin, "{}");
    const weir_row row = weir_row_of(1, "k", "v");
    weir_harness_process(harness, 0, &row, 1);
    return harness;
}

static void run_it(void) { run(); }

WEIR_TEST(what_a_call_says_takes_effect_when_it_goes_well)
{
    what = "";
    weir_harness *harness = run();
    WEIR_EXPECT(harness, 0, weir_row_of(1, "k", "v"), weir_row_of(2, "resumed", NULL), weir_row_of(1, "resumed", NULL));
    WEIR_CHECK(weir_harness_rejected(harness) == 2 && !strcmp(weir_harness_reason(harness, 0), "rejected 5") && !strcmp(weir_harness_reason(harness, 1), "all of them"));
    WEIR_CHECK(weir_harness_metric(harness, "seen") == 2 && weir_harness_metric(harness, "level") == 0.5 && weir_harness_metric(harness, "size") == 3);
    WEIR_CHECK(weir_harness_logged(harness, WEIR_INFO, "processed 1") && weir_harness_wake_time(harness) == 50);
    weir_harness_set_time(harness, 49);
    WEIR_CHECK(weir_harness_metric(harness, "woken") == 0);
    weir_harness_set_time(harness, 51);
    WEIR_CHECK(weir_harness_metric(harness, "woken") == 51 && weir_harness_wake_time(harness) == WEIR_END_OF_TIME);
}

WEIR_TEST(what_a_call_says_is_dropped_when_it_fails)
{
    what = "retry";
    weir_harness *harness = run();
    WEIR_CHECK(weir_harness_status(harness) == WEIR_RETRY && !strcmp(weir_harness_message(harness), "not now, but after 3"));
    WEIR_EXPECT_NOTHING(harness, 0);
    WEIR_CHECK(weir_harness_rejected(harness) == 0 && weir_harness_wake_time(harness) == WEIR_END_OF_TIME);
    what = "fail without a reason";
    WEIR_CHECK(strstr(weir_harness_message(weir_harness_open(&plugin, "{}")), "gave no reason"));
}

WEIR_TEST(what_the_host_would_refuse_is_refused)
{
    static const struct {
        const char *does, *says;
    } refused[] = {
        {"emit in open", "weir_emit was called in open"},
        {"no such port", "output port 7, and there are 1"},
        {"no key", "record 0 of a batch has no key, and output port 0 is keyed"},
        {"no such row", "record 1 was rejected, and the batch has 1"},
        {"bad metric", "\"Bad Name\" is no name for a metric"},
        {"strange status", "returned 99, which is no weir_status"},
        {"bad column", "the offsets of the values of a batch go from 0 to 1, and not from 0 to 2"},
    };
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        what = refused[i].does;
        WEIR_CHECK(weir_test_dies(run_it, refused[i].says));
    }
    what = "";
}

WEIR_TEST(messages_are_cut_between_characters)
{
    static char text[5000];
    /* Characters of two bytes, after a prefix of none or one: in one of both, the cut is within a character. */
    for (size_t i = 0; i + 1 < sizeof text; i++) text[i] = (char)(i % 2 ? 0xa9 : 0xc3);
    for (int prefix = 0; prefix < 2; prefix++) {
        weir_fail(WEIR_RETRY, "%s%s", prefix ? "x" : "", text);
        const weir_bytes message = weir_failure_message();
        WEIR_CHECK(message.len == (prefix ? 4095 : 4096) && message.data[message.len - 1] == 0xa9);
    }
}
