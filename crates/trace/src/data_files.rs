//! Which of the files that a program touches hold its data. Every program also reads its own code and the system's settings, and MPI
//! libraries talk through files of shared memory that are gone when the program ends.

use std::path::Path;

/// No program's data lies there, but every program reads there.
const SYSTEM: [&str; 8] = ["/bin", "/etc", "/lib", "/lib64", "/proc", "/sbin", "/sys", "/usr"];

/// How names of shared memory begin that MPI libraries and what they run on map from files: in /dev/shm, or below TMPDIR where that is too small.
const SEGMENTS: [&[u8]; 12] = [
    b"vader_segment.",
    b"sm_segment.",
    b"shared_mem_pool.",
    b"shared_mem_btl_",
    b"osc_rdma.",
    b"pmix_dstor_",
    b"mpich_shar_tmp",
    b"ucx_shm_posix_",
    b"psm2_shm.",
    b"psm3_shm.",
    b"ib_shmem-",
    b"ib_pool-",
];

/// Whether `path` may be a file of data: none of the system, no device, no pipe and no shared memory of a library.
pub fn is_data(path: &Path) -> bool {
    path.is_absolute()
        && !is_device(path)
        && !is_segment(path)
        && !is_in_session(path)
        && !SYSTEM.iter().any(|system| path.starts_with(system))
}

/// A device, or shared memory that an MPI library or the like made by `shm_open` or `memfd_create`, which is gone with the program.
/// Directories below /dev/shm are as good as any.
fn is_device(path: &Path) -> bool {
    if path.as_os_str().as_encoded_bytes().starts_with(b"/memfd:") {
        return true;
    }
    let shared_memory = Path::new("/dev/shm");
    let Ok(below) = path.strip_prefix(shared_memory) else { return path.starts_with("/dev") };
    below.components().count() < 2
}

fn is_segment(path: &Path) -> bool {
    path.file_name().is_some_and(|name| SEGMENTS.iter().any(|begin| name.as_encoded_bytes().starts_with(begin)))
}

/// Below the directory of a session of Open MPI: `openmpi-sessions-0@host_0/…`, `ompi.host.0/pid.7/…` or `prte.host.0/…`. A directory of a
/// user may be called `ompi.results`, so the two parts count together.
fn is_in_session(path: &Path) -> bool {
    let names: Vec<&[u8]> = path.components().map(|part| part.as_os_str().as_encoded_bytes()).collect();
    let begins = |name: &[u8], with: &[&[u8]]| with.iter().any(|begin| name.starts_with(begin));
    names.windows(2).any(|pair| {
        begins(pair[0], &[b"openmpi-sessions-"])
            || begins(pair[0], &[b"ompi.", b"prte."]) && begins(pair[1], &[b"pid.", b"jf."])
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_is_told_from_the_system_and_from_shared_memory() {
        let data = [
            "/d/data",
            "/dev/shm/run/data",
            "/data/usr/x",
            "/tmp/vader",
            "/data/ompi.results/run7",
            "/data/my_sm_segment.h5",
            "/memfd/data",
        ];
        let others = [
            "/usr/lib/big.so",
            "/proc/self/maps",
            "pipe",
            "/dev/null",
            "/dev/shm/ucx_shm_posix_1",
            "/dev/shm/vader_segment.vm.0.1.0",
            "/dev/shm/mpich_shar_tmpX2aB",
            "/dev/shm/psm2_shm.1",
            "/tmp/ompi.vm.0/pid.7/1/sm_segment.vm.0.1.0",
            "/dev/shm/ompi.vm.0/pid.7/dstore",
            "/scratch/tmp/openmpi-sessions-0@vm_0/1/1/shared_mem_pool.vm",
            "/scratch/tmp/mpich_shar_tmpX2aB",
            "/memfd:psm3_shm (deleted)",
        ];
        for path in data {
            assert!(is_data(Path::new(path)), "{path}");
        }
        for path in others {
            assert!(!is_data(Path::new(path)), "{path}");
        }
    }
}
