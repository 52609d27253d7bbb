//! The blocks of a pcapng file (draft-ietf-opsawg-pcapng) that records are made of: section headers,
//! interface descriptions and packets. Files are written in little-endian and read in both orders.

use std::io::{self, Read};

/// `LINKTYPE_WIRESHARK_UPPER_PDU`: a packet begins with tags that say how the rest is to be shown.
pub(super) const LINK_TYPE: u16 = 252;

const SECTION: u32 = 0x0a0d_0d0a;
const INTERFACE: u32 = 1;
const PACKET: u32 = 6;
const BYTE_ORDER: u32 = 0x1a2b_3c4d;

const OPTION_END: u16 = 0;
const OPTION_COMMENT: u16 = 1;
const OPTION_NAME: u16 = 2;
const OPTION_DESCRIPTION: u16 = 3;
const OPTION_APPLICATION: u16 = 4;
const OPTION_FLAGS: u16 = 2;
const OPTION_RESOLUTION: u16 = 9;

/// Times are in microseconds, which is also what a reader assumes without this option.
const MICROSECONDS: u8 = 6;

/// The longest text of an option that is written: its length has 16 bits.
const OPTION_MAX: usize = 60_000;

/// The tags of a packet of [`LINK_TYPE`], which are big-endian.
const TAG_END: u16 = 0;
const TAG_DISSECTOR: u16 = 12;
const TAG_PROTOCOL: u16 = 33;
const TAG_INFO: u16 = 36;

/// The largest block that is read; a longer one is taken for damage.
const BLOCK_MAX: usize = 80 << 20;

/// The most interfaces of a section that are read.
const INTERFACES_MAX: usize = 1 << 16;

/// Which way a packet went, seen from the program that recorded it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Flow {
    /// It came in.
    In,
    /// It went out.
    Out,
}

/// Begins a section.
pub(super) fn write_section(out: &mut Vec<u8>, application: &str) {
    block(out, SECTION, |out| {
        out.extend_from_slice(&BYTE_ORDER.to_le_bytes());
        out.extend_from_slice(&1u16.to_le_bytes());
        out.extend_from_slice(&0u16.to_le_bytes());
        // The length of the section is not known.
        out.extend_from_slice(&u64::MAX.to_le_bytes());
        option(out, OPTION_APPLICATION, application.as_bytes());
        option(out, OPTION_END, b"");
    });
}

/// Describes the next interface of the section.
pub(super) fn write_interface(out: &mut Vec<u8>, name: &str, description: &str) {
    block(out, INTERFACE, |out| {
        out.extend_from_slice(&LINK_TYPE.to_le_bytes());
        out.extend_from_slice(&0u16.to_le_bytes());
        // No limit for the bytes of a packet.
        out.extend_from_slice(&0u32.to_le_bytes());
        option(out, OPTION_NAME, name.as_bytes());
        option(out, OPTION_DESCRIPTION, description.as_bytes());
        option(out, OPTION_RESOLUTION, &[MICROSECONDS]);
        option(out, OPTION_END, b"");
    });
}

/// A packet to write.
pub(super) struct Outgoing<'a> {
    /// The number of its interface in the section.
    pub(super) interface: u32,
    /// Its time, in microseconds since 1970.
    pub(super) micros: u64,
    pub(super) flow: Option<Flow>,
    /// What Wireshark's column "Info" shows.
    pub(super) info: &'a str,
    /// The name of the dissector for the body.
    pub(super) dissector: &'a str,
    /// The bytes that are kept.
    pub(super) body: &'a [u8],
    /// How many bytes there were.
    pub(super) length: u64,
    pub(super) comment: &'a str,
}

/// Writes a packet.
pub(super) fn write_packet(out: &mut Vec<u8>, packet: &Outgoing<'_>) {
    let mut tags = Vec::with_capacity(96);
    tag(&mut tags, TAG_DISSECTOR, packet.dissector.as_bytes());
    tag(&mut tags, TAG_PROTOCOL, b"breakbulk");
    tag(&mut tags, TAG_INFO, packet.info.as_bytes());
    tag(&mut tags, TAG_END, b"");
    let captured = tags.len() + packet.body.len();
    let original = tags.len() as u64 + packet.length.max(packet.body.len() as u64);
    block(out, PACKET, |out| {
        let words = [
            packet.interface,
            (packet.micros >> 32) as u32,
            packet.micros as u32,
            captured as u32,
            u32::try_from(original).unwrap_or(u32::MAX),
        ];
        for word in words {
            out.extend_from_slice(&word.to_le_bytes());
        }
        out.extend_from_slice(&tags);
        out.extend_from_slice(packet.body);
        pad(out, captured);
        option(out, OPTION_COMMENT, packet.comment.as_bytes());
        if let Some(flow) = packet.flow {
            let flags: u32 = match flow {
                Flow::In => 1,
                Flow::Out => 2,
            };
            option(out, OPTION_FLAGS, &flags.to_le_bytes());
        }
        option(out, OPTION_END, b"");
    });
}

