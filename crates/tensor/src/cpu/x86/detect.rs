//! Detection of AMX tiles: the processor must support them, and the process must request them.

/// Whether the processor supports AMX tiles for bfloat16 and the system lets us use them.
#[cfg(target_os = "linux")]
pub fn amx_tiles() -> bool {
    let leaf = std::arch::x86_64::__cpuid_count(7, 0);
    // EDX: bit 22 is bfloat16 products, bit 24 is tiles.
    leaf.edx & (1 << 22) != 0 && leaf.edx & (1 << 24) != 0 && ask()
}

/// The tile kernels are available only on Linux.
#[cfg(not(target_os = "linux"))]
pub fn amx_tiles() -> bool {
    false
}

/// Requests permission to use the tile registers, which a process has to do once.
#[cfg(target_os = "linux")]
#[allow(unsafe_code)]
fn ask() -> bool {
    let answer: i64;
    // SAFETY: arch_prctl(ARCH_REQ_XCOMP_PERM, XTILEDATA) does not access our memory.
    unsafe {
        std::arch::asm!("syscall", inlateout("rax") 158_i64 => answer, in("rdi") 0x1023,
             in("rsi") 18, out("rcx") _, out("r11") _, options(nostack));
    }
    answer == 0
}
