//! The options of `lfs setstripe`, `lfs migrate` and `lfs mirror extend` and the keys of its templates, by lfs-setstripe(1) and lfs.c: what they would make of a file.

use super::super::ReadBack;
use super::super::layout::{NativeLayout, Part, Turn};
use super::super::script::Script;
use crate::site::Site;

const UNIT: u64 = 64 << 10;

fn number(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| format!("`{text}` is no number"))
}

/// Sizes below 4,096 would be taken for KiB.
fn size(text: &str) -> Result<u64, String> {
    let size = number(text)?;
    if size >= 4096 && size.is_multiple_of(UNIT) { Ok(size) } else { Err(format!("{size} is not a multiple of 64KiB")) }
}

fn turns(site: &Site, osts: &[u64], size: u64) -> Result<Vec<Turn>, String> {
    if osts.is_empty() || osts.len() > 2_000 {
        return Err(format!("{} stripes", osts.len()));
    }
    let turn = |index: &u64| {
        let found = site.targets.iter().position(|target| target.number.map(u64::from) == Some(*index));
        Ok(Turn { target: found.ok_or(format!("no OST {index}"))?, bytes: size })
    };
    osts.iter().map(turn).collect()
}

/// Components have to ascend, and only the last one reaches the end of the file.
fn check(layout: NativeLayout) -> Result<NativeLayout, String> {
    let ends: Vec<Option<u64>> = layout.parts.iter().map(|part| part.end).collect();
    let (last, others) = ends.split_last().ok_or("no components")?;
    let ascends = others.windows(2).all(|pair| pair[0] < pair[1]) && others.iter().all(Option::is_some);
    let bytes: usize = 32 + layout.parts.iter().map(|part| 96 + 24 * part.turns.len()).sum::<usize>();
    match ascends && last.is_none() && bytes <= 64 << 10 {
        true => Ok(layout),
        false => Err(format!("components end at {ends:?} and take {bytes} bytes")),
    }
}

fn options(site: &Site, words: &[String]) -> Result<NativeLayout, String> {
    let mut parts: Vec<Part> = Vec::new();
    let (mut end, mut stripe, mut pool) = (None, None, None);
    let mut words = words.iter();
    while let Some(option) = words.next() {
        let value = words.next().ok_or_else(|| format!("{option} without a value"))?;
        match option.as_str() {
            "-E" if value == "eof" => end = None,
            "-E" => end = Some(size(value)?),
            "-S" => stripe = Some(size(value)?),
            "-p" => pool = Some(value.clone()),
            "-o" => {
                let osts = value.split(',').map(number).collect::<Result<Vec<u64>, String>>()?;
                let turns = turns(site, &osts, stripe.take().ok_or("-o without -S")?)?;
                // What a component does not say, the next one inherits.
                parts.push(Part { end: end.take(), turns, pool: pool.clone() });
            }
            other => return Err(format!("unrecognized option `{other}`")),
        }
    }
    check(NativeLayout { parts })
}

fn template(site: &Site, text: &str) -> Result<NativeLayout, String> {
    let mut parts: Vec<Part> = Vec::new();
    let (mut start, mut end, mut osts, mut stripe, mut pool, mut count, mut pattern) =
        (0, None, Vec::new(), 0, None, 0, "");
    let mut lines = text.lines().peekable();
    while let Some(line) = lines.next() {
        let (key, value) = line.split_once(':').ok_or_else(|| format!("`{line}` has no key"))?;
        let value = value.trim();
        match key.trim() {
            "lcm_layout_gen" | "lcme_id" | "lcme_mirror_id" | "lcme_flags" | "sub_layout" | "lmm_layout_gen"
            | "lmm_objects" => {}
            "lcm_mirror_count" if value == "1" => {}
            "lcm_entry_count" => count = number(value)?,
            "lcme_extent.e_start" if number(value)? == start => {}
            "lcme_extent.e_end" if value == "EOF" => end = None,
            "lcme_extent.e_end" => end = Some(size(value)?),
            "lmm_stripe_count" => osts = Vec::with_capacity(number(value)? as usize),
            "lmm_stripe_size" => stripe = size(value)?,
            "lmm_pattern" => pattern = if value == "raid0" || value == "raid0,overstriped" { value } else { "" },
            "lmm_stripe_offset" => {}
            "lmm_pool" => pool = Some(value.to_owned()),
            component if component.starts_with("component") => {}
            object if object.starts_with("- ") => {
                let index = value.strip_prefix("{ l_ost_idx: ").and_then(|rest| rest.strip_suffix(" }"));
                osts.push(number(index.ok_or_else(|| format!("object `{line}`"))?)?);
            }
            other => return Err(format!("key `{other}: {value}`")),
        }
        let is_last = lines.peek().is_none_or(|next| next.trim_start().starts_with("component"));
        if is_last && !osts.is_empty() {
            let mut distinct = osts.clone();
            distinct.sort_unstable();
            distinct.dedup();
            if (distinct.len() < osts.len()) != (pattern == "raid0,overstriped") {
                return Err(format!("pattern `{pattern}` of {osts:?}"));
            }
            parts.push(Part { end, turns: turns(site, &osts, stripe)?, pool: pool.take() });
            start = end.unwrap_or(u64::MAX);
            osts.clear();
        }
    }
    if count != parts.len() as u64 {
        Err(format!("{count} components, but {} listed", parts.len()))
    } else {
        check(NativeLayout { parts })
    }
}

pub(super) fn read_back(site: &Site, commands: &[Vec<String>], script: &Script) -> ReadBack {
    let mut read: Vec<(String, NativeLayout)> = Vec::new();
    let mut templates = script.files.iter();
    for command in commands {
        if let ["lfs", "getstripe", "-N", _] = command.iter().map(String::as_str).collect::<Vec<_>>()[..] {
            continue;
        }
        // Options behind -N are those of the new mirror.
        if let ["lfs", "mirror", "extend", "-N"] = command.iter().take(4).map(String::as_str).collect::<Vec<_>>()[..] {
            let [options_of @ .., path] = &command[4..] else { return Err(format!("{command:?}")) };
            if read.iter().filter(|(known, _)| known == path).count() > 15 {
                return Err(format!("{path}: more than 16 mirrors"));
            }
            read.push((path.clone(), options(site, options_of)?));
            continue;
        }
        let [lfs, action, options_of @ .., path] = &command[..] else { return Err(format!("{command:?}")) };
        if lfs != "lfs" || !matches!(action.as_str(), "setstripe" | "migrate") {
            return Err(format!("{command:?}"));
        }
        // Pools that no component or only some have are left out by the command.
        let layout = options(site, options_of)?;
        let (_, text) = templates.next().ok_or_else(|| format!("{path} has no template"))?;
        let text = String::from_utf8(text.clone()).map_err(|error| error.to_string())?;
        let from_template = template(site, &text)?;
        if from_template != layout {
            return Err(format!("{path}: the template is\n{from_template:?}\nand the options\n{layout:?}"));
        }
        read.push((path.clone(), layout));
    }
    Ok(read)
}
