//! What an export is asked for, and what it answers.

use super::fit::Refusal;
use super::layout::NativeLayout;
use super::script::Script;
use crate::plan::{Gain, Plan};
use crate::predict::Throughput;
use crate::request::RequestError;
use crate::site::{Site, SiteServers};
use serde::Serialize;
use stripewise_layout::Placement;
use stripewise_trace::FileAccess;

/// What is exported to where.
pub struct ExportRequest<'a> {
    /// Servers are found in the site by name.
    pub plan: &'a Plan,
    /// The site.
    pub site: &'a Site,
    /// Its targets as servers.
    pub servers: &'a SiteServers,
    /// Accesses of the plan's files, in regions of the plan's size; none: nothing is predicted.
    pub accesses: &'a [FileAccess],
}

/// Why a plan cannot be exported at all.
#[derive(Debug, thiserror::Error)]
pub enum ExportError {
    /// The plan uses servers that the site does not have.
    #[error(
        "the plan uses {}, which {site} does not name; name its targets as the plan's servers are named, or have `stripewise advise` make a plan for the site from the run's logs",
        servers.join(", ")
    )]
    OtherServers {
        /// The site's file.
        site: String,
        /// Names of the servers.
        servers: Vec<String>,
    },
    /// A server is of another class than the target of its name.
    #[error(
        "server `{name}` is {planned} in the plan and {found} in {site}; correct the one, or have `stripewise advise` make a plan for the site from the run's logs"
    )]
    OtherClass {
        /// The site's file.
        site: String,
        /// The server.
        name: String,
        /// Its class in the plan.
        planned: String,
        /// Its class in the site.
        found: String,
    },
    /// The plan has no files.
    #[error("the plan has no files, so there is nothing to export; plan a run that reads or writes files")]
    Nothing,
    /// The accesses cannot be predicted for.
    #[error(transparent)]
    Request(#[from] RequestError),
    /// No file can be exported.
    #[error("{path}: {reason}")]
    Refused {
        /// The first file.
        path: String,
        /// Why.
        reason: Refusal,
    },
    /// The site's description lacks something.
    #[error("{site}: {lack}")]
    Site {
        /// The site's file.
        site: String,
        /// What, and the remedy.
        lack: String,
    },
}

/// A plan as a site's own layouts.
#[derive(Clone, PartialEq, Debug, Serialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct Export {
    /// The kind of file system.
    pub to: String,
    /// The files that get a layout, in the order of the plan.
    pub files: Vec<ExportedFile>,
    /// Files that get none.
    pub refused: Vec<RefusedFile>,
    /// Of all exported files together; `None`: their accesses are not known.
    pub predicted: Option<Loss>,
    /// What the reader should know besides, one sentence each.
    pub notes: Vec<String>,
    /// The script, for `/bin/sh`, and what belongs to it. Bytes that are no text are replaced here, not in the files that are written.
    #[serde(serialize_with = "as_text")]
    #[cfg_attr(feature = "schemas", schemars(with = "String"))]
    pub script: Script,
}

fn as_text<S: serde::Serializer>(script: &Script, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&String::from_utf8_lossy(&script.text))
}

/// A file and the layout that it gets.
#[derive(Clone, PartialEq, Debug, Serialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct ExportedFile {
    /// As in the plan.
    pub path: String,
    /// Whether that is a path. Else it stands for one that the logs do not have, and the script's commands wait for it as comments.
    pub has_path: bool,
    /// Largest size during the traced run.
    pub size_bytes: u64,
    /// Parts of the plan: consecutive regions with one layout.
    pub planned_parts: usize,
    /// Parts of the layout that is set.
    pub parts: usize,
    /// Whether every region has the layout that was planned for it.
    pub exact: bool,
    /// Further copies of the whole file that are made for the plan's replicas.
    pub mirrors: usize,
    /// Where its bytes lie then, all copies of them, on the targets that hold most.
    pub targets: Vec<TargetBytes>,
    /// As plans say it.
    #[serde(skip)]
    pub placement: Placement,
    /// The layout that is set.
    #[serde(skip)]
    pub layout: NativeLayout,
    /// Those of further copies.
    #[serde(skip)]
    pub mirror_layouts: Vec<NativeLayout>,
}

impl ExportedFile {
    /// Bytes of all copies on each of so many targets.
    #[must_use]
    pub fn target_bytes(&self, targets: usize) -> Vec<u64> {
        copies_bytes(std::iter::once(&self.layout).chain(&self.mirror_layouts), targets, self.size_bytes)
    }
}

/// Bytes that copies of a file of that size put on each of so many targets.
pub(super) fn copies_bytes<'l>(
    copies: impl Iterator<Item = &'l NativeLayout>,
    targets: usize,
    size_bytes: u64,
) -> Vec<u64> {
    let mut sums = vec![0u64; targets];
    for copy in copies {
        sums.iter_mut().zip(copy.target_bytes(targets, size_bytes)).for_each(|(sum, bytes)| *sum += bytes);
    }
    sums
}

/// A target and what it holds of a file.
#[derive(Clone, PartialEq, Debug, Serialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct TargetBytes {
    /// Name of the target.
    pub name: String,
    /// Bytes of the file.
    pub bytes: u64,
}

/// A file that gets no layout.
#[derive(Clone, PartialEq, Debug, Serialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct RefusedFile {
    /// As in the plan.
    pub path: String,
    /// Why, in one sentence with the remedy.
    pub reason: String,
}

/// What is predicted of the exported files, their accesses taken together.
#[derive(Clone, PartialEq, Debug, Serialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct Loss {
    /// Of the plan as it is, without the time of its moves.
    pub ideal: Throughput,
    /// Of the layouts that are set.
    pub exported: Throughput,
    /// Of what the files get at the site by default.
    pub default: Throughput,
    /// Time of `exported` over that of `ideal`, less 1: 0 where nothing is lost.
    pub loss: Gain,
    /// Time of `default` over that of `exported`, less 1: negative where the default is better.
    pub gain: Gain,
}
