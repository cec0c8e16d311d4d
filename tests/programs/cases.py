"""The table of real programs: what runs, with what, and what may differ under redirection."""

from dataclasses import dataclass, field

# Lines `~tag result` of a transcript. On an ordinary file the result is what the file system says; under redirection
# it is either that or one of these, and the program then goes the way that any careful program goes.
DOCUMENTED = {
    "mmap_shared_write": {"ENODEV"},
    "mmap_shared_by_writer": {"ENODEV"},
    "mmap_shared_read": {"ENODEV"},
    "mmap_private_read": {"ENODEV"},
    "mmap_private_write": {"ENODEV"},
    "mremap_private": {"ENOMEM"},
    "mremap_shared": {"ENOMEM"},
    "sendfile": {"EINVAL"},
    "sendfile_to_pipe": {"EINVAL"},
    "copy_file_range": {"EXDEV", "EOPNOTSUPP"},
    "splice_from": {"EINVAL"},
    "splice_to": {"EINVAL"},
    "ficlone": {"EOPNOTSUPP", "EXDEV", "ENOTTY"},
    "fiemap": {"EOPNOTSUPP"},
    "fibmap": {"EINVAL"},
    "loop_device": {"EINVAL"},
    "resvsp": {"EOPNOTSUPP"},
    "stream_over_managed": {"EBADF"},
    "fallocate_keep_size": {"EOPNOTSUPP"},
    "fallocate_punch_hole": {"ok"},
    "fallocate_zero_range": {"ok"},
    "fallocate_collapse": {"EOPNOTSUPP"},
    "fallocate_plain": {"EOPNOTSUPP"},
    "python_mmap_write": {"ENODEV"},
    "python_mmap_read": {"ENODEV"},
    "numpy_memmap_read": {"ENODEV"},
    "fio_mmap": {"ENODEV"},
    "watch_writes": {"ENOSPC"},
    "io_submit_append": {"EINVAL"},
    "io_uring_setup": {"ENOSYS"},
    "openat2_new_below": {"ENOSYS"},
}


@dataclass(frozen=True)
class Case:
    name: str
    # Words of the command: {build} is the directory of built programs, {here} this one, {python} an interpreter
    # that can import `modules`, {mpirun} the launcher of the case's MPI.
    command: tuple[str, ...]
    source: str | None = None  # compiled to {build}/<build_as> first
    build_as: str | None = None
    flags: tuple[str, ...] = ()
    mpi: str | None = None  # mpich or openmpi
    ranks: int = 0
    environment: tuple[tuple[str, str], ...] = ()
    modules: tuple[str, ...] = ()
    programs: tuple[str, ...] = ()  # that must be in PATH
    timeout_s: int = 300
    # A program may leave nothing in the directory, or only empty files: then there is no stub to look for.
    leaves_data: bool = True
    tags: frozenset[str] = field(default_factory=frozenset)


C_FLAGS = ("-std=gnu11", "-g", "-Wall", "-Wextra", "-Werror", "-pthread")

POSIX = [
    "open_flags", "read_write", "size", "append", "duplicates", "processes", "locks", "status", "names", "streams",
    "standard_streams", "reopened", "aio", "maps", "copies", "direct", "threads", "signals", "limits", "descriptors",
    "concurrent", "races", "no_descriptor", "libaio", "rings", "forks", "vforked", "wide", "walks", "numbers", "programs",
]


