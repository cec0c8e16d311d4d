"""What bench/io_loop.c does, by `stripewise.open`: sequential reads or writes, from the begin again at FILE_BYTES.

    io_loop.py read|write FILE FILE_BYTES REQUEST_BYTES COUNT

Prints the time of the loop alone, in ns.
"""
import mmap
import sys
import time

import stripewise

kind, path = sys.argv[1:3]
file_bytes, request, count = map(int, sys.argv[3:])
# Aligned to pages, as the one in C: the kernel copies twice as fast to such memory on some processors.
buffer = mmap.mmap(-1, request)
buffer.write(b"x" * request)
with stripewise.open(path, "rb" if kind == "read" else "r+b", 0) as file:
    if not isinstance(file, stripewise.ManagedFile):
        sys.exit(f"{path} is not managed")
    move = file.readinto if kind == "read" else file.write
    offset, start = 0, time.perf_counter_ns()
    for _ in range(count):
        if move(buffer) != request:
            sys.exit(f"a short {kind} at {offset}")
        offset += request
        if offset + request > file_bytes:
            file.seek(0)
            offset = 0
    print(time.perf_counter_ns() - start)
