//! How much of one device movers take under `auto`: a controller without clock or device, fed with samples of the device's load.
//!
//! What the foreground takes is measured in *windows*, times in which nothing of the movers' is under way on the device: all that it is busy then is
//! the foreground's, so nothing has to be estimated and subtracted. A device on which pieces follow each other is left alone for a window now and then; on a busy
//! one the pauses between pieces are windows.
//!
//! Where the foreground is absent, movers take all. Elsewhere pieces go one at a time, and each is followed by a pause that makes its service the movers' share of
//! the device: [`FLOOR`], and [`SHARE_OF_REST`] of what the foreground leaves. The floor is what makes a move end on a device that is never idle.
//!
//! A device without statistics has no windows. Movers then see what its clients see: a piece that takes longer than the fastest of late has waited behind the
//! requests of others, if a program is inside a file there.

use std::time::Duration;
use stripewise_layout::Direction;
use stripewise_store::protocol::RequestCost;

/// Share of a device that movers take however busy programs keep it.
pub(super) const FLOOR: f64 = 0.05;
/// Of what the foreground leaves, beside.
const SHARE_OF_REST: f64 = 0.3;
/// Below this the foreground counts as absent.
const QUIET: f64 = 0.05;
/// A shorter window says little: the kernel counts busy time in ticks of up to 10 ms.
const MIN_WINDOW: Duration = Duration::from_millis(25);
/// A longer one is of the past.
const MAX_WINDOW: Duration = Duration::from_secs(1);
/// How long pieces may follow each other before the device is left alone for a window.
const MAX_WORK: Duration = Duration::from_millis(400);
/// Over which samples are smoothed.
const MEMORY: Duration = Duration::from_millis(100);
/// When to ask again whether the pieces under way are over, unless somebody tells before.
const RECHECK: Duration = Duration::from_millis(20);
/// A device without statistics counts as busy all the time when a piece has waited for the inverse of its time.
const WAITED_TO_BUSY: f64 = 4.0;
/// Bytes of a piece on one device: so many that a seek is a small part of its time, and so few that nobody waits long behind it.
const MIN_PIECE_BYTES: u64 = 1 << 20;
const MAX_PIECE_BYTES: u64 = 4 << 20;
/// Times the startup that a piece's transfer takes.
const TRANSFER_OVER_STARTUP: u64 = 4;

/// What a device has done since it is there.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Reading {
    /// Time in which it had any request.
    pub(super) busy: Duration,
    pub(super) bytes: u64,
}

/// What requests take on a device that is not busy.
#[derive(Clone, Copy, Debug)]
pub(super) struct Costs {
    pub(super) read: RequestCost,
    pub(super) write: RequestCost,
}

impl Costs {
    fn of(&self, direction: Direction) -> RequestCost {
        match direction {
            Direction::Read => self.read,
            Direction::Write => self.write,
        }
    }
}

/// A piece that movers have under way on a device.
#[derive(Clone, Copy, Debug)]
pub(super) struct Piece {
    begun: Option<Reading>,
    pub(super) direction: Direction,
    bytes: u64,
}

/// Movers' use of one device. Times are counted from any one moment.
#[derive(Clone, Debug)]
pub(super) struct Pacer {
    costs: Costs,
    under_way: u32,
    /// When the present window began, and what the device had done by then.
    window: Option<(Duration, Reading)>,
    /// When the last window ended.
    measured: Option<Duration>,
    /// Share of the device's time that the foreground takes, smoothed.
    foreground: f64,
    /// Service that is to be paused for, as of the end of the last piece.
    debt: Duration,
    debt_since: Duration,
    /// What pieces on a device without statistics take alone, over their cost; of reads and of writes.
    fastest: [f64; 2],
}

impl Pacer {
    /// Of a device on which pieces take about `costs`.
    pub(super) fn new(costs: Costs) -> Self {
        Self {
            costs,
            under_way: 0,
            window: None,
            measured: None,
            foreground: 0.0,
            debt: Duration::ZERO,
            debt_since: Duration::ZERO,
            fastest: [1.0; 2],
        }
    }

    /// Bytes to read or write at once.
    pub(super) fn piece_bytes(&self, direction: Direction) -> u64 {
        let cost = self.costs.of(direction);
        let kib = TRANSFER_OVER_STARTUP.saturating_mul(cost.startup_ns) / cost.kib_ns.max(1);
        (kib.min(MAX_PIECE_BYTES >> 10) << 10).next_power_of_two().clamp(MIN_PIECE_BYTES, MAX_PIECE_BYTES)
    }

    /// Whether programs use the device, as far as is known.
    pub(super) fn is_shared(&self) -> bool {
        self.foreground >= QUIET
    }

