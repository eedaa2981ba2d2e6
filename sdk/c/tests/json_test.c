/* JSON: what is taken, what is refused and where, and configurations. */

#include "../weir_test.h"

#include <stdlib.h>

static bool parses(const char *text)
{
    weir_json json;
    return weir_json_parse(weir_text(text), &json, NULL) == NULL;
}

WEIR_TEST(what_is_json_is_taken_and_nothing_else)
{
    static const char *good[] = {"null", " true ", "false", "0", "-0", "1.5e-3", "\"\"", "\"\\u00e9\\n\"", "[]", "[ 1 , 2 ]", "{}", "{\"a\":{\"b\":[null]}}", "\"\xc3\xa9\xf0\x9f\x98\x80\""};
    static const char *bad[] = {"", " ", "nul", "tru", "01", "-", "1.", "1e", ".5", "+1", "\"", "\"\\x\"", "\"\\u12g4\"", "\"\t\"", "[1,]", "[1 2]", "[", "{", "{\"a\"}", "{\"a\":}", "{a:1}", "{\"a\":1,}", "1 2", "\"\xc3\"", "\"\xed\xa0\x80\"", "\"\xc0\x80\"", "\"\xf5\x80\x80\x80\""};
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        if (!parses(good[i])) fprintf(stderr, "refused: %s\n", good[i]);
        WEIR_CHECK(parses(good[i]));
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        if (parses(bad[i])) fprintf(stderr, "taken: %s\n", bad[i]);
        WEIR_CHECK(!parses(bad[i]));
    }
    char deep[200] = {0};
    memset(deep, '[', 64), memset(deep + 64, ']', 64);
    WEIR_CHECK(parses(deep));
    memset(deep, '[', 65), memset(deep + 65, ']', 65);
    WEIR_CHECK(!parses(deep));
}

WEIR_TEST(every_cut_of_a_text_is_refused_without_a_look_beyond_it)
{
    static const char text[] = "{\"a\":[1.5e-3,\"\\u00e9\xc3\xa9\\n\",true,null],\"b\":{}}";
    for (size_t len = 0; len < sizeof text - 1; len++) {
        /* In memory of its own, so that a sanitizer sees a look beyond. */
        weir_buffer cut = {0};
        weir_buffer_push(&cut, text, len);
        uint8_t *exact = malloc(len ? len : 1);
        if (len) memcpy(exact, cut.data, len);
        weir_json json;
        size_t at;
        WEIR_CHECK(weir_json_parse(weir_bytes_of(exact, len), &json, &at) != NULL && at <= len);
        free(exact);
        weir_buffer_free(&cut);
    }
    WEIR_CHECK(parses(text));
}

WEIR_TEST(members_and_elements_are_found)
{
    weir_json json, member;
    WEIR_CHECK(!weir_json_parse(weir_text(" {\"a\" : 1, \"b\\u0063\":[ true , \"x\\n\\ud83d\\ude00\" ] , \"a\": -2.5e1 }"), &json, NULL));
    double number;
    WEIR_CHECK(weir_json_member(&json, "a", &member) && weir_json_double(&member, &number) && number == -25);
    WEIR_CHECK(!weir_json_member(&json, "c", &member));
    WEIR_CHECK(weir_json_member(&json, "bc", &member) && member.kind == WEIR_JSON_ARRAY);
    weir_bytes rest = {0};
    weir_json element;
    bool flag = false;
    WEIR_CHECK(weir_json_next(&member, &rest, NULL, &element) && weir_json_bool(&element, &flag) && flag);
    WEIR_CHECK(weir_json_next(&member, &rest, NULL, &element));
    weir_buffer text = {0};
    WEIR_CHECK(weir_json_text(&element, &text) && weir_bytes_equal(weir_buffer_view(&text), weir_text("x\n\xf0\x9f\x98\x80")));
    WEIR_CHECK(!weir_json_next(&member, &rest, NULL, &element));
    WEIR_CHECK(!weir_json_parse(weir_text("\"\\ud83d\""), &json, NULL) && !weir_json_text(&json, &text));
    weir_buffer_free(&text);
}

