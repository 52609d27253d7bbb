//! Functions by the names that a host calls them.

use std::collections::BTreeMap;
use std::fmt;

use super::{Arguments, Handler, Outcome, raise};

type Function = Box<dyn Fn(&Arguments<'_>) -> Outcome + Send + Sync>;

/// A table of functions. It is also the list of what may be called: there is no way around it.
#[derive(Default)]
pub struct Functions {
    modules: BTreeMap<String, BTreeMap<String, Function>>,
}

impl Functions {
    /// An empty table.
    pub fn new() -> Self {
        Self::default()
    }

    /// The same with another function; of two with one name the last counts.
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
