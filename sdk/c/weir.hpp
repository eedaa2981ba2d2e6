// weir.hpp: weir.h for C++20 and newer. No exceptions and no run-time type information are needed.
//
//     struct Tally {
//         weir::Timers<std::uint64_t> windows;
//         explicit Tally(const weir::Task &task) : windows(task, "windows") {}
//
//         static constexpr weir::Port inputs[] = {{"in", "what is counted", true}};
//         static constexpr weir::Port outputs[] = {{"out", "", true}};
//         static constexpr weir::Descriptor descriptor = {.name = "tally", .version = "0.1.0", .state = WEIR_KEYED, .state_version = 1};
//
//         weir::Status process(std::uint32_t port, const weir::Batch &batch);
//         weir::Status advance(std::int64_t watermark);
//     };
//     WEIR_PLUGIN(Tally)
//
// `configure`, `advance`, `wake`, `finish`, `resume` and `restored` are called where they are there. What weir.h says of ownership
// and of how long pointers are valid is true here as well; Buffer and Builder free their memory. A native test includes weir_test.h and gives it
// `weir_plugin`, as in C.

#ifndef WEIR_HPP
#define WEIR_HPP

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "weir.h"

namespace weir {

using Status = weir_status;
using Task = weir_task;
using Port = weir_port;
using Key = weir_key;

// Bytes as C++ likes them. None of a weir_bytes is an empty optional.
inline std::string_view view(weir_bytes bytes) { return {reinterpret_cast<const char *>(bytes.data), bytes.len}; }
inline weir_bytes bytes(std::string_view text) { return weir_bytes_of(text.data(), text.size()); }
inline weir_bytes bytes(std::optional<std::string_view> text) { return text ? bytes(*text) : weir_none(); }
inline std::optional<std::string_view> optional_view(weir_bytes bytes)
{
    return bytes.data ? std::optional(view(bytes)) : std::nullopt;
}

// Bytes that it owns.
class Buffer {
public:
    Buffer() = default;
    Buffer(const Buffer &) = delete;
    Buffer &operator=(const Buffer &) = delete;
    ~Buffer() { weir_buffer_free(&buffer_); }

    Buffer &clear() { return weir_buffer_clear(&buffer_), *this; }
    Buffer &push(std::string_view text) { return weir_buffer_push(&buffer_, text.data(), text.size()), *this; }
    Buffer &decimal(std::int64_t number) { return weir_buffer_decimal(&buffer_, number), *this; }
    std::string_view view() const { return weir::view(weir_buffer_view(&buffer_)); }
    weir_buffer *get() { return &buffer_; }

private:
    weir_buffer buffer_{};
};

// ---- Batches --------------------------------------------------------------------------------------------------------

// One record of a batch.
struct Record {
    const weir_batch *batch;
    std::size_t index;

    std::optional<std::int64_t> time() const
    {
        const auto time = weir_batch_time(batch, index);
        return time == WEIR_NO_TIME ? std::nullopt : std::optional(time);
    }
    std::optional<Key> key() const
    {
        Key key;
        return weir_batch_key(batch, index, &key) ? std::optional(key) : std::nullopt;
    }
    // None for a tombstone.
    std::optional<std::string_view> value() const { return optional_view(weir_batch_value(batch, index)); }
};

// Records, borrowed for the time of a call: `for (const auto record : batch)`.
class Batch {
public:
    explicit Batch(const weir_batch *batch) : batch_(batch) {}

    struct Iterator {
        const weir_batch *batch;
        std::size_t index;
        Record operator*() const { return {batch, index}; }
        Iterator &operator++() { return ++index, *this; }
        bool operator==(const Iterator &other) const { return index == other.index; }
    };
    Iterator begin() const { return {batch_, 0}; }
    Iterator end() const { return {batch_, batch_->len}; }
    std::size_t size() const { return batch_->len; }
    const weir_batch *get() const { return batch_; }

private:
    const weir_batch *batch_;
};

// Makes batches.
class Builder {
public:
    Builder() = default;
    Builder(const Builder &) = delete;
    Builder &operator=(const Builder &) = delete;
    ~Builder() { weir_builder_free(&builder_); }

