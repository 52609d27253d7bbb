//! The table of functions that a host can call, by module and name.

use std::collections::BTreeMap;
use std::fmt;

use super::{Arguments, Handler, Outcome, raise};

type Function = Box<dyn Fn(&Arguments<'_>) -> Outcome + Send + Sync>;

/// A table of functions. A host can call only these.
#[derive(Default)]
pub struct Functions {
    modules: BTreeMap<String, BTreeMap<String, Function>>,
}

impl Functions {
    /// An empty table.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a function; of two with the same name the last is used.
    pub fn with(
        mut self,
        module: impl Into<String>,
        function: impl Into<String>,
        run: impl Fn(&Arguments<'_>) -> Outcome + Send + Sync + 'static,
    ) -> Self {
        let functions = self.modules.entry(module.into()).or_default();
        functions.insert(function.into(), Box::new(run));
        self
    }
}

impl Handler for Functions {
    async fn call(&self, module: &str, function: &str, arguments: &Arguments<'_>) -> Outcome {
        let Some(functions) = self.modules.get(module) else {
            return Err(raise(
                "ModuleNotFoundError",
                format!("no module named {module:?}"),
            ));
        };
        let Some(run) = functions.get(function) else {
            return Err(raise(
                "AttributeError",
                format!("module {module:?} has no function {function:?}"),
            ));
        };
        run(arguments)
    }
}

impl fmt::Debug for Functions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = self
            .modules
            .iter()
            .map(|(module, functions)| (module, functions.keys()));
        f.debug_map().entries(names).finish()
    }
}
