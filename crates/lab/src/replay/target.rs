//! Where the files of a replay lie, and whether the replay may touch what is there.

use super::script::{ScriptFile, Use};
use anyhow::{Context as _, Result, bail, ensure};
use rustix::fs::statvfs;
use std::collections::BTreeSet;
use std::fs::File;
use std::path::{Path, PathBuf};
use stripewise::store::read_stub;
use stripewise::{Session, Store};
use stripewise_layout::figures;
use stripewise_trace::FileShape;

/// What the command line says about files.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wishes<'a> {
    pub(super) directory: Option<&'a Path>,
    pub(super) redirect: bool,
    pub(super) force: bool,
    pub(super) keep: bool,
}

/// The path of each file: its own, or below the directory by its name, with its directories where two names are equal.
pub(super) fn paths(files: &[FileShape], directory: Option<&Path>) -> Result<Vec<PathBuf>> {
    let Some(directory) = directory else {
        return Ok(files.iter().map(|file| PathBuf::from(&file.path)).collect());
    };
    let directory = std::path::absolute(directory)?;
    let names: BTreeSet<_> = files.iter().map(|file| Path::new(&file.path).file_name()).collect();
    let unique = names.len() == files.len();
    let below = |file: &FileShape| {
        let path = Path::new(&file.path);
        match path.file_name().filter(|_| unique) {
            Some(name) => directory.join(name),
            None => directory.join(path.strip_prefix("/").unwrap_or(path)),
        }
    };
    Ok(files.iter().map(below).collect())
}

/// Makes the directories that the files need below `--directory`; elsewhere they must be there.
pub(super) fn make_directories(paths: &[PathBuf], directory: Option<&Path>) -> Result<()> {
    let parents: BTreeSet<&Path> = paths.iter().filter_map(|path| path.parent()).collect();
    for parent in parents {
        if directory.is_some() {
            std::fs::create_dir_all(parent)
                .with_context(|| format!("cannot make the directory {}", parent.display()))?;
        }
        ensure!(
            parent.is_dir(),
            "there is no directory {}, where the workload has its files; make it, or map the files with --directory DIR",
            parent.display()
        );
    }
    Ok(())
}

/// How many of the files are managed, or will be when the redirected program makes them.
pub(super) fn count_managed(session: &Session, paths: &[PathBuf]) -> Result<usize> {
    let store = Store::open(session)?;
    let mut managed = 0;
    for path in paths {
        let is_managed = match File::open(path) {
            Ok(opened) => read_stub(&opened, path)?.is_some(),
            Err(_) => will_be_managed(&store, path)?,
        };
        managed += usize::from(is_managed);
    }
    Ok(managed)
}

/// Whether a new file at `path` gets servers: by the directory that it is made in, or by its name.
fn will_be_managed(store: &Store, path: &Path) -> Result<bool> {
    let directory = path.parent().and_then(|parent| parent.canonicalize().ok());
    let (Some(directory), Some(name)) = (directory, path.file_name()) else { return Ok(false) };
    let is_below = |managed: &String| directory.starts_with(managed);
    let path = directory.join(name);
    Ok(store.client.managed_directories().iter().any(is_below)
        || path.to_str().map(|path| store.client.expects(path)).transpose()?.unwrap_or(false))
}

/// What is to be done about a file, if the replay may touch it.
pub(super) fn decide(path: &Path, shape: &FileShape, found: &Use, wishes: &Wishes<'_>) -> Result<ScriptFile> {
    let file = |prepare, remove| ScriptFile { path: path.to_owned(), size_bytes: shape.size_bytes, prepare, remove };
    let touched = found.reads || found.writes;
    let Ok(metadata) = path.metadata() else {
        return Ok(file(found.reads_first, touched && !wishes.keep));
    };
    ensure!(
        metadata.is_file(),
        "{} is not a file; map the workload's files elsewhere with --directory DIR",
        path.display()
    );
    if found.writes && !wishes.force {
        bail!(
            "{} exists and the workload would write over it; replay in another directory (--directory DIR)",
            path.display()
        );
    }
    let is_managed = File::open(path).ok().map(|opened| read_stub(&opened, path)).transpose()?.flatten().is_some();
    if is_managed {
        ensure!(
            wishes.redirect,
            "{} is a managed file; replay it with --redirect, or map the workload's files elsewhere with --directory DIR",
            path.display()
        );
        return Ok(file(found.reads_first && wishes.force, false));
    }
    let prepare = found.reads_first && wishes.force && found.writes;
    if found.reads_first && !prepare && metadata.len() < shape.size_bytes {
        bail!(
            "{} has {} bytes and the workload reads up to {}; name a directory without it (--directory DIR), and the replay makes one",
            path.display(),
            metadata.len(),
            shape.size_bytes
        );
    }
    Ok(file(prepare, false))
}

