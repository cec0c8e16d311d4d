use super::*;
use crate::access::Slices;
use crate::counts::{CountOptions, count};
use crate::program::{FileShape, IoRequest, ProgramFile};
use crate::trace::Trace;
use crate::workload::{Benchmark, Generator, Pattern, TraceShape, Workload, write_trace};
use proptest::prelude::*;
use stripewise_layout::{Direction, FileOffset};

fn counted_as_trace(generator: &Generator, nodes: u32, options: &CountOptions) -> Vec<FileAccess> {
    let directory = tempfile::tempdir().unwrap();
    write_trace(generator, &TraceShape { nodes, ..TraceShape::default() }, directory.path()).unwrap();
    count(&Trace::open(directory.path()).unwrap(), options).unwrap()
}

fn workload(pattern: Pattern, ranks: u32, requests_per_rank: u64) -> Workload {
    Workload {
        pattern,
        file_size: ByteCount(1 << 30),
        request_size: ByteCount(64 << 10),
        direction: Direction::Read,
        ranks,
        requests_per_rank,
        seed: 42,
    }
}

const ZIPF: Pattern = Pattern::Zipf { exponent: 0.8, region_size: ByteCount(4 << 20) };

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]
    /// A program and the trace of it say the same of everything but time and nodes (a plain workload has no nodes of its own).
    #[test]
    fn a_program_is_counted_as_its_trace(
        pattern in prop_oneof![Just(ZIPF), Just(Pattern::Sequential), Just(Pattern::Strided)],
        ranks in 1..9u32,
        requests_per_rank in 1..300u64,
        region_bytes in prop_oneof![Just(1u64 << 20), Just(100_000), Just(64 << 20)],
        is_read in any::<bool>(),
        class_limit in prop_oneof![Just(32u16), Just(4)],
    ) {
        let direction = if is_read { Direction::Read } else { Direction::Write };
        let generator = Workload { direction, ..workload(pattern, ranks, requests_per_rank) }.generator().unwrap();
        let region_size = ByteCount(region_bytes);
        let options = ProgramCountOptions { region_size, class_limit, ..ProgramCountOptions::default() };
        let mut of_program = count_program(&generator, &options);
        let nodes = Program::nodes(&generator);
        let mut of_trace = counted_as_trace(&generator, nodes, &CountOptions { region_size, class_limit, ..CountOptions::default() });
        for file in of_program.iter_mut().chain(&mut of_trace) {
            // What a program knows beforehand, a trace sees only as far as the requests go.
            (file.size_bytes, file.path) = (0, String::new());
            for window in &mut file.windows {
                window.company = Company::default();
                window.regions.iter_mut().for_each(|region| region.slices = Slices::ALL);
            }
        }
        prop_assert_eq!(of_program, of_trace);
    }
}

#[test]
fn company_tells_patterns_apart() {
    let company = |pattern, ranks| {
        let generator = workload(pattern, ranks, 1024).generator().unwrap();
        let region_size = ByteCount(4 << 20);
        let of_program =
            count_program(&generator, &ProgramCountOptions { region_size, ..ProgramCountOptions::default() });
        let of_trace = counted_as_trace(&generator, 1, &CountOptions { region_size, ..CountOptions::default() });
        [of_program[0].windows[0].company, of_trace[0].windows[0].company]
    };
    for found in company(ZIPF, 16) {
        assert!(found.same_region < 0.02 && found.adjoining < 0.02, "zipf: {found:?}");
    }
    // 16 ranks side by side in order: of their 16 requests, 15 adjoin, and all lie in a region but for its borders.
    for found in company(Pattern::Strided, 16) {
        assert!(found.same_region > 0.9 && found.adjoining > 0.93, "interleaved: {found:?}");
    }
    for found in company(Pattern::Sequential, 16) {
        assert!(found.same_region < 0.01 && found.adjoining < 0.01, "segmented: {found:?}");
    }
    for found in company(ZIPF, 1) {
        assert_eq!(found, Company::default());
    }
}

