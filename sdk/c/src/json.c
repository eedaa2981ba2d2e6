/* JSON where it stands: a value is a slice of its text, checked once as a whole, and read when asked for. */

#include <errno.h>
#include <stdlib.h>

#include "internal.h"

enum { DEPTH_MAX = 64 };

typedef struct scanner {
    const uint8_t *at, *end;
    const char *wrong;
} scanner;

static void skip_space(scanner *s)
{
    while (s->at < s->end && (*s->at == ' ' || *s->at == '\n' || *s->at == '\r' || *s->at == '\t')) s->at++;
}

static bool fail(scanner *s, const char *wrong)
{
    if (!s->wrong) s->wrong = wrong;
    return false;
}

static bool word(scanner *s, const char *text)
{
    const size_t len = strlen(text);
    if ((size_t)(s->end - s->at) < len || memcmp(s->at, text, len) != 0) return fail(s, "expected a JSON value");
    s->at += len;
    return true;
}

static bool digits(scanner *s)
{
    const uint8_t *from = s->at;
    while (s->at < s->end && *s->at >= '0' && *s->at <= '9') s->at++;
    return s->at > from || fail(s, "expected a digit");
}

static bool number(scanner *s)
{
    if (*s->at == '-') s->at++;
    if (s->at < s->end && *s->at == '0') {
        s->at++;
    } else if (!digits(s)) {
        return false;
    }
    if (s->at < s->end && *s->at == '.') {
        s->at++;
        if (!digits(s)) return false;
    }
    if (s->at < s->end && (*s->at == 'e' || *s->at == 'E')) {
        s->at++;
        if (s->at < s->end && (*s->at == '+' || *s->at == '-')) s->at++;
        if (!digits(s)) return false;
    }
    return true;
}

static int hex_digit(uint8_t c)
{
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    return -1;
}

/* The length of a character's UTF-8, 0 if it is none. */
static size_t utf8_len(const uint8_t *at, size_t left)
{
    const uint8_t c = at[0];
    size_t len = c < 0x80 ? 1 : c < 0xc2 ? 0 : c < 0xe0 ? 2 : c < 0xf0 ? 3 : c < 0xf5 ? 4 : 0;
    if (!len || len > left) return 0;
    for (size_t i = 1; i < len; i++) {
        if ((at[i] & 0xc0) != 0x80) return 0;
    }
    if ((c == 0xe0 && at[1] < 0xa0) || (c == 0xed && at[1] > 0x9f) || (c == 0xf0 && at[1] < 0x90) || (c == 0xf4 && at[1] > 0x8f)) return 0;
    return len;
}

static bool string(scanner *s)
{
    if (s->at == s->end || *s->at != '"') return fail(s, "expected a string");
    s->at++;
    while (s->at < s->end && *s->at != '"') {
        if (*s->at < 0x20) return fail(s, "a control character in a string");
        if (*s->at == '\\') {
            if (s->end - s->at < 2 || !strchr("\"\\/bfnrtu", s->at[1]) || !s->at[1]) return fail(s, "an escape that JSON does not have");
            if (s->at[1] == 'u') {
                if (s->end - s->at < 6) return fail(s, "a string without an end");
                for (int i = 2; i < 6; i++) {
                    if (hex_digit(s->at[i]) < 0) return fail(s, "\\u wants four hexadecimal digits");
                }
                s->at += 4;
            }
            s->at += 2;
            continue;
        }
        const size_t len = utf8_len(s->at, (size_t)(s->end - s->at));
        if (!len) return fail(s, "bytes that are no UTF-8");
        s->at += len;
    }
    if (s->at == s->end) return fail(s, "a string without an end");
    s->at++;
    return true;
}

static bool value(scanner *s, int depth);

