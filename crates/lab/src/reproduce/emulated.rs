//! A laboratory's twin of emulated servers: real processes, real bytes, the devices' time.
//!
//! The same machines as the [`Lab`]'s, made by `stripewise init --emulated` in a directory of its own; the same placements, given to files
//! that `stripewise cp` fills at the host's speed; the same program, run by `stripewise run` as MPI ranks or forked processes that verify what they
//! read (`stripewise replay`'s program). Before its first run a program's data are written once to ordinary files, just what it accesses, and copied
//! in for each placement. Every phase of a program is a run of its own, on files placed as the plan says for it: moving them is not in the time.
//!
//! Emulated servers have links of their own and clients have none, so that a lab's client links are left out, and plans are made for
//! processes that do not share a link. Plans come from the lab's own profile, which is free of error; nothing is calibrated.

pub(crate) mod live;
pub(crate) mod replicated;

use crate::demo::testbed::{Steps, Work, finish};
use crate::dilation::{dilated, is_host_bound};
use crate::replay::{Measured, Phase, Player, Ranks};
use crate::reproduce::rephased::{ProcessSteps, Rephased};
use anyhow::{Context as _, Result, bail, ensure};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use stripewise::Store;
use stripewise::laboratory::Lab;
use stripewise::{Session, Voice};
use stripewise_device::{DEVICES, LINKS, Named};
use stripewise_layout::{ByteCount, Cluster, Direction, Placement};
use stripewise_model::Profile;
use stripewise_sim::{FilePlacements, ServerModel};
use stripewise_store::protocol::Admin;
use stripewise_store::server::stations::Stations;
use stripewise_trace::{FileShape, IoRequest, Program, Step};

/// How often a run is repeated of which the machine and not the emulated devices set the pace.
const REPEATS: usize = 2;
/// Of a program's data: as written, managed, and while they are copied.
const COPIES: u64 = 3;
/// What two cores move of the first requests of all processes, which come at once, one after the other.
const HOST_BYTES_PER_S: f64 = 1.5e9;
/// Processes that start further apart than this share of a run make it the host's.
const START_SHARE: f64 = 0.01;
/// Servers' room is in whole pages.
const PAGE_BYTES: u64 = 4096;

pub(crate) struct EmulatedLab {
    lab: Lab,
    /// It serves the processes too.
    store: Store,
    stations: Arc<Stations>,
    player: Player,
    steps: Steps,
    /// By which all times of the devices are multiplied, and those that are told divided.
    dilation: f64,
    /// Goes last.
    work: Work,
}

/// A program whose data are there.
pub(crate) struct Prepared<'a> {
    program: &'a dyn Program,
    /// By file: where its data lie, and where the program looks for it.
    paths: Vec<(PathBuf, PathBuf)>,
}

impl Prepared<'_> {
    fn managed(&self) -> Vec<PathBuf> {
        self.paths.iter().map(|(_, path)| path.clone()).collect()
    }
}

impl Drop for Prepared<'_> {
    fn drop(&mut self) {
        for (pristine, _) in &self.paths {
            let _ = std::fs::remove_file(pristine);
        }
    }
}

/// What came of a run; of all phases together.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(crate) struct EmulatedRun {
    pub(crate) bytes: u64,
    /// In which requests were under way.
    pub(crate) seconds: f64,
    /// Whether the machine rather than the emulated devices set the pace, in spite of repetitions.
    pub(crate) host_bound: bool,
}

/// How long a run should last at least: so long that its start does not make it the host's.
pub(crate) fn least_s(processes: u32, request_bytes: u64) -> f64 {
    f64::from(processes) * request_bytes as f64 / HOST_BYTES_PER_S / START_SHARE
}

impl EmulatedRun {
    /// Of runs one after the other.
    pub(crate) fn sum(runs: &[EmulatedRun]) -> Self {
        runs.iter().fold(Self::default(), |sum, run| Self {
            bytes: sum.bytes + run.bytes,
            seconds: sum.seconds + run.seconds,
            host_bound: sum.host_bound || run.host_bound,
        })
    }

