//! The one thread that calls libpvfs2.
//!
//! The library lets one thread at a time move operations on, holds a lock meanwhile that beginning an operation needs too, and keeps at most 256 ended
//! operations. So a single thread begins what others put into a queue (`PVFS_isys_*`), waits for any of it to end (`PVFS_sys_testsome`), and says so. Up to
//! [`MAX_UNDER_WAY`] operations are under way together; further ones stay in the queue.
//!
//! The credential of this process's user is renewed at half its life, which is an hour unless the keys of the host say otherwise. An operation keeps a copy
//! of the one that it began with, and the library gives up trying within the other half.

use super::OrangeError;
use super::library::{Credential, Library, NAME_CACHE_MS, OperationId};
use libc::{c_int, c_void};
use std::collections::{BTreeMap, VecDeque};
use std::sync::mpsc::sync_channel;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Operations under way together: half of what the library can keep.
const MAX_UNDER_WAY: usize = 128;
/// For how long the library waits for an operation to end before the queue is looked at again.
const WAIT_MS: c_int = 1;
/// The library has arrays of its limits on the stack.
const STACK_BYTES: usize = 8 << 20;

/// What an operation is begun with.
pub(super) struct Beginning<'a> {
    pub(super) library: &'a Library,
    pub(super) credential: *const Credential,
    pub(super) id: *mut OperationId,
    /// What tells the operation from others.
    pub(super) user: *mut c_void,
}

/// An operation that stays where it is in memory from its begin to its end.
pub(super) trait Operation: Send {
    /// Nothing else may be under way meanwhile: it changes what the library knows of all file systems.
    fn is_alone(&self) -> bool {
        false
    }

    /// Begins it by one call of the library, and returns what that returned.
    fn begin(&mut self, with: &Beginning<'_>) -> c_int;

    /// It is over, with this status.
    fn end(self: Box<Self>, library: &Library, status: c_int);
}

/// Operations that wait for their turn.
#[derive(Default)]
struct Queue {
    waiting: Mutex<VecDeque<Box<dyn Operation>>>,
    changed: Condvar,
}

/// The library and the thread that calls it.
pub(super) struct Driver {
    queue: Queue,
}

/// Of the driver's thread alone.
struct Caller {
    library: Library,
    credential: Credential,
    renew_at: Instant,
    under_way: BTreeMap<usize, (OperationId, Box<dyn Operation>)>,
    next: usize,
}

impl Driver {
    /// The driver of this process, started by the first call.
    ///
    /// # Errors
    /// [`OrangeError::NoLibrary`], [`OrangeError::NoStart`]; the next call tries again.
    pub(super) fn get() -> Result<&'static Self, OrangeError> {
        static STARTED: Mutex<Option<&'static Driver>> = Mutex::new(None);
        let mut started = STARTED.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(driver) = *started {
            return Ok(driver);
        }
        let (said, says) = sync_channel(1);
        let run = move || {
            let mut caller = match Caller::start() {
                Ok(caller) => caller,
                Err(error) => return drop(said.send(Err(error))),
            };
            let driver: &'static Driver = Box::leak(Box::new(Driver { queue: Queue::default() }));
            if said.send(Ok(driver)).is_ok() {
                caller.work(&driver.queue);
            }
        };
        let thread = std::thread::Builder::new().name("stripewise-pvfs".into()).stack_size(STACK_BYTES);
        thread.spawn(run).map_err(|error| OrangeError::NoStart { what: error.to_string() })?;
        let stopped = |_| OrangeError::NoStart { what: "the thread that loads it ended".to_owned() };
        let driver = says.recv().map_err(stopped)??;
        *started = Some(driver);
        Ok(driver)
    }

    /// Queues an operation, which ends on the driver's thread: its end must not wait for other operations.
    pub(super) fn begin(&self, operation: Box<dyn Operation>) {
        self.queue.waiting().push_back(operation);
        self.queue.changed.notify_one();
    }
}

impl Queue {
    fn waiting(&self) -> MutexGuard<'_, VecDeque<Box<dyn Operation>>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The next operations, at most so many and none behind one that has to be alone; waits for one where none is under way.
    fn take(&self, most: usize, is_idle: bool) -> Vec<Box<dyn Operation>> {
        let mut waiting = self.waiting();
        while is_idle && waiting.is_empty() {
            waiting = self.changed.wait(waiting).unwrap_or_else(PoisonError::into_inner);
        }
        let together = waiting.iter().take_while(|operation| !operation.is_alone()).count();
        let count = if together == 0 && is_idle { 1 } else { together };
        let count = count.min(most);
        waiting.drain(..count).collect()
    }
}

/// Seconds since the epoch, as the servers count them.
pub(super) fn now_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// When to renew a credential that was just made.
fn half_life(credential: &Credential) -> Instant {
    // Servers compare the time of day with it.
    Instant::now() + Duration::from_secs(credential.expires.saturating_sub(now_s()) / 2)
}

