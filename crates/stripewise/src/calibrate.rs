//! Calibration: measure every server and the network, fit lines, write the profile.
//!
//! Emulated servers share nothing and are measured side by side; real directories may share a disk and are measured one after the other. Every
//! directory is also loaded with streams, whose sustained rates correct its lines (`sustained.rs`). What gives a caveat is measured again when all
//! were measured (`recheck.rs`). Then all are loaded at once, which shows what they share (`shared.rs`). What is measured and how to read the
//! result is told in `docs/profile.md`.

mod caveats;
mod directory;
mod emulated;
mod error;
mod host;
mod measure;
mod pool;
mod real;
mod recheck;
mod shared;
mod sustained;
mod verify;
mod write_classes;

pub use error::CalibrationError;
pub use measure::{MIN_FILE_BYTES, SERVER_LINES};
pub use verify::{Verification, VerifiedDirection, VerifiedServer, VerifyOptions, verify};

use crate::interrupt::Interrupt;
use crate::progress::Voice;
use emulated::EmulatedSubject;
use error::Result;
use host::HostLoad;
use measure::{Effort, LINK_LINES, LineSamples, Lines, fits, line_of, measure};
use pool::PoolsLock;
use real::{Kept, RealSubject, measure_directory, measure_pool};
use serde::Serialize;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;
use stripewise_layout::{Cluster, Direction, Order, Server, ServerId};
use stripewise_model::fit::{Fit, Sample, fit};
use stripewise_model::{
    Caveat, Line, NetworkProfile, NetworkSource, OrderedLines, PROFILE_VERSION, Profile, ServerProfile,
};
use stripewise_store::server::directory::DirectoryServer;
use stripewise_store::server::emulated::{EmulatedServer, EmulatedSpec, EmulatedUrl, is_emulated};
use stripewise_store::server::stations::{Parts, Stations};
use stripewise_store::server::{ObjectStore, is_by_agent};
use stripewise_store::state::StateDirectory;

/// Share of a server's time that goes to buffered and synchronous writes, after the scratch file was filled.
const CLASSES_SHARE: f64 = 0.2;

/// Emulated servers measured side by side: they sleep most of the time, but each holds some memory.
const MAX_AT_ONCE: usize = 32;

/// What and how much to measure.
#[derive(Clone, Debug)]
pub struct Options {
    /// For each real directory, filling the scratch file included.
    pub directory_budget: Duration,
    /// For each emulated server.
    pub emulated_budget: Duration,
    /// Size of the scratch file in each real directory; random accesses seek within it.
    pub file_bytes: u64,
    /// Rounds in each real directory, at most.
    pub most_rounds: u32,
    /// Rounds for emulated servers, whose times do not scatter.
    pub emulated_rounds: u32,
    /// Time to set up one connection; `None`: measured over emulated links, 0 for directories.
    pub network_e_s: Option<f64>,
    /// Network time of a byte; `None`: as `network_e_s`.
    pub network_t_s_per_byte: Option<f64>,
    /// Ends the measurement between two requests and undoes it: scratch objects in pools have to be removed.
    pub interrupt: Interrupt,
}

impl Options {
    /// Enough for a profile to plan with.
    pub fn thorough() -> Self {
        Self {
            directory_budget: Duration::from_secs(20),
            emulated_budget: Duration::from_secs(8),
            file_bytes: 256 << 20,
            most_rounds: 200,
            emulated_rounds: 3,
            network_e_s: None,
            network_t_s_per_byte: None,
            interrupt: Interrupt::never(),
        }
    }

    /// The same within `total` for all servers. Real directories are measured one after the other and
    /// share it; emulated servers are measured side by side.
    #[must_use]
    pub fn within(self, total: Duration, cluster: &Cluster) -> Self {
        let directories = cluster.servers.iter().filter(|server| !is_emulated(&server.url)).count() as u32;
        Self { directory_budget: total / directories.max(1), emulated_budget: total, ..self }
    }

    /// Enough to see the kind of each server.
    pub fn quick() -> Self {
        Self { directory_budget: Duration::from_secs(4), file_bytes: 64 << 20, emulated_rounds: 1, ..Self::thorough() }
    }
}

