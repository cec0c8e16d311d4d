//! A file system, its I/O servers, and what is asked of its objects, in safe words.

use super::OrangeError;
use super::driver::{Driver, now_s};
use super::library::{self, Attributes, Entries, Found, IO_SERVER, Layout, Reference, ServerList, ServerStat};
use super::task::{Lent, NO_HINT, text_of};
use libc::c_int;
use std::ffi::{CStr, CString};
use std::sync::{Arc, Mutex, PoisonError};

/// Names that are asked for at once, of 512 that the library gives at most.
const NAMES_AT_ONCE: i32 = 512;

/// A file system that is added to the library, which keeps it as long as the process runs.
pub(super) struct FileSystem {
    pub(super) driver: &'static Driver,
    /// As in `tcp://HOST:PORT/NAME`.
    name: String,
    id: i32,
    root: Reference,
}

/// An I/O server.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct IoServer {
    /// The library's number for its address, in this process.
    address: i64,
    /// As in `tcp://HOST:PORT`; several addresses are separated by commas.
    pub(super) text: String,
}

/// An object: its metadata, and its only datafile.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Object {
    pub(super) reference: Reference,
    datafile: Reference,
}

impl Object {
    /// One whose datafiles were not looked at: it is only read.
    pub(super) fn anywhere(reference: Reference) -> Self {
        Self { reference, datafile: Reference::default() }
    }
}

/// What was tried on what, for errors.
pub(super) struct About<'a> {
    file_system: &'a FileSystem,
    path: &'a str,
    action: &'static str,
}

impl About<'_> {
    pub(super) fn fault(&self, status: c_int) -> OrangeError {
        let path = if self.path.is_empty() { String::new() } else { format!(": {}", self.path) };
        OrangeError::of(status, format!("{}{path}", self.file_system.name), self.action)
    }
}

fn c_string(text: &str) -> Result<CString, OrangeError> {
    CString::new(text).map_err(|_| OrangeError::Os {
        about: text.to_owned(),
        action: "a name with a zero byte",
        source: rustix::io::Errno::INVAL,
    })
}

/// Whether an address of a server, maybe one of several, is that which a person wrote: with the port, or without it.
fn is_called(text: &str, wanted: &str) -> bool {
    text.split(',').any(|address| {
        let place = address.split_once("://").map_or(address, |(_, place)| place);
        address == wanted || place == wanted || place.rsplit_once(':').is_some_and(|(host, _)| host == wanted)
    })
}

/// Of an I/O server's storage.
pub(super) struct Space {
    pub(super) free_bytes: u64,
    pub(super) total_bytes: u64,
}

