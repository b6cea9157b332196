//! Closed sets of words: enums whose variants each have one word for logs, metrics and files.

/// Defines such an enum, in the order of its counters.
macro_rules! words {
    ($(#[$meta:meta])* $vis:vis enum $name:ident { $($(#[$of:meta])* $value:ident = $word:literal,)+ }) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        $vis enum $name { $($(#[$of])* $value,)+ }

        impl $name {
            pub(crate) const ALL: [Self; [$($word),+].len()] = [$(Self::$value),+];
            pub(crate) const WORDS: [&'static str; Self::ALL.len()] = [$($word),+];

            /// Returns its word in logs, metrics and files.
            $vis const fn as_str(self) -> &'static str {
                Self::WORDS[self as usize]
            }
        }

        impl std::fmt::Display for $name {
            /// Writes its word.
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.pad(self.as_str())
            }
        }

        // Without the feature that counts them, some words are only listed.
        const _: fn($name) -> &'static str = $name::as_str;
    };
}
pub(crate) use words;
