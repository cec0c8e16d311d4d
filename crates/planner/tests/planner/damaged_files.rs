//! Plan, profile and cluster files that were damaged: whatever they hold, they are read or refused by name, and what was read can be used.
//!
//! The seed of every mutant is printed when it fails; `STRIPEWISE_MUTANTS=N` tries more, `STRIPEWISE_MUTANT_SEED=N` begins elsewhere.

use crate::testbed::{self, KIB, MIB};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use stripewise_layout::{Cluster, Direction, Order, RegionIndex};
use stripewise_model::Profile;
use stripewise_planner::{Plan, PlanRequest, PlannedProgram, PolicyName, compare, comparison_text, plan, plan_text};
use stripewise_trace::FileAccess;

struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((z ^ (z >> 31)) % limit.max(1) as u64) as usize
    }
}

const NUMBERS: [&str; 16] = [
    "0",
    "1",
    "-1",
    "7",
    "65535",
    "65536",
    "4294967295",
    "4294967296",
    "9223372036854775807",
    "18446744073709551615",
    "18446744073709551616",
    "1e308",
    "1e-320",
    "-0.0",
    "0.1",
    "1e999",
];

/// Numbers replaced, words and lines dropped, doubled or exchanged, bytes changed, the end cut off.
fn damage(text: &str, random: &mut Random) -> String {
    let mut bytes = text.as_bytes().to_vec();
    for _ in 0..=random.below(3) {
        if bytes.is_empty() {
            break;
        }
        let place = random.below(bytes.len());
        match random.below(9) {
            0..=4 => {
                let Some(start) = bytes[place..].iter().position(u8::is_ascii_digit).map(|skip| place + skip) else {
                    continue;
                };
                let is_number = |byte: &u8| byte.is_ascii_digit() || matches!(byte, b'.' | b'e' | b'-');
                let end =
                    bytes[start..].iter().position(|byte| !is_number(byte)).map_or(bytes.len(), |skip| start + skip);
                bytes.splice(start..end, NUMBERS[random.below(NUMBERS.len())].bytes());
            }
            5 => {
                // A line twice, or none of it.
                let start = bytes[..place].iter().rposition(|byte| *byte == b'\n').map_or(0, |before| before + 1);
                let end =
                    bytes[place..].iter().position(|byte| *byte == b'\n').map_or(bytes.len(), |skip| place + skip + 1);
                let line = if random.below(2) == 0 { bytes[start..end].repeat(2) } else { Vec::new() };
                bytes.splice(start..end, line);
            }
            6 => bytes[place] ^= 1 << random.below(7),
            7 => {
                let (from, length) = (random.below(bytes.len()), random.below(60));
                let part = bytes[from..bytes.len().min(from + length)].to_vec();
                bytes.splice(place..place, part);
            }
            _ => bytes.truncate(place.max(bytes.len() / 2)),
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

struct Material {
    cluster: Cluster,
    profile: Profile,
    files: Vec<FileAccess>,
    /// Plans of several policies, and one that version 1 wrote.
    plans: Vec<String>,
}

fn material() -> Material {
    let cluster = testbed::cluster(4, 2, MIB, Some(2 * MIB));
    let profile = testbed::profile(&cluster, testbed::DISK, testbed::FLASH, 1e-4, 8e-9);
    let class = testbed::class(Direction::Read, 64 * KIB, Order::Random);
    let files: Vec<FileAccess> = ["/data/out.17.h5", "/data/mesh"]
        .map(|path| testbed::file(path, 5 * MIB + 1, MIB, &[class], &[&[3], &[0], &[7], &[1]]))
        .into();
    let mut request = testbed::request(&cluster, &profile, &files);
    request.key.with =
        vec![PlannedProgram { started_as: Some("wrapper".to_owned()), ..PlannedProgram::new("tool", 8) }];
    let policies = [PolicyName::Def, PolicyName::H2dp, PolicyName::Padp, PolicyName::Opt];
    let mut plans = policies.map(|policy| plan(policy, &request).unwrap().to_json()).to_vec();
    plans.push(include_str!("../fixtures/plan-version-1.json").to_owned());
    Material { cluster, profile, files, plans }
}

/// Reads a plan and asks it all that a run does; true when it was read.
fn use_plan(text: &str, cluster: &Cluster) -> bool {
    let plan = match Plan::parse(text, Path::new("plan.json")) {
        Ok(plan) => plan,
        Err(error) => {
            assert!(error.to_string().contains("plan.json"), "{error}");
            return false;
        }
    };
    if let Some(found) = plan.lookup("/data/out.3.h5", "app", 64) {
        let end = found.file.initial().planned_regions();
        for region in [0, 1, u32::try_from(end).unwrap_or(u32::MAX), u32::MAX] {
            for time_s in [-1.0, 0.0, 1e300, f64::NAN] {
                assert!(!found.file.placement_at(time_s).layout_of(RegionIndex(region)).stripes().is_empty());
            }
        }
    }
    assert!(plan.key.programs().count() > 0 && plan.key.all_processes() >= plan.key.processes);
    if plan.check(cluster, Path::new("plan.json")).is_ok() {
        assert!(!plan_text(&plan, cluster, "next").is_empty());
    }
    // JSON has no infinite numbers, so whatever was read is written and read again.
    assert!(Plan::parse(&plan.to_json(), Path::new("plan.json")).is_ok());
    true
}

/// Reads a profile and plans by it.
fn use_profile(text: &str, material: &Material) -> bool {
    let profile = match Profile::parse(text, Path::new("profile.json")) {
        Ok(profile) => profile,
        Err(error) => {
            assert!(error.to_string().contains("profile.json"), "{error}");
            return false;
        }
    };
    plan_by(&material.cluster, &profile, &material.files);
    true
}

fn use_cluster(text: &str, material: &Material) -> bool {
    let cluster = match Cluster::parse(text, Path::new("/somewhere/cluster.toml")) {
        Ok(cluster) => cluster,
        Err(error) => {
            assert!(error.to_string().contains("cluster.toml"), "{error}");
            return false;
        }
    };
    plan_by(&cluster, &material.profile, &material.files);
    true
}

/// Plans, or is told why not.
fn plan_by(cluster: &Cluster, profile: &Profile, files: &[FileAccess]) {
    let request: PlanRequest<'_> = testbed::request(cluster, profile, files);
    match compare(&request, &[PolicyName::Def, PolicyName::Padp, PolicyName::Psa, PolicyName::H2dp]) {
        Ok(comparison) => assert!(!comparison_text(&comparison).is_empty()),
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}

fn number_from(variable: &str) -> Option<u64> {
    std::env::var(variable).ok().map(|text| text.parse().expect("a number"))
}

#[test]
fn damaged_files_are_read_or_refused() {
    let material = material();
    let (cluster, profile) = (material.cluster.to_toml(), material.profile.to_json());
    assert!(material.plans.iter().all(|plan| use_plan(plan, &material.cluster)));
    assert!(use_profile(&profile, &material) && use_cluster(&cluster, &material));
    let first = number_from("STRIPEWISE_MUTANT_SEED").unwrap_or(1);
    let mutants = number_from("STRIPEWISE_MUTANTS").unwrap_or(600);
    let mut read = 0;
    for seed in first..first + mutants {
        let mut random = Random(seed);
        let kind = random.below(4);
        let text = match kind {
            0 => damage(&profile, &mut random),
            1 => damage(&cluster, &mut random),
            _ => {
                let plan = random.below(material.plans.len());
                damage(&material.plans[plan], &mut random)
            }
        };
        let look = || match kind {
            0 => use_profile(&text, &material),
            1 => use_cluster(&text, &material),
            _ => use_plan(&text, &material.cluster),
        };
        match catch_unwind(AssertUnwindSafe(look)) {
            Ok(was_read) => read += u64::from(was_read),
            Err(panic) => {
                eprintln!("STRIPEWISE_MUTANT_SEED={seed} STRIPEWISE_MUTANTS=1, a mutant:\n{text}");
                std::panic::resume_unwind(panic);
            }
        }
    }
    // Mutants that are all refused test little.
    assert!(mutants < 100 || read * 10 > mutants, "{read} of {mutants} mutants were read");
}
