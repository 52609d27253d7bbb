//! The oracles: sizes and messages computed from the formats' descriptions, independently of the code
//! under test.

use std::collections::BTreeMap;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

fn json(frame: &[u8]) -> Value {
    serde_json::from_slice(frame).unwrap()
}

pub(crate) fn join_ahp(frames: &[Vec<u8>]) -> Vec<u8> {
    let mut pieces = BTreeMap::new();
    for frame in frames {
        let value = json(frame);
        if value["method"] != "ahp/messageSegment" {
            assert_eq!(frames.len(), 1);
            return frame.clone();
        }
        let params = &value["params"];
        assert_eq!(params["total"], frames.len());
        pieces.insert(
            params["index"].as_u64().unwrap(),
            STANDARD.decode(params["data"].as_str().unwrap()).unwrap(),
        );
    }
    assert_eq!(pieces.len(), frames.len());
    pieces.into_values().flatten().collect()
}

pub(crate) fn join_tywrap(frames: &[Vec<u8>]) -> Vec<u8> {
    let mut pieces = BTreeMap::new();
    let mut total = 0;
    for frame in frames {
        let value = json(frame);
        if value.get("__tywrap_frame__").is_none() {
            assert_eq!(frames.len(), 1);
            return frame.clone();
        }
        assert_eq!(value["total"], frames.len());
        total = value["totalBytes"].as_u64().unwrap();
        pieces.insert(
            value["seq"].as_u64().unwrap(),
            value["data"].as_str().unwrap().to_owned(),
        );
    }
    let message = pieces.into_values().collect::<String>().into_bytes();
    assert_eq!(message.len() as u64, total);
    message
}

pub(crate) fn join_cep22(frames: &[Vec<u8>]) -> Vec<u8> {
    let mut pieces = BTreeMap::new();
    let mut start = Value::Null;
    for frame in frames {
        let value = json(frame);
        let cvm = &value["params"]["cvm"];
        let progress = value["params"]["progress"].as_u64();
        match cvm["frameType"].as_str() {
            None => {
                assert_eq!(frames.len(), 1);
                return frame.clone();
            }
            Some("start") => start = cvm.clone(),
            Some("chunk") => {
                pieces.insert(progress.unwrap(), cvm["data"].as_str().unwrap().to_owned());
            }
            Some("end") => assert_eq!(progress.unwrap(), pieces.last_key_value().unwrap().0 + 1),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(start["totalChunks"], pieces.len());
    let message = pieces.into_values().collect::<String>().into_bytes();
    assert_eq!(start["totalBytes"], message.len());
    use sha2::Digest;
    let hex: String = sha2::Sha256::digest(&message)
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    assert_eq!(start["digest"], format!("sha256:{hex}"));
    message
}

pub(crate) fn join_loro(frames: &[Vec<u8>]) -> Vec<u8> {
    let number = |bytes: &[u8]| u32::from_be_bytes(bytes.try_into().unwrap());
    let mut pieces = BTreeMap::new();
    let mut header = None;
    for frame in frames {
        match frame[0] {
            0 => {
                assert_eq!(frames.len(), 1);
                return frame[1..].to_vec();
            }
            1 => {
                header = Some((
                    frame[1..9].to_vec(),
                    number(&frame[9..13]),
                    number(&frame[13..17]),
                ))
            }
            2 => {
                assert_eq!(
                    header.as_ref().unwrap().0,
                    frame[1..9],
                    "the header comes first"
                );
                pieces.insert(number(&frame[9..13]), frame[13..].to_vec());
            }
            other => panic!("{other}"),
        }
    }
    let (_, count, size) = header.unwrap();
    assert_eq!(count as usize, pieces.len());
    let message: Vec<u8> = pieces.into_values().flatten().collect();
    assert_eq!(message.len(), size as usize);
    message
}

pub(crate) fn line_len(frame: &[u8]) -> usize {
    assert!(
        !frame.contains(&b'\n') && !frame.contains(&b'\r'),
        "a line is one line"
    );
    frame.len()
}

pub(crate) fn ascii_line_len(frame: &[u8]) -> usize {
    // Only frames must be ASCII: a message in one line is sent as the caller wrote it.
    assert!(frame.is_ascii() || !frame.starts_with(br#"{"__tywrap_frame__"#));
    line_len(frame)
}

pub(crate) fn tywrap_data(frame: &[u8]) -> usize {
    json(frame)["data"]
        .as_str()
        .filter(|_| frame.starts_with(br#"{"__tywrap_frame__"#))
        .map_or(frame.len(), str::len)
}

pub(crate) fn cep22_data(frame: &[u8]) -> usize {
    match json(frame)["params"]["cvm"]["frameType"].as_str() {
        None => frame.len(),
        Some("chunk") => json(frame)["params"]["cvm"]["data"].as_str().unwrap().len(),
        // The envelope does not count.
        Some(_) => 0,
    }
}

pub(crate) fn loro_data(frame: &[u8]) -> usize {
    match frame[0] {
        0 => frame.len() - 1,
        1 => 0,
        _ => frame.len() - 13,
    }
}

fn event_text(kind: u32, tags: &[&[&str]], content: &str) -> String {
    let hex = "f".repeat(64);
    let event = serde_json::json!({
        "id": hex, "pubkey": hex, "created_at": 1_700_000_000u32, "kind": kind, "tags": tags, "content": content,
        "sig": hex.repeat(2),
    });
    serde_json::to_string(&event).unwrap()
}

fn inner_event(frame: &[u8]) -> String {
    let hex = "e".repeat(64);
    let tags: [&[&str]; 5] = [
        &["p", &hex],
        &["e", &hex],
        &["support_encryption"],
        &["support_encryption_ephemeral"],
        &["support_oversized_transfer"],
    ];
    event_text(25910, &tags, std::str::from_utf8(frame).unwrap())
}

pub(crate) fn event_len(frame: &[u8]) -> usize {
    inner_event(frame).len()
}

/// NIP-44: padded as its specification says, with 1 + 32 + 2 + 32 bytes around it, in base64.
pub(crate) fn gift_wrap_len(frame: &[u8]) -> usize {
    let text = inner_event(frame).len();
    assert!(text <= 65_535, "NIP-44 takes no longer text");
    let padded = if text <= 32 {
        32
    } else {
        let next_power = 1usize << ((text - 1).ilog2() + 1);
        let chunk = if next_power <= 256 {
            32
        } else {
            next_power / 8
        };
        chunk * ((text - 1) / chunk + 1)
    };
    let sealed = STANDARD.encode(vec![0; 1 + 32 + 2 + padded + 32]);
    event_text(21059, &[&["p", &"e".repeat(64)]], &sealed).len()
}
