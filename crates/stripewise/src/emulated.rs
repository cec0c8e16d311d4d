//! Emulated servers, as `--emulated` names them: so many of a named device each.

use crate::messages::shown;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use stripewise_device::{DeviceSpec, UnknownName, lookup_device, lookup_link};
use stripewise_layout::{ByteCount, MAX_SERVERS_PER_LAYOUT, Server, ServerClass};
use stripewise_store::server::emulated::EmulatedUrl;
use thiserror::Error;

/// `[COUNTx]DEVICE[:CAPACITY]`.
#[derive(Clone, PartialEq, Debug)]
pub struct EmulatedServers {
    count: usize,
    device: String,
    capacity: Option<ByteCount>,
}

impl FromStr for EmulatedServers {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (devices, capacity) = match text.split_once(':') {
            Some((devices, size)) => {
                (devices, Some(size.parse().map_err(|error: stripewise_layout::ParseSizeError| error.to_string())?))
            }
            None => (text, None),
        };
        let (count, device) = match devices.split_once('x') {
            Some((digits, device)) if !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit()) => {
                (digits.parse().map_err(|_| format!("`{digits}` is too many servers"))?, device)
            }
            _ => (1, devices),
        };
        if count == 0 {
            return Err(format!("`{text}` asks for no servers at all"));
        }
        // Before any memory is taken for them; all groups together are checked with the cluster.
        if count > MAX_SERVERS_PER_LAYOUT {
            return Err(format!("`{text}` asks for {count} servers; at most {MAX_SERVERS_PER_LAYOUT} are supported"));
        }
        lookup_device(device).map_err(|error| error.to_string())?;
        Ok(Self { count, device: device.to_owned(), capacity })
    }
}

/// One emulated server that has a name but no place yet.
#[derive(Clone, PartialEq, Debug)]
pub struct Unplaced {
    name: String,
    class: ServerClass,
    device: String,
    link: Option<String>,
    capacity: Option<ByteCount>,
}

impl Unplaced {
    /// The server with its objects in a directory of its name below `root`.
    pub fn at(&self, root: &Path) -> Server {
        let url =
            EmulatedUrl { device: self.device.clone(), link: self.link.clone(), time_scale: 1.0, dirty_limit: None };
        Server { capacity: self.capacity, ..Server::new(&self.name, self.class, url.at(&root.join(&self.name))) }
    }
}

/// The servers of all groups: `hdd0`, `hdd1` ..., `ssd0` ...; `emulated-hdd0` ... beside real ones.
///
/// # Errors
///
/// [`UnknownName`] of the link or of a group's device.
pub fn servers(
    groups: &[EmulatedServers],
    link: Option<&str>,
    real_servers: usize,
) -> Result<Vec<Unplaced>, UnknownName> {
    if let Some(name) = link {
        lookup_link(name)?;
    }
    let prefix = if real_servers > 0 { "emulated-" } else { "" };
    let (mut hdds, mut ssds) = (0, 0);
    let mut servers = Vec::new();
    for group in groups {
        let (class, number) = match lookup_device(&group.device)? {
            DeviceSpec::Hdd(_) => (ServerClass::Hdd, &mut hdds),
            DeviceSpec::Ssd(_) => (ServerClass::Ssd, &mut ssds),
        };
        for _ in 0..group.count {
            servers.push(Unplaced {
                name: format!("{prefix}{class}{number}"),
                class,
                device: group.device.clone(),
                link: link.map(str::to_owned),
                capacity: group.capacity,
            });
            *number += 1;
        }
    }
    Ok(servers)
}

/// Another cluster's servers may lie where those of this one would.
#[derive(Debug, Error)]
#[error("{} exists already; name another directory with --emulated-dir", shown(root))]
pub struct RootTaken {
    /// The directory that is taken.
    pub root: PathBuf,
}

/// Bytes that memory must have free before servers without a capacity are put there: a file of 1 GiB, twice over.
const MEMORY_WANTED_BYTES: u64 = 2 << 30;

/// Memory, where the servers' bytes fit: emulated time is true only while the machine is faster than the devices.
///
/// # Errors
///
/// [`RootTaken`] if the directory in memory exists already.
pub fn choose_root(base: &Path, id: &str, servers: &[Unplaced]) -> Result<PathBuf, RootTaken> {
    let default_root = base.join("servers");
    let memory = Path::new("/dev/shm");
    let stated: u64 = servers.iter().filter_map(|server| server.capacity).map(|capacity| capacity.0).sum();
    let wanted =
        if servers.iter().all(|server| server.capacity.is_some()) { stated } else { stated + MEMORY_WANTED_BYTES };
    let Ok(found) = rustix::fs::statvfs(memory) else { return Ok(default_root) };
    if found.f_bavail.saturating_mul(found.f_frsize) < wanted {
        return Ok(default_root);
    }
    let root = memory.join(format!("stripewise-{id}"));
    if root.exists() {
        return Err(RootTaken { root });
    }
    Ok(root)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_read_from_the_command_line() {
        let group: EmulatedServers = "12xhdd-7200".parse().unwrap();
        assert_eq!((group.count, group.device.as_str(), group.capacity), (12, "hdd-7200", None));
        let group: EmulatedServers = "nvme:1GiB".parse().unwrap();
        assert_eq!((group.count, group.device.as_str(), group.capacity), (1, "nvme", Some(ByteCount(1 << 30))));
        for (text, expected) in [
            ("0xnvme", "no servers"),
            ("257xnvme", "at most 256"),
            ("4xfloppy", "unknown device `floppy`; known: hdd-7200"),
            ("4xnvme:some", "`some` is not a size"),
        ] {
            let error = text.parse::<EmulatedServers>().unwrap_err();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }

    #[test]
    fn servers_are_numbered_by_class() {
        let groups = ["2xhdd-7200".parse().unwrap(), "nvme".parse().unwrap(), "paper-hdd".parse().unwrap()];
        let names = |real| -> Vec<String> {
            servers(&groups, Some("gigabit"), real).unwrap().into_iter().map(|server| server.name).collect()
        };
        assert_eq!(names(0), ["hdd0", "hdd1", "ssd0", "hdd2"]);
        assert_eq!(names(3)[0], "emulated-hdd0");
        assert!(servers(&groups, Some("string"), 0).unwrap_err().to_string().contains("unknown link `string`"));
    }
}
