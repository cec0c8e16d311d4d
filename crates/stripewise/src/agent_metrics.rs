//! What the agent of this host tells Prometheus, in its text format.
//!
//! A daemon serves that of its host behind its own metrics, and `stripewise host metrics` prints it, for a collector of text files. Both ask the process
//! that serves this host, whoever is master.

use crate::store::{Store, StoreError};
use prometheus::TextEncoder;
use prometheus::proto::{Bucket, Counter, Gauge, Histogram, LabelPair, Metric, MetricFamily, MetricType};
use stripewise_layout::{Cluster, Server};
use stripewise_store::protocol::{
    Admin, AgentReport, AgentRole, LATENCY_BOUNDS_US, QuestionCount, QuestionDirection, Reply, ServerIo,
};
use stripewise_store::server::is_by_agent;
use thiserror::Error;

/// Why metrics of this host's agent are not known.
#[derive(Debug, Error)]
pub enum AgentMetricsError {
    /// It cannot be asked.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The text cannot be made.
    #[error("writing metrics")]
    Text {
        /// Its cause.
        source: prometheus::Error,
    },
}

/// Metrics of this host's agent at this moment.
///
/// # Errors
///
/// [`AgentMetricsError`].
pub fn agent_metrics(store: &Store) -> Result<String, AgentMetricsError> {
    let Reply::Agent(report) = store.admin(Admin::Agent)? else {
        return Err(StoreError::Answer { question: "a question about this host's agent" }.into());
    };
    text(&store.cluster, &report).map_err(|source| AgentMetricsError::Text { source })
}

type Samples = Vec<Metric>;
type Labels<'a> = &'a [(&'a str, &'a str)];

fn labels(pairs: &[(&str, &str)]) -> Vec<LabelPair> {
    let label = |(name, value): &(&str, &str)| {
        let mut label = LabelPair::default();
        label.set_name((*name).to_owned());
        label.set_value((*value).to_owned());
        label
    };
    pairs.iter().map(label).collect()
}

fn gauge(pairs: &[(&str, &str)], value: f64) -> Metric {
    let mut gauge = Gauge::default();
    gauge.set_value(value);
    let mut metric = Metric::from_label(labels(pairs));
    metric.set_gauge(gauge);
    metric
}

fn counter(pairs: &[(&str, &str)], value: u64) -> Metric {
    let mut counter = Counter::default();
    counter.set_value(value as f64);
    let mut metric = Metric::from_label(labels(pairs));
    metric.set_counter(counter);
    metric
}

fn histogram(pairs: Labels<'_>, count: &QuestionCount) -> Metric {
    let mut below = 0;
    let bucket = |(bound_us, within): (&u64, &u64)| {
        below += within;
        let mut bucket = Bucket::default();
        bucket.set_upper_bound(*bound_us as f64 / 1e6);
        bucket.set_cumulative_count(below);
        bucket
    };
    let mut histogram = Histogram::default();
    histogram.set_bucket(LATENCY_BOUNDS_US.iter().zip(&count.buckets).map(bucket).collect());
    histogram.set_sample_count(count.count);
    histogram.set_sample_sum(count.total_ns as f64 / 1e9);
    let mut metric = Metric::from_label(labels(pairs));
    metric.set_histogram(histogram);
    metric
}

fn direction_of(direction: QuestionDirection) -> &'static str {
    match direction {
        QuestionDirection::ToMaster => "to_master",
        QuestionDirection::FromMaster => "from_master",
        QuestionDirection::ToAgent => "to_agent",
        QuestionDirection::FromAgent => "from_agent",
    }
}