WEIR_TEST(numbers_are_exact_or_refused)
{
    static const struct {
        const char *text;
        bool whole;
        int64_t number;
    } numbers[] = {{"0", true, 0}, {"-9223372036854775808", true, INT64_MIN}, {"9223372036854775807", true, INT64_MAX}, {"9223372036854775808", false, 0}, {"-9223372036854775809", false, 0}, {"1.5", false, 0}, {"1e2", false, 0}, {"99999999999999999999", false, 0}};
    weir_json json;
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        int64_t number;
        WEIR_CHECK(!weir_json_parse(weir_text(numbers[i].text), &json, NULL));
        WEIR_CHECK(weir_json_int(&json, &number) == numbers[i].whole);
        if (numbers[i].whole) WEIR_CHECK(number == numbers[i].number);
    }
    double number;
    WEIR_CHECK(!weir_json_parse(weir_text("0.1"), &json, NULL) && weir_json_double(&json, &number) && number == 0.1);
    WEIR_CHECK(!weir_json_parse(weir_text("1e999"), &json, NULL) && !weir_json_double(&json, &number));
}

/* ---- Configurations ------------------------------------------------------------------------------------------------- */

static struct {
    double ratio;
    int64_t size;
    bool strict;
    char name[16];
} read_config;

static weir_status config_open(void *self, weir_bytes config, const weir_task *task)
{
    (void)self, (void)task;
    weir_config members;
    weir_buffer name = {0};
    weir_config_begin(&members, config);
    read_config.ratio = weir_config_double(&members, "ratio", 0.5, 0, 1);
    read_config.size = weir_config_int(&members, "size", 10, 1, 100);
    read_config.strict = weir_config_bool(&members, "strict", false);
    weir_config_text(&members, "name", "nobody", &name);
    weir_buffer_int(&name, 0, 1);
    snprintf(read_config.name, sizeof read_config.name, "%s", (const char *)name.data);
    weir_buffer_free(&name);
    return weir_config_end(&members);
}

static weir_status nothing(void *self, uint32_t port, const weir_batch *batch)
{
    (void)self, (void)port, (void)batch;
    return WEIR_DONE;
}

static const weir_operator configured = {.name = "configured", .version = "1.0.0", .open = config_open, .process = nothing};

WEIR_TEST(a_configuration_is_read_strictly)
{
    weir_harness *harness = weir_harness_open(&configured, "{}");
    WEIR_CHECK(weir_harness_status(harness) == WEIR_DONE && read_config.ratio == 0.5 && read_config.size == 10 && !strcmp(read_config.name, "nobody"));
    harness = weir_harness_open(&configured, "{\"name\":\"some\",\"strict\":true,\"ratio\":1,\"size\":100}");
    WEIR_CHECK(weir_harness_status(harness) == WEIR_DONE && read_config.ratio == 1 && read_config.size == 100 && read_config.strict && !strcmp(read_config.name, "some"));

    static const struct {
        const char *config, *says;
    } wrong[] = {
        {"{\"ratio\":2}", "\"ratio\" is 2 and must be a number from 0 to 1"},
        {"{\"ratio\":\"1\"}", "\"ratio\" is \"1\" and must be a number"},
        {"{\"size\":101}", "\"size\" is 101 and must be a whole number from 1 to 100"},
        {"{\"size\":1.5}", "must be a whole number"},
        {"{\"strict\":null}", "\"strict\" is null and must be true or false"},
        {"{\"name\":1}", "\"name\" is 1 and must be a text"},
        {"{\"sise\":1}", "a member \"sise\", and this plugin knows \"ratio\", \"size\", \"strict\", \"name\""},
        {"[]", "must be a JSON object"},
        {"{", "is no JSON: expected a string at byte 1"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        harness = weir_harness_open(&configured, wrong[i].config);
        if (!strstr(weir_harness_message(harness), wrong[i].says)) fprintf(stderr, "%s: %s\n", wrong[i].config, weir_harness_message(harness));
        WEIR_CHECK(weir_harness_status(harness) == WEIR_INVALID && strstr(weir_harness_message(harness), wrong[i].says));
    }
}
