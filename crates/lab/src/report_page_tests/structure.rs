//! What those meet who hear the page, or go through it by keyboard: landmarks, headings, names of pictures and tables.

use super::{advised, everything, everything_unmeasured};
use std::collections::HashSet;
use stripewise_report::{Material, render};

/// A tag of the page, in order; closing ones begin with `/`.
struct Tag<'a> {
    name: &'a str,
    attributes: &'a str,
    /// Where the tag ends.
    end: usize,
}

impl Tag<'_> {
    fn attribute(&self, name: &str) -> Option<&str> {
        let begin = self.attributes.find(&format!(" {name}=\""))? + name.len() + 3;
        self.attributes[begin..].split('"').next()
    }
}

/// The tags from `<body>` to `</body>`. The template escapes what is no tag of its own.
fn tags(html: &str) -> Vec<Tag<'_>> {
    let mut found = Vec::new();
    let mut at = html.find("<body>").expect("a body");
    let html = &html[..html.find("</html>").expect("an end")];
    while let Some(begin) = html[at..].find('<').map(|begin| at + begin) {
        let end = begin + html[begin..].find('>').expect("a tag ends");
        let inner = html[begin + 1..end].trim_end_matches('/');
        let name = inner.split([' ', '\n']).next().unwrap_or_default();
        found.push(Tag { name, attributes: &inner[name.len()..], end: end + 1 });
        at = end + 1;
    }
    found
}

/// Every page that a report can be, more or less.
fn pages() -> Vec<String> {
    let everything = everything();
    let alone = [
        Material { profile: everything.profile.clone(), ..Material::default() },
        Material { simulation: everything.simulation.clone(), ..Material::default() },
        Material { trace: everything.trace.clone(), ..Material::default() },
        Material { plans: everything.plans.clone(), ..Material::default() },
    ];
    let all = [everything, everything_unmeasured(), advised()].into_iter().chain(alone);
    all.map(|material| render(&material).unwrap()).collect()
}

#[test]
fn headings_are_in_order_and_every_tag_is_closed() {
    for html in pages() {
        let (mut level, mut open) = (0, Vec::new());
        for tag in tags(&html) {
            let heading = tag.name.strip_prefix('h').and_then(|level| level.parse::<u32>().ok());
            if let Some(next) = heading {
                assert!(
                    next <= level + 1 && (next > 1) == (level > 0),
                    "h{next} follows h{level}: {}",
                    &html[tag.end..tag.end + 60]
                );
                level = next;
            }
            match tag.name.strip_prefix('/') {
                Some(name) => {
                    assert_eq!(open.pop(), Some(name), "before {}", &html[tag.end..(tag.end + 60).min(html.len())])
                }
                None if is_empty(&html, &tag) => {}
                None => open.push(tag.name),
            }
        }
        assert!(level > 1);
    }
}

/// Whether the tag is closed by itself, or needs no closing.
fn is_empty(html: &str, tag: &Tag<'_>) -> bool {
    tag.name == "br" || html[..tag.end].ends_with("/>")
}

#[test]
fn the_page_has_its_landmarks_and_every_section_is_named_by_its_heading() {
    for html in pages() {
        let tags = tags(&html);
        for landmark in ["header", "main", "footer", "nav"] {
            assert_eq!(tags.iter().filter(|tag| tag.name == landmark).count(), 1, "{landmark}");
        }
        let at = |text: &str| html.find(text).unwrap_or_else(|| panic!("{text}"));
        assert!(at("</header>") < at("<main>") && at("</main>") < at("<footer>"));
        assert!(html.contains("<html lang=\"en\">") && html.contains("<nav aria-label="));
        let ids: Vec<&str> = tags.iter().filter_map(|tag| tag.attribute("id")).collect();
        assert_eq!(ids.iter().collect::<HashSet<_>>().len(), ids.len(), "an id stands twice: {ids:?}");
        for (number, section) in tags.iter().enumerate().filter(|(_, tag)| tag.name == "section") {
            let name = section.attribute("aria-labelledby").expect("a section has a name");
            let heading = tags[number + 1..].iter().find(|tag| tag.name == "h2").expect("a section has a heading");
            assert_eq!(heading.attribute("id"), Some(name));
        }
        let linked = tags.iter().filter(|tag| tag.name == "a").filter_map(|tag| tag.attribute("href"));
        for target in linked {
            assert!(ids.contains(&&target[1..]), "{target} leads nowhere");
        }
    }
}

