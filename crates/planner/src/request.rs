//! What a plan is made from: servers, profile, accesses, room and options; checked once, before any policy sees it.

use crate::capacity::Capacity;
use crate::sources::{PlanKey, Sources};
use serde::{Deserialize, Serialize};
use stripewise_layout::{ByteCount, Cluster, RegionGeometry, RegionIndex};
use stripewise_model::{Concurrency, Profile, StripePair};
use stripewise_trace::{FileAccess, ProcessCount, WindowAccess};

/// Regions of one file that are planned, at most: 1 PiB in regions of 64 MiB. One wrong offset in a trace must not fill the memory.
pub const MAX_REGIONS: u64 = 1 << 24;

/// Bytes of a file in a region; a whole region where the recorded size does not reach.
#[must_use]
pub fn region_bytes(file: &FileAccess, region: RegionIndex) -> u64 {
    match RegionGeometry::new(file.region_size.0).used_bytes(region, file.size_bytes) {
        0 => file.region_size.0,
        used => used,
    }
}

/// Choices that are the user's. Off or at the papers' values by default; kept in the plan.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct PlanOptions {
    /// Lattice of stripe sizes; 4 KiB in H2DP algorithm 1. A multiple of 512 bytes.
    pub step: ByteCount,
    /// Seed of everything random.
    pub seed: u64,
    /// H2DP: rank regions by benefit per byte of SServer room instead of by benefit.
    pub benefit_per_ssd_byte: bool,
    /// H2DP: a region must gain more in its window than its move costs.
    pub subtract_move_cost: bool,
    /// H2DP: cost requests at their true offsets instead of the worst ones.
    pub exact: bool,
    /// Room on each SServer, instead of what the cluster file or the file systems say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ssd_room: Option<ByteCount>,
    /// Runs within which the time to place the data must be won back for the verdict `apply`.
    pub worth_runs: f64,
    /// Names of servers that no plan uses.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub exclude: Vec<String>,
    /// `random`: this pair for all files instead of drawn ones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pair: Option<StripePair>,
    /// `padp`, `psa`, `h2dp`: no stripe is smaller. The papers know no such limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_stripe: Option<ByteCount>,
    /// `2-d`: servers in a group; 2 in Cost-intelligent section 6.1.
    #[serde(default = "group_servers", skip_serializing_if = "is_group_servers")]
    pub group_servers: u32,
    /// `segment`: a region's stripes may be spread over the servers as unevenly as this, L_max / L_avg - 1.
    #[serde(default = "imbalance", skip_serializing_if = "is_imbalance")]
    pub imbalance: f64,
    /// `cost`: bytes on all servers together that replicas may take. None are planned without.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replica_room: Option<ByteCount>,
    /// `opt`: seconds after which the search ends with what it has. Without, the same input gives the same plan.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time_limit_s: Option<f64>,
    /// `opt`: plan every window from the ones before it only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub online: Option<Online>,
    /// `opt`: moves between windows cost nothing, so every window gets its own best layouts. Predictions count the moves all the same.
    #[serde(default, skip_serializing_if = "is_false")]
    pub free_moves: bool,
}

/// How a window is guessed from the ones before it.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Online {
    /// Weight of a window relative to the next one, 0 to 1: 0 looks at the last window alone.
    pub decay: f64,
}

impl Default for Online {
    fn default() -> Self {
        Self { decay: 0.5 }
    }
}

fn group_servers() -> u32 {
    2
}

fn is_group_servers(value: &u32) -> bool {
    *value == group_servers()
}

fn is_false(value: &bool) -> bool {
    !*value
}

fn imbalance() -> f64 {
    0.2
}

fn is_imbalance(value: &f64) -> bool {
    *value == imbalance()
}

impl Default for PlanOptions {
    fn default() -> Self {
        Self {
            step: ByteCount(4096),
            seed: 1,
            benefit_per_ssd_byte: false,
            subtract_move_cost: false,
            exact: false,
            ssd_room: None,
            worth_runs: 10.0,
            exclude: Vec::new(),
            pair: None,
            min_stripe: None,
            group_servers: group_servers(),
            imbalance: imbalance(),
            replica_room: None,
            time_limit_s: None,
            online: None,
            free_moves: false,
        }
    }
}

