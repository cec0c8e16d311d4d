//! What two hosts see of each other's changes in a directory that both have mounted.
//!
//! Managed files rely on four properties of the mounts of their stubs and servers: a name that one host gives or takes is seen by the others at once;
//! so are the length of a file and its bytes, also next to bytes that the other has just written; and `fcntl` locks keep programs of other hosts out.
//! Mounts that cache may have none of them. A probe takes steps in turn on both hosts, and has each host look before the other changes anything, so that
//! what it saw can be in its cache.

mod acts;

pub(crate) use acts::{Act, Actor, Seen, What};

use acts::directory_here;
use stripewise_store::protocol::ProbedHost;

/// What a directory is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Purpose {
    Stubs,
    Server,
}

/// Whether two hosts can use the directory for that at once; an error says why not, and what helps.
pub(crate) fn check(found: &ProbedHost, directory: &str, purpose: Purpose) -> Result<(), String> {
    let names =
        (&found.names, "names that another host gives are not seen at once; on NFS mount with lookupcache=none");
    let data = (&found.data, "data that another host writes is not seen at once; mount without caching of data");
    let sizes = (&found.attributes, "the length of a file is not seen at once; on NFS mount with noac");
    let locks = (
        &found.locks,
        "fcntl locks do not reach other hosts; on Lustre mount with flock, on BeeGFS set tuneUseGlobalFileLocks, on NFS mount without nolock and local_lock",
    );
    let (needed, what) = match purpose {
        Purpose::Stubs => ([names, locks].to_vec(), "managed files"),
        Purpose::Server => ([names, data, sizes].to_vec(), "a server"),
    };
    match needed.iter().find_map(|(fault, remedy)| fault.as_ref().map(|fault| (fault, remedy))) {
        None => Ok(()),
        Some((fault, remedy)) => Err(format!(
            "{directory} cannot be a directory of {what} on several hosts: {remedy} ({fault}). `stripewise host probe {directory}` shows what hosts see there"
        )),
    }
}

/// How the other host is had do something.
type There<'a> = &'a dyn Fn(&Act) -> Result<Seen, String>;

/// Two hosts and a directory.
struct Probe<'a> {
    directory: String,
    inode: u64,
    names: [String; 2],
    hosts: [Side<'a>; 2],
}

struct Side<'a> {
    host: &'a str,
    perform: There<'a>,
}

