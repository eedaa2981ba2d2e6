import unittest
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import weir
from weir import Failure, FailureKind, Level, Progress
from weir.testing import Harness, HostTrap, Row


class Base(weir.Operator):
    @classmethod
    def descriptor(cls) -> weir.Descriptor:
        return weir.Descriptor(
            "base", "1.0.0", inputs=[weir.Port("in")], outputs=[weir.Port("out"), weir.Port("keyed", keyed=True)]
        )

    def process(self, port: int, batch: weir.Batch, out: weir.Output) -> Any:
        out.forward(0, batch)


ROWS = [Row("k", "v", 1), Row(None, None, None, [("h", "x")])]


class CallTest(unittest.TestCase):
    def test_what_is_handed_on_comes_out_as_it_came(self) -> None:
        harness = Harness(Base)
        harness.process(0, ROWS)
        self.assertEqual(harness.take(0), ROWS)

    def test_a_failed_call_emits_and_rejects_nothing(self) -> None:
        class Fails(Base):
            def process(self, port: int, batch: weir.Batch, out: weir.Output) -> None:
                out.forward(0, batch)
                out.reject(0, "no")
                raise Failure.retry("later")

        harness = Harness(Fails)
        with self.assertRaises(Failure) as caught:
            harness.process(0, ROWS)
        self.assertIs(caught.exception.kind, FailureKind.RETRY)
        self.assertEqual((harness.take(0), harness.take_rejected()), ([], []))

    def test_generators_are_interrupted_when_they_have_emitted_much(self) -> None:
        class Long(Base):
            def process(self, port: int, batch: weir.Batch, out: weir.Output) -> Iterator[None]:
                for number in range(10):
                    out.emit(0, batch.with_values([bytes(600_000)]))
                    calls.append(number)
                    yield

        calls: list[int] = []
        harness = Harness(Long)
        begun: list[int] = []
        resume = harness._driver.resume

        def counted() -> Progress:
            begun.append(len(calls))
            return resume()

        harness._driver.resume = counted  # type: ignore[method-assign]
        harness.process(0, [Row("k", "v")])
        self.assertEqual(len(harness.take(0)), 10)
        self.assertEqual(begun, [2, 4, 6, 8, 10])

    def test_an_operator_may_say_more_itself(self) -> None:
        class Halves(Base):
            def process(self, port: int, batch: weir.Batch, out: weir.Output) -> Progress:
                self.left = [1, 2]
                return Progress.MORE

            def resume(self, out: weir.Output) -> Progress:
                batch = weir.BatchBuilder()
                batch.push(self.left.pop(0), None, b"")
                out.emit(0, batch)
                return Progress.MORE if self.left else Progress.DONE

        harness = Harness(Halves)
        harness.process(0, ROWS)
        self.assertEqual([row.time for row in harness.take(0)], [1, 2])

    def test_an_answer_that_is_none_is_refused(self) -> None:
        class Odd(Base):
            def process(self, port: int, batch: weir.Batch, out: weir.Output) -> Any:
                return 3

        with self.assertRaisesRegex(TypeError, "not with 3"):
            Harness(Odd).process(0, ROWS)

    def test_what_the_host_refuses_traps(self) -> None:
        class Bad(Base):
            what = "port"

            def process(self, port: int, batch: weir.Batch, out: weir.Output) -> None:
                if self.what == "port":
                    out.emit(2, batch)
                elif self.what == "key":
                    out.emit(1, batch)
                elif self.what == "reject":
                    out.reject(2, "no such record")
                elif self.what == "time":
                    out.emit(0, batch.with_timestamps([2**63, 0]))
                elif self.what == "metric":
                    weir.metrics.count("Bad-Name")

        for what, message in [
            ("port", "no output port 2"),
            ("key", "a record has no key"),
            ("reject", "no record 2"),
            ("time", "is no event time"),
            ("metric", "no name of a metric"),
        ]:
            harness = Harness(Bad)
            harness.operator.what = what
            with self.assertRaisesRegex(HostTrap, message):
                harness.process(0, ROWS)

    def test_emitting_when_opened_traps(self) -> None:
        class Early(Base):
            def __init__(self, config: Any, task: weir.TaskInfo) -> None:
                weir.Output().emit(0, Row.batch(ROWS))

        with self.assertRaisesRegex(HostTrap, "not allowed in this call"):
            Harness(Early)

    def test_logs_metrics_and_processing_time(self) -> None:
        class Wakes(Base):
            def process(self, port: int, batch: weir.Batch, out: weir.Output) -> None:
                weir.log.info(f"got {len(batch)}")
                weir.metrics.count("batches")
                weir.metrics.gauge("rows", len(batch))
                weir.time.wake_at(weir.time.now() + 100)
                weir.time.wake_at(weir.time.now() + 500)

            def wake(self, out: weir.Output) -> None:
                batch = weir.BatchBuilder()
                batch.push(weir.time.now(), None, b"woken")
                out.emit(0, batch)

        harness = Harness(Wakes)
        harness.set_time(1000)
        harness.process(0, ROWS)
        harness.process(0, ROWS)
        self.assertEqual(harness.take_log(), [(Level.INFO, "got 2")] * 2)
        self.assertEqual((harness.metric("batches"), harness.metric("rows"), harness.metric("none")), (2, 2, None))
        self.assertEqual(harness.wake_time, 1100)
        harness.set_time(1099)
        self.assertEqual(harness.take(0), [])
        harness.set_time(1200)
        self.assertEqual(harness.take(0), [Row(None, "woken", 1200)])
        self.assertIsNone(harness.wake_time)

    def test_without_a_host_calls_say_so(self) -> None:
        with self.assertRaisesRegex(RuntimeError, "'now' needs a host and there is none"):
            weir.time.now()


