"""Writes commands for `redis-cli --pipe`: values of 200 bytes are set, read, deleted, and put into hashes; the end checks what is left.

    make_redis.py REQUESTS
"""
import random
import sys

VALUE = 200
FIELDS = 50
CHECKS = 100


def write(*words):
    sys.stdout.write(f"*{len(words)}\r\n" + "".join(f"${len(word)}\r\n{word}\r\n" for word in words))


def check(condition, *keys):
    """A reply that is an error makes redis-cli end with 1."""
    write("EVAL", f"if {condition} then return 1 end return redis.error_reply('a wrong value')", str(len(keys)), *keys)


def main(requests):
    dice, values, hashes = random.Random(1), {}, {}
    for number in range(requests):
        key, kind = f"key:{dice.randrange(requests // 3):09}", dice.random()
        value = f"{number:0{VALUE}}"
        if kind < 0.5:
            values[key] = value
            write("SET", key, value)
        elif kind < 0.8:
            write("GET", key)
        elif kind < 0.9:
            values.pop(key, None)
            write("DEL", key)
        else:
            name, field = f"hash:{dice.randrange(requests // 500)}", f"field:{dice.randrange(FIELDS)}"
            hashes.setdefault(name, {})[field] = value
            write("HSET", name, field, value)
    check(f"redis.call('DBSIZE') == {len(values) + len(hashes)}")
    for key in dice.sample(sorted(values), CHECKS):
        check(f"redis.call('GET', KEYS[1]) == '{values[key]}'", key)
    for name in dice.sample(sorted(hashes), min(CHECKS, len(hashes))):
        check(f"redis.call('HLEN', KEYS[1]) == {len(hashes[name])}", name)


main(int(sys.argv[1]))
