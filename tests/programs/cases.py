"""The table of programs: what each needs, and what it does.

A case is a function of a Side; it returns text that must be the same under both mallocs.  Each case first ensures, by
Side.require_bound or Side.require_mapped, that the program takes its malloc from the library.
"""
import dataclasses
import hashlib
import os
import pathlib
import re
import typing
import xml.etree.ElementTree

from harness import Failure

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
INPUTS = HERE / "inputs"


@dataclasses.dataclass
class Case:
    run: typing.Callable
    needs: dict  # path, or pattern of paths -> Debian package


def script(command, name, probe):
    """A case that runs a file of inputs/ with an interpreter; with the arguments `probe` the interpreter ends immediately."""
    def run(side):
        side.require_bound(command, *probe)
        return side.call(command, INPUTS / name)
    return run


# ---- CPython's own tests ----

PYTHON = "/usr/bin/python3"


def module_list(name):
    return (INPUTS / name).read_text().split()


def python_outcomes(side, report):
    """One line for each test function; durations are left out."""
    rows = []
    for case in xml.etree.ElementTree.parse(report).iter("testcase"):
        verdict = ",".join(child.tag for child in case if child.tag in ("failure", "error", "skipped"))
        rows.append(f"{case.get('name')} {case.get('result')} {verdict}")
    return sorted(rows)


def python_tests(side, modules, env):
    side.require_bound(PYTHON, "-c", "pass")
    report = side.folder / "report.xml"
    side.call(PYTHON, "-m", "test", "-j2", "--timeout=300", f"--junit-xml={report}", *modules, env=env)
    return "\n".join(python_outcomes(side, report))


def python(side):
    return python_tests(side, module_list("python-modules.txt"), {})


def python_malloc(side):
    return python_tests(side, module_list("python-malloc-modules.txt"), {"PYTHONMALLOC": "malloc"})


# ---- SQLite ----

def sqlite(side):
    side.require_bound("/usr/bin/sqlite3", ":memory:", "select 1")
    script_text = (INPUTS / "orders.sql").read_text()
    out = ""
    for rows, database in ((200000, ":memory:"), (30000, side.folder / "orders.db")):
        out += side.call("/usr/bin/sqlite3", "-bail", "-cmd", ".parameter init", "-cmd", f".parameter set @rows {rows}", database,
                         stdin=script_text)
    return out


# ---- Redis ----

REDIS_TESTS = "ping,set,get,incr,lpush,rpush,lpop,rpop,sadd,hset,spop,zadd,zpopmin,lrange_100,mset"


def redis_commands():
    """Commands whose data has the same digest in every run: all types, short and long values, overwritten and deleted keys."""
    for i in range(40000):
        key = i * 7919 % 30011
        yield f"SET str:{key} {'v' * (i % 300)}{i}"
        yield f"HSET hash:{key % 997} field:{i % 211} {'h' * (i % 90 + 1)}"
        yield f"RPUSH list:{key % 499} {i}-{'l' * (i % 120)}"
        yield f"ZADD zset:{key % 251} {i % 1000} member:{i % 5003}"
        yield f"SADD set:{key % 127} {i * i % 9973}"
        if i % 3 == 0:
            yield f"DEL str:{(key + 1) % 30011}"
    yield "XADD stream 1-1 field value"
    yield "EVAL \"local t = {} for i = 1, 20000 do t[i] = tostring(i) end return #table.concat(t)\" 0"


def redis(side):
    side.require_bound("/usr/bin/redis-server", "--version")
    side.require_bound("/usr/bin/redis-benchmark", "--version")
    socket = side.folder / "redis.sock"
    cli = ("/usr/bin/redis-cli", "-s", socket)
    options = {"port": 0, "unixsocket": socket, "dir": side.folder, "appendonly": "no", "enable-debug-command": "yes",
               "lazyfree-lazy-user-del": "yes"}
    command = ["/usr/bin/redis-server", *(word for key, value in options.items() for word in ("--" + key, value)), "--save", ""]
    out = []
    with side.server(*command, ready=socket.exists):
        load = side.call(*cli, "--pipe", stdin="\n".join(redis_commands()) + "\n")
        out.append(re.search(r"errors: .*", load)[0])
        for ask in ("dbsize", "debug digest", "debug reload", "debug digest", "config set activedefrag no", "bgrewriteaof"):
            out.append(side.call(*cli, *ask.split()))
        rates = side.call("/usr/bin/redis-benchmark", "-s", socket, "-n", "20000", "-c", "20", "-P", "8", "-r", "20000", "-d", "200",
                          "-t", REDIS_TESTS, "--csv")
        out += [line.split(",")[0] for line in rates.splitlines()]
        out.append(side.call(*cli, "flushall"))
    return "\n".join(out)


