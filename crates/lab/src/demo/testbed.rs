//! The demo's testbed: a work directory with a cluster of emulated servers, the MPI program and its file.
//!
//! Everything lies below one directory, in memory where that has space, and goes when the testbed is dropped.

use super::DemoOptions;
use super::table::Measured;
use crate::dilation::dilated;
use crate::programs::{self, Compiler, Source};
use anyhow::{Context as _, Result, bail, ensure};
use rustix::fs::statvfs;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;
use stripewise::scratch;
use stripewise_layout::{ByteCount, Cluster, ServerClass, output};
use stripewise_model::Profile;
use stripewise_planner::PolicyName;
use stripewise_store::server::stations::Stations;
use tempfile::TempDir;

const PROGRAM: Source = Source { name: "zipf_io", text: include_str!("../../../../demo/zipf_io.c"), headers: &[] };

/// Share of the file that fits the SSDs, as H2DP section 5.1.
pub(super) const SSD_SHARE: u64 = 6;
/// Stripe size of `def`.
const DEF_STRIPE_BYTES: u64 = 64 << 10;
/// Step of the policies' stripe sizes.
const STEP_BYTES: u64 = 4 << 10;
/// The file, its pristine copy, its managed form, and traces.
const COPIES: u64 = 4;
/// MPICH's ranks of one host wait for each other in MPI_Init by spinning in shared memory. With more ranks than cores that takes most of
/// a short run's processor time; ranks that do not know each other as neighbours meet through UCX instead, without spinning.
const SPARING: [(&str, &str); 2] = [("MPIR_CVAR_NOLOCAL", "1"), ("UCX_TLS", "posix,self")];
const MEMORY: &str = "/dev/shm";

pub(super) struct Testbed {
    pub(super) steps: Steps,
    size: ByteCount,
    /// With the devices in their own time.
    pub(super) cluster: Cluster,
    pub(super) profile: Profile,
    work: Work,
}

/// A work directory, which goes when this is dropped, whichever way its owner ends.
pub(crate) struct Work(TempDir);

impl Work {
    /// In memory if that has space for so much, else below the system's temporary directory.
    pub(crate) fn make(name: &str, needed: ByteCount) -> Result<Self> {
        let memory = Path::new(MEMORY);
        let free_bytes = statvfs(memory).map_or(0, |found| found.f_bavail.saturating_mul(found.f_frsize));
        let base = if free_bytes >= needed.0 { memory.to_owned() } else { std::env::temp_dir() };
        Ok(Self(scratch::directory(&base, name)?))
    }

    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }
}

impl Testbed {
    /// Makes the cluster, calibrates it, compiles the program and writes the file.
    pub(super) fn build(arguments: &DemoOptions) -> Result<Self> {
        let work = Work::make("demo", ByteCount(arguments.size.0.saturating_mul(COPIES)))?;
        let directory = work.path();
        let steps = Steps::shown(directory)?;
        programs::compile(&PROGRAM, Compiler::Mpich, directory)?;
        programs::write_launcher(directory)?;
        let emulated = with_ssd_capacity(&arguments.emulated, arguments.size)?;
        let servers = directory.join("servers");
        steps.run([
            "init".into(),
            "--emulated".into(),
            emulated.into(),
            "--link".into(),
            arguments.link.clone().into(),
            "--emulated-dir".into(),
            servers.into(),
            "--region".into(),
            arguments.region.to_string().into(),
        ])?;
        steps.run(["calibrate".into()])?;
        let cluster = Cluster::load(&directory.join("cluster.toml"))?;
        let profile = Profile::load(&directory.join("profile.json"))?;
        let data = directory.join("data");
        std::fs::create_dir(&data)?;
        let testbed = Self { steps, size: arguments.size, cluster, profile, work };
        testbed.create(arguments)?;
        Ok(testbed)
    }

    pub(super) fn directory(&self) -> &Path {
        self.work.path()
    }

    fn data(&self) -> PathBuf {
        self.work.path().join("data/shared")
    }

    fn pristine(&self) -> PathBuf {
        self.work.path().join("pristine")
    }

