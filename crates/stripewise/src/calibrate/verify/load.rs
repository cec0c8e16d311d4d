//! A closed loop of processes: each issues its next request when all pieces of its last one are done.
//!
//! A process is a state and not a thread. Every server has a queue and threads of its own, so that no server waits for a
//! thread that another one holds. The thread that finishes the last piece of a request issues the process's next one.
//!
//! Buffered writes return before their device has them. A load with any is limited in bytes too, counts from its first
//! request, and ends when all servers have synced.

use super::super::directory::AlignedBuffer;
use super::super::error::{CalibrationError, Result};
use super::super::measure::SMALLEST_BYTES;
use super::mix::{Cursor, Mix, Piece};
use rand::SeedableRng;
use rand::rngs::SmallRng;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};
use stripewise_layout::RequestKind;

/// Pieces under way on one server at most; no disk or flash drive gains from more.
const MAX_UNDER_WAY: usize = 64;

/// Memory of all threads together.
const MAX_MEMORY_BYTES: u64 = 512 << 20;

/// Share of the time that passes before anything counts: queues fill first.
const WARM_UP: f64 = 0.1;

/// How often progress is reported.
const REPORT_TIME: Duration = Duration::from_millis(100);

/// What does the pieces of one server.
pub(super) trait Target: Sync {
    /// Pieces stay below this.
    fn span_bytes(&self) -> u64;

    /// Reads or writes `buffer` at `offset`, both multiples of 4 KiB.
    fn perform(&self, kind: RequestKind, offset: u64, buffer: &mut [u8]) -> Result<()>;

    /// Returns when the device has all buffered writes.
    fn sync(&self) -> Result<()>;
}

/// How much to issue.
pub(super) struct Load {
    pub(super) processes: u32,
    pub(super) duration: Duration,
    /// Bytes of requests after which none is issued; of a load with buffered writes.
    pub(super) written_back_bytes: u64,
    pub(super) seed: u64,
}

/// What was done after the warm-up.
#[derive(Clone, Default, Debug)]
pub(super) struct Tally {
    pub(super) seconds: f64,
    pub(super) requests: u64,
    pub(super) bytes: u64,
    pub(super) servers: Vec<ServerTally>,
}

/// One server's part of it.
#[derive(Clone, Default, Debug)]
pub(super) struct ServerTally {
    pub(super) sub_requests: u64,
    pub(super) bytes: u64,
    /// Of all pieces together.
    pub(super) seconds: f64,
    /// In which at least one piece was under way.
    pub(super) busy_s: f64,
}

/// A process's piece on its way; `None` ends a thread.
type Job = Option<(usize, Piece)>;

struct Process {
    draws: SmallRng,
    cursor: Cursor,
    pieces: Vec<Piece>,
    /// Pieces of the current request that are not done.
    left: usize,
    bytes: u64,
}

#[derive(Default)]
struct ServerState {
    tally: ServerTally,
    under_way: usize,
    busy_since: Option<Instant>,
}

#[derive(Default)]
struct Progress {
    requests: u64,
    bytes: u64,
    /// Processes that have issued their last request, and those that have ended.
    ended: usize,
    fault: Option<(usize, CalibrationError)>,
}

struct Loop<'a, 'm> {
    mix: &'a Mix<'m>,
    queues: Vec<Sender<Job>>,
    servers: Vec<Mutex<ServerState>>,
    processes: Vec<Mutex<Process>>,
    progress: Mutex<Progress>,
    /// Gets one message when all processes have ended.
    all_ended: Sender<()>,
    counted_from: Instant,
    until: Instant,
    /// Of a load with buffered writes, which counts all that it issues.
    limit_bytes: Option<u64>,
}

fn guard<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().expect("no thread panics while it holds the lock")
}

