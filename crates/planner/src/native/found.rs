//! What a file system's own commands say of a site, as a description to complete.
//!
//! Commands say which targets there are, in which pools and how large; hardly any says how fast. What is not known is left out, so that reading the description
//! names it, instead of being guessed.

use crate::file_system::{FileSystem, Naming};
use crate::site::{DefaultLayout, PoolOf, SITE_VERSION, SiteFile, TargetGroup};
use std::path::Path;
use stripewise_layout::cluster::DEFAULT_REGION_BYTES;
use stripewise_layout::{ByteCount, ServerClass};

/// Runs a command and returns what it prints; an error says which command failed, and how.
pub type Ask<'a> = dyn FnMut(&[&str]) -> Result<String, String> + 'a;

/// A description that was found.
#[derive(Clone, PartialEq, Debug)]
pub struct Found {
    /// Without parameters of targets.
    pub file: SiteFile,
    /// What has to be completed or was guessed, one sentence each.
    pub remarks: Vec<String>,
}

/// A target as commands describe it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct FoundTarget {
    pub(super) name: String,
    pub(super) number: Option<u32>,
    pub(super) address: Option<String>,
    pub(super) class: Option<ServerClass>,
    /// Bytes that are free.
    pub(super) free_bytes: Option<u64>,
    pub(super) pool: Option<String>,
}

/// Puts targets that are alike into groups.
pub(super) fn describe(
    fs: &FileSystem,
    mount: &Path,
    targets: Vec<FoundTarget>,
    pool: Vec<PoolOf>,
    default: DefaultLayout,
) -> Result<Found, String> {
    if targets.is_empty() {
        return Err(format!(
            "the commands of {} list no {}; ask where it is mounted, with the rights to see them",
            fs.title, fs.target
        ));
    }
    let mut remarks = Vec::new();
    let unknown = targets.iter().filter(|target| target.class.is_none()).count();
    if unknown > 0 {
        remarks.push(format!(
            "the commands do not say of which class {unknown} of the {} targets are: they stand here as hdd; change it to ssd where they are flash",
            targets.len()
        ));
    }
    remarks.push(
        "the commands do not say how fast targets are: give each group a device (`stripewise devices` lists them), bandwidth and latency_ms, or calibrate and name the profile"
            .to_owned(),
    );
    if default.stripe_count.is_none() || default.stripe_size.is_none() {
        let count = match fs.stripe_count {
            0 => format!("all {}s", fs.target),
            1 => format!("1 {}", fs.target),
            count => format!("{count} {}s", fs.target),
        };
        remarks.push(format!(
            "the commands do not say all that a new file gets: it is taken to have {count} and stripes of {}, as {} has it by itself, where [default] says nothing else",
            fs.stripe_size, fs.title
        ));
    }
    let mut groups: Vec<(TargetGroup, Vec<FoundTarget>)> = Vec::new();
    for target in targets {
        let (class, capacity) = (target.class.unwrap_or(ServerClass::Hdd), target.free_bytes.map(whole_gib));
        let alike = groups
            .iter_mut()
            .find(|(group, _)| group.class == class && group.pool == target.pool && group.capacity == capacity);
        match alike {
            Some((_, of_group)) => of_group.push(target),
            None => groups.push((group(class, capacity, target.pool.clone()), vec![target])),
        }
    }
    let targets = groups.into_iter().map(|(mut group, of_group)| {
        group.names = of_group.iter().map(|target| target.name.clone()).collect();
        let is_by_name = of_group.iter().all(|target| fs.number_of(&target.name) == target.number);
        if fs.naming == Naming::Numbers && !is_by_name {
            group.numbers = of_group.iter().map(|target| target.number).collect();
        }
        if fs.naming == Naming::Addresses {
            group.addresses = of_group.iter().map(|target| target.address.clone()).collect();
        }
        group
    });
    let file = SiteFile {
        version: SITE_VERSION,
        fs: fs.name.to_owned(),
        mount: Some(mount.to_owned()),
        region_size: ByteCount(DEFAULT_REGION_BYTES),
        layout_bytes: None,
        profile: None,
        default,
        network: None,
        targets: targets.collect(),
        pool,
    };
    Ok(Found { file, remarks })
}

fn group(class: ServerClass, capacity: Option<ByteCount>, pool: Option<String>) -> TargetGroup {
    TargetGroup {
        class,
        names: Vec::new(),
        numbers: None,
        addresses: None,
        pool,
        capacity,
        device: None,
        bandwidth: None,
        write_bandwidth: None,
        latency_ms: None,
        sequential_latency_ms: None,
    }
}

/// Targets that are filled to slightly different degrees are alike: whole powers of two of GiB below what is free, and all of it where that is less than one.
fn whole_gib(bytes: u64) -> ByteCount {
    match bytes >> 30 {
        0 => ByteCount(bytes),
        gib => ByteCount(1 << (30 + gib.ilog2())),
    }
}

impl Found {
    /// The text of a `site.toml`, with the remarks at its head.
    #[must_use]
    pub fn text(&self) -> String {
        let remarks = self.remarks.iter().map(|remark| format!("# To do: {remark}.\n"));
        format!("# Found by `stripewise site detect`.\n{}{}", remarks.collect::<String>(), self.file.to_toml())
    }
}