    fn create(&self, arguments: &DemoOptions) -> Result<()> {
        let mut words = self.program(arguments, 2, &self.pristine());
        words.extend(["--create".into(), "--op".into(), "none".into()]);
        self.steps.announce(&words);
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]).stdout(Stdio::null()).envs(SPARING);
        finish(command, "writing the demo's file").map(|_| ())
    }

    /// The program under its launcher, with the options that all its runs share.
    fn program(&self, arguments: &DemoOptions, ranks: u32, file: &Path) -> Vec<OsString> {
        let number = |number: u64| OsString::from(number.to_string());
        vec![
            self.work.path().join("mpirun").into(),
            "-n".into(),
            number(ranks.into()),
            self.work.path().join("zipf_io").into(),
            file.into(),
            "--size".into(),
            number(self.size.0),
            "--region".into(),
            number(arguments.region.0),
            "--seed".into(),
            number(arguments.seed),
            // Thirty-two ranks on two cores would spin for seconds in a collective open.
            "--comm".into(),
            "self".into(),
        ]
    }

    fn passes(&self, arguments: &DemoOptions, request: ByteCount, requests: u64, epoch: u64) -> Vec<OsString> {
        let mut words = self.program(arguments, arguments.ranks, &self.data());
        for (option, value) in [("--request", request.0), ("--requests", requests), ("--epoch", epoch)] {
            words.extend([option.into(), value.to_string().into()]);
        }
        words
    }

    /// Requests of each rank that make an operation take about `--seconds`, between a placement in stripes of 64 KiB over all servers and one
    /// in equal parts over the disks: a request meets its share of the disks, one random access each, and the disks together set the pace.
    pub(super) fn requests_per_rank(&self, arguments: &DemoOptions, request: ByteCount) -> Result<u64> {
        ensure!(arguments.ranks > 0, "--ranks 0: at least one rank must run");
        let disks: Vec<_> = self.profile.servers.iter().filter(|server| server.class == ServerClass::Hdd).collect();
        let rate = |servers: usize, stripe_bytes: u64| {
            let touched = request.0.div_ceil(stripe_bytes).min(servers as u64) as f64;
            let seconds = |bytes: f64| disks.iter().map(|disk| disk.read_random.seconds(bytes)).sum::<f64>();
            servers as f64 * disks.len() as f64 / (touched * seconds(request.0 as f64 / touched))
        };
        let servers = self.profile.servers.len();
        let over_disks = request.0.div_ceil(disks.len().max(1) as u64).next_multiple_of(STEP_BYTES);
        let rate = (rate(servers, DEF_STRIPE_BYTES) * rate(disks.len(), over_disks)).sqrt();
        let requests = (rate * arguments.seconds / f64::from(arguments.ranks)).ceil() as u64;
        Ok(requests.clamp(4, 100_000))
    }

    /// One traced run on the ordinary file.
    pub(super) fn trace(&self, arguments: &DemoOptions, request: ByteCount, requests: u64) -> Result<PathBuf> {
        let trace = self.work.path().join(format!("{request}.trace"));
        self.lay_out()?;
        let mut words: Vec<OsString> = vec!["trace".into(), "-o".into(), trace.clone().into(), "--".into()];
        words.extend(self.passes(arguments, request, requests, 1));
        self.steps.run(words)?;
        Ok(trace)
    }

    pub(super) fn plan(&self, trace: &Path, policy: PolicyName, request: ByteCount, seed: u64) -> Result<PathBuf> {
        let plan = self.work.path().join(format!("{request}-{policy}.plan.json"));
        self.steps.run([
            "plan".into(),
            trace.into(),
            "--policy".into(),
            policy.to_string().into(),
            "--seed".into(),
            seed.to_string().into(),
            "-o".into(),
            plan.clone().into(),
        ])?;
        Ok(plan)
    }

    /// A fresh ordinary file under the name that the program uses.
    fn lay_out(&self) -> Result<()> {
        std::fs::copy(self.pristine(), self.data()).context("copying the demo's file")?;
        Ok(())
    }

    pub(super) fn place(&self, plan: &Path) -> Result<()> {
        self.lay_out()?;
        // Plans that lose are measured too.
        self.steps.run(["apply".into(), "--force".into(), plan.into()])
    }

    pub(super) fn remove(&self) -> Result<()> {
        self.steps.run(["rm".into(), self.data().into()])
    }

    /// Every command from here on finds the devices with their times multiplied by so much.
    pub(super) fn dilate(&self, dilation: f64) -> Result<()> {
        let path = self.work.path().join("cluster.toml");
        output::write(&path, dilated(&self.cluster, dilation)?.to_toml())
            .with_context(|| format!("cannot write {}", path.display()))
    }

    /// A write run and a read run, redirected, on devices dilated by `dilation`.
    pub(super) fn measure(
        &self,
        arguments: &DemoOptions,
        (request, requests): (ByteCount, u64),
        dilation: f64,
    ) -> Result<Vec<Measured>> {
        self.dilate(dilation)?;
        let stations = self.stations()?;
        stations.reset_counters();
        let mut words: Vec<OsString> = vec!["run".into(), "--".into()];
        words.extend(self.passes(arguments, request, requests, 2));
        let output = self.steps.printed(words)?;
        let late_s = stations.host_report().late_max.seconds();
        let lines = output.lines().filter(|line| line.starts_with('{'));
        lines.map(|line| Measured::parse(line, late_s, dilation)).collect()
    }

    pub(super) fn stations(&self) -> Result<Stations> {
        let path = self.cluster.state.join("run/stations");
        let file = std::fs::File::options().read(true).write(true).open(&path);
        let file = file.with_context(|| format!("cannot open {}", path.display()))?;
        Ok(Stations::open(&file, self.cluster.servers.len())?)
    }

    pub(super) fn profile_path(&self) -> PathBuf {
        self.work.path().join("profile.json")
    }

    pub(super) fn report(&self, inputs: &[PathBuf], results: &Path, report: &Path) -> Result<()> {
        let mut words: Vec<OsString> = vec!["report".into()];
        words.extend(inputs.iter().map(OsString::from));
        words.push(std::path::absolute(results)?.into());
        words.extend([OsString::from("-o"), std::path::absolute(report)?.into()]);
        self.steps.run(words)
    }
}

