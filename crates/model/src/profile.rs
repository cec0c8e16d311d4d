//! The profile: what calibration found of every server and of the network.
//!
//! A request of v bytes costs a server `alpha + v beta`; both depend on direction and order. The network costs `e` for each
//! connection and `t` for each byte (H2DP table 1). A profile names the cluster it was measured on and is refused for another.

use crate::caveat::Caveat;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use stripewise_layout::printing::shown;
use stripewise_layout::{Cluster, Order, RequestKind, ServerClass, WriteClass, input, output};

/// The version written to profile files. Version 1, which has no caveats, and version 2, which knows one class of writes, are read too.
pub const PROFILE_VERSION: u32 = 3;

/// The first version whose servers have lines for classes of writes.
const FIRST_WITH_WRITE_CLASSES: u32 = 3;

/// The oldest version that is read.
const OLDEST_PROFILE_VERSION: u32 = 1;

/// A fitted line: time = alpha + bytes x beta.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Line {
    /// Startup time in seconds.
    pub alpha_s: f64,
    /// Transfer time in seconds per byte.
    pub beta_s_per_byte: f64,
    /// Coefficient of determination of the fit, at most 1.
    pub r2: f64,
    /// Median absolute deviation of the measured times from the line, relative to the line.
    pub spread: f64,
    /// Times measured.
    pub samples: u32,
}

impl Line {
    /// Seconds for one request of `bytes`.
    #[must_use]
    pub fn seconds(&self, bytes: f64) -> f64 {
        self.alpha_s + bytes * self.beta_s_per_byte
    }

    /// What a time may be off the line by, relative to it: a line that was put through few samples lies nearer to these than to what comes.
    /// A line of two samples or none says nothing of that, as one that was given rather than measured.
    #[must_use]
    pub fn deviation(&self) -> f64 {
        let samples = f64::from(self.samples);
        if samples > 2.0 { self.spread * (samples / (samples - 2.0)).sqrt() } else { self.spread }
    }
}

/// One line for each order.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct OrderedLines {
    /// Requests that each begin where the one before ended.
    pub sequential: Line,
    /// Requests at random offsets.
    pub random: Line,
}

/// The lines of one server.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct ServerProfile {
    /// As in the cluster file.
    pub name: String,
    /// As in the cluster file; a profile of another class is refused.
    pub class: ServerClass,
    /// Reads, each where the one before ended.
    pub read_sequential: Line,
    /// Reads at random offsets.
    pub read_random: Line,
    /// Direct writes, each where the one before ended.
    pub write_sequential: Line,
    /// Direct writes at random offsets.
    pub write_random: Line,
    /// Buffered writes and their share of the sync that ends them (from version 3 on). Absent where nothing writes back later: a
    /// buffered write waits as a direct one does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub buffered_write: Option<OrderedLines>,
    /// Synchronous writes (from version 3 on). Absent where they cost what direct ones do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub synchronous_write: Option<OrderedLines>,
    /// Share of the requests at the device, 0 to 1, that the flush of a synchronous write waits for before it is done: 1 where a device
    /// finishes what it was given before (from version 3 on). Absent: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub flush_wait: Option<f64>,
}

impl ServerProfile {
    /// [`Self::flush_wait`] of a request of the kind; 0 for those that flush nothing.
    #[must_use]
    pub fn flush_wait_of(&self, kind: RequestKind) -> f64 {
        match kind {
            RequestKind::Write(WriteClass::Synchronous) => self.flush_wait.unwrap_or(0.0),
            RequestKind::Read | RequestKind::Write(WriteClass::Direct | WriteClass::Buffered) => 0.0,
        }
    }

    /// alpha and beta of one kind and order.
    #[must_use]
    pub fn line(&self, kind: impl Into<RequestKind>, order: Order) -> &Line {
        let lines = match kind.into() {
            RequestKind::Read => {
                return match order {
                    Order::Sequential => &self.read_sequential,
                    Order::Random => &self.read_random,
                };
            }
            RequestKind::Write(WriteClass::Direct) => &None,
            RequestKind::Write(WriteClass::Buffered) => &self.buffered_write,
            RequestKind::Write(WriteClass::Synchronous) => &self.synchronous_write,
        };
        match (lines, order) {
            (Some(lines), Order::Sequential) => &lines.sequential,
            (Some(lines), Order::Random) => &lines.random,
            (None, Order::Sequential) => &self.write_sequential,
            (None, Order::Random) => &self.write_random,
        }
    }

