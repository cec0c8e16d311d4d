//! The benchmarks by name.

use super::WorkloadError;
use super::btio::Btio;
use super::checkpoint::Checkpoint;
use super::chombo::Chombo;
#[cfg(test)]
use super::dummy::Dummy;
use super::hpio::Hpio;
use super::ior::Ior;
use super::mpi_io_test::MpiIoTest;
use super::parameters::{self, Described, ParseBenchmarkError};
use super::tile::TileIo;
use crate::program::Program;
use std::fmt;
use std::str::FromStr;

macro_rules! benchmarks {
    ($(#[doc = $doc:literal] $(#[cfg($condition:meta)])? $variant:ident($kind:ty)),+ $(,)?) => {
        /// A benchmark of the field with its parameters.
        ///
        /// Reads and prints as `name:key=value,key=value`; what is not given has its default. Printing gives the shortest text that
        /// reads as the same benchmark.
        #[derive(Clone, PartialEq, Debug)]
        pub enum Benchmark {
            $(#[doc = $doc] $(#[cfg($condition)])? $variant($kind)),+
        }

        impl Benchmark {
            /// Every benchmark's name, in the order of `docs/workloads.md`.
            pub const NAMES: &'static [&'static str] = &[$($(#[cfg($condition)])? <$kind as Described>::NAME),+];

            /// What stands before the colon of the text form.
            #[must_use]
            pub fn name(&self) -> &'static str {
                match self { $($(#[cfg($condition)])? Self::$variant(_) => <$kind as Described>::NAME),+ }
            }

            /// The benchmark as a program, with the tables that all its processes share.
            ///
            /// # Errors
            /// When the parameters do not fit one another: names the key, its value and what is wanted.
            pub fn program(&self) -> Result<Box<dyn Program>, WorkloadError> {
                match self { $($(#[cfg($condition)])? Self::$variant(benchmark) => benchmark.program()),+ }
            }
        }

        impl FromStr for Benchmark {
            type Err = ParseBenchmarkError;

            fn from_str(text: &str) -> Result<Self, Self::Err> {
                let (name, rest) = text.trim().split_once(':').unwrap_or((text.trim(), ""));
                $($(#[cfg($condition)])? {
                    if name == <$kind as Described>::NAME {
                        return parameters::read::<$kind>(rest).map(Self::$variant);
                    }
                })+
                Err(ParseBenchmarkError::Benchmark { name: name.to_owned(), known: Self::NAMES.join(", ") })
            }
        }

        impl fmt::Display for Benchmark {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match self { $($(#[cfg($condition)])? Self::$variant(benchmark) => parameters::print(benchmark, f)),+ }
            }
        }

        /// All benchmarks and their parameters, as `docs/workloads.md` shows them.
        #[must_use]
        pub fn reference() -> String {
            [INTRODUCTION.to_owned(), $($(#[cfg($condition)])? parameters::reference::<$kind>()),+].join("\n")
        }

        /// All benchmarks and their parameters, for a terminal.
        #[must_use]
        pub fn help() -> String {
            [$($(#[cfg($condition)])? parameters::help::<$kind>()),+].join("\n")
        }

        #[cfg(test)]
        const EXAMPLES: &[&str] = &[$($(#[cfg($condition)])? <$kind as Described>::EXAMPLE),+];
    };
}

benchmarks! {
    /// Blocks in segments, random offsets, Zipf's law, a hot set that changes.
    Ior(Ior),
    /// Regions with spaces between.
    Hpio(Hpio),
    /// A grid on a square number of processes, written every few time steps.
    Btio(Btio),
    /// Tiles of a two-dimensional array.
    TileIo(TileIo),
    /// Blocks side by side in the order of ranks.
    MpiIoTest(MpiIoTest),
    /// Boxes of many sizes.
    Chombo(Chombo),
    /// Bursts of writes between times of computing.
    Checkpoint(Checkpoint),
    /// One request.
    #[cfg(test)]
    Dummy(Dummy),
}

const INTRODUCTION: &str = "# Workloads

<!-- Made from the tables below crates/trace/src/workload; a test there holds this text to them. -->

A command that takes a workload accepts a recorded trace or one of these benchmarks, written as `name:key=value,key=value`. Sizes are
written as `64KiB`, times as `10ms`. The second column gives the corresponding option of the real benchmark; keys without one are ours.
A generator makes the requests of the benchmark's data phase, in order, with the barriers between them. It makes no requests for opening
and closing files or for the benchmark's own measurements.
";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_benchmark_reads_what_it_prints() {
        for example in EXAMPLES {
            let benchmark: Benchmark = example.parse().unwrap_or_else(|fault| panic!("{example}: {fault}"));
            assert_eq!(benchmark.to_string().parse::<Benchmark>().as_ref(), Ok(&benchmark), "{example}");
            benchmark.program().unwrap_or_else(|fault| panic!("{example}: {fault}"));
        }
        for name in Benchmark::NAMES {
            let benchmark: Benchmark = name.parse().unwrap();
            assert_eq!(benchmark.to_string(), *name);
            assert_eq!(benchmark.name(), *name);
            benchmark.program().unwrap_or_else(|fault| panic!("{name}: {fault}"));
        }
    }

    #[test]
    fn what_is_wrong_is_named() {
        let fault = |text: &str| text.parse::<Benchmark>().unwrap_err().to_string();
        assert!(fault("iro:size=1GiB").starts_with("`iro` is not a benchmark; known: ior"));
        assert!(
            fault("ior:tranfer=64KiB")
                .starts_with("ior: `tranfer` (= 64KiB) is not one of its parameters; known: pattern, a,")
        );
        assert!(fault("ior:size").starts_with("ior: `size` is not key=value; known keys: pattern,"));
        assert!(fault("ior:size=1GiB,size=2GiB").starts_with("ior: size is given twice, the second time as 2GiB"));
        let text = fault("ior:pattern=zip");
        assert!(
            text.starts_with("ior: pattern=zip: want one of sequential, random, zipf (keys of ior: pattern,"),
            "{text}"
        );
        assert!(fault("ior:transfer=64Kib/s").contains("want a size such as"));
        assert!(fault("ior:file=data").contains("want an absolute path"));
    }
}