/// Families with samples, in the order of their names.
pub(crate) fn text(cluster: &Cluster, report: &AgentReport) -> prometheus::Result<String> {
    let mut families = Vec::new();
    let mut add = |name: &str, help: &str, kind: MetricType, samples: Samples| {
        if samples.is_empty() {
            return;
        }
        let mut family = MetricFamily::default();
        family.set_name(format!("stripewise_agent_{name}"));
        family.set_help(help.to_owned());
        family.set_field_type(kind);
        family.set_metric(samples);
        families.push(family);
    };
    let (count, value) = (MetricType::COUNTER, MetricType::GAUGE);
    let elections = [("lost", report.elections_lost), ("won", report.elections_won)];
    let elections = elections.map(|(outcome, elections)| counter(&[("outcome", outcome)], elections));
    add("elections_total", "Elections that gave this host a role, by who won.", count, elections.to_vec());
    let fenced = vec![counter(&[], report.fenced_hosts)];
    add("fenced_hosts_total", "Hosts that this one shut out of the servers, as master.", count, fenced);
    add("files", "Files that programs of this host have open.", value, vec![gauge(&[], report.files as f64)]);
    let process = report.agent.process.to_string();
    let info = [("cluster", &*cluster.id), ("process", &process), ("version", &report.agent.version)];
    add("info", "The process that serves this host.", value, vec![gauge(&info, 1.0)]);
    add_io(&mut add, cluster, &report.servers);
    let is_master = f64::from(u8::from(report.role != AgentRole::Follower));
    let help = "1 if this host changes the mapping table: it is the master, or alone.";
    add("master", help, value, vec![gauge(&[], is_master)]);
    if let Some(moves) = &report.moves {
        let help = "Bytes of regions that were moved under this mastership.";
        add("moved_bytes_total", help, count, vec![counter(&[], moves.moved_bytes)]);
        let ended = [("cancelled", moves.cancelled), ("done", moves.done), ("failed", moves.failed)];
        let ended = ended.map(|(state, ended)| counter(&[("state", state)], ended)).to_vec();
        add("moves_ended_total", "Moves of regions that have ended under this mastership.", count, ended);
    }
    add_questions(&mut add, &report.questions);
    let help = "Links to a master after the first.";
    add("reconnects_total", help, count, vec![counter(&[], report.reconnects)]);
    let refusals = [("connection", report.refused_connections), ("request", report.refused_requests)];
    let refusals = refusals.map(|(what, refused)| counter(&[("what", what)], refused)).to_vec();
    let help = "Connections of other hosts and requests of programs here that were refused.";
    add("refusals_total", help, count, refusals);
    let since = vec![gauge(&[], report.agent.since_ns as f64 / 1e9)];
    add("start_time_seconds", "When the process began to serve this host; its counters begin with it.", value, since);
    TextEncoder::new().encode_to_string(&families)
}

type Add<'a> = dyn FnMut(&str, &str, MetricType, Samples) + 'a;

/// I/O of programs is the agent's on servers that programs cannot reach themselves.
fn add_io(add: &mut Add<'_>, cluster: &Cluster, all: &[ServerIo]) {
    let of_agent = || cluster.servers.iter().zip(all).filter(|(server, _)| is_by_agent(&server.url));
    type CountOf = fn(&ServerIo) -> u64;
    let samples = |operations: &[(&str, CountOf)]| -> Samples {
        let of_server = |(server, io): (&Server, &ServerIo)| -> Samples {
            let class = server.class.to_string();
            let of = |(operation, count_of): &(&str, CountOf)| {
                let pairs = [("class", &*class), ("operation", *operation), ("server", &*server.name)];
                counter(&pairs, count_of(io))
            };
            operations.iter().map(of).collect()
        };
        of_agent().flat_map(of_server).collect()
    };
    let help = "Bytes that this agent read and wrote for programs.";
    let bytes: [(&str, CountOf); 2] = [("read", |io| io.read_bytes), ("write", |io| io.written_bytes)];
    add("io_bytes_total", help, MetricType::COUNTER, samples(&bytes));
    let failed = |(server, io): (&Server, &ServerIo)| {
        counter(&[("class", &server.class.to_string()), ("server", &server.name)], io.failed)
    };
    let help = "Operations for programs that failed.";
    add("io_failures_total", help, MetricType::COUNTER, of_agent().map(failed).collect());
    let operations: [(&str, CountOf); 3] =
        [("read", |io| io.reads), ("sync", |io| io.syncs), ("write", |io| io.writes)];
    let help = "Operations for programs that ended well.";
    add("io_operations_total", help, MetricType::COUNTER, samples(&operations));
}