/// A profile, and what a person should know of how it came about.
#[derive(Debug)]
pub struct Calibration {
    /// Startup and transfer times of every server, and of the network.
    pub profile: Profile,
    /// One sentence each, with the servers that it is about.
    pub notes: Vec<String>,
}

/// A profile that was written.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct Calibrated {
    /// Its file.
    pub path: PathBuf,
    /// What a person should know of how it came about.
    pub notes: Vec<String>,
    /// The profile.
    pub profile: Profile,
}

/// Measures every server of `cluster` and writes the profile to `output`.
///
/// # Errors
///
/// [`CalibrationError::Output`] before anything is measured, those of [`measure_servers`], and
/// [`CalibrationError::Profile`] if the file cannot be written.
pub fn calibrate(cluster: &Cluster, options: &Options, output: &Path, voice: &Voice) -> Result<Calibrated> {
    let writable = stripewise_layout::output::check(output);
    writable.map_err(|source| CalibrationError::Output { path: output.to_owned(), source })?;
    let bar = voice.share("calibrating");
    let Calibration { profile, notes } = measure_servers(cluster, options, &|share| bar.set((share * 1000.0) as u64))?;
    drop(bar);
    profile.save(output)?;
    Ok(Calibrated { path: output.to_owned(), notes, profile })
}

/// What one server's measurement gave.
struct Measured {
    lines: Lines,
    /// The fit of the server's own emulated link.
    link: Option<Fit>,
    /// Where anything is written back later.
    buffered: Option<OrderedLines>,
    /// Of a real directory, and [`ServerProfile::flush_wait`].
    synchronous: Option<(OrderedLines, f64)>,
    notes: Vec<String>,
    caveats: Vec<Caveat>,
    /// Of a real server.
    kept: Option<Kept>,
}

/// Measures every server of `cluster`. `progress` gets the share done, 0 to 1, from any thread.
///
/// # Errors
/// When a server cannot be written or read, or its times make no line.
pub fn measure_servers(cluster: &Cluster, options: &Options, progress: &(dyn Fn(f64) + Sync)) -> Result<Calibration> {
    for server in cluster.servers.iter().filter(|server| !is_by_agent(&server.url)) {
        DirectoryServer::new(&cluster.id, &server.name, server.url.directory()).probe()?;
    }
    let (load, pools) = (HostLoad::begin(), PoolsLock::take(cluster, options.interrupt)?);
    let any_emulated = cluster.servers.iter().any(|server| is_emulated(&server.url));
    let stations = if any_emulated { Some(Arc::new(open_stations(cluster)?)) } else { None };
    let shares = Mutex::new(vec![0.0_f64; cluster.servers.len()]);
    let report = |number: usize, share: f64| {
        let mut shares = shares.lock().expect("no thread panics while it holds the shares");
        shares[number] = share;
        progress(shares.iter().sum::<f64>() / shares.len() as f64);
    };
    let of_server = |number: usize| {
        let name = cluster.servers[number].name.clone();
        |source| CalibrationError::Server { name, source: Box::new(source) }
    };
    let run = |number: usize, server: &Server| -> Result<Measured> {
        let report = |share| report(number, share);
        if options.interrupt.came() {
            return Err(CalibrationError::Interrupted);
        }
        let measured = match &stations {
            Some(stations) if is_emulated(&server.url) => {
                measure_emulated(cluster, ServerId(number as u16), stations, options, &report)
            }
            _ if is_by_agent(&server.url) => measure_pool(cluster, server, options, &pools, &report),
            _ => measure_directory(&server.name, server.url.directory(), options, &report),
        };
        measured.map_err(of_server(number))
    };
    let (emulated, real): (Vec<usize>, Vec<usize>) =
        (0..cluster.servers.len()).partition(|&number| is_emulated(&cluster.servers[number].url));
    let results: Vec<OnceLock<Result<Measured>>> = cluster.servers.iter().map(|_| OnceLock::new()).collect();
    let finish = |number: usize| drop(results[number].set(run(number, &cluster.servers[number])));
    let taken = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..emulated.len().min(MAX_AT_ONCE) {
            scope.spawn(|| {
                while let Some(&number) = emulated.get(taken.fetch_add(1, Relaxed)) {
                    finish(number);
                }
            });
        }
        // Emulated servers beside it take nothing from a directory but some of this machine's processors.
        real.into_iter().for_each(finish);
    });
    let mut measured = results
        .into_iter()
        .map(|result| result.into_inner().expect("every server was run"))
        .collect::<Result<Vec<_>>>()?;
    for (number, measured) in measured.iter_mut().enumerate() {
        let settled = real::settle(&cluster.servers[number].name, measured, options, &|share| report(number, share));
        settled.map_err(of_server(number))?;
    }
    let mut of_all = shared_servers(cluster, &mut measured)?;
    // Emulated servers are timed on their own clock.
    let has_directories = cluster.servers.iter().any(|server| !is_emulated(&server.url));
    let overload = load.share().filter(|_| has_directories && load.is_busy());
    of_all.extend(overload.map(|share| Caveat::BusyHost { share }));
    Ok(profile(cluster, options, &measured, of_all))
}

