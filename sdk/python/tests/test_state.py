import random
import unittest
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import weir
from weir import Failure, Key, Progress, SnapshotMode, SnapshotWriter, SnapshotReader, TaskInfo
from weir.state import EventTimers, KeyedState, Part, Segments, SharedValue, SubtaskValue
from weir.state.chunk import CHUNK_BYTES
from weir.testing import Checkpoint, Harness, Row, subtask, task


@dataclass
class Entry:
    count: int = 0
    seen: list[int] | None = None


class Keeper(weir.Stateful):
    """Does with its state what a batch says: the value of a record is a word of Python-like text."""

    @classmethod
    def descriptor(cls) -> weir.Descriptor:
        return weir.Descriptor(
            name="keeper",
            version="1.0.0",
            inputs=[weir.Port("in", keyed=True)],
            outputs=[weir.Port("out", keyed=True)],
            state=weir.StateKind.KEYED,
            state_version=1,
        )

    def __init__(self, config: Any, task: TaskInfo) -> None:
        self.entries = KeyedState("entries", task, Entry)
        self.blobs: KeyedState[bytes] = KeyedState("blobs", task)
        self.timers = EventTimers("timers", task)
        self.rules: SharedValue[dict[str, int]] = SharedValue("rules", {})

    def state(self) -> Iterable[Part]:
        return [self.entries, self.blobs, self.timers, self.rules]

    def process(self, port: int, batch: weir.Batch, out: weir.Output) -> None:
        for record in batch:
            word, _, rest = (record.value or b"").partition(b" ")
            if word == b"count":
                entry = self.entries.value(record)
                entry.count += 1
                entry.seen = [*(entry.seen or []), record.time or 0]
            elif word == b"forget":
                self.entries.discard(record)
                self.blobs.discard(record)
            elif word == b"blob":
                self.blobs[record] = rest
            elif word == b"timer":
                self.timers.add(record, int(rest))
            elif word == b"untimer":
                self.timers.remove(record, int(rest))
            elif word == b"rule":
                self.rules.value = {**self.rules.value, rest.decode(): len(rest)}
            elif word == b"sneak":
                found = self.entries.get(record)
                assert found is not None
                found.count += 1

    def advance(self, watermark: int, out: weir.Output) -> None:
        batch = weir.BatchBuilder()
        for timer in self.timers.due(watermark):
            batch.push(timer.time, timer.key, b"due")
        out.emit(0, batch)


def some_rows(seeded: random.Random, count: int = 20, keys: int = 60) -> list[Row]:
    rows = []
    for _ in range(count):
        word = seeded.choice(["count", "count", "forget", "blob", "timer", "untimer", "rule"])
        rest = {"blob": "x" * seeded.randrange(300), "rule": f"r{seeded.randrange(4)}"}.get(word, str(seeded.randrange(1000)))
        rows.append(Row(f"key {seeded.randrange(keys)}", f"{word} {rest}", seeded.randrange(10_000)))
    return rows


def all_of(harness: Harness[Keeper]) -> tuple[Any, ...]:
    keeper = harness.operator
    return (list(keeper.entries.items()), list(keeper.blobs.items()), list(keeper.timers), keeper.rules.value)


