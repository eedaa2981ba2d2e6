"""What only a component does: with stand-ins for the modules that componentize-py generates, in a process of its own, since it replaces clocks, files
and standard streams."""

import json
import subprocess
import sys
import textwrap
import unittest
from pathlib import Path
from typing import Any

STAND_INS = """
import enum, json, sys, types
from dataclasses import dataclass

said = []

def module(name, **members):
    made = types.ModuleType(name)
    made.__dict__.update(members)
    sys.modules[name] = made
    return made

class Made:
    def __init__(self, *values, **named):
        self.values = values
        self.__dict__.update(named)

@dataclass(frozen=True)
class Err(Exception):
    value: object

levels = enum.Enum("Level", "TRACE DEBUG INFO WARN ERROR")
kinds = enum.Enum("FailureKind", "RETRY INVALID FATAL")
module("componentize_py_types", Err=Err)
module("wit_world")
module("wit_world.imports",
    log=types.SimpleNamespace(Level=levels, write=lambda level, message: said.append((level.name, message)), enabled=lambda level: True),
    metrics=types.SimpleNamespace(),
    output=types.SimpleNamespace(emit=lambda port, batch: said.append(("emit", port, batch.values[0]))),
    timers=types.SimpleNamespace(now=lambda: 1_500_000, wake_at=None),
    types=types.SimpleNamespace(
        Progress=enum.Enum("Progress", "DONE MORE"), FailureKind=kinds, StateKind=enum.Enum("StateKind", "STATELESS WHOLE KEYED"),
        Batch=Made, Failure=Made, Descriptor=Made, Port=Made, Attribute=Made),
)

import weir

real = sys.__stdout__
print("while built", file=sys.stdout)

@weir.export
class Probe(weir.Operator):
    @classmethod
    def descriptor(cls):
        return weir.Descriptor("probe", "1.0.0", inputs=[weir.Port("in")], outputs=[weir.Port("out")])

    def process(self, port, batch, out):
        BODY

task = types.SimpleNamespace(job="j", node="n", subtask=0, parallelism=1, key_groups=128, first_key_group=0, end_key_group=128, seed=1,
    attributes=[])
batch = types.SimpleNamespace(timestamps=[7], hashes=[], key_offsets=[], keys=b"", key_nulls=b"", value_offsets=[0, 1], values=b"v",
    value_nulls=b"", header_offsets=[], headers=b"")
processor = Processor()
processor.describe()
processor.open("{}", task)
try:
    answer = processor.process(0, batch).name
except Err as error:
    answer = [error.value.values[0].name, error.value.values[1]]
except BaseException as error:
    answer = type(error).__name__
real.write("\\n" + json.dumps([answer, said]))
real.flush()
"""


def run(body: str) -> tuple[Any, list[Any]]:
    code = STAND_INS.replace("BODY", textwrap.indent(textwrap.dedent(body).strip(), " " * 8).strip())
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=Path(__file__).parent.parent)
    if done.returncode or not done.stdout.startswith("while built\n"):
        raise AssertionError(done.stdout + done.stderr)
    answer, said = json.loads(done.stdout.splitlines()[-1])
    return answer, said


class ComponentTest(unittest.TestCase):
    def test_what_is_printed_is_logged_line_by_line(self) -> None:
        answer, said = run(
            """
            print("one", 1)
            print("two\\nthree", end="")
            sys.stderr.write("a warning\\n")
            print(" \\ud800", end="")
            """
        )
        self.assertEqual(answer, "DONE")
        self.assertEqual(said, [["INFO", "one 1"], ["INFO", "two"], ["WARN", "a warning"], ["INFO", "three \\ud800"]])

    def test_an_exception_is_logged_with_its_cause_before_it_traps(self) -> None:
        answer, said = run(
            """
            print("before", end="")
            try:
                {}["key"]
            except KeyError as error:
                raise ValueError("no such thing") from error
            """
        )
        self.assertEqual(answer, "ValueError")
        self.assertEqual(said[0], ["INFO", "before"])
        self.assertEqual([level for level, _ in said[1:]], ["ERROR", "ERROR"])
        self.assertRegex(said[1][1], "^first, KeyError: 'key' ")
        self.assertRegex(said[2][1], r"^ValueError: no such thing \(at <string>:\d+ in (Probe\.)?process, from \S*weir/_driver.py:\d+")

    def test_failures_reach_the_host_as_they_are(self) -> None:
        answer, said = run("raise weir.Failure.retry('later')")
        self.assertEqual((answer, said), (["RETRY", "later"], []))

    def test_batches_go_through(self) -> None:
        answer, said = run("out.forward(0, batch)")
        self.assertEqual((answer, said), ("DONE", [["emit", 0, [7]]]))

    def test_clocks_give_the_time_of_the_host(self) -> None:
        _, said = run("import time; print(time.time(), time.monotonic_ns(), weir.time.now())")
        self.assertEqual(said, [["INFO", "1.5 1500000000 1500000"]])

    def test_what_a_component_has_not_is_an_exception_with_a_remedy(self) -> None:
        for body, message in [
            ("open('x')", "a component has no files"),
            ("import os; os.stat('x')", "a component has no files"),
            ("import os; os.urandom(3)", "TaskInfo.seed"),
            ("import time; time.sleep(1)", "weir.time.wake_at"),
            ("import sqlite3", "import it at the top"),
        ]:
            answer, said = run(body)
            self.assertIn(answer, ("OSError", "ModuleNotFoundError"))
            self.assertEqual(said[-1][0], "ERROR")
            self.assertIn(message, said[-1][1])

    def test_warnings_look_for_no_source(self) -> None:
        answer, said = run("import warnings; warnings.warn('careful')")
        self.assertEqual(answer, "DONE")
        self.assertEqual(said[0][0], "WARN")
        self.assertIn("UserWarning: careful", said[0][1])


if __name__ == "__main__":
    unittest.main()
