//! Buffered and synchronous writes of a real directory, and buffered ones of emulated servers that take them in.
//!
//! A buffered write returns before the device has it, and what its device pays depends on what the kernel writes back
//! together. So a batch of writes is timed from the first to the end of the sync. Random ones count by runs, since
//! neighbours go back together: the line's startup is that of a run ([`stripewise_model::queueing::RegionWriteBack`]).
//! A synchronous write is timed by itself, as the data path makes it: through the page cache, with `RWF_DSYNC`.
//!
//! A batch is few samples, of which a busy machine or another writer slows all at once, and a line through slow ones is as good a line. So a line of
//! buffered writes that is slower than that of direct ones is doubted: sorting takes nothing from a device. It is measured again once all servers were
//! measured, and the faster of two lines counts. If that one is slow too, the profile says so.

use super::error::Result;
use super::measure::{LARGEST_BYTES, SMALLEST_BYTES};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use std::collections::BTreeSet;
use stripewise_layout::Order;
use stripewise_model::OrderedLines;
use stripewise_model::fit::{Sample, fit};
use stripewise_model::{Line, ServerProfile};

/// Sizes of requests: every fourth power of two.
const SIZES: [u64; 6] = [SMALLEST_BYTES, 16 << 10, 64 << 10, 256 << 10, 1 << 20, LARGEST_BYTES];

/// Writes of a batch, at least, so that there is something to sort.
const MIN_BATCH: u64 = 8;
/// Batches of a size, at most: enough that a late one is an outlier.
const MAX_BATCHES: u64 = 5;
/// Writes of a batch, at most, where the device is fast.
const MAX_BATCH: u64 = 2048;
/// A buffered write may take so many times as long as a direct one before its line is doubted.
const DOUBTED: f64 = 1.3;
/// The writes by which they are compared: one that a server's rate decides, and for random ones also one that a run's startup does.
const RATE_BYTES: f64 = LARGEST_BYTES as f64;
const STARTUP_BYTES: f64 = (64 << 10) as f64;
/// A line that is doubted is measured again so often, at most.
const MAX_REPEATS: u32 = 2;
/// Synchronous writes of a size, at most.
const MAX_SYNCHRONOUS: u64 = 32;

/// A file that takes writes through the page cache.
pub(super) trait BufferedFile {
    /// Writes stay below this.
    fn extent_bytes(&self) -> u64;

    /// Seconds from the first of these writes of `bytes` to the end of the sync behind the last.
    fn batch_s(&mut self, offsets: &[u64], bytes: u64) -> Result<f64>;
}

/// One whose synchronous writes wait for more than direct ones do.
pub(super) trait FlushedFile: BufferedFile {
    /// Seconds of one synchronous write.
    fn synchronous_s(&mut self, offset: u64, bytes: u64) -> Result<f64>;

    /// Times `rounds` direct and as many synchronous writes of [`FLUSH_BYTES`], one at a time at unrelated moments, while another thread reads
    /// [`COMPANION_BYTES`] at a time from random places of the device.
    fn in_company(&mut self, rounds: u64, seed: u64) -> Result<InCompany>;
}

/// Mean seconds of writes while another thread reads.
#[derive(Clone, Copy, Debug)]
pub(super) struct InCompany {
    /// Of a read when there are no writes.
    pub(super) companion_s: f64,
    pub(super) direct_s: f64,
    pub(super) synchronous_s: f64,
}

/// What is flushed when the wait of flushes is measured.
pub(super) const FLUSH_BYTES: u64 = 4096;
/// The requests that a flush may have to wait for.
pub(super) const COMPANION_BYTES: u64 = 256 << 10;
/// Writes of each class in company.
const COMPANY_ROUNDS: u64 = 12;

/// The lines of both classes.
pub(super) struct ClassLines {
    pub(super) buffered: OrderedLines,
    pub(super) synchronous: OrderedLines,
    /// [`ServerProfile::flush_wait`].
    pub(super) flush_wait: f64,
}