    /// How long the next piece has to wait; zero: it may begin.
    pub(super) fn delay(&mut self, now: Duration, reading: Option<Reading>) -> Duration {
        let Some(reading) = reading else {
            return if self.is_shared() && self.under_way > 0 { RECHECK } else { self.pause_left(now) };
        };
        let has_measured = self.measured.is_some_and(|measured| now.saturating_sub(measured) < MAX_WORK);
        if self.under_way > 0 {
            let may_join = has_measured && !self.is_shared();
            return if may_join { Duration::ZERO } else { RECHECK };
        }
        let length = match self.window {
            Some((begun, before)) if now.saturating_sub(begun) <= MAX_WINDOW => {
                let length = now.saturating_sub(begun);
                if length >= MIN_WINDOW {
                    self.note_window(length, reading.busy.saturating_sub(before.busy));
                    self.window = Some((now, reading));
                    self.measured = Some(now);
                    return self.pause_left(now);
                }
                length
            }
            _ => {
                self.window = Some((now, reading));
                Duration::ZERO
            }
        };
        if has_measured { self.pause_left(now) } else { MIN_WINDOW - length }
    }

    fn note_window(&mut self, length: Duration, busy: Duration) {
        let share = (busy.as_secs_f64() / length.as_secs_f64()).min(1.0);
        // The first one is all that is known.
        let weight =
            if self.measured.is_none() { 1.0 } else { 1.0 - (-length.as_secs_f64() / MEMORY.as_secs_f64()).exp() };
        self.foreground += (share - self.foreground) * weight;
    }

    fn own_share(&self) -> f64 {
        FLOOR + SHARE_OF_REST * (1.0 - self.foreground)
    }

    fn pause_left(&self, now: Duration) -> Duration {
        if !self.is_shared() {
            return Duration::ZERO;
        }
        (self.debt_since + self.debt.div_f64(self.own_share())).saturating_sub(now)
    }

    /// A piece begins, whose [`Self::delay`] is over.
    pub(super) fn begin(&mut self, reading: Option<Reading>, direction: Direction, bytes: u64) -> Piece {
        self.under_way += 1;
        self.window = None;
        Piece { begun: reading, direction, bytes }
    }

    /// A piece is over, which took so long; `None`: nothing was done. `is_inside`: a program was inside a file on the device.
    pub(super) fn end(
        &mut self,
        now: Duration,
        reading: Option<Reading>,
        piece: Piece,
        took: Option<Duration>,
        is_inside: bool,
    ) {
        self.under_way = self.under_way.saturating_sub(1);
        if self.under_way == 0 {
            self.window = reading.map(|reading| (now, reading));
        }
        let Some(took) = took else { return };
        let service = match (piece.begun, reading) {
            // What the page cache had or took cost the device nothing.
            (Some(begun), Some(reading)) if reading.bytes.saturating_sub(begun.bytes) < piece.bytes / 2 => {
                Duration::ZERO
            }
            // Time spent behind others is not the piece's.
            (Some(_), Some(_)) => took.min(Duration::from_nanos(self.costs.of(piece.direction).ns(piece.bytes))),
            _ => self.note_latency(took, piece, is_inside),
        };
        let paid = now.saturating_sub(self.debt_since).mul_f64(self.own_share());
        self.debt = self.debt.saturating_sub(paid) + service;
        self.debt_since = now;
        if !self.is_shared() {
            self.debt = Duration::ZERO;
        }
    }

