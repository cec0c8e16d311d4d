//! The servers that are simulated: groups of named devices, or the emulated servers of a cluster file.

use super::options::{Disks, SimulateError, SimulateOptions, Ssds};
use crate::emulated;
use crate::laboratory::{Lab, Machine};
use crate::session::Session;
use std::path::Path;
use stripewise_device::{DeviceModel, DeviceSpec, PageCacheSpec, lookup_disk, lookup_flash, lookup_link};
use stripewise_layout::{ByteCount, Cluster, ServerClass};
use stripewise_sim::{ServerDetail, SimOptions};
use stripewise_store::server::emulated::EmulatedUrl;

/// A server as it was simulated.
#[derive(Clone, PartialEq, Debug)]
pub struct ModelledServer {
    /// Of the cluster.
    pub name: String,
    /// Slow or fast.
    pub class: ServerClass,
    /// The device's name.
    pub device: String,
    /// `mean`, `mechanical` or `parts`.
    pub model: &'static str,
    /// Name of its link, if it has one.
    pub link: Option<String>,
}

pub(super) struct Machines {
    pub(super) lab: Lab,
    /// The device's name and how much slower than real it is, in the order of the servers.
    devices: Vec<(String, f64)>,
    links: Vec<Option<String>>,
    /// The least of any server, where all of them take buffered writes in.
    pub(super) dirty_limit: Option<ByteCount>,
}

impl Machines {
    pub(super) fn choose(session: &Session, arguments: &SimulateOptions) -> Result<Self, SimulateError> {
        let machines = if arguments.servers.is_empty() {
            let cluster = session.cluster().map_err(|source| SimulateError::NoServers { source })?;
            let mut machines = Self::of_servers(&cluster)?;
            for (server, model) in cluster.servers.iter().zip(&mut machines.lab.system.servers) {
                model.name.clone_from(&server.name);
            }
            for (server, profile) in cluster.servers.iter().zip(&mut machines.lab.profile.servers) {
                profile.name.clone_from(&server.name);
            }
            machines.lab.profile.cluster.clone_from(&cluster.id);
            machines.lab.cluster = cluster;
            machines
        } else {
            let servers = emulated::servers(&arguments.servers, arguments.link.as_deref(), 0)?;
            let servers = servers.iter().map(|server| server.at(Path::new("/simulated"))).collect();
            Self::of_servers(&Cluster::new("simulated", "/simulated/state", arguments.region, servers))?
        };
        if let Err(message) = machines.lab.cluster.check() {
            return Err(SimulateError::Cluster { what: message.to_string() });
        }
        Ok(match &arguments.client_link {
            Some(name) => Self { lab: machines.lab.with_client_link(lookup_link(name)?), ..machines },
            None => machines,
        })
    }

    fn of_servers(cluster: &Cluster) -> Result<Self, SimulateError> {
        let (mut machines, mut devices, mut links, mut limits) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        for (id, server) in cluster.ids().zip(&cluster.servers) {
            let url = EmulatedUrl::of(&server.url).map_err(|what| SimulateError::Cluster { what })?;
            let Some(url) = url else {
                return Err(SimulateError::RealServer { name: server.name.clone(), url: server.url.to_string() });
            };
            let spec = url.spec()?;
            let capacity = cluster.room_bytes(id).map(ByteCount);
            machines.push(Machine { class: server.class, device: spec.device, link: spec.link, capacity });
            devices.push((url.device, url.time_scale));
            links.push(url.link);
            limits.push(url.dirty_limit);
        }
        let limits: Option<Vec<ByteCount>> = limits.into_iter().collect();
        let dirty_limit = limits.and_then(|limits| limits.into_iter().min());
        Ok(Self { lab: Lab::new(&machines, cluster.region_size), devices, links, dirty_limit })
    }

    /// What of each server is modelled beyond its means.
    pub(super) fn detail(&self, arguments: &SimulateOptions) -> Result<Vec<ServerDetail>, SimulateError> {
        let cache = arguments.cache.map(|size| PageCacheSpec::linux(size.0));
        if (arguments.disks, arguments.ssds, cache) == (Disks::Mean, Ssds::Mean, None) {
            return Ok(Vec::new());
        }
        let detail = |((name, time_scale), model): (&(String, f64), &stripewise_sim::ServerModel)| {
            let device = match (&model.device, arguments.disks, arguments.ssds) {
                (DeviceSpec::Hdd(_), Disks::Mechanical(order), _) => {
                    DeviceModel::Disk { spec: lookup_disk(name)?, order }
                }
                (DeviceSpec::Ssd(_), _, Ssds::Parts) => DeviceModel::Flash { spec: lookup_flash(name)? },
                _ => DeviceModel::Mean,
            };
            if device != DeviceModel::Mean && *time_scale != 1.0 {
                return Err(SimulateError::Dilated { device: name.clone(), time_scale: *time_scale });
            }
            Ok(ServerDetail { device, cache, ..ServerDetail::default() })
        };
        self.devices.iter().zip(&self.lab.system.servers).map(detail).collect()
    }

    pub(super) fn rows(&self, options: &SimOptions) -> Vec<ModelledServer> {
        let servers = self.lab.system.servers.iter().zip(&self.devices).zip(&self.links).enumerate();
        servers
            .map(|(number, ((model, (device, _)), link))| ModelledServer {
                name: model.name.clone(),
                class: self.lab.cluster.servers[number].class,
                device: device.clone(),
                model: match options.detail.get(number).map(|detail| detail.device) {
                    None | Some(DeviceModel::Mean) => "mean",
                    Some(DeviceModel::Disk { .. }) => "mechanical",
                    Some(DeviceModel::Flash { .. }) => "parts",
                },
                link: link.clone(),
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use stripewise_layout::Server;

    #[test]
    fn buffered_writes_are_taken_in_where_every_server_has_a_dirty_limit() {
        let limit = |queries: [&str; 2]| {
            let servers = queries.iter().enumerate().map(|(number, query)| {
                let url = format!("emulated:///s{number}?device=hdd-7200{query}").parse().unwrap();
                Server::new(format!("s{number}"), ServerClass::Hdd, url)
            });
            let cluster = Cluster::new("c0ffee", "/state", ByteCount(1 << 20), servers.collect());
            Machines::of_servers(&cluster).unwrap().dirty_limit
        };
        assert_eq!(limit(["&dirty_limit=64MiB", "&dirty_limit=8MiB"]), Some(ByteCount(8 << 20)));
        assert_eq!(limit(["&dirty_limit=64MiB", ""]), None);
    }
}