class SnapshotTest(unittest.TestCase):
    def test_a_restored_operator_is_like_the_one_that_ran_on_to_the_byte(self) -> None:
        for seed in range(20):
            seeded = random.Random(seed)
            harness = Harness(Keeper)
            for step in range(30):
                harness.process(0, some_rows(seeded))
                harness.advance(step * 20)
                if seeded.random() < 0.4:
                    checkpoint = harness.snapshot()
                    restored = Harness.restore(Keeper, checkpoint)
                    self.assertEqual(all_of(restored), all_of(harness))
                    self.assertEqual(
                        restored.snapshot(SnapshotMode.FULL).contents(), harness.snapshot(SnapshotMode.FULL).contents()
                    )
                    if seeded.random() < 0.5:
                        restored.take(0), harness.take(0)
                        harness = restored

    def test_content_alone_decides_the_bytes(self) -> None:
        straight, winding = Harness(Keeper), Harness(Keeper)
        straight.process(0, [Row("a", "blob 1"), Row("b", "blob 2"), Row("a", "timer 5"), Row("b", "timer 5")])
        winding.process(0, [Row("c", "blob 9"), Row("b", "timer 5"), Row("b", "blob 7"), Row("c", "timer 1")])
        winding.snapshot()
        winding.process(0, [Row("c", "forget"), Row("c", "untimer 1"), Row("b", "blob 2"), Row("a", "blob 1"), Row("a", "timer 5")])
        self.assertEqual(straight.snapshot().contents(), winding.snapshot().contents())

    def test_content_alone_decides_the_bytes_of_a_group_with_many_keys(self) -> None:
        one_group = TaskInfo("test", "operator", 0, 1, 1, 0, 1, 7)
        rows = [Row(f"key {i}", word) for i in range(50) for word in ("count", f"blob {i}", f"timer {i}")]
        contents = []
        for seed in range(3):
            random.Random(seed).shuffle(rows)
            harness = Harness(Keeper, task=one_group)
            harness.process(0, rows)
            contents.append(harness.snapshot().contents())
        self.assertEqual(contents[0], contents[1])
        self.assertEqual(contents[0], contents[2])

    def test_steps_write_the_cut_whatever_happens_in_between(self) -> None:
        for seed in range(40):
            seeded = random.Random(seed)
            harness = Harness(Keeper)
            harness.process(0, some_rows(seeded, 200))
            if seed % 2:
                harness.snapshot()
                harness.process(0, some_rows(seeded, 30))
            expected = all_of(Harness.restore(Keeper, _copy_of(harness)))
            harness.begin_snapshot()
            steps = 1
            while harness.snapshot_step(1) is Progress.MORE:
                steps += 1
                harness.process(0, some_rows(seeded, 10))
                harness.advance(steps * 10)
            self.assertGreater(steps, 5)
            self.assertEqual(all_of(Harness.restore(Keeper, harness.checkpoint)), expected)
            # And what happened in between is in the next.
            self.assertEqual(all_of(Harness.restore(Keeper, harness.snapshot())), all_of(harness))

    def test_only_key_groups_that_changed_are_written(self) -> None:
        harness = Harness(Keeper)
        harness.process(0, [Row(f"key {i}", "blob " + "x" * 500) for i in range(500)])
        whole = len(harness.snapshot())
        harness.process(0, [Row("key 1", "count"), Row("key 1", "rule r")])
        written = harness.snapshot().written
        self.assertGreater(written, 0)
        self.assertLess(written, whole / 20)
        self.assertEqual(harness.snapshot().written, 0)

    def test_an_abandoned_snapshot_is_followed_by_a_full_one(self) -> None:
        harness = Harness(Keeper)
        harness.process(0, some_rows(random.Random(3), 300))
        harness.snapshot()
        harness.process(0, [Row(f"key {i}", "forget") for i in range(50)])
        harness.begin_snapshot()
        self.assertIs(harness.snapshot_step(1), Progress.MORE)
        harness.process(0, [Row("key 1", "count", 3)])
        self.assertEqual(all_of(Harness.restore(Keeper, harness.snapshot())), all_of(harness))

    def test_a_group_that_became_empty_is_cleared(self) -> None:
        harness = Harness(Keeper)
        harness.process(0, [Row("a", "count", 1)])
        self.assertGreater(len(harness.snapshot()), 0)
        harness.process(0, [Row("a", "forget")])
        restored = Harness.restore(Keeper, harness.snapshot())
        self.assertEqual(len(restored.operator.entries), 0)

    def test_state_follows_its_keys_when_the_parallelism_changes(self) -> None:
        seeded = random.Random(5)
        rows = some_rows(seeded, 400, 200)
        whole = Harness(Keeper)
        whole.process(0, rows)
        checkpoint = whole.snapshot()
        three = [Harness.restore(Keeper, checkpoint, task=subtask(number, 3)) for number in range(3)]
        self.assertEqual(sum(len(part.operator.entries) for part in three), len(whole.operator.entries))
        for part in three:
            self.assertEqual(part.operator.rules.value, whole.operator.rules.value)
        two = [
            Harness.restore(Keeper, [part.snapshot() for part in three], task=subtask(number, 2)) for number in range(2)
        ]
        again = Harness.restore(Keeper, [part.snapshot() for part in two])
        self.assertEqual(all_of(again), all_of(whole))
        self.assertEqual(again.snapshot(SnapshotMode.FULL).contents(), checkpoint.contents())

    def test_large_values_and_many_of_them_stay_below_the_size_of_a_chunk(self) -> None:
        harness = Harness(Keeper)
        sizes = [0, 1, CHUNK_BYTES - 40, CHUNK_BYTES - 20, CHUNK_BYTES, CHUNK_BYTES + 1, 3 * CHUNK_BYTES, 1_500_000]
        harness.process(0, [Row("same", "count"), *(Row(f"k{i}", b"blob " + bytes(size)) for i, size in enumerate(sizes))])
        checkpoint = harness.snapshot()
        self.assertLessEqual(max(len(chunk.data) for chunk in checkpoint.chunks()), CHUNK_BYTES)
        self.assertEqual(all_of(Harness.restore(Keeper, checkpoint)), all_of(harness))

    def test_a_value_changed_behind_the_back_of_its_collection_is_found(self) -> None:
        harness = Harness(Keeper)
        harness.process(0, [Row("a", "count", 1)])
        harness.snapshot()
        harness.process(0, [Row("a", "sneak")])
        with self.assertRaisesRegex(AssertionError, "state 'entries' has changed under the key b'a'"):
            harness.snapshot()