/// The lines of buffered writes, after those that are doubted were measured again.
pub(super) struct Buffered {
    pub(super) lines: OrderedLines,
    /// Orders that were measured again.
    pub(super) repeated: Vec<Order>,
    /// Orders that stayed slower than direct writes, with the bytes per second of both.
    pub(super) doubted: Vec<(Order, [f64; 2])>,
}

/// Measures both classes for about `budget_s`, which `direct` lines tell beforehand: every size once at least.
pub(super) fn measure(
    file: &mut dyn FlushedFile,
    direct: impl Fn(Order) -> Line,
    budget_s: f64,
    seed: u64,
) -> Result<ClassLines> {
    let buffered = measure_buffered(file, &direct, budget_s / 2.0, seed)?;
    let mut draws = SmallRng::seed_from_u64(seed.wrapping_add(1));
    let mut synchronous = |order| -> Result<Line> {
        let mut samples = Vec::new();
        for bytes in SIZES {
            let count = affordable(direct(order), bytes, budget_s / 2.0).clamp(2, MAX_SYNCHRONOUS);
            let count = count.min(most_places(file, bytes));
            for offset in offsets(file.extent_bytes(), bytes, count, order, &mut draws) {
                samples.push(Sample { bytes, seconds: file.synchronous_s(offset, bytes)? });
            }
        }
        Ok(fit(&samples)?.line)
    };
    let synchronous = OrderedLines { sequential: synchronous(Order::Sequential)?, random: synchronous(Order::Random)? };
    let flush_wait = flush_wait(file, direct(Order::Random), synchronous.random, seed)?;
    Ok(ClassLines { buffered, synchronous, flush_wait })
}

/// Measures buffered writes once, for about `budget_s`.
pub(super) fn measure_buffered<F: BufferedFile + ?Sized>(
    file: &mut F,
    direct: impl Fn(Order) -> Line,
    budget_s: f64,
    seed: u64,
) -> Result<OrderedLines> {
    let mut draws = SmallRng::seed_from_u64(seed);
    let mut line = |order| buffered_line(file, order, direct(order), budget_s, &mut draws);
    Ok(OrderedLines { sequential: line(Order::Sequential)?, random: line(Order::Random)? })
}

/// Measures those of the lines again that are slower than `direct` ones, with the budget of [`measure_buffered`] for each.
pub(super) fn recheck_buffered<F: BufferedFile + ?Sized>(
    file: &mut F,
    first: OrderedLines,
    direct: impl Fn(Order) -> Line,
    budget_s: f64,
    seed: u64,
) -> Result<Buffered> {
    let mut draws = SmallRng::seed_from_u64(seed.wrapping_add(2));
    let (mut repeated, mut doubted) = (Vec::new(), Vec::new());
    let mut undoubted = |order, mut best: Line| -> Result<Line> {
        let direct = direct(order);
        let mut slowest = Slowest::of(&best, &direct, order);
        for repeat in 0..MAX_REPEATS {
            if slowest.times <= DOUBTED {
                break;
            }
            if repeat == 0 {
                repeated.push(order);
            }
            let again = buffered_line(file, order, direct, budget_s, &mut draws)?;
            let found = Slowest::of(&again, &direct, order);
            if found.times < slowest.times {
                (best, slowest) = (again, found);
            }
        }
        if slowest.times > DOUBTED {
            doubted.push((order, [&best, &direct].map(|line| slowest.bytes / line.seconds(slowest.bytes))));
        }
        Ok(best)
    };
    let lines = OrderedLines {
        sequential: undoubted(Order::Sequential, first.sequential)?,
        random: undoubted(Order::Random, first.random)?,
    };
    Ok(Buffered { lines, repeated, doubted })
}

/// Where a line of buffered writes is slowest beside that of direct ones.
struct Slowest {
    bytes: f64,
    times: f64,
}

