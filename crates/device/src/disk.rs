//! A disk by its mechanics: seek by distance, rotation by the clock, transfer by zone, and a cache that reads ahead.
//!
//! The surface is one spiral from the outer edge inwards, whose rate falls evenly with the radius. A position is a real number of turns along it: its
//! fraction is the angle, so reading on costs transfer alone (the sustained rate of a data sheet contains the head switches). Seeks
//! take a + b sqrt(d) up to a third of the stroke and grow linearly beyond, through the data sheet's track-to-track, average (over random
//! pairs of tracks) and full-stroke times. Then the sector has to come round: the spindle's angle follows from the time and a seeded phase.
//!
//! The cache holds a few segments. After a read the disk goes on reading into the segment until it is full or the next command comes; a read
//! that continues a segment makes it stay for `ahead_bytes` even when others wait, which is how drives keep several streams going.
//! Writes go to the medium; one that continues the last write costs no rotation, as a drive's buffer hides it.

mod queue;

pub use queue::{Chosen, DiskOrder, DiskQueue};

use crate::Nanos;
use serde::Serialize;
use stripewise_layout::Direction;

/// Where in the stroke the seek curve turns from a root into a line.
const KNEE: f64 = 1.0 / 3.0;

/// What a data sheet says of a disk.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct DiskSpec {
    /// Turns of the spindle, 120 at 7,200 rpm.
    pub revolutions_per_s: f64,
    /// Seeks before a read, in seconds.
    pub track_to_track_s: f64,
    /// Mean over random pairs of tracks.
    pub average_seek_s: f64,
    /// From the outermost to the innermost track.
    pub full_stroke_s: f64,
    /// What a seek before a write takes longer.
    pub write_settle_s: f64,
    /// Controller time of every command.
    pub command_s: f64,
    /// Sustained rates at the edges.
    pub outer_bytes_per_s: f64,
    /// As `outer_bytes_per_s`, on the innermost track.
    pub inner_bytes_per_s: f64,
    /// Of the interface, for what the cache holds.
    pub interface_bytes_per_s: f64,
    /// Bytes that can be addressed; the rate falls evenly over them.
    pub capacity_bytes: u64,
    /// Segments of the cache, at least 1.
    pub segments: usize,
    /// Bytes that one segment holds.
    pub segment_bytes: u64,
    /// Read beyond a read that continues a segment, before the head leaves.
    pub ahead_bytes: u64,
}

/// When an access is done, and when the disk can begin the next one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DiskService {
    /// When the requested bytes are with the drive's controller.
    pub done: Nanos,
    /// When the head has read ahead what it stays for; not before `done`.
    pub free: Nanos,
}

/// A contiguous range in the cache.
#[derive(Clone, Copy, Debug)]
struct Segment {
    direction: Direction,
    start: u64,
    end: u64,
    used: u64,
}

/// What the head does while no command is there.
#[derive(Clone, Copy, Debug)]
enum Idle {
    Rests,
    /// Reads on at the end of a segment.
    ReadsAhead {
        segment: usize,
        since_s: f64,
        limit: u64,
    },
}

/// The state of one disk.
#[derive(Clone, Debug)]
pub struct Disk {
    spec: DiskSpec,
    turns: f64,
    /// Seek time at the knee, in seconds.
    knee_s: f64,
    phase: f64,
    /// Where the head is, in turns from the outer edge.
    head: f64,
    idle: Idle,
    segments: Vec<Segment>,
    uses: u64,
}

impl Disk {
    /// A disk whose spindle has an angle drawn from `seed` at time 0, the head at the outer edge.
    #[must_use]
    pub fn new(spec: DiskSpec, seed: u64) -> Self {
        let (outer, inner) = (spec.outer_bytes_per_s, spec.inner_bytes_per_s);
        let turns = spec.capacity_bytes as f64 * 2.0 * spec.revolutions_per_s / (outer + inner);
        Self {
            spec,
            turns,
            knee_s: knee_s(&spec),
            phase: (crate::random::mixed(seed) >> 11) as f64 / (1u64 << 53) as f64,
            head: 0.0,
            idle: Idle::Rests,
            segments: Vec::with_capacity(spec.segments),
            uses: 0,
        }
    }

    /// What the disk was made from.
    #[must_use]
    pub fn spec(&self) -> &DiskSpec {
        &self.spec
    }

