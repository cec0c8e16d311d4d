"""Writes of every class to the managed file `f`, 4 KiB at the place that its number says; `tests/redirected.rs` knows the classes.

Flags are those of the open, of a later F_SETFL (also through a duplicate), and of one call. The file stays open until a line comes in, as who
watches it finds files that are open.
"""

import fcntl
import mmap
import os
import sys

SIZE = 4096
block = mmap.mmap(-1, SIZE)
number = 0


def write(descriptor, flags=0):
    global number
    if os.pwritev(descriptor, [block], number * SIZE, flags) != SIZE:
        sys.exit(f"write {number} is short")
    number += 1


plain = os.open("f", os.O_RDWR | os.O_CREAT)
print("open", flush=True)
sys.stdin.readline()
write(plain)
fcntl.fcntl(plain, fcntl.F_SETFL, os.O_DIRECT)
twin = os.dup(plain)
write(plain)
write(twin)
fcntl.fcntl(twin, fcntl.F_SETFL, 0)
write(plain)
# Linux takes no O_SYNC after the open.
fcntl.fcntl(plain, fcntl.F_SETFL, os.O_SYNC)
write(plain)
write(plain, os.RWF_DSYNC)
for flags in os.O_SYNC, os.O_DSYNC, os.O_DIRECT, os.O_DIRECT | os.O_DSYNC:
    opened = os.open("f", os.O_WRONLY | flags)
    write(opened)
    os.close(opened)
print("written", flush=True)
sys.stdin.readline()
