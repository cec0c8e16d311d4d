"""Serial HDF5 through h5py: chunked, compressed and resized datasets, groups, attributes, reopening, a raw view."""

import h5py
import numpy as np

data = np.arange(200_000, dtype=np.int64).reshape(400, 500)
with h5py.File("a.h5", "w") as file:
    file.create_dataset("flat", data=data, track_times=False)
    file.create_dataset("chunked", data=data, chunks=(64, 100), compression="gzip", track_times=False)
    growing = file.create_dataset("growing", (10, 500), maxshape=(None, 500), dtype="i8", chunks=(16, 500), track_times=False)
    growing[:] = data[:10]
    growing.resize(300, axis=0)
    growing[100:300] = data[100:300]
    group = file.create_group("group")
    group.attrs["note"] = "an attribute"
    group["numbers"] = np.arange(10)
    del group["numbers"]
with h5py.File("a.h5", "r+") as file:
    print(sorted(file), file["group"].attrs["note"])
    print("chunked", np.array_equal(file["chunked"][...], data))
    print("growing", file["growing"].shape, int(file["growing"][...].sum()))
    file["flat"][7:9, 100:200] = -1
    print("columns", int(file["flat"][:, 150].sum()))
    file.flush()
with h5py.File("a.h5", "a", driver="stdio" if "stdio" in h5py.h5fd.__dict__ else None) as file:
    file["flat"][0, 0] = 42
with h5py.File("a.h5", "r", driver="core") as file:
    print("core", int(file["flat"][0, 0]), int(file["flat"][8, 150]))
try:
    h5py.File("none.h5", "r")
except OSError as error:
    print("none", error.errno)
print("is", h5py.is_hdf5("a.h5"))
