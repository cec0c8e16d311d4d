//! Attributes that the kernel may believe for a moment.
//!
//! A program that asks for a file by its name has the kernel look the name up, and then ask for the attributes that came along. To spare the second request they are
//! valid for the kernel's shortest time, of one or two ticks. Nobody is told anything old by that as long as every program comes by the name, which is
//! looked up each time. A program with an open file comes without: so attributes of open files are not believed, and what is believed of a file ends
//! when it is opened, before the open returns.
//!
//! A lookup may be under way meanwhile. It looks once more whether the file is open when it has answered; and an answer that the kernel takes up after a notice has
//! an older number there, and is not believed.

use crate::nodes::Node;
use fuser::{INodeNo, Notifier};
use rustix::fs::FileType;
use std::sync::OnceLock;
use std::time::Duration;

/// Rounded up to a tick by the kernel.
const MOMENT: Duration = Duration::from_nanos(1);
/// No bytes: the attributes alone.
const ATTRIBUTES: i64 = -1;

/// By which the kernel is told not to believe any more.
#[derive(Default, Debug)]
pub(crate) struct Moments {
    notifier: OnceLock<Notifier>,
}

impl Moments {
    /// Nothing is believed before.
    pub(crate) fn begin(&self, notifier: Notifier) {
        let _ = self.notifier.set(notifier);
    }

    /// For how long the kernel may believe the attributes of a file that was looked up by its name.
    pub(crate) fn of(&self, node: &Node) -> Duration {
        let may_be = node.kind() == FileType::RegularFile && self.notifier.get().is_some() && !node.is_open();
        if !may_be {
            return Duration::ZERO;
        }
        node.set_believed(true);
        MOMENT
    }

    /// A lookup has been answered with a moment.
    pub(crate) fn check(&self, node: &Node) {
        if node.is_open() {
            self.end(node);
        }
    }

    /// The file has been opened, or was.
    pub(crate) fn end(&self, node: &Node) {
        if node.set_believed(false)
            && let Some(notifier) = self.notifier.get()
        {
            // A file that the kernel does not know has no attributes there.
            let _ = notifier.inval_inode(INodeNo(node.number()), ATTRIBUTES, 0);
        }
    }
}
