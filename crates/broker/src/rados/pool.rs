//! A pool, and operations on its objects under way.

use super::RadosError;
use super::connection::{Connection, c_string, note_shut_out};
use super::error::About;
use super::library::{self, IoContext, Library};
use super::operation::{Completion, Epoch, KeyRange, Operation};
use super::waiting::{EndOf, Waiting};
use libc::{c_char, c_int, c_void};
use std::ffi::{CStr, CString};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// The attribute that holds an object's epoch, as digits.
const EPOCH: &CStr = c"stripewise.epoch";
/// Keys that are asked for at once.
const KEYS_AT_ONCE: u64 = 1024;

/// A namespace of a pool.
pub struct Pool {
    connection: Arc<Connection>,
    context: IoContext,
    name: String,
}

// SAFETY: librados takes operations on one context from any thread; what it says of settings is met, because they are made before it is shared.
unsafe impl Send for Pool {}
// SAFETY: the same.
unsafe impl Sync for Pool {}

impl Drop for Pool {
    fn drop(&mut self) {
        // SAFETY: made by `ioctx_create`, and destroyed once; operations under way hold what they need.
        unsafe { (self.connection.library().ioctx_destroy)(self.context) };
    }
}

/// An operation of a batch, and what came of it.
#[derive(Debug)]
pub struct Request<'a> {
    /// Name of the object.
    pub object: &'a str,
    /// What is asked.
    pub operation: Operation<'a>,
}

/// What is kept until an operation is over; librados writes the results into it.
struct Pending {
    library: &'static Library,
    form: Form,
    /// What is compared with the object's attribute; librados copies texts, but says so nowhere.
    _texts: Vec<CString>,
    read_bytes: usize,
    length: u64,
    status: c_int,
    iterators: [library::OmapIterator; 2],
    has_more: u8,
    keys: Option<*mut Vec<(String, Vec<u8>)>>,
    gives: Gives,
    names: Names,
    then: Box<dyn FnOnce(Completion) + Send>,
}

enum Form {
    Write(library::WriteOperation),
    Read(library::ReadOperation),
}

/// Which result an operation's completion carries.
#[derive(Clone, Copy)]
enum Gives {
    Nothing,
    Bytes,
    Length,
    More,
}

/// What errors name.
struct Names {
    action: &'static str,
    user: String,
    pool: String,
    object: String,
    epoch: Option<Epoch>,
    shut_out: Arc<AtomicBool>,
}

impl Names {
    fn fault(&self, status: c_int) -> RadosError {
        let epoch = self.epoch.map(|epoch| epoch.0);
        let about = About { action: self.action, user: &self.user, pool: &self.pool, object: &self.object, epoch };
        let error = about.fault(status);
        note_shut_out(&self.shut_out, &error);
        error
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        match self.form {
            // SAFETY: made by `create_write_op`, and released once, when nobody uses it any more.
            Form::Write(operation) => unsafe { (self.library.release_write_op)(operation) },
            // SAFETY: the same of `create_read_op`.
            Form::Read(operation) => unsafe { (self.library.release_read_op)(operation) },
        }
    }
}

/// Called by a thread of librados when an operation is over.
extern "C" fn complete(completion: library::Completion, pending: *mut c_void) {
    // SAFETY: what `Pool::begin` made by `Box::into_raw`; librados calls once.
    let mut pending = unsafe { Box::from_raw(pending.cast::<Pending>()) };
    // SAFETY: the completion that is over; nobody else has it.
    let status = unsafe {
        let status = (pending.library.aio_get_return_value)(completion);
        (pending.library.aio_release)(completion);
        status
    };
    pending.take_keys(status >= 0);
    let result = if status < 0 {
        Err(pending.names.fault(status))
    } else {
        Ok(match pending.gives {
            Gives::Nothing => 0,
            Gives::Bytes => pending.read_bytes as u64,
            Gives::Length => pending.length,
            Gives::More => u64::from(pending.has_more),
        })
    };
    let then = std::mem::replace(&mut pending.then, Box::new(|_| ()));
    drop(pending);
    then(result);
}

