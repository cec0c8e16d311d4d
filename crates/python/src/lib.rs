//! `stripewise._stripewise`, the part of the Python package that is machine code.
//!
//! The package in `python/stripewise` is what people import: it wraps what is here in classes with Python's own manners (`io.RawIOBase`, objects with
//! notebook display). What crosses the border is of three kinds: managed files as buffers, tables by the Arrow C stream interface, and everything else as
//! the JSON that the command prints with `--json`. No Python object is touched while files are read or traces counted: the interpreter's other threads go on.
//!
//! | module | what |
//! |---|---|
//! | `failure` | errors as Python exceptions |
//! | `connection` | the process's clients of clusters |
//! | `brokers` | brokers that this process starts for them |
//! | `forking` | what becomes of both when the process forks |
//! | `requests` | those under way, which a fork waits for |
//! | `opening` | which files are managed; making new ones |
//! | `file` | an open managed file |
//! | `names` | status, removal and renaming of managed files |
//! | `tables` | record batches as Arrow streams |
//! | `traces` | traces and their counts |
//! | `planning` | profiles, policies and plans |
//! | `answers` | simulations, advice and reports |
//! | `workers` | the threads of the three |
#![deny(clippy::print_stdout)]

mod answers;
mod brokers;
mod connection;
mod failure;
mod file;
mod forking;
mod names;
mod opening;
mod planning;
mod requests;
mod tables;
mod traces;
mod workers;

use pyo3::prelude::*;

/// Machine code of the package `stripewise`; import that.
#[pymodule]
mod _stripewise {
    #[pymodule_export]
    use crate::answers::{advise, heat, report, simulate};
    #[pymodule_export]
    use crate::failure::StripewiseError;
    #[pymodule_export]
    use crate::file::File;
    #[pymodule_export]
    use crate::forking::{after_fork_in_child, after_fork_in_parent, before_fork};
    #[pymodule_export]
    use crate::names::{remove, rename, status};
    #[pymodule_export]
    use crate::opening::open_managed;
    #[pymodule_export]
    use crate::planning::{Plan, Profile, plan, policies};
    #[pymodule_export]
    use crate::traces::{Counts, Trace};

    use pyo3::prelude::*;

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        module.add("__version__", env!("CARGO_PKG_VERSION"))
    }
}
