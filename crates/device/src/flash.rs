//! An SSD by its parts: dies behind channels, pages that are read much faster than programmed, a write buffer, and garbage collection.
//!
//! A read waits for the dies its pages lie on (behind programs, which take long), then for their channels, then for the interface. A write is done when the
//! drive's buffer has it; from there it is programmed in multi-plane units on one die after the other, and when the buffer is full a write
//! waits for the oldest program to end. Dies, channels and interface serve in order of issue. Where live data leave few free blocks,
//! every page written makes the drive move others first (module `ftl`).

mod ftl;

use crate::Nanos;
use ftl::Ftl;
use serde::Serialize;
use std::collections::VecDeque;
use stripewise_layout::Direction;

/// What data sheets say of a drive and of its flash.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct FlashSpec {
    /// Channels between the controller and the dies, each serving one transfer at a time.
    pub channels: usize,
    /// Dies that share a channel; pages go to all dies in turn.
    pub dies_per_channel: usize,
    /// Pages that a die programs at once.
    pub planes: usize,
    /// Least unit that a die reads.
    pub page_bytes: u64,
    /// Pages erased together.
    pub pages_per_block: u64,
    /// From the cells into the die's register, without the transfer over the channel.
    pub read_page_s: f64,
    /// From the register into the cells, for all planes together.
    pub program_page_s: f64,
    /// Erasing one block.
    pub erase_block_s: f64,
    /// Rate of one channel.
    pub channel_bytes_per_s: f64,
    /// Time of the controller for each command; commands follow one another at this distance, while the flash works beside it.
    pub read_command_s: f64,
    /// As `read_command_s`, for writes.
    pub write_command_s: f64,
    /// Rate at which read bytes leave the drive.
    pub read_interface_bytes_per_s: f64,
    /// Rate at which written bytes enter the drive's buffer.
    pub write_interface_bytes_per_s: f64,
    /// Written bytes that the drive holds back.
    pub buffer_bytes: u64,
    /// Bytes that can be addressed.
    pub capacity_bytes: u64,
    /// With the space for garbage collection.
    pub physical_bytes: u64,
}

/// When an access is done, and how long it kept the interface.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FlashService {
    /// When the bytes are with the host, or in the drive's buffer.
    pub done: Nanos,
    /// Time on all dies together.
    pub dies: Nanos,
    /// Time on the controller or interface, whichever is longer.
    pub interface: Nanos,
}

/// The state of one drive. Times are seconds.
#[derive(Clone, Debug)]
pub struct Flash {
    spec: FlashSpec,
    ftl: Ftl,
    dies: Vec<f64>,
    channels: Vec<f64>,
    controller: f64,
    interface: f64,
    /// Ends of the programs whose units are still in the buffer.
    buffer: VecDeque<f64>,
    /// Written but less than a unit.
    pending_bytes: u64,
    next_die: usize,
}

impl Flash {
    /// An empty drive; `seed` decides where a full one has its live pages.
    #[must_use]
    pub fn new(spec: FlashSpec, seed: u64) -> Self {
        Self {
            spec,
            ftl: Ftl::new(spec.capacity_bytes, spec.physical_bytes, seed),
            dies: vec![0.0; spec.channels * spec.dies_per_channel],
            channels: vec![0.0; spec.channels],
            controller: 0.0,
            interface: 0.0,
            buffer: VecDeque::new(),
            pending_bytes: 0,
            next_die: 0,
        }
    }

    /// Writes the first `bytes` of the drive once, in order and before time begins.
    pub fn fill(&mut self, bytes: u64) {
        self.ftl.write(0, bytes.min(self.spec.capacity_bytes));
        self.ftl.forget_counts();
    }

    /// Dies on all channels.
    #[must_use]
    pub fn dies(&self) -> usize {
        self.dies.len()
    }

    /// Pages programmed for each page written, so far.
    #[must_use]
    pub fn write_amplification(&self) -> f64 {
        self.ftl.write_amplification()
    }

    /// Serves an access that arrives at `arrival`, behind all that came before.
    pub fn serve(&mut self, arrival: Nanos, direction: Direction, address: u64, bytes: u64) -> FlashService {
        let arrival_s = arrival.seconds();
        let (command_s, rate) = match direction {
            Direction::Read => (self.spec.read_command_s, self.spec.read_interface_bytes_per_s),
            Direction::Write => (self.spec.write_command_s, self.spec.write_interface_bytes_per_s),
        };
        let begin_s = arrival_s.max(self.controller);
        self.controller = begin_s + command_s;
        let transfer_s = bytes as f64 / rate;
        let (done_s, dies_s) = match direction {
            Direction::Read => self.read(begin_s, address, bytes, transfer_s),
            Direction::Write => self.write(begin_s, address, bytes, transfer_s),
        };
        FlashService {
            done: Nanos::from_seconds(done_s),
            dies: Nanos::from_seconds(dies_s),
            interface: Nanos::from_seconds(transfer_s.max(command_s)),
        }
    }

    fn read(&mut self, begin_s: f64, address: u64, bytes: u64, transfer_s: f64) -> (f64, f64) {
        let spec = &self.spec;
        let (mut at, end) = (address, address + bytes);
        let (mut first_s, mut last_s, mut dies_s) = (f64::INFINITY, begin_s, 0.0);
        while at < end {
            let page = at / spec.page_bytes;
            let part = ((page + 1) * spec.page_bytes).min(end) - at;
            let die = (page % self.dies.len() as u64) as usize;
            let channel = die % self.channels.len();
            self.dies[die] = self.dies[die].max(begin_s) + spec.read_page_s;
            self.channels[channel] =
                self.channels[channel].max(self.dies[die]) + part as f64 / spec.channel_bytes_per_s;
            first_s = first_s.min(self.channels[channel]);
            last_s = last_s.max(self.channels[channel] + part as f64 / spec.read_interface_bytes_per_s);
            dies_s += spec.read_page_s;
            at += part;
        }
        self.interface = (self.interface.max(first_s) + transfer_s).max(last_s);
        (self.interface, dies_s)
    }

    fn write(&mut self, begin_s: f64, address: u64, bytes: u64, transfer_s: f64) -> (f64, f64) {
        let spec = self.spec;
        while self.buffer.front().is_some_and(|end_s| *end_s <= begin_s) {
            self.buffer.pop_front();
        }
        self.interface = self.interface.max(begin_s) + transfer_s;
        let (mut done_s, mut dies_s) = (self.interface, 0.0);
        let moves = self.ftl.write(address % spec.capacity_bytes, bytes);
        let unit = spec.planes as u64 * spec.page_bytes;
        let capacity = (spec.buffer_bytes / unit).max(1) as usize;
        // Each page written moves so many, and its share of a block is erased.
        let collect_s = moves * (spec.read_page_s + spec.program_page_s)
            + (1.0 + moves) * spec.erase_block_s / spec.pages_per_block as f64;
        self.pending_bytes += bytes;
        while self.pending_bytes >= unit {
            self.pending_bytes -= unit;
            if self.buffer.len() >= capacity {
                done_s = done_s.max(self.buffer.pop_front().unwrap_or(done_s));
            }
            let busy_s = spec.program_page_s + collect_s;
            let die = &mut self.dies[self.next_die];
            *die = die.max(done_s) + busy_s;
            self.buffer.push_back(*die);
            self.next_die = (self.next_die + 1) % self.dies.len();
            dies_s += busy_s;
        }
        (done_s, dies_s)
    }
}

#[cfg(test)]
mod tests;
