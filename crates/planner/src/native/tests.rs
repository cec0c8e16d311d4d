mod commands;
mod exporting;
mod safety;

use super::fit::distance;
use super::*;
use crate::site::{LinkTimes, SiteFile, SiteServers, TargetTimes, Times};
use commands::Bench;
use proptest::prelude::*;
use std::path::Path;
use stripewise_layout::{ByteCount, Layout, Placement, ServerId};

/// As the tables of devices would answer.
fn device(name: &str) -> Result<TargetTimes, String> {
    let times = Times { sequential_s: 1e-4, random_s: 1e-2, s_per_byte: 8e-9 };
    if name == "hdd-7200" { Ok(TargetTimes { read: times, write: times }) } else { Err(format!("unknown {name}")) }
}

fn link(name: &str) -> Result<LinkTimes, String> {
    Err(format!("unknown {name}"))
}

/// The site of an example.
fn example(native: &Native) -> (Site, SiteServers) {
    let site = Site::parse(native.example, Path::new("site.toml"), &file_systems()).unwrap();
    let servers = site.servers(&device, &link, None).unwrap();
    (site, servers)
}

fn real() -> impl Iterator<Item = &'static Native> {
    NATIVES.iter().copied().filter(|native| native.fs.name != "dummy")
}

#[test]
fn the_example_of_every_file_system_parses_and_has_all_parameters() {
    for native in NATIVES {
        let path = Path::new("site.toml");
        let (site, servers) = example(native);
        assert_eq!(site.fs, native.fs);
        servers.cluster.check().unwrap();
        servers.profile.check(&servers.cluster, path).unwrap();
        let again: SiteFile = toml::from_str(&site.file.to_toml()).unwrap();
        assert_eq!(again, site.file, "{}", native.fs.name);
    }
}

/// Help, examples and the check of `fs` read the rows: nothing else has to know the name.
#[test]
fn a_row_makes_a_file_system_known_everywhere() {
    assert!(names().ends_with(&["dummy"]) && lookup("dummy").is_some());
    let error = Site::parse("version = 1\nfs = \"gpfs\"\ntargets = []\n", Path::new("s"), &file_systems()).unwrap_err();
    assert!(error.to_string().ends_with("known: lustre, beegfs, cephfs, moosefs, orangefs, dummy"), "{error}");
}

/// The site that is found where commands print what stands in a fixture: `$ command`, then its output; `! command` fails. It has all but parameters.
pub(super) fn detected(fs: &str, fixture: &str) -> Site {
    let native = lookup(fs).unwrap();
    let site = Site::parse(&text_of(fs, fixture), Path::new("site.toml"), &file_systems()).unwrap();
    // What is not known is named when it is needed.
    let error = site.servers(&device, &link, None).unwrap_err().to_string();
    assert!(error.contains("has no parameters") && error.contains("site.toml: line"), "{error}");
    let error = native.detect(&mut |words| Err(format!("`{}` failed", words[0])), Path::new("/mnt")).unwrap_err();
    assert!(error.contains("failed"), "{error}");
    site
}

/// The description that is found there, with what is left to do.
pub(super) fn text_of(fs: &str, fixture: &str) -> String {
    found(fs, fixture).unwrap().text()
}

/// Why no description is found there.
pub(super) fn not_detected(fs: &str, fixture: &str) -> String {
    found(fs, fixture).unwrap_err()
}

fn found(fs: &str, fixture: &str) -> Result<Found, String> {
    let mut outputs: Vec<(&str, Option<String>)> = Vec::new();
    for line in fixture.lines().filter(|line| !line.starts_with("# ")) {
        if let Some(command) = line.strip_prefix("$ ") {
            outputs.push((command, Some(String::new())));
        } else if let Some(command) = line.strip_prefix("! ") {
            outputs.push((command, None));
        } else if let Some((_, Some(output))) = outputs.last_mut() {
            *output += &format!("{line}\n");
        }
    }
    let mut ask = |words: &[&str]| {
        let command = words.join(" ");
        let found = outputs.iter().find(|(known, _)| *known == command);
        found.and_then(|(_, output)| output.clone()).ok_or_else(|| format!("`{command}` failed"))
    };
    lookup(fs).unwrap().detect(&mut ask, Path::new("/mnt"))
}

const REGION: u64 = 1 << 20;

/// Layouts over some of so many servers, in any order, of stripes that are multiples of `unit`.
fn layouts(servers: usize, unit: u64) -> impl Strategy<Value = Layout> {
    let sizes = proptest::collection::btree_map(0..servers as u16, 1u64..9, 1..servers.min(6));
    let pairs = sizes.prop_map(|sizes| sizes.into_iter().collect::<Vec<_>>()).prop_shuffle();
    pairs.prop_map(move |pairs| {
        Layout::new(pairs.into_iter().map(|(server, size)| (ServerId(server), (size * unit) as u32))).unwrap()
    })
}

