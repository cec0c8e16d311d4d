//! The way of a sub-request through its stations.

use super::{Engine, Event};
use crate::addresses::Extents;
use crate::places::Part;
use crate::scenario::StationOrder;
use crate::server::{Device, Stage};
use crate::timeline;
use stripewise_device::{Access, DiskPlace, ExtentId, Lookup, Nanos, Span};
use stripewise_layout::{Direction, ObjectOffset, RegionIndex};

/// Owners that are no processes: the mover, the write-back of a server's cache, and that of clients.
pub(super) const MOVER: u32 = u32::MAX;
const FLUSH: u32 = u32::MAX - 1;
/// The clients' write-back of buffered writes: this less the number of the stretch.
pub(super) const WRITE_BACK: u32 = u32::MAX - 2;
/// Processes have lower numbers.
const LAST_WRITE_BACK: u32 = WRITE_BACK - (1 << 20);
/// The node of what passes no client link.
pub(super) const NO_NODE: u32 = u32::MAX;

/// Most bytes that a cache writes back at a time.
const FLUSH_BYTES: u64 = 1 << 20;

/// Addresses of a device that is modelled by its means are cut into extents of this size, since streams know an extent's first
/// 128 GiB only.
const EXTENT_BITS: u32 = 36;

/// A sub-request on its way.
#[derive(Clone, Copy, Debug)]
pub(super) struct Flight {
    owner: u32,
    server: u32,
    /// The node of its process.
    node: u32,
    /// Position on its way, in [`Flight::way`].
    hop: u8,
    /// Bytes over the links.
    bytes: u64,
    /// What the device is asked for: more when a cache fetches groups.
    access: Access,
}

/// What a server's cache makes of an access.
enum Cached {
    /// All, and that until then.
    Done(Nanos),
    /// The device is needed, for what the flight says now.
    Device,
    /// Too much is dirty: the write waits until some is written back.
    Waits,
}

/// Whose part of a request is sent, and where it lies.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sending {
    pub(super) owner: u32,
    pub(super) node: u32,
    pub(super) direction: Direction,
    pub(super) file: usize,
    pub(super) region: RegionIndex,
    /// Of the region's objects, where servers are modelled by address.
    pub(super) extents: Option<Extents>,
}

const TOWARDS_CLIENT: &[Stage] = &[Stage::Device, Stage::Serial, Stage::Link, Stage::Client];
const FROM_CLIENT: &[Stage] = &[Stage::Client, Stage::Link, Stage::Device, Stage::Serial];
const DEVICE_FIRST: &[Stage] = &[Stage::Device, Stage::Serial, Stage::Link];
const WITHIN_SERVER: &[Stage] = &[Stage::Device, Stage::Serial];

impl Flight {
    #[inline]
    fn way(&self, order: StationOrder) -> &'static [Stage] {
        match (order, self.access.direction) {
            _ if self.owner == FLUSH => WITHIN_SERVER,
            (StationOrder::DeviceFirst, _) => DEVICE_FIRST,
            (StationOrder::Network, Direction::Read) => TOWARDS_CLIENT,
            (StationOrder::Network, Direction::Write) => FROM_CLIENT,
        }
    }
}