    /// Whether the server has a line of its own for the kind, and does not share that of direct writes.
    #[must_use]
    pub fn has_own_line(&self, kind: RequestKind) -> bool {
        match kind {
            RequestKind::Read | RequestKind::Write(WriteClass::Direct) => true,
            RequestKind::Write(WriteClass::Buffered) => self.buffered_write.is_some(),
            RequestKind::Write(WriteClass::Synchronous) => self.synchronous_write.is_some(),
        }
    }
}

/// How the network parameters were found.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum NetworkSource {
    /// Measured over the servers' links.
    Measured,
    /// Given by the user.
    Given,
    /// All servers are directories of this host: no network lies between.
    Local,
}

/// The network between client nodes and servers, one for all of them as in the papers.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct NetworkProfile {
    /// Seconds to establish one connection: e of the papers.
    pub e_s: f64,
    /// Seconds per byte: t of the papers.
    pub t_s_per_byte: f64,
    /// Whether the two figures were measured at all.
    pub source: NetworkSource,
}

/// A profile file: what calibration found of a cluster, from which every cost is worked out.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Profile {
    /// [`PROFILE_VERSION`], whichever version was read.
    #[cfg_attr(feature = "schemas", schemars(range(min = OLDEST_PROFILE_VERSION, max = PROFILE_VERSION)))]
    pub version: u32,
    /// Id of the cluster that was measured.
    pub cluster: String,
    /// True when any server is emulated: its figures are those of a model, not of a device.
    pub emulated: bool,
    /// UTC, RFC 3339.
    pub measured_at: String,
    /// In the order of the cluster's servers.
    pub servers: Vec<ServerProfile>,
    /// Both figures are 0 where all servers are directories of this host.
    pub network: NetworkProfile,
    /// Why figures may be wrong (from version 2 on).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub caveats: Vec<Caveat>,
}

/// Why a profile is not used.
#[derive(Debug, thiserror::Error)]
pub enum ProfileError {
    /// The file is missing, unreadable, not UTF-8 or longer than [`input::MAX_PROFILE_BYTES`].
    #[error("cannot read the profile {}: {source} (run `stripewise calibrate` to make one)", shown(path))]
    Read {
        /// The file as the caller named it.
        path: PathBuf,
        /// Cause by the operating system or by [`input`].
        source: std::io::Error,
    },
    /// The file could not be replaced; an older one stands as it was.
    #[error("cannot write the profile {}: {source}", shown(path))]
    Write {
        /// The file as the caller named it.
        path: PathBuf,
        /// Cause by the operating system or by [`output`].
        source: std::io::Error,
    },
    /// The text is not JSON, or has an unknown, missing or mistyped key.
    #[error("{}: not a profile: {message} (run `stripewise calibrate` again)", shown(path))]
    Syntax {
        /// The file as the caller named it.
        path: PathBuf,
        /// Cause with line and column, by the JSON parser.
        message: String,
    },
    /// The file was written for another version of the format.
    #[error(
        "{}: profile version {found} is not supported; this stripewise reads versions {OLDEST_PROFILE_VERSION} to {PROFILE_VERSION} (run `stripewise calibrate` again)",
        shown(path)
    )]
    Version {
        /// The file as the caller named it.
        path: PathBuf,
        /// `version` as it stands in the file.
        found: u64,
    },
    /// The profile belongs to another cluster, or servers were added, removed, renamed or changed
    /// class since.
    #[error("{}: {message} (run `stripewise calibrate` for this cluster)", shown(path))]
    OtherCluster {
        /// The file as the caller named it.
        path: PathBuf,
        /// The first difference.
        message: String,
    },
    /// A figure is negative or not finite.
    #[error("{}: {message} (run `stripewise calibrate` again)", shown(path))]
    Value {
        /// The file as the caller named it.
        path: PathBuf,
        /// Server, field and value.
        message: String,
    },
}

impl Profile {
    /// Whether a process waits for the servers before a request of the kind returns. It does not for buffered writes, unless a server of
    /// the profile writes nothing back later.
    #[must_use]
    pub fn is_awaited(&self, kind: RequestKind) -> bool {
        match kind {
            RequestKind::Read | RequestKind::Write(WriteClass::Direct | WriteClass::Synchronous) => true,
            RequestKind::Write(WriteClass::Buffered) => {
                self.servers.iter().any(|server| server.buffered_write.is_none())
            }
        }
    }

