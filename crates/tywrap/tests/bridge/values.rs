//! Values that JSON does not have, in the form that the original gives them: `vectors/tywrap/values.json`.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

use serde_json::{Value, json};

use super::python_runs::{in_python, interpreter};
use super::runs::{End, Input};

fn cases(with_packages: bool) -> Vec<Value> {
    let path = "/../../vectors/tywrap/values.json";
    let path = format!("{}{path}", env!("CARGO_MANIFEST_DIR"));
    let mut file: Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    let Value::Array(cases) = file["cases"].take() else {
        panic!("no cases")
    };
    let wanted = |case: &Value| case.get("needs").is_some() == with_packages;
    cases.into_iter().filter(wanted).collect()
}

/// Runs one bridge with these lines as its input, and returns its lines.
fn answers(lines: &[&str], env: &Value) -> Vec<String> {
    let variable =
        |(name, value): (&String, &Value)| (name.clone(), value.as_str().unwrap().into());
    let run = in_python(&Input {
        env: env
            .as_object()
            .into_iter()
            .flatten()
            .map(variable)
            .collect(),
        stdin: format!("{}\n", lines.join("\n")).into(),
        ..Input::default()
    });
    assert_eq!(run.end, End::Served, "{}", run.stderr);
    run.lines
}

/// Runs one bridge for all cases with the same environment.
fn check_all(cases: &[Value]) {
    let mut by_environment: BTreeMap<String, Vec<&Value>> = BTreeMap::new();
    for case in cases {
        let env = case["env"].to_string();
        by_environment.entry(env).or_default().push(case);
    }
    for (env, cases) in by_environment {
        let lines: Vec<_> = cases
            .iter()
            .map(|case| case["stdin"].as_str().unwrap())
            .collect();
        let found = answers(&lines, &cases[0]["env"]);
        assert_eq!(found.len(), cases.len(), "{env}");
        cases
            .iter()
            .zip(&found)
            .for_each(|(case, line)| check(case, line));
    }
}

fn check(case: &Value, line: &str) {
    let name = case["name"].as_str().unwrap();
    match (case["stdout"].as_str(), case["error"].as_str()) {
        (Some(expected), None) => assert_eq!(line, expected, "{name}"),
        (None, Some(kind)) => {
            let message: Value = serde_json::from_str(line).unwrap();
            assert_eq!(message["id"], 1, "{name}");
            assert_eq!(message["error"]["type"], kind, "{name}: {message}");
        }
        _ => panic!("{name}: neither a line nor an error"),
    }
}

// TYWRAP-14
#[test]
fn values_have_the_forms_of_the_original() {
    check_all(&cases(false));
}

// TYWRAP-14
#[test]
#[ignore = "needs numpy and pyarrow: cargo xtask interop tywrap installs them"]
fn values_of_packages_have_the_forms_of_the_original() {
    let cases = cases(true);
    let needs = cases.iter().filter_map(|case| case["needs"].as_array());
    let needs: BTreeSet<_> = needs.flatten().filter_map(Value::as_str).collect();
    needs.into_iter().for_each(installed);
    check_all(&cases);
    println!("{} cases with numpy", cases.len());
}

// TYWRAP-14
#[test]
#[ignore = "needs numpy and pyarrow: cargo xtask interop tywrap installs them"]
fn arrays_go_as_arrow_where_it_is_installed() {
    installed("pyarrow");
    let eval = |code: &str| {
        let params = json!({"module": "builtins", "functionName": "eval", "args": [code]});
        json!({"method": "call", "params": params, "id": 1, "protocol": "tywrap/1"}).to_string()
    };
    let code = "__import__('numpy').array([[1, 2], [3, 4]], dtype='int32')";
    let sent: Value = serde_json::from_str(&answers(&[&eval(code)], &Value::Null)[0]).unwrap();
    let mut array = sent["result"].clone();
    let table = array["b64"].take();
    let expected = json!({
        "__tywrap__": "ndarray", "codecVersion": 1, "encoding": "arrow", "b64": null,
        "shape": [2, 2], "dtype": "int32",
    });
    assert_eq!(array, expected);
    let code = format!(
        "__import__('pyarrow').ipc.open_stream(__import__('base64').b64decode({table})).read_all().to_pydict()"
    );
    let read = answers(&[&eval(&code)], &Value::Null);
    let expected = r#"{"id": 1, "protocol": "tywrap/1", "result": {"value": [1, 2, 3, 4]}}"#;
    assert_eq!(read, [expected]);
    let meta = r#"{"id":1,"protocol":"tywrap/1","method":"meta"}"#;
    let meta: Value = serde_json::from_str(&answers(&[meta], &Value::Null)[0]).unwrap();
    assert_eq!(meta["result"]["arrowAvailable"], true);
}

/// Fails with what to install if the interpreter lacks a package.
fn installed(package: &str) {
    let imported = Command::new(interpreter())
        .args(["-c", &format!("import {package}")])
        .status()
        .unwrap();
    let why = format!(
        "no {package}; run cargo xtask interop tywrap, or name a Python that has it in BREAKBULK_PYTHON"
    );
    assert!(imported.success(), "{why}");
}
