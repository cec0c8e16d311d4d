//! Real servers: directories of this host, and pools that the broker reaches.
//!
//! Each is measured on its own, one after the other: lines and streams, then the other classes of writes. Once all were
//! measured, [`settle`] measures again what is doubted of each (`recheck.rs`, `write_classes.rs`). A disturbance of some
//! seconds is over by then; where there is no other server to measure, the command waits a little.

use super::directory::{DirectorySubject, Method};
use super::error::{CalibrationError, Result};
use super::host::HostLoad;
use super::measure::{Effort, LARGEST_BYTES, Subject, line_of};
use super::pool::{PoolSubject, PoolsLock};
use super::recheck::{Evidence, Extent, STREAMS_SHARE};
use super::write_classes::{self, BufferedFile, ClassLines};
use super::{CLASSES_SHARE, Measured, Options, caveats, fresh_seed, name_of, shared};
use crate::interrupt::Interrupt;
use std::collections::BTreeSet;
use std::path::Path;
use std::time::{Duration, Instant};
use stripewise_layout::figures::bytes;
use stripewise_layout::{Cluster, Direction, Server};

/// Share of a server's progress until it was measured once. Most servers need nothing more, so the rest is little.
const FIRST_SHARE: f64 = 0.9;
/// What is measured again is measured so much later than the first time, at least,
const PAUSE: Duration = Duration::from_secs(5);
/// but no longer than this share of the time for the server.
const PAUSE_SHARE: f64 = 0.25;

/// A real server as all of calibration uses it.
pub(super) trait RealSubject: Subject + BufferedFile + Send + Sync {}

impl<S: Subject + BufferedFile + Send + Sync> RealSubject for S {}

/// A directory's scratch file or a pool's objects, which live until all servers were loaded at once, and what was measured.
pub(super) struct Kept {
    pub(super) subject: Box<dyn RealSubject>,
    /// Devices.
    pub(super) lies_on: BTreeSet<String>,
    evidence: Evidence,
    /// End of lines and streams.
    since: Instant,
    seed: u64,
    /// For lines of buffered writes.
    buffered_s: f64,
}

/// Says that random accesses sought within less than was asked for; what is no multiple of the largest request is rounded down.
fn shorter(span_bytes: u64, options: &Options) -> Option<String> {
    (span_bytes < options.file_bytes / LARGEST_BYTES * LARGEST_BYTES).then(|| {
        format!(
            "the scratch file has {} of the {} asked for: it takes no more than half of the free space and a quarter of the time (--seconds)",
            bytes(span_bytes),
            bytes(options.file_bytes)
        )
    })
}

pub(super) fn measure_directory(
    name: &str,
    directory: &Path,
    options: &Options,
    progress: &dyn Fn(f64),
) -> Result<Measured> {
    let (begin, load, seed) = (Instant::now(), HostLoad::begin(), fresh_seed());
    let mut subject = DirectorySubject::prepare(directory, options.file_bytes, options.directory_budget / 4, seed)?;
    let extent = extent(options, begin, CLASSES_SHARE);
    let is_busy = || load.is_busy();
    let evidence = Evidence::measure(&mut subject, extent, seed, &is_busy, &|share| progress(share * FIRST_SHARE))?;
    let since = Instant::now();
    let (lines, _) = evidence.found(name)?;
    let direct = |order| line_of(&lines, Direction::Write, order);
    let classes_s = extent.budget.as_secs_f64() * CLASSES_SHARE;
    let ClassLines { buffered, synchronous, flush_wait } =
        write_classes::measure(&mut subject, direct, classes_s, seed)?;
    progress(FIRST_SHARE);
    let note = match subject.method() {
        Method::Direct => "measured with direct I/O",
        Method::Synchronous => {
            "the file system takes no direct I/O: measured with synchronous writes, and reads after dropping the page cache"
        }
    };
    let (lies_on, buffered_s) = (shared::devices(directory), classes_s / 2.0);
    Ok(Measured {
        lines,
        link: None,
        buffered: Some(buffered),
        synchronous: Some((synchronous, flush_wait)),
        notes: Vec::from_iter([note.to_owned()].into_iter().chain(shorter(subject.span_bytes(), options))),
        caveats: Vec::new(),
        kept: Some(Kept { subject: Box::new(subject), lies_on, evidence, since, seed, buffered_s }),
    })
}

