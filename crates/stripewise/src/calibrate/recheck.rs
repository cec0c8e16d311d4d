//! What single requests and streams show of a real server, and what they show once more where they gave a caveat.
//!
//! Another program that uses a server for some seconds looks like a limit to a stream, and its times like no line. So what
//! gives a caveat is measured again when all servers were measured, and what is not seen twice is dropped: the first
//! stream or the first times of that line do not count. Streams come first, since a limit explains times that lie on no
//! line. Nothing is measured more than twice, so that a server that is never quiet takes about twice the time.

use super::error::Result;
use super::measure::{Effort, LineSamples, Lines, SERVER_LINES, SIZES, Subject, fits, line_of, measure};
use super::sustained::{Reserve, STREAMS, Stream, Streamed, correct};
use super::{caveats, name_of};
use std::time::Duration;
use stripewise_layout::figures::bytes as size;
use stripewise_layout::{Direction, Order};
use stripewise_model::Caveat;

/// Share of a server's time that goes to streams, after its scratch file was filled.
pub(super) const STREAMS_SHARE: f64 = 0.2;

/// What a caveat comes from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Source {
    /// With the size of its requests.
    Stream(Direction, u64),
    Line(Direction, Order),
}

impl Source {
    fn of(caveat: &Caveat) -> Option<Self> {
        match *caveat {
            Caveat::LimitedRate { direction, .. } => Some(Self::Stream(direction, STREAMS[0])),
            Caveat::LimitedRequests { direction, .. } => Some(Self::Stream(direction, STREAMS[1])),
            Caveat::SlowRequests { direction, order, .. } | Caveat::NoLine { direction, order, .. } => {
                Some(Self::Line(direction, order))
            }
            _ => None,
        }
    }

    /// What a person should know of it, with what the second measurement said.
    fn remark(self, is_confirmed: bool) -> String {
        let gerund = |direction| if direction == Direction::Read { "reading" } else { "writing" };
        match self {
            Self::Stream(direction, bytes) => {
                let what = if is_confirmed { "slow again" } else { "slow only the first time, which does not count" };
                format!("a stream {} {} at a time ({what})", gerund(direction), size(bytes))
            }
            Self::Line(direction, order) => {
                let what = match is_confirmed {
                    true => "off the line again; both times count",
                    false => "off the line only the first time, which does not count",
                };
                format!("{} {} ({what})", name_of(order), gerund(direction))
            }
        }
    }
}

/// How much is measured, the second time as the first.
#[derive(Clone, Copy, Debug)]
pub(super) struct Extent {
    /// For the lines.
    pub(super) effort: Effort,
    /// For everything about the server.
    pub(super) budget: Duration,
}

impl Extent {
    fn lines_share(&self) -> f64 {
        self.effort.budget.as_secs_f64() / self.budget.as_secs_f64().max(f64::MIN_POSITIVE)
    }

    fn streams_s(&self) -> f64 {
        self.budget.as_secs_f64() * STREAMS_SHARE
    }

    fn stream_s(&self) -> f64 {
        self.streams_s() / (2 * STREAMS.len()) as f64
    }
}

/// What was measured of a server.
#[derive(Clone)]
pub(super) struct Evidence {
    extent: Extent,
    samples: Vec<LineSamples>,
    streams: Vec<Streamed>,
    is_busy: bool,
}

impl Evidence {
    /// Measures lines and streams; `is_busy` says afterwards whether the processors were. `progress` gets the share of the
    /// whole budget.
    pub(super) fn measure(
        subject: &mut dyn Subject,
        extent: Extent,
        seed: u64,
        is_busy: &dyn Fn() -> bool,
        progress: &dyn Fn(f64),
    ) -> Result<Self> {
        let lines_share = extent.lines_share();
        let samples = measure(subject, &SERVER_LINES, extent.effort, seed, &|share| progress(share * lines_share))?;
        let (lines, mut streams) = (fits(&samples)?, Vec::new());
        for direction in [Direction::Write, Direction::Read] {
            for bytes in STREAMS {
                let single_s = line_of(&lines, direction, Order::Sequential).seconds(bytes as f64);
                let pace = (single_s, extent.stream_s());
                let first = Stream::run(subject, direction, bytes, pace, Reserve::default())?;
                streams.push(Streamed { first, again: None });
                progress(lines_share + STREAMS_SHARE * streams.len() as f64 / (2 * STREAMS.len()) as f64);
            }
        }
        Ok(Self { extent, samples, streams, is_busy: is_busy() })
    }

