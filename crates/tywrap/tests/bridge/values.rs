//! Values that JSON does not have, and what the original makes of them: `vectors/tywrap/values.json`.

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

/// The lines of the bridge for this line of its host.
fn answer(line: &str, env: &Value) -> Vec<String> {
    let variable =
        |(name, value): (&String, &Value)| (name.clone(), value.as_str().unwrap().into());
    let run = in_python(&Input {
        env: env
            .as_object()
            .into_iter()
            .flatten()
            .map(variable)
            .collect(),
        stdin: format!("{line}\n").into(),
        ..Input::default()
    });
    assert_eq!(run.end, End::Served, "{}", run.stderr);
    run.lines
}

fn check(case: &Value) {
    let name = case["name"].as_str().unwrap();
    let lines = answer(case["stdin"].as_str().unwrap(), &case["env"]);
    match (case["stdout"].as_str(), case["error"].as_str()) {
        (Some(line), None) => assert_eq!(lines, [line], "{name}"),
        (None, Some(kind)) => {
            let message: Value = serde_json::from_str(&lines[0]).unwrap();
            assert_eq!((&message["id"], lines.len()), (&json!(1), 1), "{name}");
            assert_eq!(message["error"]["type"], kind, "{name}: {message}");
        }
        _ => panic!("{name}: neither a line nor an error"),
    }
}

// TYWRAP-14
#[test]
fn values_have_the_forms_of_the_original() {
    cases(false).iter().for_each(check);
}

// TYWRAP-14
#[test]
#[ignore = "needs numpy and pyarrow: cargo xtask interop tywrap installs them"]
fn values_of_packages_have_the_forms_of_the_original() {
    let cases = cases(true);
    for case in &cases {
        let needs = case["needs"].as_array().into_iter().flatten();
        needs.for_each(|package| installed(package.as_str().unwrap()));
        check(case);
    }
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
    let sent: Value = serde_json::from_str(&answer(&eval(code), &Value::Null)[0]).unwrap();
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
    let read = answer(&eval(&code), &Value::Null);
    let expected = r#"{"id": 1, "protocol": "tywrap/1", "result": {"value": [1, 2, 3, 4]}}"#;
    assert_eq!(read, [expected]);
    let meta = r#"{"id":1,"protocol":"tywrap/1","method":"meta"}"#;
    let meta: Value = serde_json::from_str(&answer(meta, &Value::Null)[0]).unwrap();
    assert_eq!(meta["result"]["arrowAvailable"], true);
}

/// Fails with what to do where the interpreter lacks a package.
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
