/* State: maps, timers and values against plain models, snapshots in steps, restores, other parallelisms, damaged bytes. */

#include "../weir_test.h"

#include <stdlib.h>

/* ---- An operator that holds everything ------------------------------------------------------------------------------ */

typedef struct text_value {
    char *text;
} text_value;

static void text_encode(const void *value, weir_buffer *to)
{
    const char *text = ((const text_value *)value)->text;
    if (text) weir_buffer_push(to, text, strlen(text));
}

static bool text_decode(void *value, weir_bytes from, uint32_t state_version)
{
    (void)state_version;
    if (memchr(from.data, 0, from.len)) return false;
    char *text = malloc(from.len + 1);
    memcpy(text, from.data, from.len);
    text[from.len] = 0;
    ((text_value *)value)->text = text;
    return true;
}

static void text_drop(void *value) { free(((text_value *)value)->text); }

static void text_set(text_value *value, const char *text)
{
    free(value->text);
    value->text = strdup(text);
}

static const weir_codec number = WEIR_PLAIN(uint64_t);
static const weir_codec text = {.size = sizeof(text_value), .encode = text_encode, .decode = text_decode, .drop = text_drop};

typedef struct everything {
    weir_map numbers;
    weir_map texts;
    weir_timers timers;
    weir_timers windows;
    weir_value mine;
    weir_value ours;
    uint32_t restored;
} everything;

static weir_status everything_open(void *self, weir_bytes config, const weir_task *task)
{
    everything *op = self;
    (void)config;
    weir_map_init(&op->numbers, task, "numbers", &number);
    weir_map_init(&op->texts, task, "texts", &text);
    weir_timers_init(&op->timers, task, "timers", NULL);
    weir_timers_init(&op->windows, task, "windows", &number);
    weir_value_init(&op->mine, task, "mine", WEIR_SUBTASK, &number);
    weir_value_init(&op->ours, task, "ours", WEIR_SHARED, &text);
    return WEIR_DONE;
}

static weir_status nothing(void *self, uint32_t port, const weir_batch *batch)
{
    (void)self, (void)port, (void)batch;
    return WEIR_DONE;
}

static weir_status note_restored(void *self, uint32_t state_version)
{
    ((everything *)self)->restored = state_version;
    return WEIR_DONE;
}

static const weir_port inputs[] = {{.name = "in", .keyed = true}};
static const weir_operator plugin = {.name = "everything", .version = "1.0.0", .inputs = inputs, .input_count = 1, .state = WEIR_KEYED, .state_version = 2,
                                     .oldest_state_version = 1, .self_size = sizeof(everything), .open = everything_open, .process = nothing, .restored = note_restored};

static weir_key key_of(unsigned n)
{
    static char name[4][64];
    static unsigned turn;
    char *to = name[turn++ % 4];
    snprintf(to, sizeof name[0], "%s%u", n % 5 == 0 ? "a rather long key that no word holds " : "k", n);
    return weir_key_of(weir_text(to));
}

static unsigned random_state;
static unsigned rnd(unsigned below)
{
    random_state = random_state * 1664525u + 1013904223u;
    return (random_state >> 8) % below;
}

/* Some change of some collection. */
static void change(everything *op)
{
    const weir_key key = key_of(rnd(200));
    char some[24];
    switch (rnd(10)) {
    case 0:
    case 1: *(uint64_t *)weir_map_value(&op->numbers, key) += 1 + rnd(9); break;
    case 2: weir_map_remove(&op->numbers, key); break;
    case 3:
        snprintf(some, sizeof some, "text %u", rnd(1000));
        text_set(weir_map_value(&op->texts, key), some);
        break;
    case 4: weir_map_remove(&op->texts, key); break;
    case 5: weir_timers_set(&op->timers, (int64_t)rnd(50) - 25, key); break;
    case 6: weir_timers_cancel(&op->timers, (int64_t)rnd(50) - 25, key); break;
    case 7: *(uint64_t *)weir_timers_set(&op->windows, rnd(10), key) += 1; break;
    case 8: {
        weir_due due;
        if (rnd(8) == 0) weir_timers_due(&op->windows, rnd(10), &due);
        break;
    }
    case 9:
        if (rnd(4) == 0) *(uint64_t *)weir_value_change(&op->mine) += 1;
        if (rnd(4) == 0) text_set(weir_value_change(&op->ours), rnd(2) ? "rules" : "");
        break;
    }
}

