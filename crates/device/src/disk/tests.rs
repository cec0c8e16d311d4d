use super::*;
use crate::lookup_disk;
use crate::random::Random;

const PAGE: u64 = 4096;

fn disk(seed: u64) -> Disk {
    Disk::new(lookup_disk("hdd-7200").unwrap(), seed)
}

/// Mean service time of random accesses that are begun one after the other, in seconds.
fn mean_random_s(direction: Direction, uniform_tracks: bool) -> f64 {
    let mut disk = disk(7);
    let mut random = Random::new(3);
    let (mut now, count) = (Nanos(0), 20_000);
    for _ in 0..count {
        let address = if uniform_tracks {
            disk.address_of(random.share() * disk.turns)
        } else {
            (random.share() * disk.spec.capacity_bytes as f64) as u64
        };
        now = disk.serve(now, direction, address / PAGE * PAGE, PAGE).free;
    }
    now.seconds() / f64::from(count)
}

#[test]
fn random_accesses_take_the_data_sheets_seek_and_rotation() {
    let spec = lookup_disk("hdd-7200").unwrap();
    for (direction, settle_s) in [(Direction::Read, 0.0), (Direction::Write, spec.write_settle_s)] {
        let expected = spec.average_seek_s + settle_s + 0.5 / spec.revolutions_per_s + spec.command_s;
        let found = mean_random_s(direction, true);
        assert!((found / expected - 1.0).abs() < 0.01, "{direction:?}: {found} instead of {expected}");
        // Outer tracks hold more, so equal addresses lie somewhat closer together than equal tracks.
        let by_bytes = mean_random_s(direction, false);
        assert!((0.95..1.0).contains(&(by_bytes / expected)), "{by_bytes} {expected}");
    }
}

#[test]
fn the_seek_curve_passes_through_the_data_sheets_points() {
    let disk = disk(1);
    let spec = disk.spec;
    assert_eq!(disk.seek_s(5.0, 5.5), 0.0);
    assert!((disk.seek_s(0.0, disk.turns) - spec.full_stroke_s).abs() < 1e-9);
    assert!((disk.seek_s(0.0, 1.0) / spec.track_to_track_s - 1.0).abs() < 0.02);
    let mut before = 0.0;
    for step in 1..1000 {
        let seek_s = disk.seek_s(0.0, disk.turns * f64::from(step) / 1000.0);
        assert!(seek_s > before, "longer ways take longer");
        before = seek_s;
    }
}

#[test]
fn sequential_reads_and_writes_run_at_the_zones_rate() {
    let spec = lookup_disk("hdd-7200").unwrap();
    for (base, rate) in [(0, spec.outer_bytes_per_s), (spec.capacity_bytes - (256 << 20), spec.inner_bytes_per_s)] {
        for direction in [Direction::Read, Direction::Write] {
            for request in [64 << 10, 1 << 20] {
                let mut disk = disk(2);
                let (mut now, total) = (Nanos(0), 128 << 20);
                for number in 0..total / request {
                    now = disk.serve(now, direction, base + number * request, request).free;
                }
                let found = total as f64 / now.seconds();
                // Small writes pay the controller each; reads go on while it works.
                let per_request = if direction == Direction::Write { spec.command_s } else { 0.0 };
                let expected = request as f64 / (request as f64 / rate + per_request);
                assert!(
                    (found / expected - 1.0).abs() < 0.03,
                    "{direction:?} {request}: {found} instead of {expected}"
                );
            }
        }
    }
}

/// Seconds to serve random reads of which `waiting` always wait.
fn queued_s(order: DiskOrder, waiting: u32) -> f64 {
    let (mut disk, mut queue, mut random) = (disk(5), DiskQueue::new(order), Random::new(9));
    let capacity = disk.spec.capacity_bytes as f64;
    let mut push = |queue: &mut DiskQueue, number| {
        queue.push(number, Direction::Read, (random.share() * capacity) as u64 / PAGE * PAGE, PAGE);
    };
    (0..waiting).for_each(|number| push(&mut queue, number));
    let mut now = Nanos(0);
    for number in 0..4_000 {
        let chosen = queue.next(&disk, now).unwrap();
        now = disk.serve(now, chosen.direction, chosen.address, chosen.bytes).free;
        push(&mut queue, waiting + number);
    }
    now.seconds()
}

#[test]
fn a_better_order_serves_a_full_queue_faster() {
    let (fifo, elevator, shortest) = (
        queued_s(DiskOrder::Fifo, 32),
        queued_s(DiskOrder::Elevator, 32),
        queued_s(DiskOrder::ShortestPositioning, 32),
    );
    assert!(elevator < 0.8 * fifo, "elevator {elevator} fifo {fifo}");
    assert!(shortest < 0.8 * elevator, "shortest {shortest} elevator {elevator}");
    // With one request there is nothing to choose.
    let alone = [DiskOrder::Fifo, DiskOrder::Elevator, DiskOrder::ShortestPositioning].map(|order| queued_s(order, 1));
    assert!(alone.iter().all(|seconds| *seconds == alone[0]), "{alone:?}");
}

#[test]
fn read_ahead_keeps_several_streams_going() {
    let spec = lookup_disk("hdd-7200").unwrap();
    let rate = |streams: u64| {
        let (mut disk, mut now) = (disk(4), Nanos(0));
        let (request, each) = (64 << 10, 400);
        for number in 0..each {
            for stream in 0..streams {
                now = disk
                    .serve(now, Direction::Read, (stream * 10_000 + number) * 10 * request % (900 << 30), request)
                    .free;
                let _ = now;
            }
        }
        (streams * each * request) as f64 / now.seconds()
    };
    let sequential = |streams: u64| {
        let (mut disk, mut now) = (disk(4), Nanos(0));
        let (request, each) = (64 << 10, 400);
        for number in 0..each {
            for stream in 0..streams {
                let address = stream * (20 << 30) + number * request;
                now = disk.serve(now, Direction::Read, address, request).free;
            }
        }
        (streams * each * request) as f64 / now.seconds()
    };
    assert!(sequential(4) > 4.0 * rate(4), "streams {} scattered {}", sequential(4), rate(4));
    assert!(sequential(spec.segments as u64 * 2) < 0.5 * sequential(4), "more streams than segments");
}
