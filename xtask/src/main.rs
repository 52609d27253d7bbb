//! The project's own commands.

mod vectors;

fn main() {
    if let Err(error) = vectors::run(std::path::Path::new("vectors")) {
        eprintln!("{error:#}");
        std::process::exit(1);
    }
}