fn new_credential(library: &Library) -> Result<Credential, OrangeError> {
    let mut credential = Credential {
        user: 0,
        group_count: 0,
        groups: std::ptr::null_mut(),
        issuer: std::ptr::null_mut(),
        expires: 0,
        signature_bytes: 0,
        signature: std::ptr::null_mut(),
        certificate_bytes: 0,
        certificate: std::ptr::null_mut(),
    };
    // SAFETY: a place for the credential.
    let status = unsafe { (library.make_credential)(&raw mut credential) };
    match status {
        0.. => Ok(credential),
        status => Err(OrangeError::of(status, "OrangeFS".to_owned(), "making a credential")),
    }
}

impl Caller {
    fn start() -> Result<Self, OrangeError> {
        let library = Library::load()?;
        let check = |status: c_int, action| match status {
            0.. => Ok(()),
            status => {
                Err(OrangeError::NoStart { what: OrangeError::of(status, "OrangeFS".to_owned(), action).to_string() })
            }
        };
        // SAFETY: called by one thread, before anything else of the library.
        check(unsafe { (library.initialize)(0) }, "starting libpvfs2")?;
        // Errors are returned; the library's own lines would end up among a command's. Who wants them says where they go.
        if let Some(log_to) = library.log_to.filter(|_| std::env::var_os("PVFS2_DEBUGFILE").is_none()) {
            // SAFETY: two texts; the library is initialized.
            unsafe { log_to(c"/dev/null".as_ptr(), c"w".as_ptr()) };
        }
        // Another host may have removed what a name stood for.
        // SAFETY: the same.
        check(unsafe { (library.set_info)(NAME_CACHE_MS, 0) }, "setting the time of cached names")?;
        let credential = new_credential(&library)?;
        let renew_at = half_life(&credential);
        Ok(Self { library, credential, renew_at, under_way: BTreeMap::new(), next: 0 })
    }

    fn work(&mut self, queue: &Queue) {
        loop {
            let most = if self.is_alone() { 0 } else { MAX_UNDER_WAY - self.under_way.len() };
            let taken = queue.take(most, self.under_way.is_empty());
            if !taken.is_empty() {
                self.renew_credential();
            }
            for operation in taken {
                self.begin(operation);
            }
            if !self.under_way.is_empty() {
                self.move_on();
            }
        }
    }

    fn is_alone(&self) -> bool {
        self.under_way.values().any(|(_, operation)| operation.is_alone())
    }

    /// Keeps the old credential where no new one is to be had: operations say what is wrong once it has expired.
    fn renew_credential(&mut self) {
        if Instant::now() < self.renew_at {
            return;
        }
        let Ok(fresh) = new_credential(&self.library) else { return };
        self.renew_at = half_life(&fresh);
        let old = std::mem::replace(&mut self.credential, fresh);
        // SAFETY: allocated by the library; operations under way have copies.
        unsafe {
            self.library.free(old.groups.cast());
            self.library.free(old.issuer.cast());
            self.library.free(old.signature.cast());
            self.library.free(old.certificate.cast());
        }
    }

    fn begin(&mut self, mut operation: Box<dyn Operation>) {
        let number = self.next;
        self.next = self.next.wrapping_add(1);
        // Stays so where it ends at once.
        let mut id: OperationId = -1;
        let with = Beginning {
            library: &self.library,
            credential: &raw const self.credential,
            id: &raw mut id,
            user: std::ptr::without_provenance_mut(number),
        };
        match operation.begin(&with) {
            0 if id != -1 => drop(self.under_way.insert(number, (id, operation))),
            0.. => operation.end(&self.library, 0),
            status => operation.end(&self.library, status),
        }
    }

    /// Has the library move on what is under way, and ends what is over.
    fn move_on(&mut self) {
        let mut ids: Vec<OperationId> = self.under_way.values().map(|(id, _)| *id).collect();
        let mut users: Vec<*mut c_void> = vec![std::ptr::null_mut(); ids.len()];
        let mut statuses: Vec<c_int> = vec![0; ids.len()];
        let mut count = c_int::try_from(ids.len()).unwrap_or(c_int::MAX);
        let (first, user, status) = (ids.as_mut_ptr(), users.as_mut_ptr(), statuses.as_mut_ptr());
        // SAFETY: three arrays of so many elements, and ids of operations that are under way.
        let result = unsafe { (self.library.test_some)(first, &raw mut count, user, status, WAIT_MS) };
        if result < 0 {
            // It says so of wrong arguments only, which these are not; should it ever, this does not spin.
            std::thread::sleep(Duration::from_millis(1));
            return;
        }
        let over = users.into_iter().zip(statuses).take(usize::try_from(count).unwrap_or(0));
        for (user, status) in over {
            if let Some((_, operation)) = self.under_way.remove(&user.addr()) {
                operation.end(&self.library, status);
            }
        }
    }
}