impl Slowest {
    fn of(buffered: &Line, direct: &Line, order: Order) -> Self {
        let at = |bytes: f64| Self { bytes, times: buffered.seconds(bytes) / direct.seconds(bytes).max(1e-12) };
        let (rate, startup) = (at(RATE_BYTES), at(STARTUP_BYTES));
        // In order no run has a startup.
        if order == Order::Random && startup.times > rate.times { startup } else { rate }
    }
}

fn buffered_line<F: BufferedFile + ?Sized>(
    file: &mut F,
    order: Order,
    direct: Line,
    budget_s: f64,
    draws: &mut SmallRng,
) -> Result<Line> {
    let mut samples = Vec::new();
    for bytes in SIZES {
        let affordable = affordable(direct, bytes, budget_s);
        let batches = (affordable / MIN_BATCH).clamp(1, MAX_BATCHES);
        let count = (affordable / batches).clamp(MIN_BATCH, MAX_BATCH).min(most_places(file, bytes));
        for _ in 0..batches {
            let offsets = offsets(file.extent_bytes(), bytes, count, order, draws);
            let parts = match order {
                Order::Sequential => count,
                Order::Random => runs(&offsets, bytes),
            };
            let seconds = file.batch_s(&offsets, bytes)? / parts as f64;
            samples.push(Sample { bytes: count * bytes / parts, seconds });
        }
    }
    Ok(fit(&samples)?.line)
}

/// Writes of `bytes` that the budget of two lines has time for.
fn affordable(direct: Line, bytes: u64, budget_s: f64) -> u64 {
    (budget_s / (2 * SIZES.len()) as f64 / direct.seconds(bytes as f64).max(1e-9)) as u64
}

/// At most half of the places, so that those drawn differ and a sequential run has where to begin.
fn most_places<F: BufferedFile + ?Sized>(file: &F, bytes: u64) -> u64 {
    (file.extent_bytes() / bytes / 2).max(1)
}

/// What a synchronous write waits for beyond a direct one at a device that is in use, in requests that are served there: its flush comes
/// behind the companion's next read.
fn flush_wait(file: &mut dyn FlushedFile, direct: Line, synchronous: Line, seed: u64) -> Result<f64> {
    let found = file.in_company(COMPANY_ROUNDS, seed)?;
    let alone_s = synchronous.seconds(FLUSH_BYTES as f64) - direct.seconds(FLUSH_BYTES as f64);
    let wait = (found.synchronous_s - found.direct_s - alone_s) / found.companion_s.max(1e-9);
    Ok(wait.clamp(0.0, 1.0))
}

/// Where `count` writes go: one behind the other, or each to another place, in no order.
fn offsets(span_bytes: u64, bytes: u64, count: u64, order: Order, draws: &mut SmallRng) -> Vec<u64> {
    let places = span_bytes / bytes;
    match order {
        Order::Sequential => {
            let first = draws.random_range(0..=places - count);
            (first..first + count).map(|place| place * bytes).collect()
        }
        Order::Random => {
            // A stretch for each, and a place in it: no place twice, and every distance between neighbours.
            let mut chosen: Vec<u64> = (0..count)
                .map(|number| {
                    let (begin, end) = (number * places / count, (number + 1) * places / count);
                    draws.random_range(begin..end) * bytes
                })
                .collect();
            for last in (1..chosen.len()).rev() {
                chosen.swap(last, draws.random_range(0..=last));
            }
            chosen
        }
    }
}

/// Runs of adjacent writes; no place occurs twice.
fn runs(offsets: &[u64], bytes: u64) -> u64 {
    let places: BTreeSet<u64> = offsets.iter().copied().collect();
    let begins = |place: &&u64| place.checked_sub(bytes).is_none_or(|before| !places.contains(&before));
    places.iter().filter(begins).count() as u64
}

