//! What a server sustains: streams of requests, each after the other, against the lines of single requests.
//!
//! The lines come from requests of many sizes in turn, between which a token bucket fills again and a cache writes back.
//! So every direction is also loaded with one stream of the largest and one of the smallest requests. Where the end of a
//! stream is slower than the line by [`TOLERANCE`], the server has a limit that single requests do not show, and its
//! lines are raised to what the stream sustained: a limit on bytes raises the transfer time, one on requests the startup
//! time.
//!
//! Another program that uses the server for some seconds slows a stream as a limit does. So such a stream is run again
//! later (`recheck.rs`), and only what both show is a limit. The second goes on until it has moved what the limit may
//! have saved up meanwhile ([`Reserve`]).

use super::error::Result;
use super::measure::{LARGEST_BYTES, SMALLEST_BYTES, Subject};
use stripewise_layout::{Direction, Order};
use stripewise_model::fit::Fit;
use stripewise_model::{Caveat, Line};

/// A stream may be so much slower than its line before the line is corrected.
const TOLERANCE: f64 = 1.5;

/// Parts of a stream's end that are compared, at most.
const BLOCKS: f64 = 5.0;

/// Time of a part at least: a limit that lets through what it allows for a slice of time, and nothing more until the next
/// one, has several slices in it. The kernel's limits have slices of 100 ms.
const MIN_BLOCK_S: f64 = 0.25;

/// Time of a stream that is slower than its line, at least.
const DOUBTED_S: f64 = 1.0;

/// Times its budget that a stream lasts at most which slows down before its end: all of its second half is slow then.
const MAX_BUDGETS: f64 = 2.0;

/// Times what a limit can have saved up that a stream moves before it shows that there is none.
const RESERVE_MARGIN: f64 = 1.25;

/// Requests of a stream at least, so that its end is more than one of them.
const MIN_REQUESTS: usize = 8;

/// And at most: fewer show what a bucket or cache of memory speed lets pass.
const MAX_REQUESTS: usize = 200_000;

/// Sizes of the requests of the streams in each direction.
pub(super) const STREAMS: [u64; 2] = [LARGEST_BYTES, SMALLEST_BYTES];

/// Requests of one size, each where the last one ended.
#[derive(Clone, Debug)]
pub(super) struct Stream {
    pub(super) direction: Direction,
    pub(super) bytes: u64,
    /// Time of each request, in order.
    pub(super) seconds: Vec<f64>,
}

/// What a limit let pass before a stream showed it: a bucket that has filled since, or a cache that was written back, lets
/// as much pass again.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(super) struct Reserve {
    /// Requests of the stream's size.
    requests: f64,
    /// As many as the limit lets pass all the time.
    per_s: f64,
    /// No stream lasts longer to move them.
    max_s: f64,
}

impl Reserve {
    /// `before`: bytes and seconds of all requests up to `stream`, in order. The most that these and the stream moved in any
    /// stretch of time beyond what the limit let pass in it.
    pub(super) fn of(stream: &Stream, before: impl Iterator<Item = (u64, f64)>, max_s: f64) -> Self {
        let per_s = 1.0 / stream.sustained_s();
        // Directions may share a limit, so the requests of both count.
        let (mut taken, mut requests) = (0.0_f64, 0.0_f64);
        let own = stream.seconds.iter().map(|seconds| (stream.bytes, *seconds));
        for (bytes, seconds) in before.chain(own) {
            let cost = if stream.bytes == LARGEST_BYTES { bytes as f64 / LARGEST_BYTES as f64 } else { 1.0 };
            taken = (taken + cost - per_s * seconds).max(0.0);
            requests = requests.max(taken);
        }
        Self { requests, per_s, max_s }
    }

    /// Whether so many requests in so long may still be of what was saved up.
    fn may_last(&self, requests: usize, total_s: f64) -> bool {
        total_s < self.max_s && requests as f64 - self.per_s * total_s < RESERVE_MARGIN * self.requests
    }
}