    /// Of a device without statistics. Returns the piece's own service.
    fn note_latency(&mut self, took: Duration, piece: Piece, is_inside: bool) -> Duration {
        let cost_ns = self.costs.of(piece.direction).ns(piece.bytes).max(1) as f64;
        let over_cost = took.as_nanos() as f64 / cost_ns;
        let fastest = &mut self.fastest[piece.direction as usize];
        // What is slow while somebody is inside has waited; what is slow while nobody is shows that the device is.
        let weight = match over_cost < *fastest {
            true => 1.0,
            false if is_inside => 1.0 / 1024.0,
            false => 1.0 / 8.0,
        };
        *fastest += (over_cost - *fastest) * weight;
        let own_ns = *fastest * cost_ns;
        // What a piece took over its service it waited behind others; little beside it, however busy they keep the device, since pieces are long.
        let waited = (1.0 - own_ns / took.as_nanos().max(1) as f64).max(0.0);
        let share = if is_inside { (WAITED_TO_BUSY * waited).min(1.0) } else { 0.0 };
        self.foreground += (share - self.foreground) / 3.0;
        Duration::from_nanos(own_ns as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Writes transfer five times slower.
    const DISK: Costs = Costs {
        read: RequestCost { startup_ns: 6_500_000, kib_ns: 8_500 },
        write: RequestCost { startup_ns: 6_500_000, kib_ns: 42_500 },
    };

    /// A device that serves one request after the other, and what it has done.
    #[derive(Default)]
    struct Device {
        free: Duration,
        served: Vec<(Duration, Duration)>,
        bytes: u64,
    }

    impl Device {
        /// Returns when the request is over.
        fn serve(&mut self, now: Duration, service: Duration, bytes: u64) -> Duration {
            let begun = now.max(self.free);
            self.free = begun + service;
            self.served.push((begun, self.free));
            self.bytes += bytes;
            self.free
        }

        fn reading(&self, now: Duration) -> Reading {
            let busy = self.served.iter().map(|(begun, end)| now.min(*end).saturating_sub(*begun)).sum();
            Reading { busy, bytes: self.bytes }
        }
    }

    /// So many clients that each make a request, wait for it, think, and go on.
    #[derive(Clone, Copy)]
    struct Clients {
        count: usize,
        think: Duration,
        /// When they have made their last request.
        stop: Duration,
        /// Whether movers see the device's statistics.
        has_statistics: bool,
        /// What movers do on the device.
        pieces: Direction,
    }

    /// Of requests and pieces that were begun.
    #[derive(Default)]
    struct Outcome {
        requests: u64,
        pieces: u64,
        pieces_after_stop: u64,
    }

    const REQUEST: Duration = Duration::from_millis(7);
    const SPAN: Duration = Duration::from_secs(20);

    impl Clients {
        fn new(count: usize, think_ms: u64) -> Self {
            let think = Duration::from_millis(think_ms);
            Self { count, think, stop: SPAN, has_statistics: true, pieces: Direction::Read }
        }

        /// On a device of their own, and with a mover beside them if there is a pacer; in steps of 0.1 ms.
        fn run(self, mut pacer: Option<&mut Pacer>) -> Outcome {
            let (mut device, mut now) = (Device::default(), Duration::ZERO);
            let mut next = vec![Duration::ZERO; self.count];
            let (mut outcome, mut under_way, mut asks_at) = (Outcome::default(), None, Duration::ZERO);
            while now < SPAN {
                let is_there = now < self.stop;
                for next in next.iter_mut().filter(|next| is_there && **next <= now) {
                    *next = device.serve(now, REQUEST, 65536) + self.think;
                    outcome.requests += 1;
                }
                if let Some(pacer) = pacer.as_deref_mut() {
                    let reading = |device: &Device| self.has_statistics.then(|| device.reading(now));
                    if let Some((piece, begun, end)) = under_way
                        && end <= now
                    {
                        pacer.end(now, reading(&device), piece, Some(now - begun), is_there && self.count > 0);
                        (under_way, asks_at) = (None, now);
                    }
                    if under_way.is_none() && asks_at <= now {
                        let delay = pacer.delay(now, reading(&device));
                        asks_at = now + delay.min(Duration::from_millis(50));
                        if delay.is_zero() {
                            let bytes = pacer.piece_bytes(self.pieces);
                            let piece = pacer.begin(reading(&device), self.pieces, bytes);
                            let service = Duration::from_nanos(DISK.of(self.pieces).ns(bytes));
                            under_way = Some((piece, now, device.serve(now, service, bytes)));
                            outcome.pieces += 1;
                            outcome.pieces_after_stop += u64::from(!is_there);
                        }
                    }
                }
                now += Duration::from_micros(100);
            }
            outcome
        }
    }

    /// Pieces that the device can read in a time.
    fn most_pieces(span: Duration) -> f64 {
        span.as_secs_f64() * 1e9 / DISK.read.ns(Pacer::new(DISK).piece_bytes(Direction::Read)) as f64
    }

    #[test]
    fn pieces_are_long_beside_a_seek_and_short_to_wait_for() {
        let bytes = |startup_ns, kib_ns| {
            let pacer = Pacer::new(Costs { write: RequestCost { startup_ns, kib_ns }, ..DISK });
            pacer.piece_bytes(Direction::Write)
        };
        let found = [bytes(3_000_000, 8_500), bytes(100_000, 2_000), bytes(0, 0), bytes(u64::MAX, 1)];
        assert_eq!(found, [2 << 20, 1 << 20, 1 << 20, 4 << 20]);
    }

    #[test]
    fn an_idle_device_is_the_movers() {
        let pieces = Clients::new(0, 0).run(Some(&mut Pacer::new(DISK))).pieces as f64;
        assert!(pieces > 0.9 * most_pieces(SPAN), "{pieces} of {}", most_pieces(SPAN));
    }

    #[test]
    fn a_busy_device_loses_less_than_a_tenth_and_moves_go_on() {
        for count in [1, 4, 16] {
            let alone = Clients::new(count, 0).run(None).requests as f64;
            let beside = Clients::new(count, 0).run(Some(&mut Pacer::new(DISK)));
            let (kept, moved) = (beside.requests as f64 / alone, beside.pieces as f64 / most_pieces(SPAN));
            assert!(kept >= 0.9, "{count} clients keep {kept}");
            assert!(moved >= 0.5 * FLOOR, "{count} clients leave {moved}");
        }
    }

    #[test]
    fn slow_writes_are_paused_for_as_long_as_they_take() {
        for has_statistics in [true, false] {
            let clients = Clients { has_statistics, pieces: Direction::Write, ..Clients::new(4, 0) };
            let alone = clients.run(None).requests as f64;
            let beside = clients.run(Some(&mut Pacer::new(DISK)));
            let kept = beside.requests as f64 / alone;
            assert!(kept >= 0.9 && beside.pieces > 1, "{kept} kept beside {} pieces", beside.pieces);
        }
    }

    /// A device without statistics that is read from and written to at once.
    #[test]
    fn slow_writes_alone_do_not_look_busy() {
        let mut pacer = Pacer::new(DISK);
        for number in 1..=100 {
            for direction in [Direction::Read, Direction::Write] {
                let bytes = pacer.piece_bytes(direction);
                let piece = pacer.begin(None, direction, bytes);
                let took = Duration::from_nanos(DISK.of(direction).ns(bytes));
                pacer.end(Duration::from_secs(number), None, piece, Some(took), true);
            }
        }
        assert!(!pacer.is_shared());
    }

    #[test]
    fn the_busier_the_foreground_the_fewer_pieces() {
        let pieces =
            [200, 30, 7, 1, 0].map(|think_ms| Clients::new(1, think_ms).run(Some(&mut Pacer::new(DISK))).pieces);
        assert!(pieces.is_sorted_by(|before, after| before > after) && pieces[4] > 0, "{pieces:?}");
    }

    #[test]
    fn a_foreground_that_stops_gives_its_time_to_the_movers() {
        let stop = Duration::from_secs(15);
        let mut pacer = Pacer::new(DISK);
        let pieces = Clients { stop, ..Clients::new(4, 0) }.run(Some(&mut pacer)).pieces_after_stop as f64;
        assert!(!pacer.is_shared());
        assert!(pieces > 0.8 * most_pieces(SPAN - stop), "{pieces} of {}", most_pieces(SPAN - stop));
    }

    /// Whoever was inside a file counted as the load of all its devices.
    #[test]
    fn a_program_that_waits_inside_its_file_is_no_load() {
        let waiting = Clients { stop: Duration::from_millis(1), ..Clients::new(1, 1_000_000) };
        let mut pacer = Pacer::new(DISK);
        let pieces = waiting.run(Some(&mut pacer)).pieces as f64;
        assert!(pieces > 0.9 * most_pieces(SPAN) && !pacer.is_shared(), "{pieces} of {}", most_pieces(SPAN));
    }

    #[test]
    fn what_the_page_cache_served_is_not_paused_for() {
        let mut pacer = Pacer::new(DISK);
        Clients::new(4, 0).run(Some(&mut pacer));
        let reading = |bytes| Some(Reading { busy: SPAN, bytes });
        let mut debt_after = |bytes| {
            let piece = pacer.begin(reading(0), Direction::Read, 1 << 20);
            pacer.end(SPAN * 2, reading(bytes), piece, Some(Duration::from_millis(10)), true);
            pacer.debt
        };
        assert_eq!((debt_after(0), debt_after(1 << 20)), (Duration::ZERO, Duration::from_millis(10)));
    }

    #[test]
    fn without_statistics_the_latencies_of_pieces_tell() {
        let clients = Clients { has_statistics: false, stop: Duration::from_secs(15), ..Clients::new(4, 0) };
        let alone = clients.run(None).requests as f64;
        let mut alone_pacer = Pacer::new(DISK);
        Clients { count: 0, ..clients }.run(Some(&mut alone_pacer));
        assert!(!alone_pacer.is_shared(), "nobody else was there");
        let mut pacer = Pacer::new(DISK);
        let beside = clients.run(Some(&mut pacer));
        assert!(beside.requests as f64 > 0.9 * alone, "{} of {alone}", beside.requests);
        assert!(beside.pieces > beside.pieces_after_stop && !pacer.is_shared());
    }
}
