#!/usr/bin/env python3
"""Programs that Debian links to another allocator run on the library in its place: their answers are right, and hakmem serves them.

redis.py does the same for redis-server, which also moves blocks.  There is none for mimalloc: no package of Debian 12 needs it.
"""
import argparse
import contextlib
import grp
import hashlib
import http.server
import json
import os
import pathlib
import pwd
import random
import re
import socket
import socketserver
import subprocess
import tempfile
import threading
import time

HERE = pathlib.Path(__file__).resolve().parent
EPHEMERAL = 32768  # clients get ports from here on
PATIENCE = 60  # seconds that a server may take to start or to end; only a hang takes this long


class Side:
    """A library, and a folder for what programs write."""

    def __init__(self, library, folder):
        self.library, self.folder = library, folder
        self.figures_of = folder / "figures"
        self.figures_of.mkdir()
        self.environment = os.environ | {"LD_LIBRARY_PATH": str(library.parent), "HAKMEM_STATS": "1", "HAKMEM_STATS_JSON": "1",
                                         "HAKMEM_STATS_FILE": f"{self.figures_of}/%p", "HAKMEM_BLACKBOX": f"{folder}/box-%p",
                                         "LC_ALL": "C.UTF-8"}
        self.environment.pop("LD_PRELOAD", None)

    def call(self, *command, stdin=None):
        ended = subprocess.run(command, env=self.environment, input=stdin, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                               timeout=PATIENCE * 2, check=False)
        assert ended.returncode == 0, (command, ended.returncode, ended.stdout)
        return ended.stdout

    @contextlib.contextmanager
    def server(self, *command):
        """Runs a server until SIGTERM ends it in an orderly way."""
        log = self.folder / "log"
        with open(log, "w", encoding="utf-8") as out, subprocess.Popen(command, env=self.environment, stdout=out, stderr=out) as process:
            try:
                yield process
            except BaseException:
                print(log.read_text(errors="replace"))
                process.kill()
                raise
            process.terminate()
            try:
                assert process.wait(timeout=PATIENCE) == 0, log.read_text(errors="replace")
            finally:
                process.kill()  # otherwise the end of the block waits for a process that hangs

    def require_mapped(self, pid):
        """Checks that the process has mapped this library, and not the one that it replaces."""
        paths = set(re.findall(r"/\S*", pathlib.Path(f"/proc/{pid}/maps").read_text()))
        allocators = {path for path in paths if re.search(r"lib(jemalloc|tcmalloc\w*)\.so", path)}
        assert allocators == {str(self.library)}, allocators

    def require_served(self, blocks, pid=None):
        """Checks by the statistics, written when processes end, that hakmem gave the process (or one of all) at least so many blocks."""
        files = [self.figures_of / str(pid)] if pid else list(self.figures_of.iterdir())
        served = [figures["bin_hits"] + figures["large_allocs"] for figures in (json.loads(file.read_text()) for file in files)]
        assert served and max(served) >= blocks, (files, served)

    def large_bytes(self, pid):
        """The largest number of bytes in large blocks that a running process's black box has recorded."""
        found = re.findall(rb"^large \d+ (\d+)$", (self.folder / f"box-{pid}").read_bytes(), re.MULTILINE)
        return max(map(int, found), default=0)


def wait_for(happened):
    end = time.monotonic() + PATIENCE
    while not happened():
        assert time.monotonic() < end, "what is waited for does not happen"
        time.sleep(0.02)


def all_asleep(pid):
    """No thread of the process runs or waits for a processor."""
    try:
        states = [stat.read_text().rpartition(")")[2].split()[0] for stat in pathlib.Path(f"/proc/{pid}/task").glob("*/stat")]
    except OSError:  # a thread has just ended
        return False
    return set(states) == {"S"}


def free_port():
    """A port of 127.0.0.1 that is free for UDP and TCP, and that no client gets by chance, as dig shares its port with others."""
    for port in random.sample(range(10000, EPHEMERAL), 100):
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as datagrams, socket.socket() as stream, contextlib.suppress(OSError):
            datagrams.bind(("127.0.0.1", port))
            stream.bind(("127.0.0.1", port))
            return port
    raise AssertionError("no free port")


# ---- BIND 9: named, dig and nsupdate call mallocx, rallocx, sallocx and sdallocx for all they allocate ----

HOSTS = 20000


def address(host):
    return f"10.{host >> 16}.{host >> 8 & 255}.{host & 255}"


def lay_out_zone(side, port):
    lines = ["$TTL 60", "@ SOA ns hostmaster 1 60 60 60 60", " NS ns", "ns A 127.0.0.1"]
    (side.folder / "zone").write_text("\n".join([*lines, *(f"h{host} A {address(host)}" for host in range(HOSTS))]) + "\n")
    (side.folder / "named.conf").write_text(
        f'options {{ directory "{side.folder}"; listen-on port {port} {{ 127.0.0.1; }}; listen-on-v6 {{ none; }}; pid-file none;\n'
        '  session-keyfile none; recursion no; dnssec-validation no; };\n'
        'controls { };\n'
        'zone "example.test" { type primary; file "zone"; allow-update { 127.0.0.1; }; };\n')


