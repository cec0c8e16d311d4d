//! Words before any access to which a thread may die.

use crate::shared::marking::Word;
use shuttle::sync::atomic::AtomicU64;
use std::cell::RefCell;
use std::sync::atomic::Ordering::SeqCst;

/// What is to become of a thread.
pub(super) struct Doom {
    accesses_left: u32,
    die: Box<dyn FnOnce()>,
}

impl Doom {
    pub(super) fn new(accesses_left: u32, die: impl FnOnce() + 'static) -> Self {
        Self { accesses_left, die: Box::new(die) }
    }
}

shuttle::thread_local! {
    static DOOM: RefCell<Option<Doom>> = const { RefCell::new(None) };
}

/// This thread's, from now on; returns what it was.
pub(super) fn doom(new: Option<Doom>) -> Option<Doom> {
    DOOM.with(|doom| doom.replace(new))
}

#[derive(Debug)]
pub(super) struct Mortal(AtomicU64);

impl Mortal {
    pub(super) fn new(value: u64) -> Self {
        Self(AtomicU64::new(value))
    }

    fn live(&self) -> &AtomicU64 {
        let doom = DOOM.with(|doom| {
            let mut doom = doom.borrow_mut();
            match doom.as_mut() {
                Some(Doom { accesses_left: 0, .. }) => doom.take(),
                Some(doom) => {
                    doom.accesses_left -= 1;
                    None
                }
                None => None,
            }
        });
        if let Some(doom) = doom {
            (doom.die)();
        }
        &self.0
    }
}

impl Word for Mortal {
    fn load(&self) -> u64 {
        self.live().load(SeqCst)
    }
    fn peek(&self) -> u64 {
        self.live().load(SeqCst)
    }
    fn store(&self, value: u64) {
        self.live().store(value, SeqCst);
    }
    fn fetch_or(&self, bits: u64) -> u64 {
        self.live().fetch_or(bits, SeqCst)
    }
    fn swap(&self, value: u64) -> u64 {
        self.live().swap(value, SeqCst)
    }
    fn compare_exchange(&self, current: u64, new: u64) -> bool {
        self.live().compare_exchange(current, new, SeqCst, SeqCst).is_ok()
    }
}
