//! `stripewise calibrate`: measure every server and the network, fit lines, write the profile.
//!
//! Emulated servers share nothing and are measured side by side; real directories may share a disk and are measured one after the other. What
//! is measured and how to read the result is told in `docs/profile.md`.

mod directory;
mod emulated;
mod measure;

use crate::context::Context;
use crate::output::Verdict;
use anyhow::{Context as _, Result, bail};
use clap::Args;
use directory::{DirectorySubject, Method};
use emulated::EmulatedSubject;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use measure::{Effort, LINK_LINES, LineSamples, SERVER_LINES, measure};
use rustix::fs::{Access, access};
use serde::Serialize;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};
use stripewise::table::Table;
use stripewise_layout::{ByteCount, Cluster, Direction, Order, Server, ServerId, ServerUrl};
use stripewise_model::fit::{Fit, Sample, fit};
use stripewise_model::{Line, NetworkProfile, NetworkSource, PROFILE_VERSION, Profile, ServerProfile};
use stripewise_store::server::ObjectStore;
use stripewise_store::server::directory::DirectoryServer;
use stripewise_store::server::emulated::{EmulatedServer, EmulatedSpec};
use stripewise_store::server::stations::{Parts, Stations};
use stripewise_store::state::StateDirectory;

/// Name of the profile beside the cluster file, unless another is given.
pub(crate) const PROFILE_FILE: &str = "profile.json";

/// A fit worse than this is pointed out.
const POOR_R2: f64 = 0.95;
const POOR_SPREAD: f64 = 0.25;

/// Measure startup and transfer times of every server and the network; write the profile
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  stripewise calibrate
  stripewise calibrate --quick -o /tmp/profile.json
  stripewise calibrate --network-e 300us --network-t 8.3ns   # directories of remote file systems")]
pub(crate) struct CalibrateArgs {
    /// Where the profile goes [default: profile.json beside the cluster file]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,

    /// Measure less: a smaller file, a few seconds for each directory
    #[arg(long)]
    quick: bool,

    /// Seconds for all directories together; each gets its share, and at least one round [default: 20 for each, --quick 4]
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(1..))]
    seconds: Option<u32>,

    /// Size of the scratch file in each directory; random accesses seek within it [default: 256MiB, --quick 64MiB]
    #[arg(long, value_name = "SIZE")]
    file_size: Option<ByteCount>,

    /// Time to set up one network connection (e), such as 300us; measured over emulated links, zero for directories
    #[arg(long, value_name = "TIME", value_parser = parse_time_s)]
    network_e: Option<f64>,

    /// Network time for each byte (t), such as 8.3ns; measured over emulated links, zero for directories
    #[arg(long, value_name = "TIME", value_parser = parse_time_s)]
    network_t: Option<f64>,
}

/// Emulated servers measured side by side: they sleep most of the time, but each holds some memory.
const MOST_AT_ONCE: usize = 32;

/// What and how much to measure.
#[derive(Clone, Debug)]
pub(crate) struct Options {
    /// For each real directory, filling the scratch file included.
    pub(crate) directory_budget: Duration,
    /// For each emulated server.
    pub(crate) emulated_budget: Duration,
    pub(crate) file_bytes: u64,
    pub(crate) most_rounds: u32,
    /// Rounds for emulated servers, whose times do not scatter.
    pub(crate) emulated_rounds: u32,
    pub(crate) network_e_s: Option<f64>,
    pub(crate) network_t_s_per_byte: Option<f64>,
}

impl Options {
    /// Enough for a profile to plan with.
    pub(crate) fn thorough() -> Self {
        Self {
            directory_budget: Duration::from_secs(20),
            emulated_budget: Duration::from_secs(8),
            file_bytes: 256 << 20,
            most_rounds: 200,
            emulated_rounds: 3,
            network_e_s: None,
            network_t_s_per_byte: None,
        }
    }

    /// Enough to see the kind of each server.
    pub(crate) fn quick() -> Self {
        Self { directory_budget: Duration::from_secs(4), file_bytes: 64 << 20, emulated_rounds: 1, ..Self::thorough() }
    }
}

/// A profile, and what a person should know of how it came about.
pub(crate) struct Calibration {
    pub(crate) profile: Profile,
    pub(crate) notes: Vec<String>,
}

/// What one server's measurement gave.
struct Measured {
    lines: Vec<(Direction, Order, Fit)>,
    /// The fit of the server's own emulated link.
    link: Option<Fit>,
    notes: Vec<String>,
}

