import unittest

from plugin import Upper

from weir.testing import Harness, Row


class UpperTest(unittest.TestCase):
    def test_letters_become_capitals_and_all_else_stays(self) -> None:
        upper = Harness(Upper)
        upper.process(0, [Row("k", "ab é {}", 5, [("h", "x")]), Row(None, None), Row("", b"\xff a")])
        self.assertEqual(upper.take(0), [Row("k", "AB é {}", 5, [("h", "x")]), Row(None, None), Row("", b"\xff A")])

    def test_a_value_that_is_too_long_is_put_aside_with_the_reason(self) -> None:
        upper = Harness(Upper)
        long, fits = Row("k", "x" * 81), Row("k", "x" * 80)
        upper.process(0, [long, fits])
        self.assertEqual(upper.take(0), [Row("k", "X" * 80)])
        self.assertEqual(upper.take_rejected(), [(long, "the value has 81 bytes, more than 80")])


if __name__ == "__main__":
    unittest.main()
