import unittest

from plugin import Changes

from weir import Failure
from weir.testing import Harness, Row, subtask


def reading(sensor: str, value: float) -> Row:
    return Row(sensor, f'{{"sensor":"{sensor}","value":{value}}}')


class ChangesTest(unittest.TestCase):
    def test_hands_on_what_has_changed_enough(self) -> None:
        changes = Harness(Changes, {"least": 0.5})
        changes.process(0, [reading("roof", 3.0), reading("roof", 3.4), reading("cellar", 3.4), reading("roof", 3.5)])
        self.assertEqual(changes.take(0), [reading("roof", 3.0), reading("cellar", 3.4), reading("roof", 3.5)])

    def test_puts_aside_what_it_cannot_read(self) -> None:
        changes = Harness(Changes)
        changes.process(0, [Row("roof", "wind"), reading("roof", 1.0), Row(None, '{"value":1}')])
        self.assertEqual(changes.take(0), [reading("roof", 1.0)])
        self.assertEqual(len(changes.take_rejected()), 2)

    def test_goes_on_after_a_restore_as_if_nothing_had_happened(self) -> None:
        before = Harness(Changes, {"least": 0.5})
        before.process(0, [reading("roof", 3.0)])
        checkpoint = before.snapshot()

        after = Harness.restore(Changes, checkpoint, {"least": 0.5})
        after.process(0, [reading("roof", 3.1), reading("roof", 9.0)])
        self.assertEqual(after.take(0), [reading("roof", 9.0)])

    def test_state_follows_its_keys_to_more_subtasks(self) -> None:
        sensors = [f"sensor {number}" for number in range(100)]
        before = Harness(Changes, {"least": 0.5})
        before.process(0, [reading(sensor, 3.0) for sensor in sensors])
        checkpoint = before.snapshot()

        subtasks = [Harness.restore(Changes, checkpoint, {"least": 0.5}, subtask(number, 3)) for number in range(3)]
        self.assertEqual(sum(len(subtask.operator.last) for subtask in subtasks), len(sensors))

    def test_refuses_a_configuration_with_a_typing_error(self) -> None:
        with self.assertRaisesRegex(Failure, "laest"):
            Harness(Changes, {"laest": 0.5})


if __name__ == "__main__":
    unittest.main()
