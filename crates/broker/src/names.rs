//! Which new files become managed, and how they are placed: managed directories, and paths that a plan expects.

use crate::rmt::{Changes, ManagedDirectory, NameKind, RmtError, Table};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use stripewise_layout::Placement;
use stripewise_store::protocol::{ExpectedFile, MAX_PACKET_BYTES};

/// [`Names`], as all parts share them.
pub(crate) struct ManagedNames(RwLock<Names>);

impl ManagedNames {
    pub(crate) fn load(table: &Table) -> Result<Self, RmtError> {
        Ok(Self(RwLock::new(Names::load(table)?)))
    }

    pub(crate) fn read(&self) -> RwLockReadGuard<'_, Names> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn write(&self) -> RwLockWriteGuard<'_, Names> {
        self.0.write().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Debug, Default)]
pub(crate) struct Names {
    managed: BTreeMap<String, ManagedDirectory>,
    expected: BTreeMap<String, Placement>,
}

impl Names {
    pub(crate) fn load(table: &Table) -> Result<Self, RmtError> {
        Ok(Self {
            managed: table.directories()?.into_iter().collect(),
            expected: table.names(NameKind::Expected)?.into_iter().collect(),
        })
    }

    /// Durable first, then in force.
    pub(crate) fn expect_one(&mut self, table: &Table, path: &str, placement: Placement) -> Result<(), RmtError> {
        table.set_name(NameKind::Expected, path, Some(&placement))?;
        self.expected.insert(path.to_owned(), placement);
        Ok(())
    }

    /// Manages a directory, or with `None` no longer. Durable first, then in force.
    pub(crate) fn manage(
        &mut self,
        table: &Table,
        path: &str,
        directory: Option<ManagedDirectory>,
    ) -> Result<(), RmtError> {
        match directory {
            Some(directory) => {
                table.set_directory(path, &directory)?;
                self.managed.insert(path.to_owned(), directory);
            }
            None => {
                table.set_name(NameKind::Managed, path, None)?;
                self.managed.remove(path);
            }
        }
        Ok(())
    }

    /// As [`Self::expect_one`], of many expected files at once; those that are as they were are passed over.
    pub(crate) fn expect(&mut self, table: &Table, files: Vec<ExpectedFile>) -> Result<(), RmtError> {
        let mut changes = Changes::default();
        let mut new = Vec::new();
        for ExpectedFile { path, placement, replicas } in files {
            if let Some(replicas) = replicas
                && table.expected_replicas(&path)? != replicas
            {
                changes.expect_replicas(&path, &replicas)?;
            }
            if self.expected.get(&path) != Some(&placement) {
                changes.put_name(NameKind::Expected, &path, &placement)?;
                new.push((path, placement));
            }
        }
        if !changes.is_empty() {
            table.commit(&changes)?;
        }
        self.expected.extend(new);
        Ok(())
    }

    /// Expects `path` and what is below it no longer; returns how many names that were.
    pub(crate) fn forget(&mut self, table: &Table, path: &str) -> Result<u64, RmtError> {
        let is_forgotten = |name: &str| Path::new(name).starts_with(path);
        let names: Vec<String> = self.expected.keys().filter(|name| is_forgotten(name)).cloned().collect();
        let mut changes = Changes::default();
        for name in &names {
            changes.remove_name(NameKind::Expected, name)?;
            changes.expect_replicas(name, &[])?;
        }
        if !changes.is_empty() {
            table.commit(&changes)?;
        }
        self.expected.retain(|name, _| !is_forgotten(name));
        Ok(names.len() as u64)
    }

    /// The placement of a new file at `path`: the plan's for its name, else that of the nearest managed directory above it.
    pub(crate) fn placement_for(&self, path: &str) -> Option<&Placement> {
        self.expected.get(path).or_else(|| self.directory_of(path).map(|directory| &directory.placement))
    }