/// Issues requests of `mix` for the load's duration. `progress` gets the share done, 0 to 1.
///
/// # Errors
///
/// The first error of a target, with its number.
pub(super) fn run(
    mix: &Mix<'_>,
    targets: &[impl Target],
    load: &Load,
    progress: &dyn Fn(f64),
) -> std::result::Result<Tally, (usize, CalibrationError)> {
    // An unaligned piece is done with the whole pages at both its ends.
    let buffer_bytes = mix.largest_piece_bytes().next_multiple_of(SMALLEST_BYTES) + SMALLEST_BYTES;
    let affordable = MAX_MEMORY_BYTES / buffer_bytes / targets.len().max(1) as u64;
    let threads = (load.processes as usize).min(MAX_UNDER_WAY).min(affordable as usize).max(1);
    let (queues, jobs): (Vec<_>, Vec<_>) = targets.iter().map(|_| channel()).unzip();
    let (all_ended, end) = channel();
    let process = |number: u32| Process {
        draws: SmallRng::seed_from_u64(load.seed.wrapping_add(number.into())),
        cursor: Cursor::default(),
        pieces: Vec::new(),
        left: 0,
        bytes: 0,
    };
    let (content, begin) = (AlignedBuffer::new(buffer_bytes, load.seed), Instant::now());
    let all = Loop {
        mix,
        queues,
        servers: targets.iter().map(|_| Mutex::default()).collect(),
        processes: (0..load.processes).map(|number| Mutex::new(process(number))).collect(),
        progress: Mutex::default(),
        all_ended,
        counted_from: if mix.is_written_back() { begin } else { begin + load.duration.mul_f64(WARM_UP) },
        until: begin + load.duration,
        limit_bytes: mix.is_written_back().then_some(load.written_back_bytes),
    };
    let jobs: Vec<Mutex<Receiver<Job>>> = jobs.into_iter().map(Mutex::new).collect();
    std::thread::scope(|scope| {
        for (server, target) in targets.iter().enumerate() {
            for _ in 0..threads {
                let (all, jobs, buffer) = (&all, &jobs[server], content.copy());
                scope.spawn(move || all.serve(server, target, jobs, buffer));
            }
        }
        for (number, process) in all.processes.iter().enumerate() {
            all.issue(number, &mut guard(process));
        }
        while end.recv_timeout(REPORT_TIME) == Err(RecvTimeoutError::Timeout) {
            progress((begin.elapsed().as_secs_f64() / load.duration.as_secs_f64()).min(1.0));
        }
        for queue in &all.queues {
            (0..threads).for_each(|_| all.send(queue, None));
        }
    });
    if all.limit_bytes.is_some() {
        sync(targets)?;
    }
    all.finish(Instant::now())
}

/// Syncs all targets at once.
fn sync(targets: &[impl Target]) -> std::result::Result<(), (usize, CalibrationError)> {
    std::thread::scope(|scope| {
        let syncs: Vec<_> = targets.iter().map(|target| scope.spawn(|| target.sync())).collect();
        let synced = syncs.into_iter().map(|sync| sync.join().expect("a sync does not panic"));
        synced.enumerate().try_for_each(|(server, result)| result.map_err(|error| (server, error)))
    })
}

impl Loop<'_, '_> {
    fn send(&self, queue: &Sender<Job>, job: Job) {
        queue.send(job).expect("the receivers live as long as the loop");
    }

    /// Does jobs of a server until one says to stop.
    fn serve(&self, server: usize, target: &impl Target, jobs: &Mutex<Receiver<Job>>, mut buffer: AlignedBuffer) {
        loop {
            let job = guard(jobs).recv().expect("the senders live as long as the loop");
            let Some((process, piece)) = job else { return };
            let (offset, bytes) = place(&piece, target.span_bytes());
            let begin = self.begin(server);
            let result = target.perform(piece.kind, offset, buffer.bytes_mut(bytes));
            self.end(server, begin, piece.length);
            if let Err(error) = result {
                guard(&self.progress).fault.get_or_insert((server, error));
            }
            let mut state = guard(&self.processes[process]);
            state.left -= 1;
            if state.left == 0 {
                self.issue(process, &mut state);
            }
        }
    }

    fn begin(&self, server: usize) -> Instant {
        let now = Instant::now();
        let mut state = guard(&self.servers[server]);
        state.under_way += 1;
        state.busy_since.get_or_insert(now);
        now
    }

    fn end(&self, server: usize, begin: Instant, bytes: u64) {
        let now = Instant::now();
        let mut state = guard(&self.servers[server]);
        state.under_way -= 1;
        if state.under_way == 0 {
            let since = state.busy_since.take().unwrap_or(begin);
            let end = if self.limit_bytes.is_some() { now } else { now.min(self.until) };
            let counted = end.saturating_duration_since(since.max(self.counted_from));
            state.tally.busy_s += counted.as_secs_f64();
        }
        if self.is_counted(now) {
            state.tally.sub_requests += 1;
            state.tally.bytes += bytes;
            state.tally.seconds += (now - begin).as_secs_f64();
        }
    }