/* What an operator holds, as the bytes of a full snapshot of it: of a copy, so that it changes nothing. */
static const weir_checkpoint *contents(const weir_checkpoint *checkpoint)
{
    return weir_harness_snapshot(weir_harness_restore(&plugin, "{}", checkpoint), true);
}

WEIR_TEST(snapshots_in_steps_hold_the_state_of_the_cut_and_restore_to_it)
{
    for (unsigned seed = 1; seed <= 60; seed++) {
        random_state = seed;
        weir_harness *harness = weir_harness_open(&plugin, "{}");
        everything *op = weir_harness_self(harness);
        for (int epoch = 0; epoch < 8; epoch++) {
            for (unsigned i = rnd(300); i > 0; i--) change(op);
            /* The same state, taken at once, by an operator that has come to it in the same way, is what must come out. */
            weir_harness *twin = weir_harness_open(&plugin, "{}");
            if (epoch > 0) {
                random_state = seed;
                op = weir_harness_self(twin);
                for (int e = 0; e <= epoch; e++) {
                    for (unsigned i = rnd(300); i > 0; i--) change(op);
                    if (e < epoch) (void)rnd(2);
                    for (unsigned i = e < epoch ? rnd(40) : 0; i > 0; i--) change(op);
                }
                op = weir_harness_self(harness);
            }
            const bool full = rnd(2) == 0;
            const unsigned saved = random_state;
            weir_harness_begin_snapshot(harness, full);
            unsigned between = rnd(40);
            while (weir_harness_snapshot_step(harness, 1 + saved % 3) == WEIR_MORE) {
                for (unsigned i = 0; i < 2 && between > 0; i++, between--) change(op);
            }
            for (; between > 0; between--) change(op);
            if (epoch > 0) WEIR_CHECK(weir_checkpoint_equal(contents(weir_harness_checkpoint(harness)), weir_harness_snapshot(twin, true)));
            WEIR_CHECK(weir_checkpoint_equal(contents(weir_harness_checkpoint(harness)), weir_harness_checkpoint(harness)));
        }
    }
}

WEIR_TEST(an_incremental_snapshot_writes_only_key_groups_that_have_changed)
{
    weir_harness *harness = weir_harness_open(&plugin, "{}");
    everything *op = weir_harness_self(harness);
    for (unsigned i = 0; i < 1000; i++) *(uint64_t *)weir_map_value(&op->numbers, key_of(i)) = i;
    weir_harness_snapshot(harness, true);
    WEIR_CHECK(weir_harness_chunks_written(harness) == 128);
    weir_harness_snapshot(harness, false);
    WEIR_CHECK(weir_harness_chunks_written(harness) == 0);
    ++*(uint64_t *)weir_map_change(&op->numbers, key_of(7));
    WEIR_CHECK(weir_map_get(&op->numbers, key_of(8)) != NULL);
    weir_harness_snapshot(harness, false);
    WEIR_CHECK(weir_harness_chunks_written(harness) == 1);
    WEIR_CHECK(!weir_map_remove(&op->numbers, key_of(5000)) && !weir_map_change(&op->numbers, key_of(5000)));
    weir_harness_snapshot(harness, false);
    WEIR_CHECK(weir_harness_chunks_written(harness) == 0);
}

WEIR_TEST(a_key_group_that_has_become_empty_is_cleared)
{
    weir_harness *harness = weir_harness_open(&plugin, "{}");
    everything *op = weir_harness_self(harness);
    weir_map_value(&op->numbers, key_of(1));
    WEIR_CHECK(weir_checkpoint_chunks(weir_harness_snapshot(harness, false)) == 1);
    weir_map_remove(&op->numbers, key_of(1));
    WEIR_CHECK(weir_checkpoint_chunks(weir_harness_snapshot(harness, false)) == 0 && weir_harness_chunks_written(harness) == 1);
}