/// All that planning needs.
#[derive(Clone, Debug)]
pub struct PlanRequest<'a> {
    /// Servers and region size.
    pub cluster: &'a Cluster,
    /// Measured on that cluster; [`Self::check`] refuses any other.
    pub profile: &'a Profile,
    /// Files that share the servers and their room; windows of equal number must be the same interval in all of them.
    pub files: &'a [FileAccess],
    /// The runs that the plan shall be for.
    pub key: PlanKey,
    /// Hashes of the inputs, copied into the plan.
    pub sources: Sources,
    /// The user's choices, copied into the plan.
    pub options: PlanOptions,
    /// Bytes free on each server's file system, in cluster order; used where the cluster file gives no capacity. May be empty.
    pub free_bytes: &'a [Option<u64>],
    /// Whether a server with a capacity counts every region at its full size, as the broker does, and not what the file has of it.
    pub promises_whole_regions: bool,
    /// p and c of all files together, in all windows; without it, in each window as many as accessed any of the files.
    pub concurrency: Option<Concurrency>,
}

/// Why a request is not planned. Each variant names value and remedy.
#[derive(Debug, thiserror::Error, PartialEq)]
pub enum RequestError {
    /// A file's accesses are counted in regions of another size than the cluster's.
    #[error(
        "{path}: its accesses are counted in regions of {found}, but the cluster has regions of {expected}; summarise the trace with region size {expected}"
    )]
    RegionSize {
        /// File of the request.
        path: String,
        /// Region size of the counts.
        found: ByteCount,
        /// Region size of the cluster.
        expected: ByteCount,
    },
    /// A region of a file counts requests of a class that the file does not list.
    #[error("{path}: a region counts class {class}, but the file has {known} classes; summarise the trace again")]
    Class {
        /// File of the request.
        path: String,
        /// The class's number.
        class: u16,
        /// Classes that the file lists.
        known: usize,
    },
    /// A class has requests of 0 bytes, or larger than a region.
    #[error(
        "{path}: class {class} has requests of {bytes} bytes, which no region of {region} holds; summarise the trace again"
    )]
    RequestSize {
        /// File of the request.
        path: String,
        /// The class's number.
        class: usize,
        /// Size of its requests.
        bytes: u64,
        /// Size of a region.
        region: ByteCount,
    },
    /// The files' windows do not begin at the same times.
    #[error(
        "{path}: window {window} starts at {found} s, but at {expected} s in {other}; summarise all files with the same windows"
    )]
    Windows {
        /// File of the request.
        path: String,
        /// The first window that differs, from 0.
        window: usize,
        /// Its start in that file, in seconds.
        found: f64,
        /// Its start in `other`, in seconds.
        expected: f64,
        /// The file with the most windows.
        other: String,
    },
    /// A window lists its regions out of order, or one of them twice.
    #[error("{path}: regions of window {window} are not in ascending order; summarise the trace again")]
    Regions {
        /// File of the request.
        path: String,
        /// The window, from 0.
        window: usize,
    },
    /// A file has more regions than [`MAX_REGIONS`].
    #[error(
        "{path}: {regions} regions of {region} are more than the {MAX_REGIONS} that can be planned; use larger regions, or remove records with wrong offsets from the trace"
    )]
    TooManyRegions {
        /// File of the request.
        path: String,
        /// Regions up to its end or its last access.
        regions: u64,
        /// Size of a region.
        region: ByteCount,
    },
    /// The request has one path twice.
    #[error("two files of the plan are named {path}; give each file once")]
    FileTwice {
        /// That path.
        path: String,
    },
    /// [`PlanOptions::step`] is out of range.
    #[error("step {step} is not a multiple of 512 bytes between 512 bytes and 1GiB; use for example 4KiB")]
    Step {
        /// The step asked for.
        step: ByteCount,
    },
    /// [`PlanOptions::exclude`] names no server of the cluster.
    #[error("`{name}` is not a server of this cluster, so it cannot be excluded; its servers are {known}")]
    Exclude {
        /// The name asked for.
        name: String,
        /// Names of the cluster's servers.
        known: String,
    },
    /// No server is left that may take anything.
    #[error("no server may take anything: all are excluded, drained or full; leave at least one with space")]
    NoServers,
    /// The files are larger than all free space together, so that no policy could place them.
    #[error(
        "the files hold {needed} bytes, but the servers have space for {capacity} together; give them capacity for at least {needed}, exclude fewer, or plan fewer files"
    )]
    Capacity {
        /// Bytes of all files.
        needed: u128,
        /// Bytes that regions may fill, on all servers.
        capacity: u128,
    },
    /// [`PlanOptions::pair`] is out of range.
    #[error(
        "the pair <{},{}> gives no server a stripe, or one of more than 4294967295 bytes; use for example 64KiB,64KiB", pair.h_bytes, pair.s_bytes
    )]
    Pair {
        /// The pair asked for.
        pair: StripePair,
    },
    /// [`PlanOptions::min_stripe`] is out of range.
    #[error(
        "stripes of at least {min_stripe} cannot be planned in regions of {region}; use a multiple of 512 bytes up to the region size, for example 64KiB"
    )]
    MinStripe {
        /// The size asked for.
        min_stripe: ByteCount,
        /// Size of a region.
        region: ByteCount,
    },
    /// [`PlanOptions::group_servers`] is 0.
    #[error("groups of {servers} servers cannot be made; use a number from 1 on")]
    GroupServers {
        /// The number asked for.
        servers: u32,
    },
    /// [`PlanOptions::imbalance`] is negative or not finite.
    #[error("an imbalance of {imbalance} cannot be kept; use a number from 0 on, for example 0.2")]
    Imbalance {
        /// The imbalance asked for.
        imbalance: f64,
    },
    /// [`PlanOptions::time_limit_s`] is not above 0 or not finite.
    #[error("a time limit of {seconds} s leaves no time to plan; use a positive number, for example 60")]
    TimeLimit {
        /// The limit asked for.
        seconds: f64,
    },
    /// [`Online::decay`] is not within 0 to 1.
    #[error("a decay of {decay} is not a weight; use a number from 0 to 1, for example 0.5")]
    Decay {
        /// The decay asked for.
        decay: f64,
    },
    /// No file has any request.
    #[error("no accesses to plan for; trace a run that reads or writes files")]
    Nothing,
    /// The profile was not measured on this cluster.
    #[error("profile and cluster do not belong together: {message} (run `stripewise calibrate` for this cluster)")]
    Profile {
        /// The first difference ([`stripewise_model::ProfileError::OtherCluster`]).
        message: String,
    },
}

