"""Managed files as Python has files."""

from __future__ import annotations

import builtins
import functools
import io
import os
import warnings
from typing import IO, TYPE_CHECKING, Any, BinaryIO, Literal, Union, overload

from . import _stripewise
from ._command import name_command

if TYPE_CHECKING:
    from _typeshed import OpenBinaryMode, OpenBinaryModeReading, OpenBinaryModeUpdating, OpenBinaryModeWriting, OpenTextMode
    from _typeshed import ReadableBuffer, WriteableBuffer

StrPath = Union[str, "os.PathLike[str]"]
FilePath = Union[StrPath, bytes, "os.PathLike[bytes]"]
_BUFFER_BYTES = 128 << 10


@functools.cache
def _is_redirected() -> bool:
    """Whether `stripewise run` redirects this process: then every open file is redirected already."""
    if not os.environ.get("STRIPEWISE_STATE"):
        return False
    with builtins.open("/proc/self/maps", encoding="utf-8", errors="replace") as maps:
        return any(line.rstrip().endswith("/libstripewise_preload.so") for line in maps)


class ManagedFile(io.RawIOBase):
    """A managed file, unbuffered: each call goes straight between the caller's buffer and the servers, without the interpreter's lock.

    It is what :func:`open` returns with ``buffering=0``, and the ``raw`` of what it returns otherwise. Threads may share it; a child of ``fork`` has it
    open too, with a position of its own from then on.
    """

    def __init__(self, file: _stripewise.File, mode: str) -> None:
        self._file = file
        self._name = os.fspath(file.path)
        #: As Python has it, such as ``r+b``.
        self.mode = mode
        # Their checks are made once for all, and the module's own calls need no frame of the interpreter. What a subclass defines stays.
        calls = ["read", "readinto", "read_at", "readinto_at"] * file.readable + ["write", "write_at"] * file.writable
        self.__dict__.update({call: getattr(file, call) for call in calls if getattr(type(self), call) is getattr(ManagedFile, call)})

    @property
    def name(self) -> str:
        """The path as it was named; a string, of a path in bytes too."""
        return self._name

    @property
    def size(self) -> int:
        """Bytes of the file, whoever wrote them last."""
        return self._file.size()

    def readable(self) -> bool:
        """Whether it is open for reading."""
        self._check_open()
        return self._file.readable

    def writable(self) -> bool:
        """Whether it is open for writing."""
        self._check_open()
        return self._file.writable

    def seekable(self) -> bool:
        """True."""
        self._check_open()
        return True

    def readinto(self, buffer: WriteableBuffer, /) -> int:
        """Reads into any writable, contiguous buffer; returns the bytes read, 0 at the end."""
        self._check("read", self._file.readable)
        return self._file.readinto(buffer)

    def read(self, size: int | None = -1, /) -> bytes:
        """Up to `size` bytes from the position on; all that follow if it is negative or None."""
        self._check("read", self._file.readable)
        return self._file.read(size)

    def readall(self) -> bytes:
        """All bytes from the position to the end."""
        return self.read()

    def write(self, buffer: ReadableBuffer, /) -> int:
        """Writes any contiguous buffer; returns the bytes written."""
        self._check("write", self._file.writable)
        return self._file.write(buffer)

    def readinto_at(self, offset: int, buffer: WriteableBuffer, /) -> int:
        """As ``os.preadv``: the position is neither used nor moved, so that threads need not take turns."""
        self._check("read", self._file.readable)
        return self._file.readinto_at(offset, buffer)

    def read_at(self, offset: int, size: int, /) -> bytes:
        """As ``os.pread``."""
        self._check("read", self._file.readable)
        return self._file.read_at(offset, size)

    def write_at(self, offset: int, buffer: ReadableBuffer, /) -> int:
        """As ``os.pwrite``."""
        self._check("write", self._file.writable)
        return self._file.write_at(offset, buffer)

    def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
        """Moves the position, as ``os.lseek`` does; ``SEEK_DATA`` and ``SEEK_HOLE`` go by regions."""
        return self._file.seek(offset, whence)

    def tell(self) -> int:
        """The position."""
        return self._file.tell()

    def truncate(self, size: int | None = None, /) -> int:
        """Truncates or extends the file to `size` bytes, or to the position."""
        self._check("truncate", self._file.writable)
        return self._file.truncate(size)

    def _use_time_of_stub(self) -> None:
        """The modification time is from now on that which ``os.utime`` has set."""
        self._file.use_time_of_stub()

    def sync(self, *, data_only: bool = False) -> None:
        """Makes durable what was written, as ``os.fsync`` does of a descriptor, or ``os.fdatasync``."""
        self._file.sync(data_only)

    def fileno(self) -> int:
        """Refused: the descriptor's file is the stub, which has none of the data."""
        self._check_open()
        raise io.UnsupportedOperation("a managed file has no descriptor that leads to its data; use its methods, or `stripewise run`")

    def isatty(self) -> bool:
        """False."""
        self._check_open()
        return False

    def close(self) -> None:
        """Closes the file; what other threads have under way ends first, and this call waits for it."""
        if not self.closed:
            try:
                super().close()
            finally:
                self._file.close()

    def __repr__(self) -> str:
        state = "closed" if self.closed else f"mode={self.mode!r}"
        return f"<stripewise.ManagedFile name={self.name!r} {state}>"

    def __del__(self) -> None:
        if "mode" not in self.__dict__ or self.closed:
            return
        text = f"unclosed file {self!r}"
        # First: when the interpreter ends, a warning may fail.
        try:
            self.close()
        finally:
            warnings.warn(text, ResourceWarning, source=self, stacklevel=2)

    def _check_open(self) -> None:
        if self.closed:
            raise ValueError("I/O operation on closed file")

    def _check(self, what: str, is_allowed: bool) -> None:
        self._check_open()
        if not is_allowed:
            raise io.UnsupportedOperation(f"{what}: the file is open with mode {self.mode!r}")


