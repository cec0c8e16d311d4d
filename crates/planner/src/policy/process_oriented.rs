//! `1-dh`, `1-dv`, `2-d`: over how many servers the data of one process is spread.
//!
//! **Paper.** Cost-intelligent section 3 and Fig. 1, the three layouts of PVFS2 and Lustre; section 4 says what they are in a shared file.
//!
//! **Assumptions.** All servers are alike, n of them. Layouts are those of processes, not of files.
//!
//! **Algorithm.** Where each process has a file of its own, 1-DV puts a file on one server, 2-D on one group of k servers (the groups being
//! n / k) and 1-DH on all; the group rotates by file. In a shared file the same is done to requests, through the stripe: about s for
//! 1-DV, s / k for 2-D and s / n for 1-DH, over all servers, s being the byte-weighted mean request. Stripes are rounded up to the step. The paper
//! does not say on which of its servers a file begins: here each begins one server after the file before it, within its group if it has
//! one, so that the beginnings of files, which hold headers, do not all meet on one server. Room is not looked at: regions are drawn as for `def`, and those that find the SServers full are laid out likewise over the HServers.
//!
//! A file is one process's own if no region of it saw a second process and the plan has at least as many such files as the programs
//! have processes together. The second condition is ours: a shared file in which every process keeps to its own part looks the same, and
//! there are fewer such files than processes. Where one of several programs has a file for each process and another does not, all files
//! count as shared: who used a file is not known here.
//!
//! **Complexity.** O(regions).

use super::fill::{FileLayouts, RegionLayouts, fill_at_random};
use super::{About, FileChoice, Policy, Source, Task, file_request_bytes, region_count};
use crate::servers::ceil_to;
use std::collections::HashMap;
use stripewise_layout::{Layout, ServerId};
use stripewise_model::cost_intelligent::ProcessLayout;
use stripewise_trace::FileAccess;

pub(crate) struct OneDh;
pub(crate) struct OneDv;
pub(crate) struct TwoD;

const ABOUT: About = About {
    section: "1-dh-1-dv-2-d",
    source: Source::Paper("Cost-intelligent, section 3"),
    stripes_differ_by: "file",
    ssd_regions: "drawn",
    moves_data: "no",
};

impl Policy for OneDh {
    fn about(&self) -> About {
        ABOUT
    }

    fn choose(&self, task: &Task<'_>) -> Vec<FileChoice> {
        choose_same(task, |_| ProcessLayout::OneDh)
    }
}

impl Policy for OneDv {
    fn about(&self) -> About {
        ABOUT
    }

    fn choose(&self, task: &Task<'_>) -> Vec<FileChoice> {
        choose_same(task, |_| ProcessLayout::OneDv)
    }
}

impl Policy for TwoD {
    fn about(&self) -> About {
        ABOUT
    }

    fn choose(&self, task: &Task<'_>) -> Vec<FileChoice> {
        choose_same(task, |servers| ProcessLayout::TwoD { groups: groups_of(task, servers) })
    }
}

/// Groups of the size that the options ask for: `servers` over that size, at least one.
pub(super) fn groups_of(task: &Task<'_>, servers: usize) -> u32 {
    (servers as u32 / task.request.options.group_servers.max(1)).max(1)
}

/// Every file in the layout that `layout_for` gives for so many servers.
fn choose_same(task: &Task<'_>, layout_for: impl Fn(usize) -> ProcessLayout) -> Vec<FileChoice> {
    choose_each(task, |_, _, servers| layout_for(servers.len()))
}

/// Every file in the layout that `layout_for` gives for its number, the access to it and the servers.
pub(super) fn choose_each(
    task: &Task<'_>,
    layout_for: impl Fn(usize, &FileAccess, &[ServerId]) -> ProcessLayout,
) -> Vec<FileChoice> {
    let tiers: Vec<Vec<ServerId>> = task.tiers().iter().map(|tier| tier.groups.all().collect()).collect();
    let hservers = pure_servers(task);
    let shares = Shares::of(task);
    let layouts = task.request.files.iter().enumerate().map(|(number, file)| {
        let mut list = LayoutList::default();
        let mut regions = |servers: &[ServerId]| {
            let layouts =
                region_layouts(task, number, shares.of_file(number), servers, layout_for(number, file, servers));
            list.number_all(layouts)
        };
        let hybrid = tiers.iter().map(|servers| regions(servers)).collect();
        let pure = regions(&hservers);
        FileLayouts { layouts: list.layouts, hybrid, pure }
    });
    fill_at_random(task, layouts.collect())
}

