//! Links between the pages: each leads to a file, and to a heading or an anchor that is there.

use crate::{pages, root};

/// How GitHub names the anchor of a heading.
fn anchor(heading: &str) -> String {
    let kept = |c: &char| c.is_alphanumeric() || matches!(c, '-' | '_' | ' ');
    let name = heading.trim_start_matches('#').trim().to_lowercase();
    name.chars()
        .filter(kept)
        .collect::<String>()
        .replace(' ', "-")
}

fn anchors(page: &str) -> Vec<String> {
    let named = page.split("<a id=\"").skip(1);
    let named = named.filter_map(|rest| rest.split_once('"').map(|(name, _)| name.to_owned()));
    let headings = page
        .lines()
        .filter(|line| line.starts_with('#'))
        .map(anchor);
    named.chain(headings).collect()
}

#[test]
fn every_link_of_a_page_leads_somewhere() {
    let mut found = 0;
    for (page, text) in pages() {
        let folder = root().join(&page).parent().unwrap().to_owned();
        let links = text
            .split("](")
            .skip(1)
            .filter_map(|rest| rest.split(')').next());
        let pictures = text
            .split("src=\"")
            .skip(1)
            .filter_map(|rest| rest.split('"').next());
        for link in links.chain(pictures) {
            if link.starts_with("https://") || link.starts_with("http://") {
                continue;
            }
            let (path, wanted) = link.split_once('#').unwrap_or((link, ""));
            let target = match path {
                "" => root().join(&page),
                path => folder.join(path),
            };
            assert!(target.exists(), "{page}: {link}: there is no such file");
            if !wanted.is_empty() {
                let target = std::fs::read_to_string(target).unwrap();
                let there = anchors(&target);
                assert!(
                    there.iter().any(|it| it == wanted),
                    "{page}: {link}: no such anchor"
                );
            }
            found += 1;
        }
    }
    assert!(found > 20, "only {found} links were found");
}

#[test]
fn anchors_of_headings() {
    for (heading, expected) in [
        ("## The file", "the-file"),
        (
            "### `loro serve`: ports, and more",
            "loro-serve-ports-and-more",
        ),
        ("# A_b", "a_b"),
    ] {
        assert_eq!(anchor(heading), expected);
    }
}
