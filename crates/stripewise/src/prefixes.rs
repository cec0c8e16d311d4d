//! Files that a person names by how their paths begin (`--file`).
//!
//! Traces have paths as the kernel does, without links and `..`. A prefix is also compared as it was given: traces of other hosts have directories
//! that this one lacks, and logs whose names are replaced have none.

use crate::messages::shown;
use std::ffi::OsString;
use std::path::{Component, Path, PathBuf};
use stripewise_layout::text::bytes_of;

/// Prefixes that a message names, at most.
const NAMED: usize = 3;

/// How paths begin.
pub(crate) struct Prefix {
    given: PathBuf,
    resolved: PathBuf,
    /// What a path may begin with.
    forms: Vec<OsString>,
}

impl Prefix {
    pub(crate) fn new(given: &Path) -> Self {
        let mut found = Self { given: given.to_owned(), resolved: given.to_owned(), forms: vec![given.into()] };
        // Nothing is one without a directory: an empty prefix, or all where the working directory is gone.
        let Ok(absolute) = std::path::absolute(given) else { return found };
        let text = given.as_os_str().as_encoded_bytes();
        let is_directory =
            text.ends_with(b"/") || matches!(text.rsplit(|byte| *byte == b'/').next(), Some(b"." | b".."));
        let begin = |path: &Path, is_directory: bool| {
            let mut form = path.as_os_str().to_owned();
            if is_directory && !form.as_encoded_bytes().ends_with(b"/") {
                form.push("/");
            }
            form
        };
        found.resolved = resolved(&absolute);
        // The last component may be the beginning of a name, whatever else has that name.
        let named = match (absolute.parent(), absolute.file_name()) {
            (Some(parent), Some(name)) => resolved(parent).join(name),
            _ => found.resolved.clone(),
        };
        // Behind a link lies one directory; others whose names begin like its own are not meant.
        let is_linked = found.resolved != named && found.resolved.is_dir();
        found.forms.extend([
            begin(&absolute, is_directory),
            begin(&named, is_directory),
            begin(&found.resolved, is_directory || is_linked),
        ]);
        found.forms.dedup();
        found
    }

    /// Whether `path`, as traces have it, begins so.
    pub(crate) fn begins(&self, path: &str) -> bool {
        let name = bytes_of(path);
        self.forms.iter().any(|form| name.starts_with(form.as_encoded_bytes()))
    }

    /// Whether `path`, as traces have it, is no longer than the prefix.
    pub(crate) fn is(&self, path: &str) -> bool {
        let name = bytes_of(path);
        self.forms.iter().any(|form| name == form.as_encoded_bytes())
    }

    /// As the command line has it, and what it stands for.
    pub(crate) fn text(&self) -> String {
        let option = format!("--file {}", shown(&self.given));
        match self.resolved == self.given {
            true => option,
            false => format!("{option} ({})", shown(&self.resolved)),
        }
    }
}

/// `path`, which is absolute, as far as it exists without links, and without `..`.
fn resolved(path: &Path) -> PathBuf {
    if let Ok(real) = std::fs::canonicalize(path) {
        return real;
    }
    let mut components = path.components();
    match components.next_back() {
        Some(Component::Normal(name)) => resolved(components.as_path()).join(name),
        Some(Component::ParentDir) => {
            let mut parent = resolved(components.as_path());
            parent.pop();
            parent
        }
        _ => path.to_owned(),
    }
}

/// The prefixes of one command; without any, no file is named.
pub(crate) struct Prefixes(Vec<Prefix>);

impl Prefixes {
    pub(crate) fn new(given: &[PathBuf]) -> Self {
        Self(given.iter().map(|given| Prefix::new(given)).collect())
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether `path` begins as one of them.
    pub(crate) fn name(&self, path: &str) -> bool {
        self.0.iter().any(|prefix| prefix.begins(path))
    }

    /// Says which of them begin none of `paths`; `None` where each begins one.
    pub(crate) fn unmatched<'a>(&self, paths: impl Iterator<Item = &'a str> + Clone) -> Option<String> {
        let begins_none = |prefix: &&Prefix| !paths.clone().any(|path| prefix.begins(path));
        let found: Vec<String> = self.0.iter().filter(begins_none).map(Prefix::text).collect();
        let named = found.iter().take(NAMED).map(String::as_str).collect::<Vec<_>>().join(", ");
        match found.len() {
            0 => None,
            1 => Some(format!("{named} begins no traced path")),
            count if count <= NAMED => Some(format!("{named} begin no traced path")),
            count => Some(format!("{named} and {} other prefixes begin no traced path", count - NAMED)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_is_as_it_was_given_and_as_the_kernel_has_it() {
        let here = std::env::current_dir().unwrap().canonicalize().unwrap();
        let in_here = |name: &str| here.join(name).to_str().unwrap().to_owned();
        let begins = |prefix: &str, path: &str| Prefix::new(Path::new(prefix)).begins(path);
        assert!(begins("dat", &in_here("data/a")), "from the working directory");
        assert!(begins("gone/../dat", &in_here("data/a")), "without a directory that is not there");
        assert!(begins("src/../src", &in_here("src/lib.rs")) && begins("..", &in_here("x")));
        assert!(begins("darshan-1", "darshan-17"), "where files have no directories");
        assert!(begins("/no/such/../directory/a", "/no/such/../directory/a") && begins("", "/anything"));
        assert!(!begins("src/", &in_here("src2")) && begins("src", &in_here("src2")));
        assert!(!begins(".", &format!("{}2/x", here.display())), "`.` names a directory");
    }

    #[test]
    fn links_are_followed_as_far_as_there_is_something() {
        let place = tempfile::tempdir().unwrap();
        let root = place.path().canonicalize().unwrap();
        std::fs::create_dir_all(root.join("scratch/user")).unwrap();
        std::os::unix::fs::symlink(root.join("scratch/user"), root.join("link")).unwrap();
        let begins =
            |prefix: &str, path: &str| Prefix::new(&root.join(prefix)).begins(root.join(path).to_str().unwrap());
        assert!(begins("link/out", "scratch/user/out.17"), "the file is yet to be made");
        assert!(begins("link/new/out", "scratch/user/new/out.17") && begins("link/", "scratch/user/a"));
        assert!(begins("link", "scratch/user/a") && begins("link", "links/a") && begins("link/../a", "scratch/a"));
        assert!(!begins("link", "scratch/user2/a"), "another directory");
        assert!(begins("link/out", "link/out.17"), "as another host has it");
    }

    #[test]
    fn prefixes_without_a_file_are_named_with_what_they_stand_for() {
        let here = std::env::current_dir().unwrap().canonicalize().unwrap();
        let prefixes = |given: &[&str]| Prefixes::new(&given.iter().map(PathBuf::from).collect::<Vec<_>>());
        let paths = ["/d/a", "/d/b"];
        let unmatched = |given: &[&str]| prefixes(given).unmatched(paths.into_iter());
        assert_eq!(unmatched(&["/d/a", "/d"]), None);
        assert_eq!(unmatched(&["/d/a", "/gone"]).unwrap(), "--file /gone begins no traced path");
        let expected = format!("--file x/../a ({}/a), --file /gone begin no traced path", here.display());
        assert_eq!(unmatched(&["x/../a", "/gone"]).unwrap(), expected);
        assert!(
            unmatched(&["/1", "/2", "/3", "/4", "/5"])
                .unwrap()
                .ends_with("/3 and 2 other prefixes begin no traced path")
        );
    }
}
