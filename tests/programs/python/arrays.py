"""numpy: tofile and fromfile use stdio on a duplicate of Python's descriptor; save, load, memmap."""

import errno

import numpy as np

values = np.arange(100_000, dtype=np.float64) ** 1.5
values.tofile("raw")
print("fromfile", np.array_equal(np.fromfile("raw"), values))
print("part", np.fromfile("raw", count=5, offset=80_000).tolist() == values[10_000:10_005].tolist())
with open("mixed", "wb") as file:
    file.write(b"header--")
    values.tofile(file)
    print("tell", file.tell())
    values[:10].astype(np.int32).tofile(file)
    file.write(b"trailer")
with open("mixed", "rb") as file:
    print("header", file.read(8), np.array_equal(np.fromfile(file, count=100_000), values), file.tell())
    print("integers", np.fromfile(file, dtype=np.int32, count=10).tolist(), file.read())
values[:100].tofile("text", sep=",", format="%.3f")
print("text", np.fromfile("text", sep=",").sum().round(3))
np.save("a.npy", values.reshape(100, 1000))
print("load", np.load("a.npy").shape)
np.savetxt("a.txt", values[:50].reshape(10, 5))
print("loadtxt", np.loadtxt("a.txt").shape)
np.savez("a.npz", x=values[:1000], y=values[1000:3000])
with np.load("a.npz") as archive:
    print("npz", np.array_equal(archive["y"], values[1000:3000]))
try:
    mapped = np.memmap("raw", dtype=np.float64, mode="r")
    print("~numpy_memmap_read ok")
    if not np.array_equal(mapped[50_000:50_100], values[50_000:50_100]):
        print("WRONG DATA in the map")
except OSError as error:
    print(f"~numpy_memmap_read {errno.errorcode[error.errno]}")
import os  # noqa: E402

os.remove("a.npz")  # holds times