impl Stream {
    /// Runs requests of `bytes` for `budget_s` measured seconds, longer if they are, or become, slower than `single_s`, the
    /// line's time of one, and where they are not, until they have moved `reserve`.
    pub(super) fn run(
        subject: &mut dyn Subject,
        direction: Direction,
        bytes: u64,
        (single_s, budget_s): (f64, f64),
        reserve: Reserve,
    ) -> Result<Self> {
        let span = subject.span_bytes() / bytes * bytes;
        let mut stream = Self { direction, bytes, seconds: Vec::new() };
        let (mut total, mut offset, mut until_s, mut most_s) = (0.0, 0, budget_s, None);
        loop {
            let goes_on = |requests: usize, total: f64| {
                let is_slow = total > TOLERANCE * single_s * requests as f64;
                let is_open = if is_slow { total < DOUBTED_S } else { reserve.may_last(requests, total) };
                requests < MIN_REQUESTS || total < until_s || is_open
            };
            while stream.seconds.len() < MAX_REQUESTS && goes_on(stream.seconds.len(), total) {
                let time = subject.time(direction, offset, bytes)?;
                stream.seconds.push(time);
                total += time;
                offset = (offset + bytes) % span;
            }
            // What had to be moved first does not shorten what follows.
            let moved_s = if reserve.max_s > 0.0 { total } else { budget_s };
            let most_s = *most_s.get_or_insert(DOUBTED_S.max(MAX_BUDGETS * moved_s));
            // Seldom enough that a bucket does not fill meanwhile.
            let slows_down = stream.end_s() > TOLERANCE * single_s.max(stream.sustained_s());
            if !slows_down || total >= most_s || stream.seconds.len() >= MAX_REQUESTS {
                return Ok(stream);
            }
            until_s = total + MIN_BLOCK_S;
        }
    }

    /// Time of a request in the last part of the stream, up to [`MIN_BLOCK_S`].
    fn end_s(&self) -> f64 {
        let part_s = MIN_BLOCK_S.min(self.seconds.iter().sum::<f64>() / BLOCKS);
        let (mut requests, mut part) = (0, 0.0);
        for time in self.seconds.iter().rev() {
            (requests, part) = (requests + 1, part + time);
            if part >= part_s {
                break;
            }
        }
        part / f64::from(requests)
    }

    /// Time of a request at the end of the stream: of the second half of its time, the mean of the fastest of up to
    /// [`BLOCKS`] parts of equal time. A limit slows all of them; another program that uses the server or the processors,
    /// some.
    pub(super) fn sustained_s(&self) -> f64 {
        let total = self.seconds.iter().sum::<f64>();
        let mut sum = 0.0;
        let begin = self.seconds.iter().position(|time| {
            sum += time;
            sum > total / 2.0
        });
        let end = &self.seconds[begin.unwrap_or(0)..];
        let block_s = (end.iter().sum::<f64>() / BLOCKS).max(MIN_BLOCK_S);
        let (mut fastest, mut requests, mut block) = (f64::INFINITY, 0, 0.0);
        for time in end {
            (requests, block) = (requests + 1, block + time);
            if block >= block_s {
                fastest = fastest.min(block / f64::from(requests));
                (requests, block) = (0, 0.0);
            }
        }
        // Shorter than one part: all of it.
        if fastest.is_finite() { fastest } else { end.iter().sum::<f64>() / end.len() as f64 }
    }

    /// Bytes moved before the stream slowed down: those of its leading part whose mean time stays nearer to `single_s`
    /// than to `sustained_s`.
    fn burst_bytes(&self, single_s: f64, sustained_s: f64) -> u64 {
        let border = (single_s * sustained_s).sqrt();
        let (mut sum, mut leading) = (0.0, 0);
        for (number, time) in self.seconds.iter().enumerate() {
            sum += time;
            if sum / (number + 1) as f64 <= border {
                leading = number + 1;
            }
        }
        leading as u64 * self.bytes
    }
}

/// A limit that single requests do not show.
struct Limit {
    sustained_s: f64,
    burst_bytes: u64,
}

