//! `lfs osts`, `lfs df`, `lfs pool_list` and `lfs getstripe` of Lustre 2.12 to 2.17.

use super::super::found::{Ask, Found, FoundTarget, describe};
use super::NATIVE;
use crate::site::{DefaultLayout, PoolOf};
use std::collections::BTreeMap;
use std::path::Path;
use stripewise_layout::{ByteCount, ServerClass};

pub(super) fn detect(ask: &mut Ask<'_>, mount: &Path) -> Result<Found, String> {
    let path = mount.to_str().ok_or("the mount is not UTF-8")?;
    let osts = osts(&ask(&["lfs", "osts", path])?);
    let df = df(&ask(&["lfs", "df", "-v", path])?);
    let fs_name = osts.first().and_then(|(_, name)| name.rsplit_once("-OST")).map(|(fs_name, _)| fs_name.to_owned());
    let fs_name = fs_name.ok_or_else(|| format!("`lfs osts {path}` lists no OST; is Lustre mounted there?"))?;
    let mut pools: Vec<PoolOf> = Vec::new();
    for pool in pools_of(&ask(&["lfs", "pool_list", &fs_name])?, &fs_name) {
        let members = members(&ask(&["lfs", "pool_list", &format!("{fs_name}.{pool}")])?);
        if !members.is_empty() {
            pools.push(PoolOf { name: pool, targets: members });
        }
    }
    // OSTs of one pool alone are named by it.
    let pool_of = |name: &str| {
        let mut of = pools.iter().filter(|pool| pool.targets.iter().any(|member| member == name));
        of.next().filter(|_| of.next().is_none()).map(|pool| pool.name.clone())
    };
    let has_flags = df.values().any(|(_, is_flash)| *is_flash);
    let targets: Vec<FoundTarget> = osts
        .iter()
        .map(|(index, name)| {
            let of_df = df.get(name);
            FoundTarget {
                pool: pool_of(name),
                name: name.clone(),
                number: Some(*index),
                // Only Lustre 2.14 and later says of flash that it is; where it says so of any, the others are none.
                class: match (of_df, has_flags) {
                    (Some((_, true)), _) => Some(ServerClass::Ssd),
                    (Some(_), true) => Some(ServerClass::Hdd),
                    _ => None,
                },
                free_bytes: of_df.map(|(free, _)| *free),
                ..FoundTarget::default()
            }
        })
        .collect();
    let groups: Vec<&Option<String>> = targets.iter().map(|target| &target.pool).collect();
    // A pool all of whose OSTs are in no other one is described by them.
    let is_left = |pool: &PoolOf| {
        let named = groups.iter().filter(|of| of.as_ref() == Some(&pool.name)).count();
        named != pool.targets.len()
    };
    let others: Vec<PoolOf> = pools.iter().filter(|pool| is_left(pool)).cloned().collect();
    let targets = targets.into_iter().map(|target| FoundTarget {
        pool: target.pool.filter(|name| others.iter().all(|other| other.name != *name)),
        ..target
    });
    let default = default(&ask(&["lfs", "getstripe", "-d", path])?);
    describe(&NATIVE.fs, mount, targets.collect(), others, default)
}

/// `0: scratch-OST0000_UUID ACTIVE`
fn osts(text: &str) -> Vec<(u32, String)> {
    let ost = |line: &str| {
        let (index, rest) = line.split_once(": ")?;
        let mut words = rest.split_whitespace();
        let (name, state) = (words.next()?, words.next()?);
        let name = name.strip_suffix("_UUID").unwrap_or(name);
        (state == "ACTIVE" && name.contains("-OST")).then_some((index.trim().parse().ok()?, name.to_owned()))
    };
    text.lines().filter_map(ost).collect()
}

/// `scratch-OST0000_UUID 313104 1400 284544 1% /mnt[OST:0] f`: what is free, and whether it is flash.
fn df(text: &str) -> BTreeMap<String, (u64, bool)> {
    let ost = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [uuid, _, _, available, _, mounted, flags @ ..] = &words[..] else { return None };
        let kib: u64 = available.parse().ok()?;
        let is_flash = flags.iter().any(|flags| flags.contains('f'));
        mounted.contains("[OST:").then(|| (uuid.trim_end_matches("_UUID").to_owned(), (kib << 10, is_flash)))
    };
    text.lines().filter_map(ost).collect()
}

/// `scratch.flash`, one a line.
fn pools_of(text: &str, fs_name: &str) -> Vec<String> {
    let pool = |line: &str| line.trim().strip_prefix(fs_name)?.strip_prefix('.').map(str::to_owned);
    text.lines().filter_map(pool).collect()
}

