//! What the daemon tells Prometheus, in its text format.

use super::online::OnlineStatus;
use std::fmt::Write;
use stripewise_layout::Cluster;
use stripewise_store::protocol::{MoveTotals, ServerUsage};

pub(super) const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// What others are told.
#[derive(Clone, Default, PartialEq, Debug)]
pub(super) struct Status {
    pub(super) is_broker: bool,
    /// The window of the plan that holds, and how many there are.
    pub(super) window: Option<(usize, usize)>,
    pub(super) online: Option<OnlineStatus>,
}

/// Text under construction.
struct Text(String);

impl Text {
    fn family(&mut self, name: &str, kind: &str, help: &str) {
        let _ = write!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}\n");
    }

    fn sample(&mut self, name: &str, labels: &[(&str, &str)], value: impl std::fmt::Display) {
        self.0.push_str(name);
        for (number, (label, of)) in labels.iter().enumerate() {
            let _ = write!(self.0, "{}{label}=\"{}\"", if number == 0 { '{' } else { ',' }, escaped(of));
        }
        let end = if labels.is_empty() { "" } else { "}" };
        let _ = writeln!(self.0, "{end} {value}");
    }

    fn single(&mut self, name: &str, kind: &str, help: &str, value: impl std::fmt::Display) {
        self.family(name, kind, help);
        self.sample(name, &[], value);
    }
}

/// A label's value, as the format wants it.
fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

/// Everything at this moment.
pub(super) fn text(cluster: &Cluster, status: &Status, moves: &MoveTotals, servers: &[ServerUsage]) -> String {
    let mut text = Text(String::new());
    text.family("stripewise_info", "gauge", "The cluster and the version of stripewise.");
    text.sample("stripewise_info", &[("cluster", &cluster.id), ("version", env!("CARGO_PKG_VERSION"))], 1);
    text.single(
        "stripewise_broker_start_time_seconds",
        "gauge",
        "When the serving broker began; counters of moves begin with it.",
        moves.since_ns as f64 / 1e9,
    );
    text.single(
        "stripewise_serving",
        "gauge",
        "1 if the daemon itself is the broker, 0 if it waits to follow another process.",
        u8::from(status.is_broker),
    );
    if let Some((window, windows)) = status.window {
        text.single("stripewise_plan_window", "gauge", "The window of the plan that holds, from 0.", window);
        text.single("stripewise_plan_windows", "gauge", "Windows of the plan.", windows);
    }
    if let Some(online) = &status.online {
        online_text(&mut text, online);
    }
    text.family("stripewise_moves", "gauge", "Moves of regions that have not ended.");
    text.sample("stripewise_moves", &[("state", "queued")], moves.queued);
    text.sample("stripewise_moves", &[("state", "active")], moves.active);
    text.family("stripewise_moves_ended_total", "counter", "Moves of regions that have ended.");
    for (state, count) in [("done", moves.done), ("failed", moves.failed), ("cancelled", moves.cancelled)] {
        text.sample("stripewise_moves_ended_total", &[("state", state)], count);
    }
    let paused = u8::from(moves.paused.is_some());
    text.single("stripewise_moves_paused", "gauge", "1 while moves are paused.", paused);
    text.single("stripewise_moved_bytes_total", "counter", "Bytes of regions that were moved.", moves.moved_bytes);
    text.single(
        "stripewise_move_copied_bytes_total",
        "counter",
        "Bytes written by movers, those of unfinished moves and what had to be written again included.",
        moves.copied_bytes,
    );
    text.single(
        "stripewise_move_left_bytes",
        "gauge",
        "Bytes that queued and active moves have yet to copy.",
        moves.left_bytes,
    );
    servers_text(&mut text, cluster, servers);
    text.0
}

fn online_text(text: &mut Text, online: &OnlineStatus) {
    let mut counter = |name: &str, help: &str, value: u64| text.single(name, "counter", help, value);
    counter("stripewise_online_windows_total", "Windows that were planned for while programs ran.", online.windows);
    counter(
        "stripewise_online_requests_total",
        "Reads and writes of programs in windows that have ended.",
        online.requests,
    );
    counter(
        "stripewise_online_requests_seen_total",
        "Those that were seen themselves; the others came too fast, and are taken to be like these.",
        online.requests_seen,
    );
    counter(
        "stripewise_online_moves_ordered_total",
        "Moves of regions that were ordered for it.",
        online.moves_ordered,
    );
    text.single("stripewise_online_files", "gauge", "Files whose use was seen and that are still there.", online.files);
    text.single("stripewise_online_plan_seconds", "gauge", "What the last plan took to make.", online.plan_s);
}

