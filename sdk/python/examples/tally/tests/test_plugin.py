import unittest

from plugin import MINUTE, Tally

import weir
from weir.testing import Harness, Row, subtask


def values(harness: Harness[Tally]) -> list[str]:
    return [row.text for row in harness.take(0)]


class TallyTest(unittest.TestCase):
    def test_windows_are_emitted_by_their_end_then_by_key(self) -> None:
        tally = Harness(Tally)
        tally.process(0, [Row("b", "", 0), Row("a", "", MINUTE), Row("a", "", 1), Row("a", "", MINUTE - 1), Row("a", "", -1)])
        tally.advance(MINUTE - 1)
        self.assertEqual(values(tally), ["0 1 1 a"])
        tally.advance(weir.END_OF_TIME)
        self.assertEqual(values(tally), [f"{MINUTE} 2 3 a", f"{MINUTE} 1 1 b", f"{2 * MINUTE} 1 4 a"])

    def test_a_late_record_opens_its_window_anew(self) -> None:
        tally = Harness(Tally)
        for _ in range(2):
            tally.process(0, [Row("k", "", 5)])
            tally.advance(MINUTE)
        self.assertEqual(values(tally), [f"{MINUTE} 1 1 k", f"{MINUTE} 1 2 k"])

    def test_records_without_a_key_or_a_time_are_put_aside(self) -> None:
        tally = Harness(Tally)
        tally.process(0, [Row(None, "", 5), Row("k", "")])
        self.assertEqual([reason for _, reason in tally.take_rejected()], ["no key", "no time"])

    def test_it_goes_on_after_a_restore_on_more_subtasks(self) -> None:
        keys = [f"k{number}" for number in range(20)]
        before = Harness(Tally)
        before.process(0, [Row(key, "", 5) for key in keys])
        before.advance(MINUTE)
        before.process(0, [Row(key, "", MINUTE) for key in keys])
        checkpoint = before.snapshot()
        found = []
        for number in range(3):
            after = Harness.restore(Tally, checkpoint, task=subtask(number, 3))
            after.advance(weir.END_OF_TIME)
            found += values(after)
        self.assertEqual(sorted(found), sorted(f"{2 * MINUTE} 1 2 {key}" for key in keys))

    def test_many_windows_at_once_come_in_parts(self) -> None:
        tally = Harness(Tally)
        tally.process(0, [Row("k", "", MINUTE * number) for number in range(10_000)])
        tally.advance(weir.END_OF_TIME)
        self.assertEqual([row.time for row in tally.take(0)], [MINUTE * (number + 1) for number in range(10_000)])


if __name__ == "__main__":
    unittest.main()
