#!/usr/bin/env python3
"""What other packages make of managed files by `stripewise://`, without redirection.

    STRIPEWISE=target/debug/stripewise tests/python/test_fsspec.py
"""

import errno
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from package import SEED, WORK, Cluster, OnCluster, main, needs_others  # noqa: E402

import stripewise  # noqa: E402


@needs_others
class Others(OnCluster):
    """What other packages make of managed files, without redirection."""

    def url(self, ending):
        return f"stripewise://{self.cluster.data}/{self._testMethodName}{ending}"

    def test_pandas_writes_and_reads_csv_and_parquet(self):
        import pandas

        frame = pandas.DataFrame({"a": range(50_000), "b": [str(number) for number in range(50_000)]})
        frame.to_csv(self.url(".csv"), index=False)
        self.assertTrue(pandas.read_csv(self.url(".csv"), dtype={"b": str}).equals(frame))
        frame.to_parquet(self.url(".parquet"))
        self.assertTrue(pandas.read_parquet(self.url(".parquet")).equals(frame))
        self.assertEqual(os.stat(self.url(".csv").removeprefix("stripewise://")).st_size, 1021)

    def test_h5py_writes_and_reads_through_a_file_object(self):
        import h5py
        import numpy

        path = self.cluster.data / self._testMethodName
        values = numpy.random.default_rng(SEED).random((300, 1000))
        with stripewise.open(path, "w+b") as file, h5py.File(file, "w") as hdf:
            hdf["values"] = values
        with stripewise.open(path, "rb") as file, h5py.File(file, "r") as hdf:
            self.assertTrue((hdf["values"][:] == values).all())

    def test_zarr_and_xarray_write_and_read(self):
        import numpy
        import xarray
        import zarr

        values = numpy.random.default_rng(SEED).random((200, 300))
        xarray.Dataset({"v": (("x", "y"), values)}).to_zarr(self.url(".zarr"), consolidated=False)
        found = xarray.open_zarr(self.url(".zarr"), consolidated=False, chunks=None)
        self.assertTrue((found["v"].values == values).all())
        group = zarr.open_group(self.url(".zarr"), mode="r")
        self.assertEqual(group["v"].shape, (200, 300))
        import fsspec

        with fsspec.open(self.url(".nc"), "wb") as file:
            xarray.Dataset({"v": (("x", "y"), values)}).to_netcdf(file, engine="h5netcdf")
        with fsspec.open(self.url(".nc"), "rb") as file:
            self.assertTrue((xarray.open_dataset(file, engine="h5netcdf")["v"].values == values).all())

    def test_the_file_system_lists_moves_copies_and_removes(self):
        import fsspec

        system = fsspec.filesystem("stripewise")
        root = str(self.cluster.data / "tree")
        system.makedirs(root + "/below")
        system.pipe_file(root + "/below/a", b"a" * 5000)
        system.pipe_file(root + "/b", b"b" * 70)
        self.assertEqual(system.du(root), 5070)
        self.assertEqual({entry["name"]: entry["size"] for entry in system.ls(root, detail=True) if entry["type"] == "file"}, {root + "/b": 70})
        system.cp_file(root + "/b", root + "/c")
        system.mv(root + "/b", root + "/below/a")
        self.assertEqual(system.cat_file(root + "/below/a", start=60), b"b" * 10)
        self.assertEqual(sorted(system.find(root)), [root + "/below/a", root + "/c"])
        system.rm(root, recursive=True)
        self.assertFalse(system.exists(root))

    def test_the_file_system_copies_no_file_to_itself(self):
        import fsspec

        system = fsspec.filesystem("stripewise")
        root = str(self.cluster.data / "same")
        system.pipe_file(root + "/file", b"kept")
        os.symlink("file", root + "/symlink")
        os.link(root + "/file", root + "/link")
        ordinary = str(WORK / "same")
        pathlib.Path(ordinary).write_bytes(b"kept")
        for source, names in ((root + "/file", ("file", "symlink", "link")), (ordinary, (ordinary,))):
            for target in (os.path.join(root, name) for name in names):
                for copy in (system.cp_file, system.copy, system.get_file, system.put_file):
                    with self.assertRaises(shutil.SameFileError):
                        copy(source, target)
                    self.assertEqual(system.cat_file(source), b"kept", (copy, target))
        with self.assertRaises(FileNotFoundError):
            system.cp_file(root + "/nothing", root + "/file")
        self.assertEqual(system.cat_file(root + "/file"), b"kept")

    def test_ranges_of_the_file_system_are_counted_from_the_end_too(self):
        import fsspec

        system = fsspec.filesystem("stripewise")
        root = str(self.cluster.data / "ranges")
        lines = b"".join(b"line %d\n" % number for number in range(10_000))
        ordinary = str(WORK / "ranges")
        pathlib.Path(ordinary).write_bytes(lines)
        system.pipe_file(root + "/file", lines)
        for path in (root + "/file", ordinary):
            self.assertEqual(system.cat_file(path, start=-16), lines[-16:])
            self.assertEqual(system.cat_file(path, start=5, end=-5), lines[5:-5])
            self.assertEqual(system.read_block(path, 3, 20), lines[3:23])
            self.assertEqual(system.read_block(path, 3, None, b"\n"), lines[7:])
            with system.open(path, "r+b") as file:
                self.assertEqual((file.size, file.tell()), (len(lines), 0))

    def test_the_file_system_lists_files_behind_links_makes_directories_and_moves_anywhere(self):
        import fsspec

        system = fsspec.filesystem("stripewise")
        root = str(self.cluster.data / "links")
        # Directories that a name needs are made for these too.
        system.touch(root + "/a/empty")
        self.assertEqual(system.info(root + "/a/empty")["size"], 0)
        system.pipe_file(root + "/file", b"f" * 5000)
        system.mv(root + "/file", root + "/b/file")
        os.symlink("b/file", root + "/link")
        os.symlink("b", root + "/below")
        os.symlink("nowhere", root + "/broken")
        listed = {entry["name"]: entry for entry in system.ls(root, detail=True)}
        self.assertEqual((listed[root + "/link"]["size"], listed[root + "/link"]["type"]), (5000, "file"))
        self.assertEqual(listed[root + "/link"], system.info(root + "/link"))
        self.assertEqual(listed[root + "/broken"]["size"], 0)
        self.assertNotIn(root + "/below/file", system.find(root))
        self.assertEqual(system.find(root, detail=True)[root + "/link"]["size"], 5000)
        self.assertEqual(system.info(root + "/link")["islink"], True)

        other = tempfile.mkdtemp(dir="/dev/shm", prefix="stripewise-python-")
        self.addCleanup(shutil.rmtree, other)
        if os.stat(other).st_dev == os.stat(root).st_dev:
            self.skipTest("/dev/shm is the file system of the test's directory")
        os.chmod(root + "/b/file", 0o640)
        modified = system.info(root + "/b/file")["mtime"]
        system.mv(root + "/b/file", other + "/b/moved")
        found = os.stat(other + "/b/moved")
        self.assertEqual((found.st_size, found.st_mode & 0o777), (5000, 0o640))
        self.assertAlmostEqual(found.st_mtime, modified, places=3)
        self.assertFalse(system.exists(root + "/b/file"))
        os.symlink("moved", other + "/b/link")
        system.pipe_file(root + "/b2/old", b"old")
        # A directory, and a file and a link over files.
        system.mv(other + "/b", root + "/c")
        self.assertEqual((system.cat_file(root + "/c/moved"), os.readlink(root + "/c/link")), (b"f" * 5000, "moved"))
        self.assertEqual(stripewise._files.status(root + "/c/moved")[0], 5000)
        pathlib.Path(other, "new").write_bytes(b"new")
        os.link(root + "/b2/old", root + "/b2/kept")
        system.mv(other + "/new", root + "/b2/old")
        self.assertEqual((system.cat_file(root + "/b2/old"), system.cat_file(root + "/b2/kept")), (b"new", b"old"))
        os.symlink("elsewhere", other + "/new")
        system.mv(other + "/new", root + "/b2/old")
        self.assertEqual(os.readlink(root + "/b2/old"), "elsewhere")
        # What cannot be copied stays, and leaves nothing behind.
        os.mkfifo(other + "/fifo")
        with self.assertRaises(OSError):
            system.mv(other + "/fifo", root + "/b2/kept")
        self.assertEqual((os.listdir(other), sorted(os.listdir(root + "/b2"))), (["fifo"], ["kept", "old"]))
        system.rm(root, recursive=True)

    def test_a_file_that_nobody_knows_hides_no_other_of_its_directory(self):
        import fsspec

        system = fsspec.filesystem("stripewise")
        root = str(self.cluster.data / "faulty")
        system.pipe_file(root + "/fine", b"fine")
        text = pathlib.Path(root, "fine").read_bytes()
        faults = {"copied": (text, errno.ESTALE, "a copy of the stub"), "damaged": (text.replace(b"\ncluster", b"\nclutter"), errno.EIO, "a damaged stripewise stub")}
        for name, (written, _, _) in faults.items():
            pathlib.Path(root, name).write_bytes(written)
        names = [f"{root}/{name}" for name in ("copied", "damaged", "fine")]
        self.assertEqual((system.find(root), sorted(system.glob(root + "/*"))), (names, names))
        listed = {os.path.basename(entry["name"]): entry for entry in system.ls(root, detail=True)}
        self.assertEqual({name: entry["size"] for name, entry in listed.items()}, {"copied": None, "damaged": None, "fine": 4})
        for name, (_, number, text) in faults.items():
            self.assertTrue(system.exists(f"{root}/{name}"))
            with self.assertRaisesRegex(OSError, f"{text} .*stripewise check") as caught:
                system.info(f"{root}/{name}")
            for error in (caught.exception, listed[name]["error"]):
                self.assertEqual((error.errno, error.filename), (number, f"{root}/{name}"))
        for use in (system.du, lambda path: system.get(path, str(WORK / "faulty"), recursive=True)):
            with self.assertRaisesRegex(OSError, "a copy of the stub"):
                use(root)
        for name in faults:
            os.remove(f"{root}/{name}")

    def test_the_status_of_a_file_that_may_not_be_read_is_that_of_its_data(self):
        path = str(self.cluster.data / "unread")
        with stripewise.open(path, "wb") as file:
            file.write(b"w" * 5000)
        os.chmod(path, 0o200)
        code = "import fsspec, os, sys; print(os.access(sys.argv[1], os.R_OK), fsspec.filesystem('stripewise').info(sys.argv[1])['size'])"
        words = [sys.executable, "-c", code, path]
        if os.geteuid() == 0:
            words = ["setpriv", "--bounding-set=-dac_override,-dac_read_search", *words]
        done = subprocess.run(words, capture_output=True, text=True, timeout=60)
        self.assertEqual((done.returncode, done.stdout), (0, "False 5000\n"), done.stderr)
        os.chmod(path, 0o644)
        stripewise._files.remove(path)

    def test_touch_sets_the_time_of_a_file_that_a_writer_has_open(self):
        import fsspec

        system = fsspec.filesystem("stripewise")
        path = str(self.cluster.data / "touched")
        with stripewise.open(path, "wb", 0) as file:
            file.write(b"data")
            before = system.info(path)["mtime"]
            time.sleep(0.1)
            system.touch(path, truncate=False)
            self.assertGreater(system.info(path)["mtime"], before + 0.05)
        self.assertGreater(system.info(path)["mtime"], before + 0.05)
        self.assertEqual(system.cat_file(path), b"data")

    def test_files_of_a_transaction_appear_at_its_end_or_never(self):
        import fsspec

        system = fsspec.filesystem("stripewise", skip_instance_cache=True)
        root = str(self.cluster.data / "transaction")
        system.pipe_file(root + "/old", b"old")
        os.symlink("old", root + "/link")
        with system.transaction:
            for name, data in (("old", b"newer"), ("new", b"new")):
                with system.open(f"{root}/{name}", "wb") as file:
                    file.write(data)
            with system.open(root + "/text.gz", "wt", compression="gzip", encoding="utf-8") as file:
                file.write("α")
            self.assertEqual(system.cat_file(root + "/old"), b"old")
            self.assertFalse(system.exists(root + "/new"))
            for mode in ("ab", "r+b"):
                with self.assertRaisesRegex(OSError, "in a transaction") as caught:
                    system.open(root + "/old", mode)
                self.assertEqual((caught.exception.errno, caught.exception.filename), (errno.EOPNOTSUPP, root + "/old"))
            with self.assertRaises(FileExistsError):
                system.open(root + "/old", "xb")
        self.assertEqual(system.cat({f"{root}/old": 0, f"{root}/new": 0}), {root + "/old": b"newer", root + "/new": b"new"})
        with system.open(root + "/text.gz", "rt", compression="gzip", encoding="utf-8") as file:
            self.assertEqual(file.read(), "α")
        with self.assertRaisesRegex(KeyError, "given up"), system.transaction:
            system.pipe_file(root + "/link", b"lost")
            system.pipe_file(root + "/more", b"lost")
            raise KeyError("given up")
        with system.transaction:
            system.pipe_file(root + "/link", b"by the link")
        self.assertTrue(os.path.islink(root + "/link"))
        # Nothing is left of those that were given up.
        self.assertEqual(sorted(os.listdir(root)), ["link", "new", "old", "text.gz"])
        self.assertEqual(system.cat_file(root + "/old"), b"by the link")
        self.assertTrue(all(stripewise._files.status(f"{root}/{name}") for name in ("new", "old", "text.gz")))
        self.assertEqual(stripewise._files.status(root + "/old")[0], 11)

    def test_the_file_system_takes_a_cluster_and_every_mode(self):
        import fsspec
        import pandas

        named = os.environ.pop("STRIPEWISE_CLUSTER")
        self.addCleanup(os.environ.__setitem__, "STRIPEWISE_CLUSTER", named)
        alone = Cluster(WORK / "fsspec")
        system = fsspec.filesystem("stripewise", cluster=alone.file)
        root = str(alone.data)
        with system.open(root + "/a.txt", "w", encoding="utf-8") as file:
            file.write("α\n")
        with system.open(root + "/a.txt", "ab") as file:
            file.write("β\n".encode())
        with system.open(root + "/a.txt", "r", encoding="utf-8") as file:
            self.assertEqual(file.readlines(), ["α\n", "β\n"])
        with system.open(root + "/a.txt", "r+b") as file:
            file.seek(3)
            file.write(b"..")
        self.assertEqual(system.cat_file(root + "/a.txt"), "α\n..\n".encode())
        with self.assertRaises(FileExistsError):
            system.open(root + "/a.txt", "xb")
        system.pipe_file(root + "/below/b.csv", b"x\n1\n")
        self.assertEqual(system.glob(root + "/**/*.csv"), [root + "/below/b.csv"])
        self.assertEqual(system.glob(root + "/*.txt", detail=True)[root + "/a.txt"]["size"], 6)
        options = {"cluster": str(alone.file)}
        pandas.DataFrame({"x": [1, 2]}).to_csv(f"stripewise://{root}/c.csv", storage_options=options)
        self.assertEqual(list(pandas.read_csv(f"stripewise://{root}/c.csv", storage_options=options).x), [1, 2])
        self.assertEqual({os.stat(path).st_size for path in system.find(root)}, {1021}, "stubs")
        alone.check()


if __name__ == "__main__":
    main()