#[test]
fn every_picture_says_what_it_shows_and_every_table_has_a_caption() {
    for html in pages() {
        let tags = tags(&html);
        for (number, tag) in tags.iter().enumerate() {
            let inside = |name: &str| tags.get(number + 1).is_some_and(|next| next.name == name);
            match tag.name {
                "svg" => {
                    assert_eq!(tag.attribute("role"), Some("img"));
                    assert!(tag.attribute("aria-label").is_some_and(|label| label.len() > 20));
                    assert!(inside("title") && tags[number + 3].name == "desc", "{}", tag.attributes);
                    let words = html[tags[number + 3].end..].split('<').next().unwrap();
                    assert!(words.len() > 20, "{words}");
                }
                "table" => assert!(inside("caption"), "{}", &html[tag.end..tag.end + 200]),
                "th" => assert!(tag.attribute("scope").is_some(), "{}", tag.attributes),
                // What scrolls is reached by keyboard and has a name.
                "div"
                    if tag.attribute("class").is_some_and(|class| class.starts_with("picture") || class == "table") =>
                {
                    assert!(tag.attribute("tabindex") == Some("0") && tag.attribute("aria-label").is_some());
                }
                _ => {}
            }
        }
    }
}

/// The kinds of figures in the order of their sections; no heading has two.
#[test]
fn the_verdict_comes_first_and_each_section_says_whether_it_was_measured_simulated_or_predicted() {
    for html in [render(&everything()).unwrap(), render(&everything_unmeasured()).unwrap()] {
        let at = |text: &str| html.find(text).unwrap_or_else(|| panic!("{text}"));
        assert!(at("<section id=\"verdict\"") < at("<nav ") && at("<nav ") < at("<section id=\"findings\""));
        let kinds = ["measured", "simulated", "predicted"];
        let mut seen = Vec::new();
        for heading in html.split("<h2 id=\"").skip(1).map(|rest| rest.split("</h2>").next().unwrap()) {
            let name = heading.split('"').next().unwrap();
            let found: Vec<usize> =
                (0..3).filter(|kind| heading.contains(&format!("tag of-{}", kinds[*kind]))).collect();
            match name {
                "verdict-title" | "sources-title" => assert!(found.is_empty(), "{heading}"),
                _ => {
                    assert_eq!(found.len(), 1, "{heading}");
                    seen.push(found[0]);
                }
            }
        }
        assert!(seen.is_sorted() && seen.len() >= 8, "{seen:?}");
    }
}

/// Wherever the page states a prediction, its range stands beside it.
#[test]
fn no_prediction_stands_without_its_range() {
    let material = everything_unmeasured();
    let html = render(&material).unwrap();
    let verdict = &html[html.find("<section id=\"verdict\"").unwrap()..html.find("<nav ").unwrap()];
    assert!(verdict.contains("between ") && verdict.contains("\u{b1}"), "{verdict}");
    let table = &html[html.find("<section id=\"plans\"").unwrap()..];
    let table = &table[..table.find("</table>").unwrap()];
    for row in table.split("<tr><th scope=\"row\">").skip(1) {
        let cells: Vec<&str> = row.split("<td>").skip(1).map(|cell| cell.split("</td>").next().unwrap()).collect();
        assert!(cells[0].contains("\u{b1}") && cells[2].contains("\u{b1}"), "{row}");
        assert!(cells[1] == "none" || cells[1].contains(" to "), "{row}");
    }
    for plan in &material.plans {
        let gain = plan.gain.total;
        assert!(gain.is_none() || gain.low < gain.expected && gain.expected < gain.high, "{}: {gain}", plan.policy);
    }
}

#[test]
fn findings_stand_by_severity_with_figure_and_remedy() {
    let html = render(&everything()).unwrap();
    let at = |text: &str| html.find(text).unwrap_or_else(|| panic!("{text}"));
    assert!(at("<b>Two ranks move most bytes</b>") < at("<b>Small writes</b>"));
    assert!(html.contains("<span class=\"number\">91 % of 23,040 writes are below 64 KiB</span>"));
    assert!(html.contains("<span class=\"remedy\">Let MPI-IO collect them: &lt;romio_cb_write&gt;.</span>"));
    let none = Material { findings: Vec::new(), ..everything() };
    assert!(!render(&none).unwrap().contains("id=\"findings\""));
}
