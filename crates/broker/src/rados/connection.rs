//! A connection to a Ceph.

use super::RadosError;
use super::error::{About, errno_of};
use super::library::{Cluster, Library};
use libc::{c_char, c_int};
use rustix::io::Errno;
use std::ffi::{CStr, CString};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

/// For how long a process that may live on is shut out, in seconds; Ceph's own hour may be over before it goes on.
const ALIVE_S: u32 = 30 * 24 * 3600;

/// How to find a Ceph and how long to wait for it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ConnectOptions {
    /// Path of `ceph.conf`; `None`: `$CEPH_CONF`, then Ceph's usual places.
    pub conf: Option<PathBuf>,
    /// As in `client.NAME`.
    pub user: String,
    /// For how long monitors are tried.
    pub monitor_patience: Duration,
    /// When an operation on an object is given up; `None`: never. What became of it is unknown then.
    pub operation_patience: Option<Duration>,
}

impl Default for ConnectOptions {
    fn default() -> Self {
        Self {
            conf: None,
            user: "admin".to_owned(),
            monitor_patience: Duration::from_secs(10),
            operation_patience: None,
        }
    }
}

/// A connection; closed when it and its pools are dropped.
pub struct Connection {
    library: &'static Library,
    cluster: Cluster,
    /// As in `client.admin`.
    user: String,
    /// The command `ceph` with the options that reach the same Ceph.
    ceph: String,
    shut_out: Arc<AtomicBool>,
}

// SAFETY: librados takes calls on one cluster from any thread.
unsafe impl Send for Connection {}
// SAFETY: the same.
unsafe impl Sync for Connection {}

impl Drop for Connection {
    fn drop(&mut self) {
        // SAFETY: made by `create2`, and shut down once. Pools hold the connection, so none is left.
        unsafe { (self.library.shutdown)(self.cluster) };
    }
}

/// The connection with these options, one for all of this process that ask for it. One that was shut out is given to nobody any more.
///
/// # Errors
/// As [`Connection::open`].
pub fn shared(options: &ConnectOptions) -> Result<Arc<Connection>, RadosError> {
    static KNOWN: Mutex<Known> = Mutex::new(Known { open: Vec::new(), failed: Vec::new() });
    let since = Instant::now();
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    known.open.retain(|(_, connection)| connection.upgrade().is_some_and(|connection| !connection.is_shut_out()));
    let same = known.open.iter().find(|(other, _)| other == options).and_then(|(_, connection)| connection.upgrade());
    if let Some(connection) = same {
        return Ok(connection);
    }
    // Who waited while another tried in vain does not try as long again: a cluster has many servers in one Ceph.
    if let Some((_, _, error)) = known.failed.iter().find(|(other, at, _)| other == options && *at >= since) {
        return Err(error.clone());
    }
    known.failed.retain(|(other, ..)| other != options);
    let connection = Connection::open(options).inspect_err(|error| {
        known.failed.push((options.clone(), Instant::now(), error.clone()));
    })?;
    known.open.push((options.clone(), Arc::downgrade(&connection)));
    Ok(connection)
}

/// Connections of this process.
struct Known {
    open: Vec<(ConnectOptions, Weak<Connection>)>,
    /// The last attempt with these options, when it ended.
    failed: Vec<(ConnectOptions, Instant, RadosError)>,
}

pub(super) fn note_shut_out(flag: &AtomicBool, error: &RadosError) {
    if matches!(error, RadosError::Blocklisted { .. }) {
        flag.store(true, Ordering::SeqCst);
    }
}

/// A text for librados.
pub(super) fn c_string(text: impl Into<Vec<u8>>, about: &str) -> Result<CString, RadosError> {
    CString::new(text).map_err(|_| RadosError::Os {
        about: about.to_owned(),
        action: "a name with a zero byte",
        source: rustix::io::Errno::INVAL,
    })
}

impl Connection {
    /// Connects.
    ///
    /// # Errors
    /// [`RadosError::NoLibrary`], [`RadosError::Configuration`], [`RadosError::Unreachable`] where no monitor answers in time,
    /// [`RadosError::Denied`] where the user has no valid key.
    pub fn open(options: &ConnectOptions) -> Result<Arc<Self>, RadosError> {
        let library = Library::load()?;
        let user = format!("client.{}", options.user);
        let name = c_string(user.as_str(), &user)?;
        let mut cluster = std::ptr::null_mut();
        // SAFETY: a place for the handle, and strings that end with zero.
        let status = unsafe { (library.create2)(&raw mut cluster, c"ceph".as_ptr(), name.as_ptr(), 0) };
        let about = About { action: "making a client", user: &user, pool: "", object: "", epoch: None };
        if status < 0 {
            return Err(about.fault(status));
        }
        let conf = options.conf.as_ref().map(|conf| format!(" --conf {}", conf.display()));
        let ceph = format!("ceph{}", conf.unwrap_or_default());
        let connection = Self { library, cluster, user: user.clone(), ceph, shut_out: Arc::default() };
        connection.configure(options)?;
        // SAFETY: a cluster that was made and not yet connected.
        let status = unsafe { (library.connect)(cluster) };
        #[cfg(target_env = "gnu")]
        super::ending::skip_destructors();
        if status < 0 {
            let whose = options.conf.as_ref().map_or_else(|| "this Ceph".to_owned(), |conf| conf.display().to_string());
            return Err(match (About { action: "connecting", ..about }).fault(status) {
                denied @ RadosError::Denied { .. } => denied,
                _ if errno_of(status) == Errno::NOENT => RadosError::NoKey { user },
                _ => RadosError::Unreachable { action: "connecting", whose, source: errno_of(status) },
            });
        }
        Ok(Arc::new(connection))
    }

