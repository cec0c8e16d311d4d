//! A site's targets as the servers that policies and predictions know: a cluster and a profile.

use super::fault::Fault;
use super::{Site, SiteError, TargetGroup};
use crate::sources::Sources;
use std::path::Path;
use stripewise_layout::{Cluster, Server, ServerClass, ServerUrl};
use stripewise_model::{
    Caveat, Line, NetworkProfile, NetworkSource, OrderedLines, PROFILE_VERSION, Profile, ServerProfile,
};

/// Relative spread of lines that nobody measured. Ours: data sheets and vendors' figures are off by about this much.
pub const UNMEASURED_SPREAD: f64 = 0.25;

/// Startup of an access in order on a disk over that of a random one, where the site gives only the latter: that of `hdd-7200`.
const SEQUENTIAL_SHARE: f64 = 0.01;

/// Startup and transfer of one direction.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Times {
    /// Seconds before the first byte of an access that follows the one before.
    pub sequential_s: f64,
    /// Seconds before the first byte of any other.
    pub random_s: f64,
    /// Seconds per byte.
    pub s_per_byte: f64,
}

/// What a target takes for a request.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct TargetTimes {
    /// Of reads.
    pub read: Times,
    /// Of writes.
    pub write: Times,
}

/// What the network takes for a message.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct LinkTimes {
    /// Seconds of a message.
    pub message_s: f64,
    /// Seconds per byte.
    pub s_per_byte: f64,
}

/// A site as what plans are made for and predictions made from.
#[derive(Clone, PartialEq, Debug)]
pub struct SiteServers {
    /// One server for each target, in the order of [`Site::targets`]. Its id stands for the names, classes and region size of the site, so that a
    /// plan stays one for the site when only parameters change.
    pub cluster: Cluster,
    /// Measured by calibration where the site names a profile.
    pub profile: Profile,
}

impl Site {
    /// The site's servers. A write takes as long as all copies that its pool keeps take together, since they lie on targets of the pool too. `devices` and `links` look names up that `stripewise devices` lists and answer an unknown one with the known ones; `profile` is
    /// what lies at [`Site::profile_path`].
    ///
    /// # Errors
    ///
    /// [`SiteError::Invalid`]: a target without parameters or with two kinds of them, an unknown device or link, or a profile without a target.
    pub fn servers(
        &self,
        devices: &dyn Fn(&str) -> Result<TargetTimes, String>,
        links: &dyn Fn(&str) -> Result<LinkTimes, String>,
        profile: Option<&Profile>,
    ) -> Result<SiteServers, SiteError> {
        let cluster = self.cluster();
        let mut caveats = Vec::new();
        let lines = (0..self.targets.len())
            .map(|target| Ok(written_to_all(self.lines(target, devices, profile)?, self.copies(target))));
        let servers = lines.collect::<Result<Vec<ServerProfile>, Fault>>().map_err(|fault| self.invalid(fault))?;
        let network = self.network(links, profile).map_err(|fault| self.invalid(fault))?;
        if let Some(profile) = profile {
            let is_of_site = |caveat: &&Caveat| !matches!(caveat, Caveat::DerivedWrites);
            caveats.extend(profile.caveats.iter().filter(is_of_site).cloned());
        }
        let unmeasured = servers.iter().filter(|server| server.read_random.samples == 0);
        match unmeasured.count() {
            0 => {}
            servers => caveats.push(Caveat::Unmeasured { servers: servers as u64 }),
        }
        let profile = Profile {
            version: PROFILE_VERSION,
            cluster: cluster.id.clone(),
            emulated: profile.is_some_and(|profile| profile.emulated),
            measured_at: profile.map_or_else(String::new, |profile| profile.measured_at.clone()),
            servers,
            network,
            caveats,
        };
        Ok(SiteServers { cluster, profile })
    }

    fn cluster(&self) -> Cluster {
        let targets = self.targets.iter().enumerate();
        let named = targets.clone().map(|(index, target)| format!("{} {}\n", target.name, self.class(index)));
        let identity = format!("{} {}\n{}", self.fs.name, self.file.region_size.0, named.collect::<String>());
        let id = format!("site-{}-{}", self.fs.name, &Sources::hash(identity.as_bytes())[..12]);
        let server = |(index, target): (usize, &super::Target)| Server {
            capacity: self.group(index).capacity,
            ..Server::new(
                &target.name,
                self.class(index),
                ServerUrl::new(self.fs.name, Path::new("/").join(&target.name)),
            )
        };
        Cluster::new(id, Path::new("/"), self.file.region_size, targets.map(server).collect())
    }

