use super::*;
use crate::lookup_flash;
use crate::random::Random;

const PAGE: u64 = 4096;

fn drive() -> Flash {
    Flash::new(lookup_flash("sata-ssd-2012").unwrap(), 1)
}

/// Requests a second when `depth` are always on their way.
fn per_s(flash: &mut Flash, direction: Direction, bytes: u64, depth: usize, count: usize) -> f64 {
    let capacity = flash.spec.capacity_bytes;
    let mut random = Random::new(5);
    let mut ends = std::collections::BinaryHeap::from(vec![std::cmp::Reverse(Nanos(0)); depth]);
    let mut last = Nanos(0);
    for _ in 0..count {
        let std::cmp::Reverse(now) = ends.pop().unwrap();
        let address = random.next() % (capacity / bytes) * bytes;
        let done = flash.serve(now, direction, address, bytes).done;
        last = last.max(done);
        ends.push(std::cmp::Reverse(done));
    }
    count as f64 / last.seconds()
}

#[test]
fn reads_keep_to_the_data_sheet() {
    let latency_s = 1.0 / per_s(&mut drive(), Direction::Read, PAGE, 1, 2_000);
    assert!((latency_s / 80e-6 - 1.0).abs() < 0.05, "80 us by the data sheet, found {latency_s}");
    let random = per_s(&mut drive(), Direction::Read, PAGE, 32, 50_000);
    assert!((random / 50_000.0 - 1.0).abs() < 0.03, "50,000 a second by the data sheet, found {random}");
    let rate = per_s(&mut drive(), Direction::Read, 1 << 20, 8, 2_000) * f64::from(1 << 20);
    assert!((rate / 550e6 - 1.0).abs() < 0.03, "550 MB/s by the data sheet, found {rate}");
}

#[test]
fn writes_are_done_in_the_buffer_until_the_flash_sets_the_pace() {
    let spec = lookup_flash("sata-ssd-2012").unwrap();
    let short = drive().serve(Nanos(0), Direction::Write, 0, PAGE).done.seconds();
    assert!(short < 0.1 * spec.program_page_s, "a short write waits for no program: {short}");
    let rate = per_s(&mut drive(), Direction::Write, 1 << 20, 8, 4_000) * f64::from(1 << 20);
    let dies = (spec.channels * spec.dies_per_channel * spec.planes) as f64;
    let share_of_erase = spec.erase_block_s / spec.pages_per_block as f64;
    let expected = dies * spec.page_bytes as f64 / (spec.program_page_s + share_of_erase);
    assert!((rate / expected - 1.0).abs() < 0.03, "{rate} instead of {expected}");
}

#[test]
fn reads_wait_behind_programs() {
    let mut flash = drive();
    let alone = flash.serve(Nanos(0), Direction::Read, 0, PAGE).done.seconds();
    flash.serve(Nanos(1_000_000), Direction::Write, 0, 4 << 20);
    let behind = flash.serve(Nanos(1_000_000), Direction::Read, 0, PAGE).done.seconds() - 1e-3;
    assert!(behind > 5.0 * alone, "{behind} behind programs, {alone} alone");
}

#[test]
fn a_full_drive_writes_slower_at_random_and_reads_as_fast() {
    let rate = |share: f64, direction| {
        let mut flash = drive();
        let bytes = (flash.spec.capacity_bytes as f64 * share) as u64;
        flash.fill(bytes);
        // Enough random writes to reach the steady state: twice the drive, a unit at a time.
        if direction == Direction::Write {
            let mut random = Random::new(8);
            for _ in 0..40_000 {
                flash.ftl.write(random.next() % (bytes - (16 << 20)), 16 << 20);
            }
        }
        per_s(&mut flash, direction, 64 << 10, 16, 5_000)
    };
    let (empty, full) = (rate(0.5, Direction::Write), rate(1.0, Direction::Write));
    assert!(full < 0.6 * empty, "full {full} half full {empty}");
    assert_eq!(rate(0.5, Direction::Read), rate(1.0, Direction::Read));
}
