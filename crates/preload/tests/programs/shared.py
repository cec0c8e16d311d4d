"""A cluster that other hosts use too. `shared.py OUTSIDE`: a directory that is not managed. Lines on the standard input
say that the test has prepared the next step."""

import errno
import fcntl
import os
import sys


def refused(number, call, *arguments):
    try:
        call(*arguments)
    except OSError as error:
        assert error.errno == number, error
    else:
        raise AssertionError("not refused")


def prepared(step):
    print(step, flush=True)
    assert sys.stdin.readline()


# Nobody appends, whatever way it is asked for; the file is as it was.
refused(errno.EOPNOTSUPP, os.open, "new", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
assert not os.path.exists("new")
file = os.open("file", os.O_RDWR | os.O_CREAT)
assert os.pwrite(file, b"x" * 100_000, 0) == 100_000
refused(errno.EOPNOTSUPP, os.open, "file", os.O_WRONLY | os.O_APPEND | os.O_TRUNC)
refused(errno.EOPNOTSUPP, open, "file", "a")
refused(errno.EOPNOTSUPP, fcntl.fcntl, file, fcntl.F_SETFL, os.O_APPEND)
assert fcntl.fcntl(file, fcntl.F_GETFL) & os.O_APPEND == 0
refused(errno.EOPNOTSUPP, os.pwritev, file, [b"more"], 0, getattr(os, "RWF_APPEND", 0x10))
assert os.fstat(file).st_size == 100_000
os.close(os.open("file", os.O_RDONLY | os.O_APPEND))
with open(os.path.join(sys.argv[1], "log"), "a") as log:
    log.write("elsewhere")

# What other hosts wrote shows in every call that tells the size, and in reads.
for look in (
    lambda: os.fstat(file).st_size,
    lambda: os.stat("file").st_size,
    lambda: os.lseek(file, 0, os.SEEK_END),
    lambda: len(os.pread(file, 200_000, 0)),
    lambda: os.lseek(file, 0, os.SEEK_HOLE),
):
    prepared("hide")
    assert look() == 100_000
prepared("hide all")
os.close(os.open("file", os.O_WRONLY | os.O_TRUNC))
assert os.fstat(file).st_size == 0
os.pwrite(file, b"data", 0)
os.close(file)

# A stub that another host made stands in no table here.
prepared("withdraw")
assert os.stat("file").st_size == 4
with os.scandir(".") as entries:
    assert [entry.stat().st_size for entry in entries if entry.name == "file"] == [4]
with open("file", "rb") as reading:
    assert reading.read() == b"data"
os.rename("file", "renamed")
with open("renamed", "r+b") as writing:
    writing.write(b"DATA")
os.unlink("renamed")
assert not os.path.exists("renamed")
