//! The colours of the style sheet against what lies behind them, as WCAG 2 computes contrast.

use crate::{heat, regions, timeline};
use std::collections::HashMap;

const STYLE: &str = include_str!("style.css");

type Colour = [f64; 3];

/// The names and colours of one `:root { … }`.
fn colours(block: &str) -> HashMap<&str, Colour> {
    let block = &block[block.find(":root {").unwrap()..];
    let block = &block[..block.find('}').unwrap()];
    let mut found = HashMap::new();
    for declaration in block.split(['{', ';']) {
        let Some((name, value)) = declaration.trim().split_once(": #") else { continue };
        let part = |at: usize| f64::from(u8::from_str_radix(&value[at..at + 2], 16).unwrap()) / 255.0;
        found.insert(name, [part(0), part(2), part(4)]);
    }
    found
}

/// Light and dark; what the dark block leaves out is that of the light one.
fn modes() -> [(&'static str, HashMap<&'static str, Colour>); 2] {
    let dark_at = STYLE.find("(prefers-color-scheme: dark)").unwrap();
    let light = colours(&STYLE[..dark_at]);
    let mut dark = light.clone();
    dark.extend(colours(&STYLE[dark_at..]));
    [("light", light), ("dark", dark)]
}

fn luminance(colour: Colour) -> f64 {
    let linear = |part: f64| if part <= 0.04045 { part / 12.92 } else { ((part + 0.055) / 1.055).powf(2.4) };
    let [red, green, blue] = colour.map(linear);
    0.2126 * red + 0.7152 * green + 0.0722 * blue
}

fn contrast(one: Colour, other: Colour) -> f64 {
    let (one, other) = (luminance(one) + 0.05, luminance(other) + 0.05);
    one.max(other) / one.min(other)
}

fn mixed(colour: Colour, opacity: f64, ground: Colour) -> Colour {
    std::array::from_fn(|part| colour[part] * opacity + ground[part] * (1.0 - opacity))
}

#[test]
fn contrast_is_that_of_the_standard() {
    assert!((contrast([0.0; 3], [1.0; 3]) - 21.0).abs() < 1e-9);
    let grey = 0x77 as f64 / 255.0;
    assert!((contrast([grey; 3], [1.0; 3]) - 4.48).abs() < 0.005, "{}", contrast([grey; 3], [1.0; 3]));
}

/// The weakest cell of a heat map is seen on its ground, and each shade beside the next one.
#[test]
fn every_shade_stands_out_from_the_ground_by_3_to_1_in_light_and_dark() {
    assert_eq!((heat::LEVELS, timeline::SHADES), (7, 7));
    for (mode, colours) in modes() {
        let plot = colours["--plot"];
        for ramp in ["r", "w", "b"] {
            let shades: Vec<Colour> = (0..7).map(|shade| colours[format!("--{ramp}{shade}").as_str()]).collect();
            for (number, shade) in shades.iter().enumerate() {
                let found = contrast(*shade, plot);
                assert!(found >= 3.0, "{mode}: --{ramp}{number} on --plot is {found:.2}:1");
            }
            for (number, pair) in shades.windows(2).enumerate() {
                let found = contrast(pair[0], pair[1]);
                assert!(found >= 1.2, "{mode}: --{ramp}{number} next to the following shade is {found:.2}:1");
            }
        }
        for class in ["--hdd", "--ssd"] {
            let found = contrast(mixed(colours[class], regions::WEAKEST, plot), plot);
            assert!(found >= 3.0, "{mode}: the smallest stripe of {class} is {found:.2}:1");
        }
    }
}

#[test]
fn text_is_legible_in_light_and_dark() {
    for (mode, colours) in modes() {
        let grounds = ["--paper", "--ground"];
        let texts = ["--ink", "--soft", "--faint", "--link", "--good", "--caution"];
        let pairs = texts.iter().flat_map(|text| grounds.map(|ground| (*text, ground)));
        for (text, ground) in pairs.chain([("--caution", "--caution-ground"), ("--bound", "--paper")]) {
            let found = contrast(colours[text], colours[ground]);
            assert!(found >= 4.5, "{mode}: {text} on {ground} is {found:.2}:1");
        }
    }
}
