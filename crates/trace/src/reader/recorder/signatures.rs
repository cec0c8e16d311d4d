//! Signatures of calls: function and arguments, as text.

use super::super::positions::Paths;
use super::RecorderFault;
use super::bytes::Rest;
use super::calls::{self, Said};
use super::metadata::Metadata;
use stripewise_layout::text::lossless;

/// Bytes of a thread's number, of depth and number of arguments, and of the length of the arguments; what is left is the function.
const THREAD: usize = 8;
const WITHOUT_FUNCTION: usize = THREAD + 1 + 1 + 4;

/// What each signature says.
pub(super) struct Signatures {
    /// By the number that a grammar has.
    pub(super) all: Vec<Said>,
    pub(super) has_mpi: bool,
}

impl Signatures {
    pub(super) fn read(
        mut rest: Rest<'_>,
        has_counts: bool,
        metadata: &Metadata,
        paths: &mut Paths,
    ) -> Result<Self, RecorderFault> {
        const ENTRY: &str = "a signature";
        let entries = rest.count(8, "the number of signatures")?;
        let mut all: Vec<Option<Said>> = Vec::new();
        all.resize_with(entries, || None);
        let mut has_mpi = false;
        for _ in 0..entries {
            let number = rest.i32(ENTRY)?;
            if has_counts {
                rest.i32(ENTRY)?;
            }
            let length = rest.i32(ENTRY)?;
            if has_counts {
                rest.i32(ENTRY)?;
            }
            let length = usize::try_from(length).map_err(|_| RecorderFault::number("a signature's length", length))?;
            let (function, arguments) = parts(rest.bytes(length, ENTRY)?)?;
            let place = usize::try_from(number).ok().and_then(|number| all.get_mut(number));
            let place = place.filter(|place| place.is_none());
            let place = place.ok_or_else(|| RecorderFault::number("a signature's number", number))?;
            let name = metadata.function(function)?;
            has_mpi |= name.starts_with("MPI_");
            let arguments = lossless(arguments);
            let arguments: Vec<&str> = arguments.split(' ').collect();
            *place = Some(calls::said(name, &arguments, paths));
        }
        Ok(Self { all: all.into_iter().flatten().collect(), has_mpi })
    }
}

/// The function and its arguments, each with a space behind it. The function's number has one byte, or four from some 3.0 on: the lengths say which.
fn parts(key: &[u8]) -> Result<(u32, &[u8]), RecorderFault> {
    for width in [1, 4] {
        let arguments = key.get(WITHOUT_FUNCTION + width..);
        let length = key.get(WITHOUT_FUNCTION + width - 4..).and_then(|rest| rest.first_chunk());
        let (Some(arguments), Some(length)) = (arguments, length) else { continue };
        if usize::try_from(i32::from_le_bytes(*length)).is_ok_and(|length| length == arguments.len()) {
            let mut number = [0; 4];
            number[..width].copy_from_slice(&key[THREAD..THREAD + width]);
            return Ok((u32::from_le_bytes(number), arguments));
        }
    }
    Err(RecorderFault::number("the length of a signature", key.len()))
}
