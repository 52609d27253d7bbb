use super::*;

fn file() -> Vec<u8> {
    let mut out = Vec::new();
    write_section(&mut out, "breakbulk");
    write_interface(&mut out, "s-1 to 1", r#"{"session":"s-1"}"#);
    write_packet(
        &mut out,
        &Outgoing {
            interface: 0,
            micros: 1_700_000_000_123_456,
            flow: Some(Flow::Out),
            info: "whole m",
            dissector: "json",
            body: b"{}x",
            length: 5,
            comment: "{\"is\":\"frame\"}",
        },
    );
    out
}

fn read(bytes: &[u8]) -> (Vec<Block>, Option<String>) {
    let mut reader = BlockReader::new(bytes);
    let mut blocks = Vec::new();
    loop {
        match reader.next() {
            Ok(Some(block)) => blocks.push(block),
            Ok(None) => return (blocks, None),
            Err(damage) => return (blocks, Some(damage.to_string())),
        }
    }
}

#[test]
fn blocks_are_written_byte_for_byte() {
    let mut section = Vec::new();
    write_section(&mut section, "bb");
    let expected: &[u8] = b"\x0a\x0d\x0d\x0a\x28\0\0\0\x4d\x3c\x2b\x1a\x01\0\0\0\
        \xff\xff\xff\xff\xff\xff\xff\xff\x04\0\x02\0bb\0\0\0\0\0\0\x28\0\0\0";
    assert_eq!(section, expected);
    let mut packet = Vec::new();
    write_packet(
        &mut packet,
        &Outgoing {
            interface: 1,
            micros: 0x0001_0000_0002,
            flow: Some(Flow::In),
            info: "i",
            dissector: "json",
            body: b"abc",
            length: 9,
            comment: "c",
        },
    );
    let expected: &[u8] = b"\x06\0\0\0\x5c\0\0\0\x01\0\0\0\x01\0\0\0\x02\0\0\0\
        \x27\0\0\0\x2d\0\0\0\
        \0\x0c\0\x04json\0\x21\0\x0cbreakbulk\0\0\0\0\x24\0\x04i\0\0\0\0\0\0\0abc\0\
        \x01\0\x01\0c\0\0\0\x02\0\x04\0\x01\0\0\0\0\0\0\0\x5c\0\0\0";
    assert_eq!(packet, expected);
}

#[test]
fn what_is_written_is_read_and_what_is_cut_off_is_told() {
    let file = file();
    let (blocks, damage) = read(&file);
    assert_eq!(damage, None);
    let packet = Packet {
        interface: 0,
        micros: 1_700_000_000_123_456,
        flow: Some(Flow::Out),
        body: b"{}x".to_vec(),
        comment: "{\"is\":\"frame\"}".to_owned(),
    };
    let interface = r#"{"session":"s-1"}"#.to_owned();
    let expected = [
        Block::Section,
        Block::Interface(interface),
        Block::Packet(packet),
    ];
    assert_eq!(blocks, expected);
    // A file that ends anywhere is read up to its last whole block.
    for end in 0..file.len() {
        let (blocks, damage) = read(&file[..end]);
        assert!(blocks.len() < 3, "{end}");
        assert_eq!(blocks[..], expected[..blocks.len()], "{end}");
        let ends_between = end == 0 || damage.is_none();
        let expected = match end {
            0 => None,
            1..8 => Some("it is no pcapng file"),
            _ if ends_between => None,
            _ => Some("it ends within a record, at byte"),
        };
        let told = damage.unwrap_or_default();
        assert!(
            told.starts_with(expected.unwrap_or_default()),
            "{end}: {told}"
        );
    }
}

#[test]
fn the_other_byte_order_is_read() {
    let mut file = Vec::new();
    for word in [SECTION, 28, BYTE_ORDER, 0x0001_0000, u32::MAX, u32::MAX, 28] {
        file.extend_from_slice(&word.to_be_bytes());
    }
    // The tags are one end tag, and the options end with the block, without an end of their own.
    for word in [
        PACKET,
        48,
        7,
        1,
        2,
        8,
        8,
        0,
        0x6162_6364,
        0x0002_0004,
        1,
        48,
    ] {
        file.extend_from_slice(&word.to_be_bytes());
    }
    let packet = Packet {
        interface: 7,
        micros: 1 << 32 | 2,
        flow: Some(Flow::In),
        body: b"abcd".to_vec(),
        comment: String::new(),
    };
    assert_eq!(
        read(&file),
        (vec![Block::Section, Block::Packet(packet)], None)
    );
}

#[test]
fn what_makes_no_sense_is_told_with_its_place() {
    let good = file();
    let section = 0x30;
    assert_eq!(good[section..section + 4], INTERFACE.to_le_bytes());
    for (at, word, told) in [
        (0, 7u32, "it is no pcapng file"),
        (8, 7, "it is no pcapng file"),
        (
            4,
            3,
            "the record at byte 0 is damaged: its length cannot be",
        ),
        (
            section + 4,
            4,
            "the record at byte 48 is damaged: its length cannot be",
        ),
        (
            section + 4,
            0xffff_fff0,
            "the record at byte 48 is damaged: it is too long",
        ),
        (
            section + 4,
            0x0400_0000,
            "it ends within a record, at byte 48",
        ),
        (
            section + 4,
            12,
            "the record at byte 48 is damaged: its two lengths differ",
        ),
    ] {
        let mut bad = good.clone();
        bad.splice(at..at + 4, word.to_le_bytes());
        assert_eq!(read(&bad).1.as_deref(), Some(told), "{at} {word}");
    }
    for text in [&b"hello"[..], b"{\"jsonrpc\":\"2.0\"}", &[0; 100]] {
        assert_eq!(read(text).1.as_deref(), Some("it is no pcapng file"));
    }
}