    /// The lines, corrected by the streams, and what is wrong with them.
    pub(super) fn found(&self, server: &str) -> Result<(Lines, Vec<Caveat>)> {
        let mut lines = fits(&self.samples)?;
        let mut caveats = correct(server, &mut lines, &self.streams, self.is_busy);
        caveats.extend(caveats::of_lines(server, &lines, &self.samples, &caveats));
        Ok((lines, caveats))
    }

    fn suspects(&self) -> Result<Vec<Source>> {
        Ok(self.found("")?.1.iter().filter_map(Source::of).collect())
    }

    /// Whether anything is to be measured again.
    pub(super) fn has_suspects(&self) -> Result<bool> {
        Ok(!self.suspects()?.is_empty())
    }

    /// Measures again what gives a caveat, and says of each what came of it. `progress` gets the share done.
    pub(super) fn recheck(
        &mut self,
        subject: &mut dyn Subject,
        seed: u64,
        progress: &dyn Fn(f64),
    ) -> Result<Vec<String>> {
        let mut repeated: Vec<(Source, bool)> = Vec::new();
        let mut done = 0.0;
        loop {
            let is_new = |source: &Source| !repeated.iter().any(|(known, _)| known == source);
            let suspects: Vec<Source> = self.suspects()?.into_iter().filter(is_new).collect();
            let (streams, lines): (Vec<Source>, Vec<Source>) =
                suspects.into_iter().partition(|source| matches!(source, Source::Stream(..)));
            // What is found now may call for more, so half of the rest is left for that.
            let (begin, share) = (done, (1.0 - done) / 2.0);
            let of_this = |share_done: f64| progress(begin + share * share_done);
            if let Some(count) = Some(streams.len()).filter(|count| *count > 0) {
                for (number, source) in streams.into_iter().enumerate() {
                    self.repeat_stream(subject, source)?;
                    repeated.push((source, true));
                    of_this((number + 1) as f64 / count as f64);
                }
            } else if lines.is_empty() {
                break;
            } else {
                repeated.extend(self.repeat_lines(subject, &lines, seed, &of_this)?);
            }
            done = begin + share;
        }
        progress(1.0);
        let suspects = self.suspects()?;
        let remark = |(source, was_seen): (Source, bool)| {
            let is_confirmed = match source {
                Source::Stream(..) => suspects.contains(&source),
                Source::Line(..) => was_seen,
            };
            source.remark(is_confirmed)
        };
        Ok(repeated.into_iter().map(remark).collect())
    }

    fn repeat_stream(&mut self, subject: &mut dyn Subject, source: Source) -> Result<()> {
        let lines = fits(&self.samples)?;
        let is_meant = |streamed: &Streamed| source == Source::Stream(streamed.first.direction, streamed.first.bytes);
        let Some(number) = self.streams.iter().position(is_meant) else { return Ok(()) };
        let Stream { direction, bytes, .. } = self.streams[number].first;
        let reserve = Reserve::of(&self.streams[number].first, self.before(number), self.extent.streams_s());
        let single_s = line_of(&lines, direction, Order::Sequential).seconds(bytes as f64);
        let again = Stream::run(subject, direction, bytes, (single_s, self.extent.stream_s()), reserve)?;
        self.streams[number].again = Some(again);
        Ok(())
    }

    /// Bytes and seconds of what came before a stream, the first time.
    fn before(&self, stream: usize) -> impl Iterator<Item = (u64, f64)> + '_ {
        let rounds = self.samples.iter().map(|line| line.samples.len() / SIZES).max().unwrap_or(0);
        let of_round = move |round: usize| {
            self.samples.iter().flat_map(move |line| line.samples.iter().skip(round * SIZES).take(SIZES))
        };
        let of_lines = (0..rounds).flat_map(of_round).map(|sample| (sample.bytes, sample.seconds));
        let of_stream = |streamed: &'_ Streamed| {
            let bytes = streamed.first.bytes;
            streamed.first.seconds.iter().map(move |seconds| (bytes, *seconds)).collect::<Vec<_>>()
        };
        of_lines.chain(self.streams[..stream].iter().flat_map(of_stream))
    }

    /// Gives each of `repeated` with whether it is off its line again.
    ///
    /// Where the second times are on a line, the first ones do not count: which of them were disturbed is not known, and
    /// all together they would keep a part of the disturbance. Where both are off, the server scatters, and neither is
    /// righter than the other: taking the better one would take luck for quality. So both count, which makes the line
    /// firmer and the caveat's figures fairer.
    fn repeat_lines(
        &mut self,
        subject: &mut dyn Subject,
        repeated: &[Source],
        seed: u64,
        progress: &dyn Fn(f64),
    ) -> Result<Vec<(Source, bool)>> {
        let orders =
            SERVER_LINES.into_iter().filter(|(direction, order)| repeated.contains(&Source::Line(*direction, *order)));
        let orders: Vec<(Direction, Order)> = orders.collect();
        let Effort { most_rounds, budget } = self.extent.effort;
        let budget = budget.mul_f64(orders.len() as f64 / SERVER_LINES.len() as f64);
        let measured = measure(subject, &orders, Effort { most_rounds, budget }, seed.wrapping_add(3), progress)?;
        let mut second = self.clone();
        for line in &measured {
            second.line_mut(line.direction, line.order).samples.clone_from(&line.samples);
        }
        let suspects = second.suspects()?;
        let mut found = Vec::new();
        for LineSamples { direction, order, samples } in measured {
            let source = Source::Line(direction, order);
            let first = self.line_mut(direction, order);
            if suspects.contains(&source) {
                first.samples.extend(samples);
            } else {
                first.samples = samples;
            }
            found.push((source, suspects.contains(&source)));
        }
        Ok(found)
    }

    fn line_mut(&mut self, direction: Direction, order: Order) -> &mut LineSamples {
        let found = self.samples.iter_mut().find(|line| (line.direction, line.order) == (direction, order));
        found.expect("all four lines are measured")
    }
}

