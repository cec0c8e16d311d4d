//! `docs/workloads.md` against the tables of benchmarks.

use stripewise_trace::workload::reference;

/// STRIPEWISE_UPDATE_DOCS=1 writes the document again.
#[test]
fn the_document_is_made_from_the_tables() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/workloads.md");
    if std::env::var_os("STRIPEWISE_UPDATE_DOCS").is_some() {
        std::fs::write(path, reference()).unwrap();
    }
    let found = std::fs::read_to_string(path).unwrap_or_default();
    assert!(found == reference(), "docs/workloads.md is old; run this test with STRIPEWISE_UPDATE_DOCS=1");
}