impl FileSystem {
    /// The file system whose configuration the server in `tcp://HOST:PORT/NAME` gives; one for all of this process.
    ///
    /// # Errors
    /// As [`Driver::get`]; [`OrangeError::Unreachable`] where the server does not answer for as long as the library tries.
    pub(super) fn open(url: &str) -> Result<Arc<Self>, OrangeError> {
        // Also keeps a second one from being added meanwhile, for which the library would wait for ever.
        static KNOWN: Mutex<Vec<Arc<FileSystem>>> = Mutex::new(Vec::new());
        let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(found) = known.iter().find(|file_system| file_system.name == url) {
            return Ok(Arc::clone(found));
        }
        let driver = Driver::get()?;
        let (server, name) = url.rsplit_once('/').unwrap_or((url, ""));
        let (server, name) = (c_string(server)?, c_string(name)?);
        let added = driver.run_alone(
            Lent(std::ptr::null_mut::<library::Mount>()),
            move |mount, with| {
                // SAFETY: the library copies both texts.
                mount.0 = unsafe { (with.library.make_mount)(text_of(&server), text_of(&name)) };
                if mount.0.is_null() {
                    return -libc::ENOMEM;
                }
                // SAFETY: what the library just made, which it keeps from now on.
                unsafe { (with.library.add_file_system)(mount.0, with.id, with.user) }
            },
            // SAFETY: it is added, so the library has filled it in.
            |mount, _| unsafe { (*mount.0).file_system },
        );
        let id = added.map_err(|status| OrangeError::of(status, url.to_owned(), "asking for its configuration"))?;
        let found = Found { reference: Reference::default(), error_path: std::ptr::null_mut(), error_path_bytes: 0 };
        let root = driver.run(
            Lent(found),
            move |found, with| {
                let name = c"/".as_ptr().cast_mut();
                // SAFETY: a text, a place for the answer, and a credential that lives as long as the driver.
                unsafe { (with.library.lookup_root)(id, name, with.credential, &raw mut found.0, 0, NO_HINT) }
            },
            |found, _| found.0.reference,
        );
        let root = root.map_err(|status| OrangeError::of(status, url.to_owned(), "asking for its root"))?;
        let file_system = Arc::new(Self { driver, name: url.to_owned(), id, root });
        known.push(Arc::clone(&file_system));
        Ok(file_system)
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn id(&self) -> i32 {
        self.id
    }

    pub(super) fn root(&self) -> Reference {
        self.root
    }

    pub(super) fn about<'a>(&'a self, path: &'a str, action: &'static str) -> About<'a> {
        About { file_system: self, path, action }
    }

    /// All that store data.
    pub(super) fn servers(&self) -> Result<Vec<IoServer>, OrangeError> {
        let id = self.id;
        let servers = self.driver.run(
            Vec::new(),
            move |servers: &mut Vec<IoServer>, with| {
                let (library, mut count) = (with.library, 0);
                // SAFETY: a place for the number.
                let status = unsafe { (library.server_count)(id, IO_SERVER, &raw mut count) };
                if status < 0 {
                    return status;
                }
                let mut addresses = vec![0; usize::try_from(count).unwrap_or(0)];
                // SAFETY: so many places.
                let status =
                    unsafe { (library.server_addresses)(id, IO_SERVER, addresses.as_mut_ptr(), &raw mut count) };
                if status < 0 {
                    return status;
                }
                addresses.truncate(usize::try_from(count).unwrap_or(0));
                for address in addresses {
                    let mut kind = 0;
                    // SAFETY: an address that the library gave.
                    let text = unsafe { (library.address_text)(id, address, &raw mut kind) };
                    if !text.is_null() {
                        // SAFETY: a text of the library, which is there as long as this thread calls nothing else.
                        let text = unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned();
                        servers.push(IoServer { address, text });
                    }
                }
                0
            },
            |servers, _| servers,
        );
        servers.map_err(|status| self.about("", "asking for its servers").fault(status))
    }

    /// The I/O server that a person calls so.
    ///
    /// # Errors
    /// [`OrangeError::NoServer`] where there is none, or several on one host are meant.
    pub(super) fn server(&self, wanted: &str) -> Result<IoServer, OrangeError> {
        let servers = self.servers()?;
        let mut found = servers.iter().filter(|server| is_called(&server.text, wanted));
        match (found.next(), found.next()) {
            (Some(server), None) => Ok(server.clone()),
            _ => {
                let known: Vec<&str> = servers.iter().map(|server| server.text.as_str()).collect();
                Err(OrangeError::NoServer {
                    about: self.name.clone(),
                    server: wanted.to_owned(),
                    known: known.join(", "),
                })
            }
        }
    }

    /// Bytes that an I/O server can still store.
    pub(super) fn space(&self, server: &IoServer) -> Result<Space, OrangeError> {
        let stat = ServerStat {
            file_system: 0,
            bytes_available: 0,
            bytes_total: 0,
            figures: [0; 8],
            address: std::ptr::null(),
            kind: 0,
        };
        let id = self.id;
        let stats = self.driver.run(
            (Lent(stat), server.address),
            move |(stat, address), with| {
                let (stat, address, none) = (&raw mut stat.0, &raw mut *address, std::ptr::null_mut());
                // Waits: OrangeFS 2.10 never ends an operation of this kind that was only begun. What else is under way moves on meanwhile.
                // SAFETY: one address and one place for figures.
                unsafe { (with.library.server_stats)(id, with.credential, stat, address, 1, none, NO_HINT) }
            },
            |(stat, _), _| (stat.0.bytes_available, stat.0.bytes_total),
        );
        let (free, total) = stats.map_err(|status| self.about(&server.text, "asking what is free").fault(status))?;
        let bytes = |figure: i64| u64::try_from(figure).unwrap_or(0);
        Ok(Space { free_bytes: bytes(free), total_bytes: bytes(total) })
    }

    /// What stands under a name in a directory; `path` is for errors.
    pub(super) fn lookup(&self, parent: Reference, name: &str, path: &str) -> Result<Reference, OrangeError> {
        let (id, name) = (self.id, c_string(name)?);
        let found = Found { reference: Reference::default(), error_path: std::ptr::null_mut(), error_path_bytes: 0 };
        let found = self.driver.run(
            (name, Lent(found)),
            move |(name, found), with| {
                let (name, found) = (text_of(name), &raw mut found.0);
                // SAFETY: a text and a place for the answer, which stay where they are until it is over.
                unsafe {
                    (with.library.lookup)(id, name, parent, with.credential, found, 0, with.id, NO_HINT, with.user)
                }
            },
            |(_, found), _| found.0.reference,
        );
        found.map_err(|status| self.about(path, "looking it up").fault(status))
    }

    pub(super) fn make_directory(&self, parent: Reference, name: &str, path: &str) -> Result<Reference, OrangeError> {
        let made = self.driver.run(
            (c_string(name)?, Reference::default()),
            move |(name, made), with| {
                let (name, made) = (text_of(name), &raw mut *made);
                let attributes = new_attributes(0o700, with.credential);
                // SAFETY: a text and a place for the answer, which stay where they are until it is over.
                unsafe {
                    (with.library.make_directory)(
                        name,
                        parent,
                        attributes,
                        with.credential,
                        made,
                        with.id,
                        NO_HINT,
                        with.user,
                    )
                }
            },
            |(_, made), _| made,
        );
        made.map_err(|status| self.about(path, "making a directory").fault(status))
    }

    /// Makes an empty object whose only datafile lies on an I/O server.
    pub(super) fn create(
        &self,
        parent: Reference,
        name: &str,
        server: &IoServer,
        path: &str,
    ) -> Result<Object, OrangeError> {
        let mut address = server.address;
        let made = self.driver.run(
            (c_string(name)?, Reference::default()),
            move |(name, made), with| {
                let servers = ServerList { count: 1, addresses: &raw mut address };
                let mut layout = Layout { algorithm: library::LAYOUT_LIST, servers };
                let (name, made, default) = (text_of(name), &raw mut *made, std::ptr::null_mut());
                let mut attributes = new_attributes(0o600, with.credential);
                attributes.datafiles = 1;
                attributes.mask |= library::DATAFILES;
                // SAFETY: the library copies the layout; the text and the place for the answer stay where they are until it is over.
                unsafe {
                    (with.library.create)(
                        name,
                        parent,
                        attributes,
                        with.credential,
                        default,
                        &raw mut layout,
                        made,
                        with.id,
                        NO_HINT,
                        with.user,
                    )
                }
            },
            |(_, made), _| made,
        );
        let reference = made.map_err(|status| self.about(path, "creating an object").fault(status))?;
        self.object(reference, server, path)
    }

    /// The object under a name.
    pub(super) fn find(
        &self,
        parent: Reference,
        name: &str,
        server: &IoServer,
        path: &str,
    ) -> Result<Object, OrangeError> {
        self.object(self.lookup(parent, name, path)?, server, path)
    }

    /// Looks whether the object has one datafile, on that server.
    fn object(&self, reference: Reference, server: &IoServer, path: &str) -> Result<Object, OrangeError> {
        // Of an object that somebody else made the library writes as many as it has.
        const MAX_DATAFILES: usize = 1024;
        let id = self.id;
        let asked = self.driver.run(
            vec![0_u64; MAX_DATAFILES],
            move |datafiles, with| {
                let (first, count) = (datafiles.as_mut_ptr(), MAX_DATAFILES as c_int);
                // SAFETY: more places than a file has datafiles, which stay where they are until it is over.
                unsafe {
                    (with.library.datafiles)(reference, with.credential, first, count, with.id, NO_HINT, with.user)
                }
            },
            move |datafiles, library| {
                let mut address = 0;
                // SAFETY: a place for the address.
                let status = unsafe { (library.server_of_handle)(id, datafiles[0], &raw mut address) };
                (datafiles[0], datafiles[1], (status >= 0).then_some(address))
            },
        );
        let (datafile, further, address) =
            asked.map_err(|status| self.about(path, "asking for its datafiles").fault(status))?;
        if further != 0 || address != Some(server.address) {
            let about = format!("{}: {path}", self.name);
            let what = format!("it does not lie on I/O server {} alone; correct the server's url", server.text);
            return Err(OrangeError::Unsuitable { about, what });
        }
        Ok(Object { reference, datafile: Reference { handle: datafile, ..reference } })
    }

    /// The object's length, as its I/O server has it now: the library keeps lengths of objects for seconds, but not those of datafiles.
    pub(super) fn size(&self, object: Object, path: &str) -> Result<u64, OrangeError> {
        self.size_of(object.datafile).map_err(|status| self.about(path, "asking for its length").fault(status))
    }

    /// The length that the library computes from the object's distribution over its datafiles.
    pub(super) fn whole_size(&self, object: Object, path: &str) -> Result<u64, OrangeError> {
        self.size_of(object.reference).map_err(|status| self.about(path, "asking for its length").fault(status))
    }

    fn size_of(&self, reference: Reference) -> Result<u64, c_int> {
        let size = self.driver.run(
            Lent(Attributes::NONE),
            move |attributes, with| {
                let attributes = &raw mut attributes.0;
                // SAFETY: a place for the answer, which stays where it is until it is over.
                unsafe {
                    (with.library.attributes)(
                        reference,
                        library::SIZE,
                        with.credential,
                        attributes,
                        with.id,
                        NO_HINT,
                        with.user,
                    )
                }
            },
            |attributes, _| attributes.0.size,
        );
        Ok(u64::try_from(size?).unwrap_or(0))
    }

    pub(super) fn remove(&self, parent: Reference, name: &str, path: &str) -> Result<(), OrangeError> {
        let removed = self.driver.run(
            c_string(name)?,
            move |name, with| {
                // SAFETY: a text that stays where it is until it is over.
                unsafe { (with.library.remove)(text_of(name), parent, with.credential, with.id, NO_HINT, with.user) }
            },
            |_, _| (),
        );
        removed.map_err(|status| self.about(path, "removing it").fault(status))
    }

    /// Gives what stands under a name another one in the same directory, in the place of what stands there.
    pub(super) fn rename(&self, parent: Reference, from: &str, to: &str, path: &str) -> Result<(), OrangeError> {
        let renamed = self.driver.run(
            (c_string(from)?, c_string(to)?),
            move |(from, to), with| {
                let (from, to) = (text_of(from), text_of(to));
                // SAFETY: two texts that stay where they are until it is over.
                unsafe { (with.library.rename)(from, parent, to, parent, with.credential, with.id, NO_HINT, with.user) }
            },
            |_, _| (),
        );
        renamed.map_err(|status| self.about(path, "renaming it").fault(status))
    }

    /// The names in a directory, in no order.
    pub(super) fn list(&self, directory: Reference, path: &str) -> Result<Vec<String>, OrangeError> {
        let (mut names, mut token) = (Vec::new(), library::LIST_START);
        loop {
            let entries = Entries { token: 0, entries: std::ptr::null_mut(), count: 0, version: 0 };
            let listed = self.driver.run(
                Lent(entries),
                move |entries, with| {
                    let (entries, most) = (&raw mut entries.0, NAMES_AT_ONCE);
                    // SAFETY: a place for the answer, which stays where it is until it is over.
                    unsafe {
                        (with.library.read_directory)(
                            directory,
                            token,
                            most,
                            with.credential,
                            entries,
                            with.id,
                            NO_HINT,
                            with.user,
                        )
                    }
                },
                |entries, library| {
                    let Entries { token, entries, count, .. } = entries.0;
                    let name = |at: usize| {
                        // SAFETY: one of so many entries, whose name ends with zero.
                        let name = unsafe { CStr::from_ptr((*entries.add(at)).name.as_ptr()) };
                        name.to_string_lossy().into_owned()
                    };
                    let count = if entries.is_null() { 0 } else { count as usize };
                    let names: Vec<String> = (0..count).map(name).collect();
                    // SAFETY: allocated by the library, and used no more.
                    unsafe { library.free(entries.cast()) };
                    (token, names)
                },
            );
            let (next, found) = listed.map_err(|status| self.about(path, "listing it").fault(status))?;
            let is_over = next == library::LIST_END || found.is_empty();
            names.extend(found);
            if is_over {
                return Ok(names);
            }
            token = next;
        }
    }

    pub(super) fn truncate(&self, object: Object, length: u64, path: &str) -> Result<(), OrangeError> {
        let about = self.about(path, "truncating it");
        let length = i64::try_from(length).map_err(|_| about.fault(-libc::EFBIG))?;
        let truncated = self.driver.run(
            (),
            // SAFETY: nothing that has to stay.
            move |(), with| unsafe {
                (with.library.truncate)(object.reference, length, with.credential, with.id, NO_HINT, with.user)
            },
            |(), _| (),
        );
        truncated.map_err(|status| about.fault(status))
    }

    /// Has the servers write to their disks what the object holds.
    pub(super) fn flush(&self, object: Object, path: &str) -> Result<(), OrangeError> {
        let flushed = self.driver.run(
            (),
            // SAFETY: nothing that has to stay.
            move |(), with| unsafe {
                (with.library.flush)(object.reference, with.credential, with.id, NO_HINT, with.user)
            },
            |(), _| (),
        );
        flushed.map_err(|status| self.about(path, "flushing it").fault(status))
    }
}

/// Of something new, owned by the user that a credential is of.
fn new_attributes(permissions: u32, credential: *const library::Credential) -> Attributes {
    // SAFETY: the driver's credential, with as many groups as it says.
    let (owner, group) = unsafe {
        let credential = &*credential;
        (credential.user, if credential.group_count > 0 { *credential.groups } else { 0 })
    };
    let now = now_s();
    let times = Attributes { accessed: now, modified: now, changed: now, ..Attributes::NONE };
    Attributes { owner, group, permissions, mask: library::SETTABLE, ..times }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_called_by_its_address_with_or_without_what_is_usual() {
        for wanted in ["tcp://io0:3334", "io0:3334", "io0"] {
            assert!(is_called("tcp://io0:3334", wanted) && is_called("ib://a:3335,tcp://io0:3334", wanted));
            assert!(!is_called("tcp://io00:3334", wanted) && !is_called("tcp://io0a:33344", wanted));
        }
        assert!(!is_called("tcp://io0:3334", "3334") && !is_called("tcp://io0:3334", "io"));
    }
}
