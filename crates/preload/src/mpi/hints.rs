//! Hints for files that are managed already: MPI's aggregators then cut the file where its stripes do.
//!
//! `striping_unit` is one cycle of the first region's layout, `striping_factor` the number of its servers. They are
//! added only where the program gave no `striping_unit` itself, and never to an open that may create the file: all
//! processes must pass the same hints, and of a file that appears meanwhile some would know the layout and some would
//! not.

use super::{ask, files, handle, info_null};
use crate::process::Inside;
use crate::redirect;
use libc::c_int;
use std::ffi::CStr;
use stripewise_layout::RegionIndex;

/// `MPI_MODE_CREATE` of both families.
pub(super) const MODE_CREATE: usize = 1;

/// The unit and factor that the file's layout suggests.
fn wanted(name: &CStr) -> Option<(u64, usize)> {
    if !redirect::is_on() {
        return None;
    }
    let _inside = Inside::enter()?;
    redirect::with_file_at(libc::AT_FDCWD, files::plain_name(name), true, |_, _, file| {
        let stripes = file?.region_layout(RegionIndex(0))?;
        Some((stripes.iter().map(|(_, bytes)| u64::from(*bytes)).sum::<u64>(), stripes.len()))
    })
    .flatten()
    .filter(|(unit, _)| *unit > 0)
}

/// An info object with our hints, to be freed by [`free`]; none when the program's own is to be used.
pub(super) fn extended(name: &CStr, mode: usize, info: usize) -> Option<usize> {
    if mode & MODE_CREATE != 0 {
        return None;
    }
    let (unit, factor) = wanted(name)?;
    let is_null = handle(info) == info_null();
    if !is_null {
        let (mut length, mut found): (c_int, c_int) = (0, 0);
        let asked = ask!(c"PMPI_Info_get_valuelen", info, c"striping_unit".as_ptr(), &raw mut length, &raw mut found);
        if asked != 0 || found != 0 {
            return None;
        }
    }
    let mut extended = 0usize;
    let made = if is_null {
        ask!(c"PMPI_Info_create", &raw mut extended)
    } else {
        ask!(c"PMPI_Info_dup", info, &raw mut extended)
    };
    if made != 0 {
        return None;
    }
    for (key, value) in [(c"striping_unit", unit), (c"striping_factor", factor as u64)] {
        let text = std::ffi::CString::new(value.to_string()).ok()?;
        ask!(c"PMPI_Info_set", extended, key.as_ptr(), text.as_ptr());
    }
    Some(extended)
}

pub(super) fn free(mut info: usize) {
    ask!(c"PMPI_Info_free", &raw mut info);
}
