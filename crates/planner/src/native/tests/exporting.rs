//! Whole plans: what is predicted, and what is refused.

use super::super::{ExportError, ExportRequest, FittedFile, NativeLayout, Turn, check, export};
use super::{example, fitted, lookup, real};
use crate::compare::plan;
use crate::policy::fixtures::file_of;
use crate::policy::{PolicyName, Replica};
use crate::request::{PlanOptions, PlanRequest};
use crate::site::{Site, SiteServers};
use crate::sources::{PlanKey, Sources};
use crate::{Plan, native};
use std::path::Path;
use stripewise_layout::{ByteCount, Layout, Placement, RegionIndex, ServerClass, ServerId};
use stripewise_trace::FileAccess;

const REGION: u64 = 64 << 20;

/// Random reads of 64 KiB by 32 processes, so many of each region.
fn file(path: &str, requests: &[u64]) -> FileAccess {
    file_of(path, REGION, requests, 32)
}

fn planned(servers: &SiteServers, files: &[FileAccess], policy: &str) -> Plan {
    let request = PlanRequest {
        cluster: &servers.cluster,
        profile: &servers.profile,
        files,
        key: PlanKey::new("app", 32),
        sources: Sources::default(),
        options: PlanOptions::default(),
        free_bytes: &[],
        promises_whole_regions: false,
        concurrency: None,
    };
    plan(policy.parse::<PolicyName>().unwrap(), &request).unwrap()
}

/// A hot head and a cold tail, and a file of its own.
fn files() -> Vec<FileAccess> {
    let requests: Vec<u64> = (0..24).map(|region| if region < 4 { 5_000 } else { 100 }).collect();
    vec![file("/lustre/a", &requests), file("/lustre/b", &[800; 6])]
}

/// The same of fewer regions, which are planned sooner for every file system.
fn few_regions() -> Vec<FileAccess> {
    vec![file("/lustre/a", &[5_000, 5_000, 100, 100, 100, 100]), file("/lustre/b", &[800; 2])]
}

#[test]
fn three_predictions_stand_next_to_each_other_for_every_file_system() {
    for native in real() {
        let (site, servers) = example(native);
        let accesses = few_regions();
        let plan = planned(&servers, &accesses, "opt");
        let request = ExportRequest { plan: &plan, site: &site, servers: &servers, accesses: &accesses };
        let exported = export(&request).unwrap();
        let loss = exported.predicted.clone().unwrap();
        assert!(
            (loss.ideal.time_s / plan.predicted.total.time_s - 1.0).abs() < 1e-9,
            "{}: the plan's own time",
            site.fs.name
        );
        let ratio = |a: f64, b: f64| a / b - 1.0;
        assert_eq!(loss.loss.expected, ratio(loss.exported.time_s, loss.ideal.time_s));
        assert_eq!(loss.gain.expected, ratio(loss.default.time_s, loss.exported.time_s));
        for part in [loss.loss, loss.gain].into_iter().filter(|part| !part.is_none()) {
            assert!(part.low < part.expected && part.expected < part.high, "{}: {part}", site.fs.name);
        }
        // Nothing that a file system sets beats what `opt` planned, but by what its search leaves open.
        assert!(loss.loss.expected > -0.05, "{}: {}", site.fs.name, loss.loss);
        // Small random reads gain where the hot file or its parts come to SSDs.
        assert!(loss.gain.expected > 0.0, "{}: {}", site.fs.name, loss.gain);
        assert_eq!(exported.files.len(), 2);
        let held: u64 = exported.files[0].targets.iter().map(|target| target.bytes).sum();
        assert_eq!(held, 6 * REGION, "{}", site.fs.name);
        assert!(exported.notes.iter().any(|note| note.contains("nobody measured")), "{:?}", exported.notes);
        // For the one that has most to choose from.
        if site.fs.name == "lustre" {
            assert_eq!(export(&request).unwrap(), exported, "the same plan gives the same script");
        }
    }
}

#[test]
fn what_lustre_can_express_loses_nothing() {
    let (site, servers) = example(lookup("lustre").unwrap());
    let accesses = files();
    for policy in ["def", "1-dv", "opt"] {
        let plan = planned(&servers, &accesses, policy);
        let exported =
            export(&ExportRequest { plan: &plan, site: &site, servers: &servers, accesses: &accesses }).unwrap();
        let loss = exported.predicted.unwrap().loss.expected;
        assert!(loss.abs() < 0.02, "{policy}: {loss}");
    }
}