    /// The seek from turn to turn, in seconds, without the settling of a write.
    fn seek_s(&self, from: f64, to: f64) -> f64 {
        let tracks = (to - from).abs();
        if tracks < 1.0 {
            return 0.0;
        }
        let distance = tracks / self.turns;
        let spec = &self.spec;
        if distance < KNEE {
            spec.track_to_track_s + (self.knee_s - spec.track_to_track_s) * (distance / KNEE).sqrt()
        } else {
            self.knee_s + (spec.full_stroke_s - self.knee_s) * (distance - KNEE) / (1.0 - KNEE)
        }
    }

    /// Turns from the outer edge to `address`: the inverse of the sum of a rate that falls evenly.
    fn turn_of(&self, address: u64) -> f64 {
        let (outer, inner) = (self.spec.outer_bytes_per_s, self.spec.inner_bytes_per_s);
        let share = (address as f64 / self.spec.capacity_bytes as f64).min(1.0);
        if outer == inner {
            return share * self.turns;
        }
        let root = (outer * outer - share * (outer * outer - inner * inner)).sqrt();
        self.turns * (outer - root) / (outer - inner)
    }

    fn address_of(&self, turn: f64) -> u64 {
        let (outer, inner) = (self.spec.outer_bytes_per_s, self.spec.inner_bytes_per_s);
        let bytes = (outer * turn - (outer - inner) * turn * turn / (2.0 * self.turns)) / self.spec.revolutions_per_s;
        bytes.max(0.0) as u64
    }

    /// Time for the medium to pass from one address to a later one.
    fn pass_s(&self, from: u64, to: u64) -> f64 {
        (self.turn_of(to) - self.turn_of(from)).max(0.0) / self.spec.revolutions_per_s
    }

    /// From `at_s` until the head can transfer at `address`: seek and rotation.
    fn position_s(&self, at_s: f64, direction: Direction, address: u64) -> f64 {
        let target = self.turn_of(address);
        let mut seek_s = self.seek_s(self.head, target);
        if direction == Direction::Write && seek_s > 0.0 {
            seek_s += self.spec.write_settle_s;
        }
        let angle = (at_s + seek_s) * self.spec.revolutions_per_s + self.phase;
        let rotation_s = (target - angle).rem_euclid(1.0) / self.spec.revolutions_per_s;
        seek_s + rotation_s
    }

    /// Seconds from `at` until the head could transfer at `address`, for choosing among waiting requests.
    #[must_use]
    pub fn positioning_s(&self, at: Nanos, direction: Direction, address: u64) -> f64 {
        if self.segment_at(direction, address).is_some() {
            return 0.0;
        }
        self.position_s(at.seconds() + self.spec.command_s, direction, address)
    }

    /// The address under the head, for the order of an elevator.
    #[must_use]
    pub fn head_address(&self) -> u64 {
        self.address_of(self.head)
    }

    fn segment_at(&self, direction: Direction, address: u64) -> Option<usize> {
        let holds = |segment: &Segment| {
            segment.direction == direction
                && match direction {
                    Direction::Read => (segment.start..=segment.end).contains(&address),
                    Direction::Write => segment.end == address,
                }
        };
        self.segments.iter().position(holds)
    }

    /// Serves an access that the disk begins at `start`, when it is free.
    pub fn serve(&mut self, start: Nanos, direction: Direction, address: u64, bytes: u64) -> DiskService {
        let start_s = start.seconds();
        self.read_ahead_until(start_s);
        self.uses += 1;
        let ready_s = start_s + self.spec.command_s;
        let (done_s, free_s) = match direction {
            Direction::Read => self.read(start_s, ready_s, address, bytes),
            Direction::Write => self.write(ready_s, address, bytes),
        };
        DiskService { done: Nanos::from_seconds(done_s), free: Nanos::from_seconds(free_s) }
    }

