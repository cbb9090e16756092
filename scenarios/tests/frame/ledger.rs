//! The ledger, `docs/features.md`: every feature once, in a known state, with tests that exist.

use std::collections::BTreeSet;

use super::source::Source;

/// Every row there must be.
const IDS: &str = "
    586 699 700 701 712 713 714 715 720 710 717 711 718
    366 702 735 736 703 737
    704 705 733 734 706 707 719
    696 694 695 708 709
    A1 A2 A3 A4 A5 A6 A7 A8 A9 A10 A11 A12 A13
    L1 L2 L3 L4 L5 L6 L7 L8
    P1 P2 P3 P4
    +1 +2 +3 +4 +5 +6 +7 +8
";

/// One row of the ledger.
struct Row<'a> {
    line: usize,
    id: &'a str,
    state: &'a str,
    tests: Vec<&'a str>,
}

fn rows(text: &str) -> Vec<Row<'_>> {
    text.lines()
        .enumerate()
        .filter_map(|(at, line)| {
            let cells: Vec<&str> =
                line.trim().strip_prefix('|')?.strip_suffix('|')?.split('|').map(str::trim).collect();
            let &[id, _feature, state, tests] = cells.as_slice() else {
                return Some(Row { line: at + 1, id: "", state: "", tests: Vec::new() });
            };
            let heading = id == "id" || id.chars().all(|c| c == '-');
            // Every second piece between backticks is a name.
            let tests = tests.split('`').skip(1).step_by(2).collect();
            (!heading).then_some(Row { line: at + 1, id, state, tests })
        })
        .collect()
}

/// Everything wrong with a ledger, given the names of all test functions.
fn problems(text: &str, known: &BTreeSet<String>) -> Vec<String> {
    let mut found = Vec::new();
    let mut missing: BTreeSet<&str> = IDS.split_whitespace().collect();
    for row in rows(text) {
        let Row { line, id, state, tests } = row;
        if id.is_empty() {
            found.push(format!("line {line}: a row has the four cells id, feature, state, tests"));
            continue;
        }
        if !missing.remove(id) {
            found.push(format!("line {line}: {id}: unknown, or there twice"));
        }
        let claims = match state.split_once(": ") {
            None if state == "done" => true,
            Some(("partial", lacks)) if !lacks.is_empty() => true,
            None if state == "not yet" => false,
            _ => {
                found.push(format!(
                    "line {line}: {id}: state is \"{state}\", not \"done\", \"not yet\" or \"partial: what lacks\""
                ));
                continue;
            }
        };
        if claims && tests.is_empty() {
            found.push(format!("line {line}: {id}: is {state} without a test"));
        }
        for test in tests.iter().filter(|test| !known.contains(**test)) {
            found.push(format!("line {line}: {id}: no test {test} in the tree"));
        }
    }
    found.extend(missing.into_iter().map(|id| format!("{id}: no row")));
    found
}

#[test]
fn every_ledger_test_exists() {
    let root = super::root();
    let mut known = BTreeSet::new();
    for dir in ["api", "bpf", "daemon", "labkit", "scenarios"] {
        for source in Source::below(&root, dir).unwrap() {
            known.extend(source.tests());
        }
    }
    assert!(known.contains("every_ledger_test_exists"), "test functions were not found: {known:?}");
    let text = std::fs::read_to_string(root.join("docs/features.md")).unwrap();
    let found = problems(&text, &known);
    assert!(found.is_empty(), "docs/features.md:\n{}", found.join("\n"));
}

#[test]
fn a_wrong_ledger_is_told_apart() {
    let special = ["586", "699", "700", "701", "710", "L1"];
    let rest: Vec<String> = IDS
        .split_whitespace()
        .filter(|id| !special.contains(id))
        .map(|id| format!("| {id} | f | not yet | |"))
        .collect();
    let rest = rest.join("\n");
    let ledger = format!(
        "| id | feature | state | tests |\n| --- | --- | --- | --- |\n\
         | 586 | f | done | |\n\
         | 699 | f | done | `there`, `gone` |\n\
         | 700 | f | partial | `there` |\n\
         | 701 | f | partial: no IPv4 | `there` |\n\
         | 701 | f | not yet | |\n\
         | X9 | f | finished | |\n\
         | 710 | three cells |\n{rest}"
    );
    let known = BTreeSet::from(["there".to_owned()]);
    assert_eq!(
        problems(&ledger, &known),
        [
            "line 3: 586: is done without a test",
            "line 4: 699: no test gone in the tree",
            "line 5: 700: state is \"partial\", not \"done\", \"not yet\" or \"partial: what lacks\"",
            "line 7: 701: unknown, or there twice",
            "line 8: X9: unknown, or there twice",
            "line 8: X9: state is \"finished\", not \"done\", \"not yet\" or \"partial: what lacks\"",
            "line 9: a row has the four cells id, feature, state, tests",
            "710: no row",
            "L1: no row",
        ]
    );
}
