"""Darshan logs of any contents, as Darshan 3.4 lays them out: a header, then regions that are compressed by zlib each.

    log_writer.write("a.darshan", names={7: "/lustre/a"}, modules={"DXT_POSIX": log_writer.dxt(7, rank=0, writes=[(0, 4096, 0.0, 0.1)])})
"""

import struct
import zlib

MODULES = ("NULL", "POSIX", "MPI-IO", "H5F", "H5D", "PNETCDF_FILE", "PNETCDF_VAR", "BG/Q", "LUSTRE", "STDIO", "DXT_POSIX", "DXT_MPIIO")
VERSIONS = {"POSIX": 4, "MPI-IO": 3, "STDIO": 2, "DXT_POSIX": 1, "DXT_MPIIO": 2}
MAGIC, MAX_MODULES, JOB_REGION_BYTES = 6567223, 64, 4096
HEADER = struct.Struct(f"<8sqB7xQ{2 + 2 * MAX_MODULES}Q{MAX_MODULES}I")
START_S = 1_700_000_000


def dxt(identity, rank=0, host="n0", writes=(), reads=()):
    """A record of segments (offset, length, start in seconds, end)."""
    segments = [*writes, *reads]
    head = struct.pack("<Qqq64sqq", identity, rank, 0, host.encode(), len(writes), len(reads))
    return head + b"".join(struct.pack("<qqdd", *segment) for segment in segments)


def counters(module, identity, rank=-1, **values):
    """A record of counters by their names without the module's; those that are not given are 0. Needs PyDarshan, which knows their order."""
    from darshan.backend.cffi_backend import counter_names

    whole, real = counter_names(module), counter_names(module, fcnts=True)
    prefix = module.replace("-", "")
    named = {f"{prefix}_{name}": value for name, value in values.items()}
    unknown = named.keys() - set(whole) - set(real)
    if unknown:
        raise ValueError(f"{module} has no {unknown}")
    numbers = [int(named.get(name, 0)) for name in whole], [float(named.get(name, 0)) for name in real]
    return struct.pack(f"<Qq{len(whole)}q{len(real)}d", identity % (1 << 64), rank, *numbers[0], *numbers[1])


def write(path, names=(), modules=(), version=b"3.41", processes=1, run_s=10, command="app", mounts=("lustre", "/lustre"), partial=()):
    """`modules` is by name what their records are, one after the other."""
    job = struct.pack("<7q1024s", 1000, START_S, 0, START_S + run_s, 0, processes, 1, b"lib_ver=3.4.1\n")
    job += f"{command}\n{mounts[0]}\t{mounts[1]}".encode()
    job += bytes(JOB_REGION_BYTES - len(job))
    listed = b"".join(struct.pack("<Q", identity) + (name if isinstance(name, bytes) else name.encode()) + b"\0" for identity, name in dict(names).items())
    maps, versions, regions = [0] * (2 * MAX_MODULES), [0] * MAX_MODULES, [zlib.compress(job)]
    end = HEADER.size + len(regions[0])
    regions.append(zlib.compress(listed))
    name_map = (end, len(regions[1]))
    end += len(regions[1])
    for name, records in dict(modules).items():
        number = MODULES.index(name)
        regions.append(zlib.compress(records, 1))
        maps[2 * number : 2 * number + 2] = end, len(regions[-1])
        versions[number] = VERSIONS[name]
        end += len(regions[-1])
    is_partial = sum(1 << MODULES.index(name) for name in partial)
    head = HEADER.pack(version, MAGIC, 0, is_partial, *name_map, *maps, *versions)
    with open(path, "wb") as log:
        log.write(head)
        log.writelines(regions)