/// Measures every server of `cluster`. `progress` is told the share done, 0 to 1, from any thread.
pub(crate) fn calibrate(cluster: &Cluster, options: &Options, progress: &(dyn Fn(f64) + Sync)) -> Result<Calibration> {
    for server in &cluster.servers {
        DirectoryServer::new(&cluster.id, &server.name, server.url.directory()).probe()?;
    }
    let is_emulated = cluster.servers.iter().any(|server| server.url.is_emulated());
    let stations = if is_emulated { Some(Arc::new(open_stations(cluster)?)) } else { None };
    let shares = Mutex::new(vec![0.0_f64; cluster.servers.len()]);
    let tell = |number: usize, share: f64| {
        let mut shares = shares.lock().expect("no thread panics while it holds the shares");
        shares[number] = share;
        progress(shares.iter().sum::<f64>() / shares.len() as f64);
    };
    let run = |number: usize, server: &Server| -> Result<Measured> {
        let tell = |share| tell(number, share);
        let measured = match &server.url {
            ServerUrl::File { directory } => measure_directory(directory, options, &tell),
            ServerUrl::Emulated { .. } => {
                let stations = stations.as_ref().expect("made for the first emulated server");
                measure_emulated(cluster, ServerId(number as u16), stations, options, &tell)
            }
        };
        measured.with_context(|| format!("server `{}`", server.name))
    };
    let (emulated, real): (Vec<usize>, Vec<usize>) =
        (0..cluster.servers.len()).partition(|&number| cluster.servers[number].url.is_emulated());
    let results: Vec<OnceLock<Result<Measured>>> = cluster.servers.iter().map(|_| OnceLock::new()).collect();
    let finish = |number: usize| drop(results[number].set(run(number, &cluster.servers[number])));
    let taken = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..emulated.len().min(MOST_AT_ONCE) {
            scope.spawn(|| {
                while let Some(&number) = emulated.get(taken.fetch_add(1, Relaxed)) {
                    finish(number);
                }
            });
        }
        // Emulated servers beside it take nothing from a directory but some of this machine's processors.
        real.into_iter().for_each(finish);
    });
    let measured = results
        .into_iter()
        .map(|result| result.into_inner().expect("every server was run"))
        .collect::<Result<Vec<_>>>()?;
    Ok(profile(cluster, options, &measured))
}

/// The emulated servers' clocks: those of the running broker, or new ones that the next broker will take over.
fn open_stations(cluster: &Cluster) -> Result<Stations> {
    let state = StateDirectory::open(&cluster.state)?;
    let file = Stations::establish_at(state.run(), "stations", cluster.servers.len())?;
    Ok(Stations::open(file, cluster.servers.len())?)
}

fn measure_directory(directory: &Path, options: &Options, progress: &dyn Fn(f64)) -> Result<Measured> {
    let begin = Instant::now();
    let seed = fresh_seed();
    let mut subject = DirectorySubject::prepare(directory, options.file_bytes, options.directory_budget / 4, seed)?;
    let budget = options.directory_budget.saturating_sub(begin.elapsed());
    let effort = Effort { most_rounds: options.most_rounds, budget };
    let lines = fits(measure(&mut subject, &SERVER_LINES, effort, seed, progress)?)?;
    let note = match subject.method() {
        Method::Direct => "measured with direct I/O",
        Method::Synchronous => {
            "the file system takes no direct I/O: measured with synchronous writes, and reads after dropping the page cache"
        }
    };
    Ok(Measured { lines, link: None, notes: vec![note.to_owned()] })
}

fn measure_emulated(
    cluster: &Cluster,
    number: ServerId,
    stations: &Arc<Stations>,
    options: &Options,
    progress: &dyn Fn(f64),
) -> Result<Measured> {
    let server = &cluster.servers[usize::from(number.0)];
    let ServerUrl::Emulated { directory, device, link, time_scale } = &server.url else {
        bail!("{} is not an emulated server", server.url);
    };
    let spec = EmulatedSpec::named(device, link.as_deref(), *time_scale)?;
    let measure_parts = |parts, lines: &[_], progress: &dyn Fn(f64)| -> Result<Vec<LineSamples>> {
        let inner = DirectoryServer::new(&cluster.id, &server.name, directory);
        let emulated = EmulatedServer::new(inner, Arc::clone(stations), number, spec);
        let seed = fresh_seed();
        let mut subject = EmulatedSubject::prepare(emulated, Arc::clone(stations), parts, directory, seed)?;
        let effort = Effort { most_rounds: options.emulated_rounds, budget: options.emulated_budget };
        measure(&mut subject, lines, effort, seed, progress)
    };
    let device_share = if link.is_some() { 0.8 } else { 1.0 };
    let lines = fits(measure_parts(Parts::Device, &SERVER_LINES, &|share| progress(share * device_share))?)?;
    let mut link_fit = None;
    if link.is_some() {
        let told = |share: f64| progress(device_share + share * (1.0 - device_share));
        let samples = measure_parts(Parts::Link, &LINK_LINES, &told)?;
        let samples: Vec<Sample> = samples.into_iter().flat_map(|line| line.samples).collect();
        link_fit = Some(fit(&samples)?);
    }
    let dilated = match *time_scale {
        1.0 => String::new(),
        scale => format!(", all times multiplied by {scale}"),
    };
    let notes = vec![format!("emulated {device}{dilated}")];
    Ok(Measured { lines, link: link_fit, notes })
}