/// A block: its type, its length before and behind, and what `body` writes between.
fn block(out: &mut Vec<u8>, kind: u32, body: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    out.extend_from_slice(&kind.to_le_bytes());
    out.extend_from_slice(&[0; 4]);
    body(out);
    let length = (out.len() - start + 4) as u32;
    out[start + 4..start + 8].copy_from_slice(&length.to_le_bytes());
    out.extend_from_slice(&length.to_le_bytes());
}

fn option(out: &mut Vec<u8>, code: u16, value: &[u8]) {
    let value = &value[..value.len().min(OPTION_MAX)];
    out.extend_from_slice(&code.to_le_bytes());
    out.extend_from_slice(&(value.len() as u16).to_le_bytes());
    out.extend_from_slice(value);
    pad(out, value.len());
}

fn tag(out: &mut Vec<u8>, code: u16, value: &[u8]) {
    let padded = value.len().div_ceil(4) * 4;
    out.extend_from_slice(&code.to_be_bytes());
    out.extend_from_slice(&(padded as u16).to_be_bytes());
    out.extend_from_slice(value);
    pad(out, value.len());
}

/// Zeros up to a multiple of four bytes.
fn pad(out: &mut Vec<u8>, length: usize) {
    out.resize(out.len() + length.div_ceil(4) * 4 - length, 0);
}

/// What a reader finds.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Block {
    /// A new section begins: the interfaces of the last one are over.
    Section,
    /// The next interface, with its description.
    Interface(String),
    /// A packet.
    Packet(Packet),
    /// A block of another kind.
    Other,
}

/// A packet that was read.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Packet {
    pub(super) interface: u32,
    pub(super) micros: u64,
    pub(super) flow: Option<Flow>,
    /// What was kept of its bytes, without the tags.
    pub(super) body: Vec<u8>,
    pub(super) comment: String,
}

/// Why a file cannot be read further.
#[derive(Debug, thiserror::Error)]
pub enum Damage {
    /// It cannot be read at all.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// It is no pcapng file.
    #[error("it is no pcapng file")]
    Other,
    /// It ends within a block, as after a crash or on a full disk.
    #[error("it ends within a record, at byte {at}")]
    Cut {
        /// Where that block begins.
        at: u64,
    },
    /// A block makes no sense.
    #[error("the record at byte {at} is damaged: {what}")]
    Block {
        /// Where it begins.
        at: u64,
        /// What is wrong.
        what: &'static str,
    },
}

/// Reads blocks. Its memory is bounded by the largest block, and grows with what is there instead of with
/// what is declared.
pub(super) struct BlockReader<R> {
    from: R,
    /// Where the next block begins.
    at: u64,
    big_endian: bool,
    /// Interfaces of this section so far.
    interfaces: usize,
    body: Vec<u8>,
}

impl<R: Read> BlockReader<R> {
    pub(super) fn new(from: R) -> Self {
        Self {
            from,
            at: 0,
            big_endian: false,
            interfaces: 0,
            body: Vec::new(),
        }
    }

