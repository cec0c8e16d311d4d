//! The options of `beegfs entry create file` and `beegfs-ctl --createfile`, by their helps and sources.

use super::super::ReadBack;
use super::super::layout::{NativeLayout, Turn};
use super::super::script::Script;
use crate::site::Site;
use std::collections::BTreeMap;

/// What a file is asked before.
fn asks(command: &[String]) -> bool {
    let words: Vec<&str> = command.iter().map(String::as_str).collect();
    match words[..] {
        ["beegfs", "entry", "info", "--retro", path] => path.starts_with('/'),
        ["beegfs-ctl", "--getentryinfo", "--null", "-"] => true,
        // As with `--createfile`, and blanks at its ends are dropped.
        ["beegfs-ctl", "--getentryinfo", path] => path.starts_with('/') && !path.contains('=') && path.trim() == path,
        _ => false,
    }
}

pub(super) fn read_back(site: &Site, commands: &[Vec<String>], _: &Script) -> ReadBack {
    let read = |command: &Vec<String>| {
        let (options, is_8) = match &command[..] {
            [tool, entry, create, file, options @ ..] if tool == "beegfs" => {
                if [entry, create, file] != ["entry", "create", "file"] {
                    return Err(format!("{command:?}"));
                }
                (options, true)
            }
            [tool, mode, options @ ..] if tool == "beegfs-ctl" && mode == "--createfile" => (options, false),
            _ => return Err(format!("{command:?}")),
        };
        let (path, options) = options.split_last().ok_or("no path")?;
        let mut known: BTreeMap<&str, &str> = BTreeMap::new();
        for option in options {
            let (key, value) = option.split_once('=').unwrap_or((option, ""));
            known.insert(key, value);
        }
        let (chunk, count) = if is_8 { ("--chunk-size", "--num-targets") } else { ("--chunksize", "--numtargets") };
        let mode = if is_8 { "--permissions" } else { "--access" };
        let mut take = |key: &str| known.remove(key).ok_or(format!("{key} is missing in {command:?}"));
        let chunk: u64 = take(chunk)?.parse().map_err(|_| "chunk")?;
        let count: usize = take(count)?.parse().map_err(|_| "count")?;
        let targets: Vec<u32> =
            take("--targets")?.split(',').map(|id| id.parse().map_err(|_| "target")).collect::<Result<_, _>>()?;
        take("--force")?;
        if !["0600", "0644"].contains(&take(mode)?) {
            return Err("mode".to_owned());
        }
        if !is_8 && take("--pattern")? != "raid0" {
            return Err("pattern".to_owned());
        }
        let mut distinct = targets.clone();
        distinct.sort_unstable();
        distinct.dedup();
        let is_good = chunk.is_power_of_two() && chunk >= 64 << 10 && u32::try_from(chunk).is_ok();
        if !is_good || !known.is_empty() || distinct.len() != targets.len() || count > targets.len() {
            return Err(format!("{command:?}"));
        }
        // beegfs-ctl takes what begins without `--` for the path, and all behind `=` for a value.
        if !is_8 && (path.starts_with("--") || path.contains('=')) {
            return Err(format!("path {path}"));
        }
        let turn = |id: &u32| {
            let found = site.targets.iter().position(|target| target.number == Some(*id));
            Ok(Turn { target: found.ok_or(format!("no target {id}"))?, bytes: chunk })
        };
        let turns = targets.iter().map(turn).collect::<Result<Vec<Turn>, String>>()?;
        Ok((path.clone(), NativeLayout::whole(turns, None)))
    };
    commands.iter().filter(|command| !asks(command)).map(read).collect()
}