/// Another number each time, so that no two calibrations touch the same places.
fn fresh_seed() -> u64 {
    RandomState::new().build_hasher().finish()
}

fn fits(measured: Vec<LineSamples>) -> Result<Vec<(Direction, Order, Fit)>> {
    measured.into_iter().map(|line| Ok((line.direction, line.order, fit(&line.samples)?))).collect()
}

fn profile(cluster: &Cluster, options: &Options, measured: &[Measured]) -> Calibration {
    let mut notes = Notes::default();
    let mut servers = Vec::new();
    for (server, measured) in cluster.servers.iter().zip(measured) {
        for note in &measured.notes {
            notes.add(&server.name, note);
        }
        let line = |direction, order| {
            let found = measured.lines.iter().find(|line| (line.0, line.1) == (direction, order));
            found.expect("all four lines are measured").2.line
        };
        for (direction, order, found) in &measured.lines {
            let Line { r2, spread, .. } = found.line;
            if r2 < POOR_R2 || spread > POOR_SPREAD {
                notes.add(
                    &server.name,
                    &format!(
                        "{} {} times do not lie on a line (R2 {r2:.3}, spread {:.0} %): is the server in use? \
                         calibrate again when it is idle, or with more --seconds",
                        name_of(*order),
                        name_of(*direction),
                        spread * 100.0
                    ),
                );
            }
        }
        servers.push(ServerProfile {
            name: server.name.clone(),
            class: server.class,
            read_sequential: line(Direction::Read, Order::Sequential),
            read_random: line(Direction::Read, Order::Random),
            write_sequential: line(Direction::Write, Order::Sequential),
            write_random: line(Direction::Write, Order::Random),
        });
    }
    let links: Vec<Line> = measured.iter().filter_map(|server| server.link.map(|fit| fit.line)).collect();
    let (network, note) = network(options, &links);
    let mut notes = notes.lines();
    notes.extend(note);
    let profile = Profile {
        version: PROFILE_VERSION,
        cluster: cluster.id.clone(),
        emulated: cluster.servers.iter().any(|server| server.url.is_emulated()),
        measured_at: jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
        servers,
        network,
    };
    Calibration { profile, notes }
}

/// e and t: as given, else of the measured links, else none.
fn network(options: &Options, links: &[Line]) -> (NetworkProfile, Option<String>) {
    let median = |value: fn(&Line) -> f64| {
        let mut values: Vec<f64> = links.iter().map(value).collect();
        values.sort_by(f64::total_cmp);
        values.get(values.len() / 2).copied().unwrap_or(0.0)
    };
    let (e_s, t_s_per_byte) = (median(|link| link.alpha_s), median(|link| link.beta_s_per_byte));
    let differ = links.iter().any(|link| {
        (link.alpha_s - e_s).abs() > 0.05 * e_s || (link.beta_s_per_byte - t_s_per_byte).abs() > 0.05 * t_s_per_byte
    });
    let note =
        differ.then(|| "the servers' links differ; the models know one network, so e and t are medians".to_owned());
    let source = match (options.network_e_s, options.network_t_s_per_byte) {
        (None, None) if links.is_empty() => NetworkSource::Local,
        (None, None) => NetworkSource::Measured,
        _ => NetworkSource::Given,
    };
    let network = NetworkProfile {
        e_s: options.network_e_s.unwrap_or(e_s),
        t_s_per_byte: options.network_t_s_per_byte.unwrap_or(t_s_per_byte),
        source,
    };
    (network, note)
}

/// Notes of servers; equal ones are said once.
#[derive(Default)]
struct Notes(Vec<(String, Vec<String>)>);

impl Notes {
    fn add(&mut self, server: &str, note: &str) {
        match self.0.iter_mut().find(|(known, _)| known == note) {
            Some((_, servers)) => servers.push(server.to_owned()),
            None => self.0.push((note.to_owned(), vec![server.to_owned()])),
        }
    }

    fn lines(&self) -> Vec<String> {
        self.0.iter().map(|(note, servers)| format!("{}: {note}", servers.join(", "))).collect()
    }
}

fn name_of(value: impl Serialize) -> String {
    serde_json::to_value(value).ok().and_then(|value| value.as_str().map(str::to_owned)).unwrap_or_default()
}

