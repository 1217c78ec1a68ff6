//! Owners and a provider as processes, on loopback: what they promise each other, and what happens
//! when either of them, or the network between them, fails.

mod clocks;
mod faults;
mod flow;
mod identity;
mod log;
mod proxy;
mod readme;
mod refused;
mod several;
mod wire;
mod world;