static bool members(scanner *s, int depth, bool named, uint8_t close)
{
    if (depth == DEPTH_MAX) return fail(s, "nested more than 64 deep");
    s->at++;
    skip_space(s);
    if (s->at < s->end && *s->at == close) {
        s->at++;
        return true;
    }
    for (;;) {
        skip_space(s);
        if (named) {
            if (!string(s)) return false;
            skip_space(s);
            if (s->at == s->end || *s->at != ':') return fail(s, "expected a colon");
            s->at++;
        }
        if (!value(s, depth + 1)) return false;
        skip_space(s);
        if (s->at == s->end) return fail(s, "an object or array without an end");
        const uint8_t c = *s->at;
        if (c != ',' && c != close) return fail(s, "expected a comma or the end of an object or array");
        s->at++;
        if (c == close) return true;
    }
}

static bool value(scanner *s, int depth)
{
    skip_space(s);
    if (s->at == s->end) return fail(s, "expected a JSON value");
    switch (*s->at) {
    case '{': return members(s, depth, true, '}');
    case '[': return members(s, depth, false, ']');
    case '"': return string(s);
    case 't': return word(s, "true");
    case 'f': return word(s, "false");
    case 'n': return word(s, "null");
    default: return (*s->at == '-' || (*s->at >= '0' && *s->at <= '9')) ? number(s) : fail(s, "expected a JSON value");
    }
}

/* Takes a value off the scanner's text. */
static bool take_value(scanner *s, weir_json *json)
{
    skip_space(s);
    const uint8_t *from = s->at;
    if (!value(s, 0)) return false;
    switch (*from) {
    case '{': json->kind = WEIR_JSON_OBJECT; break;
    case '[': json->kind = WEIR_JSON_ARRAY; break;
    case '"': json->kind = WEIR_JSON_STRING; break;
    case 't':
    case 'f': json->kind = WEIR_JSON_BOOL; break;
    case 'n': json->kind = WEIR_JSON_NULL; break;
    default: json->kind = WEIR_JSON_NUMBER; break;
    }
    json->text = weir_bytes_of(from, (size_t)(s->at - from));
    return true;
}

const char *weir_json_parse(weir_bytes text, weir_json *json, size_t *at)
{
    const weir_bytes bytes = text.data ? text : weir_bytes_of(NULL, 0);
    scanner s = {bytes.data, bytes.data + bytes.len, NULL};
    if (take_value(&s, json)) {
        skip_space(&s);
        if (s.at != s.end) fail(&s, "something after the JSON value");
    }
    if (at) *at = (size_t)(s.at - bytes.data);
    return s.wrong;
}

bool weir_json_next(const weir_json *container, weir_bytes *rest, weir_json *name, weir_json *json)
{
    const bool named = container->kind == WEIR_JSON_OBJECT;
    if (!named && container->kind != WEIR_JSON_ARRAY) return false;
    const weir_bytes *text = rest->data ? rest : &container->text;
    scanner s = {text->data, text->data + text->len, NULL};
    if (!rest->data) s.at++;
    skip_space(&s);
    if (s.at < s.end && *s.at == ',') s.at++;
    skip_space(&s);
    weir_json first = {WEIR_JSON_STRING, {NULL, 0}};
    if (s.at == s.end || *s.at == '}' || *s.at == ']') return false;
    if (named) {
        if (!take_value(&s, &first)) return false;
        skip_space(&s);
        s.at++; /* the colon */
    }
    if (!take_value(&s, json)) return false;
    if (name) *name = first;
    *rest = weir_bytes_of(s.at, (size_t)(s.end - s.at));
    return true;
}

/* The text of a character, appended; false for half a pair. */
static bool append_char(weir_buffer *to, uint32_t c)
{
    uint8_t bytes[4];
    size_t len = 0;
    if (c >= 0xd800 && c < 0xe000) return false;
    if (c < 0x80) {
        bytes[len++] = (uint8_t)c;
    } else if (c < 0x800) {
        bytes[len++] = (uint8_t)(0xc0 | c >> 6);
        bytes[len++] = (uint8_t)(0x80 | (c & 0x3f));
    } else if (c < 0x10000) {
        bytes[len++] = (uint8_t)(0xe0 | c >> 12);
        bytes[len++] = (uint8_t)(0x80 | (c >> 6 & 0x3f));
        bytes[len++] = (uint8_t)(0x80 | (c & 0x3f));
    } else {
        bytes[len++] = (uint8_t)(0xf0 | c >> 18);
        bytes[len++] = (uint8_t)(0x80 | (c >> 12 & 0x3f));
        bytes[len++] = (uint8_t)(0x80 | (c >> 6 & 0x3f));
        bytes[len++] = (uint8_t)(0x80 | (c & 0x3f));
    }
    weir_buffer_push(to, bytes, len);
    return true;
}