    fn configure(&self, options: &ConnectOptions) -> Result<(), RadosError> {
        let path = options.conf.as_ref().map(|path| c_string(path.as_os_str().as_encoded_bytes(), "ceph.conf"));
        let path = path.transpose()?;
        let pointer = path.as_ref().map_or(std::ptr::null(), |path| path.as_ptr());
        // SAFETY: a cluster that is not connected; no path, or one that ends with zero.
        let status = unsafe { (self.library.conf_read_file)(self.cluster, pointer) };
        if status < 0 {
            return Err(RadosError::Configuration { path: options.conf.clone(), source: errno_of(status) });
        }
        let seconds = |patience: Duration| patience.as_secs().max(1).to_string();
        let monitors = seconds(options.monitor_patience);
        self.set(c"client_mount_timeout", &monitors)?;
        self.set(c"rados_mon_op_timeout", &monitors)?;
        let operations = options.operation_patience.map_or_else(|| "0".to_owned(), seconds);
        self.set(c"rados_osd_op_timeout", &operations)?;
        // Errors are returned; the library's own lines would end up among a command's.
        self.set(c"log_to_stderr", "false")?;
        self.set(c"err_to_stderr", "false")
    }

    fn set(&self, option: &CStr, value: &str) -> Result<(), RadosError> {
        let value = c_string(value, "ceph.conf")?;
        // SAFETY: a cluster that is not connected, and strings that end with zero.
        let status = unsafe { (self.library.conf_set)(self.cluster, option.as_ptr(), value.as_ptr()) };
        self.check(status, "setting an option")
    }

    fn check(&self, status: c_int, action: &'static str) -> Result<(), RadosError> {
        let about = About { action, user: &self.user, pool: "", object: "", epoch: None };
        if status < 0 { Err(self.noted(about.fault(status))) } else { Ok(()) }
    }

    /// The same error, after which [`Self::is_shut_out`] says what it does.
    pub(super) fn noted(&self, error: RadosError) -> RadosError {
        note_shut_out(&self.shut_out, &error);
        error
    }

    /// Whether an operation of this connection has found it blocklisted. Nothing that it sends takes effect then.
    #[must_use]
    pub fn is_shut_out(&self) -> bool {
        self.shut_out.load(Ordering::SeqCst)
    }