/// Processes of a file in a window, and the most of them on one node; at least those of its busiest region.
pub(crate) fn processes_of(window: &WindowAccess) -> ProcessCount {
    window.regions.iter().fold(window.processes.file, |most, region| ProcessCount {
        processes: most.processes.max(region.processes),
        per_node: most.per_node.max(region.processes_per_node),
    })
}

/// p and c of several files in one window. Some processes may access several of the files, so it is the sum of all files' at most, and no more than
/// the run had. Where that is not known, they are taken to be the same processes in every file.
fn concurrency_of<'w>(windows: impl Iterator<Item = &'w WindowAccess>) -> Concurrency {
    let (mut sum, mut most, mut run) = (ProcessCount::default(), ProcessCount::default(), ProcessCount::default());
    let of_both = |a: ProcessCount, b: ProcessCount, join: fn(u32, u32) -> u32| ProcessCount {
        processes: join(a.processes, b.processes),
        per_node: join(a.per_node, b.per_node),
    };
    for window in windows {
        let of_file = processes_of(window);
        sum = of_both(sum, of_file, u32::saturating_add);
        most = of_both(most, of_file, u32::max);
        run = of_both(run, window.processes.run, u32::max);
    }
    let limited = of_both(of_both(sum, run, u32::min), most, u32::max);
    Concurrency { processes: limited.processes.max(1), processes_per_node: limited.per_node.max(1) }
}