/// A server that the broker reaches. Where writes are durable when they are acknowledged, there is one class of them.
pub(super) fn measure_pool(
    cluster: &Cluster,
    server: &Server,
    options: &Options,
    pools: &PoolsLock,
    progress: &dyn Fn(f64),
) -> Result<Measured> {
    let (begin, load, seed) = (Instant::now(), HostLoad::begin(), fresh_seed());
    let patience = options.directory_budget / 4;
    let mut subject = PoolSubject::prepare(cluster, server, options.file_bytes, patience, (seed, pools))?;
    let extent = extent(options, begin, if subject.is_buffered() { CLASSES_SHARE } else { 0.0 });
    let is_busy = || load.is_busy();
    let evidence = Evidence::measure(&mut subject, extent, seed, &is_busy, &|share| progress(share * FIRST_SHARE))?;
    let since = Instant::now();
    let (lines, _) = evidence.found(&server.name)?;
    let buffered_s = extent.budget.as_secs_f64() * CLASSES_SHARE;
    let mut buffered = None;
    if subject.is_buffered() {
        let direct = |order| line_of(&lines, Direction::Write, order);
        buffered = Some(write_classes::measure_buffered(&mut subject, direct, buffered_s, seed)?);
    }
    progress(FIRST_SHARE);
    let (note, lies_on) = (subject.remark(), subject.devices()?);
    Ok(Measured {
        lines,
        link: None,
        buffered,
        synchronous: None,
        notes: Vec::from_iter([note.to_owned()].into_iter().chain(shorter(subject.span_bytes(), options))),
        caveats: Vec::from_iter(caveats::of_throttle(server)),
        kept: Some(Kept { subject: Box::new(subject), lies_on, evidence, since, seed, buffered_s }),
    })
}

/// What is left of the server's time for lines, streams and, for `classes_share` of it, other classes of writes.
fn extent(options: &Options, begin: Instant, classes_share: f64) -> Extent {
    let budget = options.directory_budget.saturating_sub(begin.elapsed());
    let lines = budget.mul_f64(1.0 - STREAMS_SHARE - classes_share);
    Extent { effort: Effort { most_rounds: options.most_rounds, budget: lines }, budget }
}

/// Measures again what is doubted of a real server; emulated ones are timed on their own clock and stay as they are.
pub(super) fn settle(name: &str, measured: &mut Measured, options: &Options, progress: &dyn Fn(f64)) -> Result<()> {
    let Some(Kept { subject, evidence, since, seed, buffered_s, .. }) = &mut measured.kept else { return Ok(()) };
    let mut remarks = Vec::new();
    if evidence.has_suspects()? {
        let pause = options.directory_budget.mul_f64(PAUSE_SHARE).min(PAUSE);
        wait_until(*since + pause, options.interrupt)?;
        let report = |share: f64| progress(FIRST_SHARE + (1.0 - FIRST_SHARE) * share);
        remarks = evidence.recheck(&mut **subject, *seed, &report)?;
    }
    let (lines, mut caveats) = evidence.found(name)?;
    if let Some(first) = measured.buffered {
        let direct = |order| line_of(&lines, Direction::Write, order);
        let found = write_classes::recheck_buffered(&mut **subject, first, direct, *buffered_s, *seed)?;
        caveats.extend(caveats::of_buffered(name, &found));
        remarks.extend(found.repeated.iter().map(|order| {
            let is_slow = found.doubted.iter().any(|(of, _)| of == order);
            let what = if is_slow { "slow again" } else { "slow only the first time, which does not count" };
            format!("{} buffered writing ({what})", name_of(order))
        }));
        measured.buffered = Some(found.lines);
    }
    caveats.append(&mut measured.caveats);
    (measured.lines, measured.caveats) = (lines, caveats);
    if !remarks.is_empty() {
        measured.notes.push(format!("measured again: {}", remarks.join("; ")));
    }
    progress(1.0);
    Ok(())
}

fn wait_until(moment: Instant, interrupt: Interrupt) -> Result<()> {
    loop {
        if interrupt.came() {
            return Err(CalibrationError::Interrupted);
        }
        let left = moment.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(());
        }
        std::thread::sleep(left.min(Duration::from_millis(50)));
    }
}

