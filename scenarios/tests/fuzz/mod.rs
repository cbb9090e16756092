//! The corpus that is checked in, through the functions that are fuzzed.

use scenarios::fuzz::{TARGETS, corpus, differ};
use scenarios::packets::{World, cases};

#[test]
fn each_target_takes_its_corpus() {
    for (name, run) in TARGETS {
        let files =
            std::fs::read_dir(corpus().join(name)).unwrap_or_else(|e| panic!("corpus of {name}: {e}"));
        let mut count = 0;
        for file in files {
            let path = file.unwrap().path();
            let bytes = std::fs::read(&path).unwrap();
            let result = std::panic::catch_unwind(|| run(&bytes));
            assert!(result.is_ok(), "{name} fails on {}", path.display());
            count += 1;
        }
        assert!(count >= 4, "{name} has {count} files to start from");
    }
}

#[test]
fn each_packet_case_is_an_input_that_both_sides_agree_on() {
    for case in cases::all(&World::default()) {
        differ::packet(&differ::input(&case));
    }
}

#[test]
fn each_target_has_its_program() {
    let programs = corpus().join("../fuzz_targets");
    let mut found: Vec<String> = std::fs::read_dir(&programs)
        .unwrap()
        .map(|file| file.unwrap().path().file_stem().unwrap().to_string_lossy().into_owned())
        .collect();
    found.sort();
    let mut known: Vec<&str> = TARGETS.iter().map(|(name, _)| *name).collect();
    known.sort_unstable();
    assert_eq!(found, known);
}