impl PlanRequest<'_> {
    /// p and c that costs are multiplied by: the most of any window.
    ///
    /// The servers serve all processes of the application, whichever region or file they ask for, so one p holds for all regions of a window; the
    /// number of processes that happened to touch a cold region says nothing of the queues there. Emulated servers have links of their
    /// own and no client nodes, so c is 1 over them: c r t would charge a link that is not there.
    #[must_use]
    pub fn concurrency(&self) -> Concurrency {
        let windows = self.files.iter().map(|file| file.windows.len()).max().unwrap_or(0);
        let none = Concurrency { processes: 1, processes_per_node: 1 };
        (0..windows).map(|window| self.window_concurrency(window)).fold(none, |most, of_window| Concurrency {
            processes: most.processes.max(of_window.processes),
            processes_per_node: most.processes_per_node.max(of_window.processes_per_node),
        })
    }

    /// p and c of one window of all files: how many work at once differs between the phases of a run.
    #[must_use]
    pub fn window_concurrency(&self, window: usize) -> Concurrency {
        let mut concurrency = self
            .concurrency
            .unwrap_or_else(|| concurrency_of(self.files.iter().filter_map(|file| file.windows.get(window))));
        if self.profile.emulated {
            concurrency.processes_per_node = 1;
        }
        concurrency
    }

    /// Room of every server by options, cluster file and file systems. Where file systems have too little for the files and the capacities that the cluster file
    /// gives are enough, those count alone: a cluster can be planned for before it has its disks, and the verdict says what is lacking.
    #[must_use]
    pub fn capacity(&self) -> Capacity {
        let of = |free: &[Option<u64>]| Capacity::of(self.cluster, free, self.options.ssd_room, &self.options.exclude);
        let present = of(self.free_bytes);
        if present.total_bytes().is_none_or(|bytes| bytes >= self.needed_bytes()) {
            return present;
        }
        let servers = self.free_bytes.iter().zip(&self.cluster.servers);
        let unlimited: Vec<Option<u64>> =
            servers.map(|(free, server)| free.filter(|_| server.capacity.is_none())).collect();
        of(&unlimited)
    }

    /// Bytes of all files.
    fn needed_bytes(&self) -> u128 {
        self.files.iter().map(|file| u128::from(file.size_bytes)).sum()
    }

    /// What is wrong with the input, if anything.
    ///
    /// # Errors
    ///
    /// The first fault found, in the order of options, profile, files and room.
    pub fn check(&self) -> Result<(), RequestError> {
        let PlanOptions { step, .. } = self.options;
        if step.0 < 512 || !step.0.is_multiple_of(512) || step.0 > 1 << 30 {
            return Err(RequestError::Step { step });
        }
        self.check_options()?;
        self.check_profile()?;
        let mut names = std::collections::HashSet::new();
        for file in self.files {
            if !names.insert(&file.path) {
                return Err(RequestError::FileTwice { path: file.path.clone() });
            }
            self.check_file(file)?;
        }
        if self.files.iter().all(|file| file.windows.iter().all(|window| window.regions.is_empty())) {
            return Err(RequestError::Nothing);
        }
        self.check_space()
    }

    fn check_options(&self) -> Result<(), RequestError> {
        let options = &self.options;
        let servers = || self.cluster.servers.iter().map(|server| server.name.as_str());
        if let Some(name) = options.exclude.iter().find(|name| servers().all(|server| server != name.as_str())) {
            let known = servers().collect::<Vec<_>>().join(", ");
            return Err(RequestError::Exclude { name: name.clone(), known });
        }
        if let Some(pair) = options.pair {
            let largest = u64::from(u32::MAX);
            if pair.h_bytes.max(pair.s_bytes) == 0 || pair.h_bytes.max(pair.s_bytes) > largest {
                return Err(RequestError::Pair { pair });
            }
        }
        let region = self.cluster.region_size;
        if let Some(min_stripe) = options.min_stripe {
            let fits = (512..=region.0).contains(&min_stripe.0) && min_stripe.0 <= u64::from(u32::MAX);
            if !fits || !min_stripe.0.is_multiple_of(512) {
                return Err(RequestError::MinStripe { min_stripe, region });
            }
        }
        if options.group_servers == 0 {
            return Err(RequestError::GroupServers { servers: options.group_servers });
        }
        if !options.imbalance.is_finite() || options.imbalance < 0.0 {
            return Err(RequestError::Imbalance { imbalance: options.imbalance });
        }
        if let Some(seconds) = options.time_limit_s.filter(|seconds| !(seconds.is_finite() && *seconds > 0.0)) {
            return Err(RequestError::TimeLimit { seconds });
        }
        if let Some(decay) = options.online.map(|online| online.decay).filter(|decay| !(0.0..=1.0).contains(decay)) {
            return Err(RequestError::Decay { decay });
        }
        Ok(())
    }

    /// What no policy can place is refused here; where a policy's own layouts need more than a server has, its plan says so in a note.
    fn check_space(&self) -> Result<(), RequestError> {
        let capacity = self.capacity();
        if (0..self.cluster.servers.len()).all(|server| capacity.bytes(server) == Some(0)) {
            return Err(RequestError::NoServers);
        }
        let needed = self.needed_bytes();
        match capacity.total_bytes() {
            Some(capacity) if capacity < needed => Err(RequestError::Capacity { needed, capacity }),
            _ => Ok(()),
        }
    }

    fn check_profile(&self) -> Result<(), RequestError> {
        self.profile.check(self.cluster, std::path::Path::new("profile")).map_err(|error| match error {
            stripewise_model::ProfileError::OtherCluster { message, .. } => RequestError::Profile { message },
            other => RequestError::Profile { message: other.to_string() },
        })
    }

    fn check_file(&self, file: &FileAccess) -> Result<(), RequestError> {
        let path = || file.path.clone();
        if file.region_size != self.cluster.region_size {
            let expected = self.cluster.region_size;
            return Err(RequestError::RegionSize { path: path(), found: file.region_size, expected });
        }
        let accessed =
            file.windows.iter().filter_map(|window| window.regions.last()).map(|last| u64::from(last.region.0) + 1);
        let regions = accessed.max().unwrap_or(0).max(file.size_bytes.div_ceil(file.region_size.0));
        if regions > MAX_REGIONS {
            return Err(RequestError::TooManyRegions { path: path(), regions, region: file.region_size });
        }
        for (class, access) in file.classes.iter().enumerate() {
            if access.request_bytes == 0 || access.request_bytes > file.region_size.0 {
                let (bytes, region) = (access.request_bytes, file.region_size);
                return Err(RequestError::RequestSize { path: path(), class, bytes, region });
            }
        }
        let longest = self.files.iter().max_by_key(|file| file.windows.len()).expect("this file is one of them");
        for (number, (window, reference)) in file.windows.iter().zip(&longest.windows).enumerate() {
            if window.start_s != reference.start_s {
                return Err(RequestError::Windows {
                    path: path(),
                    window: number,
                    found: window.start_s,
                    expected: reference.start_s,
                    other: longest.path.clone(),
                });
            }
            let ascending = window.regions.windows(2).all(|pair| pair[0].region < pair[1].region);
            if !ascending {
                return Err(RequestError::Regions { path: path(), window: number });
            }
            let classes = window.regions.iter().flat_map(|region| &region.counts).map(|(class, _)| class.0);
            if let Some(class) = classes.into_iter().find(|class| usize::from(*class) >= file.classes.len()) {
                return Err(RequestError::Class { path: path(), class, known: file.classes.len() });
            }
        }
        Ok(())
    }
}
