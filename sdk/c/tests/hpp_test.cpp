// weir.hpp: an operator with every hook and every kind of value, through the harness.

#include "../weir.hpp"

#include "../weir_test.h"

namespace {

struct Point {
    std::int32_t x, y;
};

class All {
public:
    static constexpr weir::Port inputs[] = {{"in", "", true}};
    static constexpr weir::Port outputs[] = {{"out", "", true}};
    static constexpr weir::Descriptor descriptor = {.name = "all", .version = "0.1.0", .state = WEIR_KEYED, .state_version = 3};

    explicit All(const weir::Task &task)
        : names(task, "names"), points(task, "points"), ratios(task, "ratios"), timers(task, "timers"), rules(task, "rules", WEIR_SHARED)
    {
    }

    void configure(weir_config &config) { limit = weir_config_int(&config, "limit", 3, 1, 9); }

    weir::Status process(std::uint32_t, const weir::Batch &batch)
    {
        for (const auto record : batch) {
            const auto key = record.key();
            if (!key) continue;
            names[*key] += record.value().value_or("?");
            points[*key].push_back({static_cast<std::int32_t>(record.index), 7});
            ratios[*key] += 0.5;
            timers.set(record.time().value_or(0), *key);
            rules.change() = "rule";
        }
        weir_wake_at(100);
        return WEIR_DONE;
    }

    weir::Status advance(std::int64_t watermark)
    {
        while (const auto due = timers.due(watermark)) {
            const auto *name = names.find(due->key);
            out.push(due->time, weir::view(due->key.bytes), *name);
            out.header("points", std::to_string(points[due->key].size()));
            names.erase(due->key);
        }
        out.emit(0);
        return WEIR_DONE;
    }

    weir::Status wake() { return woken++, WEIR_DONE; }
    weir::Status finish(std::uint32_t port) { return port == 0 ? WEIR_DONE : weir_fail(WEIR_FATAL, "port %u", port); }
    weir::Status restored(std::uint32_t version) { return restored_from = version, WEIR_DONE; }

    weir::Map<std::string> names;
    weir::Map<std::vector<Point>> points;
    weir::Map<double> ratios;
    weir::Timers<> timers;
    weir::Value<std::string> rules;
    weir::Builder out;
    std::int64_t limit = 0;
    int woken = 0;
    std::uint32_t restored_from = 0;
};

} // namespace

WEIR_PLUGIN(All)

static All &op(weir_harness *harness) { return weir::detail::op<All>(weir_harness_self(harness)); }

WEIR_TEST(an_operator_of_cpp_has_every_hook)
{
    weir_harness *harness = weir_harness_open(&weir_plugin, "{\"limit\":5}");
    WEIR_CHECK(weir_harness_status(harness) == WEIR_DONE && op(harness).limit == 5);
    WEIR_CHECK(weir_harness_status(weir_harness_open(&weir_plugin, "{\"limit\":50}")) == WEIR_INVALID);
    const weir_row rows[] = {weir_row_of(1, "a", "x"), weir_row_of(2, "b", nullptr), weir_row_of(1, "a", "y")};
    WEIR_CHECK(weir_harness_process(harness, 0, rows, 3) == WEIR_DONE);
    weir_harness_set_time(harness, 100);
    WEIR_CHECK(op(harness).woken == 1 && weir_harness_finish(harness, 0) == WEIR_DONE);

    weir_harness *after = weir_harness_restore(&weir_plugin, "{}", weir_harness_snapshot(harness, false));
    WEIR_CHECK(op(after).restored_from == 3 && op(after).limit == 3 && *op(after).rules == "rule" && op(after).timers.earliest() == 1);
    const auto *points = op(after).points.find(weir_key_of(weir_text("a")));
    WEIR_CHECK(points && points->size() == 2 && (*points)[1].x == 2 && *op(after).ratios.find(weir_key_of(weir_text("a"))) == 1.0);
    weir_harness_advance(after, 1);
    WEIR_CHECK(weir_harness_rows(after, 0) == 1 && weir_bytes_equal(weir_harness_row(after, 0, 0)->value, weir_text("xy")));
    weir_bytes rest = weir_harness_row(after, 0, 0)->headers, name, value;
    WEIR_CHECK(weir_header_next(&rest, &name, &value) && weir::view(name) == "points" && weir::view(value) == "2");
    WEIR_CHECK(op(after).names.size() == 1 && op(after).timers.size() == 1);
    WEIR_CHECK(weir_checkpoint_equal(weir_harness_snapshot(harness, true), weir_harness_snapshot(weir_harness_restore(&weir_plugin, "{}", weir_harness_checkpoint(harness)), true)));
}