    fn is_counted(&self, now: Instant) -> bool {
        self.limit_bytes.is_some() || (self.counted_from..self.until).contains(&now)
    }

    /// Ends the process's request, if it had one, and issues its next one while there is time.
    fn issue(&self, number: usize, process: &mut Process) {
        let now = Instant::now();
        let mut progress = guard(&self.progress);
        if process.bytes > 0 && self.is_counted(now) {
            progress.requests += 1;
            progress.bytes += process.bytes;
        }
        let is_full = self.limit_bytes.is_some_and(|limit| progress.bytes >= limit);
        if now >= self.until || is_full || progress.fault.is_some() {
            progress.ended += 1;
            if progress.ended == self.processes.len() {
                self.all_ended.send(()).expect("the receiver lives as long as the loop");
            }
            return;
        }
        drop(progress);
        process.bytes = self.mix.draw(&mut process.draws, &mut process.cursor, &mut process.pieces);
        process.left = process.pieces.len();
        for piece in &process.pieces {
            self.send(&self.queues[piece.server], Some((number, *piece)));
        }
    }

    /// `end`: when the last server had synced.
    fn finish(self, end: Instant) -> std::result::Result<Tally, (usize, CalibrationError)> {
        let unlocked = "no thread panicked";
        let Progress { requests, bytes, fault, .. } = self.progress.into_inner().expect(unlocked);
        if let Some(fault) = fault {
            return Err(fault);
        }
        let servers = self.servers.into_iter().map(|state| state.into_inner().expect(unlocked).tally).collect();
        let end = if self.limit_bytes.is_some() { end } else { self.until };
        Ok(Tally { seconds: (end - self.counted_from).as_secs_f64(), requests, bytes, servers })
    }
}

/// Where a piece lies in a file of `span_bytes`, by whole pages: objects begin anywhere in it, and one that is longer
/// comes round again.
fn place(piece: &Piece, span_bytes: u64) -> (u64, u64) {
    let pages = |bytes: u64| bytes / SMALLEST_BYTES;
    let before = piece.offset % SMALLEST_BYTES;
    let bytes = (before + piece.length).next_multiple_of(SMALLEST_BYTES).min(span_bytes);
    let page = (piece.object % pages(span_bytes) + pages(piece.offset)) % pages(span_bytes);
    (page.min(pages(span_bytes - bytes)) * SMALLEST_BYTES, bytes)
}

#[cfg(test)]
mod tests {
    use super::super::mix::tests::{file, placement};
    use super::*;
    use std::collections::{BTreeSet, HashMap};
    use stripewise_layout::{ByteCount, Direction, Layout, Order, Placement, RegionIndex, ServerId, WriteClass};
    use stripewise_trace::{AccessClass, ClassIndex, FileAccess, RegionAccess};

    /// Takes no time and remembers what it did.
    #[derive(Default)]
    struct Recorder {
        accesses: Mutex<Vec<(u64, usize)>>,
        syncs: Mutex<u32>,
        fails_after: Option<usize>,
    }

    const SPAN_BYTES: u64 = 64 << 20;

    impl Target for Recorder {
        fn span_bytes(&self) -> u64 {
            SPAN_BYTES
        }

        fn sync(&self) -> Result<()> {
            *guard(&self.syncs) += 1;
            Ok(())
        }

        fn perform(&self, _: RequestKind, offset: u64, buffer: &mut [u8]) -> Result<()> {
            assert!(offset.is_multiple_of(4096) && buffer.len().is_multiple_of(4096));
            assert!(offset + buffer.len() as u64 <= SPAN_BYTES);
            let mut accesses = guard(&self.accesses);
            accesses.push((offset, buffer.len()));
            match self.fails_after {
                Some(number) if accesses.len() > number => Err(rustix::io::Errno::IO.into()),
                _ => Ok(()),
            }
        }
    }

    fn load() -> Load {
        Load { processes: 3, duration: Duration::from_millis(300), written_back_bytes: 1 << 20, seed: 11 }
    }

