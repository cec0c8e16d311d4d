//! Readers, counting and statistics on damaged traces: valid ones are mutated, and whatever comes out must be read or refused, never
//! panic, and count no more than it holds.
//!
//! The seed of every mutant is printed when it fails; `STRIPEWISE_MUTANTS=N` tries more, `STRIPEWISE_MUTANT_SEED=N` begins elsewhere.

use std::collections::HashSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use stripewise_layout::{ByteCount, Direction};
use stripewise_trace::{
    CountOptions, Pattern, SMALL_REQUEST, Trace, TraceShape, Workload, alignment, count_and_tell, count_together,
    heat_map, statistics, write_csv, write_trace,
};

struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit.max(1) as u64) as usize
    }
}

const EXTREMES: [u64; 14] = [
    0,
    1,
    31,
    0x7FFF_FFFF,
    0x8000_0000,
    0xFFFF_FFFF,
    1 << 32,
    (1 << 40) - 1,
    1 << 57,
    (1 << 62) - 1,
    1 << 62,
    i64::MAX as u64,
    1 << 63,
    u64::MAX,
];

/// Binary damage: flips, cuts, splices, extreme words.
fn damage(bytes: &mut Vec<u8>, other: &[u8], random: &mut Random) {
    for _ in 0..=random.below(6) {
        if bytes.is_empty() {
            return;
        }
        let place = random.below(bytes.len());
        match random.below(8) {
            0 | 1 => bytes[place] ^= 1 << random.below(8),
            2 => bytes[place] = random.next() as u8,
            3 => bytes.truncate(place),
            4 => {
                let from = random.below(other.len());
                let part = &other[from..other.len().min(from + random.below(400))];
                let end = bytes.len().min(place + random.below(400));
                bytes.splice(place..end, part.iter().copied());
            }
            5 => {
                // Slots repeated or left out.
                let begin = place / 32 * 32;
                let end = bytes.len().min(begin + 32 * (1 + random.below(4)));
                let slots = if random.below(2) == 0 { bytes[begin..end].repeat(2) } else { Vec::new() };
                bytes.splice(begin..end, slots);
            }
            _ => {
                let (word, wide) = (EXTREMES[random.below(EXTREMES.len())], random.below(3) > 0);
                let word = word.wrapping_add(random.below(3) as u64).wrapping_sub(1).to_le_bytes();
                let begin = place / 4 * 4;
                for (target, byte) in bytes[begin..].iter_mut().zip(&word[..if wide { 8 } else { 4 }]) {
                    *target = *byte;
                }
            }
        }
    }
}

/// Damage to text: as above, and numbers replaced by extreme ones.
fn damage_text(bytes: &mut Vec<u8>, other: &[u8], random: &mut Random) {
    for _ in 0..=random.below(3) {
        if random.below(4) == 0 {
            damage(bytes, other, random);
            continue;
        }
        let begin = random.below(bytes.len());
        let Some(start) = bytes[begin..].iter().position(u8::is_ascii_digit).map(|skip| begin + skip) else { continue };
        let end =
            bytes[start..].iter().position(|byte| !byte.is_ascii_digit()).map_or(bytes.len(), |skip| start + skip);
        let number = match random.below(6) {
            0 => "-1".to_owned(),
            1 => "1e300".to_owned(),
            2 => "99999999999999999999999999".to_owned(),
            3 => "9.".to_owned() + &"9".repeat(random.below(30)),
            _ => EXTREMES[random.below(EXTREMES.len())].to_string(),
        };
        bytes.splice(start..end, number.into_bytes());
    }
}

/// Looks at the trace in all ways; gives the number of requests that it counts.
fn look(path: &Path) -> Option<u64> {
    let trace = match Trace::open(path) {
        Ok(trace) => trace,
        Err(error) => {
            assert!(!error.to_string().is_empty());
            return None;
        }
    };
    let events = trace.events().count() as u64;
    assert_eq!(events, trace.event_count());
    assert_eq!(trace.events_by_start().len() as u64, events);
    let mut most = 0;
    for (window_s, region_bytes, class_limit) in [(600.0, 64 << 20, 32), (0.01, 1 << 20, 4), (1e9, 12_345, 5)] {
        let options =
            CountOptions { window_s, region_size: ByteCount(region_bytes), class_limit, ..CountOptions::default() };
        let counted = count_and_tell(&trace, &options).unwrap();
        assert!(counted.impossible <= events);
        let mut paths = HashSet::new();
        for file in &counted.files {
            assert!(
                paths.insert(&file.path) && file.classes.len() <= usize::from(class_limit) && !file.classes.is_empty()
            );
            assert!(file.classes.is_sorted() && file.classes.iter().all(|class| class.request_bytes > 0));
            assert_eq!(file.windows.len(), counted.files[0].windows.len());
            let mut requests = 0;
            for window in &file.windows {
                assert!(window.regions.is_sorted_by(|left, right| left.region < right.region));
                let company = window.company;
                assert!((0.0..=1.0).contains(&company.same_region) && (0.0..=1.0).contains(&company.adjoining));
                for region in &window.regions {
                    assert!((1..=trace.processes.len()).contains(&(region.processes as usize)));
                    assert!((1..=region.processes).contains(&region.processes_per_node) && region.slices.0 != 0);
                    assert!(
                        region
                            .counts
                            .iter()
                            .all(|(class, count)| usize::from(class.0) < file.classes.len() && *count > 0)
                    );
                    requests += region.counts.iter().map(|(_, count)| count).sum::<u64>();
                }
            }
            assert!(requests > 0);
            most = most.max(requests);
        }
    }
    let found = statistics(&trace, &CountOptions::default(), 3).unwrap();
    assert_eq!(found.events, events);
    for file in &found.files {
        assert_eq!(heat_map(&trace, file.file, 7, 5).read_bytes.len(), 35);
        assert!(!file.bandwidth_mb_s().is_nan());
    }
    assert!(alignment(&trace, None, ByteCount(64 << 10), SMALL_REQUEST).requests <= events);
    write_csv(&trace, std::io::sink()).unwrap();
    count_together(&[trace], &CountOptions::default()).unwrap();
    Some(most)
}