def posix_cases() -> list[Case]:
    cases = []
    for name in POSIX:
        # With _FORTIFY_SOURCE glibc's headers call the _chk twins (__read_chk, __openat64_2, ...) instead, and with
        # 64-bit offsets the 64 twins (pread64, fopen64, ...).
        for variant, flags in (("plain", ("-O0",)), ("fortified", ("-O2", "-D_FORTIFY_SOURCE=2")),
                               ("offset64", ("-O1", "-D_FILE_OFFSET_BITS=64"))):
            build_as = f"{name}-{variant}"
            cases.append(Case(f"posix/{name}/{variant}", (f"{{build}}/{build_as}",), source=f"posix/{name}.c",
                              build_as=build_as, flags=C_FLAGS + flags))
    cases.append(Case("posix/open_every_flag", ("{build}/open_every_flag",), source="posix/open_every_flag.c",
                      build_as="open_every_flag", flags=C_FLAGS + ("-O1",), timeout_s=120))
    cases.append(Case("posix/cxx_streams", ("{build}/cxx_streams",), source="posix/cxx_streams.cc", build_as="cxx_streams",
                      flags=("-std=gnu++17", "-O1", "-Wall", "-Wextra", "-Werror")))
    return cases


MPI = {
    # program: ranks
    "contiguous": 4,
    "views": 4,
    "collective": 4,
    "nonblocking": 4,
    "shared_pointer": 4,
    "file_state": 4,
    "atomic": 4,
}


# Open MPI over UCX, on a host without any network that it would choose by itself.
OPENMPI_UCX = (
    ("OMPI_MCA_pml", "ucx"), ("OMPI_MCA_pml_ucx_tls", "any"), ("OMPI_MCA_pml_ucx_devices", "any"), ("UCX_LOG_LEVEL", "fatal"),
)

# What these libraries do not do on ordinary files either (seen with Open MPI 4.1.4): ROMIO in Open MPI dies in
# nonblocking collective strided writes, OMPIO's nonblocking read across the end of the file never completes ...
ARGUMENTS = {
    ("nonblocking", "openmpi-romio"): ("--no-collective",),
    ("nonblocking", "openmpi-ompio"): ("--no-past-end",),
}
# ... and its atomic mode is none: overlapping writes come out mixed.
UNFIT_BARE = {("atomic", "openmpi-ompio")}


def mpi_layers() -> list[tuple[str, str, tuple[tuple[str, str], ...]]]:
    """(label, MPI, environment): the MPI-IO implementations that a program can meet."""
    return [
        ("mpich", "mpich", ()),
        ("openmpi-ompio", "openmpi", (("OMPI_MCA_io", "ompio"),)),
        ("openmpi-romio", "openmpi", (("OMPI_MCA_io", "romio321"),)),
    ]


def mpi_cases() -> list[Case]:
    cases = []
    for name, ranks in MPI.items():
        for label, mpi, environment in mpi_layers():
            build_as = f"{name}-{mpi}"
            if (name, label) in UNFIT_BARE:
                continue
            arguments = ARGUMENTS.get((name, label), ())
            cases.append(Case(f"mpi/{name}/{label}", ("{mpirun}", mpi, str(ranks), f"{{build}}/{build_as}", *arguments),
                              source=f"mpi/{name}.c", build_as=build_as,
                              flags=("-std=gnu11", "-O1", "-g", "-Wall", "-Wextra"), mpi=mpi, ranks=ranks,
                              environment=environment, timeout_s=120))
    # Debian's MPICH loads UCX; Open MPI does where asked to.
    for label, mpi, environment, arguments in (
        ("mpich", "mpich", (), ()), ("openmpi", "openmpi", (), ()), ("openmpi-ucx", "openmpi", OPENMPI_UCX, ("libucm.so",)),
        # Open MPI's own patcher watches mappings for UCX.
        ("openmpi-patcher", "openmpi", (*OPENMPI_UCX, ("OMPI_MCA_opal_common_ucx_opal_mem_hooks", "1")), ("libucm.so",)),
    ):
        cases.append(Case(f"mpi/maps/{label}", ("{mpirun}", mpi, "2", f"{{build}}/maps-{mpi}", *arguments), source="mpi/maps.c",
                          build_as=f"maps-{mpi}", flags=("-std=gnu11", "-O1", "-g", "-Wall", "-Wextra"), mpi=mpi, ranks=2,
                          environment=environment, timeout_s=120))
    for mpi in ("mpich", "openmpi"):
        build_as = f"fortran-{mpi}"
        cases.append(Case(f"fortran/{mpi}", ("{mpirun}", mpi, "4", f"{{build}}/{build_as}"), source="fortran/io.f90",
                          build_as=build_as, flags=("-O1", "-g", "-Wall"), mpi=mpi, ranks=4, timeout_s=120))
    cases.append(Case("hdf5/c-mpich", ("{mpirun}", "mpich", "4", "{build}/hdf5-mpich"), source="mpi/hdf5.c",
                      build_as="hdf5-mpich", flags=("-O1", "-g"), mpi="mpich", ranks=4, programs=("h5pcc.mpich",),
                      timeout_s=120))
    return cases


