//! `cargo xtask interop`: runs the live tests against the real peers.

mod npm;
mod pypi;

use anyhow::{Result, bail};

use crate::command::{self, root};
use crate::shared;

/// Runs the live tests of a protocol.
type Live = fn() -> Result<()>;

/// All protocols with published peers, and the page of a gateway, whose peer is a browser. tywrap has no
/// published package: its peer is Python with the packages whose values it converts.
const PROTOCOLS: [(&str, Live); 7] = [
    ("ahp", ahp),
    ("mcp", mcp),
    ("contextvm", contextvm),
    ("loro", loro),
    ("vscode", vscode),
    ("tywrap", tywrap),
    ("page", page),
];

pub(crate) fn run(name: Option<&str>) -> Result<()> {
    let Some(name) = name else {
        for (name, live) in PROTOCOLS {
            match unavailable(name) {
                None => live()?,
                Some(why) => println!("{name} is skipped: {why}"),
            }
        }
        return Ok(());
    };
    match PROTOCOLS.iter().find(|(known, _)| *known == name) {
        Some((_, live)) => live(),
        None => {
            let names = PROTOCOLS.map(|(name, _)| name).join(", ");
            bail!("{name} is no protocol; it is one of {names}")
        }
    }
}

/// The live tests that cannot run here, each with its reason.
pub(crate) fn skipped() -> Vec<String> {
    PROTOCOLS
        .iter()
        .filter_map(|(name, _)| Some(format!("live tests of {name}: {}", unavailable(name)?)))
        .collect()
}

/// Why a protocol's peers cannot run here; `None` if they can.
pub(crate) fn unavailable(name: &str) -> Option<String> {
    match name {
        "mcp" => npm::unavailable()
            .or_else(pypi::unavailable)
            .or_else(no_nats_server),
        "contextvm" | "vscode" => npm::unavailable(),
        "tywrap" => pypi::unavailable(),
        "loro" | "page" => npm::unavailable().or_else(no_browser),
        _ => None,
    }
}

/// The real client of the crates `ahp` and `ahp-ws` with this project's host, over all transports.
fn ahp() -> Result<()> {
    tests("interop-ahp", &["real_client", "protocol_errors", "fleet"])
}

/// Servers and clients from npm and PyPI, the inspector and the conformance package, through gateways.
fn mcp() -> Result<()> {
    install_mcp()?;
    let files = [
        "published_server",
        "both_eras",
        "own_limit",
        "conformance",
        "doors",
        "inspector",
        "limits",
    ];
    tests("interop-mcp", &files)
}

/// Installs the packages from npm and PyPI for both eras of MCP.
fn install_mcp() -> Result<()> {
    install("mcp")?;
    if let Some(why) = pypi::unavailable() {
        bail!("mcp: {why}");
    }
    let folder = root().join("interop/mcp");
    for era in ["2025", "2026"] {
        let requirements = folder.join(format!("peers/requirements-{era}.txt"));
        pypi::install(&requirements, &folder.join(format!("venv-{era}")))?;
    }
    Ok(())
}

/// Every client with every server of MCP.
pub(crate) fn mcp_long() -> Result<()> {
    install_mcp()?;
    tests("interop-mcp", &["long"])
}

/// The ContextVM SDK from npm in node with this project's client and server, over a relay.
fn contextvm() -> Result<()> {
    install("contextvm")?;
    tests("interop-contextvm", &["real_sdk"])
}

/// loro-extended's own Repo from npm against our server and our clients, and a browser with `loro-crdt`
/// against our server, over all four transports.
fn loro() -> Result<()> {
    if let Some(why) = no_browser() {
        bail!("loro: {why}");
    }
    install("loro")?;
    tests("interop-loro", &["real_repo", "real_browser"])
}

/// The tests of loro that take longer.
pub(crate) fn loro_long() -> Result<()> {
    install("loro")?;
    tests("interop-loro", &["long", "long_repo"])
}

/// VSCode's own RPCProtocol in node against our endpoint, over all transports, and on both sides of gateways; a
/// language server behind them.
fn vscode() -> Result<()> {
    install("vscode")?;
    let files = ["real_node", "gateways", "language_server"];
    tests("interop-vscode", &files)
}

/// The Python bridge with numpy and pyarrow, whose values it sends in the original's forms, and the bridge behind
/// gateways.
fn tywrap() -> Result<()> {
    if let Some(why) = pypi::unavailable() {
        bail!("tywrap: {why}");
    }
    let folder = root().join("interop/tywrap");
    pypi::install(&folder.join("requirements.txt"), &folder.join(".venv"))?;
    let python = folder.join(".venv/bin/python");
    let mut tests = shared::tests("breakbulk-tywrap", &["bridge"]);
    // Only the tests with this name; the others run with the system's Python.
    command::run(tests.arg("values").env("BREAKBULK_PYTHON", python))?;
    self::tests("interop-tywrap", &["gateways"])
}

/// The page of a gateway in a browser.
fn page() -> Result<()> {
    if let Some(why) = no_browser() {
        bail!("page: {why}");
    }
    install("page")?;
    tests("interop-page", &["real_page"])
}

/// Why no browser can be used here; `None` if one can.
fn no_browser() -> Option<String> {
    missing("chromium")
}

/// Why no NATS server can be started here; `None` if one can.
fn no_nats_server() -> Option<String> {
    missing("nats-server")
}

/// How to install a program that is missing; `None` if it is there. Its package has the same name.
fn missing(program: &str) -> Option<String> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path).any(|folder| folder.join(program).is_file());
    (!found).then(|| format!("there is no {program} in PATH; install the package {program}"))
}

/// Installs the npm packages that a protocol's live tests need.
pub(crate) fn install(name: &str) -> Result<()> {
    if let Some(why) = npm::unavailable() {
        bail!("{name}: {why}");
    }
    npm::install(&root().join("interop").join(name))
}

/// Builds the program, and runs these test files of a package with it.
fn tests(package: &str, files: &[&str]) -> Result<()> {
    let program = shared::program()?;
    command::run(shared::tests(package, files).env("BREAKBULK_BIN", program))
}
