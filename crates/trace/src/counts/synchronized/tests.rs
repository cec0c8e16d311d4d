use super::super::CountOptions;
use super::*;
use crate::trace::TraceTime;

/// One window of 64 s, a second for each slice.
fn instants() -> Instants {
    Instants::new(&CountOptions { window_s: 64.0, ..CountOptions::default() }, TraceTime(64_000_000_000), 4)
}

/// Of a process: buffered writes of 1 ms in a slice, or a synchronization that begins in a slice and lasts some more.
#[derive(Clone, Copy)]
enum Step {
    Write { slice: u32, writes: u64 },
    Sync { slice: u32, lasts: u32 },
}
use Step::{Sync, Write};

fn synchronizations(processes: &[&[Step]]) -> Synchronizations {
    let place = |slice: u32| Place { window: 0, slice: 1 << slice, part: slice };
    let mut all = Synchronized::default();
    for (process, steps) in processes.iter().enumerate() {
        let mut notes = SyncNotes { seconds_per_tick: 1e-9, ..SyncNotes::default() };
        for step in *steps {
            match *step {
                Write { slice, writes } => {
                    notes.go_to(place(slice));
                    (0..writes).for_each(|_| notes.add(RequestKind::Write(WriteClass::Buffered), 1_000_000));
                }
                Sync { slice, lasts } => notes.sync(place(slice), place(slice + lasts)),
            }
        }
        notes.note();
        all.absorb(ProcessIndex(process as u32), &notes);
    }
    assert_eq!(all.of_window(1, &instants()), Synchronizations::default());
    all.of_window(0, &instants())
}

#[test]
fn writes_without_a_synchronization_have_none() {
    assert_eq!(synchronizations(&[]), Synchronizations::default());
    assert_eq!(synchronizations(&[&[Write { slice: 0, writes: 5 }]]), Synchronizations::default());
}

#[test]
fn processes_that_synchronize_together_end_one_interval() {
    let process = [
        Write { slice: 3, writes: 10 },
        Sync { slice: 4, lasts: 6 },
        Write { slice: 20, writes: 10 },
        Sync { slice: 20, lasts: 3 },
    ];
    let found = synchronizations(&[&process, &process, &process]);
    assert_eq!(found, Synchronizations { apart: 2.0, intervals: 2.0, under_way_s: 0.0, idle_s: 0.02 });
}

#[test]
fn what_is_written_while_a_synchronization_is_under_way_may_be_part_of_it() {
    let early = [Write { slice: 1, writes: 10 }, Sync { slice: 1, lasts: 9 }];
    let late = [Write { slice: 1, writes: 10 }, Write { slice: 5, writes: 20 }, Sync { slice: 5, lasts: 5 }];
    let found = synchronizations(&[&early, &late]);
    assert_eq!(found, Synchronizations { apart: 1.0, intervals: 2.0, under_way_s: 4.0, idle_s: 0.01 });
}

#[test]
fn a_synchronization_after_every_write_makes_an_interval_of_each() {
    let steps: Vec<Step> = (0..12).flat_map(|_| [Write { slice: 7, writes: 1 }, Sync { slice: 7, lasts: 0 }]).collect();
    let found = synchronizations(&[&steps]);
    assert_eq!((found.apart, found.intervals), (12.0, 12.0));
}
