//! `stripewise mount`: managed files for every program, as a mounted file system.

use crate::context::Context;
use crate::interrupt;
use crate::output::Verdict;
use crate::seconds;
use anyhow::Result;
use clap::Args;
use serde::Serialize;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;
use stripewise::Store;
use stripewise::messages::shown;
use stripewise_fuse::{Attached, Mount, MountOptions};
use stripewise_store::holders::Found;

/// Mount a directory, so that every program sees managed files as what they are
///
/// Files are read, written, made, renamed and removed there as in the directory itself, managed ones with their data, size and times, without
/// `stripewise run`: by static and setuid programs, shells and editors too. The command serves the mount until Ctrl-C, SIGTERM or `umount`.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  stripewise mount data &
  stripewise mount data --at /mnt/data
  sudo stripewise mount data --as-owner --allow-other
  umount data.mount")]
pub(crate) struct MountArgs {
    /// The directory whose files are shown, managed and ordinary ones
    #[arg(value_name = "DIR")]
    directory: PathBuf,

    /// Where to mount it: an empty directory, or one that is made and removed afterwards [default: DIR.mount]
    #[arg(long, value_name = "MOUNT_POINT")]
    at: Option<PathBuf>,

    /// Let other users use the mount too, as far as the modes and access control lists of files permit
    #[arg(long)]
    allow_other: bool,

    /// Refuse every change by way of the mount
    #[arg(long)]
    read_only: bool,

    /// Let the kernel believe names, sizes and times for so long: quicker, but changes by other ways are seen that much later
    #[arg(long, value_name = "TIME", default_value = "0s", value_parser = seconds::parse_or_zero)]
    cache: f64,

    /// Requests that are answered at once
    #[arg(long, value_name = "NUMBER", default_value_t = 8, value_parser = clap::value_parser!(u16).range(1..=128))]
    threads: u16,

    /// What root mounted before it became the owner.
    #[arg(skip)]
    attached: Option<Attached>,
}

impl MountArgs {
    /// Mounts as root for the user `owner`, whom this process becomes next.
    pub(crate) fn attach_for(&mut self, owner: u32) -> Result<()> {
        let own = rustix::process::geteuid();
        if own.is_root() && owner != own.as_raw() {
            self.attached = Some(Attached::make_for(owner, &self.options())?);
        }
        Ok(())
    }

    fn options(&self) -> MountOptions {
        MountOptions {
            directory: self.directory.clone(),
            mount_point: self.at.clone().unwrap_or_else(|| default_point(&self.directory)),
            allow_other: self.allow_other,
            read_only: self.read_only,
            cache: Duration::try_from_secs_f64(self.cache).unwrap_or(Duration::MAX),
            threads: self.threads.into(),
        }
    }
}

/// What is mounted where, as soon as programs can use it.
#[derive(Serialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub(crate) struct Shown {
    /// Absolute path of the directory.
    directory: PathBuf,
    /// Absolute path of the mount.
    mount_point: PathBuf,
}

pub(crate) fn run(context: &Context, mut arguments: MountArgs) -> Result<Verdict> {
    let interrupt = interrupt::watch()?;
    let store = Store::open(&context.session)?;
    let options = arguments.options();
    let mount = match arguments.attached.take() {
        Some(attached) => Mount::begin_attached(store.client.clone(), attached, &options)?,
        None => Mount::begin(store.client.clone(), &options)?,
    };
    if !mount.lacks().is_empty() {
        context
            .session
            .say(format_args!("this kernel's FUSE is older than the mount's best: {}", mount.lacks().join("; ")));
    }
    let directory = std::fs::canonicalize(&options.directory)?;
    if context.json {
        context.object(&Shown { directory, mount_point: mount.mount_point().to_owned() })?;
    } else {
        context.line(format_args!("{} is mounted at {}", shown(&directory), shown(mount.mount_point())))?;
    }
    context.flush()?;
    let point = mount.mount_point().to_owned();
    mount.serve(|| interrupt.came(), |found| context.say(waits_for(&point, &found)))?;
    Ok(Verdict::Done)
}

/// For whom a mount is served that is unmounted already.
fn waits_for(point: &Path, found: &Found) -> String {
    let unseen = if found.is_complete { "" } else { "programs of other users" };
    let mut programs: Vec<&str> = found.holders.iter().map(String::as_str).collect();
    programs.extend(Some(unseen).filter(|unseen| !unseen.is_empty()));
    let programs = if programs.is_empty() { "programs".to_owned() } else { programs.join(", ") };
    format!(
        "{} is unmounted; waiting for {programs} to close the files that they have open there; a second Ctrl-C or SIGTERM ends without them",
        shown(point)
    )
}

/// `DIR.mount`.
fn default_point(directory: &Path) -> PathBuf {
    let mut name = OsString::from(directory.file_name().unwrap_or("data".as_ref()));
    name.push(".mount");
    directory.with_file_name(name)
}