/// A stream, and the one that was run again because it was slower than its line.
#[derive(Clone, Debug)]
pub(super) struct Streamed {
    pub(super) first: Stream,
    pub(super) again: Option<Stream>,
}

impl Streamed {
    /// What all of its streams show. Other programs only slow a stream, so the faster one has the rate. Each may begin when
    /// some of the burst is spent, all of it even, so the longer one is the burst.
    fn limit(&self, single_s: f64) -> Option<Limit> {
        let streams = || std::iter::once(&self.first).chain(&self.again);
        let sustained_s = streams().map(Stream::sustained_s).fold(f64::INFINITY, f64::min);
        let is_limited = sustained_s > TOLERANCE * single_s;
        let burst_bytes = || streams().map(|stream| stream.burst_bytes(single_s, sustained_s)).max().unwrap_or(0);
        is_limited.then(|| Limit { sustained_s, burst_bytes: burst_bytes() })
    }
}

/// Raises the lines of `server` to what `streams` sustained and gives the caveats for it. On a busy host the streams of
/// small requests show how long tasks wait for a processor, and do not count.
pub(super) fn correct(
    server: &str,
    lines: &mut [(Direction, Order, Fit)],
    streams: &[Streamed],
    is_busy: bool,
) -> Vec<Caveat> {
    let mut caveats = Vec::new();
    for streamed in streams.iter().filter(|streamed| !is_busy || streamed.first.bytes == LARGEST_BYTES) {
        let Stream { direction, bytes, .. } = streamed.first;
        let of_direction = |line: &&mut (Direction, Order, Fit)| line.0 == direction;
        let Some(sequential) = lines.iter().find(|line| (line.0, line.1) == (direction, Order::Sequential)) else {
            continue;
        };
        let single_s = sequential.2.line.seconds(bytes as f64);
        let Some(Limit { sustained_s, burst_bytes }) = streamed.limit(single_s) else {
            continue;
        };
        for (_, _, fit) in lines.iter_mut().filter(of_direction) {
            raise(&mut fit.line, bytes, sustained_s);
        }
        let server = server.to_owned();
        caveats.push(if bytes == LARGEST_BYTES {
            Caveat::LimitedRate {
                server,
                direction,
                single_bytes_per_s: bytes as f64 / single_s,
                sustained_bytes_per_s: bytes as f64 / sustained_s,
                burst_bytes,
            }
        } else {
            Caveat::LimitedRequests {
                server,
                direction,
                single_per_s: 1.0 / single_s,
                sustained_per_s: 1.0 / sustained_s,
            }
        });
    }
    caveats
}

/// Lets `line` give at least `sustained_s` for `bytes`: by its slope for large requests, by its startup for small ones.
fn raise(line: &mut Line, bytes: u64, sustained_s: f64) {
    if bytes == LARGEST_BYTES {
        line.beta_s_per_byte = line.beta_s_per_byte.max((sustained_s - line.alpha_s).max(0.0) / bytes as f64);
    } else {
        line.alpha_s = line.alpha_s.max(sustained_s - line.beta_s_per_byte * bytes as f64);
    }
}

#[cfg(test)]
mod tests {
    use super::super::measure::{Effort, Lines, MIN_SPAN_BYTES, SERVER_LINES, fits, measure};
    use super::*;
    use std::time::Duration;

    /// A device of 2.4 GB/s and 50 us behind a bucket that fills with `rate` and holds `burst`, of bytes or of requests.
    struct Bucket {
        now_s: f64,
        tokens: f64,
        rate: f64,
        burst: f64,
        counts_requests: bool,
    }

    impl Bucket {
        fn new(rate: f64, burst: f64, counts_requests: bool) -> Self {
            Self { now_s: 0.0, tokens: burst, rate, burst, counts_requests }
        }
    }

    impl Subject for Bucket {
        fn span_bytes(&self) -> u64 {
            MIN_SPAN_BYTES
        }

