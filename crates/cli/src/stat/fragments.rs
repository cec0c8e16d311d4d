//! What `stat` shows of a file's fragments: where they go, how many, and what they were worth.

use crate::context::Context;
use crate::fragments::{FileFragments, fragments_of};
use anyhow::Result;
use serde::Serialize;
use stripewise::Store;
use stripewise::table::Table;
use stripewise_layout::figures::{bytes, grouped, number};
use stripewise_layout::{Cluster, FileId, ServerId};
use stripewise_store::protocol::FragmentStatus;
use stripewise_store::shared::fragments::Class;

#[derive(Serialize)]
pub(super) struct FragmentsShown {
    /// Whether they go to SSDs.
    on: bool,
    /// What was said of the file itself; null: as the cluster file says.
    set_by_file: Option<bool>,
    /// Whether room is set aside for any file's fragments.
    has_room: bool,
    /// Of each disk whose fragments have a log. Counted since the log was made, in this boot of the host.
    logs: Vec<LogShown>,
}

#[derive(Serialize)]
struct LogShown {
    disk: String,
    /// The SSD.
    on: String,
    slot_bytes: u64,
    /// Set aside for the fragments of all files on that disk; of it, what this file may fill now.
    room_bytes: u64,
    granted_bytes: u64,
    /// In whole slots: what the disk has too, and what is newer than the disk.
    clean_bytes: u64,
    dirty_bytes: u64,
    reads_served: u64,
    read_bytes: u64,
    writes_taken: u64,
    write_bytes: u64,
    copied_in: u64,
    written_back_bytes: u64,
    /// First and last parts of longer requests.
    fragments: ClassShown,
    /// Short requests.
    random: ClassShown,
}

#[derive(Serialize)]
struct ClassShown {
    admitted: u64,
    refused: u64,
    /// By how much the disk's time of a byte was longer than usual, of those admitted lately.
    mean_return_ns_per_byte: f64,
}

impl FragmentsShown {
    pub(super) fn look_at(store: &Store, file: FileId) -> Result<Self> {
        let FileFragments { on, set_by_file, servers } = fragments_of(store, file)?;
        let logs = servers.iter().map(|status| LogShown::of(&store.cluster, status)).collect();
        Ok(Self { on, set_by_file, has_room: store.cluster.has_fragment_capacity(), logs })
    }

    /// Nothing is printed where there is nothing to be said.
    pub(super) fn print(&self, context: &Context) -> Result<()> {
        let is_silent = !self.on && self.set_by_file.is_none() && self.logs.is_empty();
        if is_silent {
            return Ok(());
        }
        context.line(self.summary())?;
        if self.logs.is_empty() {
            return Ok(());
        }
        context.line(self.logs_table())?;
        context.line(self.classes_table())
    }

    fn summary(&self) -> String {
        let whose = if self.set_by_file.is_some() { "said of the file" } else { "as the cluster file says" };
        match (self.on, self.set_by_file, self.has_room) {
            (true, ..) => format!("fragments on, {whose}"),
            (false, Some(true), false) => "fragments off: the cluster file reserves no space".to_owned(),
            (false, ..) => format!("fragments off, {whose}"),
        }
    }

    fn logs_table(&self) -> Table {
        let headings =
            ["  disk", "on", ">on SSD", ">newer", ">of space", ">read", ">written", ">copied in", ">written back"];
        let mut table = Table::new(&headings);
        for log in &self.logs {
            let times = |count: u64, of_bytes: u64| format!("{} x, {}", grouped(count as i64), bytes(of_bytes));
            table.row([
                format!("  {}", log.disk),
                log.on.clone(),
                bytes(log.clean_bytes + log.dirty_bytes),
                bytes(log.dirty_bytes),
                bytes(log.room_bytes),
                times(log.reads_served, log.read_bytes),
                times(log.writes_taken, log.write_bytes),
                format!("{} x", grouped(log.copied_in as i64)),
                bytes(log.written_back_bytes),
            ]);
        }
        table
    }

