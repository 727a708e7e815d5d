//! Builds the archive as the repository's CMakeLists.txt does; the reasons for the flags are there.

use std::path::Path;

/// Removes link-time optimisation from the environment's compiler flags: Rust's linker cannot read gcc's LTO objects.
fn leave_out_lto() {
    for (name, flags) in std::env::vars_os() {
        let (Some(name), Some(flags)) = (name.to_str(), flags.to_str()) else { continue };
        if name.contains("CFLAGS") && flags.contains("-flto") {
            let kept: Vec<_> = flags.split_whitespace().filter(|flag| !flag.starts_with("-flto")).collect();
            std::env::set_var(name, kept.join(" "));
        }
    }
}

fn main() {
    leave_out_lto();
    let enabled = |feature: &str| if std::env::var_os(feature).is_some() { "1" } else { "0" };
    let sources = Path::new("c/src");
    cc::Build::new()
        .files(["hakmem.c", "entry/cxx.c", "entry/change.c"].map(|file| sources.join(file)))
        .include(sources)
        .include("c/include")
        .std("gnu11")
        .define("_GNU_SOURCE", None)
        .define("HAK_ARCHIVE", "1")
        .define("HAK_OVERRIDE", enabled("CARGO_FEATURE_OVERRIDE"))
        .define("HAK_SECURE", enabled("CARGO_FEATURE_SECURE"))
        .flag("-pthread")
        .flag("-fvisibility=hidden")
        .flag("-ftls-model=initial-exec")
        .flag("-fexceptions")
        .flag("-fno-builtin-malloc")
        .flag("-fno-builtin-calloc")
        .flag("-fno-builtin-realloc")
        .flag("-fno-builtin-free")
        .flag("-ffunction-sections")
        .flag("-fdata-sections")
        .pic(true)
        .force_frame_pointer(false)
        .opt_level(2) // in debug builds too: with an unoptimised allocator, the program's own speed could not be judged
        .warnings(false)
        .compile("hakmem");

    println!("cargo:rerun-if-changed=c/src");
    println!("cargo:rerun-if-changed=c/include");
    // Other build scripts read this as DEP_HAKMEM_INCLUDE, to compile C code that calls hakmem by its own names.
    println!("cargo:include={}", std::env::current_dir().unwrap().join("c/include").display());
}
