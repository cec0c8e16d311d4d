//! Which files of the logs are laid out.

use super::inputs::{Accesses, Read};
use super::{AdviseError, AdviseOptions};
use crate::data_files::is_data;
use crate::messages::printable;
use crate::messages::shown;
use crate::prefixes::Prefixes;
use crate::site::LoadedSite;
use std::path::Path;
use stripewise_layout::figures::{bytes, counted};
use stripewise_planner::{Capacity, MAX_REGIONS};
use stripewise_trace::FileAccess;

/// Files that a remark names, at most.
const NAMED_FILES: usize = 5;

/// Paths of the files that are laid out, in order, or why there are none.
pub(super) fn choose(
    read: &Read,
    accesses: &Accesses,
    loaded: &LoadedSite,
    (options, prefixes): (&AdviseOptions, &Prefixes),
    remarks: &mut Vec<String>,
) -> Result<Result<Vec<String>, String>, AdviseError> {
    let too_large = too_large(read, accesses, loaded, prefixes);
    if accesses.files.is_empty() {
        return nothing(read, too_large, options).map(Err);
    }
    remarks.extend(too_large);
    let mut chosen = wanted(read, accesses, loaded, (options, prefixes), remarks);
    let paths = accesses.files.iter().map(|file| &file.path).chain(&accesses.too_large);
    let unmatched = prefixes.unmatched(paths.map(String::as_str));
    if chosen.is_empty() {
        return Ok(Err(match (prefixes.is_empty(), unmatched) {
            (true, _) => none_wanted(read, accesses, loaded, options),
            (false, Some(unmatched)) => unmatched,
            (false, None) => "the files that are named are too large".to_owned(),
        }));
    }
    remarks.extend(unmatched);
    chosen.sort_by_key(|file| std::cmp::Reverse(asked_bytes(file)));
    let all: u128 = chosen.iter().map(|file| asked_bytes(file)).sum();
    let space = Capacity::of(&loaded.servers.cluster, &[], None, &[]).total_bytes();
    let Fitting { kept, without_space, beyond } = fitting(chosen, space, options.max_files);
    if let (Some(space), Some(first)) = (space, without_space.first()) {
        let space = bytes(u64::try_from(space).unwrap_or(u64::MAX));
        if kept.is_empty() {
            return Ok(Err(format!(
                "the site's targets hold {space} together, by `capacity` in {}, and {} alone has {}",
                shown(loaded.site.path()),
                printable(&first.path, false),
                bytes(first.size_bytes)
            )));
        }
        let names: Vec<_> = without_space.iter().take(NAMED_FILES).map(|file| printable(&file.path, false)).collect();
        let others = without_space.len() - names.len();
        remarks.push(format!(
            "left out, since the site's targets hold {space} together (`capacity`): {}{}",
            names.join(", "),
            if others > 0 { format!(" and {}", counted(others, "other file", "other files")) } else { String::new() }
        ));
    }
    if !beyond.is_empty() {
        let moved: u128 = beyond.iter().map(|file| asked_bytes(file)).sum();
        remarks.push(format!(
            "the {} files with the most bytes are laid out; the other {} move {:.1} % of all bytes (--max-files)",
            kept.len(),
            beyond.len(),
            moved as f64 * 100.0 / (all as f64).max(1.0)
        ));
    }
    let mut paths: Vec<String> = kept.into_iter().map(|file| file.path.clone()).collect();
    paths.sort();
    Ok(Ok(paths))
}

/// Why nothing can be planned at all.
fn nothing(read: &Read, too_large: Option<String>, options: &AdviseOptions) -> Result<String, AdviseError> {
    if let Some(too_large) = too_large {
        return Ok(too_large);
    }
    if let Some(missing) = read.logs.iter().flat_map(|log| &log.missing).next() {
        let logs = options.logs.iter().map(|path| shown(path)).collect::<Vec<_>>().join(", ");
        return Err(AdviseError::NothingLeft { logs, missing: missing.clone() });
    }
    let has_requests = read.activity.read.count > 0 || read.activity.write.count > 0;
    let what = if has_requests { "no reads or writes that can be planned" } else { "no reads or writes" };
    Ok(format!("the logs have {what}"))
}

/// What is said of files that end behind what can be planned.
fn too_large(read: &Read, accesses: &Accesses, loaded: &LoadedSite, prefixes: &Prefixes) -> Option<String> {
    let is_meant = |path: &&String| match prefixes.is_empty() {
        true => may_be_data(path) && is_of_site(path, read, loaded),
        false => prefixes.name(path),
    };
    let mut paths = accesses.too_large.iter().filter(is_meant);
    let first = paths.next()?;
    let others = match paths.count() {
        0 => String::new(),
        others => format!(", and {},", counted(others, "other file", "other files")),
    };
    let region = loaded.servers.cluster.region_size;
    Some(format!(
        "requests on {}{others} lie behind {}, where plans end in regions of {region}: left out; if that is no damage of the log, give {} a larger `region`",
        printable(first, false),
        bytes(region.0.saturating_mul(MAX_REGIONS)),
        shown(loaded.site.path())
    ))
}