#[cfg(test)]
mod tests {
    use super::super::measure::{LARGEST_BYTES, MIN_SPAN_BYTES};
    use super::*;
    use rand::rngs::SmallRng;
    use rand::{Rng, SeedableRng};
    use std::cell::RefCell;
    use std::ops::Range;
    use stripewise_model::Line;

    const ALPHA_S: f64 = 50e-6;
    const S_PER_BYTE: f64 = 1.0 / 2.4e9;
    /// Of single requests and streams, when nothing disturbs them.
    const QUIET_S: f64 = 4.3;

    /// A bucket that fills with `rate` and holds `burst`, of bytes or of requests.
    #[derive(Clone, Copy)]
    struct Bucket {
        tokens: f64,
        rate: f64,
        burst: f64,
        counts_requests: bool,
        /// Where it lets all reads pass.
        only_writes: bool,
    }

    impl Bucket {
        fn new(rate: f64, burst: f64, counts_requests: bool) -> Self {
            Self { tokens: burst, rate, burst, counts_requests, only_writes: false }
        }
    }

    /// A device with a clock of its own, that another program slows down for some time, or that is never quiet.
    struct Device {
        now_s: f64,
        disturbed: Vec<(Range<f64>, f64)>,
        bucket: Option<Bucket>,
        noise: Option<SmallRng>,
    }

    impl Device {
        fn new() -> Self {
            Self { now_s: 0.0, disturbed: Vec::new(), bucket: None, noise: None }
        }

        fn with(bucket: Bucket) -> Self {
            Self { bucket: Some(bucket), ..Self::new() }
        }

        fn pass(&mut self, seconds: f64) {
            self.now_s += seconds;
            if let Some(bucket) = &mut self.bucket {
                bucket.tokens = (bucket.tokens + seconds * bucket.rate).min(bucket.burst);
            }
        }
    }

    impl Subject for Device {
        fn span_bytes(&self) -> u64 {
            MIN_SPAN_BYTES
        }

        fn time(&mut self, direction: Direction, _: u64, bytes: u64) -> Result<f64> {
            let mut seconds = ALPHA_S + bytes as f64 * S_PER_BYTE;
            let now_s = self.now_s;
            let disturbances = self.disturbed.iter().filter(|(when, _)| when.contains(&now_s));
            seconds *= disturbances.map(|(_, factor)| *factor).product::<f64>();
            if let Some(draws) = &mut self.noise {
                seconds *= draws.random_range(-1.5_f64..1.5).exp();
            }
            if let Some(bucket) = &mut self.bucket
                && (direction == Direction::Write || !bucket.only_writes)
            {
                bucket.tokens -= if bucket.counts_requests { 1.0 } else { bytes as f64 };
                seconds += (-bucket.tokens / bucket.rate).max(0.0);
            }
            self.pass(seconds);
            Ok(seconds)
        }
    }

    /// What a calibration gives, and the device's seconds of both times.
    struct Calibrated {
        lines: Lines,
        caveats: Vec<Caveat>,
        remarks: Vec<String>,
        seconds: [f64; 2],
    }

