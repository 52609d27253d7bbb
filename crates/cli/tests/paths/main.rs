//! What paths and receivers let through: `caps`, `client=NAME` and `probe`.

mod caps;
mod client;
mod probe;