    /// Share of the requests of the kind and order that the disks find in order whatever else meets there: what is written back is sorted,
    /// and its random requests are those that begin a run ([`crate::queueing::RegionWriteBack`]). `None` if others decide.
    #[must_use]
    pub fn sorted_share(&self, kind: RequestKind, order: Order) -> Option<f64> {
        (!self.is_awaited(kind)).then_some(if order == Order::Sequential { 1.0 } else { 0.0 })
    }

    /// Lines of buffered writes for a profile from before version 3: the bytes' cost alone, since the kernel sorts them. Servers of
    /// emulated clusters write nothing back.
    fn derive_write_classes(&mut self) {
        if self.emulated {
            return;
        }
        for server in &mut self.servers {
            let line = Line { alpha_s: 0.0, ..server.write_sequential };
            server.buffered_write = Some(OrderedLines { sequential: line, random: line });
        }
        self.caveats.push(Caveat::DerivedWrites);
    }

    /// Reads `path` strictly: unknown keys, another version and figures that no device can have are errors.
    ///
    /// # Errors
    ///
    /// [`ProfileError::Read`], and those of [`Self::parse`].
    pub fn load(path: &Path) -> Result<Self, ProfileError> {
        let text = input::read_text(path, input::MAX_PROFILE_BYTES)
            .map_err(|source| ProfileError::Read { path: path.to_owned(), source })?;
        Self::parse(&text, path)
    }

    /// As [`Self::load`], from text that stands at `path`.
    ///
    /// # Errors
    ///
    /// [`ProfileError::Syntax`], [`ProfileError::Version`] or [`ProfileError::Value`], which name
    /// `path`.
    pub fn parse(text: &str, path: &Path) -> Result<Self, ProfileError> {
        let syntax =
            |error: serde_json::Error| ProfileError::Syntax { path: path.to_owned(), message: error.to_string() };
        // The version is looked at before the rest, so that a newer file is refused by its version and not by a key.
        let version: VersionOnly = serde_json::from_str(text).map_err(syntax)?;
        if !(u64::from(OLDEST_PROFILE_VERSION)..=u64::from(PROFILE_VERSION)).contains(&version.version) {
            return Err(ProfileError::Version { path: path.to_owned(), found: version.version });
        }
        let mut profile: Profile = serde_json::from_str(text).map_err(syntax)?;
        if profile.version < FIRST_WITH_WRITE_CLASSES {
            profile.derive_write_classes();
        }
        profile.version = PROFILE_VERSION;
        profile.check_values().map_err(|message| ProfileError::Value { path: path.to_owned(), message })?;
        Ok(profile)
    }

    /// The text of a profile file.
    #[must_use]
    pub fn to_json(&self) -> String {
        let mut text = serde_json::to_string_pretty(self).expect("a profile has only plain values");
        text.push('\n');
        text
    }

    /// Writes `path` as a whole: a reader sees the old file or the new one.
    ///
    /// # Errors
    ///
    /// [`ProfileError::Write`], after which an older file stands as it was.
    pub fn save(&self, path: &Path) -> Result<(), ProfileError> {
        let failed = |source| ProfileError::Write { path: path.to_owned(), source };
        output::write(path, self.to_json()).map_err(failed)
    }

    /// Refuses a profile that was measured on another cluster, or before its servers changed. `path` is named in the error.
    ///
    /// # Errors
    ///
    /// [`ProfileError::OtherCluster`] with the first difference in id, names, classes or number of
    /// servers.
    pub fn check(&self, cluster: &Cluster, path: &Path) -> Result<(), ProfileError> {
        let other = |message| Err(ProfileError::OtherCluster { path: path.to_owned(), message });
        if self.cluster != cluster.id {
            return other(format!("measured on cluster `{}`, but this is cluster `{}`", self.cluster, cluster.id));
        }
        for (index, (measured, server)) in self.servers.iter().zip(&cluster.servers).enumerate() {
            if measured.name != server.name {
                return other(format!(
                    "server {index} is `{}` in the profile and `{}` in the cluster",
                    measured.name, server.name
                ));
            }
            if measured.class != server.class {
                return other(format!(
                    "server `{}` was measured as {}, but is {} now",
                    server.name, measured.class, server.class
                ));
            }
        }
        match self.servers.len().cmp(&cluster.servers.len()) {
            std::cmp::Ordering::Less => {
                other(format!("server `{}` was never measured", cluster.servers[self.servers.len()].name))
            }
            std::cmp::Ordering::Greater => other(format!(
                "server `{}` was measured, but the cluster no longer has it",
                self.servers[cluster.servers.len()].name
            )),
            std::cmp::Ordering::Equal => Ok(()),
        }
    }