    fn classes_table(&self) -> Table {
        let mut table = Table::new(&["  disk", "of what", ">admitted", ">refused", ">mean return"]);
        for log in &self.logs {
            for (what, class) in [("parts of requests", &log.fragments), ("short requests", &log.random)] {
                table.row([
                    format!("  {}", log.disk),
                    what.to_owned(),
                    grouped(class.admitted as i64),
                    grouped(class.refused as i64),
                    format!("{} ns/B", number(class.mean_return_ns_per_byte)),
                ]);
            }
        }
        table
    }
}

impl LogShown {
    fn of(cluster: &Cluster, status: &FragmentStatus) -> Self {
        let name = |number: u16| {
            cluster.server(ServerId(number)).map_or_else(|| number.to_string(), |server| server.name.clone())
        };
        let slot_bytes = u64::from(status.slot_bytes);
        let class = |class: Class| ClassShown {
            admitted: status.admitted[class as usize],
            refused: status.refused[class as usize],
            mean_return_ns_per_byte: status.mean_return_ns_per_byte[class as usize],
        };
        Self {
            disk: name(status.hserver),
            on: name(status.on),
            slot_bytes,
            room_bytes: cluster.fragment_log(ServerId(status.hserver)).map_or(0, |log| log.room.0),
            granted_bytes: status.slots * slot_bytes,
            clean_bytes: status.used.saturating_sub(status.dirty) * slot_bytes,
            dirty_bytes: status.dirty * slot_bytes,
            reads_served: status.read_hits,
            read_bytes: status.read_hit_bytes,
            writes_taken: status.write_hits,
            write_bytes: status.write_hit_bytes,
            copied_in: status.copied_in,
            written_back_bytes: status.written_back_bytes,
            fragments: class(Class::Fragment),
            random: class(Class::Random),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    fn shown(on: bool, set_by_file: Option<bool>) -> FragmentsShown {
        let text = "version = 1\nid = \"c\"\nstate = \"s\"\nfragment_room = \"1MiB\"\n\
            [[server]]\nname = \"h0\"\nclass = \"hdd\"\nurl = \"file://h\"\n\
            [[server]]\nname = \"s0\"\nclass = \"ssd\"\nurl = \"file://s\"\n";
        let cluster = Cluster::parse(text, Path::new("/x/cluster.toml")).unwrap();
        let status = FragmentStatus {
            hserver: 0,
            on: 1,
            slot_bytes: 32 << 10,
            slots: 16,
            used: 12,
            dirty: 4,
            read_hits: 1234,
            read_hit_bytes: 5 << 20,
            write_hits: 7,
            write_hit_bytes: 7000,
            copied_in: 9,
            written_back_bytes: 6 << 20,
            mean_return_ns_per_byte: [812.0, 0.0],
            admitted: [2100, 0],
            refused: [4, 50],
        };
        FragmentsShown { on, set_by_file, has_room: true, logs: vec![LogShown::of(&cluster, &status)] }
    }

    #[test]
    fn hits_bytes_and_returns_are_shown() {
        let shown = shown(true, Some(true));
        assert_eq!(shown.summary(), "fragments on, said of the file");
        assert_eq!(
            shown.logs_table().to_string(),
            "  disk  on   on SSD    newer  of space            read       written  copied in  written back\n\
             \u{20} h0    s0  384 KiB  128 KiB     1 MiB  1,234 x, 5 MiB  7 x, 6.8 KiB        9 x         6 MiB"
        );
        assert_eq!(
            shown.classes_table().to_string(),
            "  disk  of what            admitted  refused  mean return\n\
             \u{20} h0    parts of requests     2,100        4     812 ns/B\n\
             \u{20} h0    short requests            0       50       0 ns/B"
        );
        let json = serde_json::to_value(&shown).unwrap();
        assert_eq!(json["logs"][0]["clean_bytes"], 8 << 15);
        assert_eq!(json["logs"][0]["random"]["refused"], 50);
        assert_eq!(json["set_by_file"], true);
    }

    #[test]
    fn where_they_are_off_it_is_said_why() {
        assert_eq!(shown(true, None).summary(), "fragments on, as the cluster file says");
        assert_eq!(shown(false, None).summary(), "fragments off, as the cluster file says");
        assert_eq!(shown(false, Some(false)).summary(), "fragments off, said of the file");
        let without_room = FragmentsShown { has_room: false, ..shown(false, Some(true)) };
        assert_eq!(without_room.summary(), "fragments off: the cluster file reserves no space");
    }
}
