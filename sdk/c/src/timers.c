/* weir_timers: times with keys and values, found by time and key in tables, and fired in order.
 *
 * Each time that some timer is set for is a moment: a node of a treap, whose form depends on the times alone, with the timers of that
 * time. They are put in order when the moment comes due, all at once. So a window of many keys costs no tree, and many windows no search. */

#include <stdlib.h>

#include "internal.h"

typedef struct weir_moment {
    int64_t time;
    uint64_t priority;
    struct weir_moment *left, *right;
    timed_entry **timers;
    uint32_t len, capacity;
    bool in_order; /* the last is the first to fire */
    timed_entry *one[1]; /* room for the timer of a moment that has one */
} weir_moment;

typedef struct timers_part {
    weir_part part;
    weir_shape shape;
    weir_table *tables; /* by place */
    weir_moment *moments;
    weir_moment *near; /* where the last timer was set */
    timed_entry *fired; /* what weir_timers_due gave out last */
    size_t len;
} timers_part;

static void *timer_value(timed_entry *timer) { return timer + 1; }

/* ---- The treap ------------------------------------------------------------------------------------------------------ */

static weir_moment *rotate_right(weir_moment *top)
{
    weir_moment *left = top->left;
    top->left = left->right;
    left->right = top;
    return left;
}

static weir_moment *rotate_left(weir_moment *top)
{
    weir_moment *right = top->right;
    top->right = right->left;
    right->left = top;
    return right;
}

static weir_moment *moment_insert(weir_moment *top, weir_moment *moment)
{
    if (!top) return moment;
    if (moment->time < top->time) {
        top->left = moment_insert(top->left, moment);
        return top->left->priority > top->priority ? rotate_right(top) : top;
    }
    top->right = moment_insert(top->right, moment);
    return top->right->priority > top->priority ? rotate_left(top) : top;
}

static weir_moment *moment_join(weir_moment *left, weir_moment *right)
{
    if (!left) return right;
    if (!right) return left;
    if (left->priority > right->priority) {
        left->right = moment_join(left->right, right);
        return left;
    }
    right->left = moment_join(left, right->left);
    return right;
}

static void moment_unlink(weir_moment **top, const weir_moment *moment)
{
    while (*top != moment) top = moment->time < (*top)->time ? &(*top)->left : &(*top)->right;
    *top = moment_join(moment->left, moment->right);
}

static weir_moment *moment_find(weir_moment *top, int64_t time)
{
    while (top && top->time != time) top = time < top->time ? top->left : top->right;
    return top;
}

static weir_moment *moment_first(weir_moment *top)
{
    while (top && top->left) top = top->left;
    return top;
}

/* ---- Timers --------------------------------------------------------------------------------------------------------- */

static weir_moment *moment_at(timers_part *part, int64_t time)
{
    if (part->near && part->near->time == time) return part->near;
    weir_moment *moment = moment_find(part->moments, time);
    if (!moment) {
        moment = weir_allocate(sizeof *moment);
        moment->time = time;
        moment->priority = weir_hash(weir_bytes_of(&time, sizeof time));
        moment->timers = moment->one;
        moment->capacity = 1;
        moment->in_order = true;
        part->moments = moment_insert(part->moments, moment);
    }
    part->near = moment;
    return moment;
}

static timed_entry *timer_add(timers_part *part, uint32_t place, const weir_key *key, int64_t time)
{
    timed_entry *timer = (timed_entry *)(void *)table_add(&part->tables[place], &part->shape, key, time);
    weir_moment *moment = moment_at(part, time);
    if (moment->len == moment->capacity) {
        const uint32_t capacity = moment->capacity * 2;
        timed_entry **timers = weir_reallocate(moment->timers == moment->one ? NULL : moment->timers, (size_t)capacity * sizeof *timers);
        if (moment->timers == moment->one) timers[0] = moment->one[0];
        moment->timers = timers;
        moment->capacity = capacity;
    }
    timer->time = time;
    timer->moment = moment;
    timer->entry.place = moment->len;
    moment->timers[moment->len++] = timer;
    moment->in_order = moment->len == 1;
    part->len++;
    return timer;
}

