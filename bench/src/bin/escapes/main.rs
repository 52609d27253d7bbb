//! Measures this project's escaper and unescaper of JSON strings against published ones: the rate as a
//! multiple of the fastest other's, by content, with the spread of the rounds.

use std::borrow::Cow;

use breakbulk_bench::time;
use serde::Deserialize;
use serde_json::json;

/// Each figure is the best of this many runs in each of this many rounds, in turns.
const RUNS: usize = 40;
const ROUNDS: usize = 10;

/// The bytes that one run works on, however long a text is.
const TOGETHER: usize = 256 << 10;

/// The least acceptable multiples: for text with many escapes, and with few or none, where 3 % are noise.
const DENSE: f64 = 2.0;
const SPARSE: f64 = 0.97;

/// A text to escape: a unit that is repeated.
struct Content {
    name: &'static str,
    unit: &'static str,
    dense: bool,
}

const CONTENTS: [Content; 7] = [
    Content {
        name: "ASCII",
        unit: "the quick brown fox jumps over the lazy dog and runs away again ",
        dense: false,
    },
    Content {
        name: "CJK",
        unit: "大きな知らせを小さな荷に分けて運ぶ、港の仕事は今日も続く。",
        dense: false,
    },
    Content {
        name: "long lines",
        unit: "a line of prose that ends after some two hundred bytes, which is what people write where nothing wraps their lines for them, and then there is one control character, and after it the next line begins.\n",
        dense: false,
    },
    Content {
        name: "source code",
        unit: "    let name = \"value\";\n    if (a[\"key\"] != null) {\n        print(\"found\\n\");\n    }\n",
        dense: true,
    },
    Content {
        name: "JSON in JSON",
        unit: r#"{"jsonrpc":"2.0","id":17,"method":"tools/call","params":{"name":"read","arguments":{"path":"/a/b"}}},"#,
        dense: true,
    },
    Content {
        name: "quotes",
        unit: r#"print(\"a\\b\", '\"c\"'); x[\"k\"] = \"\\\\srv\\q\";"#,
        dense: true,
    },
    Content {
        name: "only quotes",
        unit: "\"\"\"\"\"\"\"\"",
        dense: true,
    },
];

const SIZES: [(usize, &str); 3] = [(1000, "1 KB"), (64 << 10, "64 KiB"), (1 << 20, "1 MiB")];

#[derive(Deserialize)]
struct Borrowed<'a>(#[serde(borrow)] Cow<'a, str>);

fn main() {
    let as_json = std::env::args().any(|argument| argument == "--json");
    let (mut rows, mut under) = (Vec::new(), Vec::new());
    if !as_json {
        println!("{ROUNDS} rounds in turns: median (least to most)\n");
        let columns = ("content", "size", "theirs GB/s", "ours GB/s", "of theirs");
        println!(
            "          {:<13} {:>7} {:>12} {:>10}  {}",
            columns.0, columns.1, columns.2, columns.3, columns.4
        );
    }
    for (size, size_name) in SIZES {
        for content in &CONTENTS {
            let text = content.unit.repeat(size / content.unit.len() + 1);
            for (what, figures) in [("escape", escape(&text)), ("unescape", unescape(&text))] {
                let bound = if content.dense { DENSE } else { SPARSE };
                let [least, median, most] = figures.of_theirs;
                let good = median >= bound;
                if !good {
                    under.push(format!("{what} {} {size_name}: {median:.2}", content.name));
                }
                let rate = |seconds: f64| text.len() as f64 / seconds / 1e9;
                if !as_json {
                    println!(
                        "{what:<9} {:<13} {size_name:>7} {:>12.2} {:>10.2}  {median:.2} ({least:.2} to {most:.2}){}",
                        content.name,
                        rate(figures.theirs),
                        rate(figures.ours),
                        if good { " ok" } else { " UNDER" }
                    );
                }
                rows.push(json!({
                    "what": what, "content": content.name, "bytes": text.len(), "ofTheirs": median,
                    "least": least, "most": most, "seconds": figures.ours, "theirSeconds": figures.theirs,
                }));
            }
        }
    }
    match (as_json, under.is_empty()) {
        (true, _) => println!("{}", json!({ "rows": rows })),
        (false, true) => {
            println!("\nDense text at least {DENSE} times as fast, all other at least {SPARSE}.")
        }
        (false, false) => println!("\nUnder the bound: {}", under.join("; ")),
    }
}

struct Figures {
    /// The best time of the fastest of the others, and this project's, in seconds.
    theirs: f64,
    ours: f64,
    /// The rate as a multiple of theirs in each round: least, median, most.
    of_theirs: [f64; 3],
}

fn escape(text: &str) -> Figures {
    let (mut one, mut two, mut three) = (Vec::new(), Vec::new(), Vec::new());
    let figures = compare(
        text.len(),
        &mut [
            &mut || {
                one.clear();
                breakbulk_escape::escape(text.as_bytes(), &mut one);
            },
            &mut || {
                two.clear();
                json_escape_simd::escape_into(text, &mut two);
            },
            &mut || {
                three.clear();
                let _ = serde_json::to_writer(&mut three, text);
            },
        ],
    );
    assert!(two == three && one == two[1..two.len() - 1]);
    figures
}

fn unescape(text: &str) -> Figures {
    let quoted = serde_json::to_string(text).expect("a text");
    let raw = &quoted.as_bytes()[1..quoted.len() - 1];
    let (mut one, mut two) = (Vec::new(), Vec::new());
    let figures = compare(
        text.len(),
        &mut [
            &mut || {
                one.clear();
                breakbulk_escape::unescape(raw, &mut one).expect("it was just escaped");
            },
            // Borrows if there is nothing to unescape; this project's code always copies, so this must, too.
            &mut || {
                two.clear();
                let data: Borrowed<'_> = serde_json::from_str(&quoted).expect("a string");
                two.extend_from_slice(data.0.as_bytes());
            },
        ],
    );
    assert_eq!(one, two);
    figures
}

/// Compares the first work with the fastest of the others.
fn compare(bytes: usize, works: &mut [&mut dyn FnMut()]) -> Figures {
    let repeat = (TOGETHER / bytes).max(1);
    let (mut theirs, mut ours, mut ratios) = (f64::MAX, f64::MAX, Vec::new());
    for _ in 0..ROUNDS {
        let mut best = vec![f64::MAX; works.len()];
        for _ in 0..RUNS {
            for (best, work) in best.iter_mut().zip(works.iter_mut()) {
                *best = best.min(time(|| (0..repeat).for_each(|_| work())) / repeat as f64);
            }
        }
        let fastest = best[1..].iter().copied().fold(f64::MAX, f64::min);
        ratios.push(fastest / best[0]);
        theirs = theirs.min(fastest);
        ours = ours.min(best[0]);
    }
    ratios.sort_by(f64::total_cmp);
    Figures {
        theirs,
        ours,
        of_theirs: [
            ratios[0],
            ratios[ratios.len() / 2],
            ratios[ratios.len() - 1],
        ],
    }
}
