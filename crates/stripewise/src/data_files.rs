//! Which of the files that a program touches hold its data. Every program also reads its own code and the system's settings, and MPI
//! libraries talk through files of shared memory that are gone when the program ends.

use std::path::Path;

/// No program's data lies there, but every program reads there.
const SYSTEM: [&str; 8] = ["/bin", "/etc", "/lib", "/lib64", "/proc", "/sbin", "/sys", "/usr"];

/// Whether `path` may be a file of data: none of the system, no device, no pipe and no shared memory of a library.
pub fn is_data(path: &Path) -> bool {
    path.is_absolute()
        && !is_device(path)
        && !is_of_open_mpi(path)
        && !SYSTEM.iter().any(|system| path.starts_with(system))
}

/// A device, or shared memory that an MPI library or the like made by `shm_open`, which is gone with the program. Directories below
/// /dev/shm are as good as any.
fn is_device(path: &Path) -> bool {
    let shared_memory = Path::new("/dev/shm");
    let Ok(below) = path.strip_prefix(shared_memory) else { return path.starts_with("/dev") };
    below.components().count() < 2
}

/// Open MPI keeps its segments in /dev/shm, or in its session's directory below TMPDIR.
fn is_of_open_mpi(path: &Path) -> bool {
    let starts = |name: &std::ffi::OsStr| {
        let name = name.as_encoded_bytes();
        name.starts_with(b"vader_segment.") || name.starts_with(b"sm_segment.")
    };
    path.file_name().is_some_and(starts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_is_told_from_the_system_and_from_shared_memory() {
        let data = ["/d/data", "/dev/shm/run/data", "/data/usr/x", "/tmp/vader"];
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
        ];
        for path in data {
            assert!(is_data(Path::new(path)), "{path}");
        }
        for path in others {
            assert!(!is_data(Path::new(path)), "{path}");
        }
    }
}
