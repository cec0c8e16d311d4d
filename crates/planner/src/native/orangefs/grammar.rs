//! The attributes of a directory that say what its new files get, by `get-attr.sm`, `sys-create.sm` and `dist-varstrip-parser.c`.

use super::super::ReadBack;
use super::super::layout::{NativeLayout, Turn};
use super::super::script::Script;
use crate::site::Site;

const ATTRIBUTES: [&str; 5] = [
    "user.pvfs2.dist_name",
    "user.pvfs2.dist_params",
    "user.pvfs2.num_dfiles",
    "user.pvfs2.layout",
    "user.pvfs2.server_list",
];

/// By strtok, as the parser of OrangeFS has it: `<datafile>:<size>;...`
fn strips(text: &str) -> Result<Vec<u64>, String> {
    let strip = |(number, strip): (usize, &str)| {
        let (datafile, size) = strip.split_once(':').ok_or(format!("strip {strip}"))?;
        let is_next = datafile.parse() == Ok(number);
        size.parse().ok().filter(|size| is_next && *size > 0).ok_or(format!("strip {strip}"))
    };
    text.split(';').enumerate().map(strip).collect()
}

pub(super) fn read_back(site: &Site, commands: &[Vec<String>], _: &Script) -> ReadBack {
    let mut read = Vec::new();
    for of_file in commands.chunks(ATTRIBUTES.len()) {
        let mut values = Vec::new();
        for (command, expected) in of_file.iter().zip(ATTRIBUTES) {
            let [tool, name, attribute, option, value, directory] = &command[..] else {
                return Err(format!("{command:?}"));
            };
            if [tool, name, attribute, option] != ["setfattr", "-n", expected, "-v"] || *directory != of_file[0][5] {
                return Err(format!("{command:?}"));
            }
            values.push(value.as_str());
        }
        let [distribution, parameters, count, layout, servers] = values[..] else {
            return Err("attributes".to_owned());
        };
        let (listed, addresses) = servers.split_once(' ').ok_or("server_list")?;
        let addresses: Vec<&str> = addresses.split(' ').collect();
        // The server reads at least six bytes, the number first.
        if layout.parse() != Ok(4)
            || listed.parse() != Ok(addresses.len())
            || count.parse() != Ok(addresses.len())
            || listed.len() != 5
        {
            return Err(format!("{values:?}"));
        }
        let sizes = match (distribution, parameters.split_once(':')) {
            ("simple_stripe", Some(("strip_size", size))) => {
                vec![size.parse().map_err(|_| format!("strip {size}"))?; addresses.len()]
            }
            ("varstrip_dist", Some(("strips", text))) if text.len() < 1024 => strips(text)?,
            other => return Err(format!("{other:?}")),
        };
        if sizes.len() != addresses.len() {
            return Err(format!("{} strips for {} servers", sizes.len(), addresses.len()));
        }
        let turn = |(address, bytes): (&&str, &u64)| {
            let found = site.targets.iter().position(|target| target.address.as_deref() == Some(address));
            Ok(Turn { target: found.ok_or(format!("no server {address}"))?, bytes: *bytes })
        };
        let turns = addresses.iter().zip(&sizes).map(turn).collect::<Result<Vec<Turn>, String>>()?;
        read.push((of_file[0][5].clone(), NativeLayout::whole(turns, None)));
    }
    Ok(read)
}
