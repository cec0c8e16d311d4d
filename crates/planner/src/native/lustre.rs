//! Lustre: components with absolute extents (PFL), each striped over OSTs that are named one by one.
//!
//! **What it can express.** Every component has its own stripe size and list of OSTs. An OST that is named several times in a row gets as many stripes
//! (overstriping, Lustre 2.13), so stripes of several sizes are multiples of one. Stripe and extent are multiples of 64 KiB, a component has at most 2,000
//! stripes, and all of them together have to fit a layout of 64 KiB.
//!
//! **Deviations.** Stripes are counted from the start of the file, not of the component: the list of OSTs is rotated so that the first turn falls on the
//! component's start. A cycle that does not divide a region goes on into the next one instead of beginning again.
//!
//! **Replicas** become mirrors (FLR, Lustre 2.11). They are added last, because components cannot be added to a mirrored file.
//!
//! Sources: lfs-setstripe(1), lfs-migrate(1) and lfs-mirror-extend(1) of Lustre 2.12 to 2.17, `build_layout_from_yaml_node` of lfs, and the size of
//! `lov_comp_md_v1` (32 bytes), `lov_comp_md_entry_v1` (48), `lov_mds_md_v3` (48) and `lov_ost_data_v1` (24).

mod components;
mod detect;
mod template;

use super::layout::NativeLayout;
use super::script::{Script, Writer};
use super::{FittedFile, Mirrors, Native};
use crate::file_system::{FileSystem, Naming};
use crate::site::Site;
use stripewise_layout::ByteCount;

pub(super) static NATIVE: Native = Native {
    fs: FileSystem {
        name: "lustre",
        title: "Lustre",
        target: "OST",
        radix: 16,
        naming: Naming::Numbers,
        stripe_size: ByteCount(4 << 20),
        stripe_count: 1,
        pool_name_bytes: Some(15),
        has_labels: false,
        has_logged_layouts: true,
        layout_bytes: Some((components::MIN_LAYOUT, components::MAX_LAYOUT)),
    },
    example: include_str!("lustre/site.toml"),
    expresses: "each part of a file its own OSTs and stripe sizes, in multiples of 64KiB",
    loses: "stripes below 64KiB; parts beyond what a layout of 64KiB holds are merged",
    mirrors: Some(Mirrors {
        most: MAX_MIRRORS - 1,
        note: "a client of Lustre reads one mirror of a file whole, and chooses it by itself, so the predictions are those of first copies; a write leaves the others stale until `lfs mirror resync FILE`",
    }),
    lacks: |_| None,
    remarks,
    objects: None,
    fit: components::fit,
    script,
    detect: detect::detect,
    #[cfg(test)]
    read_back: grammar::read_back,
};

/// Copies of one file (LUSTRE_MIRROR_COUNT_MAX).
const MAX_MIRRORS: usize = 16;

/// `layout FILE OPTION...` moves an existing file and makes a new one; `mirror FILE OPTION...` adds a further copy.
const PRELUDE: &str = r#"# An existing file is migrated, a new one is made.
set_layout() {
    file=$1
    shift
    if [ -e "$file" ]; then
        copies=$(lfs getstripe -N "$file" 2>/dev/null) || copies=1
        if [ "${copies:-1}" -gt 1 ] 2>/dev/null; then
            fail "$file has $copies copies (mirrors): left as it is; 'lfs mirror split -d' removes one of them"
        fi
        lfs migrate "$@" "$file"
    else
        lfs setstripe "$@" "$file"
        own "$file" "$file"
    fi
}
"#;

const MIRROR: &str = r#"
# Adds a copy of the file with a layout of its own, unless the file could not be laid out.
mirror() {
    [ "$is_set" = 0 ] || return 0
    file=$1
    shift
    lfs mirror extend -N "$@" "$file"
    is_set=$?
    [ "$is_set" = 0 ] || missed "$file"
}
"#;

fn script(site: &Site, files: &[FittedFile]) -> Script {
    let has_mirrors = files.iter().any(|file| !file.mirrors.is_empty());
    let prelude = format!("{PRELUDE}{}", if has_mirrors { MIRROR } else { "" });
    let mut writer = Writer::new(site.fs.title, files.len(), &prelude);
    for (number, file) in files.iter().enumerate() {
        let copies = std::iter::once(("layout", &file.layout)).chain(file.mirrors.iter().map(|copy| ("mirror", copy)));
        for (function, layout) in copies {
            writer.of_file(function, &file.path, &options(site, layout));
        }
        writer.file(format!("{:04}.lyl", number + 1), template::yaml(site, &file.layout));
    }
    writer.finish()
}

/// Which Lustre the script needs: client, metadata server and object servers.
fn remarks(_: &Site, files: &[FittedFile]) -> Vec<String> {
    let layouts = || files.iter().flat_map(|file| std::iter::once(&file.layout).chain(&file.mirrors));
    let is_composite = layouts().any(|layout| layout.parts.len() > 1);
    let has_mirrors = files.iter().any(|file| !file.mirrors.is_empty());
    let is_overstriped = layouts().flat_map(|layout| &layout.parts).any(|part| {
        let mut targets: Vec<usize> = part.turns.iter().map(|turn| turn.target).collect();
        targets.sort_unstable();
        targets.windows(2).any(|pair| pair[0] == pair[1])
    });
    [
        (is_composite, "layouts of several components (PFL) need Lustre 2.10 or newer"),
        (has_mirrors, "copies of whole files (FLR) need Lustre 2.11 or newer"),
        (is_overstriped, "several stripes of a file on one OST (overstriping) need Lustre 2.13 or newer"),
    ]
    .into_iter()
    .filter(|(is_needed, _)| *is_needed)
    .map(|(_, remark)| remark.to_owned())
    .collect()
}

/// The options of `lfs setstripe`. A pool is named only where every component has one: else later components would inherit the pool of an
/// earlier one, and before Lustre 2.15 nothing says that they shall not.
fn options(site: &Site, layout: &NativeLayout) -> Vec<String> {
    let mut options = Vec::new();
    let has_pools = layout.parts.iter().all(|part| part.pool.is_some());
    for part in &layout.parts {
        if layout.parts.len() > 1 {
            options.extend(["-E".to_owned(), part.end.map_or_else(|| "eof".to_owned(), |end| end.to_string())]);
        }
        options.extend(["-S".to_owned(), part.turns[0].bytes.to_string()]);
        if let Some(pool) = part.pool.as_ref().filter(|_| has_pools) {
            options.extend(["-p".to_owned(), pool.clone()]);
        }
        let osts: Vec<String> = part.turns.iter().map(|turn| index(site, turn.target).to_string()).collect();
        options.extend(["-o".to_owned(), osts.join(",")]);
    }
    options
}

/// The OST's index.
fn index(site: &Site, target: usize) -> u32 {
    site.targets[target].number.expect("targets of Lustre are numbered")
}

#[cfg(test)]
mod grammar;
