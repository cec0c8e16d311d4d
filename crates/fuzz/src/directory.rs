//! Inputs that their readers open by name.

use std::path::{Path, PathBuf};
use tempfile::TempDir;

thread_local! {
    static DIRECTORY: TempDir = in_memory();
}

/// In memory where that can be had: inputs come by the ten thousand.
fn in_memory() -> TempDir {
    let memory = Path::new("/dev/shm");
    if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() }.expect("a temporary directory")
}

/// Calls `then` with a directory that holds these files, and those of whoever called this one.
pub(crate) fn with<T>(files: &[(&str, &[u8])], then: impl FnOnce(&Path) -> T) -> T {
    DIRECTORY.with(|directory| {
        let paths: Vec<PathBuf> = files.iter().map(|(name, _)| directory.path().join(name)).collect();
        for (path, (_, bytes)) in paths.iter().zip(files) {
            std::fs::write(path, bytes).expect("there is free space");
        }
        let _written = Written(paths);
        then(directory.path())
    })
}

/// Removed also when a property did not hold.
struct Written(Vec<PathBuf>);

impl Drop for Written {
    fn drop(&mut self) {
        self.0.iter().for_each(|path| drop(std::fs::remove_file(path)));
    }
}