# ---- PHP ----

PHP = "/usr/bin/php8.2"
PHP_PACKAGES = """amqp apcu ast bcmath bz2 curl dba ds enchant gd gmp gnupg http igbinary imagick imap interbase intl ldap mailparse
    maxminddb mbstring mcrypt memcached mongodb msgpack mysql oauth odbc opcache pgsql pspell raphf readline redis rrd snmp soap sqlite3 ssh2 stomp
    sybase tidy uuid xml yaml zip zmq""".split()
PHP_MODULES = {"interbase": "pdo_firebird", "mysql": "mysqli", "sybase": "pdo_dblib"}  # modules not named like their package


def php(side):
    """Loads every installed extension, each with RTLD_DEEPBIND, and runs a script that uses them."""
    side.require_bound(PHP, "-n", "-r", "1;")
    return side.call(PHP, "-m") + side.call(PHP, INPUTS / "words.php")


# ---- Git ----

def git_stream():
    """300 commits for git fast-import: files that grow, change and are deleted."""
    for commit in range(1, 301):
        yield f"commit refs/heads/main\nmark :{commit}\ncommitter A <a@b.c> {1600000000 + commit * 60} +0000\n"
        message = f"Change {commit}"
        yield f"data {len(message)}\n{message}\n"
        for number in range(commit % 7 + 1):
            body = "".join(f"line {line} of {(commit * 31 + number * line) % 1009}\n" for line in range(50 + commit))
            yield f"M 100644 inline dir{number}/file{commit * (number + 3) % 41}.txt\ndata {len(body)}\n{body}\n"
        if commit % 10 == 0:
            yield f"D dir0/file{commit * 3 % 41}.txt\n"


def git(side):
    git_path = "/usr/bin/git"
    stamp = {"GIT_AUTHOR_NAME": "A", "GIT_AUTHOR_EMAIL": "a@b.c", "GIT_COMMITTER_NAME": "A", "GIT_COMMITTER_EMAIL": "a@b.c",
             "GIT_CONFIG_NOSYSTEM": "1", "GIT_AUTHOR_DATE": "1700000000 +0000", "GIT_COMMITTER_DATE": "1700000000 +0000"}
    side.env |= stamp
    side.require_bound(git_path, "version")

    def do(*words, stdin=None):
        return side.call(git_path, "-C", side.folder / "repo", *words, stdin=stdin)
    side.call(git_path, "init", "-q", "-b", "main", side.folder / "repo")
    do("fast-import", "--quiet", stdin="".join(git_stream()))
    out = [do("reset", "-q", "--hard", "main")]
    for number in range(20):
        (side.folder / "repo" / "notes.txt").write_text("note\n" * number + str(number))
        do("add", "-A")
        do("commit", "-q", "-m", f"Note {number}")
    out += [do("log", "--stat", "--format=%H %s"), do("diff", "HEAD~200", "HEAD", "--stat"), do("blame", "notes.txt")]
    do("gc", "-q", "--aggressive", "--prune=now")
    side.call(git_path, "clone", "-q", "--no-local", side.folder / "repo", side.folder / "copy")
    out += [do("fsck", "--strict", "--full"), do("grep", "-c", "of 7"), do("-C", side.folder / "copy", "log", "--format=%H %T"),
            do("log", "-p", "-M", "-C", "-n", "60")]
    return "\n".join(out)


# ---- GCC ----

GCC = "/usr/bin/gcc"


