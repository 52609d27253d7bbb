//! Counts the instructions of a short fixed set of work by callgrind, and compares them with the committed
//! counts. A count does not depend on what else the machine does, as a time would.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};

use crate::command::{self, cargo, root};
use crate::shared::{BUILD, target};

/// The committed counts: instructions of one message or text, and its name.
const TABLE: &str = "bench/instructions.txt";

/// The function of the program whose calls are counted, each by itself.
const COUNTED: &str = "counts::counted";

/// The digest of cep22 is left out: valgrind has no SHA instructions.
const DIGEST: &str = "digest 1 MiB";
const DIGESTED: (&str, &str) = ("cep22 ", " 1 MiB");

/// The largest acceptable count, as a multiple of the committed one.
const MOST: f64 = 1.1;

/// Below this multiple the committed counts should be renewed, so that the gain is not lost again.
const BETTER: f64 = 0.9;

/// Why instructions cannot be counted on this machine; `None` if they can.
pub(crate) fn unavailable() -> Option<String> {
    if !cfg!(target_arch = "x86_64") {
        return Some("the committed counts are those of x86-64".to_owned());
    }
    let info = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    if !info.contains(" avx2 ") {
        return Some("the committed counts are those of a processor with AVX2".to_owned());
    }
    let mut valgrind = Command::new("valgrind");
    let quiet = valgrind.arg("--version").stdout(Stdio::null());
    let runs = quiet.status().is_ok_and(|status| status.success());
    (!runs).then(|| "`valgrind` does not run; install valgrind".to_owned())
}

/// Counts, and compares; with `BREAKBULK_BLESS=1` writes the table instead.
pub(crate) fn run() -> Result<()> {
    let counts = count()?;
    if std::env::var_os("BREAKBULK_BLESS").is_some_and(|bless| bless == "1") {
        fs::write(root().join(TABLE), written(&counts))?;
        println!("{TABLE} is written anew: {} counts", counts.len());
        return Ok(());
    }
    let committed = fs::read_to_string(root().join(TABLE)).context(TABLE)?;
    let verdict = compare(&counts, &read(&committed)?);
    print!("{}", verdict.text);
    ensure!(
        verdict.wrong.is_empty(),
        "{}\nif the work itself has changed, BREAKBULK_BLESS=1 cargo xtask counts writes {TABLE} anew: read the difference",
        verdict.wrong.join("\n")
    );
    println!(
        "{} counts, none more than a tenth above {TABLE}",
        counts.len()
    );
    Ok(())
}

type Counts = Vec<(String, u64)>;

/// Builds the program with the shared build, and runs it under callgrind.
fn count() -> Result<Counts> {
    command::run(cargo(&["build", "--quiet", "--bin", "counts"]).args(BUILD))?;
    let folder = target()?.join("counts");
    if folder.exists() {
        fs::remove_dir_all(&folder)?;
    }
    fs::create_dir_all(&folder)?;
    let mut valgrind = Command::new("valgrind");
    valgrind
        .args(["--quiet", "--tool=callgrind"])
        .arg(format!("--toggle-collect={COUNTED}"))
        .arg(format!("--dump-after={COUNTED}"))
        .arg(format!(
            "--callgrind-out-file={}",
            folder.join("profile").display()
        ))
        .arg(target()?.join("release/counts"));
    // A copy by `rep movsb` counts each byte, and whether it is used depends on addresses.
    let never = 1 << 30;
    let tunables = ["x86_rep_movsb_threshold", "x86_rep_stosb_threshold"]
        .map(|name| format!("glibc.cpu.{name}={never}"));
    valgrind.env("GLIBC_TUNABLES", tunables.join(":"));
    let printed = command::output(&mut valgrind)?;
    let mut counts = Vec::new();
    for (number, line) in (1..).zip(printed.lines()) {
        let (name, times) = line
            .split_once('\t')
            .context("counts: a line without a tab")?;
        let profile = folder.join(format!("profile.{number}"));
        counts.push((name.to_owned(), total(&profile)? / times.parse::<u64>()?));
    }
    ensure!(!counts.is_empty(), "counts: the program printed nothing");
    without_digests(counts)
}

/// The instructions of one profile.
fn total(profile: &Path) -> Result<u64> {
    let text = fs::read_to_string(profile).with_context(|| profile.display().to_string())?;
    let total = text.lines().find_map(|line| line.strip_prefix("totals: "));
    let total: u64 = total.context("callgrind: no totals")?.trim().parse()?;
    ensure!(
        total > 0,
        "callgrind counted nothing: is {COUNTED} still a function?"
    );
    Ok(total)
}