/// Directories that share a device, or what lies before their devices.
fn shared_servers(cluster: &Cluster, measured: &mut [Measured]) -> Result<Vec<Caveat>> {
    let (mut names, mut devices, mut subjects) = (Vec::new(), Vec::new(), Vec::new());
    for (server, measured) in cluster.servers.iter().zip(measured) {
        if let Some(Kept { subject, lies_on, .. }) = measured.kept.take() {
            names.push(server.name.as_str());
            devices.push(lies_on);
            subjects.push(subject);
        }
    }
    let mut caveats = shared::on_one_device(&names, &devices);
    // Servers on one device slow each other down for certain: the first of each device stands for the others.
    let is_first = |number: &usize| devices[..*number].iter().all(|earlier| earlier.is_disjoint(&devices[*number]));
    let first: Vec<usize> = (0..names.len()).filter(is_first).collect();
    let names: Vec<&str> = first.iter().map(|&number| names[number]).collect();
    let mut subjects: Vec<Box<dyn RealSubject>> = subjects
        .into_iter()
        .enumerate()
        .filter(|(number, _)| first.contains(number))
        .map(|(_, subject)| subject)
        .collect();
    caveats.extend(shared::under_load(&names, |numbers| {
        let chosen = subjects.iter_mut().enumerate().filter(|(number, _)| numbers.contains(number));
        shared::rates(&mut chosen.map(|(_, subject)| &mut **subject).collect::<Vec<_>>())
    })?);
    Ok(caveats)
}

/// The emulated servers' clocks: those of the running broker, or new ones that the next broker will take over.
fn open_stations(cluster: &Cluster) -> Result<Stations> {
    let state = StateDirectory::of(cluster)?;
    let file = Stations::establish_at(state.run(), "stations", cluster.servers.len())?;
    Ok(Stations::open(file, cluster.servers.len())?)
}

