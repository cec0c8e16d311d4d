//! The table of all experiments, in the order of the document.

use super::experiment::Experiment;

/// A paper's experiments, or our own.
const PAPERS: &[&[Experiment]] = &[
    // Our own first, then by paper.
    super::opt_cases::EXPERIMENTS,
    super::opt_search::EXPERIMENTS,
    super::opt_portfolio::EXPERIMENTS,
    super::hot_set::EXPERIMENTS,
    super::model_check::EXPERIMENTS,
    super::h2dp::EXPERIMENTS,
    super::padp::EXPERIMENTS,
    super::cost_intelligent::EXPERIMENTS,
    super::segment::EXPERIMENTS,
    super::ibridge::EXPERIMENTS,
    #[cfg(test)]
    super::dummy::EXPERIMENTS,
];

pub(super) fn all() -> impl Iterator<Item = &'static Experiment> {
    PAPERS.iter().copied().flatten()
}

#[cfg(test)]
mod tests {
    use super::super::document::{GENERATED, OVERVIEW, PAGES, heading, page_name};
    use super::*;
    use crate::reproduce::experiment::TestbedKind;

    #[test]
    fn every_experiment_has_a_name_of_its_own_and_says_what_it_does() {
        let mut ids = Vec::new();
        for experiment in all() {
            let Experiment { id, paper, place, title, setup, testbeds, .. } = *experiment;
            assert!(id.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-'), "{id}");
            assert!(![paper, place, title, setup].contains(&"") && testbeds.contains(&TestbedKind::Simulated), "{id}");
            assert!(setup.ends_with('.') && !title.ends_with('.'), "{id}");
            ids.push(id);
        }
        let count = ids.len();
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids.len(), count);
    }

    #[test]
    fn the_document_has_every_experiment_and_was_generated() {
        let docs = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
        let overview = std::fs::read_to_string(docs.join(OVERVIEW)).unwrap();
        assert!(overview.starts_with(GENERATED));
        let experiments: Vec<&Experiment> =
            all().filter(|experiment| experiment.paper != super::super::dummy::PAPER).collect();
        for of_paper in experiments.chunk_by(|one, next| one.paper == next.paper) {
            let name = page_name(of_paper[0].paper);
            let page = std::fs::read_to_string(docs.join(PAGES).join(&name)).unwrap();
            assert!(page.starts_with(GENERATED) && overview.contains(&format!("]({PAGES}/{name})")), "{name}");
            let headings: Vec<&str> = page.lines().filter(|line| line.starts_with("## ")).collect();
            let expected: Vec<String> = of_paper.iter().map(|experiment| heading(experiment)).collect();
            assert_eq!(headings, expected, "{name}: run `stripewise reproduce --all --document docs`");
        }
    }
}
