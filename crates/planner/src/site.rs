//! `site.toml`: what a site's parallel file system has, as planning and the export of plans need it.
//!
//! The file is read strictly, as a cluster file is: an unknown key, a target named twice or a pool of unknown targets is an error that names the line.
//! Groups of equal targets give class, capacity and parameters; [`Site::servers`] makes a cluster and a profile of them, which is all that policies and
//! predictions need to know of a site.

mod fault;
mod names;
mod servers;

pub use servers::{LinkTimes, SiteServers, TargetTimes, Times, UNMEASURED_SPREAD};

use crate::file_system::FileSystem;
use fault::Fault;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use stripewise_layout::cluster::DEFAULT_REGION_BYTES;
use stripewise_layout::{ByteCount, ByteRate, ServerClass, input};

/// The version written to and accepted from `site.toml`.
pub const SITE_VERSION: u32 = 1;

/// Why a site's description cannot be used. Each variant names the file.
#[derive(Debug, thiserror::Error)]
pub enum SiteError {
    /// The file is missing, unreadable, not UTF-8 or longer than [`input::MAX_CLUSTER_BYTES`].
    #[error("cannot read the site {}: {source} (`stripewise site example` prints one to start from)", path.display())]
    Read {
        /// The file as the caller named it.
        path: PathBuf,
        /// Cause by the operating system or by [`input`].
        source: std::io::Error,
    },
    /// The text is not TOML, or has an unknown, missing or mistyped key.
    #[error("{}: {message}", path.display())]
    Syntax {
        /// The file as the caller named it.
        path: PathBuf,
        /// Cause with line and column, by the TOML parser.
        message: String,
    },
    /// The file was written for another version of the format.
    #[error("{}: version {found} of a site is not supported; this stripewise reads version {SITE_VERSION} (`stripewise site example` prints one)", path.display())]
    Version {
        /// The file as the caller named it.
        path: PathBuf,
        /// `version` as it stands in the file.
        found: u32,
    },
    /// A value is out of range or contradicts another one.
    #[error("{}: {message}", path.display())]
    Invalid {
        /// The file as the caller named it.
        path: PathBuf,
        /// Line, value and remedy.
        message: String,
    },
}

/// The file as it is written.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct SiteFile {
    /// [`SITE_VERSION`].
    #[cfg_attr(feature = "schemas", schemars(extend("const" = SITE_VERSION)))]
    pub version: u32,
    /// Kind of file system.
    pub fs: String,
    /// Where it is mounted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mount: Option<PathBuf>,
    /// Size of the regions in which files are planned, a multiple of 64 KiB; 64 MiB where the file does not say.
    #[serde(default = "default_region", rename = "region", skip_serializing_if = "is_default_region")]
    pub region_size: ByteCount,
    /// Bytes that a file's layout may take, where metadata servers have less room for it than the file system allows: Lustre alone, 64 KiB where the file does not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub layout_bytes: Option<ByteCount>,
    /// A calibrated profile whose servers are named as the targets; a relative path begins where the site's file lies.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub profile: Option<PathBuf>,
    /// Layout of a file about which nobody says anything.
    #[serde(default, skip_serializing_if = "DefaultLayout::is_empty")]
    pub default: DefaultLayout,
    /// Between client nodes and targets; none lies between where the file does not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network: Option<Network>,
    /// Groups of equal targets.
    pub targets: Vec<TargetGroup>,
    /// Pools besides those that groups name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pool: Vec<PoolOf>,
}

fn default_region() -> ByteCount {
    ByteCount(DEFAULT_REGION_BYTES)
}

fn is_default_region(size: &ByteCount) -> bool {
    *size == default_region()
}

/// `[default]`: what a new file gets. What is not said is the file system's own default.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct DefaultLayout {
    /// Targets of a file; 0: all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stripe_count: Option<u32>,
    /// Bytes on one target before the next one's turn.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stripe_size: Option<ByteCount>,
    /// Pool that files come from; without it, all targets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pool: Option<String>,
}

