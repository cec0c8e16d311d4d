//! OrangeFS: one distribution a file over servers that are named, with one strip size.
//!
//! **What it can express.** Any servers in any order, each once, and one strip size (`simple_stripe`). `varstrip_dist` has a strip for each server, but a file of it
//! loses data when it is truncated and has wrong sizes and bytes where it has holes: its `logical_to_physical_offset` returns 0. No server can be named twice
//! to get a larger share, since a file has at most as many datafiles as there are I/O servers.
//!
//! A directory's attributes say the strip size and the number of servers of its new files, and `pvfs2-touch -l` says which, so a file is made in a directory
//! of its own and then takes its place. The attributes `layout` and `server_list` would say it too, but OrangeFS before 2.9.7 ignores them, and so does for up
//! to 60 s a mount whose cache has the directory without them. `pvfs2-touch` begins without a cache.
//!
//! Sources: `pvfs2-touch.c`, `pvfs2-viewdist.c`, `dist-simple-stripe.c`, `dist-varstrip.c`, `get-attr.sm`, `sys-create.sm`, `pint-cached-config.c` and
//! `dbpf-db-lmdb.c` of OrangeFS 2.8.8, 2.9.8 and 2.10.0, and what these versions did.

mod detect;

use super::fit::{Candidate, Refusal, Wanted, even, mean, nearest_power};
use super::layout::NativeLayout;
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
    expresses: "one set of servers a file, with one strip size",
    loses: "differences between a file's regions, and between its servers' strips",
    mirrors: None,
    lacks: |_| None,
    remarks: |_, _| Vec::new(),
    objects: None,
    fit,
    script,
    detect: detect::detect,
    #[cfg(test)]
    read_back: grammar::read_back,
};

/// Strips that no plan has are powers of two within these, so that requests which are powers of two end with them.
const MIN_STRIP: u64 = 64 << 10;
const MAX_STRIP: u64 = 1 << 31;

const DISTRIBUTION: &str = "simple_stripe";

const PRELUDE: &str = r#"# set_layout FILE DISTRIBUTION PARAMETERS COUNT SERVERS: a new file so distributed, or a copy of an existing one in its place. A directory's attributes say
# how its new files are distributed. Each ends with a NUL byte, because OrangeFS 2.10 on LMDB reads on behind the end of a value.
set_layout() {
    ask "$1"
    directory=$(mktemp -d "${1%/*}/.stripewise.XXXXXXXXXX")
    trap 'rm -f "$directory/new"; rmdir "$directory"' EXIT
    setfattr -n user.pvfs2.dist_name -v "\"$2\\000\"" "$directory"
    setfattr -n user.pvfs2.dist_params -v "\"$3\\000\"" "$directory"
    setfattr -n user.pvfs2.num_dfiles -v "\"$4\\000\"" "$directory"
    new=$directory/new
    pvfs2-touch -l "$5" "$new" || fail "$1: pvfs2-touch makes no file on $5; see whether pvfs2-statfs lists these servers here"
    compare "$@"
    finish "$1"
}

# Refuses a new file that does not have the distribution, its parameters and the servers in turn.
compare() {
    shown=$(pvfs2-viewdist -f "$new") || fail "pvfs2-viewdist does not say how the new file for $1 is distributed: left as it was"
    has= servers=
    while IFS= read -r line; do
        case $line in
            'dist_name = '*) has=${line#*= } ;;
            strip_size:*) has="$has $line" ;;
            'Datafile '*' - '*', handle: '*)
                line=${line#* - }
                servers=$servers,${line%%, handle: *}
                ;;
        esac
    done <<SHOWN
$shown
SHOWN
    has="$has ${servers#,}"
    [ "$has" = "$2 $3 $5" ] ||
        fail "the new file for $1 shall have $2 $3 $5, and pvfs2-viewdist says $has: left as it was"
}
"#;

fn fit(site: &Site, wanted: &Wanted<'_>) -> Result<NativeLayout, Refusal> {
    let layouts = wanted.candidates(site).into_iter().flat_map(|Candidate { targets, stripes }| {
        let middle = nearest_power(mean(&stripes), MIN_STRIP, MAX_STRIP);
        let near = [middle / 2, middle, middle * 2].map(|strip| strip.clamp(MIN_STRIP, MAX_STRIP));
        let own = [stripes.iter().min(), stripes.iter().max()].into_iter().flatten().copied();
        let strips: Vec<u64> = own.chain(near).collect();
        strips.into_iter().map(move |strip| NativeLayout::whole(even(&targets, strip), None))
    });
    wanted.nearest(site, layouts.collect())
}

fn script(site: &Site, files: &[FittedFile]) -> Script {
    let mut writer = Writer::new(site.fs.title, files.len(), &format!("{NEW}\n{REPLACE}\n{PRELUDE}"));
    for file in files {
        let turns = &file.layout.parts[0].turns;
        let address =
            |target: usize| site.targets[target].address.as_deref().expect("servers of OrangeFS have addresses");
        let servers: Vec<&str> = turns.iter().map(|turn| address(turn.target)).collect();
        let (strip, count) = (format!("strip_size:{}", turns[0].bytes), format!("{:05}", turns.len()));
        writer.of_file("layout", &file.path, &[DISTRIBUTION, &strip, &count, &servers.join(",")]);
    }
    writer.finish()
}

#[cfg(test)]
mod grammar;
