# Builds Google's tcmalloc as a shared library in the current directory; crate=DIR is the directory of libtcmalloc-sys.
#
# tcmalloc itself is built by Bazel, whose files the crate lacks. The list of sources is the crate's, except that the file which
# defines malloc and the C++ operators replaces the bridge to Rust. The flags are those of an optimised Bazel build.

sources := $(shell grep -o '"c_src/[^"]*\.\(cc\|S\)"' $(crate)/build.rs | tr -d '"' | grep -v _bridge) c_src/tcmalloc/tcmalloc/tcmalloc.cc
objects := $(sources:%=%.o)
flags := -std=c++17 -O2 -DNDEBUG -fPIC -w -I$(crate)/c_src/abseil-cpp -I$(crate)/c_src/tcmalloc

libtcmalloc.so: $(objects)
	$(CXX) -shared -o $@ $(objects) -pthread

$(objects): %.o: $(crate)/%
	@mkdir -p $(@D)
	$(CXX) $(flags) -c $< -o $@
