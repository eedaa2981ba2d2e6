// Counts records by key in windows of a minute of event time: the same as ../tally, in C++.

#include "weir.hpp"

namespace {

constexpr std::int64_t window_size = 60'000'000;

// The end of the window that a time belongs to.
constexpr std::int64_t window_end(std::int64_t time)
{
    const std::int64_t into = time % window_size;
    return time - (into < 0 ? into + window_size : into) + window_size;
}

class Tally {
public:
    static constexpr weir::Port inputs[] = {{"in", "what is counted", true}};
    static constexpr weir::Port outputs[] = {{"out", "END COUNT TOTAL KEY, one for each window and key", true}};
    static constexpr weir::Descriptor descriptor = {
        .name = "tally-cpp",
        .version = "0.1.0",
        .summary = "Counts records by key in windows of a minute.",
        .state = WEIR_KEYED,
        .state_version = 1,
    };

    explicit Tally(const weir::Task &task) : windows_(task, "windows"), totals_(task, "totals") {}

    weir::Status process(std::uint32_t, const weir::Batch &batch)
    {
        for (const auto record : batch) {
            const auto key = record.key();
            const auto time = record.time();
            if (!key) weir_reject(record.index, "no key");
            else if (!time) weir_reject(record.index, "no time");
            else ++windows_.set(window_end(*time), *key);
        }
        return WEIR_DONE;
    }

    weir::Status advance(std::int64_t watermark)
    {
        watermark_ = watermark;
        return resume();
    }

    // Emits the windows that have ended, a part of them where there are many.
    weir::Status resume()
    {
        while (const auto due = windows_.due(watermark_)) {
            const auto total = totals_[due->key] += due->value;
            const auto key = weir::view(due->key.bytes);
            text_.clear().decimal(due->time).push(" ").decimal(static_cast<std::int64_t>(due->value));
            text_.push(" ").decimal(static_cast<std::int64_t>(total)).push(" ").push(key);
            out_.push(due->time, key, text_.view());
            if (out_.emit_large(0)) return WEIR_MORE;
        }
        out_.emit(0);
        return WEIR_DONE;
    }

private:
    weir::Timers<std::uint64_t> windows_; // by end and key: how many records so far
    weir::Map<std::uint64_t> totals_;     // by key: the records of all windows that were emitted
    std::int64_t watermark_ = 0;          // of the call that `resume` goes on with
    weir::Builder out_;
    weir::Buffer text_;
};

} // namespace

WEIR_PLUGIN(Tally)