impl Pending {
    /// Of an operation that failed, or was given up, the iterators point nowhere: librados sets them when an answer comes.
    fn take_keys(&mut self, is_answered: bool) {
        for iterator in self.iterators.into_iter().filter(|iterator| !iterator.is_null()) {
            if is_answered {
                self.take_keys_of(iterator);
            }
            // SAFETY: of an operation that is over, and ended once.
            unsafe { (self.library.omap_get_end)(iterator) };
        }
    }

    fn take_keys_of(&mut self, iterator: library::OmapIterator) {
        loop {
            let (mut key, mut value) = (std::ptr::null_mut::<c_char>(), std::ptr::null_mut::<c_char>());
            let (mut key_bytes, mut value_bytes) = (0, 0);
            // SAFETY: an iterator of an operation that is over, and places for what it gives.
            let status = unsafe {
                (self.library.omap_get_next2)(
                    iterator,
                    &raw mut key,
                    &raw mut value,
                    &raw mut key_bytes,
                    &raw mut value_bytes,
                )
            };
            if status < 0 || key.is_null() {
                break;
            }
            // SAFETY: so many bytes, which are there until the iterator ends.
            let bytes = |start: *mut c_char, length| match length {
                0 => Vec::new(),
                // SAFETY: as above.
                length => unsafe { std::slice::from_raw_parts(start.cast::<u8>(), length) }.to_vec(),
            };
            if let Some(keys) = self.keys {
                // SAFETY: lent to the operation, which is not over before this returns.
                let keys = unsafe { &mut *keys };
                keys.push((String::from_utf8_lossy(&bytes(key, key_bytes)).into_owned(), bytes(value, value_bytes)));
            }
        }
    }
}

impl Pool {
    /// Opens a pool; its objects are those of `namespace`.
    ///
    /// # Errors
    /// [`RadosError::NoPool`], or the cluster's.
    pub fn open(connection: &Arc<Connection>, name: &str, namespace: &str) -> Result<Self, RadosError> {
        let (text, space) = (c_string(name, name)?, c_string(namespace, namespace)?);
        let mut context = std::ptr::null_mut();
        let library = connection.library();
        // SAFETY: a connected cluster, a name that ends with zero, a place for the context.
        let status = unsafe { (library.ioctx_create)(connection.cluster(), text.as_ptr(), &raw mut context) };
        if status < 0 {
            let user = connection.user();
            return Err(About { action: "opening the pool", user, pool: name, object: "", epoch: None }.fault(status));
        }
        // SAFETY: the context just made, which nobody else has yet.
        unsafe { (library.ioctx_set_namespace)(context, space.as_ptr()) };
        // Locks as well, which have no flags: one that a master renews takes no space. Always succeeds.
        // SAFETY: the same.
        unsafe { (library.set_pool_full_try)(context) };
        Ok(Self { connection: Arc::clone(connection), context, name: name.to_owned() })
    }

    /// As the cluster knows it.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The connection that it belongs to.
    #[must_use]
    pub fn connection(&self) -> &Arc<Connection> {
        &self.connection
    }

    pub(super) fn context(&self) -> IoContext {
        self.context
    }