/// Probes the directory from this host and another. An error: one of them could not take a step at all.
pub(crate) fn probe(
    directory: &str,
    (own, actor): (&str, &Actor),
    (other, there): (&str, There<'_>),
) -> Result<ProbedHost, String> {
    let (real, inode) = directory_here(directory).map_err(|what| format!("host {own} {what}"))?;
    let mut random = [0; 8];
    rustix::rand::getrandom(&mut random, rustix::rand::GetRandomFlags::empty()).map_err(|errno| errno.to_string())?;
    let name = format!(".stripewise-probe-{:016x}", u64::from_ne_bytes(random));
    let here: There<'_> = &|act| actor.perform(act);
    let probe = Probe {
        directory: real.to_string_lossy().into_owned(),
        inode,
        names: [name.clone(), format!("{name}-renamed")],
        hosts: [Side { host: own, perform: here }, Side { host: other, perform: there }],
    };
    let found = probe.run(other);
    for (host, name) in [(0, 0), (1, 0), (0, 1), (1, 1)] {
        // What stays is a small file; the probe's answer says what matters.
        let _ = probe.act(host, name, What::Remove);
    }
    found
}

impl Probe<'_> {
    fn act(&self, host: usize, name: usize, what: What) -> Result<Seen, String> {
        let act = Act { directory: self.directory.clone(), inode: self.inode, name: self.names[name].clone(), what };
        (self.hosts[host].perform)(&act).map_err(|what| format!("host {}: {what}", self.hosts[host].host))
    }

    fn run(&self, other: &str) -> Result<ProbedHost, String> {
        let mut found = ProbedHost { host: other.to_owned(), names: None, attributes: None, data: None, locks: None };
        for (a, b) in [(0, 1), (1, 0)] {
            if found.names.is_none() {
                found.names = self.names_of(a, b)?;
            }
        }
        self.act(0, 0, What::Create)?;
        // On a mount that keeps what it knows of names, the other host cannot open it yet.
        if let Err(what) = self.act(1, 0, What::Open) {
            found.names.get_or_insert(what.clone());
            return Ok(ProbedHost {
                attributes: Some(what.clone()),
                data: Some(what.clone()),
                locks: Some(what),
                ..found
            });
        }
        for (a, b) in [(0, 1), (1, 0)] {
            if found.attributes.is_none() {
                found.attributes = self.sizes_of(a, b)?;
            }
            if found.data.is_none() {
                found.data = self.data_of(a, b)?;
            }
        }
        // Where a lock cannot be taken at all, that is what is found.
        for (a, b) in [(0, 1), (1, 0)] {
            if found.locks.is_none() {
                found.locks = self.locks_of(a, b).unwrap_or_else(Some);
            }
        }
        Ok(found)
    }

    fn says(&self, a: usize, b: usize, what: &str) -> String {
        format!("host {} did not see {what} host {}", self.hosts[b].host, self.hosts[a].host)
    }

    fn exists(&self, host: usize, name: usize) -> Result<bool, String> {
        Ok(self.act(host, name, What::Exists)? == Seen::Is(true))
    }

    /// What `a` does to names, as `b` sees it.
    fn names_of(&self, a: usize, b: usize) -> Result<Option<String>, String> {
        let _ = (self.exists(b, 0)?, self.exists(b, 1)?);
        self.act(a, 0, What::Create)?;
        let is_seen = self.exists(b, 0)?;
        self.act(a, 0, What::Rename { to: self.names[1].clone() })?;
        let is_renamed = !self.exists(b, 0)? && self.exists(b, 1)?;
        self.act(a, 1, What::Remove)?;
        // It was made under the first name.
        self.act(a, 0, What::Remove)?;
        let is_removed = !self.exists(b, 1)?;
        let unseen =
            [(is_seen, "a file made by"), (is_renamed, "a file renamed by"), (is_removed, "a file removed by")];
        Ok(unseen.iter().find(|(is_seen, _)| !is_seen).map(|(_, what)| self.says(a, b, what)))
    }

    fn write(&self, host: usize, offset: u64, bytes: &[u8]) -> Result<(), String> {
        self.act(host, 0, What::Write { offset, bytes: bytes.to_vec() }).map(drop)
    }

    fn read(&self, host: usize, offset: u64, length: u32) -> Result<Vec<u8>, String> {
        match self.act(host, 0, What::Read { offset, length })? {
            Seen::Bytes(bytes) => Ok(bytes),
            other => Err(format!("host {} read {other:?}", self.hosts[host].host)),
        }
    }

    /// How long a file is that `a` writes, as `b` sees it.
    fn sizes_of(&self, a: usize, b: usize) -> Result<Option<String>, String> {
        let Seen::Sizes { open, .. } = self.act(b, 0, What::Sizes)? else { return Err("no size".to_owned()) };
        let end = open.max(8192) + 100;
        self.write(a, end - 100, &[b'.'; 100])?;
        let seen = self.act(b, 0, What::Sizes)?;
        Ok((seen != Seen::Sizes { open: end, named: end }).then(|| self.says(a, b, "the length of a file written by")))
    }

    /// What `a` writes, as `b` sees it: over what `b` has read, and next to what `b` has written, in one page.
    fn data_of(&self, a: usize, b: usize) -> Result<Option<String>, String> {
        self.write(a, 0, &[b'.'; 4096])?;
        self.read(b, 0, 4096)?;
        self.write(a, 100, b"aaaa")?;
        let is_seen = self.read(b, 0, 4096)?.get(100..104) == Some(b"aaaa");
        self.write(b, 104, b"b")?;
        self.write(a, 105, b"a")?;
        self.write(b, 106, b"b")?;
        let expected = Some(&b"aaaabab"[..]);
        let is_whole =
            [a, b].iter().all(|host| self.read(*host, 0, 4096).is_ok_and(|bytes| bytes.get(100..107) == expected));
        Ok(match (is_seen, is_whole) {
            (true, true) => None,
            (false, _) => Some(self.says(a, b, "bytes written by")),
            (true, false) => Some(self.says(a, b, "bytes written next to its own by")),
        })
    }

    /// Whether the lock of `a` keeps `b` out.
    fn locks_of(&self, a: usize, b: usize) -> Result<Option<String>, String> {
        if self.act(a, 0, What::Lock)? != Seen::Is(true) {
            return Ok(Some(format!("host {} did not get a lock that nobody has", self.hosts[a].host)));
        }
        let is_kept_out = self.act(b, 0, What::Lock)? == Seen::Is(false);
        self.act(b, 0, What::Unlock)?;
        self.act(a, 0, What::Unlock)?;
        let is_free = self.act(b, 0, What::Lock)? == Seen::Is(true);
        self.act(b, 0, What::Unlock)?;
        Ok(match (is_kept_out, is_free) {
            (true, true) => None,
            (false, _) => Some(self.says(a, b, "a lock of")),
            (true, false) => Some(self.says(a, b, "the end of a lock of")),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a mount of the other host does with an act.
    type Mount<'a> = &'a dyn Fn(&Actor, &Act) -> Result<Seen, String>;

    fn probed(mount: Mount<'_>) -> ProbedHost {
        let directory = tempfile::tempdir().unwrap();
        let (here, there) = (Actor::default(), Actor::default());
        let path = directory.path().to_str().unwrap();
        let found = probe(path, ("h0", &here), ("h1", &|act| mount(&there, act))).unwrap();
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0, "nothing is left behind");
        found
    }

    #[test]
    fn a_mount_that_hides_something_is_found_out_by_what_it_hides() {
        let directory = |found: &ProbedHost, purpose| check(found, "/x", purpose);
        // Of one process: only its locks do not keep each other out.
        let found = probed(&|actor, act| actor.perform(act));
        assert_eq!((&found.names, &found.attributes, &found.data), (&None, &None, &None));
        assert!(found.locks.as_ref().unwrap().contains("h1 did not see a lock of host h0"), "{found:?}");
        assert_eq!(directory(&found, Purpose::Server), Ok(()));
        let why = directory(&found, Purpose::Stubs).unwrap_err();
        assert!(why.contains("/x cannot be a directory of managed files on several hosts: fcntl locks"), "{why}");
        // It keeps what it knows of a name.
        let known = std::cell::RefCell::new(std::collections::HashMap::new());
        let found = probed(&|actor, act| match act.what {
            What::Exists => {
                let seen = actor.perform(act)?;
                Ok(known.borrow_mut().entry(act.name.clone()).or_insert(seen).clone())
            }
            _ => actor.perform(act),
        });
        assert!(found.names.as_ref().unwrap().contains("h1 did not see a file made by host h0"), "{found:?}");
        assert!(directory(&found, Purpose::Server).unwrap_err().contains("lookupcache"));
        // It keeps what it has read.
        let pages = std::cell::RefCell::new(None);
        let found = probed(&|actor, act| match act.what {
            What::Read { .. } => {
                let seen = actor.perform(act)?;
                Ok(pages.borrow_mut().get_or_insert(seen).clone())
            }
            _ => actor.perform(act),
        });
        assert!(found.data.as_ref().unwrap().contains("h1 did not see bytes written by host h0"), "{found:?}");
        assert!(directory(&found, Purpose::Server).unwrap_err().contains("caching of data"));
        // It writes whole pages back.
        let found = probed(&|actor, act| match &act.what {
            What::Write { offset, bytes } if bytes.len() == 1 => {
                let mut page = vec![b'.'; 200];
                page[*offset as usize..][..1].copy_from_slice(bytes);
                actor.perform(&Act { what: What::Write { offset: 0, bytes: page }, ..act.clone() })
            }
            _ => actor.perform(act),
        });
        assert!(found.data.is_some(), "{found:?}");
        // It has no locks.
        let found = probed(&|actor, act| match act.what {
            What::Lock => Err("locks of files are not to be had there".to_owned()),
            _ => actor.perform(act),
        });
        assert!(found.locks.as_ref().unwrap().contains("not to be had"), "{found:?}");
    }
}
