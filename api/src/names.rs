//! Names: RFC 1123 labels and subdomains as Kubernetes uses them, references, regions.

use crate::meta::Metadata;
use crate::problem::Problem;

/// What is wrong with an RFC 1123 label (at most 63 characters).
pub fn label(text: &str) -> Result<(), String> {
    if text.is_empty() {
        return Err("is empty".into());
    }
    if text.len() > 63 {
        return Err(format!("has {} characters, more than 63", text.len()));
    }
    label_characters(text)
}

/// What is wrong with an RFC 1123 subdomain (labels joined by dots, at most 253 characters).
pub fn subdomain(text: &str) -> Result<(), String> {
    if text.is_empty() {
        return Err("is empty".into());
    }
    if text.len() > 253 {
        return Err(format!("has {} characters, more than 253", text.len()));
    }
    text.split('.').try_for_each(label_characters)
}

/// Characters of one label.
fn label_characters(text: &str) -> Result<(), String> {
    let good = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    if let Some(bad) = text.chars().find(|&c| !good(c) && c != '-') {
        return Err(format!("holds {bad:?}, which an RFC 1123 name may not"));
    }
    if !text.starts_with(good) || !text.ends_with(good) {
        return Err("does not start and end with a letter or digit".into());
    }
    Ok(())
}

/// Checks name, namespace and times of an object.
pub(crate) fn metadata(metadata: &Metadata, problems: &mut Vec<Problem>) {
    if let Err(why) = subdomain(&metadata.name) {
        let remedy = "name the object with lower-case letters, digits, `-` and `.`";
        problems.push(Problem::error("metadata.name", &metadata.name, why, remedy));
    }
    if let Some(namespace) = &metadata.namespace
        && let Err(why) = label(namespace)
    {
        let remedy =
            "name the namespace with lower-case letters, digits and `-`, or leave it out for `default`";
        problems.push(Problem::error("metadata.namespace", namespace, why, remedy));
    }
    let times = [
        ("creationTimestamp", &metadata.creation_timestamp),
        ("deletionTimestamp", &metadata.deletion_timestamp),
    ];
    for (field, value) in times {
        if let Some(value) = value
            && humantime::parse_rfc3339(value).is_err()
        {
            let remedy = "write it as 2026-01-31T12:00:00Z, or leave it out";
            problems.push(Problem::error(format!("metadata.{field}"), value, "is no RFC 3339 time", remedy));
        }
    }
}

/// Checks a reference to another object: non-empty and printable, at most 253 characters.
pub(crate) fn reference(field: &str, value: &str, what: &str, problems: &mut Vec<Problem>) {
    let why = if value.is_empty() {
        "is empty".to_string()
    } else if value.len() > 253 {
        format!("has {} characters, more than 253", value.len())
    } else if value.chars().any(|c| c.is_control() || c.is_whitespace()) {
        "holds white space or control characters".to_string()
    } else {
        return;
    };
    problems.push(Problem::error(field, value, why, format!("name the {what}")));
}
