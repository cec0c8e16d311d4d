//! Checks of a site's values, its targets one by one, and its pools.

use super::fault::Fault;
use super::{Pool, SiteFile, Target};
use crate::file_system::{FileSystem, Naming};
use std::collections::HashMap;
use stripewise_layout::{ByteCount, MAX_SERVERS_PER_LAYOUT};

/// Regions and stripes of sites are multiples of this: no file system here stripes finer, but for OrangeFS, which takes it too.
const UNIT: ByteCount = ByteCount(64 << 10);

const TARGETS: &str = "targets";

impl SiteFile {
    /// Values that are wrong by themselves.
    pub(super) fn check(&self, fs: &FileSystem) -> Result<(), Fault> {
        let layout_bytes = self.layout_bytes.map_or(Ok(()), |bytes| check_layout_bytes(bytes, fs));
        layout_bytes.map_err(|message| Fault::at_top("layout_bytes", message))?;
        if let Some(mount) = self.mount.as_ref().filter(|mount| !mount.is_absolute()) {
            let mount = mount.display();
            return Err(Fault::at_top(
                "mount",
                format!("mount = \"{mount}\" is no absolute path; write it from `/` on, as programs name it"),
            ));
        }
        if self.region_size.0 == 0 || !self.region_size.0.is_multiple_of(UNIT.0) {
            let message =
                format!("region = \"{}\" is not a multiple of {UNIT}; use for example 64MiB", self.region_size);
            return Err(Fault::at_top("region", message));
        }
        for (index, group) in self.targets.iter().enumerate() {
            let fault = |key, message| Err(Fault::within(TARGETS, index, key, message));
            if group.copies.is_some() && group.pool.is_none() {
                return fault(
                    "copies",
                    "copies are those of a pool; add pool = \"...\", or leave copies out".to_owned(),
                );
            }
            if group.capacity == Some(ByteCount(0)) {
                return fault("capacity", "capacity = 0 leaves no space; leave the targets out".to_owned());
            }
            for (key, rate) in [("bandwidth", group.bandwidth), ("write_bandwidth", group.write_bandwidth)] {
                if rate.is_some_and(|rate| rate.0 == 0) {
                    return fault(key, format!("{key} = 0 moves no byte; use for example \"180MB/s\""));
                }
            }
            let latencies = [("latency_ms", group.latency_ms), ("sequential_latency_ms", group.sequential_latency_ms)];
            for (key, latency_ms) in latencies {
                if let Some(value) = latency_ms.filter(|value| !value.is_finite() || *value < 0.0) {
                    return fault(key, format!("{key} = {value} is not a time; use milliseconds, for example 8.0"));
                }
            }
        }
        if let Some(network) = &self.network {
            let fault = |key, message| Err(Fault::within("network", 0, key, message));
            if network.bandwidth.is_some_and(|rate| rate.0 == 0) {
                return fault("bandwidth", "bandwidth = 0 moves no byte; use for example \"10GB/s\"".to_owned());
            }
            if let Some(value) = network.latency_ms.filter(|value| !value.is_finite() || *value < 0.0) {
                let message = format!("latency_ms = {value} is not a time; use milliseconds, for example 0.02");
                return fault("latency_ms", message);
            }
        }
        Ok(())
    }

