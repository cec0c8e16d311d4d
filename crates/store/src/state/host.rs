//! The one host that uses a state directory.
//!
//! Shared memory and kernel locks exist on one host only. So the first host writes its identity into
//! the directory, and every other host is refused by name.

use super::own_files::{read_own, text_of};
use super::{HOST, StateDirectory, StateError};
use rustix::fd::AsFd;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::path::Path;

/// What makes a host the same host.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HostIdentity {
    /// `/etc/machine-id`, or empty.
    pub machine: String,
    /// The kernel's node name.
    pub name: String,
    /// The kernel's random name of this boot.
    pub boot: [u8; 16],
}

impl HostIdentity {
    /// The host that this process runs on.
    ///
    /// # Errors
    ///
    /// [`StateError::Os`] when the boot's name cannot be read.
    pub fn of_this_host() -> Result<Self, StateError> {
        let boot_path = "/proc/sys/kernel/random/boot_id";
        let text = read_all(rustix::fs::CWD, Path::new(boot_path)).map_err(|source| StateError::Os {
            path: boot_path.into(),
            action: "read",
            source,
        })?;
        let machine = read_all(rustix::fs::CWD, Path::new("/etc/machine-id")).unwrap_or_default();
        let name = rustix::system::uname().nodename().to_string_lossy().into_owned();
        Ok(Self { machine: machine.trim().to_owned(), name, boot: boot_number(&text) })
    }

    /// The same boot of one kernel, or the same machine. Cloned images share a machine id, so the name must agree as well; a
    /// host that was renamed is told so and gives the remedy itself.
    fn is_same_host(&self, other: &HostIdentity) -> bool {
        self.boot == other.boot || (self.machine == other.machine && self.name == other.name)
    }

    fn to_text(&self) -> String {
        let boot = u128::from_be_bytes(self.boot);
        format!("stripewise host 1\nmachine {}\nname {}\nboot {boot:032x}\n", self.machine, self.name)
    }

    fn parse(text: &str) -> Option<Self> {
        let mut lines = text.lines();
        (lines.next()? == "stripewise host 1").then_some(())?;
        let mut value = |key: &str| lines.next()?.strip_prefix(key)?.strip_prefix(' ').map(str::to_owned);
        let (machine, name, boot) = (value("machine")?, value("name")?, value("boot")?);
        Some(Self { machine, name, boot: u128::from_str_radix(&boot, 16).ok()?.to_be_bytes() })
    }
}

fn boot_number(text: &str) -> [u8; 16] {
    let digits = text.chars().filter_map(|c| c.to_digit(16));
    digits.fold(0u128, |number, digit| number << 4 | u128::from(digit)).to_be_bytes()
}

impl StateDirectory {
    /// Refuses when another host has used this directory, else notes this one.
    ///
    /// # Errors
    ///
    /// [`StateError::OtherHost`], [`StateError::HostFile`] if the file is of another version,
    /// otherwise [`StateError::Os`] or [`StateError::Foreign`].
    pub fn claim_for(&self, host: &HostIdentity) -> Result<(), StateError> {
        match read_own(&self.root, HOST) {
            Ok(text) => {
                let first = HostIdentity::parse(&text)
                    .ok_or_else(|| StateError::HostFile { path: self.path.join(HOST), text: text.trim().to_owned() })?;
                if !first.is_same_host(host) {
                    return Err(StateError::OtherHost {
                        path: self.path.clone(),
                        first: first.name,
                        machine: first.machine,
                        this: host.name.clone(),
                    });
                }
                if first == *host {
                    return Ok(());
                }
            }
            Err(Errno::NOENT) => {}
            Err(source) => return Err(self.fault(HOST, "read")(source)),
        }
        self.replace_file(HOST, host.to_text().as_bytes()).map_err(self.fault(HOST, "write"))
    }
}

/// A small text file of the system.
fn read_all(parent: impl AsFd, path: &Path) -> rustix::io::Result<String> {
    text_of(&rustix::fs::openat(parent, path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(name: &str, boot: u8) -> HostIdentity {
        HostIdentity { machine: "m1".into(), name: name.into(), boot: [boot; 16] }
    }

    #[test]
    fn a_second_host_is_refused_and_the_first_is_named() {
        let directory = tempfile::tempdir().unwrap();
        let state = StateDirectory::make(&directory.path().join("state")).unwrap();
        state.claim_for(&host("alpha", 1)).unwrap();
        state.claim_for(&host("alpha", 2)).unwrap();
        state.claim_for(&host("renamed-in-the-same-boot", 2)).unwrap();
        state.claim_for(&host("alpha", 2)).unwrap();
        let said = state.claim_for(&host("beta", 3)).unwrap_err().to_string();
        assert!(said.contains("in use by host alpha") && said.contains("this is host beta"), "{said}");
        assert!(said.contains("state/host"), "names the file to delete: {said}");
        std::fs::remove_file(directory.path().join("state/host")).unwrap();
        state.claim_for(&host("beta", 3)).unwrap();
        let own = HostIdentity::of_this_host().unwrap();
        assert_ne!(own.boot, [0; 16]);
        assert_eq!(HostIdentity::parse(&own.to_text()), Some(own));
    }
}
