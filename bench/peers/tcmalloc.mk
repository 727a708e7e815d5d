# Builds Google's tcmalloc as a shared library in the current directory; crate=DIR is where libtcmalloc-sys lies.
#
# tcmalloc's own build is Bazel's, and the crate leaves its files out. The list of sources is the crate's; its bridge to Rust gives
# way to the file that defines malloc and the C++ operators. The flags are those of an optimised Bazel build.

sources := $(shell grep -o '"c_src/[^"]*\.\(cc\|S\)"' $(crate)/build.rs | tr -d '"' | grep -v _bridge) c_src/tcmalloc/tcmalloc/tcmalloc.cc
objects := $(sources:%=%.o)
flags := -std=c++17 -O2 -DNDEBUG -fPIC -w -I$(crate)/c_src/abseil-cpp -I$(crate)/c_src/tcmalloc

libtcmalloc.so: $(objects)
	$(CXX) -shared -o $@ $(objects) -pthread

$(objects): %.o: $(crate)/%
	@mkdir -p $(@D)
	$(CXX) $(flags) -c $< -o $@