def _copy_of(harness: Harness[Keeper]) -> Checkpoint:
    """What the state is now, without a snapshot being taken of it."""
    from weir.state.chunk import ChunkBuilder
    from weir.types import Chunk, SegmentKind

    checkpoint = Checkpoint()
    written = []
    for part in harness.operator.segments.parts:
        for scope, key, value in sorted(part.peek()):
            builder = ChunkBuilder()
            builder.section(part.raw_name, part.classes.stored())
            for data in [*builder.add(key, value), *builder.finish()]:
                written.append(Chunk(scope, SegmentKind.BASE, 0, data))
    checkpoint.apply(SnapshotMode.FULL, written, 1)
    return checkpoint


class DamageTest(unittest.TestCase):
    def checkpoint(self) -> Checkpoint:
        harness = Harness(Keeper)
        harness.process(0, some_rows(random.Random(1), 100))
        return harness.snapshot()

    def test_damaged_and_cut_chunks_are_failures_of_kind_invalid(self) -> None:
        checkpoint = self.checkpoint()
        data = checkpoint.chunks()[0].data
        seeded = random.Random(2)
        for _ in range(200):
            damaged = bytearray(data)
            damaged[seeded.randrange(len(data))] ^= 1 << seeded.randrange(8)
            with self.assertRaisesRegex(Failure, "state cannot be read") as caught:
                Harness.restore(Keeper, checkpoint.damaged({0: bytes(damaged)}))
            self.assertIs(caught.exception.kind, weir.FailureKind.INVALID)
        for end in range(1, len(data)):
            with self.assertRaisesRegex(Failure, "state cannot be read"):
                Harness.restore(Keeper, checkpoint.damaged({0: data[:end]}))

    def test_a_collection_that_went_is_named(self) -> None:
        class Fewer(Keeper):
            def state(self) -> Iterable[Part]:
                return [self.entries]

        with self.assertRaisesRegex(Failure, "holds a collection '(blobs|timers|rules)'"):
            Harness.restore(Fewer, self.checkpoint())

    def test_state_of_an_operator_without_state_is_refused(self) -> None:
        class Stateless(weir.Operator):
            @classmethod
            def descriptor(cls) -> weir.Descriptor:
                return weir.Descriptor("stateless", "1.0.0", inputs=[weir.Port("in")], oldest_state_version=0)

            def process(self, port: int, batch: weir.Batch, out: weir.Output) -> None: ...

        checkpoint = self.checkpoint()
        checkpoint.state_version = 0
        with self.assertRaisesRegex(Failure, "keeps none"):
            Harness.restore(Stateless, checkpoint)


class MigrationTest(unittest.TestCase):
    def test_older_state_is_brought_up_to_date_and_written_whole(self) -> None:
        class Newer(Keeper):
            @classmethod
            def descriptor(cls) -> weir.Descriptor:
                return weir.Descriptor(
                    name="keeper",
                    version="2.0.0",
                    inputs=[weir.Port("in", keyed=True)],
                    outputs=[weir.Port("out", keyed=True)],
                    state=weir.StateKind.KEYED,
                    state_version=2,
                    oldest_state_version=1,
                )

            def migrate(self, state_version: int) -> None:
                assert state_version == 1
                for key in list(self.entries.keys()):
                    self.entries.value(key).count += 100

        old = Harness(Keeper)
        old.process(0, [Row("a", "count", 1), Row("b", "count", 1), Row("c", "blob x")])
        new = Harness.restore(Newer, old.snapshot())
        checkpoint = new.snapshot()
        self.assertEqual(checkpoint.state_version, 2)
        self.assertEqual(checkpoint.written, len(checkpoint), "an older state version was left in place")
        again = Harness.restore(Newer, checkpoint)
        self.assertEqual([entry.count for _, entry in again.operator.entries.items()], [101, 101])
        self.assertEqual(len(again.operator.blobs), 1)