    pub(super) fn list_targets(&self, fs: &FileSystem) -> Result<Vec<Target>, Fault> {
        let mut targets: Vec<Target> = Vec::new();
        let mut groups: HashMap<String, usize> = HashMap::new();
        for (group, of_group) in self.targets.iter().enumerate() {
            let fault = |key, message| Fault::within(TARGETS, group, key, message);
            let names = expand(&of_group.names, fs).map_err(|message| fault("names", message))?;
            if names.is_empty() {
                return Err(fault(
                    "names",
                    "names = [] is a group without targets; name some or leave it out".to_owned(),
                ));
            }
            if let Some(numbers) = of_group.numbers.as_ref().filter(|numbers| numbers.len() != names.len()) {
                let message =
                    format!("{} numbers for {} names; give each target its number", numbers.len(), names.len());
                return Err(fault("numbers", message));
            }
            let addresses = of_group.addresses.as_deref().unwrap_or_default();
            if fs.naming == Naming::Addresses && addresses.len() != names.len() {
                let message = format!(
                    "{} addresses for {} names; {} commands name an {} by its address, so add addresses = [...] with one for each",
                    addresses.len(),
                    names.len(),
                    fs.title,
                    fs.target
                );
                let key = if of_group.addresses.is_some() { "addresses" } else { "names" };
                return Err(fault(key, message));
            }
            if let Some(address) = addresses.iter().find(|address| address.contains(|c: char| !c.is_ascii_graphic())) {
                return Err(fault("addresses", format!("address {address:?} is not one word of printable characters")));
            }
            let numbered = fs.naming == Naming::Numbers;
            for (index, name) in names.into_iter().enumerate() {
                let number = match &of_group.numbers {
                    Some(numbers) => Some(numbers[index]),
                    None => fs.number_of(&name),
                };
                if numbered && number.is_none() {
                    let message = format!(
                        "{} commands name a {} by its number, and `{name}` does not end in one; add numbers = [...]",
                        fs.title, fs.target
                    );
                    return Err(fault("names", message));
                }
                if let Some(before) = groups.insert(name.clone(), group) {
                    let message = match before == group {
                        true => format!("`{name}` is named twice; name each target once"),
                        false => format!("`{name}` is in an earlier group too; name each target once"),
                    };
                    return Err(fault("names", message));
                }
                let same = number.and_then(|number| targets.iter().find(|other| other.number == Some(number)));
                if let Some(other) = same.filter(|_| numbered) {
                    let (number, other) = (number.unwrap_or_default(), &other.name);
                    let message = format!("`{other}` and `{name}` both have number {number}; each target has its own");
                    return Err(fault("names", message));
                }
                targets.push(Target {
                    name,
                    number: number.filter(|_| numbered),
                    address: addresses.get(index).cloned(),
                    group,
                });
            }
        }
        match targets.len() {
            0 => Err(Fault::at_top(TARGETS, "a site without targets; add at least one [[targets]]".to_owned())),
            count if count > MAX_SERVERS_PER_LAYOUT => {
                let message = format!(
                    "{count} targets are more than the {MAX_SERVERS_PER_LAYOUT} that are planned for; list those that one program shall use, for example of one pool of each class"
                );
                Err(Fault::at_top(TARGETS, message))
            }
            _ => Ok(targets),
        }
    }

    pub(super) fn list_pools(&self, fs: &FileSystem, targets: &[Target]) -> Result<Vec<Pool>, Fault> {
        let mut pools: Vec<Pool> = Vec::new();
        for (group, of_group) in self.targets.iter().enumerate() {
            let Some(name) = &of_group.pool else { continue };
            check_pool_name(name, fs).map_err(|message| Fault::within(TARGETS, group, "pool", message))?;
            let copies = copies(of_group.copies, name, fs);
            let copies = copies.map_err(|message| Fault::within(TARGETS, group, "copies", message))?;
            let of_pool = (0..targets.len()).filter(|target| targets[*target].group == group);
            match pools.iter_mut().find(|pool| pool.name == *name) {
                // Targets of several capacities may be in one pool.
                Some(pool) => {
                    if let (Some(before), Some(here)) =
                        (pool.copies, copies.filter(|copies| pool.copies != Some(*copies)))
                    {
                        let message = format!(
                            "copies = {here}, but an earlier group of pool `{name}` has {before}; write the pool's number once"
                        );
                        return Err(Fault::within(TARGETS, group, "copies", message));
                    }
                    pool.copies = pool.copies.or(copies);
                    pool.targets.extend(of_pool);
                }
                None => pools.push(Pool { name: name.clone(), targets: of_pool.collect(), copies }),
            }
        }
        for (index, pool) in self.pool.iter().enumerate() {
            let fault = |key, message| Fault::within("pool", index, key, message);
            check_pool_name(&pool.name, fs).map_err(|message| fault("name", message))?;
            if pools.iter().any(|known| known.name == pool.name) {
                let message = format!("pool `{}` is described twice; name it in one place", pool.name);
                return Err(fault("name", message));
            }
            let position = |name: String| {
                targets.iter().position(|target| target.name == name).ok_or_else(|| {
                    fault("targets", format!("pool `{}` names `{name}`, which no [[targets]] has", pool.name))
                })
            };
            let names = expand(&pool.targets, fs).map_err(|message| fault("targets", message))?;
            let mut of_pool = names.into_iter().map(position).collect::<Result<Vec<usize>, Fault>>()?;
            of_pool.sort_unstable();
            of_pool.dedup();
            if of_pool.is_empty() {
                return Err(fault(
                    "targets",
                    format!("pool `{}` has no targets; name some or leave it out", pool.name),
                ));
            }
            let copies = copies(pool.copies, &pool.name, fs).map_err(|message| fault("copies", message))?;
            pools.push(Pool { name: pool.name.clone(), targets: of_pool, copies });
        }
        Ok(pools)
    }

