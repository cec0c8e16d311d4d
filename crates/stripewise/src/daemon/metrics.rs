//! What the daemon tells Prometheus, in its text format.

use super::online::OnlineStatus;
use prometheus::{GaugeVec, IntCounterVec, Opts, Registry, TextEncoder};
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

/// Metrics of one moment. The daemon answers rarely, so a registry is filled for every answer and holds nothing that has ended.
struct Metrics(Registry);

impl Metrics {
    fn family(&self, name: &str, help: &str, labels: &[&str]) -> prometheus::Result<GaugeVec> {
        let family = GaugeVec::new(Opts::new(name, help), labels)?;
        self.0.register(Box::new(family.clone()))?;
        Ok(family)
    }

    fn gauge(&self, name: &str, help: &str, value: f64) -> prometheus::Result<()> {
        self.family(name, help, &[])?.with_label_values::<&str>(&[]).set(value);
        Ok(())
    }

    fn counters(&self, name: &str, help: &str, labels: &[&str]) -> prometheus::Result<IntCounterVec> {
        let family = IntCounterVec::new(Opts::new(name, help), labels)?;
        self.0.register(Box::new(family.clone()))?;
        Ok(family)
    }

    fn counter(&self, name: &str, help: &str, value: u64) -> prometheus::Result<()> {
        self.counters(name, help, &[])?.with_label_values::<&str>(&[]).inc_by(value);
        Ok(())
    }
}

/// Everything at this moment, families in the order of their names.
///
/// # Errors
///
/// Two metrics of one name, which is a fault of this module.
pub(super) fn text(
    cluster: &Cluster,
    status: &Status,
    moves: &MoveTotals,
    servers: &[ServerUsage],
) -> prometheus::Result<String> {
    let metrics = Metrics(Registry::new());
    let info =
        metrics.family("stripewise_info", "The cluster and the version of stripewise.", &["cluster", "version"])?;
    info.with_label_values(&[cluster.id.as_str(), env!("CARGO_PKG_VERSION")]).set(1.0);
    metrics.gauge(
        "stripewise_broker_start_time_seconds",
        "When the serving broker began; counters of moves begin with it.",
        moves.since_ns as f64 / 1e9,
    )?;
    metrics.gauge(
        "stripewise_serving",
        "1 if the daemon itself is the broker, 0 if it waits to follow another process.",
        status.is_broker.into(),
    )?;
    if let Some((window, windows)) = status.window {
        metrics.gauge("stripewise_plan_window", "The window of the plan that holds, from 0.", window as f64)?;
        metrics.gauge("stripewise_plan_windows", "Windows of the plan.", windows as f64)?;
    }
    if let Some(online) = &status.online {
        add_online(&metrics, online)?;
    }
    add_moves(&metrics, moves)?;
    add_servers(&metrics, cluster, servers)?;
    TextEncoder::new().encode_to_string(&metrics.0.gather())
}

fn add_online(metrics: &Metrics, online: &OnlineStatus) -> prometheus::Result<()> {
    metrics.counter(
        "stripewise_online_windows_total",
        "Windows that were planned for while programs ran.",
        online.windows,
    )?;
    metrics.counter(
        "stripewise_online_requests_total",
        "Reads and writes of programs in windows that have ended.",
        online.requests,
    )?;
    metrics.counter(
        "stripewise_online_requests_seen_total",
        "Those that were seen themselves; the others came too fast, and are taken to be like these.",
        online.requests_seen,
    )?;
    metrics.counter(
        "stripewise_online_moves_ordered_total",
        "Moves of regions that were ordered for it.",
        online.moves_ordered,
    )?;
    metrics.gauge(
        "stripewise_online_files",
        "Files whose use was seen and that are still there.",
        online.files as f64,
    )?;
    metrics.gauge("stripewise_online_plan_seconds", "What the last plan took to make.", online.plan_s)
}

