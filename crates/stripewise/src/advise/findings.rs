//! What a site is to be told of a run besides layouts: findings, each with its number and its remedy.

use super::activity::Activity;
use serde::Serialize;
use stripewise_layout::figures::{bytes, duration};

/// How much a finding weighs.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum Weight {
    /// Likely to cost more than a layout can win.
    High,
    /// Worth a look.
    Medium,
    /// To know.
    Info,
}

/// One finding.
#[derive(Clone, PartialEq, Debug, Serialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct Finding {
    /// Short name, the same in every answer.
    pub name: &'static str,
    /// How much it weighs.
    pub weight: Weight,
    /// The number that it rests on; a share of 1 unless `unit` says other.
    pub value: f64,
    /// What the number counts.
    pub unit: &'static str,
    /// One sentence with the number.
    pub text: String,
    /// What to do; empty where there is nothing to do.
    pub remedy: String,
}

/// Requests up to 100 KiB are small: bins of Darshan's histogram up to there.
const SMALL_BINS: usize = 4;

fn share(part: f64, whole: f64) -> f64 {
    if whole > 0.0 { part / whole } else { 0.0 }
}

fn weight(value: f64, medium: f64, high: f64) -> Weight {
    match value {
        value if value >= high => Weight::High,
        value if value >= medium => Weight::Medium,
        _ => Weight::Info,
    }
}

fn percent(share: f64) -> String {
    format!("{:.0} %", share * 100.0)
}

/// All findings of a run, those that weigh most first.
pub(super) fn findings(of: &Activity) -> Vec<Finding> {
    let all = [
        time(of),
        metadata(of),
        small(of),
        unaligned(of),
        order(of),
        imbalance(of),
        independent(of),
        below_mpi(of),
        streams(of),
        syncs(of),
    ];
    let mut found: Vec<Finding> = all.into_iter().flatten().collect();
    found.sort_by_key(|finding| finding.weight);
    found
}

fn time(of: &Activity) -> Option<Finding> {
    let available = of.run_s * f64::from(of.processes);
    if available <= 0.0 {
        return None;
    }
    let value = share(of.data_s + of.metadata_s, available).min(1.0);
    let remedy =
        if value < 0.05 { "no layout can win more than this share of the run time; look elsewhere first" } else { "" };
    Some(Finding {
        name: "io-share",
        weight: Weight::Info,
        value,
        unit: "share of run time",
        text: format!(
            "a process spends {} of the run ({}) in I/O on average, {} of it in metadata calls",
            percent(value),
            duration(of.run_s),
            percent(share(of.metadata_s, of.data_s + of.metadata_s))
        ),
        remedy: remedy.to_owned(),
    })
}

fn metadata(of: &Activity) -> Option<Finding> {
    let of_io = share(of.metadata_s, of.data_s + of.metadata_s);
    let value = share(of.metadata_s, of.run_s * f64::from(of.processes)).min(1.0);
    (of.run_s > 0.0 && (of_io >= 0.1 || value >= 0.01)).then(|| Finding {
        name: "metadata-share",
        weight: weight(value, 0.05, 0.2),
        value,
        unit: "share of run time",
        text: format!(
            "metadata calls take {} of the run and {} of the time in I/O; {} opens",
            percent(value),
            percent(of_io),
            of.opens
        ),
        remedy: "open files once and keep them open, on one rank where all need the same; fewer and larger files"
            .to_owned(),
    })
}

fn small(of: &Activity) -> Option<Finding> {
    let known: u64 = of.read.bins.iter().chain(&of.write.bins).sum();
    let of_bins = |bins: &[u64]| bins[..SMALL_BINS].iter().sum::<u64>();
    let small = of_bins(&of.read.bins) + of_bins(&of.write.bins);
    let value = share(small as f64, known as f64);
    (small >= 100 && value >= 0.1).then(|| Finding {
        name: "small-requests",
        weight: weight(value, 0.3, 0.7),
        value,
        unit: "share of requests",
        text: format!("{} of the requests ({small} of {known}) move 100 KiB or less", percent(value)),
        remedy: "gather them: larger buffers in the program, collective MPI-IO, larger HDF5 chunks, or a small part of the file on fast targets".to_owned(),
    })
}

fn unaligned(of: &Activity) -> Option<Finding> {
    let value = share(of.not_aligned as f64, of.alignable as f64);
    (of.not_aligned >= 100 && value >= 0.1).then(|| Finding {
        name: "unaligned-requests",
        weight: weight(value, 0.5, 0.9),
        value,
        unit: "share of requests",
        text: format!("{} of the requests do not begin at a multiple of {}", percent(value), bytes(of.alignment)),
        remedy: "align data to the stripe size: in HDF5 H5Pset_alignment, in MPI-IO the hint striping_unit".to_owned(),
    })
}

fn order(of: &Activity) -> Option<Finding> {
    let ordered = of.read.ordered + of.write.ordered;
    let value = 1.0 - share((of.read.forward + of.write.forward) as f64, ordered as f64).min(1.0);
    (ordered >= 100 && value >= 0.2).then(|| Finding {
        name: "random-requests",
        weight: weight(value, 0.3, 0.6),
        value,
        unit: "share of requests",
        text: format!("{} of the requests do not go forward in their file", percent(value)),
        remedy: "disks suffer most from jumps: put such files on fast targets, or order the requests by offset"
            .to_owned(),
    })
}

