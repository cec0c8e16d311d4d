//! Files of which `run/` has the memory, whoever put it there: the agent that serves this host now, or one before it.

use crate::context::Context;
use crate::host_messages::Known;
use rustix::fs::{Dir, OFlags};
use stripewise_layout::FileId;
use stripewise_store::shared::control::{ControlBlock, Life};
use stripewise_store::shared::extent::Extent;
use stripewise_store::shared::slots::Slots;

/// A file of which `run/` has the memory.
pub(crate) struct Held {
    pub(crate) file: FileId,
    /// As far as this host knows.
    pub(crate) known: Known,
    /// By a living program.
    pub(crate) is_used: bool,
}

/// Files that programs here use, or used when they were killed together with the agent, whose size nobody else may know.
pub(crate) fn in_run(context: &Context) -> Vec<Held> {
    let Ok(run) = Dir::read_from(context.state().run()) else { return Vec::new() };
    let held = |name: &str| {
        let file: FileId = name.strip_suffix(".slots")?.parse().ok()?;
        let open = |kind: &str| context.state().open_shared(&format!("{file}.{kind}"), OFlags::RDWR).ok();
        let users = Slots::users_of_any_version(open("slots")?).ok()?;
        let is_used = users.iter().any(|(slot, incarnation)| context.is_alive(*slot, *incarnation));
        let is_closed = || {
            let control = open("ctl").and_then(|control| ControlBlock::open(&control, file, true).ok());
            let is_over = |control: ControlBlock| matches!(control.life(), Life::Gone | Life::Lost);
            control.is_none_or(|control| control.boot_id() != context.boot() || is_over(control))
        };
        if !is_used && is_closed() {
            return None;
        }
        let (size_bytes, truncations) = Extent::size_and_truncations_of_any_version(open("ext")?).ok()?;
        Some(Held { file, known: Known { size_bytes, truncations }, is_used })
    };
    run.flatten().filter_map(|entry| held(entry.file_name().to_str().ok()?)).collect()
}
