//! What `stat` prints of a file's fragments.

use crate::context::Context;
use anyhow::Result;
use stripewise::stat::FragmentsStat;
use stripewise::table::Table;
use stripewise_layout::figures::{bytes, grouped, number};

/// Nothing is printed where there is nothing to be said.
pub(super) fn print(context: &Context, stat: &FragmentsStat) -> Result<()> {
    let is_silent = !stat.on && stat.set_by_file.is_none() && stat.logs.is_empty();
    if is_silent {
        return Ok(());
    }
    context.line(summary(stat))?;
    if stat.logs.is_empty() {
        return Ok(());
    }
    context.line(logs_table(stat))?;
    context.line(classes_table(stat))
}

fn summary(stat: &FragmentsStat) -> String {
    let whose = if stat.set_by_file.is_some() { "said of the file" } else { "as the cluster file says" };
    match (stat.on, stat.set_by_file, stat.has_room) {
        (true, ..) => format!("fragments on, {whose}"),
        (false, Some(true), false) => "fragments off: the cluster file reserves no space".to_owned(),
        (false, ..) => format!("fragments off, {whose}"),
    }
}

fn logs_table(stat: &FragmentsStat) -> Table {
    let headings =
        ["  disk", "on", ">on SSD", ">newer", ">of space", ">read", ">written", ">copied in", ">written back"];
    let mut table = Table::new(&headings);
    for log in &stat.logs {
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

fn classes_table(stat: &FragmentsStat) -> Table {
    let mut table = Table::new(&["  disk", "of what", ">admitted", ">refused", ">mean return"]);
    for log in &stat.logs {
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;
    use stripewise::stat::FragmentLogStat;
    use stripewise_layout::Cluster;
    use stripewise_store::protocol::FragmentStatus;

    fn shown(on: bool, set_by_file: Option<bool>) -> FragmentsStat {
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
        FragmentsStat { on, set_by_file, has_room: true, logs: vec![FragmentLogStat::of(&cluster, &status)] }
    }

    #[test]
    fn hits_bytes_and_returns_are_shown() {
        let shown = shown(true, Some(true));
        assert_eq!(summary(&shown), "fragments on, said of the file");
        assert_eq!(
            logs_table(&shown).to_string(),
            "  disk  on   on SSD    newer  of space            read       written  copied in  written back\n\
             \u{20} h0    s0  384 KiB  128 KiB     1 MiB  1,234 x, 5 MiB  7 x, 6.8 KiB        9 x         6 MiB"
        );
        assert_eq!(
            classes_table(&shown).to_string(),
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
        assert_eq!(summary(&shown(true, None)), "fragments on, as the cluster file says");
        assert_eq!(summary(&shown(false, None)), "fragments off, as the cluster file says");
        assert_eq!(summary(&shown(false, Some(false))), "fragments off, said of the file");
        let without_room = FragmentsStat { has_room: false, ..shown(false, Some(true)) };
        assert_eq!(summary(&without_room), "fragments off: the cluster file reserves no space");
    }
}
