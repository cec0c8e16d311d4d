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
    let fs_name = osts.first().and_then(|ost| ost.name.rsplit_once("-OST")).map(|(fs_name, _)| fs_name.to_owned());
    let fs_name = fs_name.ok_or_else(|| format!("`lfs osts {path}` lists no OST; is Lustre mounted there?"))?;
    let mut targets = targets(&osts, &df);
    let mut pools: Vec<PoolOf> = Vec::new();
    for name in pools_of(&ask(&["lfs", "pool_list", &fs_name])?, &fs_name) {
        let mut members = members(&ask(&["lfs", "pool_list", &format!("{fs_name}.{name}")])?);
        members.retain(|member| targets.iter().any(|target| target.name == *member && target.fault().is_none()));
        pools.push(PoolOf { name, targets: members, copies: None });
    }
    // OSTs of one pool alone are named by it.
    for target in &mut targets {
        let mut of = pools.iter().filter(|pool| pool.targets.contains(&target.name));
        target.pool = of.next().filter(|_| of.next().is_none()).map(|pool| pool.name.clone());
    }
    let groups: Vec<&Option<String>> = targets.iter().map(|target| &target.pool).collect();
    // A pool all of whose OSTs are in no other one is described by them.
    let is_left = |pool: &PoolOf| {
        let named = groups.iter().filter(|of| of.as_ref() == Some(&pool.name)).count();
        named != pool.targets.len() || named == 0
    };
    let others: Vec<PoolOf> = pools.iter().filter(|pool| is_left(pool)).cloned().collect();
    let targets = targets.into_iter().map(|target| FoundTarget {
        pool: target.pool.filter(|name| others.iter().all(|other| other.name != *name)),
        ..target
    });
    let targets: Vec<FoundTarget> = targets.collect();
    let degraded = targets.iter().filter(|target| target.fault().is_none() && is_flagged(&df, &target.name, 'D'));
    let degraded = degraded.map(|target| {
        format!(
            "{} is degraded (flag D of `lfs df`): until that ends it is slower, and Lustre avoids it for new files",
            target.name
        )
    });
    let degraded: Vec<String> = degraded.collect();
    let default = default(&ask(&["lfs", "getstripe", "-d", path])?);
    let mut found = describe(&NATIVE.fs, mount, targets, others, default)?;
    found.remarks.extend(degraded);
    Ok(found)
}

/// An OST as `lfs osts` lists it.
#[derive(PartialEq, Eq, Debug)]
struct Ost {
    index: u32,
    name: String,
    is_active: bool,
}

/// Flags of `lfs df -v` that OSTs have where no new object can be put on them, and what these do then.
const CLOSED: [(char, &str); 4] = [
    ('N', "takes no new objects (flag N of `lfs df`)"),
    ('R', "is read-only (flag R of `lfs df`)"),
    ('S', "has no free space (flag S of `lfs df`)"),
    ('I', "has no free inodes (flag I of `lfs df`)"),
];

/// What is free on OSTs, and their flags.
type Df = BTreeMap<String, (u64, String)>;

fn is_flagged(df: &Df, ost: &str, flag: char) -> bool {
    df.get(ost).is_some_and(|(_, flags)| flags.contains(flag))
}

/// Without their pools.
fn targets(osts: &[Ost], df: &Df) -> Vec<FoundTarget> {
    let has_flash = df.values().any(|(_, flags)| flags.contains('f'));
    let target = |ost: &Ost| {
        let of_df = df.get(&ost.name);
        let closed = || CLOSED.iter().find(|(flag, _)| is_flagged(df, &ost.name, *flag));
        FoundTarget {
            name: ost.name.clone(),
            number: Some(ost.index),
            // Only Lustre 2.14 and later says of flash that it is; where it says so of any, the others are none.
            class: of_df.filter(|_| has_flash).map(|(_, flags)| match flags.contains('f') {
                true => ServerClass::Ssd,
                false => ServerClass::Hdd,
            }),
            free_bytes: of_df.map(|(free, _)| *free),
            unusable: match (ost.is_active, of_df) {
                (false, _) => Some("is inactive".to_owned()),
                (true, None) => Some("is not in what `lfs df` prints, so it does not answer".to_owned()),
                (true, Some(_)) => closed().map(|(_, what)| (*what).to_owned()),
            },
            ..FoundTarget::default()
        }
    };
    osts.iter().map(target).collect()
}

/// `0: scratch-OST0000_UUID ACTIVE`
fn osts(text: &str) -> Vec<Ost> {
    let ost = |line: &str| {
        let (index, rest) = line.split_once(": ")?;
        let mut words = rest.split_whitespace();
        let (name, state) = (words.next()?, words.next()?);
        let name = name.strip_suffix("_UUID").unwrap_or(name).to_owned();
        let index = index.trim().parse().ok()?;
        name.contains("-OST").then_some(Ost { index, name, is_active: state == "ACTIVE" })
    };
    text.lines().filter_map(ost).collect()
}

