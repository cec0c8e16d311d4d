//! `mfsscadmin` and `mfssetsclass`, by their manuals.

use super::super::ReadBack;
use super::super::fit::even;
use super::super::layout::NativeLayout;
use super::super::script::Script;
use crate::site::Site;
use std::collections::BTreeMap;

pub(super) fn read_back(site: &Site, commands: &[Vec<String>], _: &Script) -> ReadBack {
    let mut classes: BTreeMap<&str, &str> = BTreeMap::new();
    let mut read = Vec::new();
    for command in commands {
        let words: Vec<&str> = command.iter().map(String::as_str).collect();
        match words[..] {
            ["mfsscadmin", mount, "list"] | ["mfslistsclass", "-M", mount] if mount.starts_with('/') => {}
            ["mfsscadmin", mount, "create", "-K", labels, name]
            | ["mfscreatesclass", "-M", mount, "-K", labels, name]
                if mount.starts_with('/') =>
            {
                let is_name = name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_') && name.len() < 256;
                if !is_name || classes.insert(name, labels).is_some() {
                    return Err(format!("class {name}"));
                }
            }
            ["mfsgetsclass" | "mfsfileinfo", path] if path.starts_with('/') => {}
            ["mfssetsclass", name, path] => {
                let labels = classes.get(name).ok_or(format!("no class {name}"))?;
                let pool = site.pools.iter().find(|pool| pool.name == *labels).ok_or(format!("no label {labels}"))?;
                let layout = NativeLayout::whole(even(&pool.targets, 64 << 20), Some(pool.name.clone()));
                read.push((path.to_owned(), layout));
            }
            _ => return Err(format!("{command:?}")),
        }
    }
    Ok(read)
}