    void push(std::optional<std::int64_t> time, std::optional<std::string_view> key, std::optional<std::string_view> value)
    {
        weir_builder_push(&builder_, time.value_or(WEIR_NO_TIME), bytes(key), bytes(value));
    }
    void push(const Record &record) { weir_builder_push_row(&builder_, record.batch, record.index); }
    void header(std::string_view name, std::string_view value) { weir_builder_header(&builder_, bytes(name), bytes(value)); }
    // Emits what it holds and clears it.
    void emit(std::uint32_t port) { weir_builder_emit(&builder_, port); }
    // The same if it holds 1 MiB or more; says whether it did. Return WEIR_MORE then.
    bool emit_large(std::uint32_t port) { return weir_builder_emit_large(&builder_, port); }
    weir_builder *get() { return &builder_; }

private:
    weir_builder builder_{};
};

// ---- State ----------------------------------------------------------------------------------------------------------

// How a value is written and read. Plain types (numbers, and structs without pointers and padding), std::string, and std::vector of plain types
// have one; for others specialise it.
template <class T> struct Codec;

template <class T>
concept Plain = std::is_trivially_copyable_v<T> && (std::has_unique_object_representations_v<T> || std::is_floating_point_v<T>) && alignof(T) <= 8;

template <> struct Codec<std::string> {
    static void encode(const std::string &value, weir_buffer *to) { weir_buffer_push(to, value.data(), value.size()); }
    static bool decode(std::string &value, weir_bytes from, std::uint32_t) { return value.assign(view(from)), true; }
};

template <Plain T> struct Codec<std::vector<T>> {
    static void encode(const std::vector<T> &value, weir_buffer *to) { weir_buffer_push(to, value.data(), value.size() * sizeof(T)); }
    static bool decode(std::vector<T> &value, weir_bytes from, std::uint32_t)
    {
        if (from.len % sizeof(T)) return false;
        value.resize(from.len / sizeof(T));
        if (from.len) std::memcpy(value.data(), from.data, from.len);
        return true;
    }
};

namespace detail {

template <class T>
concept Coded = requires(const T &value, T &to, weir_buffer *buffer, weir_bytes from) {
    Codec<T>::encode(value, buffer);
    { Codec<T>::decode(to, from, std::uint32_t{}) } -> std::same_as<bool>;
};

// What lies in a collection: the value itself if it is plain, else a pointer to it, made when it is first asked for.
template <class T> struct Cell {
    static_assert(Coded<T>, "specialise weir::Codec for this type");
    T *value;

    static T &of(void *cell)
    {
        T *&value = static_cast<Cell *>(cell)->value;
        if (!value) value = new T();
        return *value;
    }
    static const T &of(const void *cell) { return of(const_cast<void *>(cell)); }
    static void encode(const void *cell, weir_buffer *to) { Codec<T>::encode(of(cell), to); }
    static bool decode(void *cell, weir_bytes from, std::uint32_t version) { return Codec<T>::decode(of(cell), from, version); }
    static void drop(void *cell) { delete static_cast<Cell *>(cell)->value; }
    static constexpr weir_codec codec = {sizeof(Cell), encode, decode, drop};
};

template <Plain T> struct Cell<T> {
    static T &of(void *cell) { return *static_cast<T *>(cell); }
    static const T &of(const void *cell) { return *static_cast<const T *>(cell); }
    static constexpr weir_codec codec = {sizeof(T), nullptr, nullptr, nullptr};
};

} // namespace detail

// A value for each key. Values begin as T().
template <class T> class Map {
    using Cell = detail::Cell<T>;

public:
    Map(const Task &task, const char *name) { weir_map_init(&map_, &task, name, &Cell::codec); }
    Map(const Map &) = delete;
    Map &operator=(const Map &) = delete;

    const T *find(Key key) const
    {
        const void *cell = weir_map_get(&map_, key);
        return cell ? &Cell::of(cell) : nullptr;
    }
    // The value, to be changed; it is added where there is none.
    T &operator[](Key key) { return Cell::of(weir_map_value(&map_, key)); }
    bool erase(Key key) { return weir_map_remove(&map_, key); }
    std::size_t size() const { return weir_map_len(&map_); }
    weir_map *get() { return &map_; }

private:
    weir_map map_{};
};

// A timer that is due.
template <class T> struct Due {
    std::int64_t time;
    Key key;
    T &value;
};

template <> struct Due<void> {
    std::int64_t time;
    Key key;
};

// Times in event time, each with a key and a value (none if T is void).
template <class T = void> class Timers {
public:
    Timers(const Task &task, const char *name)
    {
        if constexpr (std::is_void_v<T>) weir_timers_init(&timers_, &task, name, nullptr);
        else weir_timers_init(&timers_, &task, name, &detail::Cell<T>::codec);
    }
    Timers(const Timers &) = delete;
    Timers &operator=(const Timers &) = delete;

    // Sets a timer if it is not set; its value, to be changed.
    std::add_lvalue_reference_t<T> set(std::int64_t time, Key key)
    {
        void *cell = weir_timers_set(&timers_, time, key);
        if constexpr (!std::is_void_v<T>) return detail::Cell<T>::of(cell);
    }
    bool is_set(std::int64_t time, Key key) const { return weir_timers_get(&timers_, time, key) != nullptr; }
    bool cancel(std::int64_t time, Key key) { return weir_timers_cancel(&timers_, time, key); }
    std::optional<std::int64_t> earliest() const
    {
        std::int64_t time;
        return weir_timers_earliest(&timers_, &time) ? std::optional(time) : std::nullopt;
    }
    // Takes the earliest that is due at a watermark. Valid until the next call.
    std::optional<Due<T>> due(std::int64_t watermark)
    {
        weir_due due;
        if (!weir_timers_due(&timers_, watermark, &due)) return std::nullopt;
        if constexpr (std::is_void_v<T>) return Due<T>{due.time, due.key};
        else return Due<T>{due.time, due.key, detail::Cell<T>::of(due.value)};
    }
    std::size_t size() const { return weir_timers_len(&timers_); }
    weir_timers *get() { return &timers_; }

private:
    weir_timers timers_{};
};

// One value of the operator as a whole.
template <class T> class Value {
public:
    Value(const Task &task, const char *name, weir_scope scope) { weir_value_init(&value_, &task, name, scope, &detail::Cell<T>::codec); }
    Value(const Value &) = delete;
    Value &operator=(const Value &) = delete;

    const T &operator*() const { return detail::Cell<T>::of(weir_value_get(&value_)); }
    // To be changed.
    T &change() { return detail::Cell<T>::of(weir_value_change(&value_)); }

private:
    weir_value value_{};
};

// ---- The operator ---------------------------------------------------------------------------------------------------

// What a plugin says about itself; the ports are `inputs` and `outputs` of the operator.
struct Descriptor {
    const char *name;
    const char *version;
    const char *summary = nullptr;
    weir_state_kind state = WEIR_STATELESS;
    std::uint32_t state_version = 0;
    std::uint32_t oldest_state_version = 0;
    const char *config_schema = nullptr;
};

namespace detail {

// The operator is made by `open`; until then `self` is all zeros.
template <class T> struct Holder {
    T *op;
};

template <class T> T &op(void *self) { return *static_cast<Holder<T> *>(self)->op; }

template <class T> Status open(void *self, weir_bytes json, const Task *task)
{
    weir_config config;
    static_cast<Holder<T> *>(self)->op = new T(*task);
    weir_config_begin(&config, json);
    if constexpr (requires(T &t) { t.configure(config); }) op<T>(self).configure(config);
    return weir_config_end(&config);
}

template <class T> constexpr weir_operator plugin_of()
{
    weir_operator plugin = {};
    plugin.name = T::descriptor.name;
    plugin.version = T::descriptor.version;
    plugin.summary = T::descriptor.summary;
    plugin.inputs = std::data(T::inputs);
    plugin.input_count = std::size(T::inputs);
    if constexpr (requires { T::outputs; }) {
        plugin.outputs = std::data(T::outputs);
        plugin.output_count = std::size(T::outputs);
    }
    plugin.state = T::descriptor.state;
    plugin.state_version = T::descriptor.state_version;
    plugin.oldest_state_version = T::descriptor.oldest_state_version;
    plugin.config_schema = T::descriptor.config_schema;
    plugin.self_size = sizeof(Holder<T>);
    plugin.open = open<T>;
    plugin.process = [](void *self, std::uint32_t port, const weir_batch *batch) -> Status { return op<T>(self).process(port, Batch(batch)); };
    if constexpr (requires(T &t) { t.advance(std::int64_t{}); })
        plugin.advance = [](void *self, std::int64_t watermark) -> Status { return op<T>(self).advance(watermark); };
    if constexpr (requires(T &t) { t.wake(); })
        plugin.wake = [](void *self) -> Status { return op<T>(self).wake(); };
    if constexpr (requires(T &t) { t.finish(std::uint32_t{}); })
        plugin.finish = [](void *self, std::uint32_t port) -> Status { return op<T>(self).finish(port); };
    if constexpr (requires(T &t) { t.resume(); })
        plugin.resume = [](void *self) -> Status { return op<T>(self).resume(); };
    if constexpr (requires(T &t) { t.restored(std::uint32_t{}); })
        plugin.restored = [](void *self, std::uint32_t version) -> Status { return op<T>(self).restored(version); };
    return plugin;
}

} // namespace detail

} // namespace weir

// Makes an operator the plugin. Once, in a source file.
#define WEIR_PLUGIN(Type) \
    extern "C" constexpr weir_operator weir_plugin = ::weir::detail::plugin_of<Type>();

#endif
