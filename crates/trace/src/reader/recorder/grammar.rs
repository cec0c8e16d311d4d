//! The order of a rank's calls: rules over signatures and rules.
//!
//! Some bytes can say more calls than anybody could count. Reading takes a step or two for each call that is asked for, because rules that
//! hold nothing are dropped and rules of one symbol stand where they are used.

use super::RecorderFault;
use super::bytes::Rest;
use std::collections::HashMap;

/// The rule that is the whole order.
const START: i32 = -1;

#[derive(Clone, Copy, Debug)]
enum What {
    Signature(u32),
    Rule(usize),
}

#[derive(Clone, Copy, Debug)]
struct Symbol {
    what: What,
    times: u64,
}

#[derive(Debug)]
pub(super) struct Grammar {
    rules: Vec<Vec<Symbol>>,
    start: usize,
    count: u64,
}

/// Rules as they stand, by position, and their numbers.
struct Raw {
    numbers: Vec<i32>,
    rules: Vec<Vec<Symbol>>,
}

impl Raw {
    fn read(rest: &mut Rest<'_>, signatures: usize) -> Result<Self, RecorderFault> {
        let count = rest.count(8, "the number of rules")?;
        let mut found = Vec::new();
        for _ in 0..count {
            let number = rest.i32("a rule")?;
            let symbols = rest.count(8, "the length of a rule")?;
            let mut rule = Vec::new();
            for _ in 0..symbols {
                rule.push((rest.i32("a rule")?, rest.i32("a rule")?));
            }
            found.push((number, rule));
        }
        let numbers: Vec<i32> = found.iter().map(|(number, _)| *number).collect();
        let positions: HashMap<i32, usize> = numbers.iter().enumerate().map(|(at, number)| (*number, at)).collect();
        if let (true, Some(number)) = (positions.len() < numbers.len(), numbers.first()) {
            return Err(RecorderFault::number("the number of one of several equal rules", number));
        }
        let symbol = |(value, times): (i32, i32)| {
            let times = u64::try_from(times).map_err(|_| RecorderFault::number("the repetition of a symbol", times))?;
            let what = match u32::try_from(value) {
                Ok(signature) if (signature as usize) < signatures => What::Signature(signature),
                Ok(signature) => return Err(RecorderFault::number("the signature in a rule", signature)),
                Err(_) => {
                    let at = positions.get(&value).ok_or_else(|| RecorderFault::number("the rule in a rule", value))?;
                    What::Rule(*at)
                }
            };
            Ok(Symbol { what, times })
        };
        let rules = found.into_iter().map(|(_, rule)| rule.into_iter().map(symbol).collect());
        Ok(Self { numbers, rules: rules.collect::<Result<_, _>>()? })
    }

    /// Positions of rules, each behind those that it uses.
    fn order(&self) -> Result<Vec<usize>, RecorderFault> {
        #[derive(Clone, Copy, PartialEq)]
        enum State {
            New,
            Open,
            Done,
        }
        let (mut states, mut order) = (vec![State::New; self.rules.len()], Vec::new());
        for first in 0..self.rules.len() {
            let mut stack = vec![(first, 0)];
            while let Some((rule, at)) = stack.pop() {
                match (states[rule], at) {
                    (State::Done, _) => continue,
                    (State::Open, 0) => return Err(RecorderFault::Endless { rule: self.numbers[rule] }),
                    _ => states[rule] = State::Open,
                }
                let inner = self.rules[rule].iter().enumerate().skip(at).find_map(|(at, symbol)| match symbol.what {
                    What::Rule(inner) => Some((at, inner)),
                    What::Signature(_) => None,
                });
                match inner {
                    Some((at, inner)) => stack.extend([(rule, at + 1), (inner, 0)]),
                    None => {
                        states[rule] = State::Done;
                        order.push(rule);
                    }
                }
            }
        }
        Ok(order)
    }
}

impl Grammar {
    /// Reads the grammar over so many signatures.
    pub(super) fn read(rest: &mut Rest<'_>, signatures: usize) -> Result<Self, RecorderFault> {
        let raw = Raw::read(rest, signatures)?;
        let Some(start) = raw.numbers.iter().position(|number| *number == START) else {
            return Err(RecorderFault::Truncated { what: "the rules: the first one is missing" });
        };
        let (mut rules, mut counts) = (vec![Vec::new(); raw.rules.len()], vec![0u64; raw.rules.len()]);
        for rule in raw.order()? {
            let (mut kept, mut count): (Vec<Symbol>, u64) = (Vec::new(), 0);
            for symbol in &raw.rules[rule] {
                let (symbol, inner) = match symbol.what {
                    What::Signature(_) => (*symbol, 1),
                    What::Rule(inner) => match rules[inner].as_slice() {
                        [only] => {
                            let only: &Symbol = only;
                            let times = only.times.saturating_mul(symbol.times);
                            (Symbol { times, ..*only }, counts[inner] / only.times)
                        }
                        _ => (*symbol, counts[inner]),
                    },
                };
                if symbol.times > 0 && inner > 0 {
                    kept.push(symbol);
                    count = count.saturating_add(inner.saturating_mul(symbol.times));
                }
            }
            (rules[rule], counts[rule]) = (kept, count);
        }
        Ok(Self { start, count: counts[start], rules })
    }

    /// How many calls there are; the most that is counted for more.
    pub(super) fn count(&self) -> u64 {
        self.count
    }

    /// The signatures of all calls, in order.
    pub(super) fn calls(&self) -> impl Iterator<Item = u32> {
        let mut stack = vec![(self.start, 0, 0)];
        std::iter::from_fn(move || {
            loop {
                let (rule, at, done) = stack.last_mut()?;
                match self.rules[*rule].get(*at) {
                    None => drop(stack.pop()),
                    Some(symbol) if *done == symbol.times => (*at, *done) = (*at + 1, 0),
                    Some(symbol) => {
                        *done += 1;
                        match symbol.what {
                            What::Signature(signature) => return Some(signature),
                            What::Rule(inner) => stack.push((inner, 0, 0)),
                        }
                    }
                }
            }
        })
    }
}
