"""A file system for fsspec, `stripewise://`: the local one, with managed files read and written as what they are.

pandas, zarr, xarray and whatever else takes fsspec's URLs read managed files by it:

>>> pandas.read_csv("stripewise:///scratch/run/table.csv")
>>> xarray.open_zarr("stripewise:///scratch/run/field.zarr")
"""

from __future__ import annotations

import errno
import io
import os
import secrets
import shutil
from typing import IO, Any, Union

from fsspec.implementations.local import LocalFileSystem

from . import _files
from ._stripewise import StripewiseError

StrPath = Union[str, "os.PathLike[str]"]


class _Deferred:
    """A file of a transaction: until the commit it has a temporary name in the directory of its target."""

    def __init__(self, raw: io.FileIO | _files.ManagedFile, target: str, is_new: bool, cluster: StrPath | None) -> None:
        super().__init__(raw)  # type: ignore[call-arg]
        self._temporary = str(raw.name)
        self._target, self._is_new, self._cluster = target, is_new, cluster

    def commit(self) -> None:
        """Gives the file its name, over what has it."""
        self.close()  # type: ignore[attr-defined]
        if self._is_new and os.path.lexists(self._target):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), self._target)
        _files.rename(self._temporary, self._target, self._cluster)

    def discard(self) -> None:
        """Removes the file."""
        try:
            self.close()  # type: ignore[attr-defined]
        finally:
            _files.remove(self._temporary, self._cluster)


class _DeferredWriter(_Deferred, io.BufferedWriter):
    """Open for writing alone."""


class _DeferredRandom(_Deferred, io.BufferedRandom):
    """Open for reading too."""


def _beside(target: str) -> str:
    """A name that nothing has, in the same directory."""
    return os.path.join(os.path.dirname(target), f".stripewise-{secrets.token_hex(8)}.part")


def _deferred(path: str, mode: str, cluster: StrPath | None) -> IO[bytes]:
    if set(mode) & set("ra"):
        what = f"a file cannot be opened with mode {mode!r} in a transaction: what is there would change before its end; write a new one, or end the transaction first"
        raise OSError(errno.EOPNOTSUPP, what, path)
    target = os.path.realpath(path)
    is_new = "x" in mode
    if is_new and os.path.lexists(target):
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)
    temporary = _beside(target)
    if "+" in mode:
        return _DeferredRandom(_files.open(temporary, "x+b", 0, cluster=cluster), target, is_new, cluster)
    return _DeferredWriter(_files.open(temporary, "xb", 0, cluster=cluster), target, is_new, cluster)


