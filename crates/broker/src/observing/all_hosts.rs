//! What programs of all hosts of a cluster do: the master asks their agents, and adds what it sees of its own host.

use super::Observers;
use crate::accesses::Accesses;
use crate::connection::Answer;
use crate::guard;
use crate::host_messages::{FromAgent, ToAgent, decode, encode};
use crate::managed::Managed;
use crate::others::Line;
use std::collections::VecDeque;
use std::sync::Mutex;
use std::time::Duration;
use stripewise_layout::FileId;
use stripewise_store::protocol::{AccessedFile, HostAccesses, MAX_PACKET_BYTES, Refusal, Reply};

/// An agent that answers later is asked again the next time.
const PATIENCE: Duration = Duration::from_secs(1);
/// What an entry of each kind takes in a message at most, beside its path.
const FILE_BYTES: usize = 40;
const STREAM_BYTES: usize = 24;
const REQUEST_BYTES: usize = 20;

pub(super) struct AllHosts {
    own: Accesses,
    /// Gathered, and not handed over yet: host and file.
    gathered: Mutex<VecDeque<(String, AccessedFile)>>,
}

impl AllHosts {
    pub(super) fn new(own: Accesses) -> Self {
        Self { own, gathered: Mutex::default() }
    }

    /// See [`Accesses::see`].
    pub(super) fn see(&self, managed: &Managed) -> bool {
        self.own.see(managed)
    }
}

impl Observers {
    /// See [`stripewise_store::protocol::Admin::Accesses`]. Whoever asks takes what there is: a cluster has one daemon.
    pub(crate) fn accesses(&self) -> Answer {
        let mut gathered = guard(&self.all_hosts.gathered);
        if gathered.is_empty() {
            gathered.extend(self.gather()?);
        }
        let (mut hosts, mut bytes) = (Vec::<HostAccesses>::new(), 0);
        while let Some((host, mut file)) = gathered.pop_front() {
            if let Some(record) = self.context.table().file(file.file)? {
                file.path = record.path;
            } else {
                continue;
            }
            bytes += FILE_BYTES + host.len() + file.path.len();
            let of_stream = |requests: usize| STREAM_BYTES + requests * REQUEST_BYTES;
            bytes += file.streams.iter().map(|stream| of_stream(stream.requests.len())).sum::<usize>();
            if bytes > MAX_PACKET_BYTES && !hosts.is_empty() {
                gathered.push_front((host, file));
                break;
            }
            match hosts.last_mut().filter(|last| last.host == host) {
                Some(last) => last.files.push(file),
                None => hosts.push(HostAccesses { host, files: vec![file] }),
            }
        }
        let more = !gathered.is_empty();
        Ok((Reply::Accesses { hosts, more }, Vec::new()))
    }

    /// See [`stripewise_store::protocol::Admin::Sizes`].
    pub(crate) fn sizes(&self, files: &[FileId]) -> Answer {
        let size_of = |file: &FileId| -> Result<Option<u64>, Refusal> {
            match self.files.if_loaded(*file) {
                Some(managed) => Ok(Some(managed.extent.size_bytes())),
                None => Ok(self.context.table().file(*file)?.map(|record| record.size_bytes)),
            }
        };
        let sizes = files.iter().map(size_of).collect::<Result<_, Refusal>>()?;
        Ok((Reply::Sizes { sizes }, Vec::new()))
    }

    /// Asks all hosts, all of them together.
    fn gather(&self) -> Result<Vec<(String, AccessedFile)>, Refusal> {
        let (Some(others), Some(membership)) = (self.context.others(), self.context.membership()) else {
            return Err(Refusal::Invalid { what: "this cluster has one host; observe that".to_owned() });
        };
        let lines = others.lines();
        let question = encode(&ToAgent::Accesses);
        let ask = |line: &dyn Line| {
            let answer = line.ask(&question, PATIENCE).ok()?;
            match decode::<FromAgent>(&answer) {
                Ok(FromAgent::Accessed(files)) => Some(files),
                _ => None,
            }
        };
        let own = || self.all_hosts.own.take(|| self.open_files().unwrap_or_default());
        let answers = std::thread::scope(|scope| {
            let ask = &ask;
            let asked: Vec<_> = lines.iter().map(|(_, line)| scope.spawn(move || ask(line.as_ref()))).collect();
            let own = own();
            let answers = asked.into_iter().map(|asked| asked.join().ok().flatten().unwrap_or_default());
            std::iter::once(own).chain(answers).collect::<Vec<_>>()
        });
        let hosts = std::iter::once(membership.host().to_owned()).chain(lines.into_iter().map(|(host, _)| host));
        let of_host = |(host, files): (String, Vec<AccessedFile>)| {
            files.into_iter().flat_map(in_parts).map(move |file| (host.clone(), file))
        };
        Ok(hosts.zip(answers).flat_map(of_host).collect())
    }

    /// Ends what no daemon asks for any more.
    pub(crate) fn tidy_accesses(&self) {
        let open = |file: FileId| self.files.if_loaded(file);
        self.all_hosts.own.tidy(open);
    }
}

/// The same in parts that a packet holds each.
fn in_parts(file: AccessedFile) -> Vec<AccessedFile> {
    let (mut parts, mut bytes) = (Vec::new(), 0);
    let AccessedFile { file, path, region_bytes, size_bytes, streams } = file;
    let part = |streams| AccessedFile { file, path: path.clone(), region_bytes, size_bytes, streams };
    let mut of_part = Vec::new();
    for stream in streams {
        bytes += STREAM_BYTES + stream.requests.len() * REQUEST_BYTES;
        if bytes > MAX_PACKET_BYTES / 2 && !of_part.is_empty() {
            parts.push(part(std::mem::take(&mut of_part)));
            bytes = 0;
        }
        of_part.push(stream);
    }
    parts.push(part(of_part));
    parts
}
