//! Calls with what a line says of them.

use super::super::positions::{Action, Begin, Call};
use super::line::{Line, Word};
use super::names::Names;
use stripewise_capture::call::{Call as Called, Level, Operation};
use stripewise_layout::figures::counted;

const LATEST_US: u64 = super::super::gather::MAX_TIME_NS / 1000;

/// A call that traces have, or one that only moves a position.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Found {
    Call(Called),
    Position,
}

impl Found {
    pub(super) fn of(line: &Line<'_>) -> Option<Self> {
        if !line.cat.eq_ignore_ascii_case("POSIX") && !line.cat.eq_ignore_ascii_case("STDIO") {
            return None;
        }
        match line.name.strip_suffix("64").unwrap_or(&line.name) {
            "ftell" | "ftello" => Some(Self::Position),
            "fseek" | "fseeko" => Some(Self::Call(Called::Lseek)),
            name => Called::from_name(name).filter(|call| call.level() == Level::Posix).map(Self::Call),
        }
    }

    pub(super) fn is_data(self) -> bool {
        matches!(self, Self::Call(call) if call.operation().is_data())
    }
}

/// The call of a line; none where the line does not say its file, its times or what it moved.
pub(super) fn call(found: &Found, line: &Line<'_>, names: &mut Names) -> Option<Call> {
    let arguments = &line.args;
    let file = names.file(&arguments.fname, &arguments.fhash)?;
    let start_us = line.ts.unsigned()?;
    let end_us = start_us.checked_add(line.dur.unsigned()?).filter(|end| *end <= LATEST_US)?;
    let result = arguments.ret.signed();
    let called = match found {
        Found::Call(called) => Some(*called),
        Found::Position => None,
    };
    let mut descriptor = arguments.fd.signed();
    let action = match called.map(|called| (called, called.operation())) {
        None => Action::Seek { to: result.and_then(|to| to.try_into().ok()) },
        Some((called, Operation::Open)) => {
            if called != Called::Fopen {
                descriptor = result;
            }
            Action::opened(arguments.flags.signed(), arguments.mode.text())
        }
        Some((_, Operation::Close)) => Action::Close,
        Some((called, Operation::Read | Operation::Write)) => {
            let items = result?;
            let item = if matches!(called, Called::Fread | Called::Fwrite) { arguments.size.unsigned()? } else { 1 };
            let bytes = u64::try_from(items).unwrap_or(0).saturating_mul(item);
            Action::Move { begin: arguments.offset.unsigned().map_or(Begin::Position, Begin::At), bytes }
        }
        Some((_, Operation::Seek)) if line.name.starts_with('f') => match arguments.whence.signed() {
            Some(0) => Action::Seek { to: arguments.offset.unsigned() },
            Some(1) => Action::SeekBy { bytes: arguments.offset.signed().unwrap_or(0) },
            _ => Action::Seek { to: None },
        },
        Some((_, Operation::Seek)) => Action::Seek { to: result.and_then(|to| to.try_into().ok()) },
        Some((_, Operation::Truncate)) => Action::Truncate { length: arguments.length.unsigned() },
        Some((_, Operation::Rename)) => Action::Rename { to: names.file(&Word::Other, &arguments.newpath_hash)? },
        Some(_) => Action::Other,
    };
    let descriptor = descriptor.and_then(|descriptor| i32::try_from(descriptor).ok()).filter(|number| *number >= 0);
    let is_failed = result.is_some_and(|result| result < 0);
    Some(Call { start_ns: start_us * 1000, end_ns: end_us * 1000, called, file, descriptor, is_failed, action })
}

/// What of a trace could not be used.
#[derive(Default)]
pub(super) struct Lost {
    /// Reads and writes that do not say what they moved.
    pub(super) without_facts: u64,
    /// Records of many calls.
    pub(super) sums: u64,
    /// Reads and writes at offsets that the trace does not say.
    pub(super) without_offset: u64,
}

impl Lost {
    pub(super) fn sentences(&self) -> Vec<String> {
        let mut said = Vec::new();
        let mut say = |count: u64, one: &str, many: &str, rest: &str| {
            if count > 0 {
                said.push(format!("{} {rest}", counted(count as usize, one, many)));
            }
        };
        say(
            self.without_facts,
            "read or write does not say",
            "reads and writes do not say",
            "of which file and how long it is, and is missing: trace with DFTRACER_INC_METADATA=1",
        );
        say(
            self.sums,
            "record adds up",
            "records add up",
            "many calls and is missing: trace with DFTRACER_ENABLE_AGGREGATION=0",
        );
        say(
            self.without_offset,
            "read or write is",
            "reads and writes are",
            "at offsets that the trace does not say (appended, through one of several descriptors of a file, or of one opened before it began), and count for no region",
        );
        said
    }
}
