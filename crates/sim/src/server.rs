//! The stations of one server: its device and its link. Every station serves in order of arrival.

use crate::outcome::ServerOutcome;
use crate::scenario::ServerModel;
use stripewise_device::{Access, DeviceSpec, LinkSpec, MAX_CHANNELS, Nanos, RecentStreams};

/// Where a sub-request is on its way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Stage {
    Device,
    /// The second stage of a device with channels.
    Serial,
    Link,
    /// The link of the client's node.
    Client,
}

/// A station that serves one after the other is no more than the time at which it is next free.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Fifo {
    free: Nanos,
}

impl Fifo {
    /// Serves what arrives at `arrival`, behind everything that arrived before; returns its departure.
    #[inline]
    pub(crate) fn serve(&mut self, arrival: Nanos, demand: Nanos) -> Nanos {
        self.free = arrival.max(self.free) + demand;
        self.free
    }
}

/// A device by its mean service times.
pub(crate) struct MeanDevice {
    spec: DeviceSpec,
    channels: [Fifo; MAX_CHANNELS],
    serial: Fifo,
    streams: RecentStreams,
}

impl MeanDevice {
    fn new(spec: DeviceSpec) -> Self {
        Self {
            spec,
            channels: [Fifo::default(); MAX_CHANNELS],
            serial: Fifo::default(),
            streams: RecentStreams::default(),
        }
    }

    /// Serves at the first stage; returns start and end.
    #[inline]
    pub(crate) fn first(&mut self, arrival: Nanos, access: &Access) -> (Nanos, Nanos) {
        match &self.spec {
            DeviceSpec::Hdd(hdd) => {
                let skipped = self.streams.note(hdd.streams, access.place, access.bytes, hdd.skip_bytes);
                let demand = self.spec.demand(access.direction, access.bytes, skipped).serial;
                let end = self.serial.serve(arrival, demand);
                (end.saturating_sub(demand), end)
            }
            DeviceSpec::Ssd(ssd) => {
                let demand = self.spec.demand(access.direction, access.bytes, None).channel;
                let channel = self.channels[..ssd.channels].iter_mut().min_by_key(|channel| channel.free);
                let end = channel.map_or(arrival, |channel| channel.serve(arrival, demand));
                (end.saturating_sub(demand), end)
            }
        }
    }

    /// Serves at the serial stage of a device with channels; returns start and end.
    #[inline]
    pub(crate) fn second(&mut self, arrival: Nanos, access: &Access) -> (Nanos, Nanos) {
        let demand = self.spec.demand(access.direction, access.bytes, None).serial;
        let end = self.serial.serve(arrival, demand);
        (end.saturating_sub(demand), end)
    }
}

pub(crate) struct Server {
    pub(crate) device: MeanDevice,
    pub(crate) link: Option<LinkSpec>,
    pub(crate) link_station: Fifo,
    /// Of its device; 0 when it has none.
    pub(crate) channels: usize,
    pub(crate) channel_busy: Nanos,
    pub(crate) serial_busy: Nanos,
    pub(crate) link_busy: Nanos,
    pub(crate) bytes: u64,
    pub(crate) sub_requests: u64,
}

impl Server {
    pub(crate) fn new(model: &ServerModel) -> Self {
        Self {
            device: MeanDevice::new(model.device),
            link: model.link,
            link_station: Fifo::default(),
            channels: model.device.channels(),
            channel_busy: Nanos(0),
            serial_busy: Nanos(0),
            link_busy: Nanos(0),
            bytes: 0,
            sub_requests: 0,
        }
    }

    pub(crate) fn outcome(&self) -> ServerOutcome {
        ServerOutcome {
            device_busy_s: (self.channel_busy.seconds() / self.channels.max(1) as f64).max(self.serial_busy.seconds()),
            link_busy_s: self.link_busy.seconds(),
            bytes: self.bytes,
            sub_requests: self.sub_requests,
        }
    }
}