    fn check_values(&self) -> Result<(), String> {
        let bad = |value: f64| !value.is_finite() || value < 0.0;
        for server in &self.servers {
            if let Some(value) = server.flush_wait.filter(|value| !(0.0..=1.0).contains(value)) {
                return Err(format!("server `{}`: flush_wait = {value} is not a share", server.name));
            }
            let of_class = |lines: &Option<OrderedLines>, names: [&'static str; 2]| {
                let both = lines.map(|lines| [(names[0], lines.sequential), (names[1], lines.random)]);
                both.into_iter().flatten()
            };
            let classes =
                of_class(&server.buffered_write, ["buffered_write.sequential", "buffered_write.random"]).chain(
                    of_class(&server.synchronous_write, ["synchronous_write.sequential", "synchronous_write.random"]),
                );
            let lines = [
                ("read_sequential", server.read_sequential),
                ("read_random", server.read_random),
                ("write_sequential", server.write_sequential),
                ("write_random", server.write_random),
            ];
            for (name, line) in lines.into_iter().chain(classes) {
                for (field, value) in
                    [("alpha_s", line.alpha_s), ("beta_s_per_byte", line.beta_s_per_byte), ("spread", line.spread)]
                {
                    if bad(value) {
                        return Err(format!(
                            "server `{}`, {name}: {field} = {value} is not a time or share",
                            server.name
                        ));
                    }
                }
            }
        }
        for (field, value) in [("e_s", self.network.e_s), ("t_s_per_byte", self.network.t_s_per_byte)] {
            if bad(value) {
                return Err(format!("network: {field} = {value} is not a time"));
            }
        }
        for (number, caveat) in self.caveats.iter().enumerate() {
            if let Some((field, value)) = caveat.numbers().into_iter().find(|(_, value)| bad(*value)) {
                return Err(format!("caveats[{number}]: {field} = {value} is not a rate or ratio"));
            }
        }
        Ok(())
    }
}

#[derive(Deserialize)]
struct VersionOnly {
    version: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cluster() -> Cluster {
        let text = "version = 1\nid = \"c0ffee\"\nstate = \"s\"\n[[server]]\nname = \"hdd0\"\nclass = \"hdd\"\nurl = \"file://a\"\n\
                    [[server]]\nname = \"ssd0\"\nclass = \"ssd\"\nurl = \"file://b\"\n";
        Cluster::parse(text, Path::new("/x/cluster.toml")).unwrap()
    }

    fn profile() -> Profile {
        let line = Line { alpha_s: 1e-3, beta_s_per_byte: 1e-8, r2: 0.99, spread: 0.02, samples: 40 };
        let server = |name: &str, class| ServerProfile {
            name: name.to_owned(),
            class,
            read_sequential: line,
            read_random: line,
            write_sequential: line,
            write_random: line,
            buffered_write: Some(OrderedLines { sequential: line, random: line }),
            synchronous_write: None,
            flush_wait: None,
        };
        Profile {
            version: PROFILE_VERSION,
            cluster: "c0ffee".to_owned(),
            emulated: false,
            measured_at: "2024-01-01T00:00:00Z".to_owned(),
            servers: vec![server("hdd0", ServerClass::Hdd), server("ssd0", ServerClass::Ssd)],
            network: NetworkProfile { e_s: 0.0, t_s_per_byte: 0.0, source: NetworkSource::Local },
            caveats: vec![Caveat::NoSeeks { server: "hdd0".to_owned(), ratio: 1.1 }],
        }
    }

