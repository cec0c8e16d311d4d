//! What people read: help, manual pages, completions, errors.

mod support;

use support::Place;

/// Commands whose help stands in `help.txt`.
const COMMANDS: [&str; 39] = [
    "init",
    "doctor",
    "trace",
    "plan",
    "explain",
    "advise",
    "export",
    "apply",
    "run",
    "mount",
    "daemon",
    "phase",
    "restripe",
    "migrate",
    "evacuate",
    "rebalance",
    "ls",
    "stat",
    "sync",
    "fragments",
    "cat",
    "cp",
    "rm",
    "rescue",
    "release",
    "check",
    "manage",
    "unmanage",
    "broker",
    "report",
    "simulate",
    "replay",
    "reproduce",
    "site",
    "devices",
    "schema",
    "completions",
    "man",
    "",
];

/// All subcommands that the command lists itself.
fn subcommands(place: &Place) -> Vec<String> {
    let help = place.done(&["--help"]);
    let listed = help.lines().skip_while(|line| *line != "Commands:").skip(1).take_while(|line| !line.is_empty());
    listed
        .filter(|line| !line.starts_with("   "))
        .filter_map(|line| line.split_whitespace().next())
        .map(str::to_owned)
        .collect()
}

/// STRIPEWISE_UPDATE=1 writes the file again.
#[test]
fn help_is_as_agreed() {
    let place = Place::new();
    let mut text = String::new();
    for command in COMMANDS.iter().filter(|command| !command.is_empty()) {
        text += &format!("$ stripewise {command} --help\n{}\n", place.done(&[command, "--help"]));
    }
    for action in ["show", "export"] {
        text += &format!("$ stripewise trace {action} --help\n{}\n", place.done(&["trace", action, "--help"]));
    }
    for action in ["example", "detect"] {
        text += &format!("$ stripewise site {action} --help\n{}\n", place.done(&["site", action, "--help"]));
    }
    for action in ["status", "wait", "pause", "resume", "cancel", "bandwidth"] {
        text += &format!("$ stripewise migrate {action} --help\n{}\n", place.done(&["migrate", action, "--help"]));
    }
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/help.txt");
    if std::env::var_os("STRIPEWISE_UPDATE").is_some() {
        std::fs::write(path, &text).unwrap();
    }
    let agreed = std::fs::read_to_string(path).unwrap();
    for (number, (is, should)) in text.lines().zip(agreed.lines()).enumerate() {
        assert_eq!(is, should, "line {} of help.txt", number + 1);
    }
    assert_eq!(text.len(), agreed.len());
}

#[test]
fn every_command_of_the_main_job_is_there() {
    let listed = subcommands(&Place::new());
    for command in COMMANDS.iter().filter(|command| !command.is_empty()).chain(&["calibrate"]) {
        assert!(listed.iter().any(|name| name == command), "{command} is not in {listed:?}");
    }
}

/// What documents show as `stripewise COMMAND ...`, in code blocks and between backquotes, up to the program that it starts or the
/// shell's own words. Messages (`stripewise plan: ...`) and first lines of formats are none.
fn shown_commands(document: &str) -> Vec<Vec<String>> {
    const FORMATS: [&str; 5] = ["stub", "host", "description", "drained", "server"];
    let text = document.replace("\\\n", " ");
    let in_blocks = text.lines().map(|line| line.trim_start().trim_start_matches("$ "));
    let in_sentences = text.split('`').skip(1).step_by(2);
    let mut shown = Vec::new();
    for command in in_blocks.chain(in_sentences).filter_map(|line| line.strip_prefix("stripewise ")) {
        let is_own = |word: &&str| !matches!(*word, "--" | "|" | "||" | "&" | "&&" | "#") && !word.contains(['>', '`']);
        let words: Vec<String> = command.split_whitespace().take_while(is_own).map(str::to_owned).collect();
        if words.first().is_some_and(|word| !word.ends_with(':') && !FORMATS.contains(&word.as_str())) {
            shown.push(words);
        }
    }
    shown
}