class StripewiseFileSystem(LocalFileSystem):
    """Files of this host, managed ones with their data; ``cluster`` as for :func:`stripewise.open`.

    Files that are written in a transaction appear at its end.
    """

    protocol = "stripewise"

    def __init__(self, auto_mkdir: bool = True, cluster: StrPath | None = None, **options: Any) -> None:
        super().__init__(auto_mkdir=auto_mkdir, **options)
        self.cluster = None if cluster is None else os.path.abspath(cluster)

    @classmethod
    def _strip_protocol(cls, path: Any) -> str:
        if isinstance(path, list):
            return [cls._strip_protocol(one) for one in path]  # type: ignore[return-value]
        path = os.fspath(path)
        if path.startswith("stripewise:"):
            path = path.removeprefix("stripewise:")
            path = path[2:] if path.startswith("//") else path
        return str(super()._strip_protocol(path))

    def unstrip_protocol(self, name: str) -> str:
        """The path as a URL."""
        return f"stripewise://{self._strip_protocol(name)}"

    def _open(self, path: str, mode: str = "rb", block_size: int | None = None, autocommit: bool = True, **_: Any) -> IO[bytes] | _files.ManagedFile:
        path = self._strip_protocol(path)
        if self.auto_mkdir and "r" not in mode:
            self.makedirs(self._parent(path), exist_ok=True)
        if not autocommit and set(mode) & set("wax+"):
            return _deferred(path, mode, self.cluster)
        found = _files.open(path, mode if "b" in mode else mode + "b", cluster=self.cluster)
        if "r" in mode and found.seekable():
            # As fsspec's own local files have it: its ranges from the end on are counted from there.
            found.size = found.seek(0, os.SEEK_END)  # type: ignore[union-attr, misc]
            found.seek(0)
        return found

    def info(self, path: Any, **options: Any) -> dict[str, Any]:
        """Name, type, size and times; size and modification time of a managed file are those of its data.

        If these cannot be had (of a copied or damaged stub, of a cluster that nobody serves), the error is raised; a list (``ls``) has the file with size None
        and the exception as ``error``.
        """
        is_listed = isinstance(path, os.DirEntry)
        if isinstance(path, os.DirEntry) and path.is_symlink() and path.is_file():
            # A list says of a link what is said of it by its name.
            path = path.path
        found: dict[str, Any] = super().info(path, **options)
        if found["type"] == "file":
            try:
                managed = _files.status(found["name"], self.cluster)
            except (OSError, StripewiseError) as error:
                # What makes `ls` fail makes fsspec's `walk` omit all of the directory.
                if not is_listed or not os.path.lexists(found["name"]):
                    raise
                return found | {"size": None, "error": error}
            if managed is not None:
                size, _, modified_ns = managed
                found["size"] = size
                if modified_ns is not None:
                    found["mtime"] = modified_ns / 1e9
        return found

    def exists(self, path: str, **options: Any) -> bool:
        """Whether there is such a file or directory, of a file whose ``info`` fails too."""
        return os.path.exists(self._strip_protocol(path))

    def modified(self, path: str) -> Any:
        """When the data were changed last."""
        import datetime

        return datetime.datetime.fromtimestamp(self.info(path)["mtime"], tz=datetime.timezone.utc)

    def cp_file(self, path1: str, path2: str, **options: Any) -> None:
        """Copies a file with its data; the copy is managed where the cluster takes it.

        A file is not copied to itself, by whatever name: ``shutil.SameFileError``.
        """
        source, target = self._strip_protocol(path1), self._strip_protocol(path2)
        if self.isdir(source):
            self.mkdirs(target, exist_ok=True)
            return
        if os.path.exists(target) and os.path.samefile(source, target):
            # It would be truncated before it is read.
            raise shutil.SameFileError(f"{source!r} and {target!r} are the same file")
        if self.auto_mkdir:
            self.makedirs(self._parent(target), exist_ok=True)
        with _files.open(source, "rb", 0, cluster=self.cluster) as read, _files.open(target, "wb", 0, cluster=self.cluster) as write:
            buffer = memoryview(bytearray(1 << 20))
            while length := read.readinto(buffer):
                rest = buffer[:length]
                while rest:
                    rest = rest[write.write(rest) :]

    def get_file(self, path1: str, path2: Any, callback: Any = None, **options: Any) -> None:
        """Copies a file out: to a path, or into an object that has `write`."""
        if hasattr(path2, "write"):
            with self.open(path1, "rb") as read:
                while data := read.read(1 << 20):
                    path2.write(data)
            return
        self.cp_file(path1, path2)

    def put_file(self, path1: str, path2: str, callback: Any = None, **options: Any) -> None:
        """Copies a file in."""
        self.cp_file(path1, path2)

    def mv(self, path1: str, path2: str, **options: Any) -> None:
        """Renames a file or a directory, over a file that stands there; copies it to another file system, and removes it here."""
        source, target = self._strip_protocol(path1), self._strip_protocol(path2)
        if self.auto_mkdir:
            self.makedirs(self._parent(target), exist_ok=True)
        if self.isdir(target):
            target = os.path.join(target, os.path.basename(source))
        try:
            _files.rename(source, target, self.cluster)
        except OSError as error:
            if error.errno != errno.EXDEV:
                raise
            self._move_across(source, target)

    mv_file = mv

    def _move_across(self, source: str, target: str) -> None:
        """As ``mv`` where no rename reaches; what stands at the target stays until all is copied."""
        temporary = _beside(target)
        try:
            if os.path.islink(source):
                os.symlink(os.readlink(source), temporary)
            elif os.path.isdir(source):
                shutil.copytree(source, temporary, symlinks=True, copy_function=self._copy_with_mode)
            else:
                self._copy_with_mode(source, temporary)
            _files.rename(temporary, target, self.cluster)
        except BaseException:
            if os.path.lexists(temporary):
                self.rm(temporary, recursive=True)
            raise
        self.rm(source, recursive=True)

    def _copy_with_mode(self, source: str, target: str) -> None:
        if not os.path.isfile(source):
            raise shutil.SpecialFileError(f"{source!r} is no regular file, which alone can be copied to another file system")
        self.cp_file(source, target)
        shutil.copymode(source, target)
        # A stub's own are not the file's.
        os.utime(target, (os.stat(source).st_atime, self.info(source)["mtime"]))

    def rm_file(self, path: str) -> None:
        """Removes a file with its data."""
        _files.remove(self._strip_protocol(path), self.cluster)

    _rm = rm_file

    def rm(self, path: Any, recursive: bool = False, maxdepth: int | None = None) -> None:
        """Removes files, and with `recursive` directories with all that is in them."""
        paths = [path] if isinstance(path, (str, os.PathLike)) else path
        for one in map(self._strip_protocol, paths):
            if not self.isdir(one) or os.path.islink(one):
                self.rm_file(one)
                continue
            if not recursive:
                raise IsADirectoryError(21, "is a directory; remove it with recursive=True", one)
            if os.path.abspath(one) == os.getcwd():
                raise ValueError("cannot delete current working directory")
            # Each name on its own: the broker hears of managed ones.
            for place, directories, files in os.walk(one, topdown=False):
                for name in files:
                    self.rm_file(os.path.join(place, name))
                for name in directories:
                    below = os.path.join(place, name)
                    os.remove(below) if os.path.islink(below) else os.rmdir(below)
            os.rmdir(one)

    def link(self, src: str, dst: str, **options: Any) -> None:
        """A further name of a file."""
        # A further name of the stub, which is a further name of the file.
        os.link(self._strip_protocol(src), self._strip_protocol(dst))

    def touch(self, path: str, truncate: bool = True, **options: Any) -> None:
        """Makes a file, truncates it, or sets its times without `truncate`."""
        path = self._strip_protocol(path)
        if self.auto_mkdir:
            self.makedirs(self._parent(path), exist_ok=True)
        with _files.open(path, "wb" if truncate else "ab", 0, cluster=self.cluster) as file:
            if truncate:
                return
            os.utime(path)
            if isinstance(file, _files.ManagedFile):
                # The time that a writer has set holds otherwise.
                file._use_time_of_stub()
