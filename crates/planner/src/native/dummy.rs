//! A file system for the tests alone: it has what every one has, a module and a row of the table, and is found wherever they are.

use super::fit::{Refusal, Wanted, even};
use super::layout::NativeLayout;
use super::script::{Script, Writer};
use super::{FittedFile, Native, ReadBack};
use crate::file_system::{FileSystem, Naming};
use crate::site::Site;
use stripewise_layout::ByteCount;

pub(super) static NATIVE: Native = Native {
    fs: FileSystem {
        name: "dummy",
        title: "Dummy",
        target: "target",
        radix: 10,
        naming: Naming::Numbers,
        stripe_size: ByteCount(64 << 10),
        stripe_count: 1,
        pool_name_bytes: None,
        has_labels: false,
        has_logged_layouts: false,
        layout_bytes: None,
    },
    example: include_str!("dummy/site.toml"),
    expresses: "the first target",
    loses: "everything else",
    mirrors: None,
    lacks: |_| None,
    remarks: |_, _| Vec::new(),
    objects: None,
    fit,
    script,
    detect: |_, _| Err("there is none".to_owned()),
    read_back,
};

fn fit(_: &Site, _: &Wanted<'_>) -> Result<NativeLayout, Refusal> {
    Ok(NativeLayout::whole(even(&[0], 64 << 10), None))
}

fn script(site: &Site, files: &[FittedFile]) -> Script {
    let mut writer = Writer::new(site.fs.title, files.len(), "");
    files.iter().for_each(|file| writer.command([b"true".as_slice(), file.path.as_bytes()]));
    writer.finish()
}

fn read_back(_: &Site, commands: &[Vec<String>], _: &Script) -> ReadBack {
    let of = |words: &Vec<String>| (words[1].clone(), NativeLayout::whole(even(&[0], 64 << 10), None));
    Ok(commands.iter().map(of).collect())
}
