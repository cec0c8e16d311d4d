"""Prints what a program left in a directory: every name with its type, mode, links, size and SHA-256, sorted.

Runs bare on the ordinary run's directory and redirected on the managed one; a time of last modification is printed
only where a program set an old one on purpose.
"""

import hashlib
import os
import stat
import sys

YEAR_2017_S = 1_500_000_000


def describe(path: str) -> str:
    status = os.lstat(path)
    kind = stat.S_IFMT(status.st_mode)
    if kind == stat.S_IFLNK:
        return f"link -> {os.readlink(path)}"
    mode = f"{status.st_mode & 0o7777:04o}"
    if kind != stat.S_IFREG:
        return f"type {kind:o} mode {mode}"
    digest = hashlib.sha256()
    with open(path, "rb", buffering=0) as file:
        while chunk := file.read(1 << 20):
            digest.update(chunk)
    old = f" mtime {status.st_mtime_ns}" if status.st_mtime < YEAR_2017_S else ""
    return f"mode {mode} links {status.st_nlink} size {status.st_size} sha256 {digest.hexdigest()}{old}"


def main(root: str) -> None:
    for directory, directories, files in os.walk(root):
        directories.sort()
        for name in sorted(files + [d for d in directories]):
            path = os.path.join(directory, name)
            print(f"{os.path.relpath(path, root)}\t{describe(path)}")


main(sys.argv[1])
