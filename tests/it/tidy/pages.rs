//! The pages that people read: each is linked from another one, or is part of the reference, and each link leads to a
//! page and a heading that are there.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Component, Path, PathBuf};

use super::{assert_none, sources, tracked};
use crate::harness::tree::root;

/// A link of a page: where it stands, and its target.
struct Link {
    at: String,
    page: PathBuf,
    target: String,
}

impl Link {
    /// The links of a page that lead to files or headings. Those to other sites are not looked up, and rustdoc looks up
    /// those to items.
    fn all_of(page: &Path) -> Vec<Self> {
        let text = fs::read_to_string(root().join(page)).unwrap();
        let mut links = Vec::new();
        for (number, line) in prose(&text) {
            let at = format!("{}:{number}", page.display());
            let line: String = line.split('`').step_by(2).collect();
            let targets = line
                .split("](")
                .skip(1)
                .filter_map(|rest| rest.split(')').next());
            let targets = targets.filter(|target| {
                let is_item = target.contains("::") || target.starts_with("super#");
                !target.contains("://") && !target.contains(' ') && !is_item
            });
            links.extend(targets.map(|target| Self {
                at: at.clone(),
                page: page.to_owned(),
                target: target.to_owned(),
            }));
        }
        links
    }

    /// The file to which it leads, and the heading in it.
    fn end(&self) -> (PathBuf, Option<&str>) {
        let (file, heading) = match self.target.split_once('#') {
            Some((file, heading)) => (file, Some(heading)),
            None => (&*self.target, None),
        };
        match file {
            "" => (self.page.clone(), heading),
            file => (clean(&self.page.parent().unwrap().join(file)), heading),
        }
    }

    fn fault(&self) -> Option<String> {
        let (file, heading) = self.end();
        let path = root().join(&file);
        if !path.exists() {
            return Some(format!("{}: {} is not there", self.at, self.target));
        }
        let heading = heading.filter(|_| path.is_file())?;
        let text = fs::read_to_string(path).unwrap();
        let has_it = prose(&text).any(|(_, line)| slug(line).is_some_and(|slug| slug == heading));
        (!has_it).then(|| format!("{}: {} has no such heading", self.at, self.target))
    }
}

/// The lines outside of blocks of code, numbered.
fn prose(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut is_code = false;
    let lines = text.lines().enumerate().filter(move |(_, line)| {
        let is_fence = line.trim_start().starts_with("```");
        is_code ^= is_fence;
        !is_code && !is_fence
    });
    lines.map(|(index, line)| (index + 1, line))
}

/// What a heading is called in links.
fn slug(line: &str) -> Option<String> {
    let heading = line.trim_start_matches('#');
    let heading = heading
        .strip_prefix(' ')
        .filter(|_| line.starts_with('#'))?;
    let heading = heading.to_lowercase();
    let letters = heading.chars().map(|letter| match letter {
        ' ' => '-',
        letter => letter,
    });
    let known = letters.filter(|letter| letter.is_alphanumeric() || "-_".contains(*letter));
    Some(known.collect())
}

/// A path without `..`.
fn clean(path: &Path) -> PathBuf {
    path.components().fold(PathBuf::new(), |mut clean, part| {
        match part {
            Component::ParentDir => drop(clean.pop()),
            part => clean.push(part),
        }
        clean
    })
}

fn pages() -> Vec<PathBuf> {
    let pages = tracked("*.md");
    assert!(pages.len() > 20, "{pages:?}");
    pages
}

#[test]
fn each_link_leads_to_a_page_and_a_heading_that_are_there() {
    let links = pages()
        .iter()
        .flat_map(|page| Link::all_of(page))
        .collect::<Vec<_>>();
    assert!(links.len() > 100, "{} links were found", links.len());
    assert_none(links.iter().filter_map(Link::fault));
}

/// Hidden are attributes alone: what the reader does not see is missing where it is pasted.
#[test]
fn the_example_of_the_landing_page_can_be_pasted() {
    let source = fs::read_to_string(root().join("src/lib.rs")).unwrap();
    let example = source.split("//! ```").nth(1).expect("an example");
    let hidden = example.lines().filter(|line| line.starts_with("//! # "));
    let hidden: Vec<_> = hidden
        .filter(|line| !line.starts_with("//! # #["))
        .collect();
    assert!(hidden.is_empty(), "{hidden:#?}");
    assert!(example.contains("async fn main()"), "{example}");
}

#[test]
fn each_page_is_linked_from_another_or_is_part_of_the_reference() {
    let pages = pages();
    let links = pages.iter().flat_map(|page| Link::all_of(page));
    let ends = links.map(|link| (link.end().0, link.page));
    let mut known: BTreeSet<_> = ends
        .filter(|(end, page)| end != page)
        .map(|(end, _)| end)
        .collect();
    for source in sources("src") {
        let included = source.code.split("include_str!(\"").skip(1);
        let folder = source.path.strip_prefix(root()).unwrap().parent().unwrap();
        let included = included.filter_map(|rest| rest.split('"').next());
        known.extend(included.map(|file| clean(&folder.join(file))));
    }
    let first = Path::new("README.md");
    let lost = pages
        .iter()
        .filter(|page| *page != first && !known.contains(*page));
    assert_none(lost.map(|page| format!("{}:1: no page links to it", page.display())));
}

#[test]
fn headings_are_called_in_links_as_the_sites_call_them() {
    for (line, expected) in [
        (
            "## What it does *not* promise",
            Some("what-it-does-not-promise"),
        ),
        ("# URLs, and `schemes`", Some("urls-and-schemes")),
        ("#no heading", None),
        ("text", None),
    ] {
        assert_eq!(slug(line).as_deref(), expected, "{line}");
    }
}
