//! Whether the servers have space for what a plan puts there.

use crate::capacity::Capacity;
use crate::plan::PlannedServer;
use crate::policy::Task;
use stripewise_layout::figures::{counted, shortage};

/// A server without space for its share of a plan.
pub(crate) struct Unfit {
    server: String,
    left_bytes: u64,
    needed_bytes: u64,
}

impl Unfit {
    /// Space and need in words.
    pub(crate) fn figures(&self) -> String {
        let (left, needed) = shortage(self.left_bytes, self.needed_bytes);
        format!("server {} has space for {left}, but the plan needs {needed} there", self.server)
    }
}

/// The servers without space for their share, the worst first. `needed_bytes` are what the broker asks of each. What an option says of the SServers' capacity does not
/// count, as it makes no space.
pub(crate) fn unfit(task: &Task<'_>, servers: &[PlannedServer], needed_bytes: &[u64]) -> Vec<Unfit> {
    let request = task.request;
    let capacity = Capacity::of(request.cluster, request.free_bytes, None, &request.options.exclude);
    let of_server = |(number, server): (usize, &PlannedServer)| {
        let left_bytes = capacity.bytes(number)?;
        let needed_bytes = server.used_bytes.max(needed_bytes[number]);
        (needed_bytes > left_bytes).then(|| Unfit { server: server.name.clone(), left_bytes, needed_bytes })
    };
    let mut unfit: Vec<Unfit> = servers.iter().enumerate().filter_map(of_server).collect();
    unfit.sort_by_key(|unfit| std::cmp::Reverse(unfit.needed_bytes - unfit.left_bytes));
    unfit
}

/// Why a plan is not to be applied, and what to do; `None`: it fits.
pub(crate) fn reason(unfit: &[Unfit]) -> Option<String> {
    let worst = unfit.first()?;
    let others = match unfit.len() - 1 {
        0 => String::new(),
        others => format!(", and {} too little as well", counted(others, "server has", "servers have")),
    };
    Some(format!(
        "does not fit: {}{others}; free some space there, or plan without it (`--exclude {}`), fewer files (--file) or with less SSD capacity (--ssd-room)",
        worst.figures(),
        worst.server
    ))
}