/// Placements of up to 12 regions in few layouts.
fn placements(servers: usize, unit: u64) -> impl Strategy<Value = Placement> {
    (proptest::collection::vec(layouts(servers, unit), 1..4), proptest::collection::vec(0usize..3, 1..13)).prop_map(
        |(layouts, regions)| {
            let layout = |choice: &usize| layouts[choice % layouts.len()].clone();
            let last = layout(regions.last().unwrap());
            Placement::from_regions(ByteCount(REGION), regions.iter().map(layout), last.clone(), last)
        },
    )
}

fn fitted(native: &Native, site: &Site, placement: &Placement) -> NativeLayout {
    let regions = placement.planned_regions();
    let weights = vec![REGION; regions as usize];
    let judge = |exported: &Placement| distance(placement, exported, &weights);
    let free_bytes = vec![None; site.targets.len()];
    let wanted = Wanted {
        size_bytes: regions * REGION,
        placement,
        weights: &weights,
        judge: &judge,
        free_bytes: &free_bytes,
        copies: &[],
    };
    (native.fit)(site, &wanted).unwrap()
}

fn copies(file: &FittedFile) -> impl Iterator<Item = &NativeLayout> {
    std::iter::once(&file.layout).chain(&file.mirrors)
}

proptest! {
    // Each case runs scripts of all file systems in a shell.
    #![proptest_config(ProptestConfig::with_cases(4))]
    /// Whatever a plan wants, the file system's own commands accept the script and make of it the layouts that were predicted.
    #[test]
    fn commands_read_by_their_manuals_give_back_the_layouts(
        (coarse, fine) in (proptest::collection::vec(placements(6, 64 << 10), 1..3), proptest::collection::vec(placements(6, 4 << 10), 1..3))
    ) {
        for native in real() {
            let (site, _) = example(native);
            let bench = Bench::new(&[]);
            let files: Vec<FittedFile> = coarse
                .iter()
                .chain(&fine)
                .enumerate()
                .map(|(number, placement)| FittedFile {
                    path: bench.path(&format!("a 'quoted' $file\n{number}")),
                    layout: fitted(native, &site, placement),
                    // Every second one has a copy, laid out as another file.
                    mirrors: match (number % 2, &native.mirrors) {
                        (1, Some(_)) => vec![fitted(native, &site, &coarse[0]); number],
                        _ => Vec::new(),
                    },
                })
                .collect();
            let script = (native.script)(&site, &files);
            let commands = bench.run(&script);
            let read = (native.read_back)(&site, &commands, &script);
            let read = read.map_err(|error| TestCaseError::fail(format!("{}: {error}", native.fs.name)))?;
            let copies = |file| -> Vec<_> { copies(file).map(|layout| (file, layout)).collect() };
            let expected: Vec<(&FittedFile, &NativeLayout)> = files.iter().flat_map(copies).collect();
            prop_assert_eq!(read.len(), expected.len());
            for ((path, layout), (file, expected)) in read.iter().zip(expected) {
                // Pools are named where all parts have one.
                let has_pools = expected.parts.iter().all(|part| part.pool.is_some());
                let parts = layout.parts.iter().map(|part| (part.end, &part.turns, part.pool.as_ref()));
                let wanted = expected
                    .parts
                    .iter()
                    .map(|part| (part.end, &part.turns, part.pool.as_ref().filter(|_| has_pools)));
                prop_assert!(parts.eq(wanted), "{}: {:?} is not {:?}", native.fs.name, layout, expected);
                prop_assert_eq!(Path::new(path).parent(), Path::new(&file.path).parent());
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]
    /// On Lustre, stripes in multiples of 64 KiB whose cycles divide a region come back as they were planned, region by region.
    #[test]
    fn what_lustre_can_express_is_what_was_planned(
        sizes in proptest::collection::vec((0u16..12, 0u32..3), 1..20)
    ) {
        let (site, _) = example(lookup("lustre").unwrap());
        // <1,1>, <1,3>, <4,4> and so on: cycles of powers of two.
        let layout = |(first, kind): &(u16, u32)| {
            let sizes: &[u32] = [&[1, 1][..], &[1, 3], &[4, 2, 2]][*kind as usize];
            let stripes = sizes.iter().enumerate();
            Layout::new(stripes.map(|(turn, size)| (ServerId((first + turn as u16) % 12), size << 16))).unwrap()
        };
        let last = layout(sizes.last().unwrap());
        let planned = Placement::from_regions(ByteCount(REGION), sizes.iter().map(layout), last.clone(), last);
        let native = fitted(lookup("lustre").unwrap(), &site, &planned);
        prop_assert_eq!(native.placement(ByteCount(REGION), sizes.len() as u64 * REGION), planned);
    }
}