def python_cases() -> list[Case]:
    cases = [
        Case(f"python/{name}", ("{python}", f"{{here}}/python/{name}.py"), modules=modules)
        for name, modules in (("files", ()), ("descriptors", ()), ("archives", ()), ("sqlite", ("sqlite3",)),
                              ("sqlite_wal", ("sqlite3",)),
                              ("arrays", ("numpy",)), ("hdf5", ("h5py",)))
    ]
    cases.append(Case("python/mpi_maps/mpich", ("{mpirun}", "mpich", "1", "{python}", "{here}/python/mpi_maps.py", "libmpich.so.12"),
                      mpi="mpich", ranks=1, modules=("numpy",)))
    cases.append(Case("python/mpi_maps/openmpi-ucx", ("{mpirun}", "openmpi", "1", "{python}", "{here}/python/mpi_maps.py"),
                      mpi="openmpi", ranks=1, environment=OPENMPI_UCX, modules=("mpi4py", "numpy")))
    # Debian's h5py for MPI is linked with the system's default, Open MPI.
    for label, mpi, environment in mpi_layers()[1:]:
        cases.append(Case(f"python/hdf5_parallel/{label}", ("{mpirun}", mpi, "4", "{python}", "{here}/python/hdf5_parallel.py"),
                          mpi=mpi, ranks=4, environment=environment, modules=("h5py", "mpi4py", "numpy"), timeout_s=120))
    return cases


def shell_cases() -> list[Case]:
    needs = {"rsync": ("rsync",), "sqlite": ("sqlite3",), "compile": ("gcc", "make"), "kept_streams": ("gcc",), "scripts": ("perl",), "git": ("git",)}
    cases = [
        Case(f"shell/{name}", ("bash", f"{{here}}/shell/{name}.sh"), programs=needs.get(name, ()))
        for name in ("redirection", "kept_streams", "copying", "text", "moving", "rsync", "archive", "sqlite", "compile", "scripts", "venv",
                     "git", "follow")
    ]
    cases.append(Case("fio/direct", ("bash", "{here}/shell/fio.sh", "psync", "--direct=1"), programs=("fio",), timeout_s=120))
    cases.append(Case("fio/libaio_ring", ("bash", "{here}/shell/fio.sh", "libaio", "--userspace_reap"), programs=("fio",), timeout_s=120))
    for engine in ("psync", "sync", "vsync", "pvsync", "pvsync2", "posixaio", "mmap", "libaio"):
        cases.append(Case(f"fio/{engine}", ("bash", "{here}/shell/fio.sh", engine), programs=("fio",), timeout_s=120))
    return cases


def all_cases() -> list[Case]:
    return posix_cases() + shell_cases() + python_cases() + mpi_cases()


# What runs on real disk file systems as well (`run.py --on`): whatever meets the stub's file system itself. Parts of names.
DISK_CASES = tuple(
    f"posix/{name}/plain" for name in (
        "open_flags", "read_write", "size", "append", "duplicates", "processes", "locks", "status", "names",
        "streams", "maps", "copies", "direct", "descriptors", "forks", "numbers", "libaio",
    )
) + ("posix/open_every_flag", "shell/sqlite", "shell/copying", "fio/direct", "fio/libaio", "python/files")
