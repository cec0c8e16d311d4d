//! What a run did, from the requests of its trace: in one pass, and by what Darshan counts, so that a finding means the same whatever it was found in.

use super::activity::{Activity, BusyFile, Requests, both};
use std::cmp::Reverse;
use std::collections::HashMap;
use stripewise_capture::NO_OFFSET;
use stripewise_capture::call::{Call, Level, Operation};
use stripewise_layout::ByteCount;
use stripewise_trace::darshan::TIMELINE_SLICES;
use stripewise_trace::{Event, FileIndex, Trace};

/// Sums of one file.
#[derive(Default)]
struct OfFile {
    read_bytes: u64,
    write_bytes: u64,
    requests: u64,
    processes: u32,
    time_s: f64,
    mpi_processes: u32,
    collective: u64,
    independent: u64,
    /// Requests and bytes of MPI-IO, and by POSIX.
    mpi: (u64, u64),
    posix: (u64, u64),
}

/// What one process has done to a file so far.
#[derive(Default)]
struct Known {
    has_requests: bool,
    has_mpi: bool,
    /// Ends of its last read and its last write, where these are known.
    ends: [Option<u64>; 2],
}

/// Sums of one process.
#[derive(Default)]
struct OfProcess {
    time_s: f64,
    data_s: f64,
    bytes: u64,
}

struct Gathered {
    activity: Activity,
    files: Vec<OfFile>,
}

/// `is_data` says by its path whether a file is the program's; requests off multiples of `alignment` are unaligned. The run is the trace's, or longer
/// where the log of the job says so. Sums end at the most there is, since sizes in damaged records may be anything.
pub(super) fn of_trace(trace: &Trace, alignment: ByteCount, job_s: f64, is_data: impl Fn(&str) -> bool) -> Activity {
    let processes = (trace.processes.len() as u32).max(trace.mpi_size()).max(1);
    let activity = Activity {
        run_s: trace.duration().seconds().max(job_s),
        processes,
        timeline: vec![[0.0; 2]; TIMELINE_SLICES],
        alignment: alignment.0.max(1),
        ..Activity::default()
    };
    let mut gathered = Gathered { activity, files: Vec::new() };
    gathered.files.resize_with(trace.files.len(), OfFile::default);
    let is_data: Vec<bool> = trace.files.iter().map(|file| is_data(&file.path)).collect();
    for process in trace.process_indices() {
        let mut own = OfProcess::default();
        let mut known: HashMap<FileIndex, Known> = HashMap::new();
        for event in trace.events_of(process) {
            let Some(file) = event.file.filter(|file| is_data[file.0 as usize]) else { continue };
            let nearest = trace.file(file).data_level().unwrap_or(Level::Posix);
            gathered.take(&event, file, nearest, known.entry(file).or_default(), &mut own);
        }
        gathered.activity.take_process(own.time_s, own.data_s, own.bytes as f64);
    }
    gathered.finish(trace)
}

impl Gathered {
    fn take(&mut self, event: &Event, file: FileIndex, nearest: Level, known: &mut Known, own: &mut OfProcess) {
        let of_file = &mut self.files[file.0 as usize];
        let is_data = event.operation().is_data() && event.errno == 0 && event.bytes > 0;
        let level = event.call.level();
        if level == Level::MpiIo {
            of_file.mpi_processes += u32::from(!std::mem::replace(&mut known.has_mpi, true));
        }
        if is_data && level == Level::MpiIo {
            let is_collective = ["_all", "_ordered"].iter().any(|word| event.call.name().contains(word));
            of_file.collective += u64::from(is_collective);
            of_file.independent += u64::from(!is_collective);
            of_file.mpi = both(of_file.mpi, (1, event.bytes));
        } else if is_data {
            of_file.posix = both(of_file.posix, (1, event.bytes));
        }
        if nearest != level {
            return;
        }
        let seconds = event.end.seconds() - event.start.seconds();
        own.time_s += seconds;
        of_file.time_s += seconds;
        let activity = &mut self.activity;
        if !is_data {
            activity.metadata_s += seconds;
            activity.opens += u64::from(matches!(event.operation(), Operation::Open | Operation::Create));
            activity.syncs += u64::from(event.operation() == Operation::Sync);
            return;
        }
        activity.data_s += seconds;
        own.data_s += seconds;
        own.bytes = own.bytes.saturating_add(event.bytes);
        of_file.requests += 1;
        of_file.processes += u32::from(!std::mem::replace(&mut known.has_requests, true));
        let way = usize::from(event.operation() != Operation::Read);
        let moved = if way == 0 { &mut of_file.read_bytes } else { &mut of_file.write_bytes };
        *moved = moved.saturating_add(event.bytes);
        activity.take_request(event, way, &mut known.ends[way]);
    }

    fn finish(self, trace: &Trace) -> Activity {
        let Self { mut activity, files: found } = self;
        for of_file in found.iter().filter(|of_file| of_file.mpi.0 > 0) {
            activity.mpi = both(activity.mpi, of_file.mpi);
            activity.below_mpi = both(activity.below_mpi, of_file.posix);
            if of_file.mpi_processes > 1 {
                activity.collective += of_file.collective;
                activity.independent += of_file.independent;
            }
        }
        let processes = f64::from(activity.processes);
        activity.mean_s = (activity.data_s + activity.metadata_s) / processes;
        activity.mean_bytes = activity.read.bytes.saturating_add(activity.write.bytes) as f64 / processes;
        let with_requests = found.iter().zip(&trace.files).filter(|(of_file, _)| of_file.requests > 0);
        let busy = with_requests.map(|(of_file, file)| BusyFile {
            path: file.path.clone(),
            read_bytes: of_file.read_bytes,
            write_bytes: of_file.write_bytes,
            requests: of_file.requests,
            processes: of_file.processes,
            time_s: Some(of_file.time_s),
            file_system: None,
        });
        activity.files = busy.collect();
        activity.file_count = activity.files.len() as u64;
        activity.files.sort_by_key(|file| Reverse(file.bytes()));
        activity
    }
}

impl Activity {
    fn take_process(&mut self, time_s: f64, data_s: f64, bytes: f64) {
        if time_s > self.busiest_s {
            (self.busiest_s, self.busiest_bytes, self.busiest_data_s) = (time_s, bytes, data_s);
        }
        self.most_data_s = self.most_data_s.max(data_s);
    }

    /// A read (0) or a write (1); `end`: of the process's one before on the file, where that is known.
    fn take_request(&mut self, event: &Event, way: usize, end: &mut Option<u64>) {
        let slice = (event.start.seconds() / self.run_s.max(1e-9) * TIMELINE_SLICES as f64) as usize;
        self.timeline[slice.min(TIMELINE_SLICES - 1)][way] += event.bytes as f64;
        if matches!(event.call, Call::Fread | Call::Fwrite) {
            self.streams = both(self.streams, (1, event.bytes));
        }
        let offset = Some(event.offset.0).filter(|_| event.offset != NO_OFFSET);
        // Nothing precedes the first request, and of what has no place it is not known whether it goes forward.
        let is_forward = offset.zip(*end).map(|(offset, end)| offset >= end);
        *end = offset.map(|offset| offset.saturating_add(event.bytes));
        if let Some(offset) = offset {
            self.alignable += 1;
            self.not_aligned += u64::from(!offset.is_multiple_of(self.alignment));
        }
        let requests: &mut Requests = if way == 0 { &mut self.read } else { &mut self.write };
        requests.add(event.bytes, is_forward);
    }
}
