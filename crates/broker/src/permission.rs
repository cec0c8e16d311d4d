//! Whether the user at the other end of a connection may change names in a directory.
//!
//! A descriptor of a directory proves nothing of the kind: whoever may pass through it can open it with `O_PATH`, and every stub in it. So what is
//! said of a name is taken only from a user whom the kernel would let change it, by the directory's owner, mode and access control list, and by
//! the rule of directories with the sticky bit. The user's numbers are those that the kernel noted when the connection was made.

use crate::connection::{Connection, End};
use crate::proof::Facts;
use crate::rmt::Place;
use rustix::fd::{AsFd, AsRawFd, OwnedFd};
use rustix::fs::Mode;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use stripewise_store::protocol::Refusal;

const WRITE_AND_PASS: u16 = 0o3;

/// Groups of one process, the most that Linux allows.
const MAX_GROUPS: usize = 65_536;

const USER_OWNER: u16 = 0x01;
const USER: u16 = 0x02;
const GROUP_OWNER: u16 = 0x04;
const GROUP: u16 = 0x08;
const MASK: u16 = 0x10;
const OTHERS: u16 = 0x20;

/// One line of an access control list, as `system.posix_acl_access` has it.
#[derive(Clone, Copy)]
struct Entry {
    tag: u16,
    permits: u16,
    id: u32,
}

/// Who asks.
struct Asking<'a> {
    uid: u32,
    groups: &'a [u32],
}

impl Connection {
    /// Refused unless the user may take the place's name away, or give it to a file.
    pub(crate) fn may_change(&self, directory: &OwnedFd, place: &Place) -> Result<(), Refusal> {
        let uid = self.peer.uid;
        // Who could end this process may as well change what it keeps.
        if uid.is_root() || uid == rustix::process::geteuid() {
            return Ok(());
        }
        let fault = |errno| Refusal::Invalid {
            what: format!("{}: cannot look at its directory: {errno}", String::from_utf8_lossy(&place.path)),
        };
        let found = rustix::fs::fstat(directory).map_err(fault)?;
        let entries = match access_list(directory) {
            Some(entries) => entries,
            None => entries_of(found.st_mode),
        };
        let asking = Asking { uid: uid.as_raw(), groups: self.groups() };
        if !asking.is_permitted(&entries, (found.st_uid, found.st_gid), WRITE_AND_PASS) {
            return Err(Refusal::NotPermitted);
        }
        if Mode::from_raw_mode(found.st_mode).contains(Mode::SVTX) && found.st_uid != asking.uid {
            let standing = Facts::at_name(directory, OsStr::from_bytes(&place.name)).map_err(fault)?;
            if standing.is_some_and(|facts| facts.ownership.uid != asking.uid) {
                return Err(Refusal::NotPermitted);
            }
        }
        Ok(())
    }

    fn groups(&self) -> &[u32] {
        self.groups.get_or_init(|| {
            let mut groups = match &self.end {
                End::Program(socket) => groups_of_peer(socket).unwrap_or_default(),
                End::Host(_) => Vec::new(),
            };
            groups.push(self.peer.gid.as_raw());
            groups
        })
    }
}

/// The further groups of the process that connected. `None` where the kernel does not tell, which is before 4.13.
fn groups_of_peer(socket: impl AsFd) -> Option<Vec<u32>> {
    let mut groups = vec![0u32; 64];
    loop {
        let mut bytes = libc::socklen_t::try_from(size_of_val(&groups[..])).ok()?;
        // SAFETY: the kernel writes at most that many bytes there, and the number that it has.
        let result = unsafe {
            libc::getsockopt(
                socket.as_fd().as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_PEERGROUPS,
                groups.as_mut_ptr().cast(),
                &raw mut bytes,
            )
        };
        let count = bytes as usize / size_of::<u32>();
        if result == 0 {
            groups.truncate(count);
            return Some(groups);
        }
        if count <= groups.len() || count > MAX_GROUPS {
            return None;
        }
        groups.resize(count, 0);
    }
}

