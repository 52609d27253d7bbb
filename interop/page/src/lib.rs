//! Runs a headless Chromium beside the test, with one page at a time.

use std::path::Path;

use anyhow::{Context, Result, bail};
use breakbulk_testkit::node::{Script, node};
use serde_json::{Value, json};

/// A browser with a page.
pub struct Browser(Script);

impl Browser {
    /// Starts the browser, without a page.
    pub async fn start() -> Result<Self> {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
        let command = node(folder, "browser.mjs", "playwright-core")?;
        let mut script = Script::start(command)?;
        let started = script.hear("browser", |said| said["browser"].is_string());
        println!("{}", started.await?);
        Ok(Self(script))
    }

    /// Opens another page, in a browser context of its own; `browser.mjs` describes the options.
    pub async fn open(&mut self, options: Value) -> Result<()> {
        self.run(json!({"open": options})).await.map(drop)
    }

    /// Waits until this many elements that match the selector are visible.
    pub async fn wait(&mut self, selector: &str, count: usize) -> Result<()> {
        let command = json!({"wait": {"for": selector, "count": count}});
        self.run(command).await.map(drop)
    }

    /// Waits until an element that matches the selector is visible.
    pub async fn wait_for_any(&mut self, selector: &str) -> Result<()> {
        let command = json!({"wait": {"for": selector}});
        self.run(command).await.map(drop)
    }

    /// The texts of all elements that fit the selector.
    pub async fn texts(&mut self, selector: &str) -> Result<Vec<String>> {
        let texts = self.run(json!({"texts": selector})).await?;
        Ok(serde_json::from_value(texts)?)
    }

    /// A property of the first element that matches the selector.
    pub async fn property(&mut self, selector: &str, name: &str) -> Result<Value> {
        let command = json!({"property": {"of": selector, "name": name}});
        self.run(command).await
    }

    /// Clicks on the first element that matches the selector.
    pub async fn click(&mut self, selector: &str) -> Result<()> {
        self.run(json!({"click": selector})).await.map(drop)
    }

    /// Fills a text into an input field.
    pub async fn fill(&mut self, selector: &str, text: &str) -> Result<()> {
        let command = json!({"fill": {"into": selector, "text": text}});
        self.run(command).await.map(drop)
    }

    /// Presses a key.
    pub async fn press(&mut self, key: &str) -> Result<()> {
        self.run(json!({"press": key})).await.map(drop)
    }

    /// Saves a screenshot: of the visible part of the page, or of all of it.
    pub async fn screenshot(&mut self, path: &Path, whole: bool) -> Result<()> {
        let command = json!({"screenshot": {"path": path, "whole": whole}});
        self.run(command).await?;
        println!("a screenshot is kept as {}", path.display());
        Ok(())
    }

    /// Ends the browser. Fails if a page had an uncaught error, or sent a request to another host.
    pub async fn stop(self) -> Result<()> {
        let uncaught: Vec<Value> = self.0.said().cloned().collect();
        self.0.stop().await?;
        match uncaught.is_empty() {
            true => Ok(()),
            false => bail!("uncaught: {uncaught:?}"),
        }
    }

    async fn run(&mut self, command: Value) -> Result<Value> {
        self.0.tell(&command).await?;
        let is_answer = |said: &Value| said.get("ok").is_some() || said.get("error").is_some();
        let answer = self.0.hear("answer", is_answer).await;
        let mut answer = answer.with_context(|| command.to_string())?;
        match answer.get("error") {
            Some(error) => bail!("{command}: {error}"),
            None => Ok(answer["ok"].take()),
        }
    }
}