    fn library(&self) -> &'static Library {
        self.connection.library()
    }

    /// Begins an operation. `then` is called once, by a thread of librados that others wait for, or by this one where the operation cannot begin.
    ///
    /// # Safety
    /// The memory that the operation was lent stays valid, and nobody else uses it, until `then` is called.
    pub unsafe fn begin(&self, object: &str, operation: Operation<'_>, then: Box<dyn FnOnce(Completion) + Send>) {
        let name = match c_string(object, object) {
            Ok(name) => name,
            Err(error) => return then(Err(error)),
        };
        let names = Names {
            action: operation.action(),
            user: self.connection.user().to_owned(),
            pool: self.name.clone(),
            object: object.to_owned(),
            epoch: operation.epoch(),
            shut_out: self.connection.shut_out_flag(),
        };
        let mut pending = Box::new(Pending {
            library: self.library(),
            form: self.new_form(&operation),
            _texts: Vec::new(),
            read_bytes: 0,
            length: 0,
            status: 0,
            iterators: [std::ptr::null_mut(); 2],
            has_more: 0,
            keys: None,
            gives: Gives::Nothing,
            names,
            then,
        });
        match pending.form {
            Form::Write(form) => self.fill_write(form, operation, &mut pending),
            Form::Read(form) => self.fill_read(form, operation, &mut pending),
        }
        self.start(&name, pending);
    }

    fn new_form(&self, operation: &Operation<'_>) -> Form {
        match operation {
            Operation::Read { .. }
            | Operation::ReadPlain { .. }
            | Operation::Stat { .. }
            | Operation::StatPlain
            | Operation::ReadKeys { .. }
            // SAFETY: makes an empty operation.
            | Operation::Keys { .. } => Form::Read(unsafe { (self.library().create_read_op)() }),
            // SAFETY: the same.
            _ => Form::Write(unsafe { (self.library().create_write_op)() }),
        }
    }

    fn fill_write(&self, form: library::WriteOperation, operation: Operation<'_>, pending: &mut Pending) {
        let library = self.library();
        let guard = operation.epoch();
        let must_exist =
            !matches!(operation, Operation::Create { .. } | Operation::Replace { .. } | Operation::SetKeys(_));
        if must_exist {
            // SAFETY: an operation that has not begun.
            unsafe { (library.write_op_assert_exists)(form) };
        }
        if let Some(epoch) = guard {
            let digits = epoch.0.to_string();
            // SAFETY: the same; librados copies name and value.
            unsafe {
                (library.write_op_cmpxattr)(form, EPOCH.as_ptr(), library::EQUAL, digits.as_ptr().cast(), digits.len());
            }
        }
        let set_epoch = |epoch: Epoch| {
            let digits = epoch.0.to_string();
            // SAFETY: the same.
            unsafe { (library.write_op_setxattr)(form, EPOCH.as_ptr(), digits.as_ptr().cast(), digits.len()) };
        };
        // SAFETY: an operation that has not begun, and memory that is valid; librados copies what is written.
        unsafe {
            match operation {
                Operation::Create { epoch } => {
                    (library.write_op_create)(form, library::EXCLUSIVE, std::ptr::null());
                    set_epoch(epoch);
                }
                Operation::Write { offset, from, .. } => {
                    (library.write_op_write)(form, from.start().cast(), from.length(), offset);
                }
                Operation::Truncate { length, .. } => (library.write_op_truncate)(form, length),
                Operation::RaiseEpoch { to, .. } => set_epoch(to),
                Operation::Remove { .. } => (library.write_op_remove)(form),
                Operation::Append { from } => (library.write_op_append)(form, from.as_ptr().cast(), from.len()),
                Operation::Replace { from } => (library.write_op_write_full)(form, from.as_ptr().cast(), from.len()),
                Operation::SetKeys(pairs) => self.set_keys(form, pairs, pending),
                Operation::RemoveKeys(keys) => self.remove_keys(form, keys, pending),
                Operation::ChangeKeys { expected, set, remove } => {
                    for (key, value) in expected {
                        let text = to_c(std::iter::once(*key));
                        let (value, length) = (value.as_ptr().cast(), value.len());
                        let status = std::ptr::null_mut();
                        (library.write_op_omap_cmp)(form, text[0].as_ptr(), library::EQUAL, value, length, status);
                        pending._texts.extend(text);
                    }
                    self.remove_keys(form, remove, pending);
                    self.set_keys(form, set, pending);
                }
                Operation::Read { .. }
                | Operation::ReadPlain { .. }
                | Operation::Stat { .. }
                | Operation::StatPlain
                | Operation::ReadKeys { .. }
                | Operation::Keys { .. } => unreachable!("a read has the other form"),
            }
        }
    }

    /// # Safety
    /// The operation has not begun.
    unsafe fn set_keys(&self, form: library::WriteOperation, pairs: &[(&str, &[u8])], pending: &mut Pending) {
        if pairs.is_empty() {
            return;
        }
        let texts = to_c(pairs.iter().map(|(key, _)| *key));
        let keys: Vec<*const c_char> = texts.iter().map(|key| key.as_ptr()).collect();
        let values: Vec<*const c_char> = pairs.iter().map(|(_, value)| value.as_ptr().cast()).collect();
        let lengths: Vec<usize> = pairs.iter().map(|(_, value)| value.len()).collect();
        let (keys, values, lengths, count) = (keys.as_ptr(), values.as_ptr(), lengths.as_ptr(), keys.len());
        // SAFETY: as this function's; librados copies keys and values.
        unsafe { (self.library().write_op_omap_set)(form, keys, values, lengths, count) };
        pending._texts.extend(texts);
    }

    /// # Safety
    /// The operation has not begun.
    unsafe fn remove_keys(&self, form: library::WriteOperation, keys: &[&str], pending: &mut Pending) {
        if keys.is_empty() {
            return;
        }
        let texts = to_c(keys.iter().copied());
        let keys: Vec<*const c_char> = texts.iter().map(|key| key.as_ptr()).collect();
        // SAFETY: as this function's; librados copies the keys.
        unsafe { (self.library().write_op_omap_rm_keys)(form, keys.as_ptr(), keys.len()) };
        pending._texts.extend(texts);
    }

    /// # Safety
    /// The operation has not begun, and `pending` stays where it is until it is over.
    unsafe fn range(&self, form: library::ReadOperation, range: KeyRange<'_>, pending: &mut Pending) {
        let texts = to_c([range.after, range.prefix].into_iter());
        let (iterator, more, status) =
            (&raw mut pending.iterators[1], &raw mut pending.has_more, &raw mut pending.status);
        let (after, prefix) = (texts[0].as_ptr(), texts[1].as_ptr());
        // SAFETY: as this function's; librados copies the texts.
        unsafe {
            (self.library().read_op_omap_get_vals2)(form, after, prefix, range.limit, iterator, more, status);
        }
        pending._texts.extend(texts);
    }

    fn fill_read(&self, form: library::ReadOperation, operation: Operation<'_>, pending: &mut Pending) {
        let library = self.library();
        // SAFETY: an operation that has not begun.
        unsafe { (library.read_op_assert_exists)(form) };
        if let Some(epoch) = operation.epoch() {
            let digits = epoch.0.to_string();
            // SAFETY: the same; librados copies name and value.
            unsafe {
                (library.read_op_cmpxattr)(form, EPOCH.as_ptr(), library::EQUAL, digits.as_ptr().cast(), digits.len());
            }
        }
        let status = &raw mut pending.status;
        // SAFETY: the places for results are in `pending`, which is on the heap until the operation is over.
        unsafe {
            match operation {
                Operation::Read { offset, into, .. } | Operation::ReadPlain { offset, into } => {
                    pending.gives = Gives::Bytes;
                    let bytes = &raw mut pending.read_bytes;
                    (library.read_op_read)(form, offset, into.length(), into.start().cast(), bytes, status);
                }
                Operation::Keys { after, into } => {
                    pending.gives = Gives::More;
                    pending.keys = Some(into);
                    self.range(form, KeyRange { prefix: "", after, limit: KEYS_AT_ONCE }, pending);
                }
                Operation::ReadKeys { keys, range, into } => {
                    pending.gives = Gives::More;
                    pending.keys = Some(into);
                    if !keys.is_empty() {
                        let texts = to_c(keys.iter().copied());
                        let keys: Vec<*const c_char> = texts.iter().map(|key| key.as_ptr()).collect();
                        let iterator = &raw mut pending.iterators[0];
                        (library.read_op_omap_get_vals_by_keys)(form, keys.as_ptr(), keys.len(), iterator, status);
                        pending._texts = texts;
                    }
                    if range.limit > 0 {
                        self.range(form, range, pending);
                    }
                }
                // Whatever else has this form asks for the length.
                _ => {
                    pending.gives = Gives::Length;
                    (library.read_op_stat)(form, &raw mut pending.length, std::ptr::null_mut(), status);
                }
            }
        }
    }

    fn start(&self, name: &CStr, pending: Box<Pending>) {
        let library = self.library();
        let mut completion = std::ptr::null_mut();
        let pending = Box::into_raw(pending);
        // SAFETY: `complete` takes what it is given back into a box; the operation, the context and the name are valid.
        let status = unsafe {
            match (library.aio_create_completion2)(pending.cast(), complete, &raw mut completion) {
                0 => match (*pending).form {
                    Form::Write(form) => (library.aio_write_op_operate)(
                        form,
                        self.context,
                        completion,
                        name.as_ptr(),
                        std::ptr::null_mut(),
                        library::FULL_TRY,
                    ),
                    Form::Read(form) => (library.aio_read_op_operate)(form, self.context, completion, name.as_ptr(), 0),
                },
                status => status,
            }
        };
        if status < 0 {
            // SAFETY: it did not begin, so `complete` is not called.
            let mut pending = unsafe { Box::from_raw(pending) };
            if !completion.is_null() {
                // SAFETY: of an operation that did not begin.
                unsafe { (library.aio_release)(completion) };
            }
            let error = pending.names.fault(status);
            std::mem::replace(&mut pending.then, Box::new(|_| ()))(Err(error));
        }
    }

    /// Begins all operations, calls `others`, and returns what came of each when all are over.
    pub fn run_with(&self, batch: Vec<Request<'_>>, others: &mut dyn FnMut()) -> Vec<Completion> {
        let waiting = Waiting::new(batch.len());
        {
            // Waits also where `others` panics: the memory is lent until all are over.
            let _end = EndOf(&waiting);
            for (number, Request { object, operation }) in batch.into_iter().enumerate() {
                let done = Arc::clone(&waiting);
                // SAFETY: the memory is lent to this function, which does not return before all are over.
                unsafe { self.begin(object, operation, Box::new(move |result| done.put(number, result))) };
            }
            others();
        }
        waiting.take()
    }

    /// One operation.
    ///
    /// # Errors
    /// [`RadosError`]: of the object, the pool or the cluster.
    pub fn run(&self, object: &str, operation: Operation<'_>) -> Completion {
        let mut results = self.run_with(vec![Request { object, operation }], &mut || ());
        results.pop().unwrap_or(Ok(0))
    }

    /// All keys of an object with their values, in order.
    ///
    /// # Errors
    /// As [`Self::run`].
    pub fn keys(&self, object: &str) -> Result<Vec<(String, Vec<u8>)>, RadosError> {
        let mut keys = Vec::new();
        loop {
            let after = keys.last().map_or_else(String::new, |(key, _): &(String, Vec<u8>)| key.clone());
            if self.run(object, Operation::Keys { after: &after, into: &mut keys })? == 0 {
                return Ok(keys);
            }
        }
    }

    /// The names of all objects in the namespace, in no order. Looks at every object of the pool.
    ///
    /// # Errors
    /// As [`Self::run`].
    pub fn list(&self) -> Result<Vec<String>, RadosError> {
        let library = self.library();
        let about = About {
            action: "listing objects",
            user: self.connection.user(),
            pool: &self.name,
            object: "",
            epoch: None,
        };
        let mut listing = std::ptr::null_mut();
        // SAFETY: a context, and a place for the listing.
        let status = unsafe { (library.nobjects_list_open)(self.context, &raw mut listing) };
        if status < 0 {
            return Err(about.fault(status));
        }
        let mut names = Vec::new();
        let status = loop {
            let mut entry = std::ptr::null();
            // SAFETY: an open listing; the entry is valid until the next call.
            let status = unsafe {
                (library.nobjects_list_next)(listing, &raw mut entry, std::ptr::null_mut(), std::ptr::null_mut())
            };
            if status < 0 {
                break status;
            }
            // SAFETY: as above, and it ends with zero.
            names.push(unsafe { CStr::from_ptr(entry) }.to_string_lossy().into_owned());
        };
        // SAFETY: closed once.
        unsafe { (library.nobjects_list_close)(listing) };
        // What the last call answers.
        if status == -libc::ENOENT { Ok(names) } else { Err(about.fault(status)) }
    }
}

fn to_c<'t>(texts: impl Iterator<Item = &'t str>) -> Vec<CString> {
    texts.map(|text| CString::new(text.replace('\0', "")).unwrap_or_default()).collect()
}
