//! Holds 64 MiB in boxes of 64 bytes.

#[cfg(feature = "hakmem")]
#[global_allocator]
static ALLOCATOR: hakmem::Hakmem = hakmem::Hakmem;

#[inline(never)]
fn hold() -> Vec<Box<[u8; 64]>> {
    let mut held = Vec::new();
    for number in 0..1 << 20 {
        held.push(Box::new([number as u8; 64]));
    }
    held
}

fn main() {
    #[cfg(feature = "hakmem")]
    let _tag = hakmem::tag(7);
    let held = hold();
    println!("ready");
    let _ = std::io::stdin().read_line(&mut String::new());
    drop(held);
}