#[test]
fn what_layouts_need_of_the_site_is_said() {
    let said = |fs: &str, file: FittedFile| {
        let native = lookup(fs).unwrap();
        (native.remarks)(&example(native).0, &[file]).join("; ")
    };
    let turns = |turns: &[(usize, u64)]| -> Vec<Turn> {
        turns.iter().map(|(target, bytes)| Turn { target: *target, bytes: *bytes }).collect()
    };
    let file = |layout: NativeLayout, mirrors: &[NativeLayout]| FittedFile {
        path: "/data/a".to_owned(),
        layout,
        mirrors: mirrors.to_vec(),
    };
    let plain = NativeLayout::whole(turns(&[(0, 65536), (1, 65536)]), None);
    let twice = NativeLayout::whole(turns(&[(0, 65536), (1, 65536), (1, 65536)]), None);
    assert_eq!(said("lustre", file(plain.clone(), &[])), "");
    let overstriped = said("lustre", file(twice.clone(), &[]));
    assert!(overstriped.contains("2.13") && !overstriped.contains("2.11"), "{overstriped}");
    let mirrored = said("lustre", file(plain.clone(), &[twice]));
    assert!(mirrored.contains("2.11") && mirrored.contains("2.13"), "{mirrored}");
    assert_eq!(said("orangefs", file(plain.clone(), &[])), "");
    assert!(said("beegfs", file(plain, &[])).contains("new files of 1 of the directories"));
}

#[test]
fn orangefs_gets_one_strip_size_for_all_servers() {
    let native = lookup("orangefs").unwrap();
    let (site, _) = example(native);
    for stripes in [&[65536, 196_608][..], &[65536, 65536, 1 << 20], &[4096, 12288]] {
        let servers = [0, 4, 5].map(ServerId).into_iter().zip(stripes.iter().copied());
        let layout = Layout::new(servers).unwrap();
        let placement = Placement::from_regions(ByteCount(REGION), vec![layout.clone(); 2], layout.clone(), layout);
        let turns = fitted(native, &site, &placement).parts.remove(0).turns;
        assert!(turns.len() > 1 && turns.iter().all(|turn| turn.bytes == turns[0].bytes), "{turns:?}");
    }
}

#[test]
fn without_accesses_the_nearest_layout_is_taken_and_nothing_is_predicted() {
    for native in real() {
        let (site, servers) = example(native);
        let plan = planned(&servers, &few_regions(), "opt");
        let exported = export(&ExportRequest { plan: &plan, site: &site, servers: &servers, accesses: &[] }).unwrap();
        assert!(exported.predicted.is_none());
        assert!(exported.notes[0].contains("nothing is predicted"), "{:?}", exported.notes);
    }
}

#[test]
fn replicas_become_mirrors_of_whole_files_where_a_file_can_have_them() {
    for native in real() {
        let (site, servers) = example(native);
        let mut plan = planned(&servers, &few_regions(), "def");
        let layout = Layout::new([(ServerId(0), 1 << 20)]).unwrap();
        plan.files[0].windows[0].replicas = vec![Replica { first: RegionIndex(1), regions: 2, layout: layout.clone() }];
        let export = |servers: &SiteServers| {
            export(&ExportRequest { plan: &plan, site: &site, servers, accesses: &[] }).unwrap()
        };
        let exported = export(&servers);
        let said = |words: &str| exported.notes.iter().any(|note| note.contains(words));
        let held: u64 = exported.files[0].targets.iter().map(|target| target.bytes).sum();
        if site.fs.name != "lustre" {
            assert!(exported.files[0].mirrors == 0 && held == 6 * REGION && said("first copy"), "{}", site.fs.name);
            continue;
        }
        assert!(exported.files[0].mirrors == 1 && held == 12 * REGION && said("lfs mirror resync"), "{exported:?}");
        let mirror =
            exported.files[0].mirror_layouts[0].placement(plan.files[0].windows[0].placement.region_size, 6 * REGION);
        for region in 0..6 {
            let first = exported.files[0].placement.layout_of(RegionIndex(region));
            assert_eq!(mirror.layout_of(RegionIndex(region)), if (1..3).contains(&region) { &layout } else { first });
        }
        assert_eq!(exported.files[1].mirrors, 0);
        // A copy for which there is no room is none.
        let mut small = servers.clone();
        small.cluster.servers.iter_mut().for_each(|server| server.capacity = Some(ByteCount(2 * REGION)));
        let exported = export(&small);
        assert_eq!(exported.files[0].mirrors, 0);
        assert!(exported.notes.iter().any(|note| note.contains("have no space for copies")), "{:?}", exported.notes);
    }
}