def gcc(side):
    """Compiles hakmem by a compiler that runs under hakmem: the objects must be identical."""
    source = ROOT / "src" / "hakmem.c"
    if not source.exists():
        raise Failure(f"{source} is missing")
    side.require_bound(side.call(GCC, "-print-prog-name=cc1").strip(), "--version")
    out = []
    for flags in (["-O2", "-g"], ["-O3", "-march=x86-64-v3" if os.uname().machine == "x86_64" else "-O3", "-fno-inline"], ["-O0", "-g3"]):
        made = side.folder / "hakmem.o"
        side.call(GCC, "-std=gnu11", "-D_GNU_SOURCE", *flags, "-fPIC", "-ftls-model=initial-exec", f"-fdebug-prefix-map={side.folder}=.",
                  "-I", ROOT / "src", "-I", ROOT / "include", "-c", source, "-o", made)
        out.append(f"{' '.join(flags)} {hashlib.sha256(made.read_bytes()).hexdigest()}")
    return "\n".join(out)


# ---- PostgreSQL ----

def postgres_folder():
    """The folder of the newest version's programs in Debian."""
    return max(pathlib.Path("/usr/lib/postgresql").glob("*/bin/postgres"), key=lambda path: int(path.parts[4])).parent


def pgbench_result(text):
    keep = r"^(transaction type|scaling factor|number of (clients|threads|transactions actually|failed)).*$"
    return "\n".join(match[0] for match in re.finditer(keep, text, re.M))


def postgres(side):
    side.become("postgres")
    programs, data = postgres_folder(), side.folder / "data"
    for name in ("postgres", "initdb", "pgbench", "psql"):
        side.require_bound(programs / name, "--version")
    side.call(programs / "initdb", "-D", data, "-U", "postgres", "-A", "trust", "--no-sync", "--locale=C.UTF-8")
    settings = ["listen_addresses=", f"unix_socket_directories={side.folder}", "fsync=off", "max_parallel_workers_per_gather=2",
                "min_parallel_table_scan_size=0", "parallel_setup_cost=0", "logging_collector=off", "jit=off"]
    client = ("-h", side.folder, "-U", "postgres")
    bench = (programs / "pgbench", *client, "postgres")
    out = []
    with side.server(programs / "postgres", "-D", data, *(word for setting in settings for word in ("-c", setting)),
                     ready=lambda: "ready to accept" in (side.folder / "server.log").read_text(), stop=2):
        side.call(*bench, "-i", "-q", "-s", "2")
        out.append(pgbench_result(side.call(*bench, "-c", "4", "-j", "2", "-t", "400", "--random-seed=7")))
        out.append(pgbench_result(side.call(*bench, "-c", "4", "-j", "2", "-t", "1500", "-S", "-M", "prepared", "--random-seed=7")))
        out.append(side.call(programs / "psql", *client, "-X", "-A", "-t", "-v", "ON_ERROR_STOP=1", "postgres",
                             stdin=(INPUTS / "accounts.sql").read_text()))
    return "\n".join(out)


CASES = {
    "python": Case(python, {PYTHON: "python3", "/usr/lib/python3*/test/test_gc.py": "libpython3.11-testsuite"}),
    "python-malloc": Case(python_malloc, {PYTHON: "python3", "/usr/lib/python3*/test/test_gc.py": "libpython3.11-testsuite"}),
    "sqlite": Case(sqlite, {"/usr/bin/sqlite3": "sqlite3"}),
    "redis": Case(redis, {"/usr/bin/redis-server": "redis-server", "/usr/bin/redis-benchmark": "redis-tools"}),
    "perl": Case(script("/usr/bin/perl", "words.pl", ["-e", "1"]), {"/usr/bin/perl": "perl"}),
    "php": Case(php, {PHP: "php8.2-cli"} | {f"/usr/lib/php/*/{PHP_MODULES.get(name, name)}.so": f"php8.2-{name}" for name in PHP_PACKAGES}),
    "ruby": Case(script("/usr/bin/ruby", "words.rb", ["-e", "1"]), {"/usr/bin/ruby": "ruby"}),
    "lua": Case(script("/usr/bin/lua5.4", "words.lua", ["-e", "x = 1"]), {"/usr/bin/lua5.4": "lua5.4"}),
    "node": Case(script("/usr/bin/node", "words.js", ["-e", "1"]), {"/usr/bin/node": "nodejs"}),
    "git": Case(git, {"/usr/bin/git": "git"}),
    "gcc": Case(gcc, {GCC: "gcc"}),
    "postgres": Case(postgres, {"/usr/lib/postgresql/*/bin/postgres": "postgresql-15",
                                "/usr/lib/postgresql/*/bin/psql": "postgresql-client-15"}),
}
