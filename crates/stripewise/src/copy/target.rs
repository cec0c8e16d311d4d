//! Where a copy goes: a nameless or temporary file that takes its name when it is complete.

use super::{CopyError, CopyKind, Result};
use crate::layouts;
use crate::moves::layout_of;
use crate::own_places;
use crate::paths::OnPath as _;
use crate::store::{Store, StoreError};
use crate::transfer::{Attributes, write_all};
use rustix::fs::{RenameFlags, Timespec, Timestamps, futimens};
use rustix::io::Errno;
use std::fs::{File, Permissions};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use stripewise_layout::{FileId, Layout, LayoutError, Placement};
use stripewise_store::client::{ClientError, Standing};
use stripewise_store::entry::DirectoryEntry;
use stripewise_store::file::{FileError, StripedFile};
use stripewise_store::protocol::{Admin, Refusal, Reply};

/// How often a name that others take meanwhile is tried.
const MAX_ROUNDS: u32 = 100;

/// A copy under way; dropped unfinished, nothing of it stays.
pub(super) struct Target<'a> {
    store: &'a Store,
    path: PathBuf,
    /// The name that the copy has until it is complete; it has none yet where the file system can do without.
    temporary: DirectoryEntry,
    is_named: bool,
    file: File,
    attributes: Attributes,
    striped: Option<Arc<StripedFile>>,
    finished: bool,
}

impl<'a> Target<'a> {
    /// `source` is the device and inode that is copied from, which must not be the destination.
    pub(super) fn new(
        store: &'a Store,
        path: &Path,
        wish: Option<CopyKind>,
        attributes: Attributes,
        source: (u64, u64),
    ) -> Result<Self> {
        let path = resolved(path)?;
        own_places::refuse(&store.cluster, &path)?;
        let replaced = standing(store, &path, Some(source))?.and_then(|(_, managed)| managed);
        let kind = match wish {
            Some(kind) => kind,
            None if replaced.is_some() || expects(store, &path)? => CopyKind::Managed,
            None => CopyKind::Ordinary,
        };
        if kind == CopyKind::Managed {
            expect(store, &path, replaced)?;
        }
        let mut name = path.file_name().unwrap_or_default().to_owned();
        name.push(format!(".stripewise-{}", std::process::id()));
        let temporary = DirectoryEntry::at(&path).on("create", &path)?.sibling(&name);
        let (file, is_named) = match temporary.create_nameless().on("create", &path)? {
            Some(file) => (file, false),
            None => (temporary.create().on("create", &path)?, true),
        };
        let file = File::from(file);
        let mut target = Self { store, path, temporary, is_named, file, attributes, striped: None, finished: false };
        // Before any data: nobody gets more access to the copy than to its source.
        target.file.set_permissions(Permissions::from_mode(attributes.mode & 0o777)).on("create", &target.path)?;
        if kind == CopyKind::Managed {
            let striped = store.client.create(&target.path, target.file.as_fd());
            target.striped = Some(striped.map_err(|source| target.client_error("create", source))?);
        }
        Ok(target)
    }

    pub(super) fn is_managed(&self) -> bool {
        self.striped.is_some()
    }

    pub(super) fn write(&mut self, offset: u64, bytes: &[u8]) -> Result<()> {
        match &self.striped {
            Some(striped) => Ok(write_all(striped, &self.path, offset, bytes)?),
            None => Ok(self.file.write_all_at(bytes, offset).on("write", &self.path)?),
        }
    }

    /// Extends the copy over a hole at its end to `size_bytes`, makes it durable and gives it its name.
    pub(super) fn finish(mut self, size_bytes: u64) -> Result<()> {
        match &self.striped {
            Some(striped) if striped.size_bytes() == size_bytes => {}
            Some(striped) => striped.truncate(size_bytes).map_err(|source| self.file_error(source))?,
            None => self.file.set_len(size_bytes).on("finish", &self.path)?,
        }
        if let Some(striped) = &self.striped {
            striped.sync(false).map_err(|source| self.file_error(source))?;
            striped.set_modified_ns(None).map_err(|source| self.file_error(source))?;
        }
        let time = |ns: i128| Timespec {
            tv_sec: ns.div_euclid(1_000_000_000) as i64,
            tv_nsec: ns.rem_euclid(1_000_000_000) as _,
        };
        let (last_access, last_modification) = (time(self.attributes.accessed_ns), time(self.attributes.modified_ns));
        futimens(&self.file, &Timestamps { last_access, last_modification }).on("finish", &self.path)?;
        self.file.sync_all().on("finish", &self.path)?;
        self.take_name()?;
        self.finished = true;
        if let Some(striped) = self.striped.take() {
            let linked = self.store.client.linked(striped.id());
            linked.map_err(|source| self.client_error("finish", source))?;
            striped.close().map_err(|source| self.file_error(source))?;
        }
        Ok(())
    }

    fn client_error(&self, what: &'static str, source: ClientError) -> CopyError {
        CopyError::Client { what, path: self.path.clone(), source }
    }

    fn file_error(&self, source: FileError) -> CopyError {
        CopyError::File { path: self.path.clone(), source }
    }

