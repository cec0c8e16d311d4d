//! The distinct layouts of a file, in words that are only ever added to.

use super::super::map::SharedMap;
use super::{ControlError, FIRST_LAYOUT_WORDS, FIRST_LAYOUTS_AT, LAYOUT_WORDS, LAYOUTS_AT};
use std::collections::HashSet;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use stripewise_layout::{FileId, Layout, Stripe, StripeView};

const LAYOUT_WORDS_AT: usize = 48;

/// Layouts go by the number of their first word.
#[derive(Clone, Copy, Debug)]
pub(super) struct Layouts<'a> {
    map: &'a SharedMap,
}

impl<'a> Layouts<'a> {
    #[inline]
    pub(super) fn new(map: &'a SharedMap) -> Self {
        Self { map }
    }

    #[inline]
    fn word_at(number: usize) -> usize {
        number * 8 + if number < FIRST_LAYOUT_WORDS { FIRST_LAYOUTS_AT } else { LAYOUTS_AT }
    }

    /// The layout at a number that a published word names.
    #[inline]
    pub(super) fn at(&self, number: usize) -> StripeView<'a> {
        let at = Self::word_at(number);
        let count = self.map.word(at).load(Relaxed) as usize;
        // SAFETY: the word was stored after the layout, and layouts are never changed; any bits are a valid Stripe.
        StripeView::new(unsafe { self.map.published::<Stripe>(at + 8, count) })
    }

    /// The numbers of all layouts, or what is wrong with their words.
    pub(super) fn numbers(&self) -> Result<HashSet<u64>, String> {
        let used = self.map.half(LAYOUT_WORDS_AT).load(Acquire) as usize;
        if used > LAYOUT_WORDS {
            return Err(format!("{used} words of layouts"));
        }
        let (mut starts, mut at) = (HashSet::new(), 0);
        while at < used {
            let stripes = self.map.word(Self::word_at(at)).load(Relaxed);
            if stripes == 0 && at < FIRST_LAYOUT_WORDS {
                at = FIRST_LAYOUT_WORDS;
                continue;
            }
            if stripes == 0 || stripes > (used - at - 1) as u64 {
                return Err(format!("a layout of {stripes} stripes"));
            }
            starts.insert(at as u64);
            at += 1 + stripes as usize;
        }
        Ok(starts)
    }

    /// Broker only.
    pub(super) fn find_or_add(&self, file: FileId, layout: &Layout) -> Result<usize, ControlError> {
        let used = self.map.half(LAYOUT_WORDS_AT).load(Relaxed) as usize;
        let mut at = 0;
        while at < used {
            let count = self.map.word(Self::word_at(at)).load(Relaxed) as usize;
            if count == 0 && at < FIRST_LAYOUT_WORDS {
                at = FIRST_LAYOUT_WORDS;
                continue;
            }
            // SAFETY: words below `used` are published and never changed.
            let stripes = unsafe { self.map.published::<Stripe>(Self::word_at(at) + 8, count) };
            if stripes == layout.stripes() {
                return Ok(at);
            }
            at += 1 + count;
        }
        let count = layout.stripes().len();
        // In one piece; the rest of the first page's words stays 0.
        if at < FIRST_LAYOUT_WORDS && at + 1 + count > FIRST_LAYOUT_WORDS {
            at = FIRST_LAYOUT_WORDS;
        }
        if at + 1 + count > LAYOUT_WORDS {
            return Err(ControlError::LayoutsFull { file });
        }
        self.map.reach(Self::word_at(at), (1 + count) * 8)?;
        self.map.word(Self::word_at(at)).store(count as u64, Relaxed);
        let target = self.map.unpublished(Self::word_at(at) + 8, size_of_val(layout.stripes())).cast::<Stripe>();
        for (i, stripe) in layout.stripes().iter().enumerate() {
            // SAFETY: in bounds (checked by `unpublished`), aligned to 8, and no region word leads here yet.
            unsafe { target.add(i).write(*stripe) };
        }
        self.map.half(LAYOUT_WORDS_AT).store((at + 1 + count) as u32, Release);
        Ok(at)
    }
}
