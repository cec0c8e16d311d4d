"""os.open and below, mmap, sendfile, subprocess with redirected streams, multiprocessing."""

import fcntl
import mmap
import os
import subprocess
import sys
from multiprocessing import get_context


def show(what, value):
    print(f"{what}: {value!r}", flush=True)


def tagged(tag, function):
    """A line that may differ under redirection, see cases.py; gives None where the call was refused."""
    try:
        result = function()
    except OSError as error:
        import errno
        print(f"~{tag} {errno.errorcode[error.errno]}", flush=True)
        return None
    print(f"~{tag} ok", flush=True)
    return result


def add(line):
    fd = os.open("shared", os.O_WRONLY | os.O_APPEND)
    os.write(fd, line)
    os.close(fd)


def main():
    data = bytes(i * i % 251 for i in range(300_000))
    fd = os.open("f", os.O_RDWR | os.O_CREAT, 0o640)
    show("write", os.write(fd, data))
    show("pread", os.pread(fd, 10, 70_000) == data[70_000:70_010])
    show("preadv", os.preadv(fd, [bytearray(5), bytearray(7)], 299_995))
    show("pwritev", os.pwritev(fd, [b"one", b"two"], 100))
    show("lseek", os.lseek(fd, -3, os.SEEK_END))
    os.ftruncate(fd, 250_000)
    show("size", os.fstat(fd).st_size)
    os.posix_fallocate(fd, 0, 260_000)
    show("size", os.fstat(fd).st_size)
    fcntl.flock(fd, fcntl.LOCK_EX)
    fcntl.lockf(fd, fcntl.LOCK_EX, 10)
    os.fsync(fd)

    mapped = tagged("python_mmap_read", lambda: mmap.mmap(fd, 0, access=mmap.ACCESS_READ))
    if mapped is not None:
        if mapped[:100] != data[:100] or mapped[200_000:200_100] != data[200_000:200_100]:
            print("WRONG DATA in the map")
        mapped.close()
    mapped = tagged("python_mmap_write", lambda: mmap.mmap(fd, 0, access=mmap.ACCESS_WRITE))
    if mapped is None:
        os.pwrite(fd, b"mapped", 5000)
    else:
        mapped[5000:5006] = b"mapped"
        mapped.flush()
        mapped.close()
    show("after the map", os.pread(fd, 10, 4998))

    other = os.open("sent", os.O_WRONLY | os.O_CREAT, 0o644)
    sent = tagged("sendfile", lambda: os.sendfile(other, fd, 10, 100_000)) or 0
    os.write(other, os.pread(fd, 100_000 - sent, 10 + sent))
    show("dup shares", (os.lseek(fd, 77, os.SEEK_SET), os.lseek(os.dup(fd), 0, os.SEEK_CUR)))

    with open("output", "wb") as out:
        show("run", subprocess.run(["sh", "-c", "echo out; echo err >&2"], stdout=out, stderr=subprocess.STDOUT).returncode)
        subprocess.run([sys.executable, "-c", "print('from a child')"], stdout=out, check=True)
    with open("output", "rb") as source:
        show("wc", subprocess.run(["wc", "-c"], stdin=source, capture_output=True).stdout)
    reader = os.open("f", os.O_RDONLY)
    os.lseek(reader, 5000, os.SEEK_SET)
    code = f"import os; print(os.read({reader}, 6))"
    show("passed", subprocess.run([sys.executable, "-c", code], pass_fds=[reader], capture_output=True).stdout)
    show("parent's position", os.lseek(reader, 0, os.SEEK_CUR))

    open("shared", "w").close()
    for method in ("fork", "spawn"):
        with get_context(method).Pool(3) as pool:
            pool.map(add, [b"%04d\n" % i for i in range(60)])
    lines = open("shared", "rb").read().split()
    show("lines", (len(lines), sorted(lines) == sorted([b"%04d" % i for i in range(60)] * 2)))
    with open("shared", "wb") as file:
        file.write(b"\n".join(sorted(lines)))


if __name__ == "__main__":
    main()