/// The directory's access control list, if it has one.
fn access_list(directory: &OwnedFd) -> Option<Vec<Entry>> {
    const VERSION: u32 = 2;
    // By this name, since a descriptor that only passes through reads no attributes.
    let path = format!("/proc/self/fd/{}", directory.as_raw_fd());
    let mut bytes = vec![0; 64 << 10];
    let length = rustix::fs::getxattr(path, "system.posix_acl_access", &mut bytes[..]).ok()?;
    let (version, entries) = bytes.get(..length)?.split_first_chunk::<4>()?;
    if u32::from_le_bytes(*version) != VERSION {
        return None;
    }
    let (entries, []) = entries.as_chunks::<8>() else { return None };
    let entry = |bytes: &[u8; 8]| Entry {
        tag: u16::from_le_bytes([bytes[0], bytes[1]]),
        permits: u16::from_le_bytes([bytes[2], bytes[3]]),
        id: u32::from_le_bytes([bytes[4], bytes[5], bytes[6], bytes[7]]),
    };
    Some(entries.iter().map(entry).collect())
}

/// What the mode alone says.
fn entries_of(mode: u32) -> Vec<Entry> {
    let entry = |tag, shift: u32| Entry { tag, permits: ((mode >> shift) & 0o7) as u16, id: 0 };
    vec![entry(USER_OWNER, 6), entry(GROUP_OWNER, 3), entry(OTHERS, 0)]
}

impl Asking<'_> {
    /// As acl(5) has it: the first that concerns the user decides, and of groups any.
    fn is_permitted(&self, entries: &[Entry], (owner, group): (u32, u32), wanted: u16) -> bool {
        let of = |tag| entries.iter().filter(move |entry| entry.tag == tag);
        let mask = of(MASK).map(|entry| entry.permits).next().unwrap_or(0o7);
        let permits = |permits: u16| permits & wanted == wanted;
        if self.uid == owner {
            return of(USER_OWNER).any(|entry| permits(entry.permits));
        }
        if let Some(entry) = of(USER).find(|entry| entry.id == self.uid) {
            return permits(entry.permits & mask);
        }
        let owners = of(GROUP_OWNER).filter(|_| self.groups.contains(&group));
        let named = of(GROUP).filter(|entry| self.groups.contains(&entry.id));
        let mut of_groups = owners.chain(named).peekable();
        if of_groups.peek().is_some() {
            return of_groups.any(|entry| permits(entry.permits & mask));
        }
        of(OTHERS).any(|entry| permits(entry.permits))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWNER: (u32, u32) = (1, 10);

    fn may_write(uid: u32, groups: &[u32], entries: &[Entry]) -> bool {
        Asking { uid, groups }.is_permitted(entries, OWNER, WRITE_AND_PASS)
    }

    #[test]
    fn the_first_that_concerns_the_user_decides() {
        // Owner, group, others; whose are the bits.
        for (mode, owner, group, others) in [
            (0o755, true, false, false),
            (0o775, true, true, false),
            (0o777, true, true, true),
            (0o077, false, true, true),
            (0o707, true, false, true),
            // To write is not enough: a name is reached through the directory.
            (0o666, false, false, false),
        ] {
            let entries = entries_of(mode);
            let found = [may_write(1, &[10], &entries), may_write(2, &[9, 10], &entries), may_write(2, &[9], &entries)];
            assert_eq!(found, [owner, group, others], "{mode:o}");
        }
    }

    #[test]
    fn a_list_names_further_users_and_groups_up_to_its_mask() {
        let list = |mask| {
            [
                (USER_OWNER, 7, 0),
                (USER, 7, 2),
                (USER, 0, 3),
                (GROUP_OWNER, 5, 0),
                (GROUP, 7, 20),
                (MASK, mask, 0),
                (OTHERS, 7, 0),
            ]
            .map(|(tag, permits, id)| Entry { tag, permits, id })
        };
        let open = list(7);
        assert!(may_write(1, &[], &open) && may_write(2, &[], &open) && !may_write(3, &[20], &open));
        assert!(!may_write(4, &[10], &open) && may_write(4, &[10, 20], &open) && may_write(4, &[30], &open));
        let masked = list(5);
        assert!(may_write(1, &[], &masked) && !may_write(2, &[], &masked) && !may_write(4, &[20], &masked));
    }
}
