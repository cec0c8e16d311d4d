//! The stations of one server for one thread: reservation at issue, first the device, then the link.

use crate::{Access, DeviceSpec, LinkSpec, MAX_CHANNELS, Nanos, RecentStreams};

/// When an access leaves the device and the link.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Reservation {
    /// When the device's serial stage is free of it: the access takes the link from then on.
    pub device_end: Nanos,
    /// When the access is done.
    pub end: Nanos,
}

/// When each station of one server is next free, and the recent streams of its disk.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct StationState {
    channels: [Nanos; MAX_CHANNELS],
    serial: Nanos,
    link: Nanos,
    streams: RecentStreams,
}

impl StationState {
    /// Reserves the server for an access issued at `issue`, behind all that were reserved before it.
    pub fn reserve(
        &mut self,
        device: &DeviceSpec,
        link: Option<&LinkSpec>,
        issue: Nanos,
        access: &Access,
    ) -> Reservation {
        let skipped_bytes = match device {
            DeviceSpec::Hdd(hdd) => self.streams.note(hdd.streams, access.place, access.bytes, hdd.skip_bytes),
            DeviceSpec::Ssd(_) => None,
        };
        let demand = device.demand(access.direction, access.bytes, skipped_bytes);
        let mut arrival = issue;
        if let Some(channel) = self.channels[..device.channels()].iter_mut().min() {
            arrival = occupy(channel, arrival, demand.channel);
        }
        let device_end = occupy(&mut self.serial, arrival, demand.serial);
        let end = link.map_or(device_end, |link| occupy(&mut self.link, device_end, link.demand(access.bytes)));
        Reservation { device_end, end }
    }
}

fn occupy(next_free: &mut Nanos, arrival: Nanos, demand: Nanos) -> Nanos {
    *next_free = arrival.max(*next_free) + demand;
    *next_free
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{DiskPlace, ExtentId, lookup_device, lookup_link};
    use proptest::prelude::*;
    use stripewise_layout::{Direction, ObjectOffset};

    fn access(direction: Direction, extent: u64, bytes: u64) -> Access {
        let place = DiskPlace { extent: ExtentId(extent), after: None, offset: ObjectOffset(0) };
        Access { direction, place, bytes }
    }

    /// Service in order of arrival at each station, event by event: what reservation at issue must equal.
    fn event_by_event(device: &DeviceSpec, link: &LinkSpec, jobs: &[(Nanos, Access)]) -> Vec<Nanos> {
        /// One FIFO station with `servers` servers: takes (arrival, job), gives (departure, job) in order of departure.
        fn station(
            servers: usize,
            mut arrivals: Vec<(Nanos, usize)>,
            demand: impl Fn(usize) -> Nanos,
        ) -> Vec<(Nanos, usize)> {
            arrivals.sort();
            let mut busy_until = vec![Nanos(0); servers];
            let mut departures: Vec<_> = arrivals
                .into_iter()
                .map(|(arrival, job)| {
                    let server = (0..servers).min_by_key(|&server| busy_until[server]).unwrap();
                    busy_until[server] = busy_until[server].max(arrival) + demand(job);
                    (busy_until[server], job)
                })
                .collect();
            departures.sort();
            departures
        }
        let demand = |job: usize| device.demand(jobs[job].1.direction, jobs[job].1.bytes, None);
        let mut at = jobs.iter().enumerate().map(|(job, (issue, _))| (*issue, job)).collect();
        if device.channels() > 0 {
            at = station(device.channels(), at, |job| demand(job).channel);
        }
        at = station(1, at, |job| demand(job).serial);
        at = station(1, at, |job| link.demand(jobs[job].1.bytes));
        let mut ends = vec![Nanos(0); jobs.len()];
        for (end, job) in at {
            ends[job] = end;
        }
        ends
    }

    proptest! {
        /// Each access has an extent of its own, so that none continues a stream and both sides agree on the startup.
        #[test]
        fn reservation_at_issue_is_service_in_order_of_arrival(
            name in prop::sample::select(vec!["hdd-7200", "sata-ssd-2012", "nvme", "paper-hdd", "paper-ssd"]),
            write in any::<bool>(),
            jobs in prop::collection::vec((0..400_000u64, 1..4_194_304u64), 1..60),
        ) {
            let (device, link) = (lookup_device(name).unwrap(), lookup_link("gigabit").unwrap());
            let direction = if write { Direction::Write } else { Direction::Read };
            let mut issue = 0;
            let jobs: Vec<_> = jobs.into_iter().enumerate().map(|(number, (pause, bytes))| {
                issue += pause;
                (Nanos(issue), access(direction, 2 * number as u64, bytes))
            }).collect();
            let mut state = StationState::default();
            let reserved: Vec<_> = jobs.iter().map(|(issue, access)| state.reserve(&device, Some(&link), *issue, access).end).collect();
            prop_assert_eq!(reserved, event_by_event(&device, &link, &jobs));
        }
    }

    #[test]
    fn one_request_at_a_time_costs_startup_transfer_and_link() {
        for (name, direction, expected_s) in [
            ("hdd-7200", Direction::Read, 12.66e-3 + 1e6 / 125e6),
            ("hdd-7200", Direction::Write, 13.66e-3 + 1e6 / 125e6),
            ("sata-ssd-2012", Direction::Read, 80e-6 + 1e6 / 550e6),
            ("sata-ssd-2012", Direction::Write, 85e-6 + 1e6 / 520e6),
            ("paper-hdd", Direction::Read, 0.3e-3 + 1e6 / 120e6),
        ] {
            let device = lookup_device(name).unwrap();
            let link = lookup_link("gigabit").unwrap();
            let issue = Nanos(5_000_000_000);
            let access = access(direction, 1, 1_000_000);
            let bare = StationState::default().reserve(&device, None, issue, &access);
            let linked = StationState::default().reserve(&device, Some(&link), issue, &access);
            let spent_s = bare.end.saturating_sub(issue).seconds();
            assert!((spent_s - expected_s).abs() < 2e-9, "{name}: {spent_s} instead of {expected_s}");
            assert_eq!(bare.device_end, linked.device_end);
            assert_eq!(linked.end, bare.end + link.demand(1_000_000));
        }
    }

    #[test]
    fn small_requests_overlap_on_the_channels_of_an_ssd() {
        let device = lookup_device("sata-ssd-2012").unwrap();
        let mut state = StationState::default();
        let last = (0..4_000).map(|_| state.reserve(&device, None, Nanos(0), &access(Direction::Read, 1, 4096)).end);
        let per_s = 4_000.0 / last.max().unwrap().seconds();
        assert!((per_s / 50_000.0 - 1.0).abs() < 0.01, "data sheet: 50,000 reads/s; found {per_s}");
    }

    #[test]
    fn dilation_multiplies_every_time() {
        for device in crate::DEVICES {
            let (mut plain, mut slow) = (StationState::default(), StationState::default());
            let scaled = device.spec.dilated(10.0);
            for bytes in [4096, 65536, 4096] {
                let access = access(Direction::Write, 3, bytes);
                let plain_s = plain.reserve(&device.spec, None, Nanos(0), &access).end.seconds();
                let slow_s = slow.reserve(&scaled, None, Nanos(0), &access).end.seconds();
                assert!((slow_s - 10.0 * plain_s).abs() < 1e-7, "{}: {slow_s} {plain_s}", device.name);
            }
        }
    }
}
