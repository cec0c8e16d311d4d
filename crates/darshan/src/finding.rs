//! Where libdarshan-util is: as [`LIBRARY_VARIABLE`] says, as the loader finds it, or in PyDarshan's wheel.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// Path of the library; found by itself when not set.
pub const LIBRARY_VARIABLE: &str = "STRIPEWISE_DARSHAN_UTIL";

/// Names by which the loader may know it.
const NAMES: [&str; 2] = ["libdarshan-util.so", "libdarshan-util.so.0"];

/// A wheel's libraries lie beside its package. Asks where that is without importing it.
const ASK_PYTHON: &str = "\
import glob, importlib.util, os
found = importlib.util.find_spec('darshan')
for place in found.submodule_search_locations if found else []:
    for path in sorted(glob.glob(os.path.join(glob.escape(os.path.dirname(place)), 'darshan.libs', 'libdarshan-util*.so*'))):
        print(path)
";

/// Candidates in order; Python is asked only when the ones before failed.
pub(crate) fn candidates() -> Box<dyn Iterator<Item = PathBuf>> {
    if let Some(path) = std::env::var_os(LIBRARY_VARIABLE).filter(|path| !path.is_empty()) {
        return Box::new(std::iter::once(PathBuf::from(path)));
    }
    Box::new(NAMES.iter().map(PathBuf::from).chain(std::iter::once_with(in_wheel).flatten()))
}

fn in_wheel() -> Vec<PathBuf> {
    use std::os::unix::ffi::OsStringExt;
    let asked = Command::new("python3").args(["-c", ASK_PYTHON]).stdin(Stdio::null()).stderr(Stdio::null()).output();
    let text = asked.map(|output| output.stdout).unwrap_or_default();
    let lines = text.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
    lines.map(|line| PathBuf::from(OsString::from_vec(line.to_vec()))).collect()
}