#[test]
fn rows_of_a_grid_lie_apart_and_parts_of_one_row_adjoin() {
    // Two by two processes, each with half of a row; the rows of the two halves of a plane are 51 rows of 102 x 40 bytes apart.
    let grid: Benchmark = "btio:class=B,processes=4,time_steps=5,op=write".parse().unwrap();
    let company = |program: &dyn Program| {
        let options = ProgramCountOptions { region_size: ByteCount(64 << 20), ..ProgramCountOptions::default() };
        count_program(program, &options)[0].windows[0].company
    };
    let found = company(&*grid.program().unwrap());
    assert!((found.adjoining - 0.5).abs() < 0.02, "{found:?}");
    assert_eq!((found.skip_bytes, found.apart_bytes), (0, 51 * 102 * 40));
    // Regions of HPIO that are 4 KiB apart: one run, with a skip between its requests.
    let spaced: Benchmark =
        "hpio:region_count=500,region_size=16KiB,region_spacing=4KiB,processes=8,op=read".parse().unwrap();
    let found = company(&*spaced.program().unwrap());
    assert_eq!((found.skip_bytes, found.apart_bytes), (4096, 0), "{found:?}");
}

#[test]
fn company_of_older_counts_says_nothing_of_distances() {
    let found: Company = serde_json::from_str(r#"{"same_region": 0.5, "adjoining": 0.25}"#).unwrap();
    assert_eq!(found, Company { same_region: 0.5, adjoining: 0.25, skip_bytes: 0, apart_bytes: 0 });
}

#[test]
fn slices_tell_when() {
    // A rank of its own goes through 64 regions in order: one region in each slice.
    let generator =
        Workload { request_size: ByteCount(1 << 20), ..workload(Pattern::Sequential, 1, 1024) }.generator().unwrap();
    let region_size = ByteCount(16 << 20);
    let of_program = count_program(&generator, &ProgramCountOptions { region_size, ..ProgramCountOptions::default() });
    let of_trace = counted_as_trace(&generator, 1, &CountOptions { region_size, ..CountOptions::default() });
    for file in [&of_program[0], &of_trace[0]] {
        let slices: Vec<u64> = file.windows[0].regions.iter().map(|region| region.slices.0).collect();
        assert_eq!(slices.len(), 64);
        // A trace lasts until the end of its last request, a little behind equal shares.
        for (number, slices) in slices.iter().enumerate() {
            let allowed = 1u64 << number | 1 << number.saturating_sub(1);
            assert!(*slices != 0 && slices & !allowed == 0, "region {number}: {slices:b}");
        }
    }
    assert!(of_program[0].windows[0].regions.iter().enumerate().all(|(number, region)| region.slices.0 == 1 << number));
}

/// One process, every request of another size, in another place.
struct ManySizes {
    files: Vec<FileShape>,
    requests: u64,
}

impl Program for ManySizes {
    fn files(&self) -> &[FileShape] {
        &self.files
    }
    fn processes(&self) -> u32 {
        1
    }
    fn nodes(&self) -> u32 {
        1
    }
    fn phases(&self) -> u32 {
        1
    }
    fn steps(&self, _: u32) -> Box<dyn Iterator<Item = Step> + Send + '_> {
        let request = |number: u64| IoRequest {
            file: ProgramFile(0),
            kind: Direction::Write.into(),
            offset: FileOffset(number << 26),
            bytes: number + 1,
        };
        Box::new((0..self.requests).map(move |number| Step::Access(request(number % 100_003))))
    }
}

#[test]
fn a_hundred_thousand_sizes_become_few_classes() {
    let program = ManySizes { files: vec![FileShape { path: "/data/a".into(), size_bytes: 0 }], requests: 100_003 };
    let counted = count_program(&program, &ProgramCountOptions::default());
    assert!(counted[0].classes.len() <= 32);
    let regions = &counted[0].windows[0].regions;
    assert_eq!(regions.len(), 100_003);
    let of_class = |(class, count): &(crate::ClassIndex, u64)| counted[0].class(*class).request_bytes * count;
    let bytes: u64 = regions.iter().flat_map(|region| &region.counts).map(of_class).sum();
    let exact: u64 = (1..=100_003).sum();
    assert!(bytes.abs_diff(exact) * 1000 < exact, "{bytes} of {exact}");
}