/// Gives the SSDs of an `--emulated` list space for a sixth of the file in all.
fn with_ssd_capacity(emulated: &str, size: ByteCount) -> Result<String> {
    let is_ssd = |part: &str| part.split_once('x').is_some_and(|(_, device)| !device.contains("hdd"));
    let count = |part: &str| part.split_once('x').and_then(|(count, _)| count.parse::<u64>().ok()).unwrap_or(0);
    let ssds: u64 = emulated.split(',').filter(|part| is_ssd(part)).map(count).sum();
    if ssds == 0 {
        bail!("--emulated {emulated}: the demo needs at least one SSD, as in 12xhdd-7200,4xsata-ssd-2012");
    }
    let each = ByteCount(size.0 / SSD_SHARE / ssds / 4096 * 4096);
    let parts = emulated.split(',').map(|part| match is_ssd(part) && !part.contains(':') {
        true => format!("{part}:{each}"),
        false => part.to_owned(),
    });
    Ok(parts.collect::<Vec<_>>().join(","))
}

/// Commands on a cluster in a work directory, each a process of its own.
pub(crate) struct Steps {
    pub(crate) stripewise: PathBuf,
    directory: PathBuf,
    /// When the first one ran, if they are shown.
    shown_since: Option<Instant>,
}

impl Steps {
    /// Every one is shown before it runs.
    fn shown(directory: &Path) -> Result<Self> {
        let stripewise = std::env::current_exe().context("cannot determine where this executable is")?;
        Ok(Self { shown_since: Some(Instant::now()), ..Self::quiet(&stripewise, directory) })
    }

    /// Not shown; `stripewise` is the command.
    pub(crate) fn quiet(stripewise: &Path, directory: &Path) -> Self {
        Self { stripewise: stripewise.to_owned(), directory: directory.to_owned(), shown_since: None }
    }

    /// Shows the words as one would type them, with the testbed's directory left out.
    fn announce(&self, words: &[OsString]) {
        let Some(since) = self.shown_since else { return };
        let (directory, own) = (format!("{}/", self.directory.display()), self.stripewise.to_string_lossy());
        let word = |word: &OsString| word.to_string_lossy().replace(&directory, "").replace(&*own, "stripewise");
        let shown = words.iter().map(word).collect::<Vec<_>>().join(" ");
        eprintln!("[{:3.0} s] $ {shown}", since.elapsed().as_secs_f64());
    }

    /// Runs a `stripewise` command on the testbed; its own words go to the terminal.
    pub(crate) fn run(&self, words: impl IntoIterator<Item = OsString>) -> Result<()> {
        self.start(words, Stdio::null()).map(drop)
    }

    /// As [`Self::run`]; returns what was printed.
    pub(crate) fn printed(&self, words: impl IntoIterator<Item = OsString>) -> Result<String> {
        self.start(words, Stdio::piped())
    }

    fn start(&self, words: impl IntoIterator<Item = OsString>, out: Stdio) -> Result<String> {
        let mut all = vec![self.stripewise.clone().into_os_string()];
        all.extend(words);
        self.announce(&all);
        let mut command = Command::new(&all[0]);
        command.args(&all[1..]).current_dir(&self.directory).env("STRIPEWISE_CLUSTER", &self.directory).stdout(out);
        command.envs(SPARING);
        finish(command, &format!("stripewise {}", all[1].to_string_lossy()))
    }
}

/// Runs to the end; returns what was printed to a piped standard output.
pub(crate) fn finish(command: Command, what: &str) -> Result<String> {
    let (status, printed) = programs::finish(command, None).with_context(|| what.to_owned())?;
    // A verdict such as "leave it" is a finding, not a fault: the demo measures every plan.
    if !status.success() && status.code() != Some(1) {
        bail!("{what} failed ({status})");
    }
    Ok(printed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ssds_share_a_sixth() {
        let size = ByteCount(1 << 30);
        assert_eq!(
            with_ssd_capacity("12xhdd-7200,4xsata-ssd-2012", size).unwrap(),
            "12xhdd-7200,4xsata-ssd-2012:43688KiB"
        );
        assert_eq!(with_ssd_capacity("1xhdd-7200,2xnvme:5MiB", size).unwrap(), "1xhdd-7200,2xnvme:5MiB");
        assert!(with_ssd_capacity("4xhdd-7200", size).unwrap_err().to_string().contains("at least one SSD"));
    }
}
