//! Fences, headings and inline code of a page.

/// A fenced block.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Block {
    /// The number of the first line of its text, from 1.
    pub(crate) line: usize,
    pub(crate) language: String,
    /// The heading above it, with its line.
    pub(crate) heading: String,
    pub(crate) text: String,
}

pub(crate) fn blocks(page: &str) -> Vec<Block> {
    let mut blocks = Vec::new();
    let mut open: Option<Block> = None;
    let mut heading = String::new();
    for (number, line) in page.lines().enumerate() {
        match (&mut open, line.strip_prefix("```")) {
            (Some(_), Some(_)) => blocks.extend(open.take()),
            (Some(block), None) => {
                block.text.push_str(line);
                block.text.push('\n');
            }
            (None, Some(language)) => {
                open = Some(Block {
                    line: number + 2,
                    language: language.trim().to_owned(),
                    heading: heading.clone(),
                    text: String::new(),
                });
            }
            (None, None) if line.starts_with('#') => heading = format!("{number} {line}"),
            (None, None) => {}
        }
    }
    assert_eq!(open, None, "a fence is not closed");
    blocks
}

/// What stands between single backticks, outside of fences.
pub(crate) fn inline(page: &str) -> impl Iterator<Item = &str> {
    let mut fenced = false;
    let outside = page.lines().filter(move |line| {
        let is_fence = line.starts_with("```");
        fenced ^= is_fence;
        !fenced && !is_fence
    });
    outside.flat_map(|line| line.split('`').skip(1).step_by(2))
}

#[test]
fn fences_headings_and_inline_code() {
    let page =
        "# A\n\n`one` and `two`\n\n```sh\n# not a heading\nls\n```\n\n## B\n\n```text\n`x`\n```\n";
    let block = |line, language: &str, heading: &str, text: &str| Block {
        line,
        language: language.to_owned(),
        heading: heading.to_owned(),
        text: text.to_owned(),
    };
    assert_eq!(
        blocks(page),
        [
            block(6, "sh", "0 # A", "# not a heading\nls\n"),
            block(13, "text", "9 ## B", "`x`\n"),
        ]
    );
    assert_eq!(inline(page).collect::<Vec<_>>(), ["one", "two"]);
}
