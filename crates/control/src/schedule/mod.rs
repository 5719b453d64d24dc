//! Who is next.
