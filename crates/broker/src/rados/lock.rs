//! Locks on objects, which the cluster ends after a time.

use super::RadosError;
use super::connection::c_string;
use super::error::{About, errno_of};
use super::library::{MAY_RENEW, MUST_RENEW};
use super::pool::Pool;
use libc::{c_char, timeval};
use rustix::io::Errno;
use std::time::Duration;

/// Most of what the list of a lock's holders is read into; an exclusive lock has one holder, whose names are short.
const LONGEST: usize = 1 << 16;

/// Whether the caller has the lock already.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Renewal {
    /// It need not; a repetition prolongs.
    Allowed,
    /// It must: a lock that ended meanwhile is not taken again.
    Required,
}

/// What came of an attempt at a lock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LockState {
    /// The caller has it from now on for the time that it asked for.
    Held,
    /// Another has it; or nobody, where a renewal was required.
    NotHeld,
}

impl Pool {
    /// Takes the lock `name` on an object for `duration`, or prolongs it; makes the object if it is not there. `cookie` tells the holder from all others.
    ///
    /// # Errors
    /// [`RadosError`]: of the pool or the cluster.
    pub fn lock(
        &self,
        object: &str,
        name: &str,
        cookie: &str,
        duration: Duration,
        renewal: Renewal,
    ) -> Result<LockState, RadosError> {
        let texts = [object, name, cookie].map(|text| c_string(text, text));
        let [object_text, name, cookie] = texts;
        let (object_text, name, cookie) = (object_text?, name?, cookie?);
        let mut duration = timeval {
            tv_sec: duration.as_secs() as libc::time_t,
            tv_usec: libc::suseconds_t::from(duration.subsec_micros() as i32),
        };
        let flags = match renewal {
            Renewal::Allowed => MAY_RENEW,
            Renewal::Required => MUST_RENEW,
        };
        // SAFETY: a context, strings that end with zero, and a duration.
        let status = unsafe {
            (self.connection().library().lock_exclusive)(
                self.context(),
                object_text.as_ptr(),
                name.as_ptr(),
                cookie.as_ptr(),
                c"".as_ptr(),
                &raw mut duration,
                flags,
            )
        };
        match status {
            0.. => Ok(LockState::Held),
            _ if matches!(errno_of(status), Errno::BUSY | Errno::NOENT) => Ok(LockState::NotHeld),
            _ => Err(self.fault_of_lock(object, "locking an object", status)),
        }
    }

    /// Gives the lock up; nothing happens if it is not the caller's.
    ///
    /// # Errors
    /// [`RadosError`]: of the pool or the cluster.
    pub fn unlock(&self, object: &str, name: &str, cookie: &str) -> Result<(), RadosError> {
        let (object_text, name, cookie) = (c_string(object, object)?, c_string(name, name)?, c_string(cookie, cookie)?);
        // SAFETY: a context, and strings that end with zero.
        let status = unsafe {
            (self.connection().library().unlock)(self.context(), object_text.as_ptr(), name.as_ptr(), cookie.as_ptr())
        };
        match status {
            0.. => Ok(()),
            _ if errno_of(status) == Errno::NOENT => Ok(()),
            _ => Err(self.fault_of_lock(object, "unlocking an object", status)),
        }
    }

    /// Takes the lock from whoever has it, if `cookie` is the holder's; nothing happens otherwise. What that one still does is for the caller to stop.
    ///
    /// # Errors
    /// [`RadosError`]: of the pool or the cluster.
    pub fn break_lock(&self, object: &str, name: &str, cookie: &str) -> Result<(), RadosError> {
        let Some((client, _)) = self.holder(object, name)?.filter(|(_, held)| held == cookie) else { return Ok(()) };
        let texts = [object, name, client.as_str(), cookie].map(|text| c_string(text, text));
        let [object_text, name, client, cookie] = texts;
        let (object_text, name, client, cookie) = (object_text?, name?, client?, cookie?);
        // SAFETY: a context, and strings that end with zero.
        let status = unsafe {
            (self.connection().library().break_lock)(
                self.context(),
                object_text.as_ptr(),
                name.as_ptr(),
                client.as_ptr(),
                cookie.as_ptr(),
            )
        };
        match status {
            0.. => Ok(()),
            _ if errno_of(status) == Errno::NOENT => Ok(()),
            _ => Err(self.fault_of_lock(object, "breaking the lock of an object", status)),
        }
    }

    /// The cookie of whoever has the lock; `None`: nobody.
    ///
    /// # Errors
    /// [`RadosError`]: of the pool or the cluster.
    pub fn lock_holder(&self, object: &str, name: &str) -> Result<Option<String>, RadosError> {
        Ok(self.holder(object, name)?.map(|(_, cookie)| cookie))
    }

    /// Client and cookie of whoever has the lock.
    fn holder(&self, object: &str, name: &str) -> Result<Option<(String, String)>, RadosError> {
        let (object_text, name) = (c_string(object, object)?, c_string(name, name)?);
        let mut is_exclusive = 0;
        let mut texts: [Vec<u8>; 4] = std::array::from_fn(|_| vec![0; LONGEST]);
        let mut lengths = [LONGEST; 4];
        let [tag, clients, cookies, addresses] = texts.each_mut().map(|text| text.as_mut_ptr().cast::<c_char>());
        let [tag_length, clients_length, cookies_length, addresses_length] =
            lengths.each_mut().map(|length| &raw mut *length);
        // SAFETY: a context, strings that end with zero, and buffers as long as is said.
        let status = unsafe {
            (self.connection().library().list_lockers)(
                self.context(),
                object_text.as_ptr(),
                name.as_ptr(),
                &raw mut is_exclusive,
                tag,
                tag_length,
                clients,
                clients_length,
                cookies,
                cookies_length,
                addresses,
                addresses_length,
            )
        };
        match i32::try_from(status).unwrap_or(i32::MAX) {
            0 => Ok(None),
            1.. => {
                let first = |text: &[u8]| {
                    let text = text.split(|byte| *byte == 0).next().unwrap_or_default();
                    String::from_utf8_lossy(text).into_owned()
                };
                Ok(Some((first(&texts[1]), first(&texts[2]))))
            }
            status if errno_of(status) == Errno::NOENT => Ok(None),
            status => Err(self.fault_of_lock(object, "asking who holds a lock", status)),
        }
    }

    fn fault_of_lock(&self, object: &str, action: &'static str, status: i32) -> RadosError {
        let about = About { action, user: self.connection().user(), pool: self.name(), object, epoch: None };
        self.connection().noted(about.fault(status))
    }
}
