//! Where operations report what they do while they work: nothing here prints.

use std::fmt::Display;
use std::sync::Arc;

/// How much there is to do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Amount {
    /// Nobody knows.
    Unknown,
    /// So many bytes.
    Bytes(u64),
    /// Cases, which [`Task::expect`] counts.
    Cases,
    /// The whole; [`Task::set`] gets thousandths of it.
    Share,
}

/// Work under way, which is over when this is dropped.
pub trait Task: Send + Sync {
    /// So much is done in all.
    fn set(&self, done: u64);
    /// So much more will come.
    fn expect(&self, more: usize);
    /// One more case is done.
    fn one_done(&self);
}

/// What a caller does with reports.
pub trait Progress: Send + Sync {
    /// A message for the person who asked for the operation; not its result.
    fn say(&self, message: &str);
    /// Work begins that may take long.
    fn begin(&self, what: &str, amount: Amount) -> Box<dyn Task>;
}

/// Reports of an operation, from any of its threads.
#[derive(Clone)]
pub struct Voice(Arc<dyn Progress>);

impl Voice {
    /// Reports to `progress`.
    pub fn new(progress: impl Progress + 'static) -> Self {
        Self(Arc::new(progress))
    }

    /// Nobody listens.
    pub fn silent() -> Self {
        Self::new(Silent)
    }

    /// A message for the person who asked for the operation.
    pub fn say(&self, message: impl Display) {
        self.0.say(&message.to_string());
    }

    /// Work on `total_bytes` begins.
    pub fn bytes(&self, total_bytes: u64, what: &str) -> Box<dyn Task> {
        self.0.begin(what, Amount::Bytes(total_bytes))
    }

    /// Work on cases begins.
    pub fn cases(&self, what: &str) -> Box<dyn Task> {
        self.0.begin(what, Amount::Cases)
    }

    /// Work begins of which the share that is done is known.
    pub fn share(&self, what: &str) -> Box<dyn Task> {
        self.0.begin(what, Amount::Share)
    }

    /// Something begins of which nobody knows how long it takes.
    pub fn waiting(&self, what: &str) -> Box<dyn Task> {
        self.0.begin(what, Amount::Unknown)
    }
}

struct Silent;

impl Progress for Silent {
    fn say(&self, _: &str) {}

    fn begin(&self, _: &str, _: Amount) -> Box<dyn Task> {
        Box::new(Silent)
    }
}

impl Task for Silent {
    fn set(&self, _: u64) {}
    fn expect(&self, _: usize) {}
    fn one_done(&self) {}
}