def bind9(side):
    port = free_port()
    lay_out_zone(side, port)
    dig = ["/usr/bin/dig", "-r", "-p", str(port), "@127.0.0.1"]
    with side.server("/usr/sbin/named", "-g", "-n", "2", "-c", side.folder / "named.conf") as process:
        wait_for(lambda: "all zones loaded" in (side.folder / "log").read_text() or process.poll() is not None)
        side.require_mapped(process.pid)
        asked = range(0, HOSTS, 10)
        (side.folder / "names").write_text("".join(f"h{host}.example.test A\n" for host in asked))
        assert side.call(*dig, "+short", "-f", side.folder / "names").split() == [address(host) for host in asked]
        changes = [f"add new{host}.example.test 60 TXT {'text' * 40}" for host in range(1000)]
        changes += [f"delete h{host}.example.test A" for host in range(1000)]
        batches = ["\n".join([*changes[at : at + 100], "send"]) for at in range(0, len(changes), 100)]
        side.call("/usr/bin/nsupdate", stdin="\n".join([f"server 127.0.0.1 {port}", "zone example.test", *batches, ""]))
        rows = [line.split() for line in side.call(*dig, "+noall", "+answer", "example.test", "AXFR").splitlines()]
        addresses = {row[0]: row[4] for row in rows if row[3] == "A" and row[0] != "ns.example.test."}
        assert addresses == {f"h{host}.example.test.": address(host) for host in range(1000, HOSTS)}
        assert sum(row[3] == "TXT" and row[4] == f'"{"text" * 40}"' for row in rows) == 1000
    side.require_served(HOSTS, process.pid)
    # dig's own statistics: each of its queries took blocks.
    (side.figures_of / str(process.pid)).unlink()
    side.require_served(len(asked))


# ---- Varnish: its objects lie in blocks of malloc ----

OBJECTS, OBJECT_SIZE, STORE = 400, 64 << 10, "8M"