/* Takes a timer out of its table and its moment; it is not freed. */
static void timer_take(timers_part *part, uint32_t place, timed_entry *timer)
{
    weir_moment *moment = timer->moment;
    table_remove(&part->tables[place], &timer->entry, timer->time);
    timed_entry *last = moment->timers[--moment->len];
    if (last != timer) {
        moment->timers[timer->entry.place] = last;
        last->entry.place = timer->entry.place;
        moment->in_order = false;
    }
    part->len--;
    if (moment->len) return;
    moment_unlink(&part->moments, moment);
    if (part->near == moment) part->near = NULL;
    if (moment->timers != moment->one) free(moment->timers);
    free(moment);
}

static void timer_free(timers_part *part, timed_entry *timer)
{
    if (!timer) return;
    drop_value(&part->part, timer_value(timer));
    free(timer);
}

static void moment_put_in_order(const timers_part *part, weir_moment *moment)
{
    if (moment->in_order) return;
    ordered *items = weir_reallocate(NULL, 2 * (size_t)moment->len * sizeof *items);
    for (uint32_t i = 0; i < moment->len; i++) items[i] = ordered_of(&part->shape, &moment->timers[i]->entry);
    const ordered *sorted = sort(&part->shape, items, items + moment->len, moment->len);
    for (uint32_t i = 0; i < moment->len; i++) {
        timed_entry *timer = (timed_entry *)(void *)sorted[moment->len - 1 - i].entry;
        timer->entry.place = i;
        moment->timers[i] = timer;
    }
    free(items);
    moment->in_order = true;
}

/* ---- As a part of the state ----------------------------------------------------------------------------------------- */

typedef struct timers_encoding {
    timers_part *part;
    weir_chunks *to;
} timers_encoding;

static void timers_encode_entry(void *context, weir_entry *entry)
{
    timers_encoding *encoding = context;
    timed_entry *timer = (timed_entry *)(void *)entry;
    uint8_t prefix[8]; /* so that times order as bytes do */
    const uint64_t time = (uint64_t)timer->time ^ (uint64_t)1 << 63;
    for (int i = 0; i < 8; i++) prefix[i] = (uint8_t)(time >> (56 - 8 * i));
    const weir_bytes key = weir_bytes_of(entry_key(&encoding->part->shape, entry), entry->key_len);
    weir_chunks_put(encoding->to, weir_bytes_of(prefix, 8), key, encoded(&encoding->part->part, timer_value(timer)));
}

static void timers_encode(weir_part *part, uint32_t place, weir_chunks *to)
{
    timers_part *timers = (timers_part *)(void *)part;
    if (place >= part->state->groups) return;
    timers_encoding encoding = {timers, to};
    weir_chunks_section(to, part->name);
    table_each(&timers->tables[place], &timers->shape, timers_encode_entry, &encoding);
}

static bool split_time(weir_bytes *bytes, int64_t *time)
{
    weir_bytes prefix;
    if (!weir_take(bytes, 8, &prefix)) return false;
    uint64_t number = 0;
    for (int i = 0; i < 8; i++) number = number << 8 | prefix.data[i];
    *time = (int64_t)(number ^ (uint64_t)1 << 63);
    return true;
}

static const char *timers_put(weir_part *part, uint32_t place, weir_bytes bytes, weir_bytes value, uint32_t state_version)
{
    timers_part *timers = (timers_part *)(void *)part;
    int64_t time;
    if (!split_time(&bytes, &time)) return "a timer is cut short";
    const weir_key key = weir_key_of(bytes);
    const char *wrong = check_group(part, place, key.hash);
    if (wrong) return wrong;
    weir_entry *old = table_find(&timers->tables[place], &timers->shape, &key, time);
    if (old) {
        timer_take(timers, place, (timed_entry *)(void *)old);
        timer_free(timers, (timed_entry *)(void *)old);
    }
    return decoded(part, timer_value(timer_add(timers, place, &key, time)), value, state_version);
}

