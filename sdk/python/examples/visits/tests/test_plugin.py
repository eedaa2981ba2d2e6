import unittest

from plugin import GAP, Visits

import weir
from weir.testing import Harness, Row


def values(harness: Harness[Visits]) -> list[str]:
    return [row.text for row in harness.take(0)]


class VisitsTest(unittest.TestCase):
    def test_a_session_ends_when_the_gap_has_passed(self) -> None:
        visits = Harness(Visits)
        visits.process(0, [Row("k", "", 5), Row("k", "", 5 + GAP), Row("j", "", 5 + GAP)])
        visits.advance(4 + 2 * GAP)
        self.assertEqual(values(visits), [])
        visits.advance(5 + 2 * GAP)
        self.assertEqual(values(visits), [f"{5 + GAP} {5 + GAP} 1 j", f"5 {5 + GAP} 2 k"])

    def test_a_record_may_join_two_sessions(self) -> None:
        visits = Harness(Visits)
        visits.process(0, [Row("k", "", 0), Row("k", "", 2 * GAP), Row("k", "", 5 * GAP), Row("k", "", GAP)])
        visits.advance(weir.END_OF_TIME)
        self.assertEqual(values(visits), [f"0 {2 * GAP} 3 k", f"{5 * GAP} {5 * GAP} 1 k"])

    def test_one_microsecond_more_than_the_gap_is_apart(self) -> None:
        visits = Harness(Visits)
        visits.process(0, [Row("k", "", 0), Row("k", "", GAP + 1), Row("k", "", 0)])
        visits.advance(weir.END_OF_TIME)
        self.assertEqual(values(visits), ["0 0 2 k", f"{GAP + 1} {GAP + 1} 1 k"])

    def test_open_sessions_survive_a_restore_and_closed_ones_leave_nothing(self) -> None:
        before = Harness(Visits)
        before.process(0, [Row("k", "", 7), Row("j", "", 9)])
        after = Harness.restore(Visits, before.snapshot())
        after.process(0, [Row("k", "", 8)])
        after.advance(weir.END_OF_TIME)
        self.assertEqual(values(after), ["7 8 2 k", "9 9 1 j"])
        self.assertEqual(len(after.snapshot()), 0)

    def test_records_without_a_key_or_a_time_are_put_aside(self) -> None:
        visits = Harness(Visits)
        visits.process(0, [Row(None, "", 5), Row("k", "")])
        self.assertEqual([reason for _, reason in visits.take_rejected()], ["no key", "no time"])


if __name__ == "__main__":
    unittest.main()
