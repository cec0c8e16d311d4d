//! A directory's attributes and the tools that make and show a file in it, by `get-attr.sm`, `sys-create.sm`, `pvfs2-touch.c` and `pvfs2-viewdist.c`.

use super::super::ReadBack;
use super::super::layout::NativeLayout;
use super::super::script::Script;
use crate::site::Site;

const ATTRIBUTES: [&str; 3] = ["user.pvfs2.dist_name", "user.pvfs2.dist_params", "user.pvfs2.num_dfiles"];

/// Calls for each file: the attributes, then `pvfs2-touch` and `pvfs2-viewdist`.
const CALLS: usize = ATTRIBUTES.len() + 2;

/// Bytes of `dist_params` that a request carries.
const MAX_PARAMETERS: usize = 1024;

pub(super) fn read_back(site: &Site, commands: &[Vec<String>], _: &Script) -> ReadBack {
    commands.chunks(CALLS).map(|of_file| of_one_file(site, of_file)).collect()
}

fn of_one_file(site: &Site, calls: &[Vec<String>]) -> Result<(String, NativeLayout), String> {
    let refused = || format!("{calls:?}");
    let [.., touch, show] = calls else { return Err(refused()) };
    let [tool, option, servers, new] = &touch[..] else { return Err(refused()) };
    let directory = new.strip_suffix("/new").ok_or_else(refused)?;
    if [tool, option] != ["pvfs2-touch", "-l"] || *show != ["pvfs2-viewdist", "-f", new] {
        return Err(refused());
    }
    let mut values = Vec::new();
    for (call, expected) in calls.iter().zip(ATTRIBUTES) {
        let [tool, name, attribute, option, value, of] = &call[..] else { return Err(refused()) };
        if [tool, name, attribute, option] != ["setfattr", "-n", expected, "-v"] || of != directory {
            return Err(refused());
        }
        // As setfattr reads it: text with a NUL byte at its end.
        let text = value.strip_prefix('"').and_then(|value| value.strip_suffix("\\000\""));
        values.push(text.filter(|text| !text.contains(['"', '\\'])).ok_or_else(refused)?);
    }
    let [distribution, parameters, count] = values[..] else { return Err(refused()) };
    let strip = parameters.strip_prefix("strip_size:").and_then(|size| size.parse().ok()).filter(|size| *size > 0);
    if distribution != "simple_stripe" || parameters.len() >= MAX_PARAMETERS {
        return Err(refused());
    }
    let targets = servers.split(',').map(|address| {
        let found = site.targets.iter().position(|target| target.address.as_deref() == Some(address));
        found.ok_or(format!("no server {address}"))
    });
    let targets = targets.collect::<Result<Vec<usize>, String>>()?;
    // A longer list than the count is refused; a server in it twice has two datafiles, of which a file has at most as many as there are servers.
    let is_named_once = targets.iter().enumerate().all(|(turn, target)| !targets[..turn].contains(target));
    if count.parse() != Ok(targets.len()) || !is_named_once {
        return Err(refused());
    }
    let turns = super::super::fit::even(&targets, strip.ok_or_else(refused)?);
    Ok((directory.to_owned(), NativeLayout::whole(turns, None)))
}
