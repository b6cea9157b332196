//! Everything that is linked may be shipped under our licences.

use std::process::Command;

/// Licences that ask for no more than their own text.
const PERMISSIVE: &[&str] = &[
    "0BSD",
    "Apache-2.0",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "BSL-1.0",
    "CDLA-Permissive-2.0",
    "ISC",
    "MIT",
    "MIT-0",
    "Unicode-3.0",
    "Unlicense",
    "Zlib",
];

/// `A OR B` is fine if one of them is, `A AND B` if both are; an exception only adds to what is allowed.
fn is_permissive(expression: &str) -> bool {
    let expression = expression.replace('/', " OR ").replace(['(', ')'], "");
    expression.split(" AND ").all(|part| {
        part.split(" OR ").any(|licence| {
            let licence = licence.split(" WITH ").next().unwrap().trim();
            PERMISSIVE.contains(&licence)
        })
    })
}

#[test]
fn every_dependency_has_a_permissive_licence() {
    let output = Command::new(env!("CARGO"))
        .args([
            "metadata",
            "--format-version",
            "1",
            "--locked",
            "--all-features",
        ])
        .current_dir(crate::harness::tree::root())
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let metadata: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let packages = metadata["packages"].as_array().unwrap();
    assert!(packages.len() > 50);
    for package in packages {
        let licence = package["license"].as_str().unwrap_or("none");
        assert!(
            is_permissive(licence),
            "{} is under {licence}",
            package["name"]
        );
    }
}

#[test]
fn a_licence_that_asks_for_more_is_seen() {
    assert!(is_permissive("MIT OR GPL-3.0"));
    assert!(is_permissive("Apache-2.0 WITH LLVM-exception"));
    assert!(!is_permissive("GPL-3.0-only"));
    assert!(!is_permissive("MIT AND LGPL-2.1"));
    assert!(!is_permissive("none"));
}
