//! The macro `with!`: gives a configuration a method that changes some of its fields.

/// Gives configurations the method `with`. They are `#[non_exhaustive]`, so that a field can be added
/// without breaking a program: a value is made from a default and then changed.
///
/// ```
/// # use breakbulk_link::Limits;
/// let limits = Limits::default().with(|limits| {
///     limits.message = 64 << 20;
///     limits.transfers = 2;
/// });
/// assert_eq!(limits.message, 64 << 20);
/// ```
#[macro_export]
macro_rules! with {
    ($($config:ty),+ $(,)?) => {$(
        impl $config {
            /// This configuration after `change` was applied to it.
            #[must_use]
            pub fn with(mut self, change: impl FnOnce(&mut Self)) -> Self {
                change(&mut self);
                self
            }
        }
    )+};
}