class CollectionTest(unittest.TestCase):
    def test_timers_fire_by_time_then_by_key_whatever_order_they_came_in(self) -> None:
        rows = [Row(key, f"timer {time}") for time in (30, 10, 20) for key in ("b", "ab", "a", "c")]
        random.Random(4).shuffle(rows)
        harness = Harness(Keeper)
        harness.process(0, rows + rows[:3])
        harness = Harness.restore(Keeper, harness.snapshot())
        harness.process(0, [Row("a", "untimer 20")])
        harness.advance(20)
        fired = [(row.time, row.key) for row in harness.take(0)]
        self.assertEqual(fired, [(10, b"a"), (10, b"ab"), (10, b"b"), (10, b"c"), (20, b"ab"), (20, b"b"), (20, b"c")])
        harness.advance(weir.END_OF_TIME)
        self.assertEqual(len(harness.take(0)), 4)

    def test_timers_at_the_ends_of_time_and_before_1970(self) -> None:
        timers = EventTimers("timers", task())
        key = Key.of(b"k", 128)
        for time in (weir.END_OF_TIME, 0, -1, weir.NO_TIME, 1):
            self.assertTrue(timers.add(key, time))
        self.assertFalse(timers.add(key, -1))
        self.assertEqual(timers.next_time(), weir.NO_TIME)
        self.assertEqual([timer.time for timer in timers.due(weir.END_OF_TIME)], [weir.NO_TIME, -1, 0, 1, weir.END_OF_TIME])
        self.assertIsNone(timers.next_time())
        with self.assertRaisesRegex(ValueError, "no time for a timer"):
            timers.add(key, 2**63)

    def test_timers_set_while_others_fire_come_in_their_turn(self) -> None:
        timers = EventTimers("timers", task())
        key = Key.of(b"k", 128)
        timers.add(key, 1)
        timers.add(key, 5)
        fired = []
        for timer in timers.due(4):
            fired.append(timer.time)
            if timer.time < 6:
                timers.add(timer, timer.time + 2)
        self.assertEqual(fired, [1, 3])
        self.assertEqual([timer.time for timer in timers], [5])

    def test_keyed_state_is_a_map(self) -> None:
        state: KeyedState[int] = KeyedState("state", task())
        a, b = Key.of(b"a", 128), Key.of(b"b", 128)
        state[a] = 1
        self.assertTrue(a in state)
        self.assertFalse(b in state)
        self.assertEqual((state[a], state.get(b), state.get(b, 7), len(state)), (1, None, 7, 1))
        self.assertEqual((state.pop(a), state.pop(a), len(state)), (1, None, 0))
        with self.assertRaises(KeyError):
            del state[a]
        with self.assertRaisesRegex(TypeError, "has no default for a new key"):
            state.value(a)

    def test_iteration_does_not_depend_on_history(self) -> None:
        keys = [Key.of(str(i).encode(), 128) for i in range(200)]
        one: KeyedState[int] = KeyedState("s", task())
        other: KeyedState[int] = KeyedState("s", task())
        for key in keys:
            one[key] = 1
        for key in reversed(keys):
            other[key] = 1
        self.assertEqual(list(one.keys()), list(other.keys()))

    def test_keys_of_other_subtasks_and_of_inputs_without_keys_are_refused_with_a_remedy(self) -> None:
        state: KeyedState[int] = KeyedState("s", subtask(0, 3))
        key = next(key for i in range(100) if (key := Key.of(str(i).encode(), 128)).group > 100)
        asks: list[Callable[[Key], object]] = [state.get, state.value, state.discard, lambda key: state.__setitem__(key, 1)]
        for ask in asks:
            with self.assertRaisesRegex(ValueError, f"key group {key.group}, and this subtask has 0 to 42"):
                ask(key)
        with self.assertRaisesRegex(ValueError, "declare it so"):
            state.get(Key(b"k", -1))

    def test_two_collections_of_one_name_are_refused(self) -> None:
        with self.assertRaisesRegex(ValueError, "two collections are named 's'"):
            Segments([KeyedState("s", task()), EventTimers("s", task())])

    def test_a_subtask_value_stays_with_its_subtask(self) -> None:
        class Counter(weir.Stateful):
            @classmethod
            def descriptor(cls) -> weir.Descriptor:
                return weir.Descriptor(
                    "counter", "1.0.0", inputs=[weir.Port("in")], state=weir.StateKind.WHOLE, state_version=1
                )

            def __init__(self, config: Any, task: TaskInfo) -> None:
                self.seen = SubtaskValue("seen", 0)

            def state(self) -> Iterable[Part]:
                return [self.seen]

            def process(self, port: int, batch: weir.Batch, out: weir.Output) -> None:
                self.seen.value += len(batch)

        two = [Harness(Counter, task=subtask(number, 2)) for number in range(2)]
        for harness in two:
            harness.process(0, [Row(None, "x")] * (3 + harness.operator.seen.value))
        two[1].process(0, [Row(None, "x")])
        checkpoints = [harness.snapshot() for harness in two]
        again = [Harness.restore(Counter, checkpoints, task=subtask(number, 2)) for number in range(2)]
        self.assertEqual([harness.operator.seen.value for harness in again], [3, 4])
        with self.assertRaisesRegex(ValueError, "refuses another parallelism"):
            Harness.restore(Counter, checkpoints, task=subtask(0, 3))


if __name__ == "__main__":
    unittest.main()
