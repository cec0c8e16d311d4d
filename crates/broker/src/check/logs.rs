//! Logs of fragments: those whose object is gone, and those that nothing needs.

use super::{Checks, Inventory, Report};
use crate::managed::{Inner, Managed, log_object};
use stripewise_store::server::ServerError;

impl Checks {
    pub(super) fn check_logs(
        &self,
        managed: &Managed,
        inner: &mut Inner,
        inventories: &[Inventory<'_>],
        report: &mut Report,
    ) {
        if inner.freed || inner.logs.is_empty() {
            return;
        }
        let path = inner.record.path.clone();
        if managed.fragments.logs().is_none() {
            let what = format!("former logs of fragments of {path} could not be removed");
            return report.add_repair(what, "they are removed", || self.logs.remove_logs(managed.file, inner));
        }
        for (disk, record) in inner.logs.clone() {
            let Some(inventory) = inventories.get(usize::from(record.on.0)) else { continue };
            let object = log_object(managed.file, disk, record);
            // Asked again: the list may be older than the record.
            let is_missing =
                inventory.lacks(&object) && matches!(inventory.server.size(object), Err(ServerError::Missing { .. }));
            if !is_missing {
                continue;
            }
            let newer = self.logs.newer_in_log(managed, disk);
            let lost = match newer {
                0 => "nothing is lost by it".to_owned(),
                _ => format!("{newer} ranges that were not yet written to the disk are lost, reading them fails"),
            };
            let what = format!(
                "server {} lacks the log of fragments of {path} for server {}: {lost}",
                inventory.server.name(),
                self.context.cluster().servers[usize::from(disk.0)].name
            );
            let remedy = "a new log takes its place; what was lost reads as the disk has it";
            if let Some((slot, _)) = self.quiescing.users(managed).first() {
                // It may have the lost object open, and would go on writing what nobody else can read.
                let process = self.context.processes().process_id(*slot);
                report.add(
                    what,
                    format!("end process {process}, which uses the file, and repair again: {remedy}"),
                    false,
                );
                continue;
            }
            report.add_repair(what, remedy, || self.logs.replace_log(managed, inner, disk, record));
        }
    }
}