static uint32_t four_digits(const uint8_t *at)
{
    uint32_t number = 0;
    for (int i = 0; i < 4; i++) number = number << 4 | (uint32_t)hex_digit(at[i]);
    return number;
}

bool weir_json_text(const weir_json *json, weir_buffer *to)
{
    if (json->kind != WEIR_JSON_STRING) return false;
    const size_t before = to->len;
    const uint8_t *at = json->text.data + 1, *end = json->text.data + json->text.len - 1;
    while (at < end) {
        if (*at != '\\') {
            const uint8_t *from = at;
            while (at < end && *at != '\\') at++;
            weir_buffer_push(to, from, (size_t)(at - from));
            continue;
        }
        uint32_t c = at[1];
        at += 2;
        switch (c) {
        case 'b': c = '\b'; break;
        case 'f': c = '\f'; break;
        case 'n': c = '\n'; break;
        case 'r': c = '\r'; break;
        case 't': c = '\t'; break;
        case 'u':
            c = four_digits(at);
            at += 4;
            if (c >= 0xd800 && c < 0xdc00 && end - at >= 6 && at[0] == '\\' && at[1] == 'u') {
                const uint32_t low = four_digits(at + 2);
                if (low >= 0xdc00 && low < 0xe000) {
                    c = 0x10000 + ((c - 0xd800) << 10) + (low - 0xdc00);
                    at += 6;
                }
            }
            break;
        default: break;
        }
        if (!append_char(to, c)) {
            to->len = before;
            return false;
        }
    }
    return true;
}

/* Whether a JSON string says `name`. */
static bool says(const weir_json *json, const char *name)
{
    const size_t len = strlen(name);
    if (!memchr(json->text.data, '\\', json->text.len)) {
        return json->text.len == len + 2 && memcmp(json->text.data + 1, name, len) == 0;
    }
    weir_buffer text = {0};
    const bool same = weir_json_text(json, &text) && text.len == len && memcmp(weir_buffer_view(&text).data, name, len) == 0;
    weir_buffer_free(&text);
    return same;
}

bool weir_json_member(const weir_json *object, const char *name, weir_json *member)
{
    weir_bytes rest = {NULL, 0};
    weir_json key, json;
    bool found = false;
    if (object->kind != WEIR_JSON_OBJECT) return false;
    while (weir_json_next(object, &rest, &key, &json)) {
        if (!says(&key, name)) continue;
        *member = json;
        found = true;
    }
    return found;
}

bool weir_json_bool(const weir_json *json, bool *to)
{
    if (json->kind != WEIR_JSON_BOOL) return false;
    *to = json->text.data[0] == 't';
    return true;
}

bool weir_json_double(const weir_json *json, double *to)
{
    if (json->kind != WEIR_JSON_NUMBER) return false;
    /* strtod wants an end, and the text has none. */
    char small[64], *text = json->text.len < sizeof small ? small : weir_reallocate(NULL, json->text.len + 1);
    memcpy(text, json->text.data, json->text.len);
    text[json->text.len] = 0;
    const double number = strtod(text, NULL);
    if (text != small) free(text);
    if (number - number != 0) return false; /* too large for a double */
    *to = number;
    return true;
}

bool weir_json_int(const weir_json *json, int64_t *to)
{
    if (json->kind != WEIR_JSON_NUMBER || json->text.len > 20) return false;
    const bool negative = json->text.data[0] == '-';
    const uint64_t max = (uint64_t)INT64_MAX + (negative ? 1 : 0);
    uint64_t number = 0;
    for (size_t i = negative; i < json->text.len; i++) {
        const uint8_t digit = (uint8_t)(json->text.data[i] - '0');
        if (digit > 9 || number > (max - digit) / 10) return false;
        number = number * 10 + digit;
    }
    *to = negative ? (int64_t)(0 - number) : (int64_t)number;
    return true;
}