def _parse(mode: str) -> tuple[str, bool]:
    """The mode without what is said of text, and whether the file is binary."""
    kinds = [letter for letter in mode if letter in "rwax"]
    if len(kinds) != 1 or set(mode) - set("rwax+bt") or len(set(mode)) != len(mode) or {"b", "t"} <= set(mode):
        raise ValueError(f"invalid mode: {mode!r}")
    return kinds[0] + ("+" if "+" in mode else ""), "b" in mode


@overload
def open(  # noqa: A001
    file: FilePath | int, mode: OpenTextMode = "r", buffering: int = -1,
    encoding: str | None = None, errors: str | None = None, newline: str | None = None, *, cluster: StrPath | None = None,
) -> io.TextIOWrapper: ...  # fmt: skip
@overload
def open(  # noqa: A001
    file: FilePath | int, mode: OpenBinaryMode, buffering: Literal[0],
    encoding: None = None, errors: None = None, newline: None = None, *, cluster: StrPath | None = None,
) -> ManagedFile | io.FileIO: ...  # fmt: skip
@overload
def open(  # noqa: A001
    file: FilePath | int, mode: OpenBinaryModeReading, buffering: Literal[-1, 1] = -1,
    encoding: None = None, errors: None = None, newline: None = None, *, cluster: StrPath | None = None,
) -> io.BufferedReader: ...  # fmt: skip
@overload
def open(  # noqa: A001
    file: FilePath | int, mode: OpenBinaryModeWriting, buffering: Literal[-1, 1] = -1,
    encoding: None = None, errors: None = None, newline: None = None, *, cluster: StrPath | None = None,
) -> io.BufferedWriter: ...  # fmt: skip
@overload
def open(  # noqa: A001
    file: FilePath | int, mode: OpenBinaryModeUpdating, buffering: Literal[-1, 1] = -1,
    encoding: None = None, errors: None = None, newline: None = None, *, cluster: StrPath | None = None,
) -> io.BufferedRandom: ...  # fmt: skip
@overload
def open(  # noqa: A001
    file: FilePath | int, mode: OpenBinaryMode, buffering: int = -1,
    encoding: None = None, errors: None = None, newline: None = None, *, cluster: StrPath | None = None,
) -> BinaryIO | ManagedFile: ...  # fmt: skip
@overload
def open(  # noqa: A001
    file: FilePath | int, mode: str, buffering: int = -1,
    encoding: str | None = None, errors: str | None = None, newline: str | None = None, *, cluster: StrPath | None = None,
) -> IO[Any] | ManagedFile: ...  # fmt: skip
def open(  # noqa: A001
    file: FilePath | int,
    mode: str = "r",
    buffering: int = -1,
    encoding: str | None = None,
    errors: str | None = None,
    newline: str | None = None,
    *,
    cluster: StrPath | None = None,
) -> IO[Any] | ManagedFile:
    """Opens a file as Python's own ``open`` does, a managed one with its data.

    An existing file is managed if it is a stub, a new one if the cluster takes it: below a managed directory, or expected by a plan. All others are
    opened by the builtin function. Its ``closefd`` and ``opener`` alone are not taken. ``cluster`` is a cluster file or its directory; without it the cluster is that of ``STRIPEWISE_CLUSTER``, of the working
    directory, or of the stub. Under ``stripewise run`` the builtin function is redirected already and serves all files.
    """
    if isinstance(file, int) or _is_redirected():
        return builtins.open(file, mode, buffering, encoding, errors, newline)
    plain, is_binary = _parse(mode)
    if is_binary and (encoding is not None or errors is not None or newline is not None):
        raise ValueError("binary mode takes no encoding, errors or newline")
    if buffering == 0 and not is_binary:
        raise ValueError("can't have unbuffered text I/O")
    name_command()
    found = _stripewise.open_managed(os.fsdecode(file), plain, None if cluster is None else os.fspath(cluster))
    if found is None:
        return builtins.open(file, mode, buffering, encoding, errors, newline)
    raw = ManagedFile(found, plain.replace("+", "b+") if "+" in plain else plain + "b")
    if buffering == 0:
        return raw
    try:
        size = buffering if buffering > 1 else _BUFFER_BYTES
        buffered: io.BufferedRandom | io.BufferedReader | io.BufferedWriter
        if "+" in plain:
            buffered = io.BufferedRandom(raw, size)
        elif plain == "r":
            buffered = io.BufferedReader(raw, size)
        else:
            buffered = io.BufferedWriter(raw, size)
        if is_binary:
            return buffered
        text = io.TextIOWrapper(buffered, encoding, errors, newline, line_buffering=buffering == 1)
        text.mode = mode  # type: ignore[misc]
        return text
    except BaseException:
        raw.close()
        raise


def status(path: StrPath, cluster: StrPath | None = None) -> tuple[int, int, int | None] | None:
    """Size, blocks of 512 bytes and modification time (ns, or None for the stub's own) of a managed file; None of anything else."""
    if _is_redirected():
        return None
    name_command()
    return _stripewise.status(os.fspath(path), None if cluster is None else os.fspath(cluster))


def remove(path: StrPath, cluster: StrPath | None = None) -> None:
    """As ``os.remove``, of a managed file with its data."""
    name_command()
    if _is_redirected() or not _stripewise.remove(os.fspath(path), None if cluster is None else os.fspath(cluster)):
        os.remove(path)


def rename(source: StrPath, target: StrPath, cluster: StrPath | None = None) -> None:
    """As ``os.replace``, of managed files too."""
    name_command()
    if not _is_redirected():
        named = None if cluster is None else os.fspath(cluster)
        if _stripewise.rename(os.fspath(source), os.fspath(target), named):
            return
    os.replace(source, target)
