//! A laboratory: machines from which cluster, profile and simulated system are all made, so that planner and simulator speak of the same.
//!
//! The profile holds what calibration would find on these servers, measured alone and without error: startup and transfer time of each
//! device, e and t of its link. The simulator gets the devices themselves.

use stripewise_device::{DeviceSpec, LinkSpec};
use stripewise_layout::{ByteCount, Cluster, Direction, Order, Server, ServerClass};
use stripewise_model::{Concurrency, Line, NetworkProfile, NetworkSource, PROFILE_VERSION, Profile, ServerProfile};
use stripewise_planner::{Plan, PlanKey, PlanOptions, PlanRequest, PolicyName, RequestError, Sources};
use stripewise_sim::{
    Borders, FilePlacements, Migration, Outcome, PlacedWindow, Scenario, ServerModel, SimError, SimOptions, System,
};
use stripewise_store::server::directory;
use stripewise_trace::{FileAccess, Program, ProgramCountOptions, count_program};
use thiserror::Error;

/// Why a policy made no plan.
#[derive(Debug, Error)]
#[error("planning with {policy}")]
pub struct PolicyError {
    /// The policy asked for.
    pub policy: PolicyName,
    /// Why it was refused.
    pub source: RequestError,
}

const ID: &str = "simulated";

/// One server of a laboratory.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Machine {
    /// HServer or SServer.
    pub class: ServerClass,
    /// Startup and transfer times.
    pub device: DeviceSpec,
    /// The server's own link; `None` where no network lies between.
    pub link: Option<LinkSpec>,
    /// Bytes that files may take; `None` where there is enough.
    pub capacity: Option<ByteCount>,
}

/// Servers, what calibration would find of them, and the simulated system made of them.
#[derive(Clone, PartialEq, Debug)]
pub struct Lab {
    /// Servers named `hdd0` .. and `ssd0` .., at paths that do not exist.
    pub cluster: Cluster,
    /// The devices' own parameters, as calibration would find them.
    pub profile: Profile,
    /// The same servers for the simulator.
    pub system: System,
}

impl Lab {
    /// The network parameters are the mean of the servers' links.
    pub fn new(machines: &[Machine], region_size: ByteCount) -> Self {
        let named: Vec<(String, &Machine)> = machines
            .iter()
            .enumerate()
            .map(|(index, machine)| {
                let before = machines[..index].iter().filter(|other| other.class == machine.class).count();
                (format!("{}{before}", machine.class), machine)
            })
            .collect();
        let servers = named.iter().map(|(name, machine)| Server {
            capacity: machine.capacity,
            ..Server::new(name, machine.class, directory::url(format!("/simulated/{name}")))
        });
        let cluster = Cluster::new(ID, "/simulated/state", region_size, servers.collect());
        let models = named.iter().map(|(name, machine)| ServerModel {
            name: name.clone(),
            device: machine.device,
            link: machine.link,
        });
        let system = System { servers: models.collect(), client_link: None };
        let profile = Profile {
            version: PROFILE_VERSION,
            cluster: ID.to_owned(),
            emulated: false,
            measured_at: "1970-01-01T00:00:00Z".to_owned(),
            servers: named.iter().map(|(name, machine)| server_profile(name, machine)).collect(),
            network: network(machines),
            caveats: Vec::new(),
        };
        Self { cluster, profile, system }
    }

    /// `hdds` disks and `ssds` SSDs, all behind links of one kind.
    pub fn hybrid(
        (hdds, hdd): (usize, DeviceSpec),
        (ssds, ssd): (usize, DeviceSpec),
        link: LinkSpec,
        ssd_room: Option<ByteCount>,
        region_size: ByteCount,
    ) -> Self {
        let machine = |class, device, capacity| Machine { class, device, link: Some(link), capacity };
        let disks = std::iter::repeat_n(machine(ServerClass::Hdd, hdd, None), hdds);
        let flash = std::iter::repeat_n(machine(ServerClass::Ssd, ssd, ssd_room), ssds);
        Self::new(&disks.chain(flash).collect::<Vec<_>>(), region_size)
    }

    /// With a link of every client node, shared by its processes.
    pub fn with_client_link(mut self, link: LinkSpec) -> Self {
        self.system.client_link = Some(link);
        self
    }

    /// With regions of another size.
    pub fn with_regions(mut self, region_size: ByteCount) -> Self {
        self.cluster.region_size = region_size;
        self
    }

    /// What tracing a run of the program would give; its phases are the windows.
    pub fn count(&self, program: &dyn Program) -> Vec<FileAccess> {
        let region_size = self.cluster.region_size;
        count_program(program, &ProgramCountOptions { region_size, ..ProgramCountOptions::default() })
    }