    /// Measures the other servers for `others_s` between the two times.
    fn calibrated(device: &mut Device, seed: u64, others_s: f64) -> Calibrated {
        let effort = Effort { most_rounds: 20, budget: Duration::from_secs(12) };
        let extent = Extent { effort, budget: Duration::from_secs(20) };
        let mut evidence = Evidence::measure(device, extent, seed, &|| false, &|_| {}).unwrap();
        let first_s = device.now_s;
        device.pass(others_s);
        let reported = RefCell::new(Vec::new());
        let begin_s = device.now_s;
        let remarks = evidence.recheck(device, seed, &|share| reported.borrow_mut().push(share)).unwrap();
        let reported = reported.into_inner();
        assert!(reported.is_sorted() && reported.last() == Some(&1.0), "seed {seed}: {reported:?}");
        let (lines, caveats) = evidence.found("s0").unwrap();
        Calibrated { lines, caveats, remarks, seconds: [first_s, device.now_s - begin_s] }
    }

    fn is_quiet(line: &Line) -> bool {
        (line.alpha_s / ALPHA_S - 1.0).abs() < 0.02 && (line.beta_s_per_byte / S_PER_BYTE - 1.0).abs() < 0.02
    }

    fn rate(line: &Line) -> f64 {
        LARGEST_BYTES as f64 / line.seconds(LARGEST_BYTES as f64)
    }

    /// Two of eight disks: another program used them while their streams ran.
    #[test]
    fn a_disturbance_of_some_seconds_is_no_limit() {
        for (seed, begin_s) in (0..16).map(|seed| (seed, 0.2 + 0.3 * seed as f64)) {
            let mut device = Device { disturbed: vec![(begin_s..begin_s + 3.0, 4.0)], ..Device::new() };
            let Calibrated { lines, caveats, remarks, seconds } = calibrated(&mut device, seed, 5.0);
            assert_eq!(caveats, [], "from {begin_s} s");
            assert!(lines.iter().all(|(_, _, fit)| is_quiet(&fit.line)), "from {begin_s} s: {lines:?}");
            let is_dropped = |remark: &String| remark.contains("only the first time");
            assert!(remarks.iter().all(is_dropped), "from {begin_s} s: {remarks:?}");
            assert!(!remarks.is_empty() || begin_s > QUIET_S - 1.0, "from {begin_s} s: it is seen");
            assert!(seconds[1] < seconds[0], "from {begin_s} s: {seconds:?}");
        }
    }

    /// One in the middle of single requests: their times lie on no line, or take longer in total than by it.
    #[test]
    fn times_that_lie_on_a_line_the_second_time_count_alone() {
        for seed in 0..8 {
            for factor in [12.0, 60.0] {
                let mut device = Device { disturbed: vec![(0.05..0.05 + 0.02 * factor, factor)], ..Device::new() };
                let Calibrated { lines, caveats, remarks, .. } = calibrated(&mut device, seed, 5.0);
                assert_eq!(caveats, [], "seed {seed}, {factor}");
                assert!(lines.iter().all(|(_, _, fit)| is_quiet(&fit.line)), "seed {seed}, {factor}: {lines:?}");
                assert!(remarks.iter().any(|remark| remark.contains("off the line only")), "seed {seed}: {remarks:?}");
            }
        }
    }

    /// The second stream begins with the burst spent, or with all of it after the other servers were measured.
    #[test]
    fn a_limit_on_bytes_is_seen_twice_with_its_rate_and_burst() {
        for others_s in [0.0, 2.0, 140.0] {
            for (rate_per_s, burst) in [(98e6, 64e6), (98e6, 1.6e9), (400e6, 1.5e9), (400e6, 2.2e9)] {
                let what = format!("{others_s} s, {rate_per_s}, {burst}");
                let mut device = Device::with(Bucket::new(rate_per_s, burst, false));
                let Calibrated { lines, caveats, remarks, .. } = calibrated(&mut device, 7, others_s);
                for (direction, order, fit) in &lines {
                    assert!((rate(&fit.line) / rate_per_s - 1.0).abs() < 0.05, "{what}: {direction:?} {order:?}");
                }
                let [Caveat::LimitedRate { direction: Direction::Write, sustained_bytes_per_s, burst_bytes, .. }, ..] =
                    caveats[..]
                else {
                    panic!("{what}: {caveats:?}")
                };
                assert!((sustained_bytes_per_s / rate_per_s - 1.0).abs() < 0.05, "{what}: {sustained_bytes_per_s}");
                assert!(remarks[0].contains("writing 4 MiB at a time (slow again)"), "{what}: {remarks:?}");
                // Single requests before the first stream take a part of it; a small one is filled and spent all the time.
                let share = burst_bytes as f64 / burst;
                let least = if others_s > 100.0 { 0.95 } else { 0.4 };
                assert!(share > least || burst < 1e9, "{what}: {share}");
                assert!(share < 1.6, "{what}: {share}");
            }
        }
    }