    #[test]
    fn every_request_counts_once_and_its_pieces_on_their_servers() {
        let (file, placement) = (file(), placement());
        let mix = Mix::of(&[(&file, &placement)], 0, Direction::Read);
        let targets = [Recorder::default(), Recorder::default()];
        let tally = run(&mix, &targets, &load(), &|_| {}).unwrap();
        let bytes: u64 = tally.servers.iter().map(|server| server.bytes).sum();
        let done: u64 = tally.servers.iter().map(|server| server.sub_requests).sum();
        // Pieces of requests that were not whole at either end of the time count on their servers only.
        let most = u64::from(load().processes) * (64 << 10);
        assert!(bytes.abs_diff(tally.bytes) <= 2 * most, "{tally:?}");
        assert!(tally.requests > 0 && done >= tally.requests, "{tally:?}");
        for (server, target) in tally.servers.iter().zip(&targets) {
            assert!(server.sub_requests <= guard(&target.accesses).len() as u64 && server.busy_s <= tally.seconds);
        }
    }

    #[test]
    fn buffered_writes_are_limited_in_bytes_and_synced() {
        let (mut file, placement) = (file(), placement());
        file.classes.iter_mut().for_each(|class| class.kind = RequestKind::Write(WriteClass::Buffered));
        let mix = Mix::of(&[(&file, &placement)], 0, Direction::Write);
        let targets = [Recorder::default(), Recorder::default()];
        let load = Load { duration: Duration::from_secs(3600), ..load() };
        let tally = run(&mix, &targets, &load, &|_| {}).unwrap();
        // What is under way when the limit is reached counts too.
        let most = load.written_back_bytes + u64::from(load.processes) * (64 << 10);
        assert!((load.written_back_bytes..=most).contains(&tally.bytes), "{tally:?}");
        assert_eq!(tally.servers.iter().map(|server| server.bytes).sum::<u64>(), tally.bytes);
        assert!(targets.iter().all(|target| *guard(&target.syncs) == 1));
    }

    /// A plan of 256 MiB in 4 MiB regions over two servers, written as densely as `share` of its places.
    fn dense(share: f64, request_bytes: u64, order: Order) -> FileAccess {
        let (region_bytes, mut file) = (4u64 << 20, file());
        let class = AccessClass { kind: RequestKind::Write(WriteClass::Buffered), request_bytes, order };
        file.classes = vec![class];
        (file.region_size, file.size_bytes) = (ByteCount(region_bytes), 64 * region_bytes);
        let count = (share * (region_bytes / request_bytes) as f64) as u64;
        let region = file.windows[0].regions[0].clone();
        file.windows[0].regions = (0..64)
            .map(|number| RegionAccess {
                region: RegionIndex(number),
                counts: vec![(ClassIndex(0), count)],
                ..region.clone()
            })
            .collect();
        file
    }

    /// Pages written, and runs of them.
    fn pages_and_runs(pages: &BTreeSet<u64>) -> (f64, f64) {
        let begins = |page: &&u64| page.checked_sub(1).is_none_or(|before| !pages.contains(&before));
        (pages.len() as f64, pages.iter().filter(begins).count() as f64)
    }

    /// Of all requests of the plan, at places of their own: bytes that reach the servers for each byte written, and pages in a run.
    fn of_plan(mix: &Mix<'_>, requests: u64) -> (f64, f64) {
        let (mut draws, mut cursor, mut pieces) = (SmallRng::seed_from_u64(3), Cursor::default(), Vec::new());
        let mut objects: HashMap<u64, BTreeSet<u64>> = HashMap::new();
        let mut written = 0.0;
        for _ in 0..requests {
            mix.draw(&mut draws, &mut cursor, &mut pieces);
            for piece in &pieces {
                let pages = piece.offset / 4096..(piece.offset + piece.length).div_ceil(4096);
                written += piece.length as f64 / 4096.0;
                objects.entry(piece.object).or_default().extend(pages);
            }
        }
        let (pages, runs) =
            objects.values().map(pages_and_runs).fold((0.0, 0.0), |sum, found| (sum.0 + found.0, sum.1 + found.1));
        (pages / written, pages / runs)
    }

