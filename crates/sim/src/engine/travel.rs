//! The way of a sub-request through its stations.

use super::{Engine, Event};
use crate::places::Part;
use crate::scenario::StationOrder;
use crate::server::Stage;
use crate::timeline;
use stripewise_device::{Access, DiskPlace, ExtentId, Nanos};
use stripewise_layout::{Direction, ObjectOffset, RegionIndex};
use stripewise_trace::IoRequest;

/// A sub-request on its way.
#[derive(Clone, Copy, Debug)]
pub(super) struct Flight {
    owner: u32,
    server: u32,
    /// The node of its process.
    node: u32,
    /// Position on its way, in [`Engine::way`].
    hop: u8,
    access: Access,
}

const TOWARDS_CLIENT: &[Stage] = &[Stage::Device, Stage::Serial, Stage::Link, Stage::Client];
const FROM_CLIENT: &[Stage] = &[Stage::Client, Stage::Link, Stage::Device, Stage::Serial];
const DEVICE_FIRST: &[Stage] = &[Stage::Device, Stage::Serial, Stage::Link];

impl Engine<'_> {
    fn way(&self, direction: Direction) -> &'static [Stage] {
        match (self.scenario.options.order, direction) {
            (StationOrder::DeviceFirst, _) => DEVICE_FIRST,
            (StationOrder::Network, Direction::Read) => TOWARDS_CLIENT,
            (StationOrder::Network, Direction::Write) => FROM_CLIENT,
        }
    }

    /// Sends a part of a request on its way.
    #[inline]
    pub(super) fn send(&mut self, owner: u32, node: u32, request: IoRequest, region: RegionIndex, part: Part) {
        let server = &mut self.servers[part.server as usize];
        server.bytes += part.bytes;
        server.sub_requests += 1;
        let extent = |region: u64| ExtentId(u64::from(request.file.0) << 32 | region);
        let place = DiskPlace {
            extent: extent(u64::from(region.0)),
            after: u64::from(region.0).checked_sub(1).map(extent),
            offset: ObjectOffset(part.offset),
        };
        let access = Access { direction: request.direction, place, bytes: part.bytes };
        let flight = Flight { owner, server: part.server, node, hop: 0, access };
        match self.next_hop(&flight, 0) {
            Some(hop) => self.travel(Flight { hop, ..flight }, None),
            None => self.part_done(owner, self.now),
        }
    }

    /// The next station on the way that exists, from `hop` on.
    #[inline]
    fn next_hop(&self, flight: &Flight, hop: u8) -> Option<u8> {
        let server = &self.servers[flight.server as usize];
        let exists = |stage| match stage {
            Stage::Device => true,
            Stage::Serial => server.channels > 0,
            Stage::Link => server.link.is_some(),
            Stage::Client => self.scenario.system.client_link.is_some(),
        };
        let way = self.way(flight.access.direction);
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
            let stage = self.way(flight.access.direction)[usize::from(flight.hop)];
            let departure = self.serve(stage, &flight, arrival);
            let Some(hop) = self.next_hop(&flight, flight.hop + 1) else {
                self.free_flights.extend(slot);
                self.part_done(flight.owner, departure);
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
        self.scenario.options.order == StationOrder::DeviceFirst && DEVICE_FIRST[usize::from(flight.hop)] == Stage::Link
    }

    /// Occupies the station; returns the departure.
    #[inline]
    fn serve(&mut self, stage: Stage, flight: &Flight, arrival: Nanos) -> Nanos {
        let number = flight.server as usize;
        let server = &mut self.servers[number];
        let bytes = flight.access.bytes;
        match stage {
            Stage::Device => {
                let (start, end) = server.device.first(arrival, &flight.access);
                let part = if server.channels > 0 {
                    server.channel_busy = server.channel_busy + end.saturating_sub(start);
                    timeline::Part::Channel
                } else {
                    server.serial_busy = server.serial_busy + end.saturating_sub(start);
                    timeline::Part::Serial
                };
                if let Some(timeline) = &mut self.timeline {
                    timeline.note_busy(number, part, start, end);
                }
                end
            }
            Stage::Serial => {
                let (start, end) = server.device.second(arrival, &flight.access);
                server.serial_busy = server.serial_busy + end.saturating_sub(start);
                if let Some(timeline) = &mut self.timeline {
                    timeline.note_busy(number, timeline::Part::Serial, start, end);
                }
                end
            }
            Stage::Link => match &server.link {
                Some(link) => {
                    let demand = link.demand(bytes);
                    server.link_busy = server.link_busy + demand;
                    server.link_station.serve(arrival, demand)
                }
                None => arrival,
            },
            Stage::Client => match &self.scenario.system.client_link {
                Some(link) => self.client_links[flight.node as usize].serve(arrival, link.demand(bytes)),
                None => arrival,
            },
        }
    }
}
