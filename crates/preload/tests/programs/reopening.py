"""Opens, extends, truncates and reads a file again and again while its kind changes by its size: 4 KiB are the minimum.

The file is always a beginning of one sequence of lines. A reader checks that beside every phase. After each phase the program waits until the file is
another inode, because the size that it was left with demands that.
"""

import os
import sys

NAME = "file"
ROUNDS = 6
LINES = b"".join(b"%07d\n" % number for number in range(4096))


def check(data):
    if data != LINES[: len(data)]:
        sys.exit(f"read {len(data)} bytes, of which the first wrong ones are {data[:100]!r}")


def beside_reader(phase):
    reader = os.fork()
    if reader == 0:
        for _ in range(40):
            with open(NAME, "rb") as file:
                check(file.read())
        os._exit(0)
    phase()
    _, status = os.waitpid(reader, 0)
    if status != 0:
        sys.exit(f"the reader ended with {status}")


def grow():
    size = os.path.getsize(NAME)
    for _ in range(40):
        with open(NAME, "ab") as file:
            file.write(LINES[size : size + 200])
        size += 200
        if os.path.getsize(NAME) != size:
            sys.exit(f"{os.path.getsize(NAME)} bytes where {size} were written")


def rewrite():
    for _ in range(40):
        with open(NAME, "r+b") as file:
            file.write(LINES[:80])


def change(phase):
    before = os.stat(NAME).st_ino
    phase()
    while os.stat(NAME).st_ino == before:
        pass
    with open(NAME, "rb") as file:
        check(file.read())


with open(NAME, "wb") as file:
    file.write(LINES[:80])
for _ in range(ROUNDS):
    change(lambda: beside_reader(grow))
    os.truncate(NAME, 80)
    change(lambda: beside_reader(rewrite))
beside_reader(grow)

with open("left open", "wb") as file:
    file.write(b"x")
descriptor = os.open("left open", os.O_WRONLY)
os.write(descriptor, b"x" * 5000)
