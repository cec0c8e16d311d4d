//! `[coordinator]`: the engine in which the hosts of a cluster keep what they share.
//!
//! Without it a cluster is of one host. With it the mapping table and the election of the host that changes it are in an engine that all
//! hosts reach, and the state directory of every host is its own.

use super::{Cluster, Fault};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Name of the key pair's file where the cluster file does not say, beside it.
const DEFAULT_KEY: &str = "cluster.key";
const DEFAULT_HOST_TIMEOUT_S: u32 = 5;
/// Links notice silence by frames that idle hosts send every second.
const MIN_HOST_TIMEOUT_S: u32 = 2;

/// The engine that hosts share, and how they reach each other.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Coordinator {
    /// Endpoints of one etcd, as `http://HOST:PORT`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub etcd: Vec<String>,
    /// Certificates that sign etcd's, in PEM form; those that the host trusts without it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub etcd_ca: Option<PathBuf>,
    /// What this host shows to etcd, in PEM form.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub etcd_certificate: Option<PathBuf>,
    /// The key of that certificate, in PEM form.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub etcd_key: Option<PathBuf>,
    /// A replicated pool of a Ceph, in the place of an etcd.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rados: Option<String>,
    /// That Ceph's configuration; in its usual places without it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rados_conf: Option<PathBuf>,
    /// The user there, as in `client.NAME`; `admin` without it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rados_user: Option<String>,
    /// Where this host listens for others: an address, an interface, or either with `:PORT`; the first interface that is not the
    /// loopback without it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub listen: Option<String>,
    /// The key pair by which hosts of this cluster know each other.
    #[serde(default = "default_key")]
    pub key: PathBuf,
    /// Seconds, at least 2, of which most make a host silent that is not heard; the rest is for shutting it out.
    #[serde(default = "default_host_timeout_s")]
    pub host_timeout_s: u32,
}

fn default_key() -> PathBuf {
    DEFAULT_KEY.into()
}

fn default_host_timeout_s() -> u32 {
    DEFAULT_HOST_TIMEOUT_S
}

impl Coordinator {
    /// An etcd with these endpoints; all else as where the cluster file does not say.
    #[must_use]
    pub fn in_etcd(endpoints: Vec<String>) -> Self {
        Self {
            etcd: endpoints,
            etcd_ca: None,
            etcd_certificate: None,
            etcd_key: None,
            rados: None,
            rados_conf: None,
            rados_user: None,
            listen: None,
            key: default_key(),
            host_timeout_s: DEFAULT_HOST_TIMEOUT_S,
        }
    }

    /// A pool of a Ceph, which `conf` and `user` say how to reach; all else as where the cluster file does not say.
    #[must_use]
    pub fn in_pool(pool: String, conf: Option<PathBuf>, user: Option<String>) -> Self {
        Self { rados: Some(pool), rados_conf: conf, rados_user: user, ..Self::in_etcd(Vec::new()) }
    }

    /// After which a host that does not answer counts as silent.
    #[must_use]
    pub fn host_timeout(&self) -> Duration {
        Duration::from_secs(u64::from(self.host_timeout_s))
    }

    pub(super) fn make_absolute(&mut self, base: &Path) {
        self.key = base.join(&self.key);
        let files = [&mut self.etcd_ca, &mut self.etcd_certificate, &mut self.etcd_key, &mut self.rados_conf];
        for file in files.into_iter().flatten() {
            *file = base.join(&*file);
        }
    }
}

