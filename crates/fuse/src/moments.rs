//! Attributes that the kernel may believe for a moment.
//!
//! A program that asks for a file by its name has the kernel look the name up, and then ask for the attributes that came along. To spare the second request they are
//! valid for the kernel's shortest time, of one or two ticks. Nobody is told anything old by that as long as every program comes by the name, which is
//! looked up each time. A program with an open file comes without: so attributes of open files are not believed, and what is believed of a file ends
//! when it is opened, before the open returns.
//!
//! A lookup may be under way meanwhile. It looks once more whether the file is open when it has answered; and an answer that the kernel takes up after a notice has
//! an older number there, and is not believed.
//!
//! Of each directory on a path the kernel has to know who may pass, so it would ask for the attributes of the same directories with every file of a listing. Those of
//! a directory are believed for the same time therefore, open or not, and whether or not they came with a name.
//!
//! Names are looked up each time, since a redirected program that has removed or renamed a file may say so at once. In a listing that would be all directories of
//! the path with every file. So while a program has a directory open, its name and those of the directories above it are believed for a moment too.

use crate::nodes::Node;
use fuser::{FileAttr, INodeNo, Notifier};
use rustix::fs::FileType;
use std::sync::OnceLock;
use std::time::Duration;

/// Rounded up to a tick by the kernel.
const MOMENT: Duration = Duration::from_nanos(1);
/// No bytes: the attributes alone.
const ATTRIBUTES: i64 = -1;

/// For how long the kernel may believe attributes for which it asked without a name. `cache`: for how long anything.
pub(crate) fn of_attributes(cache: Duration, attributes: &FileAttr) -> Duration {
    let is_directory = attributes.kind == fuser::FileType::Directory;
    if cache.is_zero() && is_directory { MOMENT } else { cache }
}

/// For how long the kernel may believe a name by which the file was looked up.
pub(crate) fn of_name(node: &Node) -> Duration {
    if node.kind() == FileType::Directory && node.is_open() { MOMENT } else { Duration::ZERO }
}

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
        if node.kind() == FileType::Directory {
            return MOMENT;
        }
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
