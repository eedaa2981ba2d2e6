"""The examples in the documentation of the modules do what they say."""

import doctest
import unittest

import weir
import weir.testing


def load_tests(loader: unittest.TestLoader, tests: unittest.TestSuite, pattern: str | None) -> unittest.TestSuite:
    tests.addTests(doctest.DocTestSuite(weir))
    tests.addTests(doctest.DocTestSuite(weir.testing))
    return tests
