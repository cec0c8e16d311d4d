"""numpy.load(mmap_mode="r") after MPI_Init: by mpi4py, or by the MPI library named. It once showed the stub's text, where the MPI loads UCX."""

import ctypes
import mmap
import sys

import numpy as np

if len(sys.argv) > 1:
    mpi = ctypes.CDLL(sys.argv[1], ctypes.RTLD_GLOBAL)
    assert mpi.MPI_Init(None, None) == 0
    finalize = mpi.MPI_Finalize
else:
    from mpi4py import MPI

    finalize = MPI.Finalize
with open("/proc/self/maps") as maps:
    print("ucx", "libucm" in maps.read())
values = np.arange(100_000, dtype=np.float64) ** 1.5
np.save("a.npy", values)
loaded = np.load("a.npy", mmap_mode="r")
print("type", type(loaded).__name__, loaded.shape)
print("same", np.array_equal(loaded, values))
writable = np.load("a.npy", mmap_mode="c")
writable[0] = 5
print("copy on write", np.array_equal(np.load("a.npy"), values))
with open("a.npy", "r+b") as file:
    try:
        with mmap.mmap(file.fileno(), 0) as shared:
            shared[200:210] = b"by the map"
        print("~python_mmap_write ok")
    except OSError as error:
        print(f"~python_mmap_write {'ENODEV' if error.errno == 19 else error}")
        file.seek(200)
        file.write(b"by the map")
with open("a.npy", "rb") as file:
    print(file.read()[195:215])
finalize()
