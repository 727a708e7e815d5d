#!/usr/bin/env python3
"""Shows that each checker finds what it is for: a small tree or library is broken on purpose, and must be reported."""
import collections
import contextlib
import importlib.machinery
import importlib.util
import io
import json
import pathlib
import platform
import shutil
import subprocess
import sys
import tempfile
import unittest
from unittest import mock

HERE = pathlib.Path(__file__).resolve().parent
TOOLS = HERE.parent.parent / "tools"
sys.path.insert(0, str(HERE))
import fastpath  # noqa: E402
import release  # noqa: E402
sys.path.insert(0, str(HERE.parent.parent / "bench" / "counts"))
import counts  # noqa: E402
sys.path.insert(0, str(HERE.parent / "support"))
import seeding  # noqa: E402

CLEAN_TREE = {
    "src/hakmem.c": '#include "base/bits.c"\n#include "kit/counters.c"\n#include "kit/later.c"\n',
    "src/base/bits.h": "#ifndef BITS_H\n#define BITS_H\nint bits_low(int x);\n#endif\n",
    "src/base/bits.c": '#include "base/bits.h"\n#if 1\nint bits_low(int x) {\n  return x & -x;\n}\n#endif\n',
    "src/kit/counters.h": "/* Counts. */\n#ifndef COUNTERS_H\n#define COUNTERS_H\nint counter_add(int x);\n#endif\n",
    "src/kit/counters.c": '#include "base/bits.h"\n#include "kit/counters.h"\nint counter_add(int x) {\n  return bits_low(x);\n}\n',
    "src/README.md": "| `kit/` | counts | `counters` `later` |\n| `base/` | bits | `bits` |\n",
    "src/kit/later.h": "/* Later. */\n#ifndef LATER_H\n#define LATER_H\nint later(void);\n#endif\n",
    "src/kit/later.c": '#include "kit/later.h"\nint later(void) {\n  return 2;\n}\n',
    "include/hakmem/hakmem.h": "int hak_version(void);\n",
}