struct Sample {
    name: &'static str,
    files: Vec<(PathBuf, Vec<u8>)>,
    is_text: bool,
}

/// Traces of all formats, each a directory of small files.
fn samples() -> Vec<Sample> {
    let directory = tempfile::tempdir().unwrap();
    let mut own = Vec::new();
    for (number, pattern) in
        [Pattern::Strided, Pattern::Zipf { exponent: 0.8, region_size: ByteCount(1 << 20) }].into_iter().enumerate()
    {
        let path = directory.path().join(number.to_string());
        std::fs::create_dir(&path).unwrap();
        let workload = Workload {
            pattern,
            file_size: ByteCount(16 << 20),
            request_size: ByteCount(48 << 10),
            direction: if number == 0 { Direction::Read } else { Direction::Write },
            ranks: 3,
            requests_per_rank: 40,
            seed: 3,
        };
        let shape = TraceShape { nodes: 2, file: format!("/data/{number}"), ..TraceShape::default() };
        write_trace(&workload.generator().unwrap(), &shape, &path).unwrap();
        own.push(path);
    }
    let read = |path: &Path| {
        let mut files: Vec<(PathBuf, Vec<u8>)> = std::fs::read_dir(path)
            .unwrap()
            .map(|entry| entry.unwrap())
            .map(|entry| (entry.file_name().into(), std::fs::read(entry.path()).unwrap()))
            .collect();
        files.sort();
        files
    };
    let mut samples: Vec<Sample> =
        own.iter().map(|path| Sample { name: "own", files: read(path), is_text: false }).collect();
    // As a process that was killed leaves it: not finished, and no length.
    let mut killed = read(&own[0]);
    for (name, bytes) in &mut killed {
        if name.extension().is_some() && name.to_string_lossy().ends_with(".swt") {
            bytes[80] = 0;
            bytes[88..96].fill(0);
        }
    }
    samples.push(Sample { name: "killed", files: killed, is_text: false });
    let mut csv = Vec::new();
    write_csv(&Trace::open(&own[1]).unwrap(), &mut csv).unwrap();
    samples.push(Sample { name: "csv", files: vec![("a.csv".into(), csv)], is_text: true });
    let line = |number: u64| format!("pread 3 {} 65536 12.{number:03} 12.{number:03}5 /data/a file\n", number << 16);
    let iosig = (0..50).map(line).collect::<String>() + "MPI_File_write_at 3 0 1048576 1.3535e3 1354 /data/b\n";
    samples.push(Sample {
        name: "iosig",
        files: vec![
            ("posix_trace_rank-0.out".into(), iosig.clone().into_bytes()),
            ("mpiio_trace_rank-7.out".into(), iosig.replace("pread", "READ").into_bytes()),
        ],
        is_text: true,
    });
    samples
}

fn write(sample: &[(PathBuf, Vec<u8>)], directory: &Path) {
    std::fs::create_dir(directory).unwrap();
    for (name, bytes) in sample {
        std::fs::write(directory.join(name), bytes).unwrap();
    }
}

/// What to open of a sample: its only file, or its directory.
fn entrance(sample: &Sample, directory: &Path) -> PathBuf {
    if sample.files.len() == 1 { directory.join(&sample.files[0].0) } else { directory.to_owned() }
}

fn number_from(variable: &str) -> Option<u64> {
    std::env::var(variable).ok().map(|text| text.parse().expect("a number"))
}

#[test]
fn whatever_is_damaged_is_read_or_refused() {
    let samples = samples();
    let base = tempfile::tempdir().unwrap();
    for (number, sample) in samples.iter().enumerate() {
        let directory = base.path().join(format!("whole{number}"));
        write(&sample.files, &directory);
        let whole = look(&entrance(sample, &directory));
        assert!(whole.is_some_and(|requests| requests >= 50), "{} before any damage: {whole:?}", sample.name);
    }
    let first = number_from("STRIPEWISE_MUTANT_SEED").unwrap_or(1);
    let mutants = number_from("STRIPEWISE_MUTANTS").unwrap_or(300);
    let mut read = 0;
    for seed in first..first + mutants {
        let mut random = Random(seed);
        let sample = &samples[random.below(samples.len())];
        let mut files = sample.files.clone();
        let place = random.below(files.len());
        let other = random.below(files.len());
        let other = files[other].1.clone();
        if sample.is_text {
            damage_text(&mut files[place].1, &other, &mut random);
        } else {
            damage(&mut files[place].1, &other, &mut random);
        }
        let directory = base.path().join("mutant");
        write(&files, &directory);
        match catch_unwind(AssertUnwindSafe(|| look(&entrance(sample, &directory)))) {
            Ok(found) => read += u64::from(found.is_some()),
            Err(panic) => {
                eprintln!("mutant of {}: STRIPEWISE_MUTANT_SEED={seed} STRIPEWISE_MUTANTS=1", sample.name);
                std::panic::resume_unwind(panic);
            }
        }
        std::fs::remove_dir_all(&directory).unwrap();
    }
    // Mutants that are all refused test little.
    assert!(mutants < 100 || read * 4 > mutants, "{read} of {mutants} mutants were read");
}