def page(path):
    """The text that the backend server has at a path, different for each path."""
    line = hashlib.sha256(path.encode()).hexdigest()
    return (line * (OBJECT_SIZE // len(line))).encode()


class Behind(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        body = page(self.path)
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "max-age=600")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


class Listener(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    daemon_threads = True

    def get_request(self):
        request, _ = super().get_request()
        return request, ("behind", 0)


@contextlib.contextmanager
def behind(path):
    with Listener(str(path), Behind) as listener:
        thread = threading.Thread(target=listener.serve_forever)
        thread.start()
        try:
            yield
        finally:
            listener.shutdown()
            thread.join()


def fetch(path, url):
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(PATIENCE)
        connection.connect(str(path))
        connection.sendall(f"GET {url} HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n".encode())
        with connection.makefile("rb") as answer:
            head, _, body = answer.read().partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200 "), head
    return body


def varnish(side):
    server, asked, place = side.folder / "behind", side.folder / "asked", side.folder / "place"
    place.mkdir()
    (side.folder / "test.vcl").write_text(f'vcl 4.1;\nbackend default {{ .path = "{server}"; }}\n')
    command = ["/usr/sbin/varnishd", "-F", "-j", "none", "-n", place, "-a", asked, "-f", side.folder / "test.vcl", "-s", f"malloc,{STORE}"]
    with behind(server), side.server(*command):
        wait_for(lambda: "said Child starts" in (side.folder / "log").read_text())
        child = int(re.search(r"Child \((\d+)\) Started", (side.folder / "log").read_text())[1])
        side.require_mapped(child)
        for number in range(OBJECTS):
            url = f"/{number}"
            assert fetch(asked, url) == fetch(asked, url) == page(url), url

        def counters():
            return json.loads(side.call("/usr/bin/varnishstat", "-1", "-j", "-n", place))["counters"]

        # A worker adds its counts once the answer is sent.
        wait_for(lambda: counters()["MAIN.client_req"]["value"] == OBJECTS * 2)
        figures = counters()
        assert figures["MAIN.cache_miss"]["value"] == OBJECTS and figures["MAIN.cache_hit"]["value"] == OBJECTS, figures
        # More has passed than the store holds, so the oldest objects were freed.
        assert figures["MAIN.n_lru_nuked"]["value"] > 0 and 0 < figures["SMA.s0.g_bytes"]["value"] <= 8 << 20, figures
        side.call("/usr/bin/varnishadm", "-n", place, "stop")  # the child ends in order and writes its statistics
        wait_for((side.figures_of / str(child)).exists)
    side.require_served(OBJECTS * 2, child)


# ---- SWI-Prolog: it calls the C functions of gperftools' MallocExtension ----


def usable(figures):
    """The bytes in use, as gperftools itself sums its properties."""
    free = ("tcmalloc.pageheap_free_bytes", "tcmalloc.pageheap_unmapped_bytes", "tcmalloc.central_cache_free_bytes",
            "tcmalloc.transfer_cache_free_bytes", "tcmalloc.thread_cache_free_bytes")
    return figures["generic.heap_size"] - sum(figures[name] for name in free)


def swi_prolog(side):
    text = side.call("/usr/bin/swipl", "-g", "main", "-t", "halt", HERE / "inputs/heap.pl")
    answers, _, rest = text.partition("generic.")
    assert answers.splitlines() == ["[1,5,8,6,3,7,2,4]", "9543", *["exited(450015000)"] * 4, "true"], answers
    worked, trimmed = ({name: int(value) for name, value in (line.split() for line in part.splitlines())}
                       for part in ("generic." + rest).split("trimmed\n"))
    for figures in worked, trimmed:
        allocated = figures["generic.current_allocated_bytes"]
        # The program allocates between its queries of the properties.
        assert 1 << 20 < allocated and abs(usable(figures) - allocated) < 64 << 10, figures
    assert worked["tcmalloc.pageheap_free_bytes"] > 0 == trimmed["tcmalloc.pageheap_free_bytes"], (worked, trimmed)
    assert trimmed["tcmalloc.max_total_thread_cache_bytes"] == 8 << 20 != worked["tcmalloc.max_total_thread_cache_bytes"]
    side.require_served(30000)


# ---- yrmcds: a server of memcached's protocol in C++ ----

VALUES, LARGE = 5000, 32 << 10


def value(key):
    """The value of a key, of 0 to 40 KiB."""
    return (hashlib.sha256(str(key).encode()).digest() * 1280)[: key * 7919 % 40960]


class Memcached:
    def __init__(self, port):
        self.connection = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE)
        self.answers = self.connection.makefile("rb")

    def set(self, key):
        body = value(key)
        self.connection.sendall(b"set key%d 0 0 %d\r\n%s\r\n" % (key, len(body), body))
        assert self.answers.readline() == b"STORED\r\n"

    def delete(self, key):
        self.connection.sendall(b"delete key%d\r\n" % key)
        assert self.answers.readline() == b"DELETED\r\n"

    def get(self, key):
        self.connection.sendall(b"get key%d\r\n" % key)
        line = self.answers.readline()
        if line == b"END\r\n":
            return None
        body = self.answers.read(int(line.split()[3]))
        assert self.answers.readline() == b"\r\n" and self.answers.readline() == b"END\r\n"
        return body

    def close(self):
        self.answers.close()
        self.connection.close()


def yrmcds(side):
    port, place = free_port(), side.folder / "place"
    place.mkdir()
    user, group = pwd.getpwuid(os.getuid()).pw_name, grp.getgrgid(os.getgid()).gr_name
    (side.folder / "conf").write_text(
        f'user = {user}\ngroup = {group}\nvirtual_ip = 127.0.0.1\nport = {port}\nrepl_port = {free_port()}\ntemp_dir = "{place}"\n'
        f'log.threshold = info\nlog.file = "{side.folder}/yrmcds.log"\nworkers = 4\nbuckets = 10000\nmemory_limit = 1024M\n')
    with side.server("/usr/sbin/yrmcdsd", "-f", side.folder / "conf") as process:
        wait_for(lambda: "Entering master" in (side.folder / "yrmcds.log").read_text() if (side.folder / "yrmcds.log").exists()
                 else process.poll() is not None)
        side.require_mapped(process.pid)
        asking = [Memcached(port) for _ in range(4)]
        for key in range(VALUES):
            asking[key % 4].set(key)
        # It ends by quick_exit, without statistics, so this reads the black box, which lags behind.
        large = sum(size for size in map(len, map(value, range(VALUES))) if size > LARGE)
        wait_for(lambda: side.large_bytes(process.pid) > large / 2)
        for key in range(0, VALUES, 3):
            asking[key % 4].delete(key)
        for key in range(VALUES):
            assert asking[(key + 1) % 4].get(key) == (value(key) if key % 3 else None), key
        for one in asking:
            one.close()
        # A worker still in a job when the server ends may spin forever, with any malloc, because it clears what stop() has set.
        wait_for(lambda: all_asleep(process.pid))


# Each package's case, and the programs that it needs.
CASES = {
    "bind9": (bind9, ["/usr/sbin/named", "/usr/bin/dig", "/usr/bin/nsupdate"]),
    "varnish": (varnish, ["/usr/sbin/varnishd", "/usr/bin/varnishstat"]),
    "swi-prolog": (swi_prolog, ["/usr/bin/swipl"]),
    "yrmcds": (yrmcds, ["/usr/sbin/yrmcdsd"]),
}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lib", type=pathlib.Path, required=True)
    parser.add_argument("case", choices=CASES)
    options = parser.parse_args()
    run, programs = CASES[options.case]
    missing = [program for program in programs if not pathlib.Path(program).exists()]
    if missing:
        print(f"skipped: {missing[0]} is not there; tools/setup compat installs it")
        return 77
    with tempfile.TemporaryDirectory() as folder:
        run(Side(options.lib.resolve(), pathlib.Path(folder)))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