#[test]
fn files_elsewhere_and_copies_that_nobody_counts_are_said() {
    let notes = |fs: &str, from: &str, to: &str, files: &[FileAccess]| {
        let text = lookup(fs).unwrap().example.replace(from, to);
        let site = Site::parse(&text, Path::new("site.toml"), &native::file_systems()).unwrap();
        let servers = site.servers(&super::device, &super::link, None).unwrap();
        let plan = planned(&servers, files, "def");
        export(&ExportRequest { plan: &plan, site: &site, servers: &servers, accesses: &[] }).unwrap().notes
    };
    let files = [file("/lustre/a", &[100]), file("/lustre/b", &[100]), file("3872016472", &[100])];
    let said = notes("lustre", "mount = \"/lustre\"", "mount = \"/lustre/a\"", &files);
    assert!(
        said.iter().any(|note| note == "/lustre/b does not lie below /lustre/a: the script works only where it does"),
        "{said:?}"
    );
    assert!(
        said.iter().any(|note| note.starts_with("the logs have no path of 3872016472: the script has")),
        "{said:?}"
    );
    let said = notes("lustre", "mount = \"/lustre\"", "mount = \"/scratch\"", &files);
    assert!(
        said.iter()
            .any(|note| note
                == "/lustre/a and 1 other file do not lie below /scratch: the script works only where they do"),
        "{said:?}"
    );
    let uncounted = "does not say how many copies cephfs_";
    let said = notes("cephfs", "copies = 3", "", &files);
    assert!(said.iter().any(|note| note.contains(uncounted)), "{said:?}");
    for fs in ["cephfs", "moosefs", "lustre"] {
        let said = notes(fs, "nothing", "", &files);
        assert!(!said.iter().any(|note| note.contains("how many copies")), "{fs}: {said:?}");
    }
}

#[test]
fn other_servers_classes_and_full_targets_are_refused_by_name() {
    let lustre = lookup("lustre").unwrap();
    let (site, servers) = example(lustre);
    let accesses = files();
    let plan = planned(&servers, &accesses, "def");
    let parse = |text: &str| {
        let site = Site::parse(text, Path::new("/etc/site.toml"), &native::file_systems()).unwrap();
        let servers = site.servers(&super::device, &super::link, None).unwrap();
        (site, servers)
    };
    let refused = |text: &str, plan: &Plan| {
        let (site, servers) = parse(text);
        export(&ExportRequest { plan, site: &site, servers: &servers, accesses: &[] }).unwrap_err()
    };
    let error = refused(&lustre.example.replace("OST000b", "OST000a"), &plan).to_string();
    assert_eq!(
        error,
        "the plan uses OST000b, which /etc/site.toml does not name; name its targets as the plan's servers are named, or have `stripewise advise` make a plan for the site from the run's logs"
    );
    let error = refused(&lustre.example.replacen("class = \"hdd\"", "class = \"ssd\"", 1), &plan);
    assert!(matches!(error, ExportError::OtherClass { ref planned, .. } if planned == "hdd"), "{error}");
    let error = refused(lookup("cephfs").unwrap().example, &Plan { files: Vec::new(), ..plan.clone() });
    assert!(matches!(error, ExportError::Nothing));

    let no_pools = lookup("moosefs")
        .unwrap()
        .example
        .lines()
        .filter(|line| !line.starts_with("pool"))
        .collect::<Vec<_>>()
        .join("\n");
    let plan = planned(&parse(&no_pools).1, &accesses, "def");
    let error = refused(&no_pools, &plan).to_string();
    assert!(
        error.starts_with("/etc/site.toml: MooseFS places files by labels of storage classes, and none is named; add"),
        "{error}"
    );
    let no_mount = lookup("moosefs").unwrap().example.replace("\nmount =", "\n# mount =");
    let error = refused(&no_mount, &plan).to_string();
    assert_eq!(error, "/etc/site.toml: mfsscadmin needs the mount; add mount = \"/mnt/mfs\"");
    // 11 characters of `stripewise_` and 245 more are one too many for the name of a class.
    let of_length = |length: usize| {
        let long = format!("pool = \"{}\"", "A".repeat(length));
        lookup("moosefs").unwrap().example.replace("pool = \"H\"", &long)
    };
    let error = refused(&of_length(245), &plan).to_string();
    assert!(error.contains("has 255 characters at most; shorten the expression"), "{error}");
    check(&parse(&of_length(244)).0).unwrap();
    assert_eq!(site.class(0), ServerClass::Hdd);
}

fn parsed(text: &str) -> (Site, SiteServers) {
    let site = Site::parse(text, Path::new("/etc/site.toml"), &native::file_systems()).unwrap();
    let servers = site.servers(&super::device, &super::link, None).unwrap();
    (site, servers)
}

