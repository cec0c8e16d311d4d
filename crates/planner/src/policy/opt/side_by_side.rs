//! Who asks for what at the same time: programs that have files to themselves, and ranks that march through a file beside a crowd.
//!
//! A sample of one crowd lets any process take any request, which is wrong where some processes only march and the others never do: the marchers'
//! disks are disturbed all the time, and neither part waits for the other. Files tell programs apart when their processes add up to those of the run;
//! within a file, how its requests lie to each other does ([`marching_share`]).

use super::super::Task;
use crate::request::processes_of;
use stripewise_model::queueing::marching_share;
use stripewise_trace::{Company, FileAccess, RegionAccess, WindowAccess};

/// Files whose processes add up to those of the window, within this share, are taken for programs of their own.
const SHARE_OF_PROCESSES: f64 = 0.05;

/// Whose requests of a file.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Part {
    All,
    /// Those of ranks that go through the file together.
    March,
    /// Those of the processes beside them.
    Crowd,
}

/// Processes that have their requests of a file to themselves.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct SideBySide {
    pub(crate) file: usize,
    pub(crate) part: Part,
    /// Of the file's requests.
    pub(crate) share: f64,
    pub(crate) processes: u32,
}

impl SideBySide {
    /// How the part's requests lie to each other when all of the file's do so as in `company`.
    pub(crate) fn company(&self, company: Company) -> Company {
        match self.part {
            Part::All => company,
            Part::March => {
                let alone = |share: f64| (share / self.share).min(1.0);
                Company { same_region: 1.0, adjoining: alone(company.adjoining), ..company }
            }
            Part::Crowd => Company::default(),
        }
    }
}

/// Those of a window; none where it is one crowd or one march.
pub(super) fn side_by_side(task: &Task<'_>, window: usize) -> Vec<SideBySide> {
    let all = task.windows.get(window).unwrap_or(&task.concurrency).processes;
    let of_file = |(file, access): (usize, &FileAccess)| {
        let window = access.windows.get(window).filter(|window| !window.regions.is_empty())?;
        Some((file, window.company, processes_of(window).processes.max(1)))
    };
    let files: Vec<(usize, Company, u32)> = task.request.files.iter().enumerate().filter_map(of_file).collect();
    let sum: f64 = files.iter().map(|(.., processes)| f64::from(*processes)).sum();
    if files.len() > 1 && (sum / f64::from(all.max(1)) - 1.0).abs() > SHARE_OF_PROCESSES {
        return Vec::new();
    }
    let parts = files.into_iter().flat_map(|(file, company, processes)| parts(file, company, processes));
    let parts: Vec<SideBySide> = parts.collect();
    if parts.len() > 1 { parts } else { Vec::new() }
}

fn parts(file: usize, company: Company, processes: u32) -> Vec<SideBySide> {
    let Some(share) = marching_share(company, processes) else {
        return vec![SideBySide { file, part: Part::All, share: 1.0, processes }];
    };
    let marching = (share * f64::from(processes)).round() as u32;
    vec![
        SideBySide { file, part: Part::March, share, processes: marching },
        SideBySide { file, part: Part::Crowd, share: 1.0 - share, processes: processes - marching },
    ]
}

/// How the requests of a file's parts are spread over its regions: a march passes them all alike, and what is beyond that is the crowd's.
#[derive(Debug)]
pub(super) struct Spread {
    /// Requests of the march to a region, if there are as many; `None` where the requests are of one kind.
    level: Option<f64>,
}

impl Spread {
    pub(super) fn of(parts: &[SideBySide], window: &WindowAccess) -> Self {
        let Some(march) = parts.iter().find(|part| part.part == Part::March) else { return Self { level: None } };
        let mut counts: Vec<f64> = window.regions.iter().map(requests).collect();
        counts.sort_by(f64::total_cmp);
        let mut left = march.share * counts.iter().sum::<f64>();
        let level = counts.iter().enumerate().find_map(|(below, count)| {
            let level = left / (counts.len() - below) as f64;
            left -= count;
            (level <= *count).then_some(level)
        });
        Self { level: Some(level.unwrap_or(f64::INFINITY)) }
    }

    /// Whose the region's requests are, and the share of each.
    pub(super) fn shares(&self, access: &RegionAccess) -> Vec<(Part, f64)> {
        let Some(level) = self.level else { return vec![(Part::All, 1.0)] };
        let marching = (level / requests(access).max(1.0)).min(1.0);
        let shares = [(Part::March, marching), (Part::Crowd, 1.0 - marching)];
        shares.into_iter().filter(|(_, share)| *share > 0.0).collect()
    }
}

fn requests(access: &RegionAccess) -> f64 {
    access.counts.iter().map(|(_, count)| *count as f64).sum()
}

#[cfg(test)]
mod tests {
    use super::super::super::fixtures::file;
    use super::*;

    #[test]
    fn the_parts_of_a_mixture_are_a_march_and_a_crowd() {
        // 16 of 32 march.
        let company = Company { same_region: 0.24, adjoining: 15.0 / 32.0, ..Company::default() };
        let [march, crowd] = parts(3, company, 32)[..] else { panic!("one part") };
        assert_eq!((march.part, march.processes, crowd.part, crowd.processes), (Part::March, 16, Part::Crowd, 16));
        assert!((march.share - 0.5).abs() < 1e-12 && (crowd.share - 0.5).abs() < 1e-12);
        assert!(march.company(company).adjoining > 0.9 && crowd.company(company) == Company::default());
    }

    #[test]
    fn a_march_passes_all_regions_alike() {
        // 10 requests to each of four regions, and a crowd's beside them.
        let crowd = [100, 6, 0, 14];
        let mut file = file(&crowd.map(|count| 10 + count), 32);
        let window = file.windows.remove(0);
        let march = SideBySide { file: 0, part: Part::March, share: 40.0 / 160.0, processes: 8 };
        let spread = Spread::of(&[march, SideBySide { part: Part::Crowd, share: 0.75, ..march }], &window);
        for (access, crowd) in window.regions.iter().zip(crowd) {
            let marching = 10.0 / (10 + crowd) as f64;
            let expected = [(Part::March, marching), (Part::Crowd, 1.0 - marching)];
            assert_eq!(spread.shares(access), expected[..1 + usize::from(crowd > 0)]);
        }
        assert_eq!(Spread::of(&[], &window).shares(&window.regions[0]), [(Part::All, 1.0)]);
    }
}