/// The files that are meant: those that are named, or those of the site that are large enough.
fn wanted<'a>(
    read: &Read,
    accesses: &'a Accesses,
    loaded: &LoadedSite,
    (options, prefixes): (&AdviseOptions, &Prefixes),
    remarks: &mut Vec<String>,
) -> Vec<&'a FileAccess> {
    if !prefixes.is_empty() {
        return accesses.files.iter().filter(|file| prefixes.name(&file.path)).collect();
    }
    let large: Vec<&FileAccess> = accesses.files.iter().filter(|file| is_large(file, options)).collect();
    let below: Vec<&FileAccess> = large.iter().copied().filter(|file| is_of_site(&file.path, read, loaded)).collect();
    match (&loaded.site.file.mount, below.is_empty() && !large.is_empty()) {
        (Some(mount), true) => {
            remarks.push(format!(
                "no file of the logs lies below {}, the site's mount: {} of the logs {} taken to lie there",
                shown(mount),
                counted(large.len(), "file", "files"),
                if large.len() == 1 { "is" } else { "are" }
            ));
            large
        }
        _ => below,
    }
}

/// Why no file is meant where none is named.
fn none_wanted(read: &Read, accesses: &Accesses, loaded: &LoadedSite, options: &AdviseOptions) -> String {
    let files = accesses.files.len();
    let elsewhere = accesses.files.iter().filter(|file| is_large(file, options)).max_by_key(|file| asked_bytes(file));
    match elsewhere {
        Some(file) => format!(
            "no file of at least {} lies on {}, as the logs have it ({} lies on {}); name files with --file",
            bytes(options.least.0),
            loaded.site.fs.name,
            printable(&file.path, false),
            kinds_of(&file.path, read).join(", ")
        ),
        None => format!(
            "its {} smaller than {} or no data; lower --least-size or name files with --file",
            counted(files, "file is", "files are"),
            bytes(options.least.0)
        ),
    }
}

/// What becomes of files.
#[derive(Default)]
struct Fitting<'a> {
    kept: Vec<&'a FileAccess>,
    /// Those for which the targets have no space.
    without_space: Vec<&'a FileAccess>,
    /// Those behind the last that is kept.
    beyond: Vec<&'a FileAccess>,
}

/// Keeps the first files that have space together; `space`: of all targets, if that is known.
fn fitting(files: Vec<&FileAccess>, space: Option<u128>, max_files: usize) -> Fitting<'_> {
    let (mut found, mut taken) = (Fitting::default(), 0);
    for file in files {
        let with_it = taken + u128::from(file.size_bytes);
        if found.kept.len() == max_files {
            found.beyond.push(file);
        } else if space.is_none_or(|space| with_it <= space) {
            found.kept.push(file);
            taken = with_it;
        } else {
            found.without_space.push(file);
        }
    }
    found
}

fn is_large(file: &FileAccess, options: &AdviseOptions) -> bool {
    may_be_data(&file.path) && file.size_bytes >= options.least.0
}

/// Whether a path may be that of a program's data.
pub(super) fn may_be_data(path: &str) -> bool {
    is_data(Path::new(path)) || has_no_name(path)
}

/// Whether a file stands by a number: one whose name the log lacks, or has replaced by its hash (`darshan-convert --obfuscate`).
fn has_no_name(path: &str) -> bool {
    ["darshan-", "dftracer-"].iter().any(|begin| path.starts_with(begin))
        || (!path.is_empty() && path.bytes().all(|byte| byte.is_ascii_digit()))
}

/// Whether a file lies below the site's mount, or on a file system of its kind where the site names no mount.
fn is_of_site(path: &str, read: &Read, loaded: &LoadedSite) -> bool {
    if let Some(mount) = &loaded.site.file.mount {
        return Path::new(path).starts_with(mount);
    }
    let kinds = kinds_of(path, read);
    kinds.is_empty() || kinds.iter().any(|kind| kind.contains(loaded.site.fs.name))
}

/// The file systems on which the logs have this path.
fn kinds_of<'a>(path: &str, read: &'a Read) -> Vec<&'a str> {
    let mut kinds: Vec<&str> = read.darshan.iter().filter_map(|log| log.file_system_of(path)).collect();
    kinds.sort_unstable();
    kinds.dedup();
    kinds
}

/// Bytes of all requests on a file.
fn asked_bytes(file: &FileAccess) -> u128 {
    let counts = file.windows.iter().flat_map(|window| &window.regions).flat_map(|region| &region.counts);
    counts.map(|(class, count)| u128::from(*count) * u128::from(file.class(*class).request_bytes)).sum()
}
