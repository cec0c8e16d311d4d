//! Pictures as SVG text. Colours come from classes that the page's style sheet defines, so that a picture follows light, dark and print.

use std::fmt::{Display, Write};

/// A picture under construction; lengths are in CSS pixels at full width.
pub struct Svg {
    width: f64,
    height: f64,
    body: String,
}

/// Which point of a text stands at its position.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Anchor {
    /// Its left end.
    Start,
    /// Its middle.
    Middle,
    /// Its right end.
    End,
}

impl Svg {
    /// An empty picture of that size.
    pub fn new(width: f64, height: f64) -> Self {
        Self { width, height, body: String::new() }
    }

    fn push(&mut self, element: std::fmt::Arguments<'_>) {
        self.body.write_fmt(element).expect("writing to a String cannot fail");
    }

    /// A filled rectangle; `title` appears when the pointer rests on it.
    pub fn rect(&mut self, [x, y, width, height]: [f64; 4], class: &str, title: &str) {
        let (x, y, width, height) = (Short(x), Short(y), Short(width.max(0.0)), Short(height.max(0.0)));
        if title.is_empty() {
            self.push(format_args!(r#"<rect class="{class}" x="{x}" y="{y}" width="{width}" height="{height}"/>"#));
        } else {
            self.push(format_args!(
                r#"<rect class="{class}" x="{x}" y="{y}" width="{width}" height="{height}"><title>{}</title></rect>"#,
                Escaped(title)
            ));
        }
    }

    /// A straight line.
    pub fn line(&mut self, from: (f64, f64), to: (f64, f64), class: &str) {
        self.push(format_args!(
            r#"<line class="{class}" x1="{}" y1="{}" x2="{}" y2="{}"/>"#,
            Short(from.0),
            Short(from.1),
            Short(to.0),
            Short(to.1)
        ));
    }

    /// A text whose `anchor` stands at the position.
    pub fn text(&mut self, (x, y): (f64, f64), anchor: Anchor, class: &str, text: impl Display) {
        let anchor = match anchor {
            Anchor::Start => "",
            Anchor::Middle => r#" text-anchor="middle""#,
            Anchor::End => r#" text-anchor="end""#,
        };
        self.push(format_args!(
            r#"<text class="{class}" x="{}" y="{}"{anchor}>{}</text>"#,
            Short(x),
            Short(y),
            Escaped(&text.to_string())
        ));
    }

    /// A path of which `attributes` say how it is painted.
    pub fn path(&mut self, path: &Path, attributes: &str) {
        if !path.0.is_empty() {
            self.push(format_args!(r#"<path {attributes} d="{}"/>"#, path.0));
        }
    }

    /// As [`Self::finish`] with a style sheet of its own: a file that stands alone.
    pub fn finish_alone(self, label: &str, style: &str) -> String {
        let element = self.element(label, "");
        // The style stands inside the element, after its opening tag.
        let opening = element.find('>').map_or(0, |at| at + 1);
        format!("{}<style>{style}</style>{}\n", &element[..opening], &element[opening..])
    }

    /// The element, for those who hear it too: `label` says what the picture shows, `description` what is to be seen in it, or where the
    /// figures stand as a table.
    pub fn finish(self, label: &str, description: &str) -> String {
        let words = format!("<title>{}</title><desc>{}</desc>", Escaped(label), Escaped(description));
        self.element(label, &words)
    }

    fn element(self, label: &str, words: &str) -> String {
        format!(
            r#"<svg role="img" aria-label="{}" viewBox="0 0 {} {}" xmlns="http://www.w3.org/2000/svg">{words}{}</svg>"#,
            Escaped(label),
            Short(self.width),
            Short(self.height),
            self.body
        )
    }
}

/// The outline of many shapes in one element: thousands of cells cost a few bytes each.
#[derive(Default)]
pub struct Path(String);

impl Path {
    /// Adds the outline of a rectangle: x, y, width and height.
    pub fn rect(&mut self, [x, y, width, height]: [f64; 4]) {
        let (x, y, width, height) = (Short(x), Short(y), Short(width), Short(height));
        write!(self.0, "M{x} {y}h{width}v{height}h-{width}z").expect("writing to a String cannot fail");
    }

    /// Adds a line through the points, beginning at the first.
    pub fn polyline(&mut self, points: impl IntoIterator<Item = (f64, f64)>) {
        for (number, (x, y)) in points.into_iter().enumerate() {
            let command = if number == 0 { 'M' } else { 'L' };
            write!(self.0, "{command}{} {}", Short(x), Short(y)).expect("writing to a String cannot fail");
        }
    }

    /// Leads the last line back to where it began.
    pub fn close(&mut self) {
        self.0.push('z');
    }

    /// Goes on from the end of the last polyline rather than starting another.
    pub fn extend_line(&mut self, points: impl IntoIterator<Item = (f64, f64)>) {
        for (x, y) in points {
            write!(self.0, "L{} {}", Short(x), Short(y)).expect("writing to a String cannot fail");
        }
    }
}

/// A length with two decimals at most.
struct Short(f64);

impl Display for Short {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let rounded = (self.0 * 100.0).round() / 100.0;
        // Adding zero turns -0 into 0.
        write!(f, "{}", rounded + 0.0)
    }
}

struct Escaped<'a>(&'a str);

impl Display for Escaped<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for c in self.0.chars() {
            match c {
                '&' => f.write_str("&amp;")?,
                '<' => f.write_str("&lt;")?,
                '>' => f.write_str("&gt;")?,
                '"' => f.write_str("&quot;")?,
                // XML knows no other control characters, and none of them would show.
                c if c.is_control() => f.write_char('\u{fffd}')?,
                c => f.write_char(c)?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_cannot_break_out_of_its_element() {
        let mut svg = Svg::new(10.0, 10.0);
        svg.text((1.0, 2.0), Anchor::End, "t", "<script>&\"\u{7}");
        svg.rect([0.0, 0.004, 1.0 / 3.0, -1.0], "r", "a<b");
        let text = svg.finish("say \"x\"", "1 < 2");
        assert!(text.contains("<title>say &quot;x&quot;</title><desc>1 &lt; 2</desc>"), "{text}");
        assert!(text.contains("&lt;script&gt;&amp;&quot;\u{fffd}") && text.contains("<title>a&lt;b</title>"), "{text}");
        assert!(
            text.contains(r#"width="0.33" height="0""#) && text.contains(r#"aria-label="say &quot;x&quot;""#),
            "{text}"
        );
    }
}