    /// The load has time for a quarter of the plan. Spread over all of its regions, that quarter would have hardly a neighbour; over objects that
    /// lie on top of each other, too many.
    #[test]
    fn buffered_writes_have_as_many_neighbours_as_the_plans() {
        let layout = Layout::new([(ServerId(0), 64 << 10), (ServerId(1), 64 << 10)]).unwrap();
        let placement = Placement::uniform(ByteCount(4 << 20), layout.clone(), layout);
        for (seed, share) in [(5, 0.3), (6, 1.0), (7, 2.5)] {
            let file = dense(share, 4096, Order::Random);
            let requests = file.windows[0].regions.iter().map(|region| region.counts[0].1).sum();
            let whole = Mix::of(&[(&file, &placement)], 0, Direction::Write);
            let (mix, bytes) = Mix::of(&[(&file, &placement)], 0, Direction::Write).keep_density(
                requests * 4096 / 4,
                &[SPAN_BYTES; 2],
                &mut SmallRng::seed_from_u64(seed),
            );
            let targets = [Recorder::default(), Recorder::default()];
            let load = Load { duration: Duration::from_secs(3600), written_back_bytes: bytes, seed, ..load() };
            let tally = run(&mix, &targets, &load, &|_| {}).unwrap();
            let mut found = (0.0, 0.0, 0.0);
            for target in &targets {
                let accesses = guard(&target.accesses);
                let (pages, runs) = pages_and_runs(&accesses.iter().map(|(offset, _)| offset / 4096).collect());
                found = (found.0 + accesses.len() as f64, found.1 + pages, found.2 + runs);
            }
            let (written, pages, runs) = found;
            let expected = of_plan(&whole, requests);
            let (of_byte, in_run) = (pages / written / expected.0, pages / runs / expected.1);
            assert!(
                (0.95..1.05).contains(&of_byte) && (0.88..1.12).contains(&in_run),
                "seed {seed}, {share} of the places: {of_byte:.3} of the bytes, {in_run:.3} of a run's length; {tally:?}"
            );
        }
    }

    /// Written in order, every place is written once.
    #[test]
    fn buffered_writes_in_order_leave_nothing_out() {
        let layout = Layout::new([(ServerId(0), 64 << 10), (ServerId(1), 64 << 10)]).unwrap();
        let placement = Placement::uniform(ByteCount(4 << 20), layout.clone(), layout);
        let file = dense(1.0, 64 << 10, Order::Sequential);
        let mix = Mix::of(&[(&file, &placement)], 0, Direction::Write);
        let (mix, bytes) = mix.keep_density(24 << 20, &[SPAN_BYTES; 2], &mut SmallRng::seed_from_u64(8));
        assert!((20 << 20..28 << 20).contains(&bytes), "{bytes}");
        let targets = [Recorder::default(), Recorder::default()];
        let load = Load { duration: Duration::from_secs(3600), written_back_bytes: bytes, ..load() };
        run(&mix, &targets, &load, &|_| {}).unwrap();
        for target in &targets {
            let accesses = guard(&target.accesses);
            let places: BTreeSet<u64> = accesses.iter().map(|(offset, _)| *offset).collect();
            assert!(places.len() as f64 > 0.95 * accesses.len() as f64, "{} of {}", places.len(), accesses.len());
        }
    }

    #[test]
    fn a_fault_ends_the_load_and_names_the_server() {
        let (file, placement) = (file(), placement());
        let mix = Mix::of(&[(&file, &placement)], 0, Direction::Read);
        let targets = [Recorder::default(), Recorder { fails_after: Some(5), ..Recorder::default() }];
        let load = Load { duration: Duration::from_secs(3600), ..load() };
        let (server, error) = run(&mix, &targets, &load, &|_| {}).unwrap_err();
        assert_eq!((server, error.to_string().contains("error")), (1, true), "{error}");
    }

    #[test]
    fn objects_keep_their_order_and_stay_in_the_file() {
        let piece = |object, offset, length| Piece { kind: RequestKind::Read, server: 0, object, offset, length };
        for object in [0, 7, u64::MAX] {
            let mut places = HashMap::new();
            for offset in (0..SPAN_BYTES).step_by(64 << 10) {
                let (at, bytes) = place(&piece(object, offset, 64 << 10), SPAN_BYTES);
                assert!(at + bytes <= SPAN_BYTES && bytes == 64 << 10);
                places.insert(offset, at);
            }
            let follows = places.iter().filter(|(offset, at)| {
                places.get(&(*offset + (64 << 10))).is_some_and(|next| **at + (64 << 10) == *next)
            });
            assert!(follows.count() + 3 >= places.len(), "all but those that come round follow each other");
        }
        assert_eq!(place(&piece(0, 4095, 2), SPAN_BYTES), (0, 8192), "both pages");
        assert_eq!(place(&piece(0, 0, 1 << 40), SPAN_BYTES), (0, SPAN_BYTES));
    }
}