/// The HServers; the SServers in a cluster without any.
pub(super) fn pure_servers(task: &Task<'_>) -> Vec<ServerId> {
    let groups = &task.groups;
    if groups.hdd.is_empty() { groups.ssd.clone() } else { groups.hdd.clone() }
}

/// Which files are one process's own, and their rank among those.
pub(super) struct Shares(Vec<Option<usize>>);

impl Shares {
    pub(super) fn of(task: &Task<'_>) -> Self {
        let files = task.request.files;
        let of_one = |file: &FileAccess| {
            let mut regions = file.windows.iter().flat_map(|window| &window.regions).peekable();
            regions.peek().is_some() && regions.all(|region| region.processes <= 1)
        };
        let mut own = 0;
        let ranks: Vec<Option<usize>> = files
            .iter()
            .map(|file| {
                of_one(file).then(|| {
                    own += 1;
                    own - 1
                })
            })
            .collect();
        let is_file_per_process = own >= task.request.key.all_processes().max(1) as usize;
        Self(if is_file_per_process { ranks } else { vec![None; files.len()] })
    }

    /// The rank of a file that is one process's own; `None` for a shared one.
    pub(super) fn of_file(&self, number: usize) -> Option<usize> {
        self.0[number]
    }
}

/// What a process layout means for the file of that number: `rank` is that of a file of one process.
pub(super) fn region_layouts(
    task: &Task<'_>,
    number: usize,
    rank: Option<usize>,
    servers: &[ServerId],
    layout: ProcessLayout,
) -> Regions {
    let (n, file) = (servers.len(), &task.request.files[number]);
    let width = match layout {
        ProcessLayout::OneDh => n,
        ProcessLayout::OneDv => 1,
        ProcessLayout::TwoD { groups } => (n / (groups.max(1) as usize)).max(1),
    };
    let request_bytes = file_request_bytes(file, task.step_bytes);
    let largest = file.region_size.0.min(u64::from(u32::MAX));
    let stripe_bytes = ceil_to(request_bytes.div_ceil(width as u64).max(1), task.step_bytes).min(largest) as u32;
    // `count` servers from `group` on, beginning with the one at `first` of them.
    let from = |group: usize, count: usize, first: usize| {
        let turns = (0..count).map(|turn| (servers[(group + (first + turn) % count) % n], stripe_bytes));
        Layout::new(turns).expect("at least one server, each once, with a stripe")
    };
    if let Some(rank) = rank {
        // Every group has one file before any has its second.
        return Regions::Same(from(rank * width % n, width, rank / (n / width)));
    }
    let regions = region_count(file) as usize;
    let stripes_in_region = (file.region_size.0 / u64::from(stripe_bytes)).max(1);
    if stripes_in_region >= n as u64 || regions <= 1 {
        return Regions::Same(from(0, n, number));
    }
    // A region begins a new cycle; one that is shorter than its cycle would always leave the last servers idle, so the cycle goes on where
    // the region before ended.
    let first = |region: usize| number + (region as u64 * stripes_in_region % n as u64) as usize;
    Regions::Each((0..regions).map(|region| from(0, n, first(region))).collect())
}

/// Layouts of all regions of a file.
pub(super) enum Regions {
    Same(Layout),
    Each(Vec<Layout>),
}

impl Regions {
    /// The layout of one region.
    pub(super) fn get(&self, region: usize) -> &Layout {
        match self {
            Self::Same(layout) => layout,
            Self::Each(layouts) => &layouts[region],
        }
    }
}

/// Distinct layouts with their numbers.
#[derive(Default)]
pub(super) struct LayoutList {
    pub(super) layouts: Vec<Layout>,
    numbers: HashMap<Layout, u32>,
}

impl LayoutList {
    pub(super) fn number(&mut self, layout: Layout) -> u32 {
        *self.numbers.entry(layout).or_insert_with_key(|layout| {
            self.layouts.push(layout.clone());
            self.layouts.len() as u32 - 1
        })
    }

    pub(super) fn number_all(&mut self, regions: Regions) -> RegionLayouts {
        match regions {
            Regions::Same(layout) => RegionLayouts::Same(self.number(layout)),
            Regions::Each(layouts) => {
                RegionLayouts::Each(layouts.into_iter().map(|layout| self.number(layout)).collect())
            }
        }
    }
}
