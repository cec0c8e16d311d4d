//! A wish that work under way ends soon and is undone where it is half done.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// A flag that whoever started an operation sets, Ctrl-C for example; the operation looks at it between steps.
#[derive(Clone, Copy, Debug)]
pub struct Interrupt(&'static AtomicBool);

impl Interrupt {
    /// Comes once `flag` is set.
    pub const fn on(flag: &'static AtomicBool) -> Self {
        Self(flag)
    }

    /// Never comes.
    pub const fn never() -> Self {
        static NEVER: AtomicBool = AtomicBool::new(false);
        Self(&NEVER)
    }

    /// Whether it has come.
    pub fn came(self) -> bool {
        self.0.load(Ordering::SeqCst)
    }

    /// For what looks at a flag itself.
    pub fn flag(self) -> &'static AtomicBool {
        self.0
    }

    /// Waits until it comes.
    pub fn wait(self) {
        while !self.came() {
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}
