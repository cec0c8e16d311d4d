//! The servers that are simulated: groups of named devices, or the emulated servers of a cluster file.

use super::{Disks, SimulateArgs, Ssds};
use crate::context::Context;
use anyhow::{Context as _, Result, bail};
use std::path::Path;
use stripewise::emulated;
use stripewise::laboratory::{Lab, Machine};
use stripewise_device::{
    DeviceModel, DeviceSpec, LinkSpec, PageCacheSpec, lookup_device, lookup_disk, lookup_flash, lookup_link,
};
use stripewise_layout::{ByteCount, Cluster, ServerUrl};
use stripewise_report::simulation::SimulatedServer;
use stripewise_sim::{ServerDetail, SimOptions};

pub(super) struct Machines {
    pub(super) lab: Lab,
    /// The device's name and how much slower than real it is, in the order of the servers.
    devices: Vec<(String, f64)>,
    links: Vec<Option<String>>,
}

impl Machines {
    pub(super) fn choose(context: &Context, arguments: &SimulateArgs) -> Result<Self> {
        let machines = if arguments.servers.is_empty() {
            let cluster =
                context.session.cluster().context("--servers names the servers to simulate without a cluster")?;
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
            bail!("{message}");
        }
        Ok(match &arguments.client_link {
            Some(name) => Self { lab: machines.lab.with_client_link(lookup_link(name)?), ..machines },
            None => machines,
        })
    }

    fn of_servers(cluster: &Cluster) -> Result<Self> {
        let (mut machines, mut devices, mut links) = (Vec::new(), Vec::new(), Vec::new());
        for (id, server) in cluster.ids().zip(&cluster.servers) {
            let ServerUrl::Emulated { device, link, time_scale, .. } = &server.url else {
                bail!(
                    "server `{}` ({}) is a real one, whose device nobody has described; name servers to simulate with --servers",
                    server.name,
                    server.url
                );
            };
            let spec: DeviceSpec = lookup_device(device)?.dilated(*time_scale);
            let link_spec = link.as_deref().map(lookup_link).transpose()?;
            let link_spec = link_spec.map(|link: LinkSpec| link.dilated(*time_scale));
            let room = cluster.room_bytes(id).map(ByteCount);
            machines.push(Machine { class: server.class, device: spec, link: link_spec, room });
            devices.push((device.clone(), *time_scale));
            links.push(link.clone());
        }
        Ok(Self { lab: Lab::new(&machines, cluster.region_size), devices, links })
    }

    /// What of each server is modelled beyond its means.
    pub(super) fn detail(&self, arguments: &SimulateArgs) -> Result<Vec<ServerDetail>> {
        let cache = arguments.cache.map(|size| PageCacheSpec::linux(size.0));
        if (arguments.disk, arguments.ssd, cache) == (Disks::Mean, Ssds::Mean, None) {
            return Ok(Vec::new());
        }
        let detail = |((name, time_scale), model): (&(String, f64), &stripewise_sim::ServerModel)| {
            let device = match (&model.device, arguments.disk, arguments.ssd) {
                (DeviceSpec::Hdd(_), Disks::Mechanical, _) => {
                    DeviceModel::Disk { spec: lookup_disk(name)?, order: arguments.disk_order.into() }
                }
                (DeviceSpec::Ssd(_), _, Ssds::Parts) => DeviceModel::Flash { spec: lookup_flash(name)? },
                _ => DeviceModel::Mean,
            };
            if device != DeviceModel::Mean && *time_scale != 1.0 {
                bail!("{name} with time_scale {time_scale}: a dilated device can only be modelled by its mean");
            }
            Ok(ServerDetail { device, cache, ..ServerDetail::default() })
        };
        self.devices.iter().zip(&self.lab.system.servers).map(detail).collect()
    }

    pub(super) fn rows(&self, options: &SimOptions) -> Vec<SimulatedServer> {
        let servers = self.lab.system.servers.iter().zip(&self.devices).zip(&self.links).enumerate();
        servers
            .map(|(number, ((model, (device, _)), link))| SimulatedServer {
                name: model.name.clone(),
                class: self.lab.cluster.servers[number].class,
                device: device.clone(),
                model: match options.detail.get(number).map(|detail| detail.device) {
                    None | Some(DeviceModel::Mean) => "mean",
                    Some(DeviceModel::Disk { .. }) => "mechanical",
                    Some(DeviceModel::Flash { .. }) => "parts",
                }
                .to_owned(),
                link: link.clone(),
            })
            .collect()
    }
}