/// `scratch-OST0000_UUID 313104 1400 284544 1% /mnt[OST:0] f`: what is free, and the flags.
fn df(text: &str) -> Df {
    let ost = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [uuid, _, _, available, _, mounted, flags @ ..] = &words[..] else { return None };
        let kib: u64 = available.parse().ok()?;
        mounted.contains("[OST:").then(|| (uuid.trim_end_matches("_UUID").to_owned(), (kib << 10, flags.concat())))
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

/// `stripe_count:  1 stripe_size:   1048576 pattern:       raid0 stripe_offset: -1`, of the last component of a composite default, which begins with the count.
fn default(text: &str) -> DefaultLayout {
    let words: Vec<&str> = text.split_whitespace().map(|word| word.trim_start_matches("lmm_")).collect();
    let last = words.iter().rposition(|word| *word == "stripe_count:").unwrap_or(0);
    let value = |key: &str| {
        let found = words[last..].windows(2).find(|pair| pair[0] == key);
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
        let ost = |index, name: &str| super::Ost { index, name: name.to_owned(), is_active: true };
        assert_eq!(found, [ost(0, "fs00-OST0000"), ost(1, "fs00-OST0001")]);
        assert_eq!(super::osts("OBDS::\n0: lustret4-OST0000_UUID ACTIVE\n").len(), 1);
        // An OST that does not answer has a line of its own form.
        let df = super::df(
            "UUID                    1K-blocks      Used  Available Use% Mounted on\n\
             lustrefs-MDT0000_UUID     58189732      1716   52928756   1% /mnt/lustre[MDT:0]\n\
             lustrefs-OST0000_UUID: Cannot send after transport endpoint shutdown\n\
             lustrefs-OST0001_UUID    102165532     66932   96839336   1% /mnt/lustre[OST:1]\n",
        );
        assert_eq!(
            df.into_iter().collect::<Vec<_>>(),
            [("lustrefs-OST0001".to_owned(), (96_839_336 << 10, String::new()))]
        );
        let pools = super::pools_of("Pools from lustrefs:\nlustrefs.hdd\nlustrefs.nvme\n", "lustrefs");
        assert_eq!(pools, ["hdd", "nvme"]);
    }

    /// What a command printed, of a fixture that has some of them alone.
    fn printed<'f>(fixture: &'f str, command: &str) -> &'f str {
        let (_, output) = fixture.split_once(&format!("\n$ {command}\n")).unwrap();
        output.split_once("\n$ ").map_or(output, |(output, _)| output)
    }

    #[test]
    fn space_that_sites_recorded_on_2_12_to_2_15_is_read() {
        let of_2_12 = include_str!("fixtures/2.12-part.txt");
        let of_2_14 = include_str!("fixtures/2.14-part.txt");
        for (fixture, first, last) in [(of_2_12, 524_063_448_u64, 524_063_424), (of_2_14, 524_063_444, 524_063_436)] {
            let df = super::df(printed(fixture, "lfs df"));
            assert_eq!(df.len(), 24);
            assert_eq!(df["exacloud-OST0000"], (first << 10, String::new()));
            assert_eq!(df["exacloud-OST0017"], (last << 10, String::new()));
        }
        let df = super::df(printed(include_str!("fixtures/2.15.5-part.txt"), "lfs df"));
        let free = |name: &str, kib: u64| (name.to_owned(), (kib << 10, String::new()));
        assert_eq!(
            df.into_iter().collect::<Vec<_>>(),
            [free("demo-OST0000", 86_894_592), free("demo-OST0001", 95_243_264)]
        );
    }

    #[test]
    fn osts_pools_and_defaults_that_sites_recorded_are_read() {
        let of_2_16 = include_str!("fixtures/2.16-part.txt");
        let osts = super::osts(printed(of_2_16, "lfs osts /mnt/lustre0/tfs1"));
        assert_eq!(osts.iter().map(|ost| ost.index).collect::<Vec<_>>(), [3, 4, 5]);
        let osts = super::osts(printed(of_2_16, "lfs osts /mnt/lustre2/tfs3/"));
        assert_eq!(osts.iter().map(|ost| ost.name.as_str()).collect::<Vec<_>>(), ["tfs3-OST0002", "tfs3-OST0003"]);
        assert!(osts.iter().all(|ost| ost.is_active));

        let of_2_10 = include_str!("fixtures/2.10-part.txt");
        assert_eq!(super::pools_of(printed(of_2_10, "lctl pool_list lustrefs"), "lustrefs"), ["test-pool"]);
        let members = super::members(printed(include_str!("fixtures/2.14.52-part.txt"), "lfs pool_list lustre.p1"));
        assert_eq!(members, ["lustre-OST0003", "lustre-OST0004", "lustre-OST0000"]);

        // All OSTs, of a plain directory and of the last component.
        let of_2_15 = include_str!("fixtures/2.15.5-part.txt");
        let plain = super::default(printed(of_2_10, "lfs getstripe /mnt/lustre/test1"));
        let composite = super::default(printed(of_2_15, "lfs getstripe testdir1"));
        for (default, mib) in [(plain, 4_u64), (composite, 1)] {
            assert_eq!(default.stripe_count, Some(0));
            assert_eq!(default.stripe_size, Some(stripewise_layout::ByteCount(mib << 20)));
            assert_eq!(default.pool, None);
        }
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

    /// In the forms of Lustre 2.15: a composite default, and OSTs of which most take no new file.
    const CLOSED: &str = "\
$ lfs osts /mnt
OBDS:
0: s-OST0000_UUID ACTIVE
1: s-OST0001_UUID ACTIVE
2: s-OST0002_UUID ACTIVE
3: s-OST0003_UUID INACTIVE
4: s-OST0004_UUID ACTIVE
5: s-OST0005_UUID ACTIVE
6: s-OST0006_UUID ACTIVE
$ lfs df -v /mnt
s-OST0000_UUID 100000000 1000000 99000000 1% /mnt[OST:0]
s-OST0001_UUID 100000000 1000000 99000000 1% /mnt[OST:1] N
s-OST0002_UUID 100000000 100000000 0 100% /mnt[OST:2] Sf
s-OST0004_UUID: Cannot send after transport endpoint shutdown
s-OST0005_UUID 100000000 100000000 0 100% /mnt[OST:5]
s-OST0006_UUID 100000000 1000000 99000000 1% /mnt[OST:6] D
$ lfs pool_list s
Pools from s:
s.fast
s.disk
$ lfs pool_list s.fast
Pool: s.fast
s-OST0002_UUID
$ lfs pool_list s.disk
Pool: s.disk
s-OST0000_UUID
s-OST0001_UUID
s-OST0006_UUID
$ lfs getstripe -d /mnt
  lcm_layout_gen:    0
  lcm_entry_count:   2
    lcme_extent.e_end: 1048576
      stripe_count:  4       stripe_size:   1048576       pattern:       raid0       stripe_offset: -1       pool: fast
    lcme_extent.e_end:   EOF
      stripe_count:  3       stripe_size:   4194304       pattern:       raid0       stripe_offset: -1
";

    #[test]
    fn osts_that_take_no_new_file_are_left_out_by_name() {
        let site = detected("lustre", CLOSED);
        let names: Vec<&str> = site.targets.iter().map(|target| target.name.as_str()).collect();
        assert_eq!(names, ["s-OST0000", "s-OST0006"]);
        assert_eq!(site.pools.iter().map(|pool| pool.name.as_str()).collect::<Vec<_>>(), ["disk"]);
        // The last component names no pool, and there are no three OSTs left.
        assert_eq!(site.default_layout(), (vec![0, 1], 2, stripewise_layout::ByteCount(4 << 20)));
        let text = text_of("lustre", CLOSED);
        for said in [
            "left out: s-OST0001 takes no new objects (flag N of `lfs df`); detect again",
            "left out: s-OST0002 has no free space (flag S of `lfs df`)",
            "left out: s-OST0003 is inactive",
            "left out: s-OST0004 is not in what `lfs df` prints",
            "left out: s-OST0005 has no free space;",
            "left out: pool fast, since none of its targets is listed",
            "s-OST0006 is degraded (flag D of `lfs df`)",
            "rounded down to a power of two of GiB, so that targets that are alike are one group (s-OST0000: 64GiB for 94.4 GiB of free space)",
        ] {
            assert!(text.contains(said), "no `{said}` in {text}");
        }
        // One that a command prints in a name would end the comment.
        detected("lustre", &CLOSED.replace("s-OST0003", "s-OST\u{7f}0003"));
        let default =
            text_of("lustre", &CLOSED.replace("4194304       pattern:", "4194304       pool: fast       pattern:"));
        assert!(default.contains("new files come from pool fast, of which no target is listed"), "{default}");
        assert!(!default.contains("pool = \"fast\""), "{default}");
        let all = CLOSED.replace("/mnt[OST:0]\n", "/mnt[OST:0] R\n").replace("/mnt[OST:6] D", "/mnt[OST:6] DN");
        let error = super::super::super::tests::not_detected("lustre", &all);
        assert!(error.starts_with("no OST of Lustre can take a new file: s-OST0000 is read-only"), "{error}");
        assert!(error.contains("s-OST0001, s-OST0006 takes no new objects"), "{error}");
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
