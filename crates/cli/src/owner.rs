//! Whose cluster it is. What a cluster file names (directories, a state directory, clocks) is done by whoever runs the command: root would do
//! what any user wrote there. So root uses root's clusters only, and becomes the owner for those of others (`--as-owner`), as `git` has its
//! `safe.directory`.

use crate::context::Context;
use anyhow::{Context as _, Result, bail};
use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use stripewise_layout::Cluster;
use stripewise_store::entry::User;

const ROOT: u32 = 0;

/// Refuses the cluster file of another user to root.
pub(crate) fn check(file: &File, cluster_file: &Path) -> Result<()> {
    let cannot = || format!("cannot look at {}", cluster_file.display());
    let owner = file.metadata().with_context(cannot)?.uid();
    if rustix::process::geteuid().is_root() && owner != ROOT {
        bail!(
            "{} belongs to user {owner}, this is root: nothing was done, since root would do what user {owner} wrote there. Repeat with --as-owner, or as that user",
            cluster_file.display()
        );
    }
    Ok(())
}

/// Makes this process the owner of the cluster that is meant, for good.
pub(crate) fn become_owner(context: &Context) -> Result<()> {
    let owner = owner(context)?;
    let caller = rustix::process::geteuid().as_raw();
    if owner == caller {
        return Ok(());
    }
    if caller != ROOT {
        bail!(
            "--as-owner: the cluster belongs to user {owner}, this is user {caller}; only root can become another user"
        );
    }
    User::of(owner).become_for_good().with_context(|| format!("--as-owner: cannot become user {owner}"))
}

/// Of the cluster file; of the state directory that a cluster file of root names; of the directory in which `init` will make them.
fn owner(context: &Context) -> Result<u32> {
    if let Some(state) = context.state_of_run() {
        return owner_of(&state);
    }
    let file = context.cluster_path();
    if !file.exists() {
        let parent = file.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        return owner_of(parent);
    }
    match owner_of(&file)? {
        ROOT => {
            let state = Cluster::load(&file)?.state;
            if state.exists() { owner_of(&state) } else { Ok(ROOT) }
        }
        owner => Ok(owner),
    }
}

fn owner_of(path: &Path) -> Result<u32> {
    let found = std::fs::metadata(path).with_context(|| format!("cannot look at {}", path.display()))?;
    Ok(found.uid())
}
