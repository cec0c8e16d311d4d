//! The files of a host's keys.
//!
//! The key that the host shows is in the file that cluster.toml names. While the cluster's key is being replaced there is another beside it, whose name ends in
//! `.next`: the key that is to come. When it takes the first one's place that one gets a name that ends in `.previous`, and goes at the end. A host accepts what
//! any of the three says, so hosts that have come to different steps can talk.
//!
//! Each step is durable when it returns and can be repeated. Hosts that have these files in one directory take the same steps on the same files.

use super::key::{ClusterKey, KeyError, KeyText};
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// The files of a host's keys, and what is in them.
pub(crate) struct KeyFiles {
    path: PathBuf,
    shown: KeyText,
    next: Option<KeyText>,
    previous: Option<KeyText>,
}

impl KeyFiles {
    /// Reads them; the first has to be there.
    pub(crate) fn load(path: &Path) -> Result<Self, KeyError> {
        let if_there = |path: &Path| match KeyText::load(path) {
            Ok(key) => Ok(Some(key)),
            Err(KeyError::Missing { .. }) => Ok(None),
            Err(error) => Err(error),
        };
        Ok(Self {
            path: path.to_owned(),
            // In this order: a key that takes its place meanwhile is found under one of its names.
            next: if_there(&sibling(path, "next"))?,
            shown: KeyText::load(path)?,
            previous: if_there(&sibling(path, "previous"))?,
        })
    }

    /// What the host shows, and accepts.
    pub(crate) fn key(&self) -> ClusterKey {
        self.shown.key().accepting(self.next.iter().chain(&self.previous).map(KeyText::key))
    }

    /// The fingerprint of the key that the host shows.
    pub(crate) fn shown(&self) -> String {
        self.shown.key().fingerprint()
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// From here on this key is accepted too.
    pub(crate) fn prepare(&mut self, next: &str) -> Result<(), KeyError> {
        let path = sibling(&self.path, "next");
        let next = KeyText::parse(&path, next)?;
        next.write(&path)?;
        self.next = Some(next);
        Ok(())
    }

    /// From here on the key of this fingerprint is shown. False: the host does not have it.
    pub(crate) fn commit(&mut self, fingerprint: &str) -> Result<bool, KeyError> {
        // Another host of this directory may have been here.
        *self = Self::load(&self.path)?;
        if self.shown() == fingerprint {
            return Ok(true);
        }
        let Some(next) = self.next.take_if(|next| next.key().fingerprint() == fingerprint) else { return Ok(false) };
        self.shown.write(&sibling(&self.path, "previous"))?;
        next.write(&self.path)?;
        remove(&sibling(&self.path, "next"))?;
        self.previous = Some(std::mem::replace(&mut self.shown, next));
        Ok(true)
    }

    /// From here on the key that is shown is accepted and no other.
    pub(crate) fn end(&mut self) -> Result<(), KeyError> {
        for kind in ["next", "previous"] {
            remove(&sibling(&self.path, kind))?;
        }
        (self.next, self.previous) = (None, None);
        Ok(())
    }
}

fn sibling(path: &Path, kind: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(".");
    name.push(kind);
    name.into()
}

fn remove(path: &Path) -> Result<(), KeyError> {
    match rustix::fs::unlink(path) {
        Ok(()) | Err(rustix::io::Errno::NOENT) => Ok(()),
        Err(source) => Err(KeyError::Os { path: path.to_owned(), action: "removing it", source }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether hosts with these files talk: each accepts what the other shows.
    fn talk(a: &KeyFiles, b: &KeyFiles) -> bool {
        a.key().accepts_key(&b.key()) && b.key().accepts_key(&a.key())
    }

    #[test]
    fn hosts_at_any_two_steps_that_can_meet_accept_each_other_and_at_the_end_the_old_key_is_none() {
        let root = tempfile::tempdir().unwrap();
        let paths = ["a", "b"].map(|name| root.path().join(name));
        let old = ClusterKey::make(&paths[0]).unwrap();
        std::fs::copy(&paths[0], &paths[1]).unwrap();
        let stale = KeyFiles::load(&paths[1]).unwrap();
        let (key, text) = ClusterKey::generate().unwrap();
        let new = key.fingerprint();
        let [mut a, mut b] = paths.each_ref().map(|path| KeyFiles::load(path).unwrap());
        assert!(talk(&a, &b) && a.shown() == old.fingerprint());
        // Without the key a host takes no other step.
        assert!(!a.commit(&new).unwrap());
        a.prepare(&text).unwrap();
        assert!(talk(&a, &b), "one has the new key");
        b.prepare(&text).unwrap();
        assert!(talk(&a, &b), "both have it");
        assert!(a.commit(&new).unwrap() && a.commit(&new).unwrap(), "steps can be repeated");
        assert!(talk(&a, &b), "one shows it");
        // Ends and begins again in the middle.
        let again = KeyFiles::load(&paths[0]).unwrap();
        assert!(talk(&again, &b) && again.shown() == new);
        assert!(b.commit(&new).unwrap());
        a.end().unwrap();
        assert!(talk(&a, &b), "one has forgotten the old key");
        b.end().unwrap();
        assert!(talk(&a, &b));
        assert!(!talk(&a, &stale), "who missed it is refused");
        let left: Vec<_> = std::fs::read_dir(root.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(left.len(), 2, "{left:?}");
    }

    #[test]
    fn hosts_that_share_the_files_take_the_same_steps() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("key");
        ClusterKey::make(&path).unwrap();
        let [mut a, mut b] = [0, 1].map(|_| KeyFiles::load(&path).unwrap());
        let (key, text) = ClusterKey::generate().unwrap();
        a.prepare(&text).unwrap();
        b.prepare(&text).unwrap();
        assert!(a.commit(&key.fingerprint()).unwrap() && b.commit(&key.fingerprint()).unwrap());
        a.end().unwrap();
        b.end().unwrap();
        assert!(talk(&a, &b) && a.shown() == key.fingerprint());
    }
}