WEIR_TEST(a_snapshot_that_is_abandoned_is_followed_by_a_full_one)
{
    weir_harness *harness = weir_harness_open(&plugin, "{}");
    everything *op = weir_harness_self(harness);
    for (unsigned i = 0; i < 500; i++) *(uint64_t *)weir_map_value(&op->numbers, key_of(i)) = i;
    weir_harness_snapshot(harness, true);
    weir_map_value(&op->numbers, key_of(1));
    weir_map_value(&op->numbers, key_of(2));
    weir_harness_begin_snapshot(harness, false);
    WEIR_CHECK(weir_harness_snapshot_step(harness, 1) == WEIR_MORE);
    *(uint64_t *)weir_map_value(&op->numbers, key_of(2)) = 77;
    const weir_checkpoint *checkpoint = weir_harness_snapshot(harness, false);
    weir_harness *after = weir_harness_restore(&plugin, "{}", checkpoint);
    everything *restored = weir_harness_self(after);
    WEIR_CHECK(weir_map_len(&restored->numbers) == 500 && *(const uint64_t *)weir_map_get(&restored->numbers, key_of(2)) == 77);
    WEIR_CHECK(restored->restored == 2);
}

WEIR_TEST(state_of_an_older_version_is_written_anew_after_it_was_read)
{
    weir_harness *harness = weir_harness_open(&plugin, "{}");
    everything *op = weir_harness_self(harness);
    for (unsigned i = 0; i < 500; i++) weir_map_value(&op->numbers, key_of(i));
    const weir_checkpoint *old = weir_checkpoint_of_version(weir_harness_snapshot(harness, true), 1);
    harness = weir_harness_restore(&plugin, "{}", old);
    op = weir_harness_self(harness);
    WEIR_CHECK(op->restored == 1);
    for (unsigned i = 1; i < 500; i++) weir_map_remove(&op->numbers, key_of(i));
    const weir_checkpoint *checkpoint = weir_harness_snapshot(harness, false);
    WEIR_CHECK(weir_harness_chunks_written(harness) == 130 && weir_checkpoint_chunks(checkpoint) == 1);
    weir_harness_snapshot(harness, false);
    WEIR_CHECK(weir_harness_chunks_written(harness) == 0);
}

WEIR_TEST(chunks_have_at_most_256_kib_and_larger_entries_come_in_parts)
{
    weir_harness *harness = weir_harness_open(&plugin, "{}");
    everything *op = weir_harness_self(harness);
    static char large[700001];
    static const size_t sizes[] = {700000, 262144, 262143, 262100, 100, 0, 131000};
    for (unsigned i = 0; i < 7; i++) {
        memset(large, 'a' + (int)i, sizes[i]);
        large[sizes[i]] = 0;
        text_set(weir_map_value(&op->texts, key_of(i)), large);
        /* And in one key group, beside the others. */
        char name[32];
        for (unsigned n = 0, found = 0; found < 2; n++) {
            snprintf(name, sizeof name, "same group %u %u", i, n);
            const weir_key key = weir_key_of(weir_text(name));
            if (weir_key_group(key.hash, 128) != 3) continue;
            text_set(weir_map_value(&op->texts, key), large);
            found++;
        }
    }
    const weir_checkpoint *checkpoint = weir_harness_snapshot(harness, true);
    for (size_t i = 0; i < weir_checkpoint_chunks(checkpoint); i++) WEIR_CHECK(weir_checkpoint_chunk(checkpoint, i).len <= 256 << 10);
    weir_harness *after = weir_harness_restore(&plugin, "{}", checkpoint);
    WEIR_CHECK(weir_harness_status(after) == WEIR_DONE);
    everything *restored = weir_harness_self(after);
    WEIR_CHECK(weir_map_len(&restored->texts) == 21);
    for (unsigned i = 0; i < 7; i++) {
        const text_value *value = weir_map_get(&restored->texts, key_of(i));
        WEIR_CHECK(value && strlen(value->text) == sizes[i] && (!sizes[i] || value->text[sizes[i] - 1] == 'a' + (int)i));
    }
    WEIR_CHECK(weir_checkpoint_equal(checkpoint, weir_harness_snapshot(after, true)));
    WEIR_CHECK(weir_harness_status(weir_harness_restore(&plugin, "{}", weir_checkpoint_with(checkpoint, weir_checkpoint_chunks(checkpoint) - 1, weir_none()))) != WEIR_FATAL);
}

