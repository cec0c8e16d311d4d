//! Layout templates, as `lfs getstripe --yaml` prints them and `lfs setstripe --yaml` reads them.

use super::super::layout::NativeLayout;
use super::index;
use crate::site::Site;
use std::fmt::Write as _;

/// A template of a composite layout with the given parts.
pub(super) fn yaml(site: &Site, layout: &NativeLayout) -> String {
    let mut text = String::new();
    let count = layout.parts.len();
    let _ = writeln!(text, "  lcm_layout_gen:    0\n  lcm_mirror_count:  1\n  lcm_entry_count:   {count}");
    let has_pools = layout.parts.iter().all(|part| part.pool.is_some());
    for (number, (start, _, part)) in layout.extents().enumerate() {
        let end = part.end.map_or_else(|| "EOF".to_owned(), |end| end.to_string());
        let is_repeated = (1..part.turns.len())
            .any(|turn| part.turns[..turn].iter().any(|before| before.target == part.turns[turn].target));
        let pattern = if is_repeated { "raid0,overstriped" } else { "raid0" };
        let first = index(site, part.turns[0].target);
        let _ = write!(
            text,
            "  component{number}:\n    lcme_id:             {}\n    lcme_mirror_id:      0\n    lcme_flags:          0\n    \
             lcme_extent.e_start: {start}\n    lcme_extent.e_end:   {end}\n    sub_layout:\n      lmm_stripe_count:  {}\n      \
             lmm_stripe_size:   {}\n      lmm_pattern:       {pattern}\n      lmm_layout_gen:    0\n      lmm_stripe_offset: {first}\n",
            number + 1,
            part.turns.len(),
            part.turns[0].bytes,
        );
        if let Some(pool) = part.pool.as_ref().filter(|_| has_pools) {
            let _ = writeln!(text, "      lmm_pool:          {pool}");
        }
        text.push_str("      lmm_objects:\n");
        for (object, turn) in part.turns.iter().enumerate() {
            let _ = writeln!(text, "      - {object}: {{ l_ost_idx: {} }}", index(site, turn.target));
        }
    }
    text
}
