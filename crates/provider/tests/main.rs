//! The integration tests, in one program: linking takes longer than most of them.

mod serve;