WEIR_TEST(state_follows_its_keys_to_another_parallelism_and_back)
{
    random_state = 5;
    const weir_checkpoint *parts[7] = {NULL};
    weir_harness *whole = weir_harness_open(&plugin, "{}");
    everything *op = weir_harness_self(whole);
    for (int i = 0; i < 3000; i++) {
        const weir_key key = key_of(rnd(400));
        ++*(uint64_t *)weir_map_value(&op->numbers, key);
        weir_timers_set(&op->timers, rnd(20), key);
    }
    text_set(weir_value_change(&op->ours), "rules");
    const weir_checkpoint *before = weir_harness_snapshot(whole, true);
    static const uint32_t parallelisms[] = {3, 7, 2, 1};
    const weir_checkpoint *const one[] = {before};
    const weir_checkpoint *const *from = one;
    size_t count = 1;
    const weir_checkpoint *next[7];
    for (size_t step = 0; step < 4; step++) {
        size_t keys = 0;
        for (uint32_t subtask = 0; subtask < parallelisms[step]; subtask++) {
            weir_harness *harness = weir_harness_restore_subtask(&plugin, "{}", subtask, parallelisms[step], from, count);
            WEIR_CHECK(weir_harness_status(harness) == WEIR_DONE);
            everything *part = weir_harness_self(harness);
            keys += weir_map_len(&part->numbers);
            WEIR_CHECK(!strcmp(((const text_value *)weir_value_get(&part->ours))->text, "rules"));
            next[subtask] = weir_harness_snapshot(harness, true);
        }
        WEIR_CHECK(keys == weir_map_len(&op->numbers));
        count = parallelisms[step];
        memcpy(parts, next, sizeof next);
        from = parts;
    }
    WEIR_CHECK(weir_checkpoint_equal(before, parts[0]));
}

WEIR_TEST(timers_come_due_by_time_then_by_the_bytes_of_the_key)
{
    weir_harness *harness = weir_harness_open(&plugin, "{}");
    everything *op = weir_harness_self(harness);
    static const struct {
        int64_t time;
        const char *key;
    } ordered[] = {{INT64_MIN + 1, "z"}, {-5, "b"}, {0, ""}, {0, "a"}, {0, "aa"}, {0, "b"}, {0, "\xff"}, {7, "12345678"}, {7, "123456789"}, {7, "12345679"}, {INT64_MAX, "a"}};
    enum { COUNT = sizeof ordered / sizeof *ordered };
    for (size_t i = 0; i < COUNT; i++) {
        const size_t at = i * 7 % COUNT;
        WEIR_CHECK(weir_timers_set(&op->timers, ordered[at].time, weir_key_of(weir_text(ordered[at].key))) != NULL);
        weir_timers_set(&op->timers, ordered[at].time, weir_key_of(weir_text(ordered[at].key)));
    }
    WEIR_CHECK(weir_timers_len(&op->timers) == COUNT);
    int64_t earliest;
    WEIR_CHECK(weir_timers_earliest(&op->timers, &earliest) && earliest == INT64_MIN + 1);
    weir_due due;
    for (size_t i = 0; i < COUNT; i++) {
        WEIR_CHECK(!weir_timers_due(&op->timers, ordered[i].time - 1, &due));
        WEIR_CHECK(weir_timers_due(&op->timers, ordered[i].time, &due) && due.time == ordered[i].time && weir_bytes_equal(due.key.bytes, weir_text(ordered[i].key)));
    }
    WEIR_CHECK(!weir_timers_due(&op->timers, WEIR_END_OF_TIME, &due) && !weir_timers_earliest(&op->timers, &earliest));
}

WEIR_TEST(a_timer_set_while_others_fire_takes_its_place_among_them)
{
    weir_harness *harness = weir_harness_open(&plugin, "{}");
    everything *op = weir_harness_self(harness);
    for (unsigned i = 0; i < 9; i++) weir_timers_set(&op->timers, 1, key_of(i * 2 + 1));
    weir_due due;
    unsigned fired = 0;
    bool ordered = true;
    weir_buffer last = {0};
    while (weir_timers_due(&op->timers, 1, &due)) {
        ordered = ordered && (fired == 0 || weir_bytes_order(weir_buffer_view(&last), due.key.bytes) < 0);
        weir_buffer_clear(&last);
        weir_buffer_push(&last, due.key.bytes.data, due.key.bytes.len);
        if (fired++ == 3) {
            weir_timers_set(&op->timers, 1, weir_key_of(weir_text("zz")));
            weir_timers_cancel(&op->timers, 1, key_of(17));
        }
    }
    weir_buffer_free(&last);
    WEIR_CHECK(ordered && fired == 9);
}