impl DefaultLayout {
    fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// `[network]`: a named link, or its figures.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Network {
    /// A link that `stripewise devices` lists.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub link: Option<String>,
    /// Milliseconds of a message.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency_ms: Option<f64>,
    /// Bytes per second of one target's link.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bandwidth: Option<ByteRate>,
}

/// `[[targets]]`: targets that are alike.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct TargetGroup {
    /// Class of the devices.
    pub class: ServerClass,
    /// The targets, as plans name them; `first..last` counts the number at their end.
    pub names: Vec<String>,
    /// Their numbers in the file system, where they do not stand at the end of the names.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub numbers: Option<Vec<u32>>,
    /// Their addresses, where the file system's commands name targets so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub addresses: Option<Vec<String>>,
    /// Pool of the file system that has exactly these targets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pool: Option<String>,
    /// Copies of each byte that the pool keeps, all of which a write makes; 1 where the file does not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub copies: Option<u32>,
    /// Bytes that may be filled on each; unknown where the file does not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capacity: Option<ByteCount>,
    /// A device that `stripewise devices` lists.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<String>,
    /// Bytes per second of one target in order, reading, and writing where `write_bandwidth` is not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bandwidth: Option<ByteRate>,
    /// Bytes per second of one target in order, writing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub write_bandwidth: Option<ByteRate>,
    /// Milliseconds before the first byte of a random access.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency_ms: Option<f64>,
    /// Milliseconds before the first byte of an access that follows the one before; on an SSD the same as `latency_ms` where it is not given, on a
    /// disk a hundredth of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sequential_latency_ms: Option<f64>,
}

/// `[[pool]]`: a pool of targets of several groups, or of some of a group.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct PoolOf {
    /// As the file system knows it.
    pub name: String,
    /// Its targets; `first..last` as in groups.
    pub targets: Vec<String>,
    /// Copies of each byte that it keeps, as in groups.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub copies: Option<u32>,
}

/// One target of a site.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Target {
    /// Name of the server in plans.
    pub name: String,
    /// Number in the file system, where its commands use one.
    pub number: Option<u32>,
    /// Address, where commands use one.
    pub address: Option<String>,
    /// Position of its group in [`SiteFile::targets`].
    pub group: usize,
}

/// A pool by the positions of its targets in [`Site::targets`], ascending.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Pool {
    /// As the file system knows it.
    pub name: String,
    /// Positions of its targets, ascending.
    pub targets: Vec<usize>,
    /// Copies of each byte that it keeps; `None`: nobody says it.
    pub copies: Option<u32>,
}

/// A site, checked. A target's position is the number of its server in the cluster and in plans made for the site.
#[derive(Clone, PartialEq, Debug)]
pub struct Site {
    /// The file as it is written.
    pub file: SiteFile,
    /// The kind of file system.
    pub fs: FileSystem,
    /// All targets, in the order of the file.
    pub targets: Vec<Target>,
    /// All pools, those of groups first.
    pub pools: Vec<Pool>,
    path: PathBuf,
    /// What was read, to name lines.
    text: String,
}

impl Site {
    /// Reads and checks `path`, for one of the kinds of file systems in `known`.
    ///
    /// # Errors
    ///
    /// [`SiteError::Read`], and those of [`Self::parse`].
    pub fn load(path: &Path, known: &[FileSystem]) -> Result<Self, SiteError> {
        let text = input::read_text(path, input::MAX_CLUSTER_BYTES)
            .map_err(|source| SiteError::Read { path: path.to_owned(), source })?;
        Self::parse(&text, path, known)
    }

