//! Names of files and hosts by their hashes, and ranks of processes.

use super::super::gather::ProcessName;
use super::super::positions::{FileNumber, Paths};
use super::line::{Line, Word};
use std::collections::{BTreeSet, HashMap};
use std::fmt;
use stripewise_layout::figures::counted;

/// As it stands in the trace: a number, or text of later versions.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
enum Hash {
    Number(i128),
    Text(Box<str>),
}

impl fmt::Display for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) => write!(f, "{number}"),
            Self::Text(text) => f.write_str(text),
        }
    }
}

impl Hash {
    fn of(word: &Word<'_>) -> Option<Self> {
        match word {
            // What stands for none.
            Word::Number(0) | Word::Other => None,
            Word::Number(number) => Some(Self::Number(*number)),
            Word::Text(text) => Some(Self::Text(text.as_ref().into())),
        }
    }
}

#[derive(Default)]
pub(super) struct Names {
    of_files: HashMap<Hash, String>,
    of_hosts: HashMap<Hash, String>,
    /// By file of the trace, host where the line has it, and process.
    ranks: HashMap<(usize, Option<Hash>, u64), u32>,
    ranks_of_pids: HashMap<u64, BTreeSet<u32>>,
    most_rank: Option<u32>,
    paths: Paths,
    /// Hashes of several names: early versions have 16 bits.
    shared: BTreeSet<String>,
    nameless: BTreeSet<String>,
}

impl Names {
    /// What a line of metadata says.
    pub(super) fn take(&mut self, file: usize, line: &Line<'_>) {
        let (name, value) = (&line.args.name, &line.args.value);
        match &*line.name {
            "FH" => {
                let (Some(hash), Some(name)) = (Hash::of(value), name.text()) else { return };
                match self.of_files.get(&hash) {
                    Some(known) if known != name => {
                        self.shared.insert(known.clone());
                        self.shared.insert(name.to_owned());
                    }
                    Some(_) => {}
                    None => drop(self.of_files.insert(hash, name.to_owned())),
                }
            }
            "HH" => {
                if let (Some(hash), Some(name)) = (Hash::of(value), name.text()) {
                    self.of_hosts.insert(hash, name.to_owned());
                }
            }
            "PR" if name.text() == Some("rank") => {
                let rank = value.unsigned().and_then(|rank| u32::try_from(rank).ok());
                let (Some(rank), Some(pid)) = (rank, line.pid.unsigned()) else { return };
                self.ranks.insert((file, Hash::of(&line.args.hhash), pid), rank);
                self.ranks_of_pids.entry(pid).or_default().insert(rank);
                self.most_rank = self.most_rank.max(Some(rank));
            }
            _ => {}
        }
    }

    /// Ranks of the program; 0 where none is known.
    pub(super) fn mpi_size(&self) -> u32 {
        self.most_rank.map_or(0, |rank| rank.saturating_add(1))
    }

    /// The process of a line.
    pub(super) fn process(&self, file: usize, line: &Line<'_>) -> ProcessName {
        let host = Hash::of(&line.args.hhash);
        let pid = line.pid.unsigned().unwrap_or(0);
        let known = self.ranks.get(&(file, host.clone(), pid)).or_else(|| self.ranks.get(&(file, None, pid)));
        // Where the line of the rank is in another file of the same trace.
        let only = || self.ranks_of_pids.get(&pid).filter(|ranks| ranks.len() == 1).and_then(BTreeSet::first);
        let node = match (&host, line.args.hostname.text()) {
            (_, Some(name)) => name.to_owned(),
            (Some(hash), None) => self.of_hosts.get(hash).cloned().unwrap_or_else(|| format!("host-{hash}")),
            (None, None) => "dftracer".to_owned(),
        };
        ProcessName { node, pid: pid as u32, rank: known.or_else(only).copied() }
    }

    /// The file that a line is about; none where it names none.
    pub(super) fn file(&mut self, name: &Word<'_>, hash: &Word<'_>) -> Option<FileNumber> {
        if let Some(path) = name.text() {
            return Some(self.paths.number(path));
        }
        let hash = Hash::of(hash)?;
        if let Some(path) = self.of_files.get(&hash) {
            return Some(self.paths.number(path));
        }
        let path = format!("dftracer-{hash}");
        let number = self.paths.number(&path);
        self.nameless.insert(path);
        Some(number)
    }

    pub(super) fn paths(&self) -> &Paths {
        &self.paths
    }

    /// What the names leave open, one sentence each.
    pub(super) fn faults(&self) -> Vec<String> {
        let mut said = Vec::new();
        let used = self.shared.iter().filter(|name| self.paths.has(name)).count();
        if used > 0 {
            let files = counted(used, "file has its hash", "files have their hashes");
            said.push(format!("{files} in common with another, and all their calls count as that file's"));
        }
        if let Some(first) = self.nameless.first() {
            let files = counted(self.nameless.len(), "file has no name", "files have no name");
            said.push(format!("{files} in the trace and stand by their hashes, as {first}"));
        }
        said
    }
}
