//! The directory of a server: files, their descriptions, and which objects there are ([`super::names`]).

use super::OrangeError;
use super::file_system::{FileSystem, IoServer, Object};
use super::kept::Kept;
use super::library::Reference;
use super::names::{DESCRIPTION, NEXT_DESCRIPTION, name_of, object_of};
use rustix::io::Errno;
use std::sync::Arc;
use stripewise_layout::FileId;
use stripewise_store::server::{FIRST_LINE_OF_DESCRIPTIONS, ObjectName};

/// How often a directory that others fill meanwhile is emptied again.
const REMOVALS: usize = 4;

/// `None`: it is missing.
pub(super) fn if_there<T>(result: Result<T, OrangeError>) -> Result<Option<T>, OrangeError> {
    match result {
        Ok(found) => Ok(Some(found)),
        Err(OrangeError::Missing { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

/// A directory in another, made where there is none.
pub(super) fn directory_in(
    file_system: &FileSystem,
    parent: Reference,
    name: &str,
    path: &str,
) -> Result<Reference, OrangeError> {
    match file_system.make_directory(parent, name, path) {
        Err(OrangeError::Exists { .. }) => file_system.lookup(parent, name, path),
        made => made,
    }
}

/// What lies on an I/O server of one server of a cluster.
pub(super) struct Tree {
    pub(super) file_system: Arc<FileSystem>,
    pub(super) io_server: IoServer,
    /// Of this server.
    pub(super) directory: Reference,
    /// The path of that directory, for errors.
    pub(super) path: String,
    directories: Kept<FileId, Reference>,
}

impl Tree {
    pub(super) fn new(file_system: Arc<FileSystem>, io_server: IoServer, directory: Reference, path: String) -> Self {
        Self { file_system, io_server, directory, path, directories: Kept::new() }
    }

    pub(super) fn path_of(&self, object: ObjectName) -> String {
        format!("{}/{object}", self.path)
    }

    /// The directory of a file, if it has one.
    fn directory(&self, file: FileId) -> Result<Option<Reference>, OrangeError> {
        if let Some(kept) = self.directories.get(&file) {
            return Ok(Some(kept));
        }
        let path = format!("{}/{file}", self.path);
        let found = if_there(self.file_system.lookup(self.directory, &file.to_string(), &path))?;
        Ok(found.map(|found| self.directories.keep(file, found)))
    }

    fn make_directory(&self, file: FileId) -> Result<Reference, OrangeError> {
        if let Some(kept) = self.directory(file)? {
            return Ok(kept);
        }
        let path = format!("{}/{file}", self.path);
        let made = directory_in(&self.file_system, self.directory, &file.to_string(), &path)?;
        Ok(self.directories.keep(file, made))
    }

    /// Something in a file's directory.
    pub(super) fn find(&self, file: FileId, name: &str) -> Result<Object, OrangeError> {
        let path = format!("{}/{file}/{name}", self.path);
        match self.directory(file)? {
            Some(directory) => self.file_system.find(directory, name, &self.io_server, &path),
            None => Err(OrangeError::Missing { about: path }),
        }
    }

    fn description(&self, file: FileId) -> Result<Option<Object>, OrangeError> {
        if_there(self.find(file, DESCRIPTION))
    }

    /// Makes durable what describes a file, if anything does.
    pub(super) fn flush_description(&self, file: FileId) -> Result<(), OrangeError> {
        match self.description(file)? {
            Some(description) => self.file_system.flush(description, &format!("{}/{file}/{DESCRIPTION}", self.path)),
            None => Ok(()),
        }
    }

    /// Removes everything in a file's directory, and then that.
    pub(super) fn empty(&self, file: FileId) -> Result<(), OrangeError> {
        let path = format!("{}/{file}", self.path);
        let Some(directory) = self.directory(file)? else { return Ok(()) };
        self.directories.forget(&file);
        for left in (0..REMOVALS).rev() {
            let names = if_there(self.file_system.list(directory, &path))?.unwrap_or_default();
            for name in names {
                if_there(self.file_system.remove(directory, &name, &format!("{path}/{name}")))?;
            }
            match if_there(self.file_system.remove(self.directory, &file.to_string(), &path)) {
                Err(OrangeError::Os { source: Errno::NOTEMPTY, .. }) if left > 0 => {}
                removed => return removed.map(drop),
            }
        }
        Ok(())
    }

    pub(super) fn replace_description(&self, file: FileId, text: &str) -> Result<(), OrangeError> {
        let directory = self.make_directory(file)?;
        let path = format!("{}/{file}/{NEXT_DESCRIPTION}", self.path);
        // Of a process that died.
        if_there(self.file_system.remove(directory, NEXT_DESCRIPTION, &path))?;
        let next = self.file_system.create(directory, NEXT_DESCRIPTION, &self.io_server, &path)?;
        self.file_system.write(next, 0, text.as_bytes(), &path)?;
        self.file_system.flush(next, &path)?;
        self.file_system.rename(directory, NEXT_DESCRIPTION, DESCRIPTION, &path)
    }

    pub(super) fn append_description(&self, file: FileId, head: &str, lines: &str) -> Result<u64, OrangeError> {
        let directory = self.make_directory(file)?;
        let path = format!("{}/{file}/{DESCRIPTION}", self.path);
        let description = match self.description(file)? {
            Some(found) => found,
            None => self.file_system.create(directory, DESCRIPTION, &self.io_server, &path)?,
        };
        // The file's lock is held by whoever describes it, so nobody else appends meanwhile.
        let before = self.file_system.size(description, &path)?;
        let text = match before {
            0 => format!("{FIRST_LINE_OF_DESCRIPTIONS}\n{head}{lines}"),
            _ => lines.to_owned(),
        };
        self.file_system.write(description, before, text.as_bytes(), &path)?;
        Ok(before + text.len() as u64)
    }

    /// The files that have a directory here.
    pub(super) fn files(&self) -> Result<Vec<FileId>, OrangeError> {
        let names = self.file_system.list(self.directory, &self.path)?;
        Ok(names.iter().filter_map(|name| name.parse().ok()).collect())
    }

    /// Makes an empty object.
    pub(super) fn create(&self, object: ObjectName) -> Result<Object, OrangeError> {
        let path = self.path_of(object);
        let create = || {
            let directory = self.make_directory(object.file)?;
            self.file_system.create(directory, &name_of(object), &self.io_server, &path)
        };
        match create() {
            // The directory that was known is gone.
            Err(OrangeError::Missing { .. }) => {
                self.directories.forget(&object.file);
                create()
            }
            created => created,
        }
    }

    /// Removes an object, if it is there.
    pub(super) fn remove(&self, object: ObjectName) -> Result<(), OrangeError> {
        match self.directory(object.file)? {
            Some(directory) => {
                let removed = self.file_system.remove(directory, &name_of(object), &self.path_of(object));
                if_there(removed).map(drop)
            }
            None => Ok(()),
        }
    }

    /// The descriptions of all files that have one.
    pub(super) fn descriptions(&self) -> Result<Vec<(FileId, String)>, OrangeError> {
        let mut found = Vec::new();
        for file in self.files()? {
            let Some(description) = self.description(file)? else { continue };
            let path = format!("{}/{file}/{DESCRIPTION}", self.path);
            let text = self.file_system.read_all(description, &path)?;
            if !text.is_empty() {
                found.push((file, String::from_utf8_lossy(&text).into_owned()));
            }
        }
        Ok(found)
    }

    /// All objects.
    pub(super) fn objects(&self) -> Result<Vec<ObjectName>, OrangeError> {
        let mut found = Vec::new();
        for file in self.files()? {
            let Some(directory) = self.directory(file)? else { continue };
            let names = if_there(self.file_system.list(directory, &format!("{}/{file}", self.path)))?;
            found.extend(names.iter().flatten().filter_map(|name| object_of(file, name)));
        }
        Ok(found)
    }
}