    /// The next block; `None` at the end.
    pub(super) fn next(&mut self) -> Result<Option<Block>, Damage> {
        let at = self.at;
        let damaged = |what| Damage::Block { at, what };
        if !self.fill(8)? {
            return match self.body.is_empty() {
                true => Ok(None),
                false if at == 0 => Err(Damage::Other),
                false => Err(Damage::Cut { at }),
            };
        }
        let head: [u8; 8] = array(&self.body, 0).ok_or(Damage::Other)?;
        let is_section = head[..4] == SECTION.to_le_bytes();
        if at == 0 && !is_section {
            return Err(Damage::Other);
        }
        let mut before = 8;
        if is_section {
            // Its length can be read only once the byte order is known.
            if !self.fill(4)? {
                return Err(Damage::Cut { at });
            }
            before = 12;
            self.big_endian = match array(&self.body, 0) {
                Some(order) if u32::from_be_bytes(order) == BYTE_ORDER => true,
                Some(order) if u32::from_le_bytes(order) == BYTE_ORDER => false,
                _ if at == 0 => return Err(Damage::Other),
                _ => return Err(damaged("its byte order is unknown")),
            };
            self.interfaces = 0;
        }
        let kind = self.word(&head, 0).unwrap_or_default();
        let length = self.word(&head, 4).unwrap_or_default() as usize;
        if !length.is_multiple_of(4) || length < before + 4 {
            return Err(damaged("its length cannot be"));
        }
        if length > BLOCK_MAX {
            return Err(damaged("it is too long"));
        }
        if !self.fill(length - before)? {
            return Err(Damage::Cut { at });
        }
        let end = self.body.len() - 4;
        if self.word(&self.body, end) != Some(length as u32) {
            return Err(damaged("its two lengths differ"));
        }
        self.at += length as u64;
        let body = &self.body[..end];
        let block = match kind {
            SECTION => Block::Section,
            INTERFACE => {
                self.interfaces += 1;
                if self.interfaces > INTERFACES_MAX {
                    return Err(damaged("it has too many interfaces"));
                }
                Block::Interface(self.interface(body))
            }
            PACKET => Block::Packet(self.packet(body).ok_or(damaged("it is too short"))?),
            _ => Block::Other,
        };
        Ok(Some(block))
    }

    /// Reads so many bytes in the place of the last ones; false if the file ends before.
    fn fill(&mut self, length: usize) -> io::Result<bool> {
        self.body.clear();
        self.body.shrink_to(1 << 20);
        let read = (&mut self.from)
            .take(length as u64)
            .read_to_end(&mut self.body)?;
        Ok(read == length)
    }

    fn interface(&self, body: &[u8]) -> String {
        let mut description = String::new();
        self.options(body.get(8..).unwrap_or_default(), |code, value| {
            if code == OPTION_DESCRIPTION {
                description = String::from_utf8_lossy(value).into_owned();
            }
        });
        description
    }

    fn packet(&self, body: &[u8]) -> Option<Packet> {
        let word = |at| self.word(body, at);
        let captured = word(12)? as usize;
        let end = 20usize.checked_add(captured)?;
        let data = body.get(20..end)?;
        let mut packet = Packet {
            interface: word(0)?,
            micros: u64::from(word(4)?) << 32 | u64::from(word(8)?),
            flow: None,
            body: untagged(data).to_vec(),
            comment: String::new(),
        };
        let options = body.get(end.next_multiple_of(4)..).unwrap_or_default();
        self.options(options, |code, value| match code {
            OPTION_COMMENT => packet.comment = String::from_utf8_lossy(value).into_owned(),
            OPTION_FLAGS => {
                packet.flow = match self.word(value, 0).unwrap_or_default() & 3 {
                    1 => Some(Flow::In),
                    2 => Some(Flow::Out),
                    _ => None,
                };
            }
            _ => {}
        });
        Some(packet)
    }

    fn options(&self, mut rest: &[u8], mut each: impl FnMut(u16, &[u8])) {
        while let (Some(code), Some(length)) = (self.half(rest, 0), self.half(rest, 2)) {
            let length = usize::from(length);
            let Some(value) = rest.get(4..4 + length).filter(|_| code != OPTION_END) else {
                return;
            };
            each(code, value);
            rest = rest
                .get(4 + length.next_multiple_of(4)..)
                .unwrap_or_default();
        }
    }

    fn word(&self, from: &[u8], at: usize) -> Option<u32> {
        let bytes = array(from, at)?;
        Some(match self.big_endian {
            true => u32::from_be_bytes(bytes),
            false => u32::from_le_bytes(bytes),
        })
    }

    fn half(&self, from: &[u8], at: usize) -> Option<u16> {
        let bytes = array(from, at)?;
        Some(match self.big_endian {
            true => u16::from_be_bytes(bytes),
            false => u16::from_le_bytes(bytes),
        })
    }
}

/// What follows the tags of a packet.
fn untagged(mut data: &[u8]) -> &[u8] {
    while let (Some(code), Some(length)) = (array(data, 0), array(data, 2)) {
        let length = usize::from(u16::from_be_bytes(length));
        data = data.get(4 + length..).unwrap_or_default();
        if u16::from_be_bytes(code) == TAG_END {
            break;
        }
    }
    data
}

fn array<const N: usize>(from: &[u8], at: usize) -> Option<[u8; N]> {
    from.get(at..at.checked_add(N)?)?.try_into().ok()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
