//! AHP's segments for any text, used between two gateways: a program behind one of them may send lines that
//! are not JSON-RPC, and neither gateway reads them.

use breakbulk_link::{
    Assembled, Carries, Fault, FaultKind, Frame, Inbound, Key, Part, Piece, Pieces, Plan,
    PlanOptions, Random, SendError, Shape, Wire,
};

use crate::Ahp;

/// The wire [`Ahp`], except that a message which came in pieces need not be JSON-RPC.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TextSegments;

impl Wire for TextSegments {
    fn name(&self) -> &'static str {
        "ahp"
    }

    fn carries(&self) -> Carries {
        Carries::Text
    }

    fn mint(&self, random: &mut Random) -> Option<Key> {
        Ahp.mint(random)
    }

    fn plan(&self, message: &[u8], options: &PlanOptions<'_>) -> Result<Plan, SendError> {
        Ahp.plan(message, options)
    }

    fn cut(&self, pieces: &Pieces, message: &[u8], from: usize) -> usize {
        Ahp.cut(pieces, message, from)
    }

    fn write(&self, part: Part<'_>, out: &mut Vec<u8>) {
        Ahp.write(part, out);
    }

    fn read_canonical<'a>(&self, frame: &'a Frame) -> Option<Piece<'a>> {
        Ahp.read_canonical(frame)
    }

    fn read<'a>(&self, frame: &'a Frame) -> Result<Inbound<'a>, Fault> {
        Ahp.read(frame)
    }

    fn decoded_max(&self, piece: &Piece<'_>) -> usize {
        Ahp.decoded_max(piece)
    }

    fn decode(&self, piece: &Piece<'_>, into: &mut Vec<u8>) -> Result<(), FaultKind> {
        Ahp.decode(piece, into)
    }

    fn finish(&self, whole: &Assembled<'_>) -> Result<Shape, FaultKind> {
        match Ahp.finish(whole) {
            Err(FaultKind::NotJsonRpc) => Ok(Shape::default()),
            finished => finished,
        }
    }

    fn code(&self, fault: &FaultKind) -> &'static str {
        Ahp.code(fault)
    }

    fn key_text(&self, key: &Key) -> String {
        Ahp.key_text(key)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn any_text_is_a_message_and_the_rest_is_as_in_ahp() {
        let finish = |bytes: &[u8]| {
            let whole = Assembled {
                bytes,
                opening: None,
                ascii: false,
                digest: None,
            };
            (Ahp.finish(&whole), TextSegments.finish(&whole))
        };
        for text in [&b"plain"[..], br#"{"__tywrap_frame__":1}"#, b"", b"{"] {
            let (strict, any) = finish(text);
            assert_eq!(strict, Err(FaultKind::NotJsonRpc), "{text:?}");
            assert_eq!(any, Ok(Shape::default()), "{text:?}");
        }
        for text in [
            &br#"{"jsonrpc":"2.0","id":1,"method":"m"}"#[..],
            br#"{"jsonrpc":"2.0","method":"ahp/messageSegment","params":{}}"#,
            b"[{}]",
            b"\xff",
        ] {
            let (strict, any) = finish(text);
            assert_eq!(strict, any, "{text:?}");
        }
    }
}