/// Subtracts two digests, one of each side, from the counts that include them.
fn without_digests(mut counts: Counts) -> Result<Counts> {
    let digest = counts.iter().position(|(name, _)| name == DIGEST);
    let (_, digest) = counts.remove(digest.context("counts: no digest")?);
    for (name, count) in &mut counts {
        if name.starts_with(DIGESTED.0) && name.ends_with(DIGESTED.1) {
            let rest = count.checked_sub(2 * digest);
            *count =
                rest.with_context(|| format!("{name}: fewer instructions than two digests"))?;
        }
    }
    Ok(counts)
}

fn written(counts: &Counts) -> String {
    let mut text = String::from(
        "# Instructions of one message (split and join), or of one text, in the shared release build on x86-64 with\n\
         # AVX2, counted by callgrind. `cargo xtask counts` compares, `BREAKBULK_BLESS=1 cargo xtask counts` writes.\n",
    );
    for (name, count) in counts {
        let _ = writeln!(text, "{count:>10}  {name}");
    }
    text
}

fn read(text: &str) -> Result<BTreeMap<String, u64>> {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines
        .map(|line| {
            let (count, name) = line
                .trim_start()
                .split_once("  ")
                .with_context(|| format!("{TABLE}: {line:?}"))?;
            Ok((name.to_owned(), count.parse()?))
        })
        .collect()
}

struct Verdict {
    text: String,
    wrong: Vec<String>,
}

fn compare(counts: &Counts, committed: &BTreeMap<String, u64>) -> Verdict {
    let (mut text, mut wrong) = (String::new(), Vec::new());
    for (name, count) in counts {
        let Some(before) = committed.get(name) else {
            wrong.push(format!("{name}: not in {TABLE}"));
            continue;
        };
        let times = *count as f64 / *before as f64;
        if times > MOST {
            wrong.push(format!(
                "{name}: {count} instructions, {times:.2} times the {before} of {TABLE}"
            ));
        } else if times < BETTER {
            let _ = writeln!(
                text,
                "{name}: {count} instructions, {times:.2} times the {before} of {TABLE}: write it anew"
            );
        }
    }
    for name in committed.keys() {
        if !counts.iter().any(|(counted, _)| counted == name) {
            wrong.push(format!("{name}: in {TABLE}, and not counted any more"));
        }
    }
    Verdict { text, wrong }
}

/// `cargo xtask counts`: counts, or says why that is impossible here.
pub(crate) fn by_hand() -> Result<()> {
    match unavailable() {
        None => run(),
        Some(why) => bail!("{why}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(counts: &[(&str, u64)]) -> Counts {
        let own = |&(name, count): &(&str, u64)| (name.to_owned(), count);
        counts.iter().map(own).collect()
    }

    #[test]
    fn more_than_a_tenth_above_the_table_is_wrong() {
        let committed = read(&written(&table(&[("a 1 KB", 1000), ("b", 1000)]))).unwrap();
        for (counts, wrong) in [
            (&[("a 1 KB", 1000), ("b", 1100)][..], 0),
            (&[("a 1 KB", 1101), ("b", 1000)], 1),
            (&[("a 1 KB", 10), ("b", 1000)], 0),
            (&[("a 1 KB", 1000)], 1),
            (&[("a 1 KB", 1000), ("b", 1000), ("c", 1)], 1),
        ] {
            let verdict = compare(&table(counts), &committed);
            assert_eq!(verdict.wrong.len(), wrong, "{counts:?} {:?}", verdict.wrong);
        }
    }

    #[test]
    fn digests_are_left_out() {
        let counts = table(&[
            ("ahp 1 MiB", 5),
            ("cep22 ASCII 1 MiB", 25),
            ("cep22 ASCII 1 KB", 7),
            (DIGEST, 10),
        ]);
        let rest = table(&[
            ("ahp 1 MiB", 5),
            ("cep22 ASCII 1 MiB", 5),
            ("cep22 ASCII 1 KB", 7),
        ]);
        assert_eq!(without_digests(counts).unwrap(), rest);
        assert!(without_digests(table(&[("cep22 ASCII 1 MiB", 19), (DIGEST, 10)])).is_err());
        assert!(without_digests(table(&[("ahp 1 MiB", 5)])).is_err());
    }
}