class Checker(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        for name, text in CLEAN_TREE.items():
            self.write(name, text)

    def write(self, name, text):
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def run_tool(self, *command):
        done = subprocess.run([str(word) for word in command], capture_output=True, text=True)
        return done.returncode, done.stdout + done.stderr

    def expect(self, code, part, *command):
        got, text = self.run_tool(*command)
        self.assertIn(part, text)
        self.assertEqual(got, code, text)


class Layers(Checker):
    def check(self, code, part):
        self.expect(code, part, TOOLS / "check_layers", "--root", self.root)

    def add(self, name, text):
        self.write(name, CLEAN_TREE[name] + text)

    def test_clean(self):
        self.check(0, "3 sources, 0 violations")

    def test_nothing_to_check(self):
        self.expect(2, "no source", TOOLS / "check_layers", "--root", self.root / "include")

    def test_include_of_a_higher_layer(self):
        self.add("src/base/bits.c", '#include "kit/counters.h"\n')
        self.check(1, "looks up from base to kit")

    def test_include_of_a_later_file(self):
        self.add("src/kit/counters.c", '#include "kit/later.h"\n')
        self.check(1, "looks up from kit/counters to kit/later")

    def test_call_of_a_later_file(self):
        self.add("src/kit/counters.c", "int later(void);\nint counter_up(int x);\nint counter_up(int x) {\n  return later();\n}\n")
        self.check(1, "calls later of")

    def test_file_that_is_not_in_the_order(self):
        self.write("src/kit/extra.h", "")
        self.check(1, "names kit/extra 0 times")

    def test_file_in_the_order_that_is_not_there(self):
        self.write("src/README.md", CLEAN_TREE["src/README.md"].replace("`later`", "`later` `gone`"))
        self.check(1, "names kit/gone, which is no file")

    def test_include_without_a_layer(self):
        self.add("src/kit/counters.c", '#include "counters.h"\n')
        self.check(1, "does not name a file by its layer")

    def test_include_in_a_comment(self):
        self.add("src/base/bits.c", '/* as in\n#include "kit/counters.h"\n*/\n')
        self.check(0, "0 violations")

    def test_call_of_a_higher_layer(self):
        self.add("src/base/bits.c", "int counter_add(int x);\nint bits_up(int x);\nint bits_up(int x) {\n  return counter_add(x);\n}\n")
        self.check(1, "calls counter_add of")

    def test_source_that_leans_on_its_neighbours(self):
        self.add("src/kit/counters.c", "int counter_all(void) {\n  return not_declared;\n}\n")
        self.check(1, "does not compile alone")

    def test_condition_outside_its_layers(self):
        self.add("src/kit/counters.c", "#ifdef FAST\n#endif\n")
        self.check(1, "counters.c:6: #ifdef in kit")

    def test_condition_beside_the_guard(self):
        self.add("src/kit/counters.h", "#if 0\n#endif\n")
        self.check(1, "counters.h:6: #if in kit")

    def test_unity_without_a_source(self):
        self.write("src/hakmem.c", '#include "base/bits.c"\n')
        self.check(1, "includes kit/counters.c 0 times")

    def test_unity_out_of_order(self):
        self.write("src/hakmem.c", '#include "base/bits.c"\n#include "kit/later.c"\n#include "kit/counters.c"\n')
        self.check(1, "not in the order of the files")

    def test_unknown_layer(self):
        self.write("src/extra/x.c", "")
        self.check(1, "no such layer")


class Orders(Checker):
    TABLE = "| `kit/words.c` | one, two | Figures. |\n| `hot` | top | Its thread's. |\n"
    WORDS = "static _Atomic int one, two = 1; /* _Atomic int not; */\nint f(int *top) {\n  return owner_load(&top[one]);\n}\n"

    def check(self, code, part, words=WORDS, table=TABLE):
        self.write("src/kit/words.c", words)
        self.write("docs/memory_orders.md", table)
        self.expect(code, part, TOOLS / "check_orders", "--root", self.root)

    def test_clean(self):
        self.check(0, "3 words, 0 violations")

    def test_word_without_a_line(self):
        self.check(1, "of `three` suffices", self.WORDS + "struct s {\n  char *_Atomic three;\n};\n")

    def test_zone_without_a_line(self):
        self.check(1, "of `zone_of` suffices", self.WORDS + "_Atomic uint64_t *zone_of(char *zone) {\n  return (_Atomic uint64_t *)zone;\n}\n")

    def test_hot_word_without_a_line(self):
        self.check(1, "of `limit` suffices", self.WORDS + "int g(void) {\n  return racy_load(&region.limit);\n}\n")

    def test_line_without_a_word(self):
        self.check(1, "kit/words.c has no atomic word `gone`", table=self.TABLE.replace("two", "two, gone"))

    def test_nothing_to_check(self):
        self.check(2, "no atomic word", "int x;\n", "")


class Limits(Checker):
    def check(self, code, part):
        self.expect(code, part, TOOLS / "check_limits", self.root / "src", self.root / "include")

    def function(self, lines):
        return "static int long_one(int x) {\n" + "  x++; // }\n" * (lines - 2) + "}\n"

    def test_clean(self):
        self.check(0, "0 violations")

    def test_long_function(self):
        self.write("src/base/long.c", self.function(39))
        self.check(0, "0 violations")
        self.write("src/base/long.c", "\n" + self.function(40))
        self.check(1, "long.c:2: long_one has 40 lines")

    def test_long_function_with_attributes(self):
        self.write("src/base/long.c", "__attribute__((noinline, aligned(16)))\n" + self.function(40))
        self.check(1, "long_one has 40 lines")

    def test_long_function_behind_a_comparison(self):
        self.write("src/base/long.c", '_Static_assert((FEW >> 1) * 8 <= (int)MANY, "so; it is"); /* < */\nenum {\n  LESS = FEW < MANY,\n};\n' + self.function(40))
        self.check(1, "long.c:5: long_one has 40 lines")

    def test_function_that_is_not_measured(self):
        self.write("src/base/long.c", "static const int less = FEW < MANY;\n" + self.function(40))
        self.check(1, "long.c:2: lizard sees no function here")

    def test_long_function_in_a_linkage_block(self):
        self.write("include/hakmem/x.hpp", 'extern "C" {\n' + self.function(40) + "}\n")
        self.check(1, "long_one has 40 lines")

    def test_long_table_is_no_function(self):
        rows = "  {1, '{'},\n" * 60
        self.write("src/base/table.c", "struct row {\n" + "int x;\n" * 60 + "};\nstatic const struct row rows[] = {\n" + rows + "};\n")
        self.check(0, "0 violations")

    def test_long_files(self):
        self.write("src/base/long.c", "\n" * 500)
        self.check(1, "500 lines; the guide is under 500")
        self.write("src/base/long.c", "\n" * 499)
        self.write("src/base/long.h", "\n" * 250)
        self.check(1, "250 lines; the guide is under 250")

    def test_long_line(self):
        self.write("src/base/wide.c", "int x;" + " " * 140 + "\n")
        self.check(1, "wide.c:1: 146 characters")


class Format(Checker):
    TIDY = "int twice(int x) {\n  if (x > 0) return 2 * x;\n  else return 0;\n}\n"

    def check(self, code, part, text, name="src/base/one.c"):
        self.write(name, text)
        self.expect(code, part, TOOLS / "check_format", self.root / name)

    def test_clean(self):
        self.check(0, "", self.TIDY)

    def test_indentation(self):
        self.check(1, "one.c:1:19:", self.TIDY.replace("  if", "    if"))

    def test_pointer_of_c_and_of_cpp(self):
        self.check(1, "one.c:1:", "char* one;\n")
        self.check(1, "one.hpp:2:", "class one {\n  char* two;\n};\n", "include/one.hpp")

    def test_long_line(self):
        self.check(0, "", "int sum = " + "1 + " * 31 + "100;\n")
        self.check(1, "one.c:1:", "int sum = " + "1 + " * 32 + "100;\n")

    def test_table_that_is_kept(self):
        self.check(0, "", "/* clang-format off */\nint   x;\n/* clang-format on */\n" + self.TIDY)

    def test_writing(self):
        self.check(1, "one.c:1:", self.TIDY.replace(" {", "{"))
        self.expect(0, "", TOOLS / "check_format", "--write", self.root / "src/base/one.c")
        self.assertEqual(self.TIDY, (self.root / "src/base/one.c").read_text())


class Python(Checker):
    """The oldest supported Python is 3.9."""

    def check(self, code, part, text):
        self.write("one.py", text)
        self.expect(code, part, TOOLS / "check_python", self.root / "one.py")

    def test_clean(self):
        self.check(0, "", "try:\n    import tomllib\nexcept ModuleNotFoundError:\n    import tomli\n")

    def test_what_a_newer_module_has(self):
        self.check(1, "datetime.UTC", "from datetime import UTC\n")

    def test_argument_of_a_newer_function(self):
        self.check(1, "zip(strict)", "zip([1], [2], strict=True)\n")

    def test_syntax(self):
        self.check(1, "Python 3.9", "match 1:\n    case 1:\n        pass\n")


class Library(Checker):
    """Checkers of built libraries; each test builds its own library."""

    def build(self, text, *flags):
        self.write("fake.c", text)
        library = self.root / "fake.so"
        subprocess.run(["cc", "-O2", "-fPIC", "-shared", "-o", library, self.root / "fake.c", *flags], check=True)
        return library


class Docs(Library):
    TABLE = '[{"name": "stats", "type": "bool", "default": false, "help": "Print a report | at exit."},' \
            ' {"name": "decay_ms", "type": "integer", "default": 500, "min": 0, "max": 9000, "runtime": true, "help": "Wait."}]'

    def setUp(self):
        super().setUp()
        text = json.dumps(self.TABLE)
        self.library = self.build("#include <stdbool.h>\n#include <string.h>\n#include <unistd.h>\nbool hak_options_json(int fd) {\n"
                                  f"  static const char text[] = {text};\n  return write(fd, text, strlen(text)) > 0;\n}}\n")
        self.page = self.root / "options.md"

    def docs(self, code, part, *more):
        self.expect(code, part, TOOLS / "gen_docs", "--lib", self.library, "--out", self.page, *more)

    def test_page(self):
        self.docs(1, "is stale", "--check")
        self.assertFalse(self.page.exists())
        self.docs(0, "")
        self.assertIn("| `HAKMEM_STATS` | bool | 0 | 0, 1 |  | Print a report \\| at exit. |", self.page.read_text())
        self.assertIn("| `HAKMEM_DECAY_MS` | integer | 500 | 0 to 9000 | yes | Wait. |", self.page.read_text())
        self.docs(0, "", "--check")

    def test_stale_page(self):
        self.docs(0, "")
        self.page.write_text(self.page.read_text().replace("9000", "8000"))
        self.docs(1, "is stale", "--check")

    def test_library_without_a_table(self):
        self.library = self.build("int x;\n")
        self.docs(2, "hak_options_json")


class Pictures(Checker):
    """Works without Graphviz: setUp writes up-to-date pictures without drawing them."""

    def setUp(self):
        super().setUp()
        self.write("docs/pictures/life.dot", "digraph life { free -> live }\n")
        loader = importlib.machinery.SourceFileLoader("draw_pictures", str(TOOLS / "draw_pictures"))
        tool = importlib.util.module_from_spec(importlib.util.spec_from_loader(loader.name, loader))
        with mock.patch.object(sys, "dont_write_bytecode", True):
            loader.exec_module(tool)
        for picture, text in tool.sources_of(self.root):
            picture.write_text("<svg/>\n" + tool.mark_of(text))

    def check(self, code, part):
        self.expect(code, part, TOOLS / "draw_pictures", "--root", self.root, "--check")

    def test_clean(self):
        self.check(0, "")

    def test_source_that_was_changed(self):
        self.write("docs/pictures/life.dot", "digraph life { live -> free }\n")
        self.check(1, "life.svg is stale")

    def test_table_that_was_changed(self):
        self.write("src/README.md", CLEAN_TREE["src/README.md"].replace("`later`", "`latest`"))
        self.check(1, "layers.svg is stale")

    def test_picture_that_is_not_there(self):
        (self.root / "docs/pictures/life.svg").unlink()
        self.check(1, "life.svg is stale")

    def test_no_table(self):
        self.write("src/README.md", "")
        self.check(2, "table of layers")


class Release(Library):
    def found(self, check, text, *flags):
        return "\n".join(release.CHECKS[check](str(self.build(text, *flags))))

    def test_import_of_output(self):
        self.assertIn("fprintf: output is compiled in",
                      self.found("imports", '#include <stdio.h>\nvoid f(int x) { fprintf(stderr, "free %d", x); }\n'))

    def test_import_that_is_not_listed(self):
        self.assertIn("setlocale: not in imports.txt",
                      self.found("imports", "#include <locale.h>\nvoid f(void) { setlocale(0, 0); }\n"))

    def test_import_that_must_be_weak(self):
        text = "void __cxa_throw(void *, void *, void *) WEAK;\nvoid f(void) { __cxa_throw(0, 0, 0); }\n"
        self.assertIn("__cxa_throw: must be weak", self.found("imports", text, "-DWEAK="))
        self.assertEqual("", self.found("imports", text, "-DWEAK=__attribute__((weak))"))

    def test_exports(self):
        found = self.found("exports", "void stray(void) {}\n")
        self.assertIn("stray: not in exports.txt", found)
        self.assertIn("malloc: in exports.txt, but", found)

    def test_needed(self):
        self.assertIn("needed: libm.so.6", self.found("needed", "#include <math.h>\ndouble f(double x) { return cos(x); }\n", "-lm"))

    def test_tls(self):
        self.assertIn("tls: 80 bytes", self.found("tls", "static _Thread_local char x[80];\nchar *f(void) { return x; }\n"))
        self.assertEqual("", self.found("tls", "static _Thread_local char x[64];\nchar *f(void) { return x; }\n"))

    def test_noise(self):
        noisy = "#include <unistd.h>\n__attribute__((constructor)) static void f(void) { (void)!write(2, \"hello\", 5); }\n"
        self.assertIn("hello", self.found("silence", noisy))
        self.assertEqual("", self.found("silence", "int x;\n"))

    def test_placement(self):
        fill = '__attribute__((used, section("%s"))) void %s(void) { __asm__ volatile(".skip 8192, 0x90"); }\n'
        seldom, usual, first = fill % (".text.unlikely.x", "x"), fill % (".text.y", "y"), fill % (".text.startup.x", "h")
        small = fill % (".text.hak_malloc", "s")
        runs, begins, other, starts = (
            f'__attribute__((constructor, section("{name}"))) static void c{i}(void) {{ __asm__ volatile(""); }}\n'
            for i, name in enumerate((".text.unlikely.z", ".text.hak_free", ".text.z", ".text.start")))
        apart = ("-O1", "-Wl,-T," + str(TOOLS.parent / "src/placement.ld"))
        self.assertEqual("", self.found("seldom", seldom + small + begins, *apart))
        self.assertIn("of .text.seldom are resident", self.found("seldom", seldom + small + begins + runs, *apart))
        self.assertIn("nothing of .text.small is resident", self.found("seldom", seldom + small, *apart, "-nostdlib"))
        self.assertIn(" is not there", self.found("seldom", seldom + small + begins, "-O1"))
        self.assertIn(".text.seldom is not there", self.found("seldom", small + begins, *apart))
        tables = "void callee(void) WEAK;\n" + "".join(f"void g{i}(void) {{ if (callee) callee(); callee(); }}\n" for i in range(64))
        parts = seldom + usual + small + first + tables
        apart = (*apart, "-DWEAK=__attribute__((weak))", "-ffunction-sections")
        self.assertEqual("", self.found("first", parts + starts, *apart))
        self.assertIn("of .text are resident", self.found("first", parts + other, *apart))
        self.assertIn("of .text.small are resident", self.found("first", parts + begins, *apart))
        self.assertIn("nothing of .text.first is resident", self.found("first", parts, *apart, "-nostdlib"))
        self.assertEqual("", self.found("small", parts + starts + begins, *apart))
        self.assertIn("of .text are resident", self.found("small", parts + begins + other, *apart))
        self.assertIn("of .text.seldom are resident", self.found("small", parts + begins + runs, *apart))
        self.assertIn("nothing of .text.small is resident", self.found("small", parts + starts, *apart))


BUMP = """
#include <stddef.h>
static char room[1 << 20] __attribute__((aligned(16)));
static size_t used, freed;
__attribute__((visibility("default"))) void *malloc(size_t size) {
  size_t at = TAKE;
  if (at + size > sizeof room) return NULL;
  return room + at;
}
__attribute__((visibility("default"))) void free(void *block) { freed += block != NULL; }
void *calloc(size_t n, size_t size) { return malloc(n * size); }
void *realloc(void *p, size_t size) { (void)p; return malloc(size); }
"""


@unittest.skipUnless(platform.machine() == "x86_64", "the stepper knows x86-64 only")
class FastPath(Library):
    def measure(self, take):
        library = str(self.build(BUMP, "-fvisibility=hidden", f"-DTAKE={take}"))
        return fastpath.measure(library, fastpath.make_stepper("cc", self.root), [64])

    def test_counts(self):
        paths = self.measure("used; used += 64")
        counts, texts = paths["malloc 64"]
        self.assertEqual((counts["loads"], counts["stores"], counts["atomics"]), (1, 1, 0), texts)
        self.assertEqual(counts["instructions"], len(texts))
        self.assertTrue(texts[-1].startswith("ret"))
        pinned = {path: dict(row) for path, (row, _) in paths.items()}
        self.assertEqual([], list(fastpath.compare("default", paths, pinned)))
        pinned["free 64"]["loads"] -= 1
        self.assertEqual([(True, "default: free 64: 1 loads, pinned 0")], list(fastpath.compare("default", paths, pinned)))

    def test_atomic(self):
        found = list(fastpath.compare("default", self.measure("__atomic_fetch_add(&used, 64, __ATOMIC_RELAXED)"), None))
        self.assertIn((True, "default: malloc 64: 1 atomic read-modify-writes, the budget is 0"), found)

    def test_budget(self):
        volatile = "({ for (volatile int i = 0; i < 5; i++) ; used; }); used += 64"
        found = list(fastpath.compare("default", self.measure(volatile), None))
        self.assertTrue(any(bad and "the budget is 24" in line for bad, line in found), found)

    def test_library_that_is_not_used(self):
        with self.assertRaisesRegex(RuntimeError, "did not run in it"):
            fastpath.measure(str(self.build("int x;\n")), fastpath.make_stepper("cc", self.root), [64])

    def test_classify(self):
        table = {  # loads, stores, branches, atomics
            "mov    0x8(%rdi),%rax": (1, 0, 0, 0), "mov    %rax,(%rdi)": (0, 1, 0, 0), "mov    %fs:0x0,%rdx": (1, 0, 0, 0),
            "movups %xmm0,(%rdi,%rcx,8)": (0, 1, 0, 0), "lea    0x10(%rax),%rcx": (0, 0, 0, 0), "cmp    %rax,(%rdx)": (1, 0, 0, 0),
            "addl   $0x1,0x4(%rdx)": (1, 1, 0, 0), "sub    0x30(%rip),%rax        # 4000 <x>": (1, 0, 0, 0),
            "lock cmpxchg %rcx,(%rdx)": (1, 1, 0, 1), "xchg   %eax,(%rdx)": (1, 1, 0, 1), "xchg   %ax,%ax": (0, 0, 0, 0),
            "jne    1234 <malloc+0x10>": (0, 0, 1, 0), "jmp    *0x8(%rax)": (1, 0, 0, 0), "bnd jmp 1234 <free>": (0, 0, 0, 0),
            "push   %rbx": (0, 1, 0, 0), "pop    %rbx": (1, 0, 0, 0), "nopw   0x0(%rax,%rax,1)": (0, 0, 0, 0), "ret": (0, 0, 0, 0),
            "cmove  0x8(%rdi),%rax": (1, 0, 0, 0), "sete   0x3(%rdi)": (0, 1, 0, 0), "testb  $0x1,(%rax)": (1, 0, 0, 0),
            "bt     %rcx,(%rdx)": (1, 0, 0, 0), "btr    %rcx,(%rdx)": (1, 1, 0, 0), "imul   $0x18,(%rax),%rcx": (1, 0, 0, 0),
        }
        for text, want in table.items():
            counts = fastpath.classify(text)
            self.assertEqual(tuple(counts[key] for key in ("loads", "stores", "branches", "atomics")), want, text)


class Counts(unittest.TestCase):
    # The program calls malloc, which calls memset, with 5, 7 and 11 instructions of their own; inclusive costs of calls do not count.
    PROFILE = """events: Ir Dr Dw I1mr D1mr D1mw
ob=(1) /tmp/x/patterns
fn=(1) main
3 5 1 1 0 1 2
cob=(2) /usr/lib/libother.so
cfn=(2) malloc
calls=1 9
+1 18 9 9 9 9 9

ob=(2)
fn=(2)
9 4 1 1 0 3
-2 3
cob=(3) /usr/lib/x86_64-linux-gnu/libc.so.6
cfn=(3) memset
calls=1 4
* 11 9 9 9 9 9

ob=(3)
fn=(3)
4 11 1 1 0 0 4
"""
    PINS = {"pair": {"instructions": 20.0, "misses": 0.001, "all_misses": 2.0}}

    def totals(self, system):
        return tuple(counts.totals(self.PROFILE, "/tmp/x/patterns", system).values())

    def test_profile(self):
        self.assertEqual(self.totals(False), (7, 3, 23, 10))

    def test_system(self):
        self.assertEqual(self.totals(True), (0, 0, 23, 10))  # memset is not libc's allocator
        self.assertTrue(counts.allocates("/lib/libc.so.6", "_int_malloc", "/tmp/x/patterns", True))

    def different(self, **changed):
        return [line.split()[2] for line in counts.differences({"pair": self.PINS["pair"] | changed}, self.PINS)]

    def test_pins(self):
        self.assertEqual(self.different(instructions=20.3, misses=0.01, all_misses=2.03), [])
        self.assertEqual(self.different(instructions=20.5), ["instructions"])
        self.assertEqual(self.different(instructions=19.5), ["instructions"])
        self.assertEqual(self.different(misses=0.02, all_misses=2.1), ["misses", "all_misses"])


class Mutations(Checker):
    """The table of tests/mutation: each text must occur once in its source."""
    RUN = HERE.parent / "mutation" / "run"

    def setUp(self):
        super().setUp()
        shutil.copytree(TOOLS.parent / "src", self.root / "src", dirs_exist_ok=True)

    def check(self, code, part):
        self.expect(code, part, self.RUN, "--check", "--root", self.root)

    def edit(self, name, text, instead):
        path = self.root / "src" / name
        self.assertIn(text, path.read_text())
        path.write_text(path.read_text().replace(text, instead))

    def test_as_it_is(self):
        self.check(0, " 0 that do not fit")

    def test_a_text_that_is_gone(self):
        self.edit("slab/large_secure.c", "FREED_MOST 64", "FREED_MOST 32")
        self.check(1, "one_large_block_waits: its text occurs 0 times in src/slab/large_secure.c")

    def test_a_text_that_is_there_twice(self):
        self.edit("slab/large_secure.c", "#define FREED_MOST 64", "#define FREED_MOST 64\n#define FREED_MOST 64")
        self.check(1, "one_large_block_waits: its text occurs 2 times in src/slab/large_secure.c")

    def test_a_source_that_is_gone(self):
        (self.root / "src/slab/hole.c").unlink()
        self.check(1, "in src/slab/hole.c, not once")


class Skips(Checker):
    """Tests that ctest has skipped are listed with their reasons."""
    TESTS = ("add_test(one sh -c \"echo 'skipped: a_check: no room here'; echo 'alone: 1 passed, 0 failed, 1 skipped'\")\n"
             "add_test(two sh -c \"echo 'no such tool'; exit 77\")\n"
             "set_tests_properties(two PROPERTIES SKIP_RETURN_CODE 77)\n"
             "add_test(three true)\n")

    def test_listed(self):
        self.write("CTestTestfile.cmake", self.TESTS)
        subprocess.run(["ctest", "--test-dir", self.root, "--output-junit", self.root / "tests.xml", "--test-output-size-passed", "1000000"],
                       check=True, capture_output=True)
        got, text = self.run_tool(HERE.parent / "support" / "skips", self.root / "tests.xml")
        self.assertEqual(text, "2 skipped\n  no room here: one a_check\n  no such tool: two\n")
        self.assertEqual(got, 0)


class Seeding(Checker):
    """The code that all tables of seeded faults share, with a "build" that reads the changed source and a "test" for a word in it."""
    Fault = collections.namedtuple("Fault", "name file text instead")
    FOUND = Fault("found", "kit/counters.c", "bits_low(x)", "bits_high(x)")
    HARMLESS = Fault("harmless", "kit/counters.c", "counter_add(int x)", "counter_add(int y)")
    STALE = Fault("stale", "kit/counters.c", "bits_middle", "bits_low")
    BROKEN = Fault("broken", "kit/counters.c", "return", "#error")

    def attempt(self, fault, place, settings):
        seeding.overlay(place, fault.file, seeding.changed(fault, settings.source))
        self.assertEqual([path.name for path in place.rglob("*") if path.is_file()], ["counters.c"])
        text = (place / fault.file).read_text()
        if "#error" in text:
            raise subprocess.CalledProcessError(1, "cc")
        return None if "bits_low(x)" in text else "bits_low is gone"

    def check(self, code, part, *faults, more=()):
        given = ["faults.py", "--source", str(self.root / "src"), "--work", str(self.root / "work"), "--objects", "a.o", "--jobs", "2",
                 *more, "--", "cc"]
        said = io.StringIO()
        with mock.patch.object(sys, "argv", given), contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
            got = seeding.main("", faults, self.attempt)
        self.assertIn(part, said.getvalue())
        self.assertEqual(got, code, said.getvalue())

    def test_found(self):
        self.check(0, "found     found: bits_low is gone", self.FOUND)

    def test_not_found(self):
        self.check(1, "NOT FOUND harmless", self.FOUND, self.HARMLESS)

    def test_alone(self):
        self.check(0, "1 found, of 1", self.FOUND, self.HARMLESS, more=["--only", "found"])

    def test_none(self):
        self.check(1, ", of 0", self.FOUND, more=["--only", "no such name"])

    def test_stale(self):
        self.check(1, "stale: its text occurs 0 times in src/kit/counters.c, not once", self.FOUND, self.STALE)
        self.check(1, "2 faults, 1 that do not fit", self.FOUND, self.STALE, more=["--check"])
        self.check(0, "1 faults, 0 that do not fit", self.FOUND, more=["--check"])

    def test_twice(self):
        self.check(1, "found: 2 faults have this name", self.FOUND, self.FOUND)

    def test_nothing_changed(self):
        self.check(1, "same: it changes nothing", self.FOUND._replace(name="same", instead="bits_low(x)"))

    def test_does_not_build(self):
        self.check(1, "BROKEN    broken", self.BROKEN)


if __name__ == "__main__":
    unittest.main()
