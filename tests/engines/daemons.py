"""What those share that start daemons for tests, engines and hosts: an end that comes whatever happens."""

import ctypes
import os
import signal


def end_with_parent():
    """In a child before exec: it gets SIGKILL when its parent ends, and no terminal's signals."""
    os.setsid()
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


def end_all(processes):
    """All of them, and waits for that."""
    processes = list(processes)
    for process in processes:
        process.kill()
    for process in processes:
        process.wait()


class Started:
    """For a `with` statement: `_start` begins it, and `__exit__` ends what there is of it, also where `_start` fails."""

    def __enter__(self):
        try:
            self._start()
        except BaseException:
            self.__exit__()
            raise
        return self
