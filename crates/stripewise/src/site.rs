//! A site's parallel file system as `site.toml` describes it: reading the description with what it refers to.

use crate::messages::shown;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;
use stripewise_device::{DeviceSpec, lookup_device, lookup_link};
use stripewise_layout::Direction;
use stripewise_layout::figures::duration;
use stripewise_model::{Profile, ProfileError};
use stripewise_planner::native::{self, Found};
use stripewise_planner::site::{LinkTimes, Site, SiteError, SiteServers, TargetTimes, Times};
use thiserror::Error;

/// For how long a command that only asks is waited for.
const ANSWERS_WITHIN: Duration = Duration::from_secs(30);

/// Why a site cannot be used.
#[derive(Debug, Error)]
pub enum LoadSiteError {
    /// The description cannot be read, or has a fault.
    #[error(transparent)]
    Site(#[from] SiteError),
    /// The calibrated profile that the site names cannot be read.
    #[error("{}: {source}", shown(site))]
    Profile {
        /// The site's file.
        site: PathBuf,
        /// Names the profile.
        source: ProfileError,
    },
    /// The mount cannot be named from `/` on.
    #[error("{}: {source}; name the directory where the file system is mounted", shown(mount))]
    Mount {
        /// As it was given.
        mount: PathBuf,
        /// Its cause.
        source: std::io::Error,
    },
    /// The commands of the file system do not say what there is.
    #[error("{0}")]
    NotFound(String),
    /// No file system has that name.
    #[error("`{name}` is not a known file system; known: {known}")]
    UnknownFileSystem {
        /// As it was given.
        name: String,
        /// All names.
        known: String,
    },
}

/// A site with what plans for it are made from.
#[derive(Clone, Debug)]
pub struct LoadedSite {
    /// The description.
    pub site: Site,
    /// Its targets as servers, no path of which exists.
    pub servers: SiteServers,
}

/// Reads a site's description, and the profile that it names.
///
/// # Errors
///
/// [`LoadSiteError`], which names file, line, value and remedy.
pub fn load(path: &Path) -> Result<LoadedSite, LoadSiteError> {
    let site = Site::load(path, &native::file_systems())?;
    let of_site = |source| LoadSiteError::Profile { site: path.to_owned(), source };
    let profile = site.profile_path().map(|path| Profile::load(&path)).transpose().map_err(of_site)?;
    let servers = site.servers(&device_times, &link_times, profile.as_ref())?;
    Ok(LoadedSite { site, servers })
}

/// A commented `site.toml` to start from.
///
/// # Errors
///
/// [`LoadSiteError::UnknownFileSystem`].
pub fn example(name: &str) -> Result<&'static str, LoadSiteError> {
    native::lookup(name).map(|native| native.example).ok_or_else(|| unknown(name))
}

/// Describes the site that is mounted at `mount`, by the file system's own commands; nothing is written. Parameters of targets are left to be given.
///
/// # Errors
///
/// [`LoadSiteError::UnknownFileSystem`]; [`LoadSiteError::Mount`]; [`LoadSiteError::NotFound`] with the command that is missing, failed or took too long.
pub fn detect(name: &str, mount: &Path) -> Result<Found, LoadSiteError> {
    let native = native::lookup(name).ok_or_else(|| unknown(name))?;
    // Paths in logs begin with `/`.
    let mount = if mount.is_absolute() { Ok(mount.to_owned()) } else { mount.canonicalize() }
        .map_err(|source| LoadSiteError::Mount { mount: mount.to_owned(), source })?;
    native.detect(&mut |words| ask(words, ANSWERS_WITHIN), &mount).map_err(LoadSiteError::NotFound)
}

