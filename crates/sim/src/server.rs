//! The stations of one server: its page cache, its device and its link. Every station serves in order of arrival, but for disks that choose.

use crate::outcome::ServerOutcome;
use crate::scenario::{ServerDetail, ServerModel};
use std::collections::VecDeque;
use stripewise_device::{
    Access, DeviceModel, DeviceSpec, Disk, DiskQueue, Flash, LinkSpec, MAX_CHANNELS, Nanos, PageCache, RecentStreams,
    Span,
};
use stripewise_layout::Direction;

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

#[allow(
    clippy::large_enum_variant,
    reason = "the usual variant is the large one, and stands on the way of every sub-request"
)]
pub(crate) enum Device {
    Mean(MeanDevice),
    Disk { disk: Box<Disk>, queue: DiskQueue, is_busy: bool },
    Flash(Box<Flash>),
}

impl Device {
    fn new(spec: DeviceSpec, model: &DeviceModel, seed: u64) -> Self {
        match model {
            DeviceModel::Mean => Self::Mean(MeanDevice::new(spec)),
            DeviceModel::Disk { spec, order } => {
                Self::Disk { disk: Box::new(Disk::new(*spec, seed)), queue: DiskQueue::new(*order), is_busy: false }
            }
            DeviceModel::Flash { spec } => Self::Flash(Box::new(Flash::new(*spec, seed))),
        }
    }
}

pub(crate) struct Server {
    pub(crate) device: Device,
    pub(crate) cache: Option<Box<PageCache>>,
    /// A write-back of the cache is on its way.
    pub(crate) is_flushing: bool,
    /// Writes that wait for room in the cache, by their numbers.
    pub(crate) throttled: VecDeque<u32>,
    /// Accesses name addresses of the device rather than places in objects.
    pub(crate) by_address: bool,
    /// The device has a second stage.
    pub(crate) has_serial: bool,
    pub(crate) link: Option<LinkSpec>,
    pub(crate) link_station: Fifo,
    /// Side by side in the device's first stage; 0 when it has only one.
    pub(crate) channels: usize,
    pub(crate) channel_busy: Nanos,
    pub(crate) serial_busy: Nanos,
    pub(crate) link_busy: Nanos,
    pub(crate) bytes: u64,
    pub(crate) sub_requests: u64,
    pub(crate) cache_hits: u64,
}

impl Server {
    pub(crate) fn new(model: &ServerModel, detail: &ServerDetail, seed: u64) -> Self {
        let device = Device::new(model.device, &detail.device, seed);
        let channels = match &device {
            Device::Mean(_) => model.device.channels(),
            Device::Disk { .. } => 0,
            Device::Flash(flash) => flash.dies(),
        };
        Self {
            has_serial: matches!(device, Device::Mean(_)) && channels > 0,
            by_address: detail.cache.is_some() || !matches!(device, Device::Mean(_)),
            device,
            cache: detail.cache.map(|spec| Box::new(PageCache::new(spec))),
            is_flushing: false,
            throttled: VecDeque::new(),
            link: model.link,
            link_station: Fifo::default(),
            channels,
            channel_busy: Nanos(0),
            serial_busy: Nanos(0),
            link_busy: Nanos(0),
            bytes: 0,
            sub_requests: 0,
            cache_hits: 0,
        }
    }

    /// Passes bytes over the link, if there is one; returns their departure.
    #[inline]
    pub(crate) fn serve_link(&mut self, bytes: u64, arrival: Nanos) -> Nanos {
        let Some(link) = &self.link else { return arrival };
        let demand = link.demand(bytes);
        self.link_busy = self.link_busy + demand;
        self.link_station.serve(arrival, demand)
    }

    /// What a read fetched is in the cache from `since` on.
    pub(crate) fn fill_cache(&mut self, access: &Access, since: Nanos) {
        if let Some(cache) = &mut self.cache
            && access.direction == Direction::Read
        {
            cache.fill(Span { address: access.place.offset.0, bytes: access.bytes }, since);
        }
    }

    pub(crate) fn outcome(&self) -> ServerOutcome {
        ServerOutcome {
            device_busy_s: (self.channel_busy.seconds() / self.channels.max(1) as f64).max(self.serial_busy.seconds()),
            link_busy_s: self.link_busy.seconds(),
            bytes: self.bytes,
            sub_requests: self.sub_requests,
            cache_hits: self.cache_hits,
            dirty_bytes: self.cache.as_ref().map_or(0, |cache| cache.dirty_bytes()),
            write_amplification: match &self.device {
                Device::Flash(flash) => flash.write_amplification(),
                Device::Mean(_) | Device::Disk { .. } => 0.0,
            },
        }
    }
}

/// Bytes of a device by its model; without a limit when it is modelled by its means.
pub(crate) fn capacity_bytes(detail: &ServerDetail) -> u64 {
    match detail.device {
        DeviceModel::Mean => u64::MAX,
        DeviceModel::Disk { spec, .. } => spec.capacity_bytes,
        DeviceModel::Flash { spec } => spec.capacity_bytes,
    }
}
