//! System calls past libc.

use libc::c_long;

/// The kernel's answer: negative errnos for errors. By no function of libc, since its name here is ours.
///
/// # Safety
/// As the call asks for.
#[inline(always)]
pub(super) unsafe fn call_kernel(number: c_long, arguments: [c_long; 6]) -> c_long {
    let [first, second, third, fourth, fifth, sixth] = arguments;
    let result;
    // SAFETY: the kernel's convention; it changes memory that the caller lends.
    unsafe {
        #[cfg(target_arch = "x86_64")]
        std::arch::asm!("syscall", inlateout("rax") number => result, in("rdi") first, in("rsi") second,
            in("rdx") third, in("r10") fourth, in("r8") fifth, in("r9") sixth, lateout("rcx") _, lateout("r11") _);
        #[cfg(target_arch = "aarch64")]
        std::arch::asm!("svc 0", in("x8") number, inlateout("x0") first => result, in("x1") second, in("x2") third,
            in("x3") fourth, in("x4") fifth, in("x5") sixth);
    }
    result
}