    /// The nearest managed directory above `path`.
    fn directory_of(&self, path: &str) -> Option<&ManagedDirectory> {
        Path::new(path).ancestors().skip(1).find_map(|above| self.managed.get(above.to_str().unwrap_or_default()))
    }

    /// Whether any managed directory has a minimum size.
    pub(crate) fn has_min_size(&self) -> bool {
        self.managed.values().any(|directory| directory.min_bytes.is_some())
    }

    /// The size in bytes below which a file at `path` is ordinary; `None` also where a plan expects the file.
    pub(crate) fn min_size_at(&self, path: &str) -> Option<u64> {
        if self.expected.contains_key(path) { None } else { self.directory_of(path)?.min_bytes }
    }

    /// The managed directories with a minimum size, and that size in bytes.
    pub(crate) fn min_sizes(&self) -> Vec<(String, u64)> {
        let with_size = |(path, directory): (&String, &ManagedDirectory)| Some((path.clone(), directory.min_bytes?));
        self.managed.iter().filter_map(with_size).collect()
    }

    /// Whether a plan expects a new file at `path`.
    pub(crate) fn is_expected(&self, path: &str) -> bool {
        self.expected.contains_key(path)
    }

    pub(crate) fn managed(&self) -> Vec<String> {
        self.managed.keys().cloned().collect()
    }

    /// The expected paths; where they are too many for one packet, their directories, each with a `/` at its end, which says that
    /// some names there are expected.
    pub(crate) fn expected(&self) -> Vec<String> {
        let bytes: usize = self.expected.keys().map(|path| path.len() + 3).sum();
        if bytes < MAX_PACKET_BYTES / 2 {
            return self.expected.keys().cloned().collect();
        }
        let directories: BTreeSet<String> = self
            .expected
            .keys()
            .filter_map(|path| path.rsplit_once('/'))
            .map(|(directory, _)| format!("{directory}/"))
            .collect();
        directories.into_iter().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use stripewise_layout::{ByteCount, Layout, ServerId};

    #[test]
    fn the_plan_goes_before_the_directory_and_the_nearest_directory_first() {
        let placement = |size| {
            let layout = Layout::new([(ServerId(0), size)]).unwrap();
            Placement::uniform(ByteCount(4096), layout.clone(), layout)
        };
        let mut names = Names::default();
        let directory = |size, min_bytes| ManagedDirectory { placement: placement(size), min_bytes };
        names.managed.insert("/a".into(), directory(1, Some(100)));
        assert!(names.has_min_size());
        assert_eq!(names.min_sizes(), [("/a".to_owned(), 100)]);
        names.managed.insert("/a/b".into(), directory(2, None));
        names.expected.insert("/a/b/planned".into(), placement(3));
        names.expected.insert("/elsewhere/planned".into(), placement(4));
        for (path, size) in [
            ("/a/x", Some(1)),
            ("/a/b/x", Some(2)),
            ("/a/b/c/x", Some(2)),
            ("/a/b/planned", Some(3)),
            ("/elsewhere/planned", Some(4)),
            ("/elsewhere/other", None),
            ("/ab", None),
            ("/a", None),
        ] {
            assert_eq!(names.placement_for(path), size.map(placement).as_ref(), "{path}");
        }
        names.expected.insert("/a/planned".into(), placement(5));
        for (path, min_bytes) in [("/a/x", Some(100)), ("/a/c/x", Some(100)), ("/a/b/x", None), ("/a/planned", None)] {
            assert_eq!(names.min_size_at(path), min_bytes, "{path}");
        }
        names.expected.remove("/a/planned");
        assert_eq!(names.expected(), ["/a/b/planned", "/elsewhere/planned"]);
        for number in 0..20_000 {
            names.expected.insert(format!("/run/part-{number}"), placement(4));
        }
        assert_eq!(names.expected(), ["/a/b/", "/elsewhere/", "/run/"]);
    }
}