fn add_moves(metrics: &Metrics, moves: &MoveTotals) -> prometheus::Result<()> {
    let states = metrics.family("stripewise_moves", "Moves of regions that have not ended.", &["state"])?;
    for (state, count) in [("queued", moves.queued), ("active", moves.active)] {
        states.with_label_values(&[state]).set(count as f64);
    }
    let ended = metrics.counters("stripewise_moves_ended_total", "Moves of regions that have ended.", &["state"])?;
    for (state, count) in [("done", moves.done), ("failed", moves.failed), ("cancelled", moves.cancelled)] {
        ended.with_label_values(&[state]).inc_by(count);
    }
    metrics.gauge("stripewise_moves_paused", "1 while moves are paused.", moves.paused.is_some().into())?;
    metrics.counter("stripewise_moved_bytes_total", "Bytes of regions that were moved.", moves.moved_bytes)?;
    metrics.counter(
        "stripewise_move_copied_bytes_total",
        "Bytes written by movers, those of unfinished moves and what had to be written again included.",
        moves.copied_bytes,
    )?;
    metrics.gauge(
        "stripewise_move_left_bytes",
        "Bytes that queued and active moves have yet to copy.",
        moves.left_bytes as f64,
    )
}

type ValueOf = fn(&ServerUsage) -> Option<f64>;

fn add_servers(metrics: &Metrics, cluster: &Cluster, servers: &[ServerUsage]) -> prometheus::Result<()> {
    let gauges: [(&str, &str, ValueOf); 5] = [
        ("stripewise_server_up", "1 if the server's directory can be used.", |usage| {
            Some(usage.fault.is_none().into())
        }),
        ("stripewise_server_promised_bytes", "Bytes that placed regions may come to occupy.", |usage| {
            Some(usage.promised_bytes as f64)
        }),
        ("stripewise_server_room_bytes", "Bytes that may be promised; only of servers with a capacity.", |usage| {
            usage.room_bytes.map(|bytes| bytes as f64)
        }),
        ("stripewise_server_drained", "1 if nothing new is placed on the server.", |usage| Some(usage.drained.into())),
        ("stripewise_server_objects", "Objects on the server.", |usage| Some(usage.objects as f64)),
    ];
    for (name, help, value_of) in gauges {
        let family = metrics.family(name, help, &["server", "class"])?;
        for (server, usage) in cluster.servers.iter().zip(servers) {
            if let Some(value) = value_of(usage) {
                family.with_label_values(&[usage.name.as_str(), &server.class.to_string()]).set(value);
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    const FAMILIES: [&str; 22] = [
        "stripewise_broker_start_time_seconds gauge",
        "stripewise_info gauge",
        "stripewise_move_copied_bytes_total counter",
        "stripewise_move_left_bytes gauge",
        "stripewise_moved_bytes_total counter",
        "stripewise_moves gauge",
        "stripewise_moves_ended_total counter",
        "stripewise_moves_paused gauge",
        "stripewise_online_files gauge",
        "stripewise_online_moves_ordered_total counter",
        "stripewise_online_plan_seconds gauge",
        "stripewise_online_requests_seen_total counter",
        "stripewise_online_requests_total counter",
        "stripewise_online_windows_total counter",
        "stripewise_plan_window gauge",
        "stripewise_plan_windows gauge",
        "stripewise_server_drained gauge",
        "stripewise_server_objects gauge",
        "stripewise_server_promised_bytes gauge",
        "stripewise_server_room_bytes gauge",
        "stripewise_server_up gauge",
        "stripewise_serving gauge",
    ];

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
            standing: Err("gone".into()),
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
        let found = text(&cluster, &status, &moves, &[usage(Some(7))]).unwrap();
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
            "stripewise_server_drained{class=\"ssd\",server=\"s0\"} 1",
            "stripewise_server_up{class=\"ssd\",server=\"s0\"} 0",
            "stripewise_server_promised_bytes{class=\"ssd\",server=\"s0\"} 5",
            "stripewise_server_room_bytes{class=\"ssd\",server=\"s0\"} 7",
        ] {
            assert!(found.lines().any(|found| found == line), "no `{line}` in\n{found}");
        }
        // Dashboards and alerts name these, so none may change or go.
        let kinds: Vec<&str> = found.lines().filter_map(|line| line.strip_prefix("# TYPE ")).collect();
        assert_eq!(kinds, FAMILIES);
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
        let found = text(&cluster, &status, &moves, &[usage(None)]).unwrap();
        assert!(!found.contains("plan_window") && !found.contains("stripewise_online"));
        assert!(!found.contains("stripewise_server_room_bytes{"));
    }
}
