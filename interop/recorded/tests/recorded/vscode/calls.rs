//! Reads the descriptions of calls in the recordings.

use breakbulk_message::vscode::{
    Args, Body, EncodeError, Passed, Request, RpcId, RpcMessage, StockTransformer, UriTransformer,
    encode,
};
use serde_json::Value as Json;

use super::values::{is_function, ordered_arg, to_passed};

pub(super) struct Call {
    pub(super) rpc_id: usize,
    pub(super) method: String,
    pub(super) args: Vec<Passed>,
    pub(super) cancellation: bool,
    /// Whether an argument is a function: JSON makes it `null`, and a mixed list of arguments cannot have it.
    pub(super) has_function: bool,
}

impl Call {
    /// `None` if the description is not of a form that gives the data.
    pub(super) fn read(call: &Json, model: Option<&[Passed]>) -> Option<Self> {
        let mut described = match &call["args"] {
            Json::Array(args) => args.clone(),
            Json::String(text) => repeated(text)?,
            _ => return None,
        };
        let cancellation = described
            .last()
            .is_some_and(|last| last.get("@cancellationToken").is_some());
        if cancellation {
            described.pop();
        }
        let has_function = described.iter().any(is_function);
        let args = described
            .iter()
            .map(to_passed)
            .collect::<Option<Vec<_>>>()?;
        let models = model.unwrap_or_default().iter().map(Some);
        let args = args.into_iter().zip(models.chain(std::iter::repeat(None)));
        Some(Self {
            rpc_id: call["rpcId"].as_u64()?.try_into().ok()?,
            method: abbreviated(call["method"].as_str()?)?,
            args: args.map(|(arg, model)| ordered_arg(arg, model)).collect(),
            cancellation,
            has_function,
        })
    }

    pub(super) fn build(
        self,
        req: u32,
        uris: Option<&dyn UriTransformer>,
    ) -> Result<Option<Vec<u8>>, EncodeError> {
        let args = Args::write(self.args, uris)?;
        if self.has_function && matches!(args, Args::Mixed(_)) {
            return Ok(None);
        }
        let request = Request {
            rpc_id: RpcId::new(self.rpc_id)?,
            method: self.method.into(),
            args,
            cancellation: self.cancellation,
        };
        let body = Body::Request(request);
        let mut bytes = Vec::new();
        encode(&RpcMessage { req, body }, &mut bytes)?;
        Ok(Some(bytes))
    }
}

/// `255 x undefined`
pub(super) fn repeated(text: &str) -> Option<Vec<Json>> {
    let (count, item) = text.split_once(" x ")?;
    let item = match item {
        "undefined" => serde_json::json!({"@undefined": true}),
        json => serde_json::from_str(json).ok()?,
    };
    Some(vec![item; count.parse().ok()?])
}

/// `$mmm...(255 bytes)`: the last character goes on to that length. Other names are as they are.
pub(super) fn abbreviated(method: &str) -> Option<String> {
    let Some((front, rest)) = method.split_once("...(") else {
        return Some(method.to_owned());
    };
    let len: usize = rest.strip_suffix(" bytes)")?.parse().ok()?;
    let last = front.chars().last()?;
    let missing = len.checked_sub(front.len())?;
    let whole = missing % last.len_utf8() == 0;
    whole.then(|| front.to_owned() + &last.to_string().repeat(missing / last.len_utf8()))
}

/// The transformers that may have been used, or none: a recording does not say which.
pub(super) fn transformers(case: &Json) -> Vec<Option<StockTransformer>> {
    let mut authorities = vec![String::new()];
    collect_authorities(case, &mut authorities);
    let stock = authorities.into_iter().rev();
    let stock = stock.map(|authority| Some(StockTransformer { authority }));
    std::iter::once(None).chain(stock).collect()
}

pub(super) fn collect_authorities(value: &Json, found: &mut Vec<String>) {
    if value["scheme"] == "vscode-remote"
        && let Some(authority) = value["authority"].as_str()
        && !found.iter().any(|known| known == authority)
    {
        found.push(authority.to_owned());
    }
    match value {
        Json::Object(entries) => entries
            .values()
            .for_each(|value| collect_authorities(value, found)),
        Json::Array(items) => items
            .iter()
            .for_each(|item| collect_authorities(item, found)),
        _ => {}
    }
}
