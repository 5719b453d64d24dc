//! A list inside a packet: read from the wire and checked, or put together by the caller; both look the same.

/// Where the items of a list are.
#[derive(Clone, Copy)]
pub(crate) enum ListSource<'a, T> {
    /// Checked from the first byte to the last.
    Wire(&'a [u8]),
    Typed(&'a [T]),
}

/// Declares a list type. `$next` reads one item of a list that was checked, so that it only ends at the end.
macro_rules! wire_list {
    ($(#[$about:meta])* $List:ident<$a:lifetime>, $Item:ty, $next:expr) => {
        $(#[$about])*
        #[derive(Clone, Copy)]
        pub struct $List<$a>($crate::wire_list::ListSource<$a, $Item>);

        impl<$a> $List<$a> {
            /// Items to send.
            pub const fn new(items: &$a [$Item]) -> Self {
                Self($crate::wire_list::ListSource::Typed(items))
            }

            /// The items in order.
            pub fn iter(&self) -> impl Iterator<Item = $Item> + use<$a> {
                let (bytes, typed) = match self.0 {
                    $crate::wire_list::ListSource::Wire(bytes) => (bytes, &[][..]),
                    $crate::wire_list::ListSource::Typed(items) => (&[][..], items),
                };
                let mut reader = $crate::reader::PacketReader::new(bytes);
                core::iter::from_fn(move || $next(&mut reader).ok()).chain(typed.iter().copied())
            }
        }

        impl PartialEq for $List<'_> {
            fn eq(&self, other: &Self) -> bool {
                self.iter().eq(other.iter())
            }
        }

        impl Eq for $List<'_> {}

        impl core::fmt::Debug for $List<'_> {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                f.debug_list().entries(self.iter()).finish()
            }
        }
    };
}
pub(crate) use wire_list;