    /// Million bytes per second, reads and writes together.
    pub(crate) fn mb_per_s(&self) -> f64 {
        self.bytes as f64 / 1e6 / self.seconds
    }
}

impl EmulatedLab {
    /// The servers of `lab`, with space for programs whose files have `bytes` in all.
    ///
    /// # Errors
    /// When a device or link of the lab has no name by which an emulated server could ask for it.
    pub(crate) fn build(voice: &Voice, lab: &Lab, bytes: ByteCount, ranks: Ranks) -> Result<Self> {
        Self::build_dilated(voice, lab, bytes, (ranks, 1.0))
    }

    /// As [`Self::build`], with servers so many times slower, for programs whose small requests this machine could not make as fast as the devices
    /// answer them. Times and bandwidths that are told are those of the devices undilated.
    pub(crate) fn build_dilated(voice: &Voice, lab: &Lab, bytes: ByteCount, dilated: (Ranks, f64)) -> Result<Self> {
        let stripewise = std::env::current_exe().context("cannot determine where this executable is")?;
        Self::build_with((&stripewise, voice), lab, bytes, dilated)
    }

    fn build_with(
        (stripewise, voice): (&Path, &Voice),
        lab: &Lab,
        bytes: ByteCount,
        (ranks, dilation): (Ranks, f64),
    ) -> Result<Self> {
        let work = Work::make("reproduce", ByteCount(bytes.0.saturating_mul(COPIES)))?;
        let directory = work.path();
        let steps = Steps::quiet(stripewise, directory);
        let mut words: Vec<OsString> = vec!["init".into(), "--emulated".into(), servers(lab)?.into()];
        if let Some(link) = link(lab)? {
            words.extend(["--link".into(), link.into()]);
        }
        words.extend(["--emulated-dir".into(), directory.join("servers").into()]);
        words.extend(["--region".into(), lab.cluster.region_size.to_string().into()]);
        steps.run(words)?;
        for name in ["data", "pristine"] {
            std::fs::create_dir(directory.join(name)).context("making the testbed's directories")?;
        }
        let player = Player::compile(directory, ranks)?;
        let session = Session::new(Some(directory.to_owned()), voice.clone());
        let mut cluster = session.cluster()?;
        if lab.cluster.fragments {
            let Cluster { fragments, fragment_threshold, fragment_room, .. } = lab.cluster;
            cluster = Cluster { fragments, fragment_threshold, fragment_room, ..cluster };
        }
        cluster = dilated(&cluster, dilation)?;
        std::fs::write(session.cluster_path(), cluster.to_toml()).context("writing the testbed's cluster file")?;
        let profile = Profile { cluster: cluster.id.clone(), emulated: true, ..lab.profile.clone() };
        profile.check(&cluster, Path::new("the laboratory's profile"))?;
        let system = stripewise_sim::System { client_link: None, ..lab.system.clone() };
        let store = Store::open(&session)?;
        let stations = store.client.stations().context("an emulated cluster has stations")?.clone();
        Ok(Self { lab: Lab { cluster, profile, system }, store, stations, player, steps, dilation, work })
    }

    /// The machines as they are here: plans are made for these.
    pub(crate) fn lab(&self) -> &Lab {
        &self.lab
    }

