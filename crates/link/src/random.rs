//! A random generator whose only input is a seed, so that the same inputs give the same frames.

/// The xoshiro256++ generator, for unique keys of transfers; not for secrets.
#[derive(Clone, Debug)]
pub struct Random([u64; 4]);

impl Random {
    /// A generator with this seed.
    pub fn new(seed: [u8; 32]) -> Self {
        let mut state = [0u64; 4];
        for (word, bytes) in state.iter_mut().zip(seed.chunks_exact(8)) {
            *word = bytes
                .iter()
                .fold(0, |word, &byte| word << 8 | u64::from(byte));
        }
        // An all-zero state would produce only zeros.
        state[0] ^= 0x9e37_79b9_7f4a_7c15;
        let mut random = Self(state);
        for _ in 0..8 {
            random.next();
        }
        random
    }

    /// A generator for tests: `seed` is what a failing run prints.
    pub fn from_number(seed: u64) -> Self {
        let mut bytes = [0; 32];
        bytes[..8].copy_from_slice(&seed.to_be_bytes());
        Self::new(bytes)
    }

    /// The next 64 bits.
    #[expect(
        clippy::should_implement_trait,
        reason = "an endless generator is no iterator to users"
    )]
    pub fn next(&mut self) -> u64 {
        let s = &mut self.0;
        let result = s[0].wrapping_add(s[3]).rotate_left(23).wrapping_add(s[0]);
        let t = s[1] << 17;
        s[2] ^= s[0];
        s[3] ^= s[1];
        s[1] ^= s[2];
        s[0] ^= s[3];
        s[2] ^= t;
        s[3] = s[3].rotate_left(45);
        result
    }

    /// A number below `bound` (0 for a bound of 0).
    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(bound)) >> 64) as u64
    }

    /// True once in `n` times.
    pub fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }
}