    /// Takes the name, over what stands there then: somebody else may have made a file of that name
    /// meanwhile, which is replaced like one of before.
    fn take_name(&mut self) -> Result<()> {
        let destination = DirectoryEntry::at(&self.path).on("finish", &self.path)?;
        let mover = Standing { file: self.file.as_fd(), managed: self.striped.as_ref().map(|striped| striped.id()) };
        for _ in 0..MAX_ROUNDS {
            let replaced = standing(self.store, &self.path, None)?;
            let victim = replaced.as_ref().and_then(|(file, managed)| Some((file.as_fd(), (*managed)?)));
            let client = &self.store.client;
            let named = match (self.is_named, replaced.is_some()) {
                (false, false) => match destination.link(&self.file) {
                    Ok(()) => return Ok(()),
                    // Made meanwhile by another.
                    Err(Errno::EXIST) => continue,
                    Err(errno) => return Ok(Err(errno).on("finish", &self.path)?),
                },
                (false, true) => client.replace_by_nameless(&self.temporary, &destination, mover, victim),
                (true, _) => {
                    let flags = if replaced.is_some() { RenameFlags::empty() } else { RenameFlags::NOREPLACE };
                    client.rename(self.temporary.path(), &self.path, mover, victim, flags)
                }
            };
            match named {
                Err(
                    ClientError::Refused(Refusal::NameChanged { .. }) | ClientError::Os { source: Errno::EXIST, .. },
                ) => {}
                renamed => return renamed.map_err(|source| self.client_error("finish", source)),
            }
        }
        Err(CopyError::Contended { path: self.path.clone() })
    }
}

impl Drop for Target<'_> {
    fn drop(&mut self) {
        if self.finished {
            return;
        }
        if self.is_named && self.temporary.is(&self.file) {
            let _ = self.temporary.unlink();
        }
        if let Some(striped) = self.striped.take() {
            let file = striped.id();
            let _ = striped.close();
            // If the broker is gone, its successor drops what has no name.
            let _ = self.store.client.abandon(file);
        }
    }
}

/// Without symbolic links, so that the copy goes where an existing link points.
fn resolved(path: &Path) -> Result<PathBuf> {
    if let Ok(real) = std::fs::canonicalize(path) {
        return Ok(real);
    }
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(CopyError::NoName { path: path.to_owned() });
    };
    let parent = std::fs::canonicalize(parent).on("find", parent)?;
    Ok(parent.join(name))
}

/// The file at `path`, if one stands there, and which managed file it is.
fn standing(store: &Store, path: &Path, source: Option<(u64, u64)>) -> Result<Option<(File, Option<FileId>)>> {
    let Ok(metadata) = std::fs::metadata(path) else { return Ok(None) };
    if !metadata.is_file() {
        return Err(CopyError::Destination { path: path.to_owned() });
    }
    if Some((metadata.dev(), metadata.ino())) == source {
        return Err(CopyError::Itself { path: path.to_owned() });
    }
    let file = match File::open(path) {
        // Gone by now.
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        file => file.on("open", path)?,
    };
    let managed = store.file_of(&file, path)?;
    Ok(Some((file, managed)))
}

/// Whether a new file of that name would become managed if a redirected program made it.
fn expects(store: &Store, path: &Path) -> Result<bool> {
    let below_managed = store.client.managed_directories().iter().any(|directory| path.starts_with(directory));
    let Some(name) = path.to_str().filter(|_| !below_managed) else { return Ok(below_managed) };
    store.client.expects(name).map_err(|source| CopyError::Expected { path: path.to_owned(), source })
}

/// Sees to it that the new file has a placement: that of the file it replaces, else the one its name or directory has, else the default.
fn expect(store: &Store, path: &Path, replaced: Option<FileId>) -> Result<()> {
    let placement = match replaced {
        Some(file) => placement_of(store, file)?,
        None if expects(store, path)? => None,
        None => Some(layouts::default_placement(&store.cluster)?),
    };
    let Some(placement) = placement else { return Ok(()) };
    let Some(path) = path.to_str() else {
        return Err(CopyError::NotUtf8 { path: path.to_owned() });
    };
    Ok(store.done(Admin::Expect { path: path.to_owned(), placement })?)
}

/// The placement that a file's regions have now; none if it has none.
fn placement_of(store: &Store, file: FileId) -> Result<Option<Placement>> {
    let Reply::Placement { placement: Placement { region_size, .. } } = store.admin(Admin::Placement { file })? else {
        return Err(StoreError::Answer { question: "a question for a placement" }.into());
    };
    let regions = store.regions(file)?;
    let layouts = regions.iter().map(layout_of).collect::<std::result::Result<Vec<Layout>, LayoutError>>()?;
    let Some(last) = layouts.last().cloned() else { return Ok(None) };
    let default = layouts::default_placement(&store.cluster)?;
    // Regions between two placed ones that were never written take the layout of the one before them.
    let mut all: Vec<Layout> = Vec::new();
    for (region, layout) in regions.iter().zip(layouts) {
        let before = all.last().cloned().unwrap_or_else(|| layout.clone());
        all.resize(region.region.0 as usize, before);
        all.push(layout);
    }
    Ok(Some(Placement::from_regions(region_size, all, last, default.fallback_layout().clone())))
}