/// `scratch-OST0000_UUID`, one a line.
fn members(text: &str) -> Vec<String> {
    let lines = text.lines().map(str::trim).filter(|line| line.contains("-OST"));
    lines.map(|line| line.trim_end_matches("_UUID").to_owned()).collect()
}

/// `stripe_count:  1 stripe_size:   1048576 pattern:       raid0 stripe_offset: -1`, of the last component of a composite default.
fn default(text: &str) -> DefaultLayout {
    let value = |key: &str| {
        let words: Vec<&str> = text.split_whitespace().collect();
        let found = words.windows(2).rev().find(|pair| pair[0].trim_start_matches("lmm_") == key);
        found.map(|pair| pair[1].to_owned())
    };
    DefaultLayout {
        // -1 is all OSTs, as is 0 here; 0 there is the file system's default, of one.
        stripe_count: value("stripe_count:").and_then(|count| match count.parse::<i64>().ok()? {
            -1 => Some(0),
            0 => Some(1),
            count => u32::try_from(count).ok(),
        }),
        stripe_size: value("stripe_size:").and_then(|size| size.parse().ok()).filter(|size| *size > 0).map(ByteCount),
        pool: value("pool:"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::tests::{detected, text_of};

    /// Recorded: what single commands printed at sites, as public walk-throughs and logs quote it.
    #[test]
    fn listings_of_sites_are_read() {
        let found = super::osts("OBDS:\n0: fs00-OST0000_UUID ACTIVE\n1: fs00-OST0001_UUID ACTIVE\n");
        assert_eq!(found, [(0, "fs00-OST0000".to_owned()), (1, "fs00-OST0001".to_owned())]);
        assert_eq!(super::osts("OBDS::\n0: lustret4-OST0000_UUID ACTIVE\n").len(), 1);
        // An OST that does not answer has a line of its own form.
        let df = super::df(
            "UUID                    1K-blocks      Used  Available Use% Mounted on\n\
             lustrefs-MDT0000_UUID     58189732      1716   52928756   1% /mnt/lustre[MDT:0]\n\
             lustrefs-OST0000_UUID: Cannot send after transport endpoint shutdown\n\
             lustrefs-OST0001_UUID    102165532     66932   96839336   1% /mnt/lustre[OST:1]\n",
        );
        assert_eq!(df.into_iter().collect::<Vec<_>>(), [("lustrefs-OST0001".to_owned(), (96_839_336 << 10, false))]);
        let pools = super::pools_of("Pools from lustrefs:\nlustrefs.hdd\nlustrefs.nvme\n", "lustrefs");
        assert_eq!(pools, ["hdd", "nvme"]);
    }

    #[test]
    fn osts_pools_space_and_flash_are_found_on_2_15() {
        let site = detected("lustre", include_str!("fixtures/2.15.txt"));
        let names: Vec<&str> = site.targets.iter().map(|target| target.name.as_str()).collect();
        assert_eq!(names, ["scratch-OST0000", "scratch-OST0001", "scratch-OST000a", "scratch-OST000b"]);
        assert_eq!(site.targets[2].number, Some(10));
        let classes: Vec<String> = (0..4).map(|target| site.class(target).to_string()).collect();
        assert_eq!(classes, ["hdd", "hdd", "ssd", "ssd"]);
        assert_eq!(
            site.pools.iter().map(|pool| (pool.name.as_str(), pool.targets.clone())).collect::<Vec<_>>(),
            [("disk", vec![0, 1]), ("flash", vec![2, 3])]
        );
        assert_eq!(site.default_layout(), (vec![0, 1], 2, stripewise_layout::ByteCount(4 << 20)));
        assert_eq!(site.group(0).capacity, Some(stripewise_layout::ByteCount(64 << 40)));
        assert!(!text_of("lustre", include_str!("fixtures/2.15.txt")).contains("all that a new file gets"));
    }

    #[test]
    fn what_2_12_does_not_say_is_asked_for() {
        let site = detected("lustre", include_str!("fixtures/2.12.txt"));
        assert_eq!(site.targets.len(), 3);
        // Inactive ones are left out; no class is known, and one OST is in two pools.
        assert_eq!(site.class(0).to_string(), "hdd");
        assert_eq!(
            site.pools.iter().map(|pool| (pool.name.as_str(), pool.targets.clone())).collect::<Vec<_>>(),
            [("all", vec![0, 1, 2]), ("quick", vec![2])]
        );
        assert_eq!(site.default_layout().1, 1);
        let text = text_of("lustre", include_str!("fixtures/2.12.txt"));
        assert!(text.contains("it is taken to have 1 OST and stripes of 4MiB, as Lustre has it by itself"), "{text}");
    }
}