fn add_questions(add: &mut Add<'_>, questions: &[QuestionCount]) {
    let samples = |sample: fn(Labels<'_>, &QuestionCount) -> Metric| -> Samples {
        let of = |question: &QuestionCount| {
            sample(&[("direction", direction_of(question.direction)), ("kind", &question.kind)], question)
        };
        questions.iter().map(of).collect()
    };
    let help = "Questions between agents that failed: without an answer, or, asked of this one, refused.";
    add("question_failures_total", help, MetricType::COUNTER, samples(|pairs, of| counter(pairs, of.failed)));
    let help = "From a question to its answer; of those that this agent was asked, what answering took.";
    add("question_seconds", help, MetricType::HISTOGRAM, samples(histogram));
    let help = "Questions between agents; each is two messages, the second its answer.";
    add("questions_total", help, MetricType::COUNTER, samples(|pairs, of| counter(pairs, of.count)));
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;
    use stripewise_store::protocol::{AgentInfo, MoveTotals};

    const FAMILIES: [&str; 16] = [
        "stripewise_agent_elections_total counter",
        "stripewise_agent_fenced_hosts_total counter",
        "stripewise_agent_files gauge",
        "stripewise_agent_info gauge",
        "stripewise_agent_io_bytes_total counter",
        "stripewise_agent_io_failures_total counter",
        "stripewise_agent_io_operations_total counter",
        "stripewise_agent_master gauge",
        "stripewise_agent_moved_bytes_total counter",
        "stripewise_agent_moves_ended_total counter",
        "stripewise_agent_question_failures_total counter",
        "stripewise_agent_question_seconds histogram",
        "stripewise_agent_questions_total counter",
        "stripewise_agent_reconnects_total counter",
        "stripewise_agent_refusals_total counter",
        "stripewise_agent_start_time_seconds gauge",
    ];

    fn cluster() -> Cluster {
        let toml = "version = 1\nid = \"c\"\nstate = \"s\"\n\
            [[server]]\nname = \"p\"\nclass = \"ssd\"\nurl = \"rados://pool\"\n\
            [[server]]\nname = \"d\"\nclass = \"hdd\"\nurl = \"file:///d\"\n";
        Cluster::parse(toml, Path::new("/x/cluster.toml")).unwrap()
    }

    fn report() -> AgentReport {
        let mut buckets = vec![0; LATENCY_BOUNDS_US.len() + 1];
        (buckets[0], buckets[2], buckets[LATENCY_BOUNDS_US.len()]) = (3, 1, 1);
        let (direction, kind) = (QuestionDirection::ToMaster, "open".to_owned());
        let open = QuestionCount { direction, kind, count: 5, failed: 1, total_ns: 1_500_000_000, buckets };
        let io = ServerIo { reads: 4, read_bytes: 4096, writes: 2, written_bytes: 20, syncs: 1, failed: 7 };
        AgentReport {
            agent: AgentInfo { process: 77, version: "1.2.3".to_owned(), since_ns: 2_000_000_000 },
            role: AgentRole::Follower,
            files: 9,
            questions: vec![open],
            reconnects: 2,
            elections_won: 1,
            elections_lost: 3,
            fenced_hosts: 4,
            refused_requests: 5,
            refused_connections: 6,
            servers: vec![io, io],
            moves: Some(MoveTotals { done: 8, moved_bytes: 800, ..MoveTotals::default() }),
        }
    }

    #[test]
    fn the_text_is_as_prometheus_reads_it_and_every_count_is_in_it() {
        let found = text(&cluster(), &report()).unwrap();
        for line in [
            "stripewise_agent_info{cluster=\"c\",process=\"77\",version=\"1.2.3\"} 1",
            "stripewise_agent_start_time_seconds 2",
            "stripewise_agent_master 0",
            "stripewise_agent_files 9",
            "stripewise_agent_elections_total{outcome=\"won\"} 1",
            "stripewise_agent_elections_total{outcome=\"lost\"} 3",
            "stripewise_agent_fenced_hosts_total 4",
            "stripewise_agent_reconnects_total 2",
            "stripewise_agent_refusals_total{what=\"request\"} 5",
            "stripewise_agent_refusals_total{what=\"connection\"} 6",
            "stripewise_agent_moves_ended_total{state=\"done\"} 8",
            "stripewise_agent_moved_bytes_total 800",
            "stripewise_agent_io_operations_total{class=\"ssd\",operation=\"sync\",server=\"p\"} 1",
            "stripewise_agent_io_bytes_total{class=\"ssd\",operation=\"write\",server=\"p\"} 20",
            "stripewise_agent_io_failures_total{class=\"ssd\",server=\"p\"} 7",
            "stripewise_agent_questions_total{direction=\"to_master\",kind=\"open\"} 5",
            "stripewise_agent_question_failures_total{direction=\"to_master\",kind=\"open\"} 1",
            "stripewise_agent_question_seconds_bucket{direction=\"to_master\",kind=\"open\",le=\"0.0001\"} 3",
            "stripewise_agent_question_seconds_bucket{direction=\"to_master\",kind=\"open\",le=\"0.0005\"} 4",
            "stripewise_agent_question_seconds_bucket{direction=\"to_master\",kind=\"open\",le=\"10\"} 4",
            "stripewise_agent_question_seconds_bucket{direction=\"to_master\",kind=\"open\",le=\"+Inf\"} 5",
            "stripewise_agent_question_seconds_sum{direction=\"to_master\",kind=\"open\"} 1.5",
            "stripewise_agent_question_seconds_count{direction=\"to_master\",kind=\"open\"} 5",
        ] {
            assert!(found.lines().any(|found| found == line), "no `{line}` in\n{found}");
        }
        // Dashboards and alerts name these, so none may change or go.
        let kinds: Vec<&str> = found.lines().filter_map(|line| line.strip_prefix("# TYPE ")).collect();
        assert_eq!(kinds, FAMILIES);
        assert!(!found.contains("server=\"d\""), "programs reach directories themselves:\n{found}");
    }

    #[test]
    fn what_there_is_none_of_has_no_family() {
        let report = AgentReport { questions: Vec::new(), moves: None, servers: Vec::new(), ..report() };
        let found = text(&cluster(), &report).unwrap();
        assert!(!found.contains("question") && !found.contains("move") && !found.contains("_io_"), "{found}");
    }
}