fn servers_text(text: &mut Text, cluster: &Cluster, servers: &[ServerUsage]) {
    let each = |text: &mut Text, name: &str, help: &str, value: &dyn Fn(&ServerUsage) -> Option<u64>| {
        text.family(name, "gauge", help);
        for (server, usage) in cluster.servers.iter().zip(servers) {
            if let Some(value) = value(usage) {
                let class = server.class.to_string();
                text.sample(name, &[("server", &usage.name), ("class", &class)], value);
            }
        }
    };
    each(text, "stripewise_server_up", "1 if the server's directory can be used.", &|usage| {
        Some(u64::from(usage.fault.is_none()))
    });
    each(text, "stripewise_server_promised_bytes", "Bytes that placed regions may come to occupy.", &|usage| {
        Some(usage.promised_bytes)
    });
    each(
        text,
        "stripewise_server_room_bytes",
        "Bytes that may be promised; only of servers with a capacity.",
        &|usage| usage.room_bytes,
    );
    each(text, "stripewise_server_drained", "1 if nothing new is placed on the server.", &|usage| {
        Some(u64::from(usage.drained))
    });
    each(text, "stripewise_server_objects", "Objects on the server.", &|usage| Some(usage.objects));
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    #[test]
    fn the_text_is_as_prometheus_reads_it() {
        let toml =
            "version = 1\nid = \"c\"\nstate = \"s\"\n[[server]]\nname = \"s0\"\nclass = \"ssd\"\nurl = \"file:///s\"\n";
        let mut cluster = Cluster::parse(toml, Path::new("/x/cluster.toml")).unwrap();
        cluster.id = "odd \"id\"\\\n".into();
        let usage = |room_bytes| ServerUsage {
            name: "s0".into(),
            promised_bytes: 5,
            room_bytes,
            objects: 2,
            drained: true,
            fault: Some("gone".into()),
            silent_s: None,
        };
        let moves = MoveTotals { queued: 3, failed: 1, paused: Some("why".into()), ..MoveTotals::default() };
        let online = OnlineStatus {
            policy: stripewise_planner::PolicyName::Opt,
            window_s: 60.0,
            windows: 9,
            files: 2,
            requests: 700,
            requests_seen: 650,
            window_requests: 70,
            window_requests_seen: 65,
            moves_ordered: 11,
            last: "nothing was worth a move".into(),
            plan_s: 0.5,
        };
        let status = Status { is_broker: true, window: Some((1, 4)), online: Some(online) };
        let found = text(&cluster, &status, &moves, &[usage(Some(7))]);
        for line in [
            concat!("stripewise_info{cluster=\"odd \\\"id\\\"\\\\\\n\",version=\"", env!("CARGO_PKG_VERSION"), "\"} 1"),
            "stripewise_moves{state=\"queued\"} 3",
            "stripewise_moves_ended_total{state=\"failed\"} 1",
            "stripewise_moves_paused 1",
            "stripewise_plan_window 1",
            "stripewise_online_windows_total 9",
            "stripewise_online_requests_total 700",
            "stripewise_online_requests_seen_total 650",
            "stripewise_online_moves_ordered_total 11",
            "stripewise_online_files 2",
            "stripewise_online_plan_seconds 0.5",
            "stripewise_server_drained{server=\"s0\",class=\"ssd\"} 1",
            "stripewise_server_up{server=\"s0\",class=\"ssd\"} 0",
            "stripewise_server_promised_bytes{server=\"s0\",class=\"ssd\"} 5",
            "stripewise_server_room_bytes{server=\"s0\",class=\"ssd\"} 7",
        ] {
            assert!(found.lines().any(|found| found == line), "no `{line}` in\n{found}");
        }
        // Every sample belongs to a family that was declared before it.
        let mut family = "";
        for line in found.lines() {
            match line.strip_prefix("# TYPE ") {
                Some(declared) => family = declared.split(' ').next().unwrap(),
                None if line.starts_with('#') => {}
                None => assert_eq!(line.split(['{', ' ']).next(), Some(family), "{line}"),
            }
        }
        let status = Status { is_broker: false, window: None, online: None };
        let found = text(&cluster, &status, &moves, &[usage(None)]);
        assert!(!found.contains("plan_window") && !found.contains("stripewise_online"));
        assert!(!found.contains("stripewise_server_room_bytes{"));
    }
}