impl Engine<'_> {
    /// Sends a part of a request on its way.
    #[inline]
    pub(super) fn send(&mut self, sending: &Sending, part: Part) {
        let server = &mut self.servers[part.server as usize];
        if sending.owner != MOVER {
            server.bytes += part.bytes;
            server.sub_requests += 1;
        }
        let place = match &self.addresses {
            Some(addresses) if server.by_address => {
                let address = addresses.address(sending.extents, part.turn, part.server, part.offset);
                DiskPlace { extent: ExtentId(0), after: None, offset: ObjectOffset(address) }
            }
            _ => {
                let extent = |region: u64| ExtentId((sending.file as u64) << 32 | region);
                let region = u64::from(sending.region.0);
                let after = region.checked_sub(1).map(extent);
                DiskPlace { extent: extent(region), after, offset: ObjectOffset(part.offset) }
            }
        };
        let access = Access { direction: sending.direction, place, bytes: part.bytes };
        let Sending { owner, node, .. } = *sending;
        self.begin(Flight { owner, server: part.server, node, hop: 0, bytes: part.bytes, access });
    }

    fn begin(&mut self, flight: Flight) {
        match self.next_hop(&flight, 0) {
            Some(hop) => self.travel(Flight { hop, ..flight }, None),
            None => self.finished(&flight, self.now),
        }
    }

    /// The next station on the way that exists, from `hop` on.
    #[inline]
    fn next_hop(&self, flight: &Flight, hop: u8) -> Option<u8> {
        let server = &self.servers[flight.server as usize];
        let exists = |stage| match stage {
            Stage::Device => true,
            Stage::Serial => server.has_serial,
            Stage::Link => server.link.is_some(),
            Stage::Client => self.scenario.system.client_link.is_some() && flight.node != NO_NODE,
        };
        let way = flight.way(self.order);
        (usize::from(hop)..way.len()).find(|hop| exists(way[*hop])).map(|hop| hop as u8)
    }

    /// A sub-request arrives at its next station.
    #[inline]
    pub(super) fn arrive(&mut self, number: u32) {
        self.travel(self.flights[number as usize], Some(number));
    }

    /// Serves a sub-request that arrives now at the station it stands before, and lets it go on to the next.
    fn travel(&mut self, mut flight: Flight, mut slot: Option<u32>) {
        let mut arrival = self.now;
        loop {
            self.outcome.events += 1;
            let departure = match flight.way(self.order)[usize::from(flight.hop)] {
                Stage::Device => match self.serve_device(&mut flight, &mut slot) {
                    Some(departure) => departure,
                    // It waits, for a disk that chooses or for room in the cache.
                    None => return,
                },
                Stage::Serial => self.serve_serial(&flight),
                Stage::Link => self.servers[flight.server as usize].serve_link(flight.bytes, arrival),
                Stage::Client => match &self.scenario.system.client_link {
                    Some(link) => self.client_links[flight.node as usize].serve(arrival, link.demand(flight.bytes)),
                    None => arrival,
                },
            };
            let Some(hop) = self.next_hop(&flight, flight.hop + 1) else {
                self.free_flights.extend(slot);
                self.finished(&flight, departure);
                return;
            };
            flight.hop = hop;
            if self.is_private(&flight) {
                // All that reaches the link comes from this device and in the order of service: nothing can overtake, so the arrival may be
                // dealt with now.
                arrival = departure;
                continue;
            }
            let number = slot.take().unwrap_or_else(|| self.new_slot(flight));
            self.flights[number as usize] = flight;
            self.queue.push(departure, Event::Flight(number).pack());
            return;
        }
    }

    fn new_slot(&mut self, flight: Flight) -> u32 {
        self.free_flights.pop().unwrap_or_else(|| {
            self.flights.push(flight);
            (self.flights.len() - 1) as u32
        })
    }

    /// Whether the station that the sub-request goes to serves nobody but the one it comes from, one after the other.
    #[inline]
    fn is_private(&self, flight: &Flight) -> bool {
        let server = &self.servers[flight.server as usize];
        self.order == StationOrder::DeviceFirst
            && flight.way(self.order)[usize::from(flight.hop)] == Stage::Link
            && !server.by_address
    }

    /// A sub-request is through at `end`, now or later.
    #[inline]
    fn finished(&mut self, flight: &Flight, end: Nanos) {
        match flight.owner {
            MOVER => self.mover_part_done(end),
            FLUSH => self.queue.push(end, Event::Flushed(flight.server).pack()),
            owner @ LAST_WRITE_BACK..=WRITE_BACK => {
                self.queue.push(end, Event::WrittenBack(WRITE_BACK - owner).pack());
            }
            process => self.part_done(process, end),
        }
    }

    /// The cache and the device's first stage. `None`: the disk will say when.
    #[inline]
    fn serve_device(&mut self, flight: &mut Flight, slot: &mut Option<u32>) -> Option<Nanos> {
        let number = flight.server as usize;
        if self.servers[number].cache.is_some() && flight.owner != FLUSH {
            match self.serve_cache(flight) {
                Cached::Done(departure) => {
                    // Past the device's second stage.
                    flight.hop += 1;
                    return Some(departure);
                }
                Cached::Waits => {
                    let waiting = slot.take().unwrap_or_else(|| self.new_slot(*flight));
                    self.flights[waiting as usize] = *flight;
                    self.servers[number].throttled.push_back(waiting);
                    self.flush(flight.server);
                    return None;
                }
                Cached::Device => {}
            }
        }
        let (now, server) = (self.now, &mut self.servers[number]);
        let access = &flight.access;
        let departure = match &mut server.device {
            Device::Mean(device) => {
                let access = if server.by_address { by_extent(access) } else { *access };
                let (start, end) = device.first(now, &access);
                let (part, busy) = if server.has_serial {
                    (timeline::Part::Channel, &mut server.channel_busy)
                } else {
                    (timeline::Part::Serial, &mut server.serial_busy)
                };
                *busy = *busy + end.saturating_sub(start);
                if let Some(timeline) = &mut self.timeline {
                    timeline.note_busy(number, part, start, end);
                }
                end
            }
            Device::Flash(flash) => {
                let service = flash.serve(now, access.direction, access.place.offset.0, access.bytes);
                server.channel_busy = server.channel_busy + service.dies;
                server.serial_busy = server.serial_busy + service.interface;
                if let Some(timeline) = &mut self.timeline {
                    timeline.note_sum(number, timeline::Part::Channel, service.done, service.dies);
                    timeline.note_sum(number, timeline::Part::Serial, service.done, service.interface);
                }
                service.done
            }
            Device::Disk { is_busy, .. } => {
                let is_idle = !*is_busy;
                let waiting = slot.take().unwrap_or_else(|| self.new_slot(*flight));
                self.flights[waiting as usize] = *flight;
                if let Device::Disk { queue, .. } = &mut self.servers[number].device {
                    let Access { direction, place, bytes } = flight.access;
                    queue.push(waiting, direction, place.offset.0, bytes);
                }
                if is_idle {
                    self.start_disk(flight.server);
                }
                return None;
            }
        };
        if !self.servers[number].has_serial {
            self.servers[flight.server as usize].fill_cache(&flight.access, departure);
        }
        Some(departure)
    }

    fn serve_serial(&mut self, flight: &Flight) -> Nanos {
        let number = flight.server as usize;
        let server = &mut self.servers[number];
        let Device::Mean(device) = &mut server.device else { return self.now };
        let (start, end) = device.second(self.now, &flight.access);
        server.serial_busy = server.serial_busy + end.saturating_sub(start);
        if let Some(timeline) = &mut self.timeline {
            timeline.note_busy(number, timeline::Part::Serial, start, end);
        }
        self.servers[number].fill_cache(&flight.access, end);
        end
    }

    fn serve_cache(&mut self, flight: &mut Flight) -> Cached {
        let (now, server) = (self.now, &mut self.servers[flight.server as usize]);
        let Some(cache) = &mut server.cache else { return Cached::Device };
        let span = Span { address: flight.access.place.offset.0, bytes: flight.access.bytes };
        let copy = cache.spec().copy(span.bytes);
        match flight.access.direction {
            Direction::Read => match cache.read(span) {
                Lookup::Held(since) => {
                    server.cache_hits += 1;
                    Cached::Done(now.max(since) + copy)
                }
                Lookup::Missing(span) => {
                    (flight.access.place.offset.0, flight.access.bytes) = (span.address, span.bytes);
                    Cached::Device
                }
            },
            Direction::Write if server.throttled.is_empty() && cache.write(span, now) => {
                server.cache_hits += 1;
                self.flush(flight.server);
                Cached::Done(now + copy)
            }
            Direction::Write if span.bytes > cache.dirty_limit() => Cached::Device,
            Direction::Write => Cached::Waits,
        }
    }

    /// Writes back a stretch of the cache's dirty groups, if it should.
    fn flush(&mut self, number: u32) {
        let server = &mut self.servers[number as usize];
        let Some(cache) = &mut server.cache else { return };
        if server.is_flushing || (server.throttled.is_empty() && !cache.is_over_background()) {
            return;
        }
        if let Some(Span { address, bytes }) = cache.write_back(FLUSH_BYTES) {
            server.is_flushing = true;
            let place = DiskPlace { extent: ExtentId(0), after: None, offset: ObjectOffset(address) };
            let access = Access { direction: Direction::Write, place, bytes };
            self.begin(Flight { owner: FLUSH, server: number, node: NO_NODE, hop: 0, bytes, access });
        }
    }

    pub(super) fn flushed(&mut self, number: u32) {
        self.outcome.events += 1;
        self.servers[number as usize].is_flushing = false;
        while let Some(waiting) = self.servers[number as usize].throttled.front().copied() {
            let mut flight = self.flights[waiting as usize];
            let span = Span { address: flight.access.place.offset.0, bytes: flight.access.bytes };
            let Some(cache) = &mut self.servers[number as usize].cache else { return };
            if !cache.write(span, self.now) {
                break;
            }
            let departure = self.now + cache.spec().copy(span.bytes);
            self.servers[number as usize].throttled.pop_front();
            // Past the device's second stage.
            flight.hop += 1;
            self.go_on_from(flight, waiting, departure);
        }
        self.flush(number);
    }

    /// A sub-request that waited in `slot` leaves its station at `departure`.
    fn go_on_from(&mut self, mut flight: Flight, slot: u32, departure: Nanos) {
        match self.next_hop(&flight, flight.hop + 1) {
            Some(hop) => {
                flight.hop = hop;
                self.flights[slot as usize] = flight;
                self.queue.push(departure, Event::Flight(slot).pack());
            }
            None => {
                self.free_flights.push(slot);
                self.finished(&flight, departure);
            }
        }
    }

    /// A disk is free for the next request.
    pub(super) fn start_disk(&mut self, number: u32) {
        let now = self.now;
        let Device::Disk { disk, queue, is_busy } = &mut self.servers[number as usize].device else { return };
        let chosen = queue.next(disk, now);
        *is_busy = chosen.is_some();
        let Some(chosen) = chosen else { return };
        let service = disk.serve(now, chosen.direction, chosen.address, chosen.bytes);
        let server = &mut self.servers[number as usize];
        server.serial_busy = server.serial_busy + service.free.saturating_sub(now);
        if let Some(timeline) = &mut self.timeline {
            timeline.note_busy(number as usize, timeline::Part::Serial, now, service.free);
        }
        self.queue.push(service.free, Event::Device(number).pack());
        let flight = self.flights[chosen.number as usize];
        self.servers[flight.server as usize].fill_cache(&flight.access, service.done);
        self.go_on_from(flight, chosen.number, service.done);
    }
}

/// An access at an address as one of a device that is modelled by its means.
fn by_extent(access: &Access) -> Access {
    let address = access.place.offset.0;
    let extent = address >> EXTENT_BITS;
    let place = DiskPlace {
        extent: ExtentId(extent),
        after: extent.checked_sub(1).map(ExtentId),
        offset: ObjectOffset(address & ((1 << EXTENT_BITS) - 1)),
    };
    Access { place, ..*access }
}
