//! OrangeFS: one distribution a file over servers that are named, with a strip for each.
//!
//! **What it can express.** Any servers in any order. `simple_stripe` has one strip size, `varstrip_dist` one for each server, so a layout of a plan is said as
//! it is. A directory's attributes say what its new files get, so a file is made in a directory of its own and then takes its place.
//!
//! Sources: "pvfs2-tuning" of OrangeFS 2.10, `dist-varstrip-parser.c`, `ofs_setdirhint.c`, `get-attr.sm` and `pvfs2-req-proto.h` for the attributes and their limits.

mod detect;

use super::fit::{Candidate, Refusal, Wanted, even};
use super::layout::{NativeLayout, Part, Turn};
use super::script::{NEW, REPLACE, Script, Writer};
use super::{FittedFile, Native};
use crate::file_system::{FileSystem, Naming};
use crate::site::Site;
use stripewise_layout::ByteCount;

pub(super) static NATIVE: Native = Native {
    fs: FileSystem {
        name: "orangefs",
        title: "OrangeFS",
        target: "I/O server",
        radix: 10,
        naming: Naming::Addresses,
        stripe_size: ByteCount(64 << 10),
        stripe_count: 0,
        pool_name_bytes: None,
        has_labels: false,
        has_logged_layouts: false,
        layout_bytes: None,
    },
    example: include_str!("orangefs/site.toml"),
    expresses: "one set of servers a file, with a strip size for each",
    loses: "differences between a file's regions",
    mirrors: None,
    lacks: |_| None,
    remarks,
    objects: None,
    fit,
    script,
    detect: detect::detect,
    #[cfg(test)]
    read_back: grammar::read_back,
};

/// Bytes of `dist_params` that requests carry (1,024) less its name, and of `server_list` (4,096).
const MAX_STRIPS: usize = 1_000;
const MAX_SERVERS: usize = 4_000;

const PRELUDE: &str = r#"# set_layout FILE DISTRIBUTION PARAMETERS COUNT SERVERS: a new file so distributed, or a copy of an existing one in its place.
set_layout() {
    ask "$1"
    directory=$(mktemp -d "${1%/*}/.stripewise.XXXXXXXXXX")
    trap 'rm -f "$directory/new"; rmdir "$directory"' EXIT
    setfattr -n user.pvfs2.dist_name -v "$2" "$directory"
    setfattr -n user.pvfs2.dist_params -v "$3" "$directory"
    setfattr -n user.pvfs2.num_dfiles -v "$4" "$directory"
    setfattr -n user.pvfs2.layout -v 00004 "$directory"
    setfattr -n user.pvfs2.server_list -v "$5" "$directory"
    new=$directory/new
    : > "$new"
    finish "$1"
}
"#;

fn fit(site: &Site, wanted: &Wanted<'_>) -> Result<NativeLayout, Refusal> {
    let layouts = wanted.candidates(site).into_iter().flat_map(|Candidate { targets, stripes }| {
        let pairs = targets.iter().zip(&stripes);
        let exact =
            NativeLayout::whole(pairs.map(|(target, bytes)| Turn { target: *target, bytes: *bytes }).collect(), None);
        let same = NativeLayout::whole(even(&targets, super::fit::mean(&stripes).max(1)), None);
        let is_short =
            parameters(&exact.parts[0]).1.len() <= MAX_STRIPS && servers(site, &exact.parts[0]).len() <= MAX_SERVERS;
        if is_short { vec![exact] } else { vec![same] }
    });
    let is_short = |layout: &NativeLayout| servers(site, &layout.parts[0]).len() <= MAX_SERVERS;
    wanted.nearest(site, layouts.filter(is_short).collect())
}

fn remarks(_: &Site, files: &[FittedFile]) -> Vec<String> {
    let several = files.iter().filter(|file| parameters(&file.layout.parts[0]).0 == "varstrip_dist").count();
    let remark = || {
        format!(
            "{several} of the files have strips of several sizes (varstrip_dist), which is for dense files: take those with holes out of the script"
        )
    };
    if several > 0 { vec![remark()] } else { Vec::new() }
}

/// Distribution and its parameters.
fn parameters(part: &Part) -> (&'static str, String) {
    let first = part.turns[0].bytes;
    if part.turns.iter().all(|turn| turn.bytes == first) {
        return ("simple_stripe", format!("strip_size:{first}"));
    }
    let strips = part.turns.iter().enumerate().map(|(datafile, turn)| format!("{datafile}:{}", turn.bytes));
    ("varstrip_dist", format!("strips:{}", strips.collect::<Vec<_>>().join(";")))
}

/// The number of servers and their addresses, as the attribute `server_list` has them.
fn servers(site: &Site, part: &Part) -> String {
    let mut text = format!("{:05}", part.turns.len());
    for turn in &part.turns {
        text.push(' ');
        text.push_str(site.targets[turn.target].address.as_deref().expect("servers of OrangeFS have addresses"));
    }
    text
}

fn script(site: &Site, files: &[FittedFile]) -> Script {
    let mut writer = Writer::new(site.fs.title, files.len(), &format!("{NEW}\n{REPLACE}\n{PRELUDE}"));
    for file in files {
        let part = &file.layout.parts[0];
        let (distribution, parameters) = parameters(part);
        let count = format!("{:05}", part.turns.len());
        writer.of_file("layout", &file.path, &[distribution, &parameters, &count, &servers(site, part)]);
    }
    writer.finish()
}

#[cfg(test)]
mod grammar;