/// Runs a command that only asks. One that waits for a server that does not answer is ended.
fn ask(words: &[&str], within: Duration) -> Result<String, String> {
    let command = words.join(" ");
    let failed = |reason: String| format!("`{command}`: {reason}");
    let child = Command::new(words[0])
        .args(&words[1..])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| match error.kind() {
            std::io::ErrorKind::NotFound => failed(format!(
                "there is no command {} here: run this on a client of the file system, or add its directory to PATH",
                words[0]
            )),
            _ => failed(error.to_string()),
        })?;
    let id = rustix::process::Pid::from_child(&child);
    let (sender, receiver) = std::sync::mpsc::channel();
    std::thread::spawn(move || sender.send(child.wait_with_output()));
    let output = match receiver.recv_timeout(within) {
        Ok(output) => output.map_err(|error| failed(error.to_string()))?,
        Err(_) => {
            let _ = rustix::process::kill_process(id, rustix::process::Signal::KILL);
            return Err(failed(format!("no answer within {}", duration(within.as_secs_f64()))));
        }
    };
    if !output.status.success() {
        // Some report on standard output.
        let said = [&output.stderr, &output.stdout].map(|said| String::from_utf8_lossy(said).trim().to_owned());
        let said = said.iter().find(|said| !said.is_empty()).map_or("it says no reason", String::as_str);
        return Err(failed(format!("{}: {said}", output.status)));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn unknown(name: &str) -> LoadSiteError {
    LoadSiteError::UnknownFileSystem { name: name.to_owned(), known: native::names().join(", ") }
}

fn device_times(name: &str) -> Result<TargetTimes, String> {
    let spec = lookup_device(name).map_err(|error| error.to_string())?;
    let times = |direction| {
        let service = DeviceSpec::service(&spec, direction);
        Times {
            sequential_s: service.startup_s,
            random_s: service.random_startup_s,
            s_per_byte: service.transfer_s_per_byte,
        }
    };
    Ok(TargetTimes { read: times(Direction::Read), write: times(Direction::Write) })
}

fn link_times(name: &str) -> Result<LinkTimes, String> {
    let spec = lookup_link(name).map_err(|error| error.to_string())?;
    Ok(LinkTimes { message_s: spec.message_s, s_per_byte: spec.transfer_s_per_byte })
}

#[cfg(test)]
mod tests {
    use super::*;
    use stripewise_model::Caveat;

    #[test]
    fn a_command_answers_fails_by_name_or_is_ended() {
        let within = Duration::from_secs(30);
        assert_eq!(ask(&["sh", "-c", "echo found; echo aside >&2"], within).unwrap(), "found\n");
        let error = ask(&["sh", "-c", "echo 'no rights' >&2; exit 3"], within).unwrap_err();
        assert!(error.contains("exit status: 3: no rights"), "{error}");
        let error = ask(&["sh", "-c", "echo 'no master'; exit 1"], within).unwrap_err();
        assert!(error.ends_with("exit status: 1: no master"), "{error}");
        let error = ask(&["false"], within).unwrap_err();
        assert_eq!(error, "`false`: exit status: 1: it says no reason");
        let error = ask(&["stripewise-has-no-such-command"], within).unwrap_err();
        assert!(
            error.starts_with(
                "`stripewise-has-no-such-command`: there is no command stripewise-has-no-such-command here"
            ),
            "{error}"
        );
        let started = std::time::Instant::now();
        let error = ask(&["sleep", "600"], Duration::from_millis(50)).unwrap_err();
        assert_eq!(error, "`sleep 600`: no answer within 50 ms");
        assert!(started.elapsed() < within);
    }

    #[test]
    fn a_site_has_named_devices_and_the_profile_beside_it() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("site.toml");
        let text = "version = 1\nfs = \"lustre\"\n[network]\nlink = \"gigabit\"\n\
                    [[targets]]\nclass = \"ssd\"\nnames = [\"OST0000\"]\ndevice = \"nvme\"\n\
                    [[targets]]\nclass = \"hdd\"\nnames = [\"OST0001\"]\ndevice = \"hdd-7200\"\n";
        std::fs::write(&path, text).unwrap();
        let mut profile = load(&path).unwrap().servers.profile;
        assert_eq!(profile.servers[0].read_random.alpha_s, 20e-6);
        assert_eq!(profile.network.e_s, 3e-4);
        assert_eq!(profile.caveats, [Caveat::Unmeasured { servers: 2 }]);

        std::fs::write(&path, text.replace("nvme", "nmve")).unwrap();
        let error = load(&path).unwrap_err().to_string();
        assert!(error.contains("line 8: unknown device `nmve`; known: hdd-7200"), "{error}");

        profile.caveats.clear();
        profile.servers[1].read_random.alpha_s = 0.02;
        profile.save(&directory.path().join("profile.json")).unwrap();
        let bare = text
            .replace("device = \"hdd-7200\"\n", "")
            .replace("version = 1", "version = 1\nprofile = \"profile.json\"");
        std::fs::write(&path, &bare).unwrap();
        assert_eq!(load(&path).unwrap().servers.profile.servers[1].read_random.alpha_s, 0.02);
        std::fs::write(&path, bare.replace("profile.json", "none.json")).unwrap();
        let error = load(&path).unwrap_err().to_string();
        assert!(error.contains("site.toml: cannot read the profile") && error.contains("none.json"), "{error}");
    }
}
