"""Tests of the SDK: `python3 -m unittest` in `sdk/python`."""
