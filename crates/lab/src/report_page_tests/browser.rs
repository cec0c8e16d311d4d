//! The page in a browser: without a network, on a phone, on paper. Left out where there is no Chromium.

use super::{SECTIONS, advised, everything, with_requests_of_a_measured_size};
use std::path::Path;
use std::process::{Command, Output};
use stripewise_report::render;

/// What a browser makes of `html`, started with the options that `options` gives for a directory of its own.
fn opened(html: &str, options: impl Fn(&Path) -> Vec<String>) -> Option<(tempfile::TempDir, Output)> {
    let browser = ["chromium", "chromium-browser", "google-chrome"]
        .into_iter()
        .find(|name| Command::new(name).arg("--version").output().is_ok_and(|output| output.status.success()));
    let Some(browser) = browser else {
        eprintln!("no Chromium is installed; the page was not looked at");
        return None;
    };
    let directory = tempfile::tempdir().unwrap();
    let page = directory.path().join("report.html");
    std::fs::write(&page, html).unwrap();
    let output = Command::new(browser)
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"])
        .args(["--enable-logging=stderr", "--v=0", "--proxy-server=127.0.0.1:1", "--virtual-time-budget=5000"])
        .args(options(directory.path()))
        .arg(format!("--user-data-dir={}", directory.path().join("profile").display()))
        .arg(&page)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Some((directory, output))
}

/// Its only proxy does not exist, and it complains of nothing. STRIPEWISE_REPORT_SAMPLE names a file to keep the page in.
#[test]
fn a_browser_shows_the_report_without_a_network() {
    let mut material = everything();
    with_requests_of_a_measured_size(&mut material);
    let html = render(&material).unwrap();
    if let Some(keep) = std::env::var_os("STRIPEWISE_REPORT_SAMPLE") {
        std::fs::write(keep, &html).unwrap();
    }
    let Some((_directory, output)) = opened(&html, |_| vec!["--dump-dom".to_owned()]) else { return };
    let (dom, log) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    for section in SECTIONS {
        assert!(
            dom.contains(&format!("<section id=\"{section}\"")),
            "{section} is missing from the page that the browser built"
        );
    }
    assert!(!dom.contains("<parsererror"), "the browser could not read a picture");
    assert_eq!(dom.matches("<svg").count(), html.matches("<svg").count());
    let complaints: Vec<&str> = log.lines().filter(|line| line.contains("CONSOLE")).collect();
    assert!(complaints.is_empty(), "{complaints:?}");
}

/// The page in a frame of 390 pixels does not scroll sideways as a whole; each chart does, under a cue that says so.
#[test]
fn on_a_phone_only_the_charts_scroll_sideways() {
    for (material, least) in [(everything(), 9), (advised(), 1)] {
        let html = render(&material).unwrap();
        let policy = html.find("<meta http-equiv=\"Content-Security-Policy\"").unwrap();
        let policy_end = policy + html[policy..].find('>').unwrap() + 1;
        let without_policy = format!("{}{}", &html[..policy], &html[policy_end..]);
        let escaped = without_policy.replace('&', "&amp;").replace('"', "&quot;");
        let frame = format!(
        "<!doctype html><title>-</title><iframe id=f style=\"border:0;width:390px;height:800px\" srcdoc=\"{escaped}\"></iframe>
<script>f.onload = () => {{
  const page = f.contentDocument, all = (what) => [...page.querySelectorAll(what)];
  const scrolls = all('.picture').filter((box) => box.scrollWidth > box.clientWidth).length;
  const cues = all('.cue').filter((cue) => f.contentWindow.getComputedStyle(cue).display != 'none').length;
  document.title = [page.documentElement.scrollWidth, scrolls, all('.picture').length, cues].join(' ');
}};</script>"
    );
        let Some((_directory, output)) = opened(&frame, |_| vec!["--dump-dom".to_owned()]) else { return };
        let dom = String::from_utf8_lossy(&output.stdout);
        let title = dom.split("<title>").nth(1).and_then(|rest| rest.split("</title>").next()).unwrap();
        let found: Vec<usize> = title.split(' ').map(|number| number.parse().expect(title)).collect();
        let [width, scrolling, pictures, cues] = found[..] else { panic!("{title}") };
        // Less where the browser shows a bar to scroll downwards.
        assert!((300..=390).contains(&width), "the page as a whole scrolls sideways: {title}");
        assert!(pictures >= least && scrolling == pictures && cues >= least, "{title}");
    }
}

/// Every page of the printed report has something on it.
#[test]
fn no_printed_page_is_empty() {
    for (material, least) in [(everything(), 4), (advised(), 1)] {
        let html = render(&material).unwrap();
        let options = |directory: &Path| {
            vec![
                "--no-pdf-header-footer".to_owned(),
                format!("--print-to-pdf={}", directory.join("report.pdf").display()),
            ]
        };
        let Some((directory, _)) = opened(&html, options) else { return };
        let pdf = std::fs::read(directory.path().join("report.pdf")).unwrap();
        let pdf = String::from_utf8_lossy(&pdf);
        let pages: Vec<&str> = pdf.split("endobj").filter(|object| object.contains("/Type /Page\n")).collect();
        assert!(pages.len() >= least, "{}", pages.len());
        // Chromium names the fonts that a page uses; an empty one uses none.
        let empty: Vec<usize> = (0..pages.len()).filter(|number| !pages[*number].contains("/Font")).collect();
        assert!(empty.is_empty(), "of {} pages, counted from 0, these are empty: {empty:?}", pages.len());
    }
}