    /// Writes all that the program will read or write.
    pub(crate) fn prepare<'a>(&self, program: &'a dyn Program) -> Result<Prepared<'a>> {
        let name = |(number, file): (usize, &FileShape)| {
            let name = format!("{number}-{}", Path::new(&file.path).file_name().unwrap_or_default().to_string_lossy());
            (self.work.path().join("pristine").join(&name), self.work.path().join("data").join(&name))
        };
        let prepared = Prepared { program, paths: program.files().iter().enumerate().map(name).collect() };
        let writing = Writing { program, files: program.files() };
        let pristine: Vec<PathBuf> = prepared.paths.iter().map(|(pristine, _)| pristine.clone()).collect();
        for (path, file) in pristine.iter().zip(program.files()) {
            let made = std::fs::File::create_new(path).and_then(|made| made.set_len(file.size_bytes));
            made.with_context(|| format!("cannot make {}", path.display()))?;
        }
        let words = self.player.words(&writing, &pristine)?;
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]).stdout(Stdio::piped());
        Player::measured(&finish(command, "writing the program's data")?)?;
        Ok(prepared)
    }

    /// Runs the program on the placements, one for each file.
    pub(crate) fn run(&self, prepared: &Prepared<'_>, files: &[FilePlacements]) -> Result<EmulatedRun> {
        let one = |phase: u32| {
            let window = |file: &FilePlacements| file.windows[(phase as usize).min(file.windows.len() - 1)].clone();
            let placements: Vec<Placement> = files.iter().map(|file| window(file).placement).collect();
            self.run_phase(prepared, phase, &placements)
        };
        let phases: Vec<EmulatedRun> = (0..prepared.program.phases()).map(one).collect::<Result<_>>()?;
        Ok(EmulatedRun::sum(&phases))
    }

    /// Runs the program as a whole on the placements, one for each file; what came of each of its phases.
    pub(crate) fn run_passes(&self, prepared: &Prepared<'_>, placements: &[Placement]) -> Result<Vec<EmulatedRun>> {
        let paths = prepared.managed();
        let mut found = Vec::new();
        for _ in 0..=REPEATS {
            self.place(prepared, placements)?;
            let words = self.player.words(prepared.program, &paths)?;
            found = self.measure_phases(["run".into(), "--".into()].into_iter().chain(words))?;
            self.remove(&paths)?;
            if !found.iter().any(|phase| phase.host_bound) {
                break;
            }
        }
        Ok(found)
    }

    fn run_phase(&self, prepared: &Prepared<'_>, phase: u32, placements: &[Placement]) -> Result<EmulatedRun> {
        self.place(prepared, placements)?;
        let part = one_phase(prepared.program, phase);
        let paths = prepared.managed();
        let mut found = self.measure(&part, &paths)?;
        for _ in 0..REPEATS {
            if found.host_bound {
                found = self.measure(&part, &paths)?;
            }
        }
        self.remove(&paths)?;
        Ok(found)
    }

    /// Fresh files on these placements.
    fn place(&self, prepared: &Prepared<'_>, placements: &[Placement]) -> Result<()> {
        for ((_, path), placement) in prepared.paths.iter().zip(placements) {
            self.store.done(Admin::Expect { path: name_of(path)?, placement: placement.clone() })?;
        }
        let pristine = prepared.paths.iter().map(|(pristine, _)| pristine.into());
        self.steps.run([OsString::from("cp")].into_iter().chain(pristine).chain([self.work.path().join("data").into()]))
    }

    fn remove(&self, paths: &[PathBuf]) -> Result<()> {
        Ok(paths.iter().try_for_each(|path| stripewise::removal::remove(&self.store, path))?)
    }

    fn measure(&self, program: &dyn Program, paths: &[PathBuf]) -> Result<EmulatedRun> {
        let words = self.player.words(program, paths)?;
        let phases = self.measure_phases(["run".into(), "--".into()].into_iter().chain(words))?;
        let report = self.stations.host_report();
        let skewed = report.start_skew.seconds() > report.span.seconds() * START_SHARE;
        let sum = EmulatedRun::sum(&phases);
        Ok(EmulatedRun { host_bound: sum.host_bound || skewed, ..sum })
    }

    /// What came of each phase of a run by these words. Whether the processes started together is told by themselves: movers, which use the servers
    /// too, start later.
    fn measure_phases(&self, words: impl IntoIterator<Item = OsString>) -> Result<Vec<EmulatedRun>> {
        self.stations.reset_counters();
        let measured = Player::measured(&self.steps.printed(words)?)?;
        let Measured { phases, start_skew_s, verified, .. } = measured;
        ensure!(verified == Some(true), "the program read other bytes than were written");
        let seconds = phases.iter().map(|phase| phase.seconds).sum::<f64>();
        let late_s = self.stations.host_report().late_max.seconds();
        let host_bound = is_host_bound(late_s, start_skew_s, seconds, self.dilation);
        let run =
            |phase: &Phase| EmulatedRun { bytes: phase.bytes(), seconds: phase.seconds / self.dilation, host_bound };
        Ok(phases.iter().map(run).collect())
    }
}