    fn lines(
        &self,
        target: usize,
        devices: &dyn Fn(&str) -> Result<TargetTimes, String>,
        profile: Option<&Profile>,
    ) -> Result<ServerProfile, Fault> {
        let (group, name) = (self.group(target), &self.targets[target].name);
        let fault = |key, message| Fault::within("targets", self.targets[target].group, key, message);
        let measured = profile.and_then(|profile| profile.servers.iter().find(|server| server.name == *name));
        let times = match (&group.device, group.bandwidth, measured) {
            (Some(_), Some(_), _) => {
                return Err(fault("device", format!("`{name}` has a device and a bandwidth; give it one of them")));
            }
            (Some(device), None, _) => devices(device).map_err(|message| fault("device", message))?,
            (None, Some(_), _) => group.times().map_err(|message| fault("bandwidth", message))?,
            (None, None, Some(measured)) if measured.class != group.class => {
                let message =
                    format!("`{name}` is {} here and {} in the profile; correct the one", group.class, measured.class);
                return Err(fault("class", message));
            }
            (None, None, Some(measured)) => return Ok(measured.clone()),
            (None, None, None) => {
                let message = match profile {
                    Some(_) => format!(
                        "the profile has no server `{name}`; calibrate it, or give it a device or bandwidth and latency_ms"
                    ),
                    None => format!(
                        "`{name}` has no parameters; give its group a device (`stripewise devices` lists them), bandwidth and latency_ms, or the site a profile"
                    ),
                };
                return Err(fault("names", message));
            }
        };
        Ok(server_profile(name, group.class, times))
    }

    fn network(
        &self,
        links: &dyn Fn(&str) -> Result<LinkTimes, String>,
        profile: Option<&Profile>,
    ) -> Result<NetworkProfile, Fault> {
        let none = NetworkProfile { e_s: 0.0, t_s_per_byte: 0.0, source: NetworkSource::Local };
        let Some(network) = &self.file.network else { return Ok(profile.map_or(none, |profile| profile.network)) };
        let fault = |key, message| Fault::within("network", 0, key, message);
        let times = match (&network.link, network.latency_ms, network.bandwidth) {
            (Some(link), None, None) => links(link).map_err(|message| fault("link", message))?,
            (None, Some(latency_ms), Some(bandwidth)) => {
                LinkTimes { message_s: latency_ms / 1e3, s_per_byte: 1.0 / bandwidth.0 as f64 }
            }
            _ => {
                let message = "give the network either a link, or latency_ms and bandwidth".to_owned();
                return Err(fault("link", message));
            }
        };
        Ok(NetworkProfile { e_s: times.message_s, t_s_per_byte: times.s_per_byte, source: NetworkSource::Given })
    }
}

impl TargetGroup {
    /// From bandwidth and latency.
    fn times(&self) -> Result<TargetTimes, String> {
        let (Some(bandwidth), Some(latency_ms)) = (self.bandwidth, self.latency_ms) else {
            return Err(
                "a bandwidth goes with latency_ms, the time before the first byte of a random access".to_owned()
            );
        };
        let share = if self.class == ServerClass::Hdd { SEQUENTIAL_SHARE } else { 1.0 };
        let sequential_s = self.sequential_latency_ms.unwrap_or(latency_ms * share) / 1e3;
        let times = |rate: u64| Times { sequential_s, random_s: latency_ms / 1e3, s_per_byte: 1.0 / rate as f64 };
        Ok(TargetTimes { read: times(bandwidth.0), write: times(self.write_bandwidth.unwrap_or(bandwidth).0) })
    }
}

/// With the time of writes to all copies. They lie on other targets of the pool, whose writes come back here: over all targets it is the same.
fn written_to_all(server: ServerProfile, copies: u32) -> ServerProfile {
    let copies = f64::from(copies);
    let line =
        |line: Line| Line { alpha_s: line.alpha_s * copies, beta_s_per_byte: line.beta_s_per_byte * copies, ..line };
    let lines = |lines: OrderedLines| OrderedLines { sequential: line(lines.sequential), random: line(lines.random) };
    ServerProfile {
        write_sequential: line(server.write_sequential),
        write_random: line(server.write_random),
        buffered_write: server.buffered_write.map(lines),
        synchronous_write: server.synchronous_write.map(lines),
        ..server
    }
}

/// Buffered writes cost their bytes alone, since clients and servers gather and sort them, as for a profile that knows one class of writes.
fn server_profile(name: &str, class: ServerClass, times: TargetTimes) -> ServerProfile {
    let line = |alpha_s: f64, beta_s_per_byte: f64| Line {
        alpha_s,
        beta_s_per_byte,
        r2: 1.0,
        spread: UNMEASURED_SPREAD,
        samples: 0,
    };
    let buffered = line(0.0, times.write.s_per_byte);
    ServerProfile {
        name: name.to_owned(),
        class,
        read_sequential: line(times.read.sequential_s, times.read.s_per_byte),
        read_random: line(times.read.random_s, times.read.s_per_byte),
        write_sequential: line(times.write.sequential_s, times.write.s_per_byte),
        write_random: line(times.write.random_s, times.write.s_per_byte),
        buffered_write: Some(OrderedLines { sequential: buffered, random: buffered }),
        synchronous_write: None,
        flush_wait: None,
    }
}