@dataclass
class Inner:
    names: list[str] = field(default_factory=list)


@dataclass
class Config:
    size: int
    least: float = 0.5
    on: bool = True
    inner: Inner = field(default_factory=Inner)
    by: dict[str, int] = field(default_factory=dict)
    note: str | None = None


class ConfigTest(unittest.TestCase):
    def test_a_configuration_becomes_a_dataclass(self) -> None:
        given = {"size": 3, "least": 1, "inner": {"names": ["a"]}, "by": {"x": 1}, "note": None}
        self.assertEqual(weir.json.config(Config, given), Config(3, 1.0, True, Inner(["a"]), {"x": 1}))

    def test_what_is_wrong_is_named_with_its_place(self) -> None:
        wrong: list[tuple[dict[str, Any], str]] = [
            ({}, "it has no 'size'"),
            ({"size": 3, "sise": 4}, "it has 'sise', which is not known: take one of by, inner"),
            ({"size": "3"}, 'size must be a whole number, not "3"'),
            ({"size": True}, "size must be a whole number, not true"),
            ({"size": 3.5}, "size must be a whole number, not 3.5"),
            ({"size": 3, "inner": {"names": ["a", 2]}}, r"inner.names\[1\] must be a string, not 2"),
            ({"size": 3, "inner": []}, r"inner must be an object, not \[\]"),
            ({"size": 3, "by": {"x": None}}, "by.x must be a whole number, not null"),
            ({"size": 3, "note": 1}, "note must be a string, not 1"),
        ]
        for given, message in wrong:
            with self.assertRaisesRegex(Failure, message) as caught:
                weir.json.config(Config, given)
            self.assertIs(caught.exception.kind, FailureKind.INVALID)


class DescriptorTest(unittest.TestCase):
    def test_what_the_host_refuses_is_refused_with_a_remedy(self) -> None:
        port = weir.Port("in")
        wrong: list[tuple[dict[str, Any], str]] = [
            ({"name": "Big"}, "'Big' is no name for the plugin"),
            ({"name": "x" * 64}, "1 to 63"),
            ({"version": "1.0"}, "write it as 1.2.3"),
            ({"inputs": []}, "0 inputs"),
            ({"inputs": [port, port]}, "two inputs called 'in'"),
            ({"outputs": [weir.Port("-")]}, "'-' is no name for an output"),
            ({"summary": "x" * 1025}, "1025 bytes"),
            ({"state_version": 1}, "no state"),
            ({"state": weir.StateKind.KEYED, "state_version": 1, "oldest_state_version": 2}, "above its state version"),
            ({"config_schema": "[]"}, "no JSON object"),
            ({"config_schema": "{"}, "not JSON"),
            ({"attributes": {"": "x"}}, "without a name"),
        ]
        for change, message in wrong:
            given: dict[str, Any] = {"name": "x", "version": "1.0.0", "inputs": [port], **change}
            with self.assertRaisesRegex(ValueError, message):
                weir.Descriptor(**given).check()
        weir.Descriptor("x", "1.0.0-rc.1+build.5", inputs=[port], config_schema={"type": "object"}).check()


if __name__ == "__main__":
    unittest.main()