    /// As [`Self::load`], from text that stands at `path`.
    ///
    /// # Errors
    ///
    /// [`SiteError::Syntax`], [`SiteError::Version`] or [`SiteError::Invalid`], which name `path`.
    pub fn parse(text: &str, path: &Path, known: &[FileSystem]) -> Result<Self, SiteError> {
        #[derive(Deserialize)]
        struct VersionOnly {
            version: u32,
        }
        let syntax = |error: toml::de::Error| SiteError::Syntax { path: path.to_owned(), message: error.to_string() };
        // The version is looked at before the rest, so that a newer file is refused by its version and not by a key.
        let VersionOnly { version } = toml::from_str(text).map_err(syntax)?;
        if version != SITE_VERSION {
            return Err(SiteError::Version { path: path.to_owned(), found: version });
        }
        let file: SiteFile = toml::from_str(text).map_err(syntax)?;
        let invalid = |fault: Fault| SiteError::Invalid { path: path.to_owned(), message: fault.with_line(text) };
        let fs = known.iter().find(|fs| fs.name == file.fs).ok_or_else(|| {
            let names = known.iter().map(|fs| fs.name).collect::<Vec<_>>().join(", ");
            invalid(Fault::at_top("fs", format!("fs = `{}` is not a known file system; known: {names}", file.fs)))
        })?;
        file.check(fs).map_err(invalid)?;
        let targets = file.list_targets(fs).map_err(invalid)?;
        let pools = file.list_pools(fs, &targets).map_err(invalid)?;
        file.check_default(&pools, targets.len()).map_err(invalid)?;
        Ok(Self { fs: *fs, targets, pools, path: path.to_owned(), text: text.to_owned(), file })
    }

    /// The file, as the caller named it.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Where the calibrated profile lies, if the site names one.
    #[must_use]
    pub fn profile_path(&self) -> Option<PathBuf> {
        let base = self.path.parent().unwrap_or(Path::new(""));
        self.file.profile.as_ref().map(|profile| base.join(profile))
    }

    /// The group of a target.
    #[must_use]
    pub fn group(&self, target: usize) -> &TargetGroup {
        &self.file.targets[self.targets[target].group]
    }

    /// Class of a target.
    #[must_use]
    pub fn class(&self, target: usize) -> ServerClass {
        self.group(target).class
    }

    /// Copies that a write to a target makes. Where several pools have the target, those of the one that keeps most.
    pub(crate) fn copies(&self, target: usize) -> u32 {
        let pools = self.pools.iter().filter(|pool| pool.targets.contains(&target));
        pools.filter_map(|pool| pool.copies).max().unwrap_or(1)
    }

    /// Bytes that a file's layout may take; `None`: as many as the file system allows.
    pub(crate) fn layout_bytes(&self) -> Option<u64> {
        self.file.layout_bytes.map(|bytes| bytes.0)
    }

    /// What to say of a site without pools, which its file system calls so and cannot do without.
    pub(crate) fn lacks_pools(&self, pools: &str) -> Option<String> {
        let lack = || {
            format!("{} places files by {pools}, and none is named; add `pool = \"...\"` to [[targets]]", self.fs.title)
        };
        self.pools.is_empty().then(lack)
    }

    /// A pool that has exactly `targets`, which are ascending.
    #[must_use]
    pub fn pool_of(&self, targets: &[usize]) -> Option<&Pool> {
        self.pools.iter().find(|pool| pool.targets == targets)
    }

    /// The targets, the number of them that a new file gets, and its stripe size.
    #[must_use]
    pub fn default_layout(&self) -> (Vec<usize>, usize, ByteCount) {
        let default = &self.file.default;
        let named = default.pool.as_ref().and_then(|name| self.pools.iter().find(|pool| pool.name == *name));
        let from = named.map_or_else(|| (0..self.targets.len()).collect(), |pool| pool.targets.clone());
        let count = match default.stripe_count.unwrap_or(self.fs.stripe_count) {
            0 => from.len(),
            count => (count as usize).min(from.len()),
        };
        (from, count, default.stripe_size.unwrap_or(self.fs.stripe_size))
    }

    fn invalid(&self, fault: Fault) -> SiteError {
        SiteError::Invalid { path: self.path.clone(), message: fault.with_line(&self.text) }
    }
}

impl SiteFile {
    /// The text of `site.toml`.
    #[must_use]
    pub fn to_toml(&self) -> String {
        toml::to_string_pretty(self).expect("a site has only plain values")
    }
}

#[cfg(test)]
mod tests;