    /// What a policy makes of a program's accesses.
    pub fn request<'a>(
        &'a self,
        program: &dyn Program,
        files: &'a [FileAccess],
        options: PlanOptions,
    ) -> PlanRequest<'a> {
        let processes = program.processes();
        // Without client links no process waits for another's: c is 1, as with emulated servers.
        let processes_per_node = match self.system.client_link {
            Some(_) => processes.div_ceil(program.nodes()),
            None => 1,
        };
        PlanRequest {
            cluster: &self.cluster,
            profile: &self.profile,
            files,
            key: PlanKey::new("workload", processes),
            sources: Sources::default(),
            options,
            free_bytes: &[],
            promises_whole_regions: false,
            concurrency: Some(Concurrency { processes, processes_per_node }),
        }
    }

    /// The plan of one policy for a program of which the accesses were counted, in this run of it or another.
    ///
    /// # Errors
    ///
    /// [`PolicyError`] if the request is refused.
    pub fn plan_counted(
        &self,
        policy: PolicyName,
        program: &dyn Program,
        files: &[FileAccess],
        seed: u64,
    ) -> Result<Plan, PolicyError> {
        self.plan_with(policy, program, files, PlanOptions { seed, ..PlanOptions::default() })
    }

    /// As [`Self::plan_counted`], with any options.
    ///
    /// # Errors
    ///
    /// [`PolicyError`] if the request is refused.
    pub fn plan_with(
        &self,
        policy: PolicyName,
        program: &dyn Program,
        files: &[FileAccess],
        options: PlanOptions,
    ) -> Result<Plan, PolicyError> {
        let request = self.request(program, files, options);
        stripewise_planner::plan(policy, &request).map_err(|source| PolicyError { policy, source })
    }

    /// Runs the program on the placements of a plan; regions move at the borders of its phases.
    ///
    /// # Errors
    ///
    /// [`SimError`] where placements do not fit the files and servers.
    pub fn simulate(&self, plan: &Plan, program: &dyn Program, migration: Migration) -> Result<Outcome, SimError> {
        let options = SimOptions { borders: Borders::Phase, migration, ..SimOptions::default() };
        self.simulate_with(&placements(plan, program), program, options)
    }

    /// As [`Self::simulate`], for any placements and options.
    ///
    /// # Errors
    ///
    /// [`SimError`] where placements or options do not fit the files and servers.
    pub fn simulate_with(
        &self,
        files: &[FilePlacements],
        program: &dyn Program,
        options: SimOptions,
    ) -> Result<Outcome, SimError> {
        let scenario = Scenario { system: &self.system, program, files, options };
        stripewise_sim::simulate(&scenario, &mut |_| {})
    }
}

/// The placement of every phase. A plan leaves out windows in which nothing moves, and what was counted of a program has windows of a
/// nominal length.
pub fn placements(plan: &Plan, program: &dyn Program) -> Vec<FilePlacements> {
    let window_s = ProgramCountOptions::default().window_s;
    let file = |planned: &stripewise_planner::PlannedFile| {
        let window = |phase: u32| {
            let start_s = f64::from(phase) * window_s;
            PlacedWindow { start_s, placement: planned.placement_at(start_s).clone() }
        };
        FilePlacements { windows: (0..program.phases()).map(window).collect() }
    };
    plan.files.iter().map(file).collect()
}

fn server_profile(name: &str, machine: &Machine) -> ServerProfile {
    let line = |direction, order| {
        let service = machine.device.service(direction);
        let alpha_s = match order {
            Order::Sequential => service.startup_s,
            Order::Random => service.random_startup_s,
        };
        Line { alpha_s, beta_s_per_byte: service.transfer_s_per_byte, r2: 1.0, spread: 0.0, samples: 0 }
    };
    ServerProfile {
        name: name.to_owned(),
        class: machine.class,
        read_sequential: line(Direction::Read, Order::Sequential),
        read_random: line(Direction::Read, Order::Random),
        write_sequential: line(Direction::Write, Order::Sequential),
        write_random: line(Direction::Write, Order::Random),
        buffered_write: None,
        synchronous_write: None,
        flush_wait: None,
    }
}

fn network(machines: &[Machine]) -> NetworkProfile {
    let links: Vec<LinkSpec> = machines.iter().filter_map(|machine| machine.link).collect();
    let mean = |of: fn(&LinkSpec) -> f64| links.iter().map(of).sum::<f64>() / links.len().max(1) as f64;
    NetworkProfile {
        e_s: mean(|link| link.message_s),
        t_s_per_byte: mean(|link| link.transfer_s_per_byte),
        source: if links.is_empty() { NetworkSource::Local } else { NetworkSource::Given },
    }
}