/* ---- Configuration -------------------------------------------------------------------------------------------------- */

#define CONFIG_FAIL(config, ...) \
    do { \
        if (!(config)->failed) weir_fail(WEIR_INVALID, __VA_ARGS__); \
        (config)->failed = true; \
    } while (0)

void weir_config_begin(weir_config *config, weir_bytes json)
{
    size_t at;
    memset(config, 0, sizeof *config);
    const char *wrong = weir_json_parse(json, &config->json, &at);
    if (wrong) CONFIG_FAIL(config, "the configuration is no JSON: %s at byte %lu", wrong, (unsigned long)at);
    else if (config->json.kind != WEIR_JSON_OBJECT) CONFIG_FAIL(config, "the configuration must be a JSON object");
}

/* Notes that a member was asked for, and finds it. */
static bool config_member(weir_config *config, const char *name, weir_json *member)
{
    if (config->count == sizeof config->names / sizeof *config->names) weir_panic("a configuration has at most 32 members");
    config->names[config->count++] = name;
    return !config->failed && weir_json_member(&config->json, name, member);
}

/* A value as it is shown in a message, which is cut. */
#define SHOW(json) (int)((json).text.len < 100 ? (json).text.len : 100), (const char *)(json).text.data

double weir_config_double(weir_config *config, const char *name, double otherwise, double min, double max)
{
    weir_json member;
    double number;
    if (!config_member(config, name, &member)) return otherwise;
    if (weir_json_double(&member, &number) && number >= min && number <= max) return number;
    CONFIG_FAIL(config, "the configuration's \"%s\" is %.*s and must be a number from %g to %g", name, SHOW(member), min, max);
    return otherwise;
}

int64_t weir_config_int(weir_config *config, const char *name, int64_t otherwise, int64_t min, int64_t max)
{
    weir_json member;
    int64_t number;
    if (!config_member(config, name, &member)) return otherwise;
    if (weir_json_int(&member, &number) && number >= min && number <= max) return number;
    CONFIG_FAIL(config, "the configuration's \"%s\" is %.*s and must be a whole number from %lld to %lld", name, SHOW(member), (long long)min, (long long)max);
    return otherwise;
}

bool weir_config_bool(weir_config *config, const char *name, bool otherwise)
{
    weir_json member;
    bool flag;
    if (!config_member(config, name, &member)) return otherwise;
    if (weir_json_bool(&member, &flag)) return flag;
    CONFIG_FAIL(config, "the configuration's \"%s\" is %.*s and must be true or false", name, SHOW(member));
    return otherwise;
}

void weir_config_text(weir_config *config, const char *name, const char *otherwise, weir_buffer *to)
{
    weir_json member;
    if (config_member(config, name, &member)) {
        if (weir_json_text(&member, to)) return;
        CONFIG_FAIL(config, "the configuration's \"%s\" is %.*s and must be a text", name, SHOW(member));
    }
    if (otherwise) weir_buffer_push(to, otherwise, strlen(otherwise));
}

weir_status weir_config_end(weir_config *config)
{
    weir_bytes rest = {NULL, 0};
    weir_json name, json;
    while (!config->failed && weir_json_next(&config->json, &rest, &name, &json)) {
        bool known = false;
        for (unsigned i = 0; i < config->count && !known; i++) known = says(&name, config->names[i]);
        if (known) continue;
        weir_buffer names = {0};
        for (unsigned i = 0; i < config->count; i++) weir_buffer_format(&names, "%s\"%s\"", i ? ", " : "", config->names[i]);
        CONFIG_FAIL(config, "the configuration has a member %.*s, and this plugin knows %.*s", SHOW(name), names.len ? (int)names.len : 4,
                    names.len ? (const char *)names.data : "none");
        weir_buffer_free(&names);
    }
    return config->failed ? WEIR_INVALID : WEIR_DONE;
}