fn imbalance(of: &Activity) -> Option<Finding> {
    if of.processes < 2 || of.mean_s <= 0.0 {
        return None;
    }
    let value = of.busiest_s / of.mean_s;
    let by_bytes = share(of.busiest_bytes, of.mean_bytes);
    (value >= 1.25 && of.busiest_s >= 0.01 * of.run_s).then(|| Finding {
        name: "imbalance",
        weight: weight(value, 1.5, 3.0),
        value,
        unit: "times the mean rank's time in I/O",
        text: format!(
            "the slowest rank spends {} in I/O, {value:.1} times the mean, and moves {by_bytes:.1} times the mean's bytes",
            duration(of.busiest_s)
        ),
        remedy: if by_bytes >= 1.25 {
            "let all ranks, or one of each node, share the I/O"
        } else {
            "equal bytes take unequal times: its target may be slow or shared; spread its file over more targets"
        }
        .to_owned(),
    })
}

fn independent(of: &Activity) -> Option<Finding> {
    let calls = of.independent + of.collective;
    let value = share(of.independent as f64, calls as f64);
    (of.processes > 1 && of.independent >= 100 && value >= 0.5).then(|| Finding {
        name: "independent-mpi-io",
        weight: weight(value, 0.5, 0.9),
        value,
        unit: "share of MPI-IO calls",
        text: format!(
            "{} of the MPI-IO calls on files that several ranks open ({} of {calls}) are independent",
            percent(value),
            of.independent
        ),
        remedy: "collective calls (MPI_File_write_at_all; in HDF5 H5Pset_dxpl_mpio with H5FD_MPIO_COLLECTIVE) let few ranks make large requests".to_owned(),
    })
}

fn below_mpi(of: &Activity) -> Option<Finding> {
    if of.mpi.0 == 0 || of.below_mpi.0 == 0 {
        return None;
    }
    let (requests, moved) =
        (share(of.below_mpi.0 as f64, of.mpi.0 as f64), share(of.below_mpi.1 as f64, of.mpi.1 as f64));
    let is_sieved = moved >= 1.2;
    Some(Finding {
        name: "mpi-io-to-posix",
        weight: if is_sieved { Weight::Medium } else { Weight::Info },
        value: moved,
        unit: "POSIX bytes per MPI-IO byte",
        text: format!(
            "below {} MPI-IO requests lie {} POSIX requests ({requests:.2} for one) that move {moved:.2} times the bytes",
            of.mpi.0, of.below_mpi.0
        ),
        remedy: if is_sieved {
            "data sieving moves bytes that nobody asked for: collective calls, or romio_ds_write=disable"
        } else {
            ""
        }
        .to_owned(),
    })
}

fn streams(of: &Activity) -> Option<Finding> {
    let value = share(of.streams.1 as f64, (of.read.bytes + of.write.bytes) as f64);
    (value >= 0.1 && of.streams.1 >= 1 << 20).then(|| Finding {
        name: "streams",
        weight: weight(value, 0.3, 0.8),
        value,
        unit: "share of bytes",
        text: format!("{} of the bytes ({}) go through C streams", percent(value), bytes(of.streams.1)),
        remedy: "streams make requests of their buffer's size, 4 KiB unless setvbuf asks for more; MPI-IO or POSIX calls serve many ranks better".to_owned(),
    })
}

fn syncs(of: &Activity) -> Option<Finding> {
    let value = share(of.syncs as f64, of.write.count as f64);
    (of.syncs >= 100 && value >= 0.1).then(|| Finding {
        name: "synchronizations",
        weight: weight(value, 0.3, 0.8),
        value,
        unit: "synchronizations per write",
        text: format!("{} synchronizations for {} writes", of.syncs, of.write.count),
        remedy: "sync once at the end of a step, not after every write".to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(of: &Activity) -> Vec<(&'static str, Weight)> {
        findings(of).iter().map(|finding| (finding.name, finding.weight)).collect()
    }

    #[test]
    fn every_finding_appears_with_its_cause_and_not_without() {
        let mut calm = Activity {
            run_s: 100.0,
            processes: 4,
            data_s: 100.0,
            mean_s: 25.0,
            busiest_s: 26.0,
            ..Activity::default()
        };
        calm.write.count = 1000;
        calm.write.bytes = 1000 << 20;
        calm.write.bins[4] = 1000;
        (calm.write.ordered, calm.write.forward, calm.alignable) = (1000, 1000, 1000);
        assert_eq!(names(&calm), [("io-share", Weight::Info)]);
        let found = |change: &dyn Fn(&mut Activity)| {
            let mut changed = calm.clone();
            change(&mut changed);
            names(&changed).into_iter().filter(|(name, _)| *name != "io-share").collect::<Vec<_>>()
        };
        assert_eq!(found(&|of| of.metadata_s = 100.0), [("metadata-share", Weight::High)]);
        assert_eq!(found(&|of| of.read.bins[1] = 1000), [("small-requests", Weight::Medium)]);
        assert_eq!(found(&|of| of.not_aligned = 950), [("unaligned-requests", Weight::High)]);
        assert_eq!(found(&|of| of.write.forward = 300), [("random-requests", Weight::High)]);
        assert_eq!(found(&|of| of.busiest_s = 50.0), [("imbalance", Weight::Medium)]);
        assert_eq!(found(&|of| of.independent = 200), [("independent-mpi-io", Weight::High)]);
        assert_eq!(found(&|of| (of.mpi, of.below_mpi) = ((10, 100), (20, 300))), [("mpi-io-to-posix", Weight::Medium)]);
        assert_eq!(found(&|of| of.streams = (9, 900 << 20)), [("streams", Weight::High)]);
        assert_eq!(found(&|of| of.syncs = 500), [("synchronizations", Weight::Medium)]);
    }
}
