//! Which new files become managed, and how they are placed: managed directories, and paths that a plan expects.

use crate::rmt::{Changes, NameKind, RmtError, Table};
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
    managed: BTreeMap<String, Placement>,
    expected: BTreeMap<String, Placement>,
}

impl Names {
    pub(crate) fn load(table: &Table) -> Result<Self, RmtError> {
        Ok(Self {
            managed: table.names(NameKind::Managed)?.into_iter().collect(),
            expected: table.names(NameKind::Expected)?.into_iter().collect(),
        })
    }

    /// Durable first, then in force.
    pub(crate) fn set(
        &mut self,
        table: &Table,
        kind: NameKind,
        path: &str,
        placement: Option<Placement>,
    ) -> Result<(), RmtError> {
        table.set_name(kind, path, placement.as_ref())?;
        let names = match kind {
            NameKind::Managed => &mut self.managed,
            NameKind::Expected => &mut self.expected,
        };
        match placement {
            Some(placement) => names.insert(path.to_owned(), placement),
            None => names.remove(path),
        };
        Ok(())
    }

    /// As [`Self::set`], of many expected files at once; those that are as they were are passed over.
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
        self.expected.get(path).or_else(|| {
            Path::new(path).ancestors().skip(1).find_map(|above| self.managed.get(above.to_str().unwrap_or_default()))
        })
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
        names.managed.insert("/a".into(), placement(1));
        names.managed.insert("/a/b".into(), placement(2));
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
        assert_eq!(names.expected(), ["/a/b/planned", "/elsewhere/planned"]);
        for number in 0..20_000 {
            names.expected.insert(format!("/run/part-{number}"), placement(4));
        }
        assert_eq!(names.expected(), ["/a/b/", "/elsewhere/", "/run/"]);
    }
}
