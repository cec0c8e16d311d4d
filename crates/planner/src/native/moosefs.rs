//! MooseFS: one storage class a file, which says by labels on which chunk servers its chunks are kept.
//!
//! **What it can express.** The servers of a label, or of an expression of labels. Each chunk of 64 MiB lies on one of them as a whole; there are no
//! stripes. The class of a file may be changed at any time: the master then moves the chunks.
//!
//! **Deviations.** The master chooses among the servers of a label by their load and space; predictions draw them at random, a few times.
//!
//! A class says how many copies there are. The master removes what a file has beyond that, so a file that has more copies, or whose class wants more,
//! is left as it is.
//!
//! Sources: mfsscadmin(1), mfssclass(1) and `file_info` of mfstools.c of MooseFS 3.0, mfscreatesclass(1) of MooseFS 4.57, `chunk_parts_print` and
//! `realsize` of 4.59.

mod detect;

use super::drawn::Objects;
use super::fit::{Refusal, Wanted, even};
use super::layout::NativeLayout;
use super::script::{NEW, Script, Writer};
use super::{FittedFile, Native};
use crate::file_system::{FileSystem, Naming};
use crate::site::Site;
use std::collections::BTreeSet;
use stripewise_layout::ByteCount;

pub(super) static NATIVE: Native = Native {
    fs: FileSystem {
        name: "moosefs",
        title: "MooseFS",
        target: "chunk server",
        radix: 10,
        naming: Naming::Pools,
        stripe_size: ByteCount(CHUNK),
        stripe_count: 0,
        pool_name_bytes: None,
        has_labels: true,
        has_logged_layouts: false,
        layout_bytes: None,
    },
    example: include_str!("moosefs/site.toml"),
    expresses: "one storage class a file: the servers of a label, with chunks of 64MiB in turn",
    loses: "all stripes, and differences between a file's regions",
    mirrors: None,
    lacks,
    remarks,
    objects: Some(|_| Objects::in_order(CHUNK)),
    fit,
    script,
    detect: detect::detect,
    #[cfg(test)]
    read_back: grammar::read_back,
};

/// Bytes that lie on one server.
const CHUNK: u64 = 64 << 20;

/// Characters of a class's name, at most.
const MAX_NAME: usize = 255;

const PRELUDE: &str = r#"# class MOUNT NAME LABELS: a storage class, unless there is one of that name; as MooseFS 3 or MooseFS 4 has it.
class() {
    if command -v mfsscadmin >/dev/null; then
        mfsscadmin "$1" list | grep -qx "$2" || mfsscadmin "$1" create -K "$3" "$2"
    else
        mfslistsclass -M "$1" | grep -qx "$2" || mfscreatesclass -M "$1" -K "$3" "$2"
    fi || fail "there is no storage class $2, which the files need"
}

# set_layout FILE CLASS COPIES: a new file of that class, or an existing one, whose chunks the master then moves.
set_layout() {
    if [ -e "$1" ]; then
        refuse_fewer_copies "$@"
        mfssetsclass "$2" "$1"
        return
    fi
    name_new "$1"
    : > "$new"
    mfssetsclass "$2" "$new"
    settle "$new" "$1"
}

# The master removes copies beyond those of a file's class. A file may have fewer than its class wants (they are made some time after a write,
# and lost with a server), and more while the master moves chunks, so both are asked for: the real size is that of all copies wanted.
refuse_fewer_copies() {
    case $(mfsgetsclass "$1") in
        "$1: $2" | "$1: '$2'") return 0 ;;
    esac
    chunks=$(mfsfileinfo "$1") || fail "mfsfileinfo does not say how many copies $1 has ($chunks): left as it was"
    sizes=$(mfsdirinfo -n "$1") || fail "mfsdirinfo does not say how many copies $1 is to have ($sizes): left as it was"
    # Behind the name, which may have any words.
    chunks=${chunks#"$1:"}
    size= real=
    while read -r key value; do
        case $key in
            size:) size=$value ;;
            realsize:) real=$value ;;
        esac
    done <<SIZES
