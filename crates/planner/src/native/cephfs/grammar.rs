//! The attribute `ceph.file.layout`, by "File layouts" of the documentation and the MDS's check of layouts.

use super::super::ReadBack;
use super::super::fit::even;
use super::super::layout::NativeLayout;
use super::super::script::Script;
use crate::site::Site;
use std::collections::BTreeMap;

pub(super) fn read_back(site: &Site, commands: &[Vec<String>], _: &Script) -> ReadBack {
    let read = |command: &Vec<String>| {
        let [tool, name, attribute, value, layout, path] = &command[..] else { return Err(format!("{command:?}")) };
        if [tool, name, attribute, value] != ["setfattr", "-n", "ceph.file.layout", "-v"] {
            return Err(format!("{command:?}"));
        }
        let keys: BTreeMap<&str, &str> = layout.split(' ').filter_map(|pair| pair.split_once('=')).collect();
        let get = |key: &str| keys.get(key).copied().ok_or(format!("no {key} in {layout}"));
        let number = |key: &str| get(key)?.parse::<u64>().map_err(|_| format!("{key} in {layout}"));
        let (unit, count, object) = (number("stripe_unit")?, number("stripe_count")?, number("object_size")?);
        let fits_word = [unit, count, object].iter().all(|value| u32::try_from(*value).is_ok());
        let is_good =
            unit > 0 && unit.is_multiple_of(65536) && object.is_multiple_of(65536) && object.is_multiple_of(unit);
        if keys.len() != 4 || count == 0 || !is_good || !fits_word || object < unit {
            return Err(format!("layout {layout}"));
        }
        let name = get("pool")?;
        let pool = site.pools.iter().find(|pool| pool.name == name).ok_or(format!("no pool {name}"))?;
        // Units in turn, or objects one after the other.
        let bytes = if count == 1 { object } else { unit };
        Ok((path.clone(), NativeLayout::whole(even(&pool.targets, bytes), Some(pool.name.clone()))))
    };
    commands.iter().map(read).collect()
}
