//! Plans as the layouts that a site's own file system can set.
//!
//! Each kind of file system is one module and one row of [`NATIVES`]: what a site says of it, how a file's planned regions become a layout that it knows, and the
//! script that sets it. [`export`] does so for all files of a plan and predicts what is lost. `stripewise export`, `stripewise site`, their help and the tests read
//! the rows.

mod beegfs;
mod cephfs;
mod drawn;
#[cfg(test)]
mod dummy;
mod export;
mod exported;
mod fit;
mod found;
mod layout;
mod lustre;
mod mirrors;
mod moosefs;
mod orangefs;
mod predicting;
mod script;
mod whereabouts;

pub use drawn::Objects;
pub use export::{check, export};
pub use exported::{Export, ExportError, ExportRequest, ExportedFile, Loss, RefusedFile, TargetBytes};
pub use fit::Refusal;
pub use found::{Ask, Found};
pub use layout::{NativeLayout, Part, Turn};
pub use script::Script;
pub use whereabouts::{Whereabouts, drawings, mean};

use crate::file_system::FileSystem;
use crate::site::Site;
use fit::Wanted;
use std::path::Path;

/// A kind of file system that plans are exported to.
pub struct Native {
    /// Its name, and what a description of a site needs to know of it.
    pub fs: FileSystem,
    /// A commented `site.toml` to start from.
    pub example: &'static str,
    /// What its layouts can say of a file, as the end of a sentence.
    pub expresses: &'static str,
    /// What of a plan is lost, likewise.
    pub loses: &'static str,
    /// What a plan's replicas become; `None`: a file has one layout.
    pub mirrors: Option<Mirrors>,
    /// What the site's description lacks before anything can be exported, with the remedy.
    lacks: fn(&Site) -> Option<String>,
    /// What the reader of the script has to know of its layouts, one sentence each.
    remarks: fn(&Site, &[FittedFile]) -> Vec<String>,
    /// The objects of a file of one part, each of which lies on a target of the pool that the file system chooses; `None`: the layout says which target has which bytes.
    objects: Option<fn(&Part) -> Objects>,
    /// The layout that comes nearest to what is wanted of a file.
    fit: fn(&Site, &Wanted<'_>) -> Result<NativeLayout, Refusal>,
    /// The script that sets the layouts.
    script: fn(&Site, &[FittedFile]) -> Script,
    /// What the file system's own commands say of the site that is mounted there.
    detect: fn(&mut Ask<'_>, &Path) -> Result<Found, String>,
    /// The layouts that commands set, by the grammar of the commands' manuals; an error where they would refuse.
    #[cfg(test)]
    read_back: fn(&Site, &[Vec<String>], &Script) -> ReadBack,
}

/// Further copies of a whole file, each with a layout of its own.
pub struct Mirrors {
    /// Of one file, beside the first copy.
    pub most: usize,
    /// What the reader of a script that makes them has to know, as a sentence.
    pub note: &'static str,
}

/// A file with the layout that it gets.
#[derive(Clone, PartialEq, Eq, Debug)]
struct FittedFile {
    path: String,
    layout: NativeLayout,
    /// Of further copies; at most as many as the row says.
    mirrors: Vec<NativeLayout>,
}

/// Files and their layouts, in the order of the commands; a further copy has the path of its file.
#[cfg(test)]
type ReadBack = Result<Vec<(String, NativeLayout)>, String>;

impl Native {
    /// What the file system's own commands, run by `ask`, say of the site that is mounted at `mount`.
    ///
    /// # Errors
    ///
    /// The command that failed and how, or that it lists no targets.
    pub fn detect(&self, ask: &mut Ask<'_>, mount: &Path) -> Result<Found, String> {
        (self.detect)(ask, mount)
    }
}

/// All kinds of file systems.
pub static NATIVES: &[&Native] = &[
    &lustre::NATIVE,
    &beegfs::NATIVE,
    &cephfs::NATIVE,
    &moosefs::NATIVE,
    &orangefs::NATIVE,
    #[cfg(test)]
    &dummy::NATIVE,
];

/// The rows' file systems, for reading a site.
#[must_use]
pub fn file_systems() -> Vec<FileSystem> {
    NATIVES.iter().map(|native| native.fs).collect()
}

/// The names of all rows.
#[must_use]
pub fn names() -> Vec<&'static str> {
    NATIVES.iter().map(|native| native.fs.name).collect()
}

/// The row of that name.
#[must_use]
pub fn lookup(name: &str) -> Option<&'static Native> {
    NATIVES.iter().copied().find(|native| native.fs.name == name)
}

#[cfg(test)]
mod tests;
