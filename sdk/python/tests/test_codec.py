import math
import random
import struct
import unittest
from dataclasses import dataclass, field
from typing import Any

from weir import Failure
from weir.state.codec import NO_CLASSES, Classes, decode, encode


@dataclass
class Point:
    x: int
    y: float = 0.0


@dataclass(frozen=True)
class Box:
    points: tuple[Point, ...] = ()
    labels: dict[str, int] = field(default_factory=dict)


CLASSES = Classes("shapes", [Point, Box])


def same(value: Any) -> Any:
    return decode(encode(value, CLASSES), CLASSES.makers(CLASSES.stored()))


def some_value(seeded: random.Random, depth: int) -> Any:
    kind = seeded.randrange(12 if depth else 7)
    if kind == 0:
        return None
    if kind == 1:
        return seeded.random() < 0.5
    if kind in (2, 3):
        return seeded.choice([1, -1]) * seeded.getrandbits(seeded.randrange(1, 200))
    if kind == 4:
        return seeded.choice([0.0, -0.0, 1.5, math.inf, -math.inf, seeded.random() * 1e300])
    if kind == 5:
        return "".join(chr(seeded.choice([65, 0, 0xE9, 0x1F600])) for _ in range(seeded.choice([0, 3, 90])))
    if kind == 6:
        return seeded.randbytes(seeded.choice([0, 5, 255, 256, 1000]))
    count = seeded.randrange(4)
    if kind in (7, 8):
        return [some_value(seeded, depth - 1) for _ in range(count)]
    if kind == 9:
        return tuple(some_value(seeded, depth - 1) for _ in range(count))
    if kind == 10:
        return {seeded.randrange(100): some_value(seeded, depth - 1) for _ in range(count)}
    return Point(some_value(seeded, 0), some_value(seeded, depth - 1))


class CodecTest(unittest.TestCase):
    def test_values_come_back_equal_and_of_the_same_types(self) -> None:
        seeded = random.Random(7)
        for _ in range(3000):
            value = some_value(seeded, 4)
            again = same(value)
            self.assertEqual(repr(again), repr(value))
            self.assertEqual(encode(again, CLASSES), encode(value, CLASSES))

    def test_ints_at_the_edges_come_back(self) -> None:
        for bits in (7, 8, 15, 31, 32, 63, 64, 127, 128, 1000):
            for value in (2**bits, 2**bits - 1, -(2**bits), -(2**bits) - 1):
                self.assertEqual(same(value), value)

    def test_true_one_and_one_point_zero_stay_what_they_are(self) -> None:
        self.assertEqual([type(same(value)) for value in (True, 1, 1.0)], [bool, int, float])
        self.assertEqual(len({encode(value, NO_CLASSES) for value in (True, 1, 1.0)}), 3)

    def test_equal_values_of_different_objects_are_equal_bytes(self) -> None:
        text = "spam"
        shared = [text, text]
        apart = ["".join(["sp", "am"]), "".join(["s", "pam"])]
        self.assertEqual(encode(shared, NO_CLASSES), encode(apart, NO_CLASSES))
        nans = [math.nan, -math.nan, struct.unpack("<d", b"\x01\0\0\0\0\0\xf8\xff")[0]]
        self.assertEqual(len({encode(nan, NO_CLASSES) for nan in nans}), 1)

    def test_a_dict_keeps_its_order(self) -> None:
        self.assertEqual(list(same({"b": 1, "a": 2})), ["b", "a"])

    def test_what_cannot_be_kept_is_refused_with_a_remedy(self) -> None:
        loop: list[Any] = []
        loop.append(loop)

        @dataclass
        class Unknown:
            pass

        class Odd(int):
            pass

        for value, remedy in [
            ({1}, "keep a dict"),
            (frozenset(), "keep a dict"),
            (bytearray(b"x"), "keep bytes"),
            (Unknown(), r"classes=\[Unknown\]"),
            (object(), "keep None, bool"),
            (Odd(3), "keep None, bool"),
            (print, "keep None, bool"),
            (loop, "contain itself"),
            ("\ud800", "surrogate"),
        ]:
            with self.assertRaisesRegex((TypeError, ValueError), remedy):
                encode([value], CLASSES)

    def test_damaged_bytes_are_a_failure_and_nothing_else(self) -> None:
        seeded = random.Random(11)
        makers = CLASSES.makers(CLASSES.stored())
        for _ in range(3000):
            data = bytearray(encode(some_value(seeded, 3), CLASSES))
            for _ in range(seeded.randrange(1, 3)):
                data[seeded.randrange(len(data))] = seeded.randrange(256)
            data = data[: seeded.randrange(len(data) + 1)]
            try:
                decode(bytes(data), makers)
            except Failure as failure:
                self.assertIn("state cannot be read", failure.message)

    def test_each_cut_of_a_value_is_a_failure(self) -> None:
        data = encode([1, "text", {"k": (2.5, None)}, Point(1, 2.0), 2**70], CLASSES)
        makers = CLASSES.makers(CLASSES.stored())
        for end in range(len(data)):
            with self.assertRaises(Failure):
                decode(data[:end], makers)
        with self.assertRaisesRegex(Failure, "takes"):
            decode(data + b"N", makers)

    def test_a_long_list_that_is_not_there_takes_no_memory(self) -> None:
        with self.assertRaises(Failure):
            decode(b"l\xff\xff\xff\xff", [])

    def test_bytes_that_nest_for_ever_are_a_failure(self) -> None:
        with self.assertRaisesRegex(Failure, "nested more than 100 deep"):
            decode(b"l\x01\0\0\0" * 5000, [])