fn measure_emulated(
    cluster: &Cluster,
    number: ServerId,
    stations: &Arc<Stations>,
    options: &Options,
    progress: &dyn Fn(f64),
) -> Result<Measured> {
    let server = &cluster.servers[usize::from(number.0)];
    let url = EmulatedUrl::of(&server.url).map_err(|what| CalibrationError::Url { what })?;
    let Some(url) = url else {
        return Err(CalibrationError::NotEmulated { url: server.url.to_string() });
    };
    let spec = url.spec()?;
    let EmulatedUrl { device, link, time_scale, dirty_limit } = url;
    let directory = server.url.directory();
    let prepare = |parts, spec, seed| {
        let inner = DirectoryServer::new(&cluster.id, &server.name, directory);
        let emulated = EmulatedServer::new(inner, Arc::clone(stations), number, spec);
        EmulatedSubject::prepare(emulated, Arc::clone(stations), parts, directory, seed)
    };
    let measure_parts = |parts, lines: &[_], progress: &dyn Fn(f64)| -> Result<Vec<LineSamples>> {
        let seed = fresh_seed();
        let effort = Effort { most_rounds: options.emulated_rounds, budget: options.emulated_budget };
        measure(&mut prepare(parts, spec, seed)?, lines, effort, seed, progress)
    };
    let device_share = if link.is_some() { 0.8 } else { 1.0 };
    let samples = measure_parts(Parts::Device, &SERVER_LINES, &|share| progress(share * device_share))?;
    let lines = fits(&samples)?;
    let mut caveats = caveats::of_lines(&server.name, &lines, &samples, &[]);
    let mut buffered = None;
    if dirty_limit.is_some() {
        // What is written back passes device and link; the lines are those of the device alone.
        let seed = fresh_seed();
        let mut subject = prepare(Parts::Device, EmulatedSpec { link: None, ..spec }, seed)?;
        let direct = |order| line_of(&lines, Direction::Write, order);
        let budget_s = options.emulated_budget.as_secs_f64() * CLASSES_SHARE;
        let first = write_classes::measure_buffered(&mut subject, direct, budget_s, seed)?;
        let found = write_classes::recheck_buffered(&mut subject, first, direct, budget_s, seed)?;
        caveats.extend(caveats::of_buffered(&server.name, &found));
        buffered = Some(found.lines);
    }
    let mut link_fit = None;
    if link.is_some() {
        let report_link = |share: f64| progress(device_share + share * (1.0 - device_share));
        let samples = measure_parts(Parts::Link, &LINK_LINES, &report_link)?;
        let samples: Vec<Sample> = samples.into_iter().flat_map(|line| line.samples).collect();
        link_fit = Some(fit(&samples)?);
    }
    let dilated = match time_scale {
        1.0 => String::new(),
        scale => format!(", all times multiplied by {scale}"),
    };
    let notes = vec![format!("emulated {device}{dilated}")];
    // An emulated device has no cache to flush: a synchronous write waits as a direct one does.
    Ok(Measured { lines, link: link_fit, buffered, synchronous: None, notes, caveats, kept: None })
}

/// Another number each time, so that no two calibrations touch the same places.
fn fresh_seed() -> u64 {
    RandomState::new().build_hasher().finish()
}

fn profile(cluster: &Cluster, options: &Options, measured: &[Measured], shared: Vec<Caveat>) -> Calibration {
    let mut notes = Notes::default();
    let mut servers = Vec::new();
    for (server, measured) in cluster.servers.iter().zip(measured) {
        for note in &measured.notes {
            notes.add(&server.name, note);
        }
        let line = |direction, order| line_of(&measured.lines, direction, order);
        let mut found = ServerProfile {
            name: server.name.clone(),
            class: server.class,
            read_sequential: line(Direction::Read, Order::Sequential),
            read_random: line(Direction::Read, Order::Random),
            write_sequential: line(Direction::Write, Order::Sequential),
            write_random: line(Direction::Write, Order::Random),
            buffered_write: measured.buffered,
            synchronous_write: measured.synchronous.map(|(lines, _)| lines),
            flush_wait: measured.synchronous.map(|(_, wait)| wait),
        };
        let is_limited = |caveat: &Caveat| matches!(caveat, Caveat::LimitedRate { direction: Direction::Write, .. });
        if measured.caveats.iter().any(is_limited) {
            write_classes::limit_rates(&mut found);
        }
        servers.push(found);
    }
    let links: Vec<Line> = measured.iter().filter_map(|server| server.link.map(|fit| fit.line)).collect();
    let (network, note) = network(options, &links);
    let mut found: Vec<Caveat> = measured.iter().flat_map(|server| server.caveats.iter().cloned()).collect();
    found.extend(caveats::of_classes(&servers));
    found.extend(shared);
    let mut notes = notes.lines();
    notes.extend(note);
    notes.extend(found.iter().map(Caveat::to_string));
    let profile = Profile {
        version: PROFILE_VERSION,
        cluster: cluster.id.clone(),
        emulated: cluster.servers.iter().any(|server| is_emulated(&server.url)),
        measured_at: jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
        servers,
        network,
        caveats: found,
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

/// A word as JSON has it.
pub fn name_of(value: impl Serialize) -> String {
    serde_json::to_value(value).ok().and_then(|value| value.as_str().map(str::to_owned)).unwrap_or_default()
}

#[cfg(test)]
mod tests;