${sizes#"$1:"}
SIZES
    case $size,$real in
        , | ,* | *, | *[!0-9,]*) fail "mfsdirinfo does not say how many copies $1 is to have: left as it was" ;;
    esac
    case $chunks in
        *'EC part'*) fail "$1 has parts of erasure coding, which the class $2 does not keep: left as it was" ;;
        *"copy $(($3 + 1)):"*) copies=$(($3 + 1)) has="has $(($3 + 1)) copies or more" ;;
        *chunk*) copies=$3 ;;
        *) fail "mfsfileinfo does not say how many copies $1 has: left as it was" ;;
    esac
    if [ "$real" -gt $((size * copies)) ]; then
        copies=$(((real + size - 1) / size))
        has="is to have $copies copies"
    fi
    [ "$copies" -le "$3" ] ||
        fail "$1 $has, and the class $2 keeps $3: left as it was; write pool = \"${copies}LABEL\" in site.toml, or reduce its copies first"
}
"#;

/// Copies of each chunk that a class of these labels keeps.
fn copies(site: &Site, labels: &str) -> u32 {
    site.pools.iter().find(|pool| pool.name == labels).and_then(|pool| pool.copies).unwrap_or(1)
}

/// The labels of a file's class.
fn labels(file: &FittedFile) -> &str {
    file.layout.parts[0].pool.as_deref().expect("layouts of MooseFS have a label")
}

fn remarks(site: &Site, files: &[FittedFile]) -> Vec<String> {
    let single: BTreeSet<&str> = files.iter().map(labels).filter(|labels| copies(site, labels) == 1).collect();
    let Some(first) = single.first() else { return Vec::new() };
    vec![format!(
        "the script makes storage classes that keep one copy of each chunk ({}), and leaves files that have several as they are: where the site keeps two, write pool = \"2{first}\" in site.toml",
        single.iter().copied().collect::<Vec<_>>().join("; ")
    )]
}

fn lacks(site: &Site) -> Option<String> {
    let no_mount =
        || site.file.mount.is_none().then(|| "mfsscadmin needs the mount; add mount = \"/mnt/mfs\"".to_owned());
    let too_long = || {
        let pool = site.pools.iter().find(|pool| class(&pool.name).len() > MAX_NAME)?;
        let most = "a storage class of MooseFS is named by them and has 255 characters at most; shorten the expression";
        Some(format!("pool = `{}`: {most}", pool.name))
    };
    site.lacks_pools("labels of storage classes").or_else(no_mount).or_else(too_long)
}

fn fit(site: &Site, wanted: &Wanted<'_>) -> Result<NativeLayout, Refusal> {
    let layout = |pool: &crate::site::Pool| NativeLayout::whole(even(&pool.targets, CHUNK), Some(pool.name.clone()));
    wanted.nearest(site, site.pools.iter().map(layout).collect())
}

fn script(site: &Site, files: &[FittedFile]) -> Script {
    let mount = site.file.mount.as_ref().and_then(|mount| mount.to_str()).expect("the site has a mount, which is text");
    let mut writer = Writer::new(site.fs.title, files.len(), &format!("{NEW}\n{PRELUDE}"));
    let classes: BTreeSet<&str> = files.iter().map(labels).collect();
    for labels in classes {
        if copies(site, labels) == 1 {
            writer.comment("This class keeps one copy of each chunk: files of it are lost with a disk.");
        }
        writer.command(["class", mount, &class(labels), labels].map(str::as_bytes));
    }
    for file in files {
        let labels = labels(file);
        writer.of_file("layout", &file.path, &[class(labels), copies(site, labels).to_string()]);
    }
    writer.finish()
}

/// The name of the class for an expression of labels, which may have `+`, `*`, `[` and other characters that names of classes do not.
fn class(labels: &str) -> String {
    let of = |c: char| match c {
        c if c.is_ascii_alphanumeric() => c.to_string(),
        '+' => "_or_".to_owned(),
        '*' => "_any_".to_owned(),
        other => format!("_{:x}_", u32::from(other)),
    };
    format!("stripewise_{}", labels.chars().map(of).collect::<String>())
}

#[cfg(test)]
mod grammar;