pub(crate) fn run(context: &Context, arguments: CalibrateArgs) -> Result<Verdict> {
    let cluster = context.session.cluster()?;
    let output =
        arguments.output.clone().unwrap_or_else(|| context.session.cluster_path().with_file_name(PROFILE_FILE));
    // Before minutes of measuring.
    let parent = output.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    access(parent, Access::WRITE_OK)
        .with_context(|| format!("cannot write into {}; name another place with -o", parent.display()))?;
    let bar = LateBar::new();
    let Calibration { profile, notes } = calibrate(&cluster, &arguments.options(&cluster), &|share| bar.show(share))?;
    bar.clear();
    profile.save(&output)?;
    for note in &notes {
        context.say(note);
    }
    if context.json {
        context.object(&Printed { path: &output, notes: &notes, profile: &profile })?;
    } else {
        print(context, &profile)?;
    }
    context.say(format!("wrote {}", output.display()));
    Ok(Verdict::Done)
}

impl CalibrateArgs {
    fn options(&self, cluster: &Cluster) -> Options {
        let mut options = if self.quick { Options::quick() } else { Options::thorough() };
        let directories = cluster.servers.iter().filter(|server| !server.url.is_emulated()).count() as u32;
        if let Some(seconds) = self.seconds {
            let seconds = Duration::from_secs(seconds.into());
            options.directory_budget = seconds / directories.max(1);
            options.emulated_budget = seconds;
        }
        options.file_bytes = self.file_size.map_or(options.file_bytes, |size| size.0);
        options.network_e_s = self.network_e;
        options.network_t_s_per_byte = self.network_t;
        options
    }
}

#[derive(Serialize)]
struct Printed<'a> {
    path: &'a Path,
    notes: &'a [String],
    profile: &'a Profile,
}

fn print(context: &Context, profile: &Profile) -> Result<()> {
    let mut table = Table::new(&["server", "class", "access", ">startup", ">MB/s", ">R2", ">spread", ">samples"]);
    for server in &profile.servers {
        for (direction, order) in SERVER_LINES {
            let line = server.line(direction, order);
            table.row([
                server.name.clone(),
                server.class.to_string(),
                format!("{} {}", name_of(order), name_of(direction)),
                format!("{:.3} ms", line.alpha_s * 1e3),
                megabytes_per_s(line.beta_s_per_byte),
                format!("{:.4}", line.r2),
                format!("{:.1} %", line.spread * 100.0),
                line.samples.to_string(),
            ]);
        }
    }
    context.line(table)?;
    let network = &profile.network;
    let source = match network.source {
        NetworkSource::Measured => "measured over the emulated links",
        NetworkSource::Given => "as given",
        NetworkSource::Local => "no network: all servers are directories of this host",
    };
    context.line(format!(
        "network: {:.3} ms for each connection, {} MB/s ({source})",
        network.e_s * 1e3,
        megabytes_per_s(network.t_s_per_byte)
    ))
}

fn megabytes_per_s(seconds_per_byte: f64) -> String {
    if seconds_per_byte > 0.0 { format!("{:.1}", 1e-6 / seconds_per_byte) } else { "unlimited".to_owned() }
}

/// Reads `300us`, `0.3ms`, `8.3ns`, `2s`, or a plain number of seconds.
fn parse_time_s(text: &str) -> Result<f64, String> {
    let units = [("ns", 1e-9), ("us", 1e-6), ("ms", 1e-3), ("s", 1.0)];
    let (number, factor) =
        units.iter().find_map(|(unit, factor)| Some((text.strip_suffix(unit)?, *factor))).unwrap_or((text, 1.0));
    let value = number.trim().parse::<f64>().ok().map(|value| value * factor);
    value
        .filter(|value| value.is_finite() && *value >= 0.0)
        .ok_or_else(|| "not a time; write a number and a unit, as in 300us, 0.3ms, 8.3ns, 2s".to_owned())
}

/// A progress bar on standard error that appears once the work has taken two seconds.
struct LateBar {
    begin: Instant,
    bar: ProgressBar,
}

impl LateBar {
    const STEPS: u64 = 1000;

    fn new() -> Self {
        let bar = ProgressBar::with_draw_target(Some(Self::STEPS), ProgressDrawTarget::hidden());
        bar.set_style(
            ProgressStyle::with_template("calibrating {bar:40} {percent:>3} %  {elapsed} of about {duration}")
                .expect("a valid template"),
        );
        Self { begin: Instant::now(), bar }
    }

    fn show(&self, share: f64) {
        if self.bar.is_hidden() && self.begin.elapsed() > Duration::from_secs(2) {
            self.bar.set_draw_target(ProgressDrawTarget::stderr());
        }
        self.bar.set_position((share * Self::STEPS as f64) as u64);
    }

    fn clear(&self) {
        self.bar.finish_and_clear();
    }
}

#[cfg(test)]
mod tests;