    #[test]
    fn what_is_saved_is_what_is_loaded() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("profile.json");
        profile().save(&path).unwrap();
        assert_eq!(Profile::load(&path).unwrap(), profile());
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 1, "no temporary file stays");
        let error = Profile::load(&directory.path().join("none.json")).unwrap_err().to_string();
        assert!(error.contains("none.json") && error.contains("stripewise calibrate"), "{error}");
    }

    #[test]
    fn version_1_is_read_and_has_no_caveats_of_its_own() {
        let text = include_str!("../tests/fixtures/profile-version-1.json");
        assert!(text.contains("\"version\": 1"));
        let profile = Profile::parse(text, Path::new("p.json")).unwrap();
        assert_eq!((profile.version, profile.servers.len()), (PROFILE_VERSION, 2));
        assert_eq!(profile.servers[0].read_random.alpha_s, 0.004);
        assert_derived(&profile);
    }

    /// Buffered writes cost their bytes alone, synchronous ones what direct ones do, and the profile says so.
    fn assert_derived(profile: &Profile) {
        assert_eq!(profile.caveats.last(), Some(&Caveat::DerivedWrites));
        let (buffered, synchronous) = (WriteClass::Buffered, WriteClass::Synchronous);
        for server in &profile.servers {
            for order in [Order::Sequential, Order::Random] {
                let line = server.line(RequestKind::Write(buffered), order);
                assert_eq!((line.alpha_s, line.beta_s_per_byte), (0.0, server.write_sequential.beta_s_per_byte));
                let direct = server.line(RequestKind::Write(WriteClass::Direct), order);
                assert_eq!(server.line(RequestKind::Write(synchronous), order), direct);
            }
        }
        assert!(
            !profile.is_awaited(RequestKind::Write(buffered)) && profile.is_awaited(RequestKind::Write(synchronous))
        );
    }

    #[test]
    fn version_2_is_read_and_knows_one_class_of_writes() {
        let text = include_str!("../tests/fixtures/profile-version-2.json");
        assert!(text.contains("\"version\": 2"));
        let profile = Profile::parse(text, Path::new("p.json")).unwrap();
        assert!(
            matches!(profile.caveats[..], [Caveat::NoSeeks { .. }, Caveat::DerivedWrites]),
            "{:?}",
            profile.caveats
        );
        assert_derived(&profile);
        // Emulated servers write nothing back: a buffered write waits for them, and nothing has to be derived.
        let text = text.replace("\"emulated\": false", "\"emulated\": true");
        let emulated = Profile::parse(&text, Path::new("p.json")).unwrap();
        assert_eq!(emulated.caveats.len(), 1);
        assert!(emulated.is_awaited(RequestKind::Write(WriteClass::Buffered)));
    }

    #[test]
    fn faults_in_the_file_are_named_with_their_remedy() {
        let good = profile().to_json();
        for (from, to, expected) in [
            ("\"version\": 3", "\"version\": 9, \"colour\": 3", "version 9 is not supported"),
            ("\"version\": 3", "\"version\": 0", "version 0 is not supported"),
            ("\"ratio\": 1.1", "\"ratio\": -1.1", "caveats[0]: ratio = -1.1"),
            ("\"no-seeks\"", "\"no-idea\"", "unknown variant `no-idea`"),
            ("\"emulated\"", "\"emulatde\"", "unknown field `emulatde`"),
            ("\"alpha_s\": 0.001", "\"alpha_s\": -1", "`hdd0`, read_sequential: alpha_s = -1"),
            ("\"e_s\": 0.0", "\"e_s\": -2.5", "network: e_s = -2.5"),
        ] {
            assert!(good.contains(from), "{from}");
            let error = Profile::parse(&good.replacen(from, to, 1), Path::new("p.json")).unwrap_err().to_string();
            assert!(error.contains(expected) && error.contains("p.json") && error.contains("calibrate"), "{error}");
        }
    }

    #[test]
    fn a_profile_of_other_servers_is_refused_naming_the_difference() {
        let path = Path::new("p.json");
        assert!(profile().check(&cluster(), path).is_ok());
        type Change<'a> = (&'a dyn Fn(&mut Profile), &'a str);
        let changes: [Change<'_>; 5] = [
            (&|p| p.cluster = "beef".to_owned(), "cluster `beef`, but this is cluster `c0ffee`"),
            (&|p| p.servers[1].name = "ssd9".to_owned(), "server 1 is `ssd9` in the profile and `ssd0`"),
            (&|p| p.servers[1].class = ServerClass::Hdd, "`ssd0` was measured as hdd, but is ssd now"),
            (&|p| drop(p.servers.pop()), "`ssd0` was never measured"),
            (&|p| p.servers.push(p.servers[0].clone()), "`hdd0` was measured, but the cluster no longer has it"),
        ];
        for (change, expected) in changes {
            let mut changed = profile();
            change(&mut changed);
            let error = changed.check(&cluster(), path).unwrap_err().to_string();
            assert!(error.contains(expected) && error.contains("p.json"), "{error}");
        }
    }
}
