//! `site.toml`, and what the file systems' commands print of a site.

use crate::Outcome;
use std::path::Path;
use stripewise_planner::native::{self, NativeLayout};
use stripewise_planner::site::{LinkTimes, Site, SiteError, TargetTimes, Times};

const PATH: &str = "/somewhere/site.toml";

pub fn run(bytes: &[u8]) -> Outcome {
    let Ok(text) = std::str::from_utf8(bytes) else { return Outcome::Refused };
    let known = native::file_systems();
    let site = match Site::parse(text, Path::new(PATH), &known) {
        Ok(site) => site,
        Err(error) => {
            assert!(error.to_string().contains(PATH), "{error}");
            return Outcome::Refused;
        }
    };
    let again = Site::parse(&site.file.to_toml(), Path::new(PATH), &known).unwrap();
    assert_eq!((&again.file, &again.targets, &again.pools), (&site.file, &site.targets, &site.pools));
    let (from, count, stripe_size) = site.default_layout();
    assert!((1..=from.len()).contains(&count) && stripe_size.0 > 0);
    for file in [0, 1, usize::from(u16::MAX)] {
        let held = NativeLayout::site_default(&site, file).target_bytes(site.targets.len(), 1 << 30);
        assert_eq!(held.iter().sum::<u64>(), 1 << 30);
    }
    let times = Times { sequential_s: 1e-4, random_s: 1e-2, s_per_byte: 1e-8 };
    let device = |_: &str| Ok(TargetTimes { read: times, write: times });
    let link = |_: &str| Ok(LinkTimes { message_s: 1e-4, s_per_byte: 1e-9 });
    match site.servers(&device, &link, None) {
        Ok(servers) => {
            assert_eq!(servers.cluster.check(), Ok(()));
            assert_eq!(servers.profile.servers.len(), site.targets.len());
        }
        Err(error) => assert!(error.to_string().contains(PATH), "{error}"),
    }
    if let Err(error) = native::check(&site) {
        assert!(error.to_string().starts_with(PATH), "{error}");
    }
    Outcome::Read
}

/// The first line names the file system. Then follow, as in the planner's fixtures, `$ COMMAND` and what it prints, or `! COMMAND`, which fails.
pub fn run_detection(bytes: &[u8]) -> Outcome {
    // As what commands print is read.
    let text = String::from_utf8_lossy(bytes);
    let (name, outputs) = text.split_once('\n').unwrap_or((&text, ""));
    let Some(native) = native::lookup(name) else { return Outcome::Refused };
    let mut ask = |words: &[&str]| -> Result<String, String> {
        let command = words.join(" ");
        let mut lines = outputs.lines().skip_while(|line| line.strip_prefix("$ ") != Some(&command));
        lines.next().ok_or_else(|| format!("`{command}` failed"))?;
        let output = lines.take_while(|line| !line.starts_with("$ ") && !line.starts_with("! "));
        Ok(output.map(|line| format!("{line}\n")).collect())
    };
    let found = match native.detect(&mut ask, Path::new("/mnt")) {
        Ok(found) => found,
        Err(error) => {
            assert!(!error.is_empty());
            return Outcome::Refused;
        }
    };
    // What a command says may be no name, or too many of them: reading the description says so.
    match Site::parse(&found.text(), Path::new(PATH), &native::file_systems()) {
        Ok(site) => {
            assert_eq!(site.file, found.file);
            Outcome::Read
        }
        Err(error) => {
            assert!(matches!(error, SiteError::Invalid { .. }), "{error}\n{}", found.text());
            Outcome::Refused
        }
    }
}