WEIR_TEST(many_timers_are_what_a_list_of_them_is)
{
    random_state = 11;
    enum { TIMES = 40, KEYS = 30 };
    static bool set[TIMES][KEYS];
    weir_harness *harness = weir_harness_open(&plugin, "{}");
    everything *op = weir_harness_self(harness);
    size_t len = 0;
    for (int i = 0; i < 20000; i++) {
        const unsigned time = rnd(TIMES), key = rnd(KEYS);
        if (rnd(2)) {
            WEIR_CHECK((weir_timers_get(&op->timers, time, key_of(key)) != NULL) == set[time][key]);
            weir_timers_set(&op->timers, time, key_of(key));
            len += !set[time][key];
            set[time][key] = true;
        } else {
            WEIR_CHECK(weir_timers_cancel(&op->timers, time, key_of(key)) == set[time][key]);
            len -= set[time][key];
            set[time][key] = false;
        }
        WEIR_CHECK(weir_timers_len(&op->timers) == len);
    }
    weir_due due;
    for (int64_t last = -1; weir_timers_due(&op->timers, TIMES, &due); last = due.time) {
        WEIR_CHECK(due.time >= last);
        len--;
    }
    WEIR_CHECK(len == 0);
}

static unsigned visited;
static void visit(void *context, weir_key key, const void *value)
{
    (void)context, (void)key;
    visited += (unsigned)*(const uint64_t *)value;
}

WEIR_TEST(a_map_is_what_an_array_of_its_keys_is)
{
    random_state = 3;
    enum { KEYS = 700 };
    static uint64_t values[KEYS];
    weir_harness *harness = weir_harness_open(&plugin, "{}");
    everything *op = weir_harness_self(harness);
    for (int i = 0; i < 30000; i++) {
        const unsigned key = rnd(KEYS);
        const uint64_t *value = weir_map_get(&op->numbers, key_of(key));
        WEIR_CHECK((value ? *value : 0) == values[key]);
        if (rnd(3)) {
            *(uint64_t *)weir_map_value(&op->numbers, key_of(key)) += 1;
            values[key]++;
        } else {
            WEIR_CHECK(weir_map_remove(&op->numbers, key_of(key)) == (values[key] > 0));
            values[key] = 0;
        }
    }
    unsigned sum = 0;
    for (unsigned i = 0; i < KEYS; i++) sum += (unsigned)values[i];
    visited = 0;
    weir_map_each(&op->numbers, visit, NULL);
    WEIR_CHECK(visited == sum);
}

/* ---- Damaged state -------------------------------------------------------------------------------------------------- */

static const weir_checkpoint *small_checkpoint(void)
{
    weir_harness *harness = weir_harness_open(&plugin, "{}");
    everything *op = weir_harness_self(harness);
    *(uint64_t *)weir_map_value(&op->numbers, key_of(1)) = 5;
    text_set(weir_map_value(&op->texts, key_of(1)), "some text");
    weir_timers_set(&op->timers, 17, key_of(1));
    weir_timers_set(&op->windows, 18, key_of(1));
    ++*(uint64_t *)weir_value_change(&op->mine);
    return weir_harness_snapshot(harness, true);
}

WEIR_TEST(state_that_is_cut_short_is_refused)
{
    const weir_checkpoint *good = small_checkpoint();
    WEIR_CHECK(weir_checkpoint_chunks(good) == 2);
    unsigned taken = 0;
    for (size_t chunk = 0; chunk < 2; chunk++) {
        const weir_bytes data = weir_checkpoint_chunk(good, chunk);
        for (size_t len = 1; len < data.len; len++) {
            weir_harness *harness = weir_harness_restore(&plugin, "{}", weir_checkpoint_with(good, chunk, weir_bytes_of(data.data, len)));
            if (weir_harness_status(harness) == WEIR_DONE) taken++;
            else WEIR_CHECK(weir_harness_status(harness) == WEIR_INVALID && strstr(weir_harness_message(harness), "state cannot be read: "));
        }
    }
    /* Only where it ends between two sections does a chunk look whole: 4 in the first, and after the format of both. */
    WEIR_CHECK(taken == 5);
}

