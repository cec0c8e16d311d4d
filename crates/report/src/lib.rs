//! One self-contained HTML file of what was traced, planned, measured and simulated; the types of the measured and simulated results that it shows.
//!
//! Pictures are SVG that the modules below write, coloured by the page's style sheet for light, dark and print; the page is a
//! template. The file loads nothing from anywhere and says so to the browser.
#![forbid(unsafe_code)]
#![deny(missing_docs, clippy::missing_errors_doc)]
#![deny(clippy::print_stdout)]

mod bars;
#[cfg(test)]
mod contrast;
pub mod date;
mod finding;
mod fits;
mod headline;
mod heat;
mod latency;
mod live;
mod load;
mod material;
mod page;
mod prices;
mod regions;
pub mod results;
mod run_facts;
mod run_timeline;
pub mod scale;
pub mod simulation;
mod summary;
pub mod svg;
mod timeline;

pub use finding::{Finding, Severity};
pub use headline::Headline;
pub use heat::Heat;
pub use material::{Material, ReportError};
pub use page::{RenderError, render};
pub use run_facts::{Figure, RunFacts, Table};
pub use summary::TraceSummary;