impl Cluster {
    /// What is wrong with `[coordinator]`, and with what a cluster of many hosts cannot have.
    pub(super) fn check_coordinator(&self) -> Result<(), Fault> {
        let Some(coordinator) = &self.coordinator else { return Ok(()) };
        let fault = |message: &str| Err(Fault::at_top("coordinator", message.to_owned()));
        let of_etcd = [&coordinator.etcd_ca, &coordinator.etcd_certificate, &coordinator.etcd_key];
        match (&coordinator.rados, coordinator.etcd.is_empty()) {
            (None, true) => {
                return fault(
                    "[coordinator] names no engine; add etcd = [\"http://HOST:2379\"] or rados = \"POOL\", or remove the section for a cluster of one host",
                );
            }
            (Some(_), false) => {
                return fault("[coordinator] names two engines, an etcd and a pool of Ceph; remove etcd or rados");
            }
            (Some(_), true) if of_etcd.into_iter().any(Option::is_some) => {
                return fault(
                    "etcd_ca, etcd_certificate and etcd_key are of an etcd, and rados names a pool; name one engine",
                );
            }
            (None, false) if coordinator.rados_conf.is_some() || coordinator.rados_user.is_some() => {
                return fault("rados_conf and rados_user are of a Ceph, and etcd names an etcd; name one engine");
            }
            (Some(pool), true) if pool.is_empty() => return fault("rados = \"\" names no pool; name one"),
            (Some(_), true) | (None, false) => {}
        }
        if coordinator.etcd_certificate.is_some() != coordinator.etcd_key.is_some() {
            return fault("etcd_certificate and etcd_key belong together; give both or neither");
        }
        if coordinator.host_timeout_s < MIN_HOST_TIMEOUT_S {
            let found = coordinator.host_timeout_s;
            return fault(&format!("host_timeout_s = {found} must be at least {MIN_HOST_TIMEOUT_S}"));
        }
        if self.fragments || self.fragment_room.is_some_and(|capacity| capacity.0 > 0) {
            return fault("fragments are kept by one host; remove fragments and fragment_room, or [coordinator]");
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(section: &str, top: &str) -> Result<Cluster, String> {
        let text = format!(
            "version = 1\nid = \"c1\"\nstate = \"state\"\n{top}[coordinator]\n{section}\n[[server]]\nname = \"h0\"\nclass = \"hdd\"\nurl = \"file:///h0\"\n"
        );
        Cluster::parse(&text, Path::new("/etc/site/cluster.toml")).map_err(|error| error.to_string())
    }

    #[test]
    fn what_is_left_out_has_its_usual_value_and_paths_are_beside_the_file() {
        let read = parse("etcd = [\"http://a:2379\"]\nlisten = \"eth0\"", "").unwrap();
        let coordinator = read.coordinator.clone().unwrap();
        assert_eq!(coordinator.key, Path::new("/etc/site/cluster.key"));
        assert_eq!((coordinator.host_timeout(), coordinator.listen.as_deref()), (Duration::from_secs(5), Some("eth0")));
        let again = Cluster::parse(&read.to_toml(), Path::new("/elsewhere/cluster.toml")).unwrap();
        assert_eq!(again, read);
    }

    #[test]
    fn a_pool_of_ceph_is_an_engine_too() {
        let text = "rados = \"stripewise-table\"\nrados_conf = \"ceph.conf\"\nrados_user = \"site\"";
        let read = parse(text, "").unwrap();
        let coordinator = read.coordinator.clone().unwrap();
        let conf = Some(Path::new("/etc/site/ceph.conf").to_owned());
        let mut expected = Coordinator::in_pool("stripewise-table".to_owned(), conf, Some("site".to_owned()));
        expected.key = "/etc/site/cluster.key".into();
        assert_eq!(coordinator, expected);
        assert_eq!(Cluster::parse(&read.to_toml(), Path::new("/elsewhere/cluster.toml")).unwrap(), read);
    }

    #[test]
    fn faults_are_named_with_their_line_and_remedy() {
        for (section, top, parts) in [
            ("", "", ["line 4: [coordinator] names no engine", "etcd = "]),
            ("", "", ["or rados = ", "remove the section"]),
            (
                "etcd = [\"http://a\"]\nrados = \"p\"",
                "",
                ["line 4: [coordinator] names two engines", "remove etcd or rados"],
            ),
            ("rados = \"p\"\netcd_ca = \"c\"", "", ["line 4: etcd_ca", "rados names a pool; name one"]),
            ("etcd = [\"http://a\"]\nrados_user = \"u\"", "", ["line 4: rados_conf and rados_user", "name one"]),
            ("rados = \"\"", "", ["line 4: rados = \"\"", "name one"]),
            ("etcd = [\"http://a\"]\netcd_key = \"k\"", "", ["line 4: ", "give both or neither"]),
            ("etcd = [\"http://a\"]\nhost_timeout_s = 1", "", ["line 4: host_timeout_s = 1", "at least 2"]),
            ("etcd = [\"http://a\"]", "fragments = true\n", ["line 5: fragments are kept by one host", "remove"]),
        ] {
            let said = parse(section, top).unwrap_err();
            assert!(parts.iter().all(|part| said.contains(part)), "{said}");
        }
    }
}