fn name_of(path: &Path) -> Result<String> {
    Ok(path.to_str().context("the testbed's directory is not UTF-8")?.to_owned())
}

/// As `stripewise init --emulated` takes them; neighbours that are alike are one group.
fn servers(lab: &Lab) -> Result<String> {
    let mut groups: Vec<(usize, String)> = Vec::new();
    for (server, model) in lab.cluster.servers.iter().zip(&lab.system.servers) {
        let device = name(DEVICES, &model.device, "device", model)?;
        let capacity = server.capacity.map(|capacity| format!(":{}", ByteCount(capacity.0 / PAGE_BYTES * PAGE_BYTES)));
        let text = format!("{device}{}", capacity.unwrap_or_default());
        match groups.last_mut().filter(|(_, last)| *last == text) {
            Some((count, _)) => *count += 1,
            None => groups.push((1, text)),
        }
    }
    Ok(groups.iter().map(|(count, text)| format!("{count}x{text}")).collect::<Vec<_>>().join(","))
}

/// The one that all servers have.
fn link(lab: &Lab) -> Result<Option<&'static str>> {
    let models = &lab.system.servers;
    let first = &models[0];
    if models.iter().any(|model| model.link != first.link) {
        bail!("the servers' links differ, and emulated servers of one `init` have one kind");
    }
    first.link.as_ref().map(|link| name(LINKS, link, "link", first)).transpose()
}

fn name<T: PartialEq>(table: &[Named<T>], spec: &T, kind: &str, model: &ServerModel) -> Result<&'static str> {
    let found = table.iter().find(|named| named.spec == *spec);
    let found = found.with_context(|| format!("the {kind} of server {} has no name to be emulated by", model.name))?;
    Ok(found.name)
}

/// The accesses of a program, all as writes and without any order.
struct Writing<'a> {
    program: &'a dyn Program,
    files: &'a [FileShape],
}

/// Processes that write the data, on a machine of few cores.
const WRITERS: u32 = 2;

impl Program for Writing<'_> {
    fn files(&self) -> &[FileShape] {
        self.files
    }

    fn processes(&self) -> u32 {
        WRITERS.min(self.program.processes())
    }

    fn nodes(&self) -> u32 {
        1
    }

    fn phases(&self) -> u32 {
        1
    }

    fn steps(&self, writer: u32) -> Box<dyn Iterator<Item = Step> + Send + '_> {
        let own = (writer..self.program.processes()).step_by(self.processes() as usize);
        let accesses = own.flat_map(|process| self.program.steps(process)).filter_map(|step| match step {
            Step::Access(request) => Some(Step::Access(IoRequest { kind: Direction::Write.into(), ..request })),
            Step::Think { .. } | Step::Until { .. } | Step::Synchronize(_) | Step::Barrier | Step::Phase => None,
        });
        Box::new(accesses)
    }
}

/// One phase of a program.
fn one_phase(program: &dyn Program, phase: u32) -> Rephased<'_> {
    let steps = move |process| -> ProcessSteps<'_> {
        let mut at = 0;
        let numbered = program.steps(process).map(move |step| {
            at += u32::from(step == Step::Phase);
            (at, step)
        });
        let own = numbered.filter(move |(at, step)| *at == phase && *step != Step::Phase);
        Box::new(own.map(|(_, step)| step))
    };
    Rephased { program, phases: 1, steps: Box::new(steps) }
}

#[cfg(test)]
mod tests;
