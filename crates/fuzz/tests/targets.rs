//! Every target over its stored corpus and mutations of it.
//!
//! `STRIPEWISE_FUZZ_TARGET=NAME` runs one target, `STRIPEWISE_FUZZ_MUTANTS=N` another number, `STRIPEWISE_FUZZ_SEED=N` other mutants. An input that fails is
//! kept, and its path told: in the corpus, under a name that tells what broke, it is a regression test from then on.

use rand::SeedableRng;
use rand::rngs::SmallRng;
use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use stripewise_fuzz::mutation::mutant;
use stripewise_fuzz::{Outcome, TARGETS, Target};

mod allocation;

#[global_allocator]
static ALLOCATOR: allocation::Counted = allocation::Counted;

/// Work shows in what is allocated: a reader may ask, in all, for so many times what it may hold at a time.
const MAX_TURNOVER: usize = 16;

/// Failures told of one target.
const MAX_REPORTED: usize = 5;

fn number_from(variable: &str) -> Option<u64> {
    std::env::var(variable).ok().map(|text| text.parse().expect("a number"))
}

fn fuzz_crate() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The stored inputs, by name.
fn corpus(target: &Target) -> Vec<(String, Vec<u8>)> {
    let directory = target.corpus();
    let entries = std::fs::read_dir(&directory).unwrap_or_else(|error| panic!("{}: {error}", directory.display()));
    let mut inputs: Vec<(String, Vec<u8>)> = entries
        .map(|entry| entry.unwrap().path())
        .map(|path| (path.file_name().unwrap().to_str().unwrap().to_owned(), std::fs::read(&path).unwrap()))
        .collect();
    inputs.sort();
    inputs
}

fn failure_path(target: &Target, name: &str) -> PathBuf {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("fuzz");
    std::fs::create_dir_all(&directory).unwrap();
    directory.join(format!("{}-{name}", target.name))
}

/// Runs the input; what went wrong, if anything did.
fn try_input(target: &Target, bytes: &[u8], worst: &mut [usize; 2]) -> Result<Outcome, String> {
    let (outcome, cost) = allocation::of(|| catch_unwind(AssertUnwindSafe(|| (target.run)(bytes))));
    let outcome = outcome.map_err(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned())).unwrap_or_default()
    })?;
    let limit = target.max_held_bytes + 64 * bytes.len();
    worst[0] = worst[0].max(cost.most_held);
    worst[1] = worst[1].max(cost.total);
    if cost.most_held > limit || cost.total > MAX_TURNOVER * limit {
        return Err(format!("it held {} bytes and asked for {} in all", cost.most_held, cost.total));
    }
    Ok(outcome)
}

struct Tried {
    read: u64,
    failures: Vec<String>,
    /// Most held at a time, most asked for.
    worst: [usize; 2],
}

impl Tried {
    fn take(&mut self, target: &Target, name: &str, bytes: &[u8]) {
        match try_input(target, bytes, &mut self.worst) {
            Ok(outcome) => self.read += u64::from(outcome == Outcome::Read),
            Err(what) => {
                let path = failure_path(target, name);
                std::fs::write(&path, bytes).unwrap();
                self.failures.push(format!("{} {name} ({}): {what}", target.name, path.display()));
            }
        }
    }
}

/// Allocations are counted for the process: one test at a time.
static ALONE: Mutex<()> = Mutex::new(());

#[test]
fn whatever_strangers_hand_us_is_read_or_refused() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let seed = number_from("STRIPEWISE_FUZZ_SEED").unwrap_or(1);
    let mutants = number_from("STRIPEWISE_FUZZ_MUTANTS").unwrap_or(10_000);
    let only = std::env::var("STRIPEWISE_FUZZ_TARGET").ok();
    println!("STRIPEWISE_FUZZ_SEED={seed} STRIPEWISE_FUZZ_MUTANTS={mutants}");
    let mut failures = Vec::new();
    for target in TARGETS.iter().filter(|target| only.as_ref().is_none_or(|only| only == target.name)) {
        let started = std::time::Instant::now();
        let mut tried = Tried { read: 0, failures: Vec::new(), worst: [0; 2] };
        let stored = corpus(target);
        stored.iter().for_each(|(name, bytes)| tried.take(target, name, bytes));
        let inputs: Vec<Vec<u8>> = stored.into_iter().map(|(_, bytes)| bytes).collect();
        let mut random = SmallRng::seed_from_u64(seed);
        tried.read = 0;
        for number in 0..mutants {
            tried.take(target, &format!("{seed}-{number}"), &mutant(&inputs, target.kind, &mut random));
            if tried.failures.len() >= MAX_REPORTED {
                break;
            }
        }
        let ([held, total], seconds) = (tried.worst.map(|bytes| bytes >> 10), started.elapsed().as_secs_f64());
        println!("{}: {} read, {seconds:.1} s, at most {held} KiB held, {total} asked for", target.name, tried.read);
        // Mutants that are all refused test little.
        if mutants >= 1000 && tried.failures.is_empty() && tried.read * 50 < mutants {
            tried.failures.push(format!("{}: only {} of {mutants} mutants were read", target.name, tried.read));
        }
        failures.extend(tried.failures);
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn every_target_has_a_corpus_that_is_read_and_a_fuzz_target() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    assert!(TARGETS.is_sorted_by(|one, next| one.name < next.name), "by name, each once");
    let names: BTreeSet<String> = TARGETS.iter().map(|target| target.name.to_owned()).collect();
    for target in TARGETS {
        let inputs = corpus(target);
        let is_read = inputs.iter().any(|(_, bytes)| (target.run)(bytes) == Outcome::Read);
        assert!(is_read, "no file in {} is read; see examples/corpus.rs", target.corpus().display());
        for (name, bytes) in inputs {
            assert!(bytes.len() <= 64 << 10, "{}/{name} is longer than 64 KiB", target.name);
        }
    }
    let in_directory = |path: PathBuf, extension: &str| -> BTreeSet<String> {
        let entries = std::fs::read_dir(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        names.map(|name| name.strip_suffix(extension).unwrap_or(&name).to_owned()).collect()
    };
    assert_eq!(in_directory(fuzz_crate().join("corpus"), ""), names, "directories in crates/fuzz/corpus");
    let package = fuzz_crate().join("../../fuzz");
    assert_eq!(in_directory(package.join("fuzz_targets"), ".rs"), names, "files in fuzz/fuzz_targets");
    let manifest: toml::Table = toml::from_str(&std::fs::read_to_string(package.join("Cargo.toml")).unwrap()).unwrap();
    for name in &names {
        let source = std::fs::read_to_string(package.join(format!("fuzz_targets/{name}.rs"))).unwrap();
        assert!(source.contains(&format!("stripewise_fuzz::run(\"{name}\", bytes)")), "{name}.rs runs another target");
        let bins = manifest["bin"].as_array().unwrap();
        assert!(bins.iter().any(|bin| bin["name"].as_str() == Some(name)), "fuzz/Cargo.toml has no [[bin]] {name}");
    }
}