/// Lets a rate that `profile`'s direct writes sustain hold for the other classes too.
pub(super) fn limit_rates(profile: &mut ServerProfile) {
    let sustained = profile.write_sequential.beta_s_per_byte;
    for lines in [&mut profile.buffered_write, &mut profile.synchronous_write].into_iter().flatten() {
        for line in [&mut lines.sequential, &mut lines.random] {
            line.beta_s_per_byte = line.beta_s_per_byte.max(sustained);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A disk under a kernel that writes back in order of address: a seek for each run of adjacent writes.
    struct Disk {
        seek_s: f64,
        s_per_byte: f64,
        flush_s: f64,
        /// A flush waits for what came before it.
        flushes_in_order: bool,
        spent_s: f64,
        /// Batches that take twice as long: another program writes meanwhile.
        slow_batches: u32,
        /// Batches whose seeks take half as long again.
        late_seeks: u32,
    }

    impl Disk {
        fn new(flushes_in_order: bool) -> Self {
            let (slow_batches, late_seeks) = (0, 0);
            Self {
                seek_s: 5e-3,
                s_per_byte: 8e-9,
                flush_s: 2e-3,
                flushes_in_order,
                spent_s: 0.0,
                slow_batches,
                late_seeks,
            }
        }

        fn direct(order: Order) -> Line {
            let alpha_s = if order == Order::Random { 5e-3 } else { 1e-4 };
            Line { alpha_s, beta_s_per_byte: 8e-9, r2: 1.0, spread: 0.0, samples: 9 }
        }
    }

    impl BufferedFile for Disk {
        fn extent_bytes(&self) -> u64 {
            64 << 20
        }

        fn batch_s(&mut self, offsets: &[u64], bytes: u64) -> Result<f64> {
            let mut places = offsets.to_vec();
            places.sort_unstable();
            assert!(places.iter().all(|place| place.is_multiple_of(bytes) && place + bytes <= self.extent_bytes()));
            assert!(places.windows(2).all(|pair| pair[0] < pair[1]), "no place twice");
            let seeks = 1 + places.windows(2).filter(|pair| pair[0] + bytes < pair[1]).count();
            let seek_s = if self.late_seeks > 0 { 1.5 * self.seek_s } else { self.seek_s };
            self.late_seeks = self.late_seeks.saturating_sub(1);
            let mut seconds = seeks as f64 * seek_s + (offsets.len() as u64 * bytes) as f64 * self.s_per_byte;
            if self.slow_batches > 0 {
                self.slow_batches -= 1;
                seconds *= 2.0;
            }
            self.spent_s += seconds;
            Ok(seconds)
        }
    }

    impl FlushedFile for Disk {
        fn in_company(&mut self, rounds: u64, _seed: u64) -> Result<InCompany> {
            let companion_s = self.seek_s + COMPANION_BYTES as f64 * self.s_per_byte;
            // On average half of a companion's read is left, and the flush meets the next one as a whole.
            let write_s = 0.5 * companion_s + self.seek_s + FLUSH_BYTES as f64 * self.s_per_byte;
            let flush_s = self.flush_s + if self.flushes_in_order { companion_s } else { 0.0 };
            self.spent_s += rounds as f64 * (2.0 * write_s + flush_s);
            Ok(InCompany { companion_s, direct_s: write_s, synchronous_s: write_s + flush_s })
        }

        fn synchronous_s(&mut self, offset: u64, bytes: u64) -> Result<f64> {
            assert!(offset + bytes <= self.extent_bytes());
            let seconds = self.seek_s + bytes as f64 * self.s_per_byte + self.flush_s;
            self.spent_s += seconds;
            Ok(seconds)
        }
    }

    #[test]
    fn batches_show_what_sorting_saves_and_synchronous_writes_what_flushes_cost() {
        for seed in 0..20 {
            let flushes_in_order = seed % 2 == 0;
            let mut disk = Disk::new(flushes_in_order);
            let found = measure(&mut disk, Disk::direct, 4.0, seed).unwrap();
            let rechecked = recheck_buffered(&mut disk, found.buffered, Disk::direct, 2.0, seed).unwrap();
            assert!(rechecked.doubted.is_empty() && rechecked.repeated.is_empty(), "seed {seed}");
            assert!(disk.spent_s < 12.0, "seed {seed}: {} s", disk.spent_s);
            let (sequential, random) = (found.buffered.sequential, found.buffered.random);
            assert!(sequential.alpha_s < 1e-3, "seed {seed}: one seek for a batch: {sequential:?}");
            assert!((random.alpha_s / 5e-3 - 1.0).abs() < 0.01, "seed {seed}: a seek for a run: {random:?}");
            let flush_wait = if flushes_in_order { 1.0 } else { 0.0 };
            assert!((found.flush_wait - flush_wait).abs() < 0.05, "seed {seed}: {}", found.flush_wait);
            for line in [found.synchronous.sequential, found.synchronous.random] {
                assert!((line.alpha_s / 7e-3 - 1.0).abs() < 0.01, "seed {seed}: {line:?}");
                assert!((line.beta_s_per_byte / 8e-9 - 1.0).abs() < 0.01, "seed {seed}: {line:?}");
            }
        }
    }

    /// A line of half the rate got into the profile without a word: its batches were alike, so it was a good line.
    #[test]
    fn buffered_writes_slower_than_direct_ones_are_measured_again_and_then_pointed_out() {
        let measured = |disk: &mut Disk, seed| {
            let first = measure(disk, Disk::direct, 4.0, seed).unwrap().buffered;
            recheck_buffered(disk, first, Disk::direct, 2.0, seed).unwrap()
        };
        for seed in 0..20 {
            let mut disk = Disk { slow_batches: 6 * MAX_BATCHES as u32, ..Disk::new(false) };
            let found = measured(&mut disk, seed);
            let rate = found.lines.sequential.beta_s_per_byte / 8e-9;
            assert!((rate - 1.0).abs() < 0.2 && found.doubted.is_empty(), "seed {seed}: {rate} {:?}", found.doubted);
            let mut disk = Disk { slow_batches: u32::MAX, ..Disk::new(false) };
            let found = measured(&mut disk, seed);
            let orders: Vec<Order> = found.doubted.iter().map(|(order, _)| *order).collect();
            assert_eq!(orders, [Order::Sequential, Order::Random], "seed {seed}");
            for (_, [buffered, direct]) in &found.doubted {
                assert!((0.4..0.65).contains(&(buffered / direct)), "seed {seed}: {buffered} {direct}");
            }
        }
    }

    /// Of a write of 4 MiB a seek is little, of one of 64 KiB nearly all.
    #[test]
    fn buffered_writes_whose_startup_is_larger_than_that_of_direct_ones_are_measured_again() {
        for seed in 0..20 {
            let mut disk = Disk { late_seeks: u32::MAX, ..Disk::new(false) };
            let first = measure(&mut disk, Disk::direct, 4.0, seed).unwrap().buffered;
            assert!(first.random.alpha_s > 7e-3, "seed {seed}: {first:?}");
            disk.late_seeks = 0;
            let found = recheck_buffered(&mut disk, first, Disk::direct, 2.0, seed).unwrap();
            assert_eq!((&found.repeated[..], found.doubted.len()), (&[Order::Random][..], 0), "seed {seed}");
            let alpha_s = found.lines.random.alpha_s;
            assert!((alpha_s / 5e-3 - 1.0).abs() < 0.01, "seed {seed}: {alpha_s}");
        }
    }

    #[test]
    fn a_sustained_rate_holds_for_every_class() {
        let line = |beta_s_per_byte| Line { alpha_s: 1e-3, beta_s_per_byte, r2: 1.0, spread: 0.0, samples: 9 };
        let lines = OrderedLines { sequential: line(1e-9), random: line(9e-9) };
        let mut profile = ServerProfile {
            name: "s".to_owned(),
            class: stripewise_layout::ServerClass::Hdd,
            read_sequential: line(1e-9),
            read_random: line(1e-9),
            write_sequential: line(8e-9),
            write_random: line(8e-9),
            buffered_write: Some(lines),
            synchronous_write: None,
            flush_wait: None,
        };
        limit_rates(&mut profile);
        assert_eq!(profile.buffered_write, Some(OrderedLines { sequential: line(8e-9), random: line(9e-9) }));
    }
}