class ClassesTest(unittest.TestCase):
    def restored_as(self, kind: type, stored: Classes, value: Any) -> Any:
        now = Classes("shapes", [kind])
        return decode(encode(value, stored), now.makers(stored.stored()))

    def test_dataclasses_come_back_frozen_and_nested(self) -> None:
        box = Box((Point(1, 2.0), Point(-3)), {"a": 1})
        self.assertEqual(same(box), box)

    def test_a_field_that_was_added_with_a_default_is_filled(self) -> None:
        old = Classes("shapes", [Point])
        new: type = dataclass(type("Point", (), {"__annotations__": {"x": int, "y": float, "z": list}, "z": field(default_factory=list)}))
        point = self.restored_as(new, old, Point(1, 2.0))
        self.assertEqual((point.x, point.y, point.z), (1, 2.0, []))

    def test_fields_may_change_their_order(self) -> None:
        new: type = dataclass(type("Point", (), {"__annotations__": {"y": float, "x": int}}))
        point = self.restored_as(new, Classes("shapes", [Point]), Point(1, 2.0))
        self.assertEqual((point.x, point.y), (1, 2.0))

    def test_a_field_that_went_and_one_without_a_default_are_refused_by_name(self) -> None:
        old = Classes("shapes", [Point])
        gone: type = dataclass(type("Point", (), {"__annotations__": {"x": int}}))
        with self.assertRaisesRegex(Failure, "a Point with a field 'y'"):
            self.restored_as(gone, old, Point(1))
        added: type = dataclass(type("Point", (), {"__annotations__": {"x": int, "y": float, "z": int}}))
        with self.assertRaisesRegex(Failure, "a Point without 'z'"):
            self.restored_as(added, old, Point(1))

    def test_a_class_that_went_is_refused_by_name(self) -> None:
        with self.assertRaisesRegex(Failure, "holds a Point, which it does not declare"):
            self.restored_as(Box, Classes("shapes", [Point]), Point(1))

    def test_restoring_runs_no_code_of_the_class(self) -> None:
        @dataclass
        class Loud:
            x: int

            def __post_init__(self) -> None:
                ran.append(self.x)

        ran: list[int] = []
        classes = Classes("loud", [Loud])
        data = encode(Loud(1), classes)
        ran.clear()
        self.assertEqual(decode(data, classes.makers(classes.stored())).x, 1)
        self.assertEqual(ran, [])


if __name__ == "__main__":
    unittest.main()