#[cfg(test)]
mod tests {
    use super::super::measure::MIN_SPAN_BYTES;
    use super::*;
    use std::cell::RefCell;
    use std::sync::atomic::AtomicBool;

    /// A device of 2.4 GB/s and 50 us with a clock of its own, that another program slows down until some time.
    struct Device {
        now_s: f64,
        quiet_from_s: f64,
        factor: f64,
    }

    impl Subject for Device {
        fn span_bytes(&self) -> u64 {
            MIN_SPAN_BYTES
        }

        fn time(&mut self, _: Direction, _: u64, bytes: u64) -> Result<f64> {
            let factor = if (0.3..self.quiet_from_s).contains(&self.now_s) { self.factor } else { 1.0 };
            let seconds = factor * (50e-6 + bytes as f64 / 2.4e9);
            self.now_s += seconds;
            Ok(seconds)
        }
    }

    impl BufferedFile for Device {
        fn extent_bytes(&self) -> u64 {
            MIN_SPAN_BYTES
        }

        fn batch_s(&mut self, offsets: &[u64], bytes: u64) -> Result<f64> {
            offsets.iter().map(|offset| self.time(Direction::Write, *offset, bytes)).sum()
        }
    }

    /// As after the first time, and what the second one reports.
    fn settled(mut device: Device) -> (Measured, Vec<f64>) {
        let effort = Effort { most_rounds: 20, budget: Duration::from_secs(12) };
        let extent = Extent { effort, budget: Duration::from_secs(20) };
        let evidence = Evidence::measure(&mut device, extent, 7, &|| false, &|_| {}).unwrap();
        let (lines, caveats) = evidence.found("s0").unwrap();
        assert!(!caveats.is_empty());
        let direct = |order| line_of(&lines, Direction::Write, order);
        let buffered = write_classes::measure_buffered(&mut device, direct, 2.0, 7).unwrap();
        let kept = Kept {
            subject: Box::new(device),
            lies_on: BTreeSet::new(),
            evidence,
            since: Instant::now(),
            seed: 7,
            buffered_s: 2.0,
        };
        let mut measured = Measured {
            lines,
            link: None,
            buffered: Some(buffered),
            synchronous: None,
            notes: Vec::new(),
            caveats: Vec::new(),
            kept: Some(kept),
        };
        let options = Options { directory_budget: Duration::ZERO, ..Options::quick() };
        let reported = RefCell::new(Vec::new());
        settle("s0", &mut measured, &options, &|share| reported.borrow_mut().push(share)).unwrap();
        (measured, reported.into_inner())
    }

    /// Buffered writes are compared with the lines that hold in the end: next to a false limit they seem fast enough.
    #[test]
    fn what_was_disturbed_is_measured_again_with_a_note() {
        let (measured, reported) = settled(Device { now_s: 0.0, quiet_from_s: 6.0, factor: 4.0 });
        assert_eq!(measured.caveats, []);
        assert!(reported.is_sorted() && reported[0] > FIRST_SHARE && reported.last() == Some(&1.0), "{reported:?}");
        let once = "(slow only the first time, which does not count)";
        for what in
            ["a stream writing 4 MiB at a time", "a stream writing 4 KiB at a time", "sequential buffered writing"]
        {
            assert!(measured.notes[0].contains(&format!("{what} {once}")), "{what}: {:?}", measured.notes);
        }
        let buffered = measured.buffered.unwrap().sequential;
        assert!((buffered.beta_s_per_byte * 2.4e9 - 1.0).abs() < 0.02, "{buffered:?}");
    }

    #[test]
    fn what_stays_slow_keeps_its_caveats() {
        let (measured, _) = settled(Device { now_s: 0.0, quiet_from_s: 1e9, factor: 4.0 });
        assert!(!measured.caveats.is_empty());
        assert!(measured.notes[0].contains("a stream writing 4 MiB at a time (slow again)"), "{:?}", measured.notes);
    }

    #[test]
    fn an_interrupt_ends_the_pause_before_the_second_measurement() {
        static CAME: AtomicBool = AtomicBool::new(true);
        let far = Instant::now() + Duration::from_secs(3600);
        assert!(matches!(wait_until(far, Interrupt::on(&CAME)), Err(CalibrationError::Interrupted)));
    }
}