        fn time(&mut self, _: Direction, _: u64, bytes: u64) -> Result<f64> {
            let cost = if self.counts_requests { 1.0 } else { bytes as f64 };
            self.tokens -= cost;
            let waits = (-self.tokens / self.rate).max(0.0);
            let seconds = waits + 50e-6 + bytes as f64 / 2.4e9;
            self.now_s += seconds;
            self.tokens = (self.tokens + seconds * self.rate).min(self.burst);
            Ok(seconds)
        }
    }

    fn once(subject: &mut dyn Subject, direction: Direction, bytes: u64, pace: (f64, f64)) -> Streamed {
        Streamed { first: Stream::run(subject, direction, bytes, pace, Reserve::default()).unwrap(), again: None }
    }

    fn calibrated(subject: &mut Bucket) -> (Lines, Vec<Caveat>) {
        let effort = Effort { most_rounds: 6, budget: Duration::from_secs(3600) };
        let measured = measure(subject, &SERVER_LINES, effort, 7, &|_| {}).unwrap();
        let mut lines = fits(&measured).unwrap();
        let mut streams = Vec::new();
        for direction in [Direction::Write, Direction::Read] {
            for bytes in STREAMS {
                streams.push(once(subject, direction, bytes, (50e-6 + bytes as f64 / 2.4e9, 1.0)));
            }
        }
        let caveats = correct("s0", &mut lines, &streams, false);
        (lines, caveats)
    }

    #[test]
    fn a_bucket_of_bytes_lowers_the_rate_to_what_it_sustains() {
        let (lines, caveats) = calibrated(&mut Bucket::new(98e6, 64e6, false));
        for (direction, order, fit) in &lines {
            let rate = 4194304.0 / fit.line.seconds(4194304.0);
            assert!((rate / 98e6 - 1.0).abs() < 0.05, "{direction:?} {order:?}: {rate}");
        }
        assert!(caveats.iter().any(|caveat| matches!(
            caveat,
            Caveat::LimitedRate { direction: Direction::Write, sustained_bytes_per_s, .. }
                if (sustained_bytes_per_s / 98e6 - 1.0).abs() < 0.05
        )));
        assert!(caveats[0].to_string().contains("98 MB/s"), "{}", caveats[0]);
    }

    #[test]
    fn a_bucket_of_requests_raises_the_startup_time() {
        let (lines, caveats) = calibrated(&mut Bucket::new(500.0, 200.0, true));
        for (direction, order, fit) in &lines {
            let seconds = fit.line.seconds(4096.0);
            assert!((seconds / 2e-3 - 1.0).abs() < 0.05, "{direction:?} {order:?}: {seconds}");
        }
        assert!(caveats.iter().any(|caveat| matches!(caveat, Caveat::LimitedRequests { .. })), "{caveats:?}");
    }

    #[test]
    fn a_device_without_a_limit_keeps_its_lines() {
        let (lines, caveats) = calibrated(&mut Bucket::new(1e12, 1e12, false));
        assert_eq!(caveats, []);
        for (_, _, fit) in &lines {
            assert!(
                (fit.line.alpha_s / 50e-6 - 1.0).abs() < 0.01 && (fit.line.beta_s_per_byte * 2.4e9 - 1.0).abs() < 0.01
            );
        }
    }

    /// A device of 2.4 GB/s that passes what it may in each slice of 100 ms as fast as it can, as the kernel's limits do.
    struct Sliced {
        now_s: f64,
        used: f64,
        slice: u64,
    }

    impl Subject for Sliced {
        fn span_bytes(&self) -> u64 {
            MIN_SPAN_BYTES
        }

        fn time(&mut self, _: Direction, _: u64, bytes: u64) -> Result<f64> {
            let begin = self.now_s;
            let slice = (self.now_s / 0.1) as u64;
            if slice > self.slice {
                self.used = (self.used - 9.8e6 * (slice - self.slice) as f64).max(0.0);
                self.slice = slice;
            }
            // What is over waits for as many slices as pass it.
            let over = ((self.used + bytes as f64) / 9.8e6).floor();
            if over >= 1.0 {
                self.now_s = (self.slice as f64 + over) * 0.1 + 1e-6;
            }
            self.used += bytes as f64;
            self.now_s += 50e-6 + bytes as f64 / 2.4e9;
            Ok(self.now_s - begin)
        }
    }