#[test]
fn no_target_gets_more_than_its_capacity() {
    for native in [lookup("beegfs").unwrap(), lookup("lustre").unwrap()] {
        let accesses = files();
        let (site, servers) = example(native);
        let plan = planned(&servers, &accesses, "opt");
        // The plan is for more flash than there is: what is asked for least takes the disks.
        let (small, of_small) = parsed(&native.example.replace("capacity = \"20TiB\"", "capacity = \"200MiB\""));
        let export = |site: &Site, servers: &SiteServers| {
            export(&ExportRequest { plan: &plan, site, servers, accesses: &accesses })
        };
        let flash = |site: &Site, servers: &SiteServers| -> Vec<u64> {
            let exported = export(site, servers).unwrap();
            let mut held = vec![0; site.targets.len()];
            for file in &exported.files {
                held.iter_mut().zip(file.target_bytes(site.targets.len())).for_each(|(sum, bytes)| *sum += bytes);
            }
            (0..held.len())
                .filter(|target| site.class(*target) == ServerClass::Ssd)
                .map(|target| held[target])
                .collect()
        };
        assert!(flash(&site, &servers).iter().any(|held| *held > 200 << 20), "{}", native.fs.name);
        let held = flash(&small, &of_small);
        assert!(held.iter().all(|held| *held <= 200 << 20), "{}: {held:?}", native.fs.name);
        if native.fs.name == "lustre" {
            assert!(held.iter().sum::<u64>() > 400 << 20, "what is asked for most has the flash: {held:?}");
        }
        let (tiny, of_tiny) = parsed(&native.example.replace("TiB\"", "MiB\""));
        let error = match export(&tiny, &of_tiny) {
            Ok(exported) => format!("{}: {}", exported.refused[0].path, exported.refused[0].reason),
            Err(error) => error.to_string(),
        };
        assert!(
            error.starts_with(&format!("/lustre/a: no layout of {} holds its 1.5 GiB", native.fs.title)),
            "{error}"
        );
    }
}

#[test]
fn a_site_whose_metadata_servers_hold_less_gets_shorter_layouts() {
    let lustre = lookup("lustre").unwrap();
    // With flash for half of the file, its parts differ.
    let text = lustre.example.replace("capacity = \"20TiB\"", "capacity = \"200MiB\"");
    let with = |bytes: &str| text.replace("# layout_bytes = 3888", &format!("layout_bytes = {bytes}"));
    let (site, servers) = parsed(&text);
    let accesses = files();
    let mut plan = planned(&servers, &accesses, "opt");
    let parts = |site: &Site| {
        let exported = export(&ExportRequest { plan: &plan, site, servers: &servers, accesses: &accesses }).unwrap();
        exported.files[0].layout.parts.iter().map(|part| part.turns.len()).collect::<Vec<_>>()
    };
    let whole = parts(&site);
    let bytes = |parts: &[usize]| 32 + parts.iter().map(|turns| 96 + 24 * turns).sum::<usize>();
    assert!(whole.len() > 1, "{whole:?}");
    for limit in [bytes(&whole) - 1, 200, 152] {
        let fewer = parts(&parsed(&with(&limit.to_string())).0);
        assert!(bytes(&fewer) <= limit, "{limit}: {fewer:?}");
    }
    assert_eq!(parts(&parsed(&with(&bytes(&whole).to_string())).0), whole);
    // All copies of a file share its layout.
    let replica = Replica { first: RegionIndex(0), regions: 2, layout: Layout::new([(ServerId(0), 1 << 20)]).unwrap() };
    plan.files[0].windows[0].replicas = vec![replica];
    let mirrors = |limit: usize| {
        let (site, servers) = parsed(&with(&limit.to_string()));
        export(&ExportRequest { plan: &plan, site: &site, servers: &servers, accesses: &[] }).unwrap().files[0].mirrors
    };
    assert_eq!([64 << 10, bytes(&whole)].map(mirrors), [1, 0]);

    let refused =
        |text: &str| Site::parse(text, Path::new("/etc/site.toml"), &native::file_systems()).unwrap_err().to_string();
    let error = refused(&with("151"));
    assert!(error.contains(": layout_bytes = 151 is not from 152 to 65536, which is what Lustre has"), "{error}");
    let of_beegfs = lookup("beegfs").unwrap().example.replacen("fs =", "layout_bytes = 4000\nfs =", 1);
    let error = refused(&of_beegfs);
    assert!(error.starts_with("/etc/site.toml: line 3: layout_bytes says nothing of BeeGFS"), "{error}");
}
