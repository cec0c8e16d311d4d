//! Watching programs of all hosts of a cluster: their agents read the memory, and the master adds up.

use super::{Noted, Watched, now_ms, unexpected};
use crate::client::{Client, ClientError};
use crate::protocol::{Access, Admin, Reply, Request};
use std::collections::BTreeMap;
use stripewise_layout::{FileId, FileOffset, RequestKind};

/// What one thread of a process of some host did on one file since it was asked last.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HostStream {
    /// Of the host; the same for as long as this observer lives.
    pub host: u32,
    /// The file read or written.
    pub file: FileId,
    /// Bytes of its regions.
    pub region_bytes: u64,
    /// As in [`super::Stream`], on its host.
    pub process: u16,
    /// As in [`super::Stream`].
    pub lane: u8,
    /// Those that are known, in the order in which they ended, by the clock of this host.
    pub requests: Vec<Noted>,
    /// As in [`super::Stream`].
    pub missed: u64,
}

/// Watches for as long as it asks.
pub struct HostsObserver {
    client: Client,
    hosts: Vec<String>,
    files: BTreeMap<FileId, Watched>,
}

impl HostsObserver {
    /// From here on processes of all hosts note their requests. The client's connection must be one of the broker's own user or root.
    ///
    /// # Errors
    /// Those of [`Self::read`].
    pub fn start(client: Client) -> Result<Self, ClientError> {
        let mut observer = Self { client, hosts: Vec::new(), files: BTreeMap::new() };
        observer.read(|_| {})?;
        Ok(observer)
    }

    /// Hands over what came since the last time. A host that does not answer says it later.
    ///
    /// # Errors
    /// Those of [`Client::request`].
    pub fn read(&mut self, mut see: impl FnMut(HostStream)) -> Result<(), ClientError> {
        loop {
            let (hosts, more) = match self.client.request(&Request::Admin(Admin::Accesses), &[])?.0 {
                Reply::Accesses { hosts, more } => (hosts, more),
                reply => return Err(unexpected("Accesses", &reply)),
            };
            let now_ms = now_ms();
            for of_host in hosts {
                let host = self.number_of(of_host.host);
                for accessed in of_host.files {
                    let (file, region_bytes) = (accessed.file, accessed.region_bytes);
                    let watched = self.files.entry(file).or_insert_with(|| Watched {
                        file,
                        path: String::new(),
                        region_bytes,
                        size_bytes: 0,
                    });
                    watched.path = accessed.path;
                    // One host may know of less than another.
                    watched.size_bytes = watched.size_bytes.max(accessed.size_bytes);
                    for stream in accessed.streams {
                        let requests = stream.requests.iter().map(|access| noted(access, now_ms)).collect();
                        let (process, lane, missed) = (stream.process, stream.lane, stream.missed);
                        see(HostStream { host, file, region_bytes, process, lane, requests, missed });
                    }
                }
            }
            if !more {
                return Ok(());
            }
        }
    }

    fn number_of(&mut self, host: String) -> u32 {
        let known = self.hosts.iter().position(|known| *known == host);
        let number = known.unwrap_or_else(|| {
            self.hosts.push(host);
            self.hosts.len() - 1
        });
        number as u32
    }

    /// Leaves files that are no more.
    ///
    /// # Errors
    /// Those of [`Client::request`].
    pub fn forget_gone(&mut self) -> Result<(), ClientError> {
        let known: Vec<FileId> = self.files.keys().copied().collect();
        for part in known.chunks(FILES_AT_ONCE) {
            let request = Request::Admin(Admin::Sizes { files: part.to_vec() });
            let sizes = match self.client.request(&request, &[])?.0 {
                Reply::Sizes { sizes } => sizes,
                reply => return Err(unexpected("Sizes", &reply)),
            };
            for (file, size_bytes) in part.iter().zip(sizes) {
                match (size_bytes, self.files.get_mut(file)) {
                    (Some(size_bytes), Some(watched)) => watched.size_bytes = size_bytes,
                    _ => drop(self.files.remove(file)),
                }
            }
        }
        Ok(())
    }

    /// All files that were seen to be accessed and that were there when [`Self::forget_gone`] was called last, in the order of their numbers.
    pub fn files(&self) -> impl Iterator<Item = Watched> {
        self.files.values().cloned()
    }
}

/// Files in one question.
const FILES_AT_ONCE: usize = 4096;

fn noted(access: &Access, now_ms: u32) -> Noted {
    let kind = RequestKind::ALL[usize::from(access.kind) % RequestKind::ALL.len()];
    let (offset, bytes) = (FileOffset(access.offset), access.bytes);
    Noted { kind, offset, bytes, time_ms: now_ms.wrapping_sub(access.age_ms) }
}