    #[test]
    fn a_limit_by_slices_is_seen_in_a_short_stream() {
        let single_s = 50e-6 + LARGEST_BYTES as f64 / 2.4e9;
        for budget_s in [0.05, 0.15, 1.0] {
            let mut device = Sliced { now_s: 0.0, used: 0.0, slice: 0 };
            let stream = once(&mut device, Direction::Write, LARGEST_BYTES, (single_s, budget_s)).first;
            let rate = LARGEST_BYTES as f64 / stream.sustained_s();
            assert!((rate / 98e6 - 1.0).abs() < 0.25, "{budget_s}: {rate}");
        }
    }

    /// Every tenth request waits for the processor, in most of the stream.
    #[test]
    fn a_busy_machine_is_no_limit() {
        let seconds = (0..9000).map(|number| if number % 10 == 0 && number < 1000 { 1e-2 } else { 1e-4 }).collect();
        let stream = Stream { direction: Direction::Read, bytes: 4096, seconds };
        assert!((stream.sustained_s() / 1e-4 - 1.0).abs() < 1e-6, "{}", stream.sustained_s());
    }

    /// Until then the fastest part of its second half is of the burst.
    #[test]
    fn a_stream_that_slows_down_before_its_end_goes_on() {
        let line = Line { alpha_s: 50e-6, beta_s_per_byte: 1.0 / 2.4e9, r2: 1.0, spread: 0.0, samples: 9 };
        for budget_s in [0.15, 0.75, 1.0, 3.0] {
            let burst = 1.3e9 * budget_s / 0.75;
            let mut bucket = Bucket::new(98e6, burst, false);
            let single_s = line.seconds(LARGEST_BYTES as f64);
            let stream = once(&mut bucket, Direction::Write, LARGEST_BYTES, (single_s, budget_s));
            let mut lines = [(Direction::Write, Order::Sequential, Fit { line, outliers: 0 })];
            let caveats = correct("s0", &mut lines, &[stream], false);
            let [Caveat::LimitedRate { sustained_bytes_per_s, burst_bytes, .. }] = caveats[..] else {
                panic!("{budget_s}: {caveats:?}")
            };
            assert!((sustained_bytes_per_s / 98e6 - 1.0).abs() < 0.05, "{budget_s}: {sustained_bytes_per_s}");
            assert!((0.9..1.3).contains(&(burst_bytes as f64 / burst)), "{budget_s}: {burst_bytes}");
        }
    }

    #[test]
    fn a_stream_that_stays_as_fast_as_its_line_lasts_no_longer() {
        for (bytes, budget_s) in [(LARGEST_BYTES, 0.75), (LARGEST_BYTES, 0.15), (SMALLEST_BYTES, 0.75)] {
            let single_s = 50e-6 + bytes as f64 / 2.4e9;
            let mut device = Bucket::new(1e12, 1e12, false);
            let stream = once(&mut device, Direction::Read, bytes, (single_s, budget_s)).first;
            let total = stream.seconds.iter().sum::<f64>();
            assert!((budget_s..budget_s + 2.0 * single_s).contains(&total), "{bytes} {budget_s}: {total}");
        }
    }

    #[test]
    fn the_burst_before_a_limit_is_told() {
        let mut bucket = Bucket::new(100e6, 512e6, false);
        let single_s = 50e-6 + LARGEST_BYTES as f64 / 2.4e9;
        let stream = once(&mut bucket, Direction::Write, LARGEST_BYTES, (single_s, 3.0)).first;
        let burst = stream.burst_bytes(single_s, stream.sustained_s());
        assert!((512e6..900e6).contains(&(burst as f64)), "{burst}");
    }
}
