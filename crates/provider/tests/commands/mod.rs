//! Owners and a provider as processes on loopback: their promises to each other, and failures of
//! either side or of the network.

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
