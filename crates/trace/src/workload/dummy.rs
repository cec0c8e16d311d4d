//! A workload for the tests alone. It has what every workload has, a module and a row of the table, and is found wherever workloads are.

use super::parameters::{Described, Parameter, parameter};
use super::{Benchmark, WorkloadError, help, reference};
use crate::program::{FileShape, IoRequest, Program, ProgramCountOptions, ProgramFile, Step, count_program};
use stripewise_layout::{ByteCount, Direction, FileOffset};

#[derive(Clone, PartialEq, Debug)]
pub struct Dummy {
    size: ByteCount,
}

impl Default for Dummy {
    fn default() -> Self {
        Self { size: ByteCount(4096) }
    }
}

impl Described for Dummy {
    const NAME: &'static str = "dummy";
    const ABOUT: &'static str = "dummy reads its file at once.";
    const EXAMPLE: &'static str = "dummy:size=1MiB";

    fn parameters() -> Vec<Parameter<Self>> {
        vec![parameter!("size", "-s", size, "bytes of the dummy's file")]
    }
}

impl Dummy {
    pub(super) fn program(&self) -> Result<Box<dyn Program>, WorkloadError> {
        Ok(Box::new(OneRequest([FileShape { path: "/dummy".to_owned(), size_bytes: self.size.0 }])))
    }
}

struct OneRequest([FileShape; 1]);

impl Program for OneRequest {
    fn files(&self) -> &[FileShape] {
        &self.0
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

    fn steps(&self, _process: u32) -> Box<dyn Iterator<Item = Step> + Send + '_> {
        let [file] = &self.0;
        let request = IoRequest {
            file: ProgramFile(0),
            kind: Direction::Read.into(),
            offset: FileOffset(0),
            bytes: file.size_bytes,
        };
        Box::new(std::iter::once(Step::Access(request)))
    }
}

#[test]
fn a_row_makes_a_workload_known_everywhere() {
    assert!(Benchmark::NAMES.contains(&"dummy"));
    let benchmark: Benchmark = "dummy:size=64KiB".parse().unwrap();
    assert_eq!((benchmark.name(), benchmark.to_string()), ("dummy", "dummy:size=64KiB".to_owned()));
    let unknown = "dumm".parse::<Benchmark>().unwrap_err().to_string();
    assert!(unknown.contains("checkpoint, dummy"), "{unknown}");
    let wrong = "dummy:sise=1".parse::<Benchmark>().unwrap_err().to_string();
    assert!(wrong.contains("dummy: `sise` (= 1) is not one of its parameters; known: size"), "{wrong}");
    assert!(
        help().contains("dummy, as in dummy:size=1MiB") && help().contains("bytes of the dummy's file"),
        "{}",
        help()
    );
    assert!(reference().contains("dummy reads its file at once.") && reference().contains("bytes of the dummy's file"));
    let program = benchmark.program().unwrap();
    let counted = count_program(&*program, &ProgramCountOptions::default());
    assert_eq!((counted.len(), counted[0].path.as_str(), counted[0].size_bytes), (1, "/dummy", 65_536));
}