    pub(super) fn check_default(&self, pools: &[Pool], targets: usize) -> Result<(), Fault> {
        let fault = |key, message| Err(Fault::within("default", 0, key, message));
        let mut most = targets;
        if let Some(name) = &self.default.pool {
            match pools.iter().find(|pool| pool.name == *name) {
                Some(pool) => most = pool.targets.len(),
                None => {
                    let known = pools.iter().map(|pool| pool.name.as_str()).collect::<Vec<_>>().join(", ");
                    let message = format!("pool = `{name}` is none of the site's pools; known: {known}");
                    return fault("pool", message);
                }
            }
        }
        if let Some(count) = self.default.stripe_count.filter(|count| *count as usize > most) {
            let message = format!("stripe_count = {count}, but there are {most} targets; use 0 for all of them");
            return fault("stripe_count", message);
        }
        match self.default.stripe_size {
            Some(size) if size.0 == 0 || !size.0.is_multiple_of(UNIT.0) || size.0 > u64::from(u32::MAX) => {
                let message =
                    format!("stripe_size = \"{size}\" is not a multiple of {UNIT} below 4GiB; use for example 1MiB");
                fault("stripe_size", message)
            }
            _ => Ok(()),
        }
    }
}

/// Names with each `first..last` written out.
fn expand(names: &[String], fs: &FileSystem) -> Result<Vec<String>, String> {
    let mut all = Vec::new();
    for name in names {
        let Some((first, last)) = name.split_once("..") else {
            check_name(name)?;
            all.push(name.clone());
            continue;
        };
        check_name(first)?;
        check_name(last)?;
        let (prefix, from_digits) = fs.split_number(first);
        let (other_prefix, to_digits) = fs.split_number(last);
        let number = |digits: &str| u32::from_str_radix(digits, fs.radix).ok();
        let (from, to) = match (number(from_digits), number(to_digits)) {
            (Some(from), Some(to)) if prefix == other_prefix && from <= to => (from, to),
            _ => {
                return Err(format!(
                    "`{name}` is no range of names; both ends have the same beginning and end in a number, the lower first"
                ));
            }
        };
        if (to - from) as usize >= MAX_SERVERS_PER_LAYOUT {
            return Err(format!("`{name}` are more than {MAX_SERVERS_PER_LAYOUT} targets; list fewer"));
        }
        let width = from_digits.len();
        all.extend((from..=to).map(|number| match fs.radix {
            16 => format!("{prefix}{number:0width$x}"),
            _ => format!("{prefix}{number:0width$}"),
        }));
    }
    Ok(all)
}

/// Names are those of servers in plans.
fn check_name(name: &str) -> Result<(), String> {
    let is_good = !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.'));
    if is_good { Ok(()) } else { Err(format!("target name `{name}`: use letters, digits, `-`, `_` and `.`")) }
}

fn check_layout_bytes(bytes: ByteCount, fs: &FileSystem) -> Result<(), String> {
    match fs.layout_bytes {
        None => {
            Err(format!("layout_bytes says nothing of {}, whose files have one layout each; leave it out", fs.title))
        }
        Some((least, most)) if !(least..=most).contains(&bytes.0) => Err(format!(
            "layout_bytes = {} is not from {least} to {most}, which is what {} has; leave it out where the limit is the file system's own",
            bytes.0, fs.title
        )),
        Some(_) => Ok(()),
    }
}

/// Copies that a pool keeps: as the site says, or as its name does.
fn copies(given: Option<u32>, pool: &str, fs: &FileSystem) -> Result<Option<u32>, String> {
    match (given, fs.copies_of(pool)) {
        (Some(0), _) => {
            Err("copies = 0 keeps no byte; write how many copies there are, 1 where there is one".to_owned())
        }
        (Some(given), Some(named)) if given != named => Err(format!(
            "copies = {given}, but `{pool}` makes {named} in {}; correct the pool, and leave copies out",
            fs.title
        )),
        (given, named) => Ok(given.or(named)),
    }
}

fn check_pool_name(name: &str, fs: &FileSystem) -> Result<(), String> {
    if name.is_empty() || name.contains(|c: char| c.is_control() || c.is_whitespace()) {
        return Err(format!("pool name {name:?} is not one word; write it as the file system does"));
    }
    match fs.pool_name_bytes {
        Some(most) if name.len() > most => {
            Err(format!("pool name `{name}` has {} bytes, but {} takes {most} at most", name.len(), fs.title))
        }
        _ => Ok(()),
    }
}