#[test]
fn documents_show_commands_and_options_that_exist() {
    let place = Place::new();
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut documents = vec![root.join("README.md"), root.join("CONTRIBUTING.md")];
    documents.extend(std::fs::read_dir(root.join("docs")).unwrap().map(|entry| entry.unwrap().path()));
    documents.retain(|path| path.extension().is_some_and(|extension| extension == "md"));
    let listed = subcommands(&place);
    let (mut helps, mut wrong, mut checked) = (std::collections::BTreeMap::new(), Vec::new(), 0);
    for document in &documents {
        for words in shown_commands(&std::fs::read_to_string(document).unwrap()) {
            let shown = format!("{}: stripewise {}", document.file_name().unwrap().display(), words.join(" "));
            let Some(at) = words.iter().position(|word| listed.contains(word)) else {
                wrong.push(format!("{shown}: no such command"));
                continue;
            };
            // `trace show` and `migrate wait` have options of their own.
            let action = words.get(at + 1).filter(|_| matches!(words[at].as_str(), "trace" | "migrate"));
            let action = action.filter(|word| word.chars().all(|letter| letter.is_ascii_lowercase()));
            let mut command: Vec<&str> = vec![&words[at]];
            command.extend(action.map(String::as_str));
            command.push("--help");
            let help: &String = helps.entry(command.join(" ")).or_insert_with(|| place.done(&command));
            let named: Vec<&str> = help.split([' ', ',', '\n', '[', '=', '.']).collect();
            checked += 1;
            for option in words.iter().filter(|word| word.starts_with("--")) {
                let name = option.split('=').next().unwrap();
                if !named.contains(&name) {
                    wrong.push(format!("{shown}: no option {name}"));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(checked > 100, "only {checked} commands are shown");
}

/// What a shell is told to complete `word` to after `words`.
fn completions(place: &Place, words: &[&str], word: &str) -> Vec<String> {
    let mut command = place.command(&[&["--", "stripewise"], words, &[word]].concat());
    let index = (words.len() + 1).to_string();
    let command = command.env("STRIPEWISE_COMPLETE", "bash").env("_CLAP_COMPLETE_INDEX", index).env("_CLAP_IFS", "\n");
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect()
}

#[test]
fn policies_and_servers_are_completed() {
    let place = Place::new();
    for name in ["a", "b"] {
        std::fs::create_dir(place.path(name)).unwrap();
    }
    let servers = ["--server", "slow-1=hdd:a", "--server", "quick-1=ssd:b"];
    assert!(completions(&place, &["evacuate"], "").iter().all(|word| !word.contains("slow")), "without a cluster");
    place.done(&[&["init"][..], &servers].concat());
    assert_eq!(completions(&place, &["evacuate"], "s"), ["slow-1"]);
    assert_eq!(completions(&place, &["plan", "run.trace", "--exclude"], ""), ["slow-1", "quick-1"]);
    assert_eq!(completions(&place, &["plan", "run.trace", "--policy"], "o"), ["opt"]);
    assert!(completions(&place, &["plan", "run.trace", "--policy"], "").contains(&"all".to_owned()));
    assert_eq!(completions(&place, &["simulate", "--policy"], "def,h"), ["def,h2dp"]);
    std::fs::create_dir(place.path("elsewhere")).unwrap();
    let mut command = place.command(&["--", "stripewise", "-C", "..", "evacuate", "q"]);
    let command = command.env("STRIPEWISE_COMPLETE", "bash").env("_CLAP_COMPLETE_INDEX", "4");
    let output = command.current_dir(place.path("elsewhere")).output().unwrap();
    assert_eq!(String::from_utf8(output.stdout).unwrap(), "quick-1");
    for shell in ["bash", "zsh", "fish", "elvish"] {
        assert!(place.done(&["completions", shell]).contains("STRIPEWISE_COMPLETE"), "{shell}");
    }
}

#[test]
fn manual_pages_and_completions_name_every_command() {
    let place = Place::new();
    let listed = subcommands(&place);
    assert!(listed.len() >= COMMANDS.len());
    let page = place.done(&["man"]);
    place.done(&["man", "--directory", "man1"]);
    let completed = completions(&place, &[], "");
    for name in &listed {
        assert!(page.contains(&format!("stripewise\\-{name}(1)")), "{name} is not in the manual page");
        let own = place.read(&format!("man1/stripewise-{name}.1"));
        assert!(String::from_utf8(own).unwrap().contains(".SH SYNOPSIS"), "{name}");
        assert!(completed.contains(name), "{name} is not completed");
    }
    assert!(place.done(&["man", "plan"]).contains("\\-\\-ssd\\-room"));
    let said = place.say(&["man", "plna"]);
    assert_eq!(
        (said.status, said.err.as_str()),
        (2, "stripewise man: no subcommand `plna`; `stripewise --help` lists them\n")
    );
}

#[test]
fn errors_name_the_thing_the_value_and_the_remedy() {
    let place = Place::with_cluster();
    place.write("text", b"not a trace, not a plan");
    place.write("some.json", b"{\"a\": 1}");
    std::fs::create_dir(place.path("bad")).unwrap();
    place.write("bad/cluster.toml", b"version = 1\nid = \"x\"\nstate = \"s\"\nregoin = \"4MiB\"\nserver = []\n");
    for (words, expected) in [
        (
            &["-C", "none", "ls"][..],
            "stripewise ls: no cluster file none; make one with `stripewise init`, or name it with --cluster or STRIPEWISE_CLUSTER\n",
        ),
        (
            &["init", "--server", "a=hdd:."],
            "stripewise init: HERE/cluster.toml exists already and is the way to its cluster's files; name another with -C for another cluster\n",
        ),
        (
            &["-C", "new.toml", "init"],
            "stripewise init: no servers; name at least one with --server or --emulated, or give --ceph\n",
        ),
        (
            &["-C", "new.toml", "init", "--server", "a=hdd:gone"],
            "stripewise init: server `a`: there is no directory HERE/gone; mount or make it first\n",
        ),
        (&["-C", "new.toml", "init", "--state", "state2", "--server", "a=hdd:h0"], "belongs to another server"),
        (&["-C", "new.toml", "init", "--server", "a=hdd:text"], "there is no directory HERE/text"),
        (&["-C", "new.toml", "init", "--server", "a=tape:x"], "unknown class `tape`; known: hdd, ssd"),
        (&["-C", "new.toml", "init", "--emulated", "2xfloppy"], "unknown device `floppy`; known: hdd-7200"),
        (
            &["-C", "new.toml", "init", "--emulated", "nvme", "--link", "string"],
            "unknown link `string`; known: gigabit",
        ),
        (
            &["-C", "new.toml", "init", "--server", "a=hdd:h0:1GiB", "--region", "5"],
            "region = \"5B\" must be a multiple of 4KiB and at least 4KiB",
        ),
        (&["-C", "bad", "ls"], "line 4"),
        (&["stat", "text"], "stripewise stat: text is not a managed file\n"),
        (&["rm", "text"], "stripewise rm: text is not a managed file; rm removes ordinary ones\n"),
        (&["release", "text"], "stripewise release: text is not a managed file\n"),
        (&["cat", "gone"], "stripewise cat: cannot open gone: No such file or directory (os error 2)\n"),
        (&["cp", "text", "h0", "h1/none"], "h1/none is no directory; several files can only be copied into one\n"),
        (&["cp", "text", "text"], "HERE/text is the source itself\n"),
        (&["trace", "show", "text"], "no trace"),
        (&["trace", "show", "gone"], "gone: No such file or directory"),
        (&["plan", "gone"], "cannot read the profile profile.json"),
        (&["apply", "some.json"], "some.json"),
        (&["explain", "some.json"], "some.json: not a plan"),
        (&["explain", "gone"], "cannot read the plan gone"),
        (
            &["report", "some.json", "-o", "r.html"],
            "some.json is neither a plan nor a profile, results or a simulation; a trace is named by its directory\n",
        ),
        (&["manage", "text"], "HERE/text is no directory; make it first\n"),
        (&["manage", "h0", "--stripe", "100"], "--stripe 100B: a stripe is a multiple of 512 bytes, below 4GiB\n"),
        (&["unmanage", "h0"], "HERE/h0 is not a managed directory; `stripewise manage` lists them\n"),
        (
            &["trace", "show", "text", "--window", "soon"],
            "`soon` is not a span of time; write 600s, 10min, 1.5h, 250ms or 300us",
        ),
        (
            &["plan", "text", "--policy", "best"],
            "`best` is not a policy; use one of def, random, 1-dh, 1-dv, 2-d, cost, segment, padp, psa, h2dp, opt, or all",
        ),
    ] {
        let said = place.say(words);
        assert!(said.err.ends_with(expected) || said.err.contains(expected), "{words:?} says {}", said.err);
        assert_eq!((said.status, said.out.as_str()), (2, ""), "{words:?}");
        let is_usage = said.err.starts_with("error: ");
        assert!(
            is_usage || said.err.lines().count() <= 2 || words[1] == "bad",
            "{words:?} says too much: {}",
            said.err
        );
    }
    assert!(!place.path("new.toml").exists() && !place.path("state2").exists());
}

#[test]
fn an_init_that_fails_leaves_nothing() {
    let place = Place::with_cluster();
    std::fs::create_dir(place.path("empty")).unwrap();
    let words =
        ["-C", "other.toml", "init", "--state", "deep/er/state", "--server", "a=hdd:empty", "--server", "b=hdd:h0"];
    assert_eq!(place.say(&words).status, 2);
    assert!(!place.path("deep").exists() && !place.path("other.toml").exists());
}

#[test]
fn a_reader_that_goes_away_is_no_fault() {
    use std::process::Stdio;
    let place = Place::with_cluster();
    place.write("big", &support::noise(3 << 20));
    let mut child = place.command(&["cat", "big"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    let said = place.said(child.wait_with_output().unwrap());
    assert_eq!((said.status, said.err.as_str()), (0, ""));
}
