//! Running the command as a person does, in a directory of its own.
#![allow(dead_code, reason = "each test target uses a part")]

pub(crate) mod plan;
pub(crate) mod schema;

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

pub(crate) struct Place {
    directory: tempfile::TempDir,
}

pub(crate) struct Said {
    pub(crate) status: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Place {
    pub(crate) fn new() -> Self {
        Self { directory: tempfile::tempdir().unwrap() }
    }

    /// With a cluster of two HDD and two SSD directories, regions of 1 MiB.
    pub(crate) fn with_cluster() -> Self {
        let place = Self::new();
        let mut words = vec!["init".to_owned(), "--region".into(), "1MiB".into()];
        for (name, class, capacity) in
            [("h0", "hdd", ""), ("h1", "hdd", ""), ("s0", "ssd", ":64MiB"), ("s1", "ssd", ":64MiB")]
        {
            std::fs::create_dir(place.path(name)).unwrap();
            words.extend(["--server".to_owned(), format!("{name}={class}:{name}{capacity}")]);
        }
        place.done(&words);
        place
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// The locks by which processes that use the cluster of this state directory show that they live.
    pub(crate) fn locks_of(&self, state: &str) -> usize {
        let table =
            std::os::unix::fs::MetadataExt::ino(&self.path(&format!("{state}/run/processes")).metadata().unwrap());
        let locks = std::fs::read_to_string("/proc/locks").unwrap();
        locks.lines().filter(|line| line.contains("POSIX") && line.contains(&format!(":{table} "))).count()
    }

    pub(crate) fn write(&self, name: &str, bytes: &[u8]) {
        std::fs::write(self.path(name), bytes).unwrap();
    }

    pub(crate) fn read(&self, name: &str) -> Vec<u8> {
        std::fs::read(self.path(name)).unwrap()
    }

    pub(crate) fn command(&self, words: &[impl AsRef<OsStr>]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_stripewise"));
        command.args(words).current_dir(self.directory.path());
        for variable in
            ["STRIPEWISE_CLUSTER", "STRIPEWISE_PRELOAD", "STRIPEWISE_TRACE", "STRIPEWISE_STATE", "LD_PRELOAD"]
        {
            command.env_remove(variable);
        }
        command
    }

    /// What the command says; the directory's own path stands as `HERE`.
    pub(crate) fn say(&self, words: &[impl AsRef<OsStr>]) -> Said {
        self.said(self.command(words).output().unwrap())
    }

    pub(crate) fn said(&self, output: Output) -> Said {
        let here = self.directory.path().to_str().unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).replace(here, "HERE");
        Said { status: output.status.code().unwrap_or(-1), out: text(&output.stdout), err: text(&output.stderr) }
    }

    /// As [`Self::say`], for what must succeed; the data that it printed.
    pub(crate) fn done(&self, words: &[impl AsRef<OsStr>]) -> String {
        let said = self.say(words);
        let shown: Vec<_> = words.iter().map(|word| word.as_ref().to_string_lossy()).collect();
        assert_eq!(said.status, 0, "{}: {}", shown.join(" "), said.err);
        said.out
    }

    /// The object that the command prints with `--json`, which has the form of its schema.
    pub(crate) fn json(&self, words: &[&str]) -> serde_json::Value {
        let mut words = words.to_vec();
        words.insert(0, "--json");
        let value: serde_json::Value = serde_json::from_str(&self.done(&words)).unwrap();
        schema::check(value["command"].as_str().unwrap(), &value);
        value
    }
}

/// Builds the preload library beside the command, where it is looked for. `cargo test` does not: nothing links to it.
pub(crate) fn preload() {
    // `make test` builds the workspace first. To build one package of it again chooses other features, and with them builds parquet again.
    if std::env::var_os("STRIPEWISE_LIBRARY_IS_BUILT").is_some() {
        return;
    }
    static BUILT: OnceLock<()> = OnceLock::new();
    BUILT.get_or_init(|| {
        let directory = Path::new(env!("CARGO_BIN_EXE_stripewise")).parent().unwrap();
        let mut command = Command::new(env!("CARGO"));
        command.args(["build", "--quiet", "--package", "stripewise-preload", "--target-dir"]);
        command.arg(directory.parent().unwrap()).current_dir(env!("CARGO_MANIFEST_DIR"));
        if directory.ends_with("release") {
            command.arg("--release");
        }
        assert!(command.status().unwrap().success(), "the preload library does not build");
    });
}

/// Bytes that no two offsets share.
pub(crate) fn noise(length: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    std::iter::repeat_with(move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 24) as u8
    })
    .take(length)
    .collect()
}

/// A profile of the cluster by made-up lines: calibration has tests of its own.
pub(crate) fn write_profile(place: &Place) {
    let toml = String::from_utf8(place.read("cluster.toml")).unwrap();
    let id = toml.lines().find_map(|line| line.strip_prefix("id = ")).unwrap().trim_matches('"');
    let line = |alpha: f64, rate: f64| serde_json::json!({"alpha_s": alpha, "beta_s_per_byte": 1e-6 / rate, "r2": 0.99, "spread": 0.02, "samples": 40});
    let server = |name: &str, class: &str| {
        let (random, rate) = if class == "hdd" { (0.012, 120.0) } else { (0.0001, 500.0) };
        serde_json::json!({"name": name, "class": class, "read_sequential": line(1e-4, rate), "read_random": line(random, rate),
            "write_sequential": line(1e-4, rate), "write_random": line(random, rate)})
    };
    let profile = serde_json::json!({"version": 3, "cluster": id, "emulated": false, "measured_at": "2024-02-29T12:00:00Z",
        "servers": [server("h0", "hdd"), server("h1", "hdd"), server("s0", "ssd"), server("s1", "ssd")],
        "network": {"e_s": 0.0, "t_s_per_byte": 0.0, "source": "local"}});
    place.write("profile.json", profile.to_string().as_bytes());
}