WEIR_TEST(state_with_any_byte_changed_is_refused_or_read_and_never_worse)
{
    const weir_checkpoint *good = small_checkpoint();
    unsigned refused = 0;
    for (size_t chunk = 0; chunk < 2; chunk++) {
        const weir_bytes data = weir_checkpoint_chunk(good, chunk);
        uint8_t copy[1024];
        WEIR_CHECK(data.len < sizeof copy);
        for (size_t at = 0; at < data.len; at++) {
            for (unsigned flip = 1; flip < 256; flip += 3) {
                memcpy(copy, data.data, data.len);
                copy[at] ^= (uint8_t)flip;
                weir_harness *harness = weir_harness_restore(&plugin, "{}", weir_checkpoint_with(good, chunk, weir_bytes_of(copy, data.len)));
                if (weir_harness_status(harness) == WEIR_INVALID) refused++;
                else WEIR_CHECK(weir_harness_status(harness) == WEIR_DONE);
            }
        }
    }
    WEIR_CHECK(refused > 5000);
}

static weir_status fewer_open(void *self, weir_bytes config, const weir_task *task)
{
    (void)config;
    weir_map_init(&((everything *)self)->numbers, task, "numbers", &number);
    return WEIR_DONE;
}

static weir_status other_open(void *self, weir_bytes config, const weir_task *task)
{
    static const weir_codec small = WEIR_PLAIN(uint32_t);
    (void)config;
    weir_map_init(&((everything *)self)->numbers, task, "numbers", &small);
    return WEIR_DONE;
}

WEIR_TEST(what_is_wrong_with_state_is_said_with_its_place)
{
    const weir_checkpoint *good = small_checkpoint();
    weir_operator fewer = plugin;
    fewer.open = fewer_open;
    weir_harness *harness = weir_harness_restore(&fewer, "{}", good);
    WEIR_CHECK(strstr(weir_harness_message(harness), "collection \"texts\": this plugin has no such collection: declare it in open"));

    weir_operator other = plugin;
    other.open = other_open;
    harness = weir_harness_restore(&other, "{}", good);
    WEIR_CHECK(strstr(weir_harness_message(harness), "collection \"numbers\": a value has another size than its type"));

    const weir_bytes first = weir_checkpoint_chunk(good, 0);
    uint8_t newer[1024];
    memcpy(newer, first.data, first.len);
    newer[0] = 2;
    harness = weir_harness_restore(&plugin, "{}", weir_checkpoint_with(good, 0, weir_bytes_of(newer, first.len)));
    WEIR_CHECK(strstr(weir_harness_message(harness), "is not in format 1") && strstr(weir_harness_message(harness), "key group "));
}

/* ---- Mistakes of the plugin ----------------------------------------------------------------------------------------- */

static void foreign_key(void)
{
    weir_harness *harness = weir_harness_open_subtask(&plugin, "{}", 0, 2);
    for (unsigned i = 0; i < 10; i++) weir_map_value(&((everything *)weir_harness_self(harness))->numbers, key_of(i));
}

static weir_status twice_open(void *self, weir_bytes config, const weir_task *task)
{
    everything_open(self, config, task);
    weir_map_init(&((everything *)self)->texts, task, "numbers", &number);
    return WEIR_DONE;
}

static void named_twice(void)
{
    weir_operator twice = plugin;
    twice.open = twice_open;
    weir_harness_open(&twice, "{}");
}

static const weir_task *kept_task;
static weir_status keeping_open(void *self, weir_bytes config, const weir_task *task)
{
    (void)self, (void)config;
    kept_task = task;
    return WEIR_DONE;
}

static void declared_late(void)
{
    weir_operator late = plugin;
    late.open = keeping_open;
    weir_harness_open(&late, "{}");
    weir_map map;
    weir_map_init(&map, kept_task, "late", &number);
}

WEIR_TEST(mistakes_end_the_instance_with_a_reason)
{
    WEIR_CHECK(weir_test_dies(foreign_key, "\"numbers\" was asked for a key of key group") && weir_test_dies(foreign_key, "declare the input port as keyed"));
    WEIR_CHECK(weir_test_dies(named_twice, "two collections are named \"numbers\""));
    WEIR_CHECK(weir_test_dies(declared_late, "\"late\" is declared after open"));
}