    /// For operations that end when the connection may be gone.
    pub(super) fn shut_out_flag(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.shut_out)
    }

    pub(super) fn library(&self) -> &'static Library {
        self.library
    }

    pub(super) fn cluster(&self) -> Cluster {
        self.cluster
    }

    /// As in `client.admin`.
    #[must_use]
    pub fn user(&self) -> &str {
        &self.user
    }

    /// The command `ceph` with the options that reach this Ceph, for texts that say what to run.
    #[must_use]
    pub fn ceph(&self) -> &str {
        &self.ceph
    }

    /// Id of the Ceph cluster, a UUID as text.
    ///
    /// # Errors
    /// The cluster's.
    pub fn fsid(&self) -> Result<String, RadosError> {
        let mut buffer = [0u8; 64];
        // SAFETY: the buffer is as long as is said.
        let status = unsafe { (self.library.cluster_fsid)(self.cluster, buffer.as_mut_ptr().cast(), buffer.len()) };
        self.check(status, "asking for the cluster's id")?;
        Ok(String::from_utf8_lossy(&buffer[..status as usize]).into_owned())
    }

    /// The addresses under which the cluster knows this process, for [`Self::shut_out`] by another.
    ///
    /// # Errors
    /// The cluster's.
    pub fn addresses(&self) -> Result<String, RadosError> {
        let mut text = std::ptr::null_mut();
        // SAFETY: a place for the text, which is ours to free.
        let status = unsafe { (self.library.getaddrs)(self.cluster, &raw mut text) };
        self.check(status, "asking for this client's addresses")?;
        // SAFETY: it ends with zero.
        let addresses = unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned();
        // SAFETY: made by `strdup`, as its documentation says.
        unsafe { libc::free(text.cast()) };
        Ok(addresses)
    }

    /// Shuts another process out (blocklists it): when this returns, no operation of it takes effect that this connection's later ones do not find done.
    ///
    /// # Errors
    /// [`RadosError::Denied`] where this user may not do that (it needs `profile rbd` or `allow command "osd blocklist"` for the monitors).
    pub fn shut_out(&self, addresses: &str) -> Result<(), RadosError> {
        // As long as the cluster is set to.
        self.shut_out_for(addresses, 0)
    }

    /// The same of a process that may live on: for longer than any is stopped, or cut off, and goes on.
    ///
    /// # Errors
    /// As of [`Self::shut_out`].
    pub fn shut_out_alive(&self, addresses: &str) -> Result<(), RadosError> {
        self.shut_out_for(addresses, ALIVE_S)
    }

    /// 0 seconds: see `mon_osd_blocklist_default_expire`.
    fn shut_out_for(&self, addresses: &str, seconds: u32) -> Result<(), RadosError> {
        let address = c_string(addresses, "an address")?;
        // SAFETY: a string that ends with zero; the function reads it, whatever its declaration says.
        let status = unsafe { (self.library.blocklist_add)(self.cluster, address.as_ptr().cast_mut(), seconds) };
        self.check(status, "blocklisting a client")?;
        // From here on operations carry the new map's number, and a server takes in that map before it does them.
        // SAFETY: a connected cluster.
        let status = unsafe { (self.library.wait_for_latest_osdmap)(self.cluster) };
        self.check(status, "waiting for the cluster's map")
    }

    /// Asks the monitors; `command` is JSON as `ceph --format json` would send it. Returns the answer.
    ///
    /// # Errors
    /// The cluster's, by its status alone.
    pub fn command(&self, command: &str) -> Result<Vec<u8>, RadosError> {
        let text = c_string(command, "a command")?;
        let mut commands = [text.as_ptr()];
        self.take_answer("a command of the monitors", |output, length| {
            // SAFETY: one command, no input, places for the output, and no wish for the status text.
            unsafe {
                (self.library.mon_command)(
                    self.cluster,
                    commands.as_mut_ptr(),
                    1,
                    std::ptr::null(),
                    0,
                    output,
                    length,
                    std::ptr::null_mut(),
                    std::ptr::null_mut(),
                )
            }
        })
    }

    /// Has the monitors carry out a command, which errors name as `shown`.
    ///
    /// # Errors
    /// [`RadosError::Denied`] where the user may not, or [`RadosError::Refused`] with what the monitors say.
    pub(super) fn order(&self, command: &str, shown: &str) -> Result<(), RadosError> {
        let text = c_string(command, "a command")?;
        let mut commands = [text.as_ptr()];
        let (mut output, mut length) = (std::ptr::null_mut::<c_char>(), 0);
        let (mut message, mut message_length) = (std::ptr::null_mut::<c_char>(), 0);
        // SAFETY: one command, no input, places for the output and the status text.
        let status = unsafe {
            (self.library.mon_command)(
                self.cluster,
                commands.as_mut_ptr(),
                1,
                std::ptr::null(),
                0,
                &raw mut output,
                &raw mut length,
                &raw mut message,
                &raw mut message_length,
            )
        };
        let mut said = String::new();
        if !message.is_null() {
            // SAFETY: the library gave so many bytes.
            let bytes = unsafe { std::slice::from_raw_parts(message.cast(), message_length) };
            said = String::from_utf8_lossy(bytes).trim().to_owned();
        }
        for buffer in [output, message].into_iter().filter(|buffer| !buffer.is_null()) {
            // SAFETY: its own buffers, freed once each.
            unsafe { (self.library.buffer_free)(buffer) };
        }
        match self.check(status, "a command of the monitors") {
            Err(RadosError::Os { source, .. }) => {
                let what = if said.is_empty() { source.to_string() } else { said };
                Err(RadosError::Refused { command: shown.to_owned(), what })
            }
            done => done,
        }
    }

    /// As [`Self::command`], of one OSD.
    ///
    /// # Errors
    /// The cluster's, by its status alone.
    pub fn osd_command(&self, osd: i32, command: &str) -> Result<Vec<u8>, RadosError> {
        let text = c_string(command, "a command")?;
        let mut commands = [text.as_ptr()];
        self.take_answer("a command of an OSD", |output, length| {
            // SAFETY: as above.
            unsafe {
                (self.library.osd_command)(
                    self.cluster,
                    osd,
                    commands.as_mut_ptr(),
                    1,
                    std::ptr::null(),
                    0,
                    output,
                    length,
                    std::ptr::null_mut(),
                    std::ptr::null_mut(),
                )
            }
        })
    }

    fn take_answer(
        &self,
        action: &'static str,
        ask: impl FnOnce(*mut *mut c_char, *mut usize) -> c_int,
    ) -> Result<Vec<u8>, RadosError> {
        let (mut output, mut length) = (std::ptr::null_mut::<c_char>(), 0);
        let status = ask(&raw mut output, &raw mut length);
        let mut answer = Vec::new();
        if !output.is_null() {
            // SAFETY: the library gave so many bytes, which are ours until they are freed.
            answer.extend_from_slice(unsafe { std::slice::from_raw_parts(output.cast(), length) });
            // SAFETY: its own buffer, freed once.
            unsafe { (self.library.buffer_free)(output) };
        }
        self.check(status, action)?;
        Ok(answer)
    }
}