    fn read(&mut self, start_s: f64, ready_s: f64, address: u64, bytes: u64) -> (f64, f64) {
        let end = address + bytes;
        let Some(number) = self.segment_at(Direction::Read, address) else {
            let media_s = ready_s + self.position_s(ready_s, Direction::Read, address);
            let done_s = media_s + self.pass_s(address, end);
            let number = self.new_segment(Segment { direction: Direction::Read, start: address, end, used: self.uses });
            self.go_on_reading(number, done_s, end);
            return (done_s, done_s);
        };
        let held = self.segments[number].end;
        self.segments[number].used = self.uses;
        if end <= held {
            let done_s = ready_s + bytes as f64 / self.spec.interface_bytes_per_s;
            if let Idle::ReadsAhead { segment, limit, .. } = &mut self.idle
                && *segment == number
            {
                *limit = (*limit).max(end + self.spec.segment_bytes);
            }
            return (done_s, done_s);
        }
        // A head that is still reading here goes on without losing a turn.
        let goes_on = matches!(self.idle, Idle::ReadsAhead { segment, limit, .. } if segment == number && held < limit);
        let media_s = if goes_on { start_s } else { ready_s + self.position_s(ready_s, Direction::Read, held) };
        let done_s = (media_s + self.pass_s(held, end)).max(ready_s + bytes as f64 / self.spec.interface_bytes_per_s);
        let ahead = (end + self.spec.ahead_bytes).min(self.spec.capacity_bytes).max(end);
        let free_s = done_s.max(media_s + self.pass_s(held, ahead));
        let segment = &mut self.segments[number];
        segment.end = ahead;
        segment.start = segment.start.max(ahead.saturating_sub(self.spec.segment_bytes));
        self.go_on_reading(number, free_s, end);
        (done_s, free_s)
    }

    fn write(&mut self, ready_s: f64, address: u64, bytes: u64) -> (f64, f64) {
        let end = address + bytes;
        let continued = self.segment_at(Direction::Write, address);
        let at_head = (self.head - self.turn_of(address)).abs() < 1e-6;
        let media_s = match continued {
            Some(_) if at_head => ready_s,
            _ => ready_s + self.position_s(ready_s, Direction::Write, address),
        };
        let done_s = media_s + self.pass_s(address, end);
        match continued {
            Some(number) => {
                self.segments[number].end = end;
                self.segments[number].used = self.uses;
            }
            None => {
                self.new_segment(Segment { direction: Direction::Write, start: address, end, used: self.uses });
            }
        }
        self.head = self.turn_of(end);
        self.idle = Idle::Rests;
        (done_s, done_s)
    }

    fn new_segment(&mut self, segment: Segment) -> usize {
        if self.segments.len() < self.spec.segments.max(1) {
            self.segments.push(segment);
            return self.segments.len() - 1;
        }
        let oldest = (0..self.segments.len()).min_by_key(|number| self.segments[*number].used).unwrap_or(0);
        self.segments[oldest] = segment;
        oldest
    }

    fn go_on_reading(&mut self, segment: usize, since_s: f64, requested_end: u64) {
        let limit = (requested_end + self.spec.segment_bytes).min(self.spec.capacity_bytes);
        self.head = self.turn_of(self.segments[segment].end);
        self.idle = Idle::ReadsAhead { segment, since_s, limit };
    }

    /// What the head has read into its segment by `now_s`.
    fn read_ahead_until(&mut self, now_s: f64) {
        let Idle::ReadsAhead { segment: number, since_s, limit } = self.idle else { return };
        let segment = self.segments[number];
        if segment.end < limit && now_s > since_s {
            let turn = self.turn_of(segment.end) + (now_s - since_s) * self.spec.revolutions_per_s;
            let end = self.address_of(turn).clamp(segment.end, limit);
            self.segments[number].end = end;
            self.segments[number].start = segment.start.max(end.saturating_sub(2 * self.spec.segment_bytes));
            self.head = self.turn_of(end);
            self.idle = Idle::ReadsAhead { segment: number, since_s: now_s, limit };
        }
    }
}

/// The seek time at the knee with which the mean over random pairs of tracks is the data sheet's average. Distances d of random pairs have the
/// density 2 (1 - d), so that mean is affine in the time sought.
fn knee_s(spec: &DiskSpec) -> f64 {
    let short = 2.0 * KNEE - KNEE * KNEE;
    let root = 2.0 * (2.0 / 3.0 * KNEE - 2.0 / 5.0 * KNEE * KNEE);
    let long = (1.0 - KNEE).powi(2);
    let line = long / 3.0;
    (spec.average_seek_s - spec.track_to_track_s * (short - root) - spec.full_stroke_s * line) / (root + long - line)
}

#[cfg(test)]
mod tests;