    #[test]
    fn a_limit_on_requests_is_seen_twice() {
        for others_s in [0.0, 140.0] {
            let mut device = Device::with(Bucket::new(500.0, 5000.0, true));
            let Calibrated { lines, caveats, remarks, .. } = calibrated(&mut device, 7, others_s);
            for (direction, order, fit) in &lines {
                let per_s = 1.0 / fit.line.seconds(4096.0);
                assert!((per_s / 500.0 - 1.0).abs() < 0.05, "{others_s} s: {direction:?} {order:?}: {per_s}");
            }
            let limited = |wanted| {
                let is_meant = |caveat: &&Caveat| matches!(caveat, Caveat::LimitedRequests { direction, .. } if *direction == wanted);
                caveats.iter().find(is_meant)
            };
            for direction in [Direction::Write, Direction::Read] {
                let Some(Caveat::LimitedRequests { sustained_per_s, .. }) = limited(direction) else {
                    panic!("{others_s} s: {caveats:?}")
                };
                assert!((sustained_per_s / 500.0 - 1.0).abs() < 0.05, "{others_s} s: {sustained_per_s}");
            }
            let is_confirmed = |remark: &String| remark.contains("slow again");
            assert!(remarks.len() >= 2 && remarks.iter().all(is_confirmed), "{others_s} s: {remarks:?}");
        }
    }

    /// Reads are disturbed meanwhile: their limit is none.
    #[test]
    fn a_limit_of_one_direction_stays_with_it() {
        let bucket = Bucket { only_writes: true, ..Bucket::new(98e6, 64e6, false) };
        let undisturbed = calibrated(&mut Device::with(bucket), 3, 5.0);
        let reads_s = undisturbed.seconds[0] - 2.0;
        let mut disturbed = Device { disturbed: vec![(reads_s - 0.2..reads_s + 4.0, 5.0)], ..Device::with(bucket) };
        for Calibrated { lines, caveats, .. } in [undisturbed, calibrated(&mut disturbed, 3, 5.0)] {
            let is_of_writes =
                |caveat: &Caveat| matches!(caveat, Caveat::LimitedRate { direction: Direction::Write, .. });
            assert!(!caveats.is_empty() && caveats.iter().all(is_of_writes), "{caveats:?}");
            for (direction, order, fit) in &lines {
                let is_right = match direction {
                    Direction::Read => is_quiet(&fit.line),
                    Direction::Write => (rate(&fit.line) / 98e6 - 1.0).abs() < 0.05,
                };
                assert!(is_right, "{direction:?} {order:?}: {fit:?}");
            }
        }
    }

    #[test]
    fn a_server_that_is_never_quiet_keeps_its_caveats_and_takes_about_twice_the_time() {
        for seed in 0..8 {
            let mut device = Device { noise: Some(SmallRng::seed_from_u64(seed)), ..Device::new() };
            let Calibrated { lines, caveats, remarks, seconds } = calibrated(&mut device, seed, 5.0);
            let lines_in_it = caveats.iter().filter(|caveat| matches!(caveat, Caveat::NoLine { .. })).count();
            assert_eq!(lines_in_it, 4, "seed {seed}: {caveats:?}");
            assert!(lines.iter().all(|(_, _, fit)| fit.line.samples == 2 * 20 * 11), "both times count");
            assert!(remarks.iter().filter(|remark| remark.contains("both times count")).count() == 4, "{remarks:?}");
            assert!(seconds[1] < 1.2 * seconds[0], "seed {seed}: {seconds:?}");
        }
        // One that is slow in streams for good.
        let mut device = Device { disturbed: vec![(0.6..1e9, 4.0)], ..Device::new() };
        let Calibrated { caveats, remarks, seconds, .. } = calibrated(&mut device, 1, 5.0);
        assert!(caveats.iter().filter(|caveat| matches!(Source::of(caveat), Some(Source::Stream(..)))).count() >= 2);
        assert!(remarks.iter().all(|remark| remark.contains("again")) && seconds[1] < 1.2 * seconds[0], "{seconds:?}");
    }

    #[test]
    fn a_quiet_server_is_measured_once() {
        let Calibrated { lines, caveats, remarks, seconds } = calibrated(&mut Device::new(), 1, 5.0);
        assert!(caveats.is_empty() && remarks.is_empty() && seconds[1] == 0.0, "{caveats:?} {remarks:?} {seconds:?}");
        assert!(lines.iter().all(|(_, _, fit)| is_quiet(&fit.line)));
        assert!(seconds[0] < QUIET_S * 1.1, "{seconds:?}");
    }
}
