"""h5py with the mpio driver: independent and collective transfers of every rank's rows."""

import h5py
import numpy as np
from mpi4py import MPI

world = MPI.COMM_WORLD
rank, ranks = world.rank, world.size
ROWS, COLUMNS = 50, 2000
right = h5py.get_config().mpi and ranks > 1
mine = np.arange(ROWS * COLUMNS, dtype=np.int32).reshape(ROWS, COLUMNS) + rank * 1_000_003
begin = rank * ROWS
with h5py.File("a.h5", "w", driver="mpio", comm=world) as file:
    for name, chunks in (("contiguous", None), ("chunked", (30, 500))):
        independent = file.create_dataset(f"{name} independent", (ranks * ROWS, COLUMNS), "i4", chunks=chunks, track_times=False)
        independent[begin : begin + ROWS] = mine
        together = file.create_dataset(f"{name} collective", (ranks * ROWS, COLUMNS), "i4", chunks=chunks, track_times=False)
        with together.collective:
            together[begin : begin + ROWS] = mine
        world.Barrier()
    strided = file.create_dataset("strided", (ROWS, COLUMNS * ranks), "i4", track_times=False)
    with strided.collective:
        strided[:, rank::ranks] = mine
world.Barrier()
with h5py.File("a.h5", "r", driver="mpio", comm=world) as file:
    other = (rank + 1) % ranks
    theirs = np.arange(ROWS * COLUMNS, dtype=np.int32).reshape(ROWS, COLUMNS) + other * 1_000_003
    for name in ("contiguous independent", "contiguous collective", "chunked independent", "chunked collective"):
        right &= bool(np.array_equal(file[name][other * ROWS : other * ROWS + ROWS], theirs))
    right &= bool(np.array_equal(file["strided"][:, other::ranks], theirs))
all_right = world.allreduce(right, MPI.LAND)
if rank == 0:
    print("right" if all_right else "WRONG")
