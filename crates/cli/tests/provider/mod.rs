//! Owners and a provider as processes, on loopback: what they promise each other, and what happens
//! when either of them, or the network between them, fails.

mod faults;
mod flow;
mod proxy;
mod refused;
mod wire;
mod world;
