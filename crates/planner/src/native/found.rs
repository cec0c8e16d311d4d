//! What a file system's own commands say of a site, as a description to complete.
//!
//! Commands say which targets there are, in which pools and how large; hardly any says how fast. What is not known is left out, so that reading the description
//! names it, instead of being guessed.

use crate::file_system::{FileSystem, Naming};
use crate::site::{DefaultLayout, PoolOf, SITE_VERSION, SiteFile, TargetGroup};
use std::path::Path;
use stripewise_layout::cluster::DEFAULT_REGION_BYTES;
use stripewise_layout::{ByteCount, MAX_SERVERS_PER_LAYOUT, ServerClass, figures};

/// Targets that a remark names, at most.
const NAMED_TARGETS: usize = 8;

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
    /// Why no file can be put on it now, as what it does: "is down".
    pub(super) unusable: Option<String>,
}

impl FoundTarget {
    /// Why it is left out.
    pub(super) fn fault(&self) -> Option<&str> {
        self.unusable.as_deref().or((self.free_bytes == Some(0)).then_some("has no free space"))
    }
}

/// The targets that files can be put on, and a sentence about the others.
fn usable(fs: &FileSystem, targets: Vec<FoundTarget>) -> Result<(Vec<FoundTarget>, Vec<String>), String> {
    let (unusable, usable): (Vec<_>, Vec<_>) = targets.into_iter().partition(|target| target.fault().is_some());
    let mut by_fault: Vec<(&str, Vec<&str>)> = Vec::new();
    for target in &unusable {
        let Some(fault) = target.fault() else { continue };
        match by_fault.iter_mut().find(|(known, _)| *known == fault) {
            Some((_, names)) => names.push(&target.name),
            None => by_fault.push((fault, vec![&target.name])),
        }
    }
    let said: Vec<String> = by_fault.iter().map(|(fault, names)| format!("{} {fault}", listed(names))).collect();
    match (usable.is_empty(), said.is_empty()) {
        (true, true) => Err(format!(
            "the commands of {} list no {}; ask where it is mounted, with the rights to see them",
            fs.title, fs.target
        )),
        (true, false) => Err(format!("no {} of {} can take a new file: {}", fs.target, fs.title, said.join("; "))),
        (false, _) => Ok((
            usable,
            said.into_iter().map(|said| format!("left out: {said}; detect again once that has changed")).collect(),
        )),
    }
}

/// The first names, and how many more there are.
fn listed(names: &[&str]) -> String {
    match names.len().checked_sub(NAMED_TARGETS) {
        None | Some(0) => names.join(", "),
        Some(more) => format!("{} and {more} more", names[..NAMED_TARGETS].join(", ")),
    }
}

/// Puts targets that are alike into groups. Targets that no file can be put on are left out, and so are pools of such targets alone.
pub(super) fn describe(
    fs: &FileSystem,
    mount: &Path,
    targets: Vec<FoundTarget>,
    pools: Vec<PoolOf>,
    default: DefaultLayout,
) -> Result<Found, String> {
    let (targets, mut remarks) = usable(fs, targets)?;
    let pools = left(pools, &targets, &mut remarks);
    let default = checked(default, &targets, &pools, &mut remarks);
    if targets.len() > MAX_SERVERS_PER_LAYOUT {
        remarks.push(format!(
            "{} targets are more than the {MAX_SERVERS_PER_LAYOUT} that are planned for: keep those that one program shall use",
            targets.len()
        ));
    }
    remarks.extend(rounding(&targets));
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
        pool: pools,
    };
    Ok(Found { file, remarks })
}

/// Pools with the targets that are listed; without those of which none is.
fn left(pools: Vec<PoolOf>, targets: &[FoundTarget], remarks: &mut Vec<String>) -> Vec<PoolOf> {
    let mut left = Vec::new();
    for mut pool in pools {
        pool.targets.retain(|name| targets.iter().any(|target| target.name == *name));
        if pool.targets.is_empty() {
            remarks.push(format!("left out: pool {}, since none of its targets is listed", pool.name));
        } else {
            left.push(pool);
        }
    }
    left
}

/// What a new file gets of the targets and pools that are listed.
fn checked(
    default: DefaultLayout,
    targets: &[FoundTarget],
    pools: &[PoolOf],
    remarks: &mut Vec<String>,
) -> DefaultLayout {
    let members = |name: &str| {
        let of_group = targets.iter().filter(|target| target.pool.as_deref() == Some(name)).count();
        of_group + pools.iter().find(|pool| pool.name == name).map_or(0, |pool| pool.targets.len())
    };
    let mut default = default;
    if let Some(name) = default.pool.take_if(|name| members(name) == 0) {
        remarks.push(format!("new files come from pool {name}, of which no target is listed: [default] names no pool"));
    }
    let most = default.pool.as_deref().map_or(targets.len(), members);
    // A file system gives a file no more targets than there are.
    default.stripe_count = default.stripe_count.map(|count| if count as usize > most { 0 } else { count });
    default
}

/// By how much capacities are less than what is free, of the target where it is most.
fn rounding(targets: &[FoundTarget]) -> Option<String> {
    let share = |free: u64| whole_gib(free).0 as f64 / free as f64;
    let free = |target: &FoundTarget| target.free_bytes.filter(|bytes| whole_gib(*bytes).0 < *bytes);
    let rounded = targets.iter().filter_map(|target| Some((target, free(target)?)));
    let (target, free) = rounded.min_by(|(_, one), (_, two)| share(*one).total_cmp(&share(*two)))?;
    Some(format!(
        "each capacity is rounded down to a power of two of GiB, so that targets that are alike are one group ({}: {} for {} of free space): correct those that shall be filled further",
        target.name,
        whole_gib(free),
        figures::bytes(free)
    ))
}

fn group(class: ServerClass, capacity: Option<ByteCount>, pool: Option<String>) -> TargetGroup {
    TargetGroup {
        class,
        names: Vec::new(),
        numbers: None,
        addresses: None,
        pool,
        copies: None,
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

/// Names are what commands print, and a comment has no control characters.
fn on_a_line(text: &str) -> String {
    let shown = |c: char| if c.is_control() { c.escape_default().to_string() } else { c.to_string() };
    text.chars().map(shown).collect()
}

impl Found {
    /// The text of a `site.toml`, with the remarks at its head.
    #[must_use]
    pub fn text(&self) -> String {
        let remarks = self.remarks.iter().map(|remark| format!("# To do: {}.\n", on_a_line(remark)));
        format!("# Found by `stripewise site detect`.\n{}{}", remarks.collect::<String>(), self.file.to_toml())
    }
}