static void timers_remove(weir_part *part, uint32_t place, weir_bytes bytes)
{
    timers_part *timers = (timers_part *)(void *)part;
    int64_t time;
    if (!split_time(&bytes, &time) || place >= part->state->groups) return;
    const weir_key key = weir_key_of(bytes);
    timed_entry *timer = (timed_entry *)(void *)table_find(&timers->tables[place], &timers->shape, &key, time);
    if (!timer) return;
    timer_take(timers, place, timer);
    timer_free(timers, timer);
}

static size_t timers_live(const weir_part *part, uint32_t place)
{
    return place < part->state->groups ? ((const timers_part *)(const void *)part)->tables[place].len : 0;
}

void weir_timers_init(weir_timers *timers, const weir_task *task, const char *name, const weir_codec *codec)
{
    timers_part *part = weir_allocate(sizeof *part);
    part->part.codec = codec;
    part->part.encode = timers_encode;
    part->part.put = timers_put;
    part->part.remove = timers_remove;
    part->part.live = timers_live;
    weir_state_add(task->state, &part->part, name);
    part->shape.key_at = (uint32_t)(sizeof(timed_entry) + value_size(codec));
    part->shape.timed = true;
    part->tables = weir_allocate(task->state->groups * sizeof *part->tables);
    timers->part = &part->part;
}

static timers_part *timers_of(const weir_timers *timers) { return (timers_part *)(void *)timers->part; }

static timed_entry *find_timer(timers_part *part, uint32_t place, int64_t time, const weir_key *key)
{
    return (timed_entry *)(void *)table_find(&part->tables[place], &part->shape, key, time);
}

void *weir_timers_set(weir_timers *timers, int64_t time, weir_key key)
{
    timers_part *part = timers_of(timers);
    const uint32_t place = weir_state_place(&part->part, key.hash);
    timed_entry *timer = find_timer(part, place, time, &key);
    if (timer && !part->part.codec) return timer_value(timer); /* nothing changes */
    weir_state_touch(part->part.state, place);
    return timer_value(timer ? timer : timer_add(part, place, &key, time));
}

const void *weir_timers_get(const weir_timers *timers, int64_t time, weir_key key)
{
    timers_part *part = timers_of(timers);
    timed_entry *timer = find_timer(part, weir_state_place(&part->part, key.hash), time, &key);
    return timer ? timer_value(timer) : NULL;
}

bool weir_timers_cancel(weir_timers *timers, int64_t time, weir_key key)
{
    timers_part *part = timers_of(timers);
    const uint32_t place = weir_state_place(&part->part, key.hash);
    timed_entry *timer = find_timer(part, place, time, &key);
    if (!timer) return false;
    weir_state_touch(part->part.state, place);
    timer_take(part, place, timer);
    timer_free(part, timer);
    return true;
}

bool weir_timers_earliest(const weir_timers *timers, int64_t *time)
{
    const weir_moment *first = moment_first(timers_of(timers)->moments);
    if (first) *time = first->time;
    return first != NULL;
}

size_t weir_timers_len(const weir_timers *timers) { return timers_of(timers)->len; }

bool weir_timers_due(weir_timers *timers, int64_t watermark, weir_due *due)
{
    timers_part *part = timers_of(timers);
    timer_free(part, part->fired);
    part->fired = NULL;
    weir_moment *first = moment_first(part->moments);
    if (!first || first->time > watermark) return false;
    moment_put_in_order(part, first);
    timed_entry *timer = first->timers[first->len - 1];
    const uint32_t place = weir_state_place(&part->part, timer->entry.hash);
    weir_state_touch(part->part.state, place);
    timer_take(part, place, timer);
    part->fired = timer;
    due->time = timer->time;
    due->key.bytes = weir_bytes_of(entry_key(&part->shape, &timer->entry), timer->entry.key_len);
    due->key.hash = timer->entry.hash;
    due->value = timer_value(timer);
    return true;
}