/// Refuses when what the replay makes again has no space.
pub(super) fn check_space(files: &[ScriptFile], uses: &[Use]) -> Result<()> {
    let mut needed: Vec<(u64, u64, &Path)> = Vec::new();
    for (file, found) in files.iter().zip(uses) {
        let Some(parent) = file.path.parent().filter(|_| file.prepare || !file.path.exists()) else { continue };
        let bytes = if file.prepare { file.size_bytes } else { file.size_bytes.min(found.bytes_written) };
        let device = std::os::unix::fs::MetadataExt::dev(&parent.metadata()?);
        match needed.iter_mut().find(|(known, ..)| *known == device) {
            Some((_, sum, _)) => *sum = sum.saturating_add(bytes),
            None => needed.push((device, bytes, parent)),
        }
    }
    for (_, bytes, parent) in needed {
        let Ok(found) = statvfs(parent) else { continue };
        let free = found.f_bavail.saturating_mul(found.f_frsize);
        ensure!(
            bytes <= free,
            "{} has space for {} and the replay's files need {}; make the workload smaller, or give another --directory",
            parent.display(),
            figures::bytes(free),
            figures::bytes(bytes)
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shape(path: &str, size_bytes: u64) -> FileShape {
        FileShape { path: path.to_owned(), size_bytes }
    }

    #[test]
    fn files_keep_their_names_below_a_directory() {
        let files = [shape("/a/x", 1), shape("/b/y", 1)];
        assert_eq!(paths(&files, None).unwrap(), [Path::new("/a/x"), Path::new("/b/y")]);
        assert_eq!(paths(&files, Some(Path::new("/d"))).unwrap(), [Path::new("/d/x"), Path::new("/d/y")]);
        let files = [shape("/a/x", 1), shape("/b/x", 1)];
        assert_eq!(paths(&files, Some(Path::new("/d"))).unwrap(), [Path::new("/d/a/x"), Path::new("/d/b/x")]);
    }

    #[test]
    fn what_stands_there_is_left_alone_unless_forced() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("data");
        let wishes = Wishes { directory: None, redirect: false, force: false, keep: false };
        let forced = Wishes { force: true, ..wishes };
        let read = Use { reads: true, reads_first: true, ..Use::default() };
        let write = Use { writes: true, ..Use::default() };
        let both = Use { reads: true, reads_first: true, writes: true, ..Use::default() };
        let decide = |found: &Use, wishes: &Wishes<'_>| {
            decide(&path, &shape("/data", 100), found, wishes).map(|file| (file.prepare, file.remove))
        };
        assert_eq!(decide(&read, &wishes).unwrap(), (true, true));
        assert_eq!(decide(&write, &wishes).unwrap(), (false, true));
        assert_eq!(decide(&both, &Wishes { keep: true, ..wishes }).unwrap(), (true, false));
        std::fs::write(&path, [0; 99]).unwrap();
        assert!(
            decide(&write, &wishes)
                .unwrap_err()
                .to_string()
                .contains("would write over it; replay in another directory")
        );
        assert!(
            decide(&read, &wishes).unwrap_err().to_string().contains("has 99 bytes and the workload reads up to 100")
        );
        // A file that is only read is never written, not even when forced.
        assert!(decide(&read, &forced).is_err());
        assert_eq!(decide(&both, &forced).unwrap(), (true, false));
        std::fs::write(&path, [0; 100]).unwrap();
        assert_eq!(decide(&read, &wishes).unwrap(), (false, false));
        assert_eq!(decide(&write, &forced).unwrap(), (false, false));
    }
}
