#!/usr/bin/env python3
"""Runs a file of tests with a limit of time for each: a test that waits for ever fails, and says where it stood.

    tests/limited.py tests/hosts/test_silent.py [ARGUMENT...]

Environment: LIMIT, seconds of a test with what is set up for it (600).
"""

import faulthandler
import os
import pathlib
import runpy
import signal
import sys
import unittest

LIMIT_S = float(os.environ.get("LIMIT", "1200"))
# What takes the test down may wait for the same thing.
NEXT_S = 60


class TooLong(BaseException):
    """The limit is over. No `Exception`, which tests may expect of what they call."""


def begin() -> None:
    """Sets the clock back."""
    signal.setitimer(signal.ITIMER_REAL, LIMIT_S, NEXT_S)


def end(number: int, frame: object) -> None:
    """Says what every thread does, and raises in the main one."""
    faulthandler.dump_traceback()
    raise TooLong(f"not done after {LIMIT_S:.0f} s (LIMIT changes that)")


def run(self: unittest.TestCase, result: unittest.TestResult | None = None) -> unittest.TestResult | None:
    """One test within the limit."""
    begin()
    try:
        return RUN(self, result)
    finally:
        begin()


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    RUN, unittest.TestCase.run = unittest.TestCase.run, run
    signal.signal(signal.SIGALRM, end)
    # Ignored in what a shell starts in the background, and then in all that tests start and interrupt.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    begin()
    path = pathlib.Path(sys.argv[1])
    del sys.argv[0]
    sys.path[0] = str(path.resolve().parent)
    runpy.run_path(str(path), run_name="__main__")
