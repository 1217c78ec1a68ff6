//! AMX tiles: the processor must have them, and a process has to ask for them.

/// Whether the processor has AMX tiles for bfloat16 and the system lets us use them.
#[cfg(target_os = "linux")]
pub fn amx_tiles() -> bool {
    let leaf = std::arch::x86_64::__cpuid_count(7, 0);
    // EDX: bit 22 bfloat16 products, bit 24 tiles.
    leaf.edx & (1 << 22) != 0 && leaf.edx & (1 << 24) != 0 && ask()
}

/// There are kernels for tiles on Linux only.
#[cfg(not(target_os = "linux"))]
pub fn amx_tiles() -> bool {
    false
}

/// Asks the system for the tile registers, which a process has to do once.
#[cfg(target_os = "linux")]
#[allow(unsafe_code)]
fn ask() -> bool {
    let answer: i64;
    // SAFETY: arch_prctl(ARCH_REQ_XCOMP_PERM, XTILEDATA) reads and writes no memory of ours.
    unsafe {
        std::arch::asm!("syscall", inlateout("rax") 158_i64 => answer, in("rdi") 0x1023,
             in("rsi") 18, out("rcx") _, out("r11") _, options(nostack));
    }
    answer == 0
}
