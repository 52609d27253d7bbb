//! Results and requests of all sizes, bare and in gift wraps, in both directions.

use breakbulk::contextvm::Encryption;
use interop_contextvm::matrix::{LARGE, Matrix, SIZES, Theirs};
use interop_contextvm::peer::Sdk;
use interop_contextvm::text::Text;

/// In gift wraps only this project sends large messages: the SDK cannot encrypt them (defect 5).
const DOWN: [(usize, usize); 2] = [(10, 100), (10, 200_000)];
const UP: [(usize, usize); 2] = [(10, 100), (200_000, 10)];

#[tokio::test(flavor = "multi_thread")]
#[ignore = "cargo xtask interop contextvm"]
async fn bare() {
    both(Encryption::Disabled, &Text::ALL, &SIZES, &SIZES).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "cargo xtask interop contextvm"]
async fn in_gift_wraps() {
    both(Encryption::Required, &Text::ALL, &DOWN, &UP).await;
    // The other texts of this size are in `long.rs`: the SDK takes a minute to decrypt them.
    let (down, up) = ([(10, LARGE)], [(LARGE, 10)]);
    both(Encryption::Required, &[Text::Ascii], &down, &up).await;
}

/// Tests the SDK as client and as server at once, each over a relay of its own.
async fn both(
    encryption: Encryption,
    texts: &[Text],
    to_their_client: &[(usize, usize)],
    to_their_server: &[(usize, usize)],
) {
    let matrix = |theirs, sizes| Matrix {
        sdk: Sdk::Npm,
        theirs,
        encryption,
        chunk: None,
        texts,
        sizes,
    };
    let (client, server) = (
        matrix(Theirs::Client, to_their_client),
        matrix(Theirs::Server, to_their_server),
    );
    let (client, server) = tokio::join!(client.run(), server.run());
    client.unwrap();
    server.unwrap();
}
