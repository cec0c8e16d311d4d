//! What tells the state directories of agents apart.

use super::StateDirectory;
use rustix::fs::OFlags;
use rustix::io::Errno;
use rustix::rand::{GetRandomFlags, getrandom};

/// In `run/`: random bytes, made at its first use.
const RUN_ID: &str = "id";

impl StateDirectory {
    /// What no other state directory has that is in use, be it of this host, of a container of it or of another host. The caller has the broker's lock.
    ///
    /// # Errors
    ///
    /// Those of [`Self::open_shared`], of reading and of writing.
    pub fn run_id(&self) -> rustix::io::Result<String> {
        let file = self.open_shared(RUN_ID, OFlags::RDWR | OFlags::CREATE)?;
        let mut id = [0; 16];
        if rustix::io::pread(&file, &mut id, 0)? < id.len() {
            if getrandom(&mut id, GetRandomFlags::empty())? < id.len() {
                return Err(Errno::AGAIN);
            }
            rustix::io::pwrite(&file, &id, 0)?;
        }
        // A copy, as in the images of two containers, lies on another device.
        let device = rustix::fs::fstat(&self.run)?.st_dev;
        Ok(format!("{:032x}-{device:x}", u128::from_be_bytes(id)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_directory_keeps_its_id_and_no_other_has_it() {
        let directory = tempfile::tempdir().unwrap();
        let open = |name: &str| StateDirectory::make(&directory.path().join(name)).unwrap();
        let id = open("a").run_id().unwrap();
        assert_eq!(open("a").run_id().unwrap(), id);
        assert_ne!(open("b").run_id().unwrap(), id);
        // The agent that made it was killed at it.
        std::fs::write(directory.path().join("b/run/id"), [7; 3]).unwrap();
        let made = open("b").run_id().unwrap();
        assert_eq!(open("b").run_id().unwrap(), made);
        std::fs::remove_dir_all(directory.path().join("a")).unwrap();
        assert_ne!(open("a").run_id().unwrap(), id, "the memory of programs that go on is lost with the directory");
    }
}
